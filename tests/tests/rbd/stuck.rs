//! Claims about OSDs that stop answering while an image is taken: who waits for them can give it up.

use crate::cluster::alone;
use crate::driven::Behind;
use crate::site::{Image, attach_request};
use loligo_ceph::Notice;
use loligo_ceph::attach::{self, Attachment};
use loligo_ceph::bug;
use loligo_ceph::cancel::attach_while;
use loligo_ceph::lease::Poller;
use loligo_ceph::quiesce::Quiescer;
use loligo_tests::skip::at_length;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

const OSDS: [&str; 3] = ["osd.0", "osd.1", "osd.2"];
/// Names the image for the process that takes it.
const IMAGE: &str = "LOLIGO_TEST_STUCK";
/// The same, for the process that keeps it.
const KEPT: &str = "LOLIGO_TEST_KEPT";

/// Says how far it is, and waits until the test has done its part.
fn reached(place: &str) {
    println!("\nreached {place}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the test goes on");
}

/// A test that runs in a process of its own, and waits wherever it says how far it is.
struct Run {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Run {
    fn new(test: &str, key: &str, image: &Image) -> Run {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", &format!("stuck::{test}"), "--nocapture"])
            .env(key, format!("{}?conf={}&id=loligo", image.spec, image.cluster.conf().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let input = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Run { child, input, lines }
    }

    fn reaches(&mut self, place: &str) {
        let line = format!("reached {place}");
        assert!(self.lines.any(|l| l.is_ok_and(|l| l == line)), "it does not reach {place}");
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("it reads");
    }
}

/// Run by the test below, in a process of its own: a client that was given up stays in it.
#[test]
fn in_a_process_of_its_own() {
    let Ok(spec) = std::env::var(IMAGE) else { return };
    let spec = spec.parse().expect("an image");
    let take = |goes_on: &mut dyn FnMut() -> bool| {
        attach_while(attach_request(&spec, &mut |_| Ok(())), goes_on).expect("no refusal")
    };
    let hangs = Arc::new(AtomicBool::new(false));
    let told = hangs.clone();
    // After every look at the image, and before its lock is taken.
    bug::visit(move || {
        reached("the lock");
        told.store(true, Ordering::SeqCst);
    });
    let since = Cell::new(None);
    let given_up = take(&mut || {
        if hangs.load(Ordering::SeqCst) && since.get().is_none() {
            since.set(Some(Instant::now()));
        }
        since.get().is_none_or(|since| since.elapsed() < Duration::from_secs(2))
    });
    assert!(given_up.is_none(), "there was nobody to give it");
    let waited = since.get().expect("they stand still").elapsed();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    reached("the end");
    // OSDs know the former client for a while, and whatever it had sent is carried out, or refused.
    let taken = take(&mut || true).expect("it is ours");
    taken.image.detach(true).expect("an end");
    println!("\nreached all");
    // SAFETY: threads of the client that was given up still run, which an orderly exit would take data from.
    unsafe { libc::_exit(0) };
}

/// Run by the test below, in a process of its own: the thread that asks the OSDs stays in it.
#[test]
fn a_keeper_in_a_process_of_its_own() {
    let Ok(spec) = std::env::var(KEPT) else { return };
    let spec = spec.parse().expect("an image");
    let Attachment { image, notices, .. } =
        attach::attach(attach_request(&spec, &mut |_| Ok(()))).expect("no refusal");
    let poller = Poller::start(image.clone()).expect("a thread");
    let (ask, asked) = channel();
    let quiescer = Quiescer::start(image.clone(), notices, Box::new(Behind(ask)), 4).expect("threads");
    let idle = || image.counters.refreshes.load(Ordering::Relaxed) > 0;
    while !idle() {
        std::thread::sleep(Duration::from_millis(10));
    }
    reached("the quiescer");
    image.tell(Notice::Stale);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(asked.try_recv().err(), Some(TryRecvError::Empty), "the quiescer has it");
    quiescer.stop();
    let held = asked.try_recv().err();
    assert_eq!(
        held,
        Some(TryRecvError::Disconnected),
        "whoever still asks the OSDs has nothing of the cache"
    );
    drop(poller);
    println!("\nreached all");
    // SAFETY: threads that ask the OSDs still run, which an orderly exit would take data from.
    unsafe { libc::_exit(0) };
}

#[test]
fn a_keeper_that_osds_hang_lets_go_of_the_cache() {
    let what = "a quiescer that OSDs hang";
    if !at_length(what) {
        return;
    }
    let Some((cluster, _alone)) = alone(what) else { return };
    let image = Image::new(cluster, "kept");
    let mut run = Run::new("a_keeper_in_a_process_of_its_own", KEPT, &image);
    run.reaches("the quiescer");
    let frozen = cluster.freeze(&OSDS);
    run.go_on();
    run.reaches("all");
    drop(frozen);
    cluster.wait_clean();
    assert!(run.child.wait().expect("an end").success());
}

#[test]
fn a_start_that_osds_hang_can_be_given_up_and_tried_again() {
    let Some((cluster, _alone)) = alone("an attach that OSDs hang") else { return };
    let image = Image::new(cluster, "stuck");
    let mut run = Run::new("in_a_process_of_its_own", IMAGE, &image);
    run.reaches("the lock");
    let frozen = cluster.freeze(&OSDS);
    run.go_on();
    run.reaches("the end");
    drop(frozen);
    cluster.wait_clean();
    run.go_on();
    run.reaches("all");
    assert!(run.child.wait().expect("an end").success());
    image.is_free();
}
