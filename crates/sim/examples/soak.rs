//! Long runs: `soak FROM TO [BUG]` runs every seed in the range on all processors, prints failures as they come, and what
//! was reached. Exit code 1 where a seed failed.

#![allow(clippy::print_stdout)]

use loligo_engine::Bug;
use loligo_sim::marks::Marks;
use loligo_sim::run_seed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BUGS: [Bug; 14] = [
    Bug::JournalOrderSwapped,
    Bug::CrcCheckDropped,
    Bug::SlotReusedEarly,
    Bug::CleanBeforeCoreFlush,
    Bug::RecordWithoutData,
    Bug::StaleSuperblock,
    Bug::CoreWriteWithoutIntent,
    Bug::StaleTailReplayed,
    Bug::FuaPastGap,
    Bug::OlderEntryKept,
    Bug::DestagedBeforeDurable,
    Bug::NewestInsteadOfPinned,
    Bug::BypassWhileFrozen,
    Bug::PinnedSlotReused,
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (from, to) = (number(0, 0), number(1, 1000));
    let bug = args.get(2).and_then(|name| BUGS.into_iter().find(|b| format!("{b:?}") == *name));
    std::panic::set_hook(Box::new(|_| {}));
    let (next, failed, done) = (AtomicU64::new(from), AtomicU64::new(0), AtomicU64::new(0));
    let marks = Mutex::new(Marks::default());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= to {
                        break;
                    }
                    match run_seed(seed, bug) {
                        Ok(s) => {
                            if let Ok(mut all) = marks.lock() {
                                all.merge(&s.marks);
                            }
                        }
                        Err(f) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("{f}");
                        }
                    }
                    let n = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if n.is_multiple_of(1000) {
                        let rate = n as f64 / began.elapsed().as_secs_f64();
                        println!("{n} seeds, {} failed, {rate:.1}/s", failed.load(Ordering::Relaxed));
                    }
                }
            });
        }
    });
    if let Ok(all) = marks.lock() {
        print!("{all}");
    }
    let (n, failed) = (done.load(Ordering::Relaxed), failed.load(Ordering::Relaxed));
    println!("{n} seeds in {:.1} s, {failed} failed", began.elapsed().as_secs_f64());
    if failed > 0 {
        std::process::exit(1);
    }
}
