//! Claims about OSDs that stop answering while an image is taken: who waits for them can give it up.

use crate::cluster::alone;
use crate::site::{Image, wish};
use loligo_ceph::bug;
use loligo_ceph::cut::take_while;
use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const OSDS: [&str; 3] = ["osd.0", "osd.1", "osd.2"];
/// Names the image for the process that takes it.
const IMAGE: &str = "LOLIGO_TEST_STUCK";

/// Says how far it is, and waits until the test has done its part.
fn reached(place: &str) {
    println!("\nreached {place}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the test goes on");
}

/// Run by the test below, in a process of its own: a client that was given up stays in it.
#[test]
fn in_a_process_of_its_own() {
    let Ok(spec) = std::env::var(IMAGE) else { return };
    let spec = spec.parse().expect("an image");
    let take = |goes_on: &mut dyn FnMut() -> bool| {
        take_while(wish(&spec, &mut |_| Ok(())), goes_on).expect("no refusal")
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

#[test]
fn a_start_that_osds_hang_can_be_given_up_and_tried_again() {
    let Some((cluster, _alone)) = alone("an attach that OSDs hang") else { return };
    let image = Image::new(cluster, "stuck");
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "stuck::in_a_process_of_its_own", "--nocapture"])
        .env(IMAGE, format!("{}?conf={}&id=loligo", image.spec, cluster.conf().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut go_on = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut reaches = |place: &str| {
        let line = format!("reached {place}");
        assert!(lines.any(|l| l.is_ok_and(|l| l == line)), "it does not reach {place}");
    };
    reaches("the lock");
    let frozen = cluster.freeze(&OSDS);
    go_on.write_all(b"\n").expect("it reads");
    reaches("the end");
    drop(frozen);
    cluster.wait_clean();
    go_on.write_all(b"\n").expect("it reads");
    reaches("all");
    assert!(child.wait().expect("an end").success());
    image.is_free();
}
