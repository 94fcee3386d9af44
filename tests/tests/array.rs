//! Claims about `loligo lab array`, the model of an array that two controllers share, and about fences over it by the calls
//! that a block device has.
//!
//! The claims that also real targets keep are in `loligo_tests::fence_claims`. They run here on the model without defects and
//! with those of LIO and nvmet.

#![allow(clippy::print_stdout)]

use loligo_pair::fence::{BlockFence, Fence, FenceError, take, take_within};
use loligo_pair::reservation::Key;
use loligo_tests::fence_claims::{self, Delay, IfPartnerHolds, Target};
use loligo_tests::server::program;
use loligo_tests::skip::{fuse, skip};
use rustix::fs::{FlockOperation, XattrFlags, flock, setxattr};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const A: Key = Key(0xa);
const B: Key = Key(0xb);
const MIB: u64 = 1 << 20;

/// An array with the paths `a` and `b`, ended and unmounted by its drop.
struct Array {
    process: Child,
    dir: tempfile::TempDir,
}

impl Array {
    /// `None`, once said, where nothing can be mounted.
    fn new(test: &str, defects: &[&str]) -> Option<Array> {
        if let Err(why) = fuse() {
            skip(test, &why);
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        for name in ["a", "b"] {
            std::fs::create_dir(dir.path().join(name)).expect("a folder");
        }
        let process = serve(dir.path(), defects);
        Some(Array { process, dir })
    }

    /// The process is ended, by SIGKILL or in peace, and another serves the same files.
    fn again(&mut self, killed: bool, defects: &[&str]) {
        self.end(killed);
        self.process = serve(self.dir.path(), defects);
    }

    fn end(&mut self, killed: bool) {
        match killed {
            true => self.process.kill().expect("it runs"),
            // SAFETY: the child is ours and not yet waited for.
            false => drop(unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGTERM) }),
        }
        self.process.wait().expect("it ends");
        for name in ["a", "b"] {
            let place = self.dir.path().join(name);
            if loligo_tests::mounted::listed(&place) {
                let _ = Command::new("umount").arg("-l").arg(place).status();
            }
        }
    }

    fn lun(&self, path: &str) -> PathBuf {
        self.dir.path().join(path).join("lun")
    }

    fn fence(&self, path: &str) -> BlockFence {
        BlockFence::open(&self.lun(path)).expect("it opens")
    }

    fn file(&self, path: &str) -> File {
        File::options().read(true).write(true).open(self.lun(path)).expect("it opens")
    }

    fn set(&self, path: &str, name: &str, value: &str) {
        let name = format!("user.loligo.{name}");
        setxattr(self.lun(path), name.as_str(), value.as_bytes(), XattrFlags::empty()).expect("it is taken");
    }

    /// Both are registered, and the path `holder` holds the LUN.
    fn pair(&self, holder: &str) -> (BlockFence, BlockFence) {
        let (mut a, mut b) = (self.fence("a"), self.fence("b"));
        a.register(Key::NONE, A).expect("a registers");
        b.register(Key::NONE, B).expect("b registers");
        match holder {
            "a" => a.reserve(A).expect("a reserves"),
            _ => b.reserve(B).expect("b reserves"),
        }
        (a, b)
    }

    fn count(&self, path: &str, what: &str) -> u64 {
        let mut raw = vec![0; 4096];
        let read = rustix::fs::getxattr(self.lun("b"), "user.loligo.counters", &mut raw[..]);
        let all: Value = serde_json::from_slice(&raw[..read.expect("counters")]).expect("JSON");
        all[path][what].as_u64().expect("a counter")
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for.
        unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGTERM) };
        let ended = self.process.wait();
        let left = ["a", "b"].iter().any(|path| loligo_tests::mounted::listed(&self.dir.path().join(path)));
        if !std::thread::panicking() {
            assert!(ended.is_ok_and(|s| s.success()) && !left, "it ends, and leaves no mount");
        }
    }
}

/// A process that serves the LUNs `lun` and `other` in `dir`.
fn serve(dir: &Path, defects: &[&str]) -> Child {
    let luns = ["lun", "other"].map(|lun| format!("--lun={lun}={}:64m", dir.join(lun).display()));
    start(dir, &luns, defects)
}

fn start(dir: &Path, luns: &[String], defects: &[&str]) -> Child {
    let mut command = Command::new(program());
    command.args(["lab", "array"]).args(luns);
    for name in ["a", "b"] {
        command.args(["--path", &format!("{name}={}", dir.join(name).display())]);
    }
    for defect in defects {
        command.args(["--defect", defect]);
    }
    let mut process = command.stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut line = String::new();
    let out = process.stdout.as_mut().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    process
}

fn put(file: &File, byte: u8) -> std::io::Result<()> {
    file.write_all_at(&[byte; 4096], MIB)
}

/// A write of `file` that has begun in the array and takes a while, in a thread.
fn slow(file: &File, byte: u8) -> std::thread::JoinHandle<std::io::Result<()>> {
    let file = file.try_clone().expect("a descriptor");
    let write = std::thread::spawn(move || put(&file, byte));
    std::thread::sleep(Duration::from_millis(200));
    write
}

/// Every claim on a model with these defects.
fn claims(test: &str, defects: &[&str], if_partner_holds: IfPartnerHolds) {
    let Some(array) = Array::new(test, defects) else { return };
    let (short, long) = (Duration::from_millis(100), Duration::from_millis(600));
    let set_delay = |delay: Delay| {
        let delay = match delay {
            Delay::None => Duration::ZERO,
            Delay::Short => short,
            Delay::Long => long,
        };
        array.set("a", "fault", &format!(r#"{{"delay_ms": {}}}"#, delay.as_millis()));
    };
    let (a, b) = (array.lun("a"), array.lun("b"));
    let target = Target { a, b, if_partner_holds, set_delay: &set_delay, short, long };
    fence_claims::run(&target).expect("every claim holds");
}

#[test]
fn the_model_keeps_every_claim() {
    claims("claims about fences", &[], IfPartnerHolds::Waits);
}

#[test]
fn the_model_with_lios_defect_keeps_every_claim() {
    claims("claims about fences on LIO", &["abort-misses-registrants"], IfPartnerHolds::Misses);
}

#[test]
fn the_model_with_nvmets_defect_keeps_every_claim() {
    claims("claims about fences on nvmet", &["preempts-without-effect"], IfPartnerHolds::Nothing);
}

#[test]
fn writes_are_counted_as_ended_refused_or_late() {
    let Some(array) = Array::new("counters of writes", &["abort-misses-registrants"]) else { return };
    let (a, mut b) = array.pair("b");
    put(&array.file("a"), 1).expect("a registrant writes");
    array.set("a", "fault", r#"{"delay_ms": 1000}"#);
    let write = slow(&array.file("a"), 2);
    take(&mut b, B, A).expect("the keys say that it is fenced");
    write.join().expect("no panic").expect("it goes on");
    put(&array.file("a"), 3).expect_err("it is fenced");
    let why = array.file("a").sync_data().expect_err("it is fenced");
    assert_eq!(why.raw_os_error(), Some(libc::EBADE));
    let counted = ["written", "rejected", "landed"].map(|what| array.count("a", what));
    assert_eq!((counted, Path::new(&a.name())), ([1, 1, 1], &*array.lun("a")));
}

#[test]
fn a_lost_path_is_no_fence() {
    let Some(array) = Array::new("lost paths", &[]) else { return };
    let (_, mut b) = array.pair("a");
    array.set("b", "fault", r#"{"lost": true}"#);
    assert!(matches!(take(&mut b, B, A), Err(FenceError::Io { .. })));
    array.set("b", "fault", "{}");
    put(&array.file("a"), 1).expect("nothing was done to the owner");
}

#[test]
fn no_answer_is_no_fence_and_may_have_effect_later() {
    let Some(array) = Array::new("silent arrays", &[]) else { return };
    let (_, b) = array.pair("a");
    let owner = array.file("a");
    array.set("b", "fault", r#"{"silent": true}"#);
    let done = take_within(b, B, A, Duration::from_millis(300));
    assert!(matches!(done, Err(FenceError::TimedOut { .. })), "{done:?}");
    put(&owner, 1).expect("nothing is done yet");
    array.set("b", "fault", "{}");
    let begun = Instant::now();
    while put(&owner, 2).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the call was forgotten");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn registrations_outlive_the_power_unless_the_array_forgets() {
    for (defects, kept) in [(&[][..], true), (&["forgets-at-power-cycle"][..], false)] {
        let Some(array) = Array::new("loss of power", defects) else { return };
        let (mut a, mut b) = array.pair("a");
        array.set("a", "power-cycle", "1");
        let shown = a.read().expect("keys");
        assert_eq!(shown.keys.is_empty(), !kept);
        assert_eq!(take(&mut b, B, A).is_ok(), kept, "nobody is registered: stop and ask");
    }
}

#[test]
fn a_fence_in_whose_course_the_power_goes_is_none() {
    let Some(array) = Array::new("loss of power in a fence", &[]) else { return };
    let (_, mut b) = array.pair("a");
    array.set("a", "fault", r#"{"delay_ms": 1500}"#);
    let write = slow(&array.file("a"), 1);
    let fence = std::thread::spawn(move || take(&mut b, B, A));
    std::thread::sleep(Duration::from_millis(200));
    array.set("b", "power-cycle", "1");
    assert!(matches!(fence.join().expect("no panic"), Err(FenceError::Io { .. })));
    write.join().expect("no panic").expect_err("nothing is acknowledged over a loss of power");
    let mut again = array.fence("b");
    assert!(take(&mut again, B, A).is_ok(), "it can be said again");
}

#[test]
fn locks_and_page_caches_of_two_paths_are_apart() {
    let Some(array) = Array::new("locks between hosts", &[]) else { return };
    let (a, b) = (array.file("a"), array.file("b"));
    flock(&a, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    flock(&b, FlockOperation::NonBlockingLockExclusive).expect("the other host does not see it");
    let mut seen = [9; 4096];
    b.read_exact_at(&mut seen, MIB).expect("a read");
    put(&a, 1).expect("a write");
    b.read_exact_at(&mut seen, MIB).expect("a read");
    assert_eq!(seen[0], 0, "the other host's page cache has the old bytes");
}

#[test]
fn the_only_lun_of_a_file_needs_no_name() {
    let Some(mut array) = Array::new("one LUN", &[]) else { return };
    array.end(false);
    let words = [array.dir.path().join("one").display().to_string(), "--size=8m".to_owned()];
    array.process = start(array.dir.path(), &words, &[]);
    let names = std::fs::read_dir(array.dir.path().join("b")).expect("a mount").flatten();
    assert_eq!(names.map(|e| e.file_name()).collect::<Vec<_>>(), ["lun"]);
    assert_eq!(array.file("b").metadata().expect("a file").len(), 8 << 20);
}

#[test]
fn luns_of_one_array_are_fenced_apart() {
    let Some(array) = Array::new("two LUNs", &[]) else { return };
    let (_, mut b) = array.pair("a");
    let other = File::options().write(true).open(array.dir.path().join("a/other")).expect("it opens");
    take(&mut b, B, A).expect("a fence");
    put(&array.file("a"), 1).expect_err("it is fenced");
    put(&other, 1).expect("nobody fenced the other LUN");
}

#[test]
fn registrations_and_counters_outlive_the_arrays_process() {
    let Some(mut array) = Array::new("arrays that end", &[]) else { return };
    let (_, mut b) = array.pair("a");
    let old = array.file("a");
    put(&old, 1).expect("the owner writes");
    take(&mut b, B, A).expect("a fence");
    put(&old, 2).expect_err("it is fenced");
    drop((old, b));
    // It notes its counters each second.
    std::thread::sleep(Duration::from_millis(1500));
    for killed in [true, false] {
        array.again(killed, &[]);
        let shown = array.fence("a").read().expect("keys");
        assert_eq!((shown.keys, shown.held.map(|(key, _)| key)), (vec![B], Some(B)), "killed: {killed}");
        assert_eq!((array.count("a", "written"), array.count("a", "rejected")), (1, 1), "killed: {killed}");
        put(&array.file("b"), 3).expect("the partner writes");
    }
    array.again(false, &["forgets-at-power-cycle"]);
    assert!(array.fence("a").read().expect("keys").keys.is_empty());
    put(&array.file("a"), 4).expect("nobody is fenced");
}

#[test]
fn damaged_registrations_are_refused_and_not_forgotten() {
    let Some(mut array) = Array::new("damaged registrations", &[]) else { return };
    let memory = array.dir.path().join("other.pr");
    let again = |array: &Array| {
        let lun = format!("lun={}", array.dir.path().join("other").display());
        let place = format!("a={}", array.dir.path().join("none").display());
        let args = ["lab", "array", "--lun", &lun, "--path", &place];
        Command::new(program()).args(args).output().expect("the program runs")
    };
    let other_paths = again(&array);
    assert!(String::from_utf8_lossy(&other_paths.stderr).contains("served by the paths a, b"));
    std::fs::write(&memory, vec![7; 131_072]).expect("a file");
    let damaged = again(&array);
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("both copies"), "{damaged:?}");
    std::fs::remove_file(&memory).expect("the file");
    array.again(false, &[]);
}

#[test]
fn a_loss_of_power_tears_a_write_at_a_block() {
    let Some(array) = Array::new("torn writes", &[]) else { return };
    let file = array.file("a");
    let write = |byte: u8| file.write_all_at(&[byte; 16384], MIB);
    let blocks = || {
        let mut all = [0; 16384];
        File::open(array.dir.path().join("lun")).and_then(|f| f.read_exact_at(&mut all, MIB)).expect("bytes");
        [all[0], all[8191], all[8192], all[16383]]
    };
    write(1).expect("a write");
    array.set("a", "fault", r#"{"torn": true, "delay_ms": 1500}"#);
    std::thread::scope(|scope| {
        let torn = scope.spawn(|| write(2));
        std::thread::sleep(Duration::from_millis(300));
        array.set("b", "power-cycle", "1");
        let why = torn.join().expect("no panic").expect_err("it is not acknowledged");
        assert_eq!(why.raw_os_error(), Some(libc::EIO));
    });
    assert_eq!(blocks(), [2, 2, 1, 1]);
    array.set("a", "fault", r#"{"torn": true}"#);
    write(3).expect("with power it is whole");
    assert_eq!(blocks(), [3; 4]);
}

#[test]
fn a_device_without_reservations_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut fence = BlockFence::open(file.path()).expect("it opens");
    let why = fence.register(Key::NONE, A).expect_err("a file has none");
    assert!(matches!(why, FenceError::Unsupported { .. }), "{why}");
}
