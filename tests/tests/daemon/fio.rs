//! fio over NBD and on a block device, verifying, while the volumes under it are changed and their daemon is killed.
//!
//! `LOLIGO_SEED=n` repeats the plan of a run; `LOLIGO_LONG=1` makes it one of 20 rounds.

use crate::random::Plan;
use loligo_tests::fio::{Fio, Passes, Writing, Written, can_run};
use loligo_tests::skip::is_long;
use std::time::{Duration, Instant};

/// fio's part of a volume, of which there is more before and behind.
const FROM: usize = 4 << 20;
/// Bytes of it that are written again and again, and verified each time.
const AGAIN: usize = 8 << 20;
/// Bytes that a pass takes longer for than the plan has before it kills.
const WHOLE: usize = 56 << 20;
/// Writes a second.
const RATE: u32 = 1500;

impl Plan {
    /// fio on each of the volumes, in a folder of its own.
    fn fios(&self) -> Vec<Fio> {
        let of = |volume: &&str| {
            let dir = self.site.path(&format!("fio-{volume}"));
            std::fs::create_dir_all(&dir).expect("a folder");
            match &self.device {
                Some(device) if *volume == "d" => Fio::device(&dir, device),
                _ => Fio::nbd(&dir, &self.site.path(&format!("{volume}.nbd")), volume),
            }
        };
        self.volumes.iter().map(of).collect()
    }

    /// Changes at random moments, for as long as that.
    fn changes(&mut self, during: Duration) {
        let end = Instant::now() + during;
        while Instant::now() < end {
            let command = self.command();
            self.carry_out(&command);
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(self.rng.below(200))));
        }
    }
}

#[test]
fn fio_finds_all_it_wrote_whatever_changes_or_is_killed() {
    if !can_run("fio under changes") {
        return;
    }
    let mut plan = Plan::new("fio");
    let fios = plan.fios();
    let mut written: Vec<Written> = Vec::new();
    let rounds = if is_long() { 20 } else { 3 };
    for round in 0..=rounds {
        let context = plan.context(round);
        let mut daemon = plan.site.daemon();
        for volume in &plan.volumes {
            assert_eq!(plan.site.status(volume).0, "serving", "{context}: {:?}", plan.site.status(volume));
        }
        for fio in std::mem::take(&mut written) {
            fio.is_there().unwrap_or_else(|e| panic!("{context}: after the kill: {e}"));
        }
        // It must go on without an error while the daemon lives.
        let passes: Vec<Passes> = fios.iter().map(|f| f.clone().part(FROM, AGAIN, RATE).passes()).collect();
        plan.changes(Duration::from_millis(1500));
        passes.into_iter().for_each(|p| drop(p.stop()));
        if round == rounds {
            daemon.stop().unwrap_or_else(|e| panic!("{context}: {e:?}"));
            break;
        }
        // One of them notes down what is acknowledged, and kills the daemon in the same moment.
        let begin = |(i, f): (usize, &Fio)| {
            f.clone().part(FROM, WHOLE, RATE).write(round + 1, (i == 0).then(|| daemon.id()))
        };
        let writing: Vec<Writing> = fios.iter().enumerate().map(begin).collect();
        let until = Duration::from_millis(600 + plan.rng.below(1500));
        plan.changes(until);
        let mut last = plan.begin();
        written = Writing::kill(writing, &mut daemon);
        last.wait().expect("it ends");
    }
    println!("carried out: {:?}", plan.done);
}
