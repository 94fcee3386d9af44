//! Claims about a volume that is a block device: what the kernel, file systems and real programs see of it, and what becomes of
//! it when its service stops or is killed. Needs root, loop devices and FUSE; says SKIP with the reason where there are none.
//!
//! `LOLIGO_LONG=1` takes 20 kills and 20 power cuts in place of a few; `LOLIGO_SEED=n` repeats the plan of a run.

#![allow(clippy::print_stdout)]

mod device;
mod killed;
mod names;
mod stop;

use loligo_tests::blockdev::Device;
use loligo_tests::loops::Loop;
use loligo_tests::skip::is_long;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The limit for a device to be back after its service was killed.
const BACK: Duration = Duration::from_secs(60);

fn seed() -> u64 {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
    let seed = std::env::var("LOLIGO_SEED").ok().map(|v| v.parse().expect("LOLIGO_SEED is a number"));
    let seed = seed.unwrap_or_else(clock);
    println!("LOLIGO_SEED={seed}");
    seed
}

fn rounds(short: u64) -> u64 {
    if is_long() { 20 } else { short }
}

/// Runs a program that must succeed; what it said.
fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().expect("it runs");
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(out.status.success(), "{program} {args:?}: {said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Waits for what must come to pass soon.
fn soon(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A device whose volume has blocks of `block` bytes; the loop device under its core, where that takes one.
fn with_block(block: u32, core: u64) -> (Device, Option<Loop>) {
    let mut rig = Device::new(core, 32 * MIB);
    if block == 512 {
        return (rig, None);
    }
    let below = Loop::new(&rig.volume.dir.join("below"), core, block).expect("a loop device");
    rig.volume.core = below.path().to_owned();
    (rig, Some(below))
}

/// A folder with the device's file system mounted on it, until it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(rig: &Device) -> Mount {
        let at = rig.volume.dir.join("fs");
        std::fs::create_dir_all(&at).expect("a folder");
        run("mount", &[text(&rig.path()), text(&at)]);
        Mount(at)
    }

    fn unmount(self) {
        run("umount", &[text(&self.0)]);
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}
