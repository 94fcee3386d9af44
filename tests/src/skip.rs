//! Tests that need what a machine may not have say so, once and in one form, and are counted as skipped by that line.

use std::process::{Command, Stdio};

/// Prints that `what` is skipped and why.
pub fn skip(what: &str, why: &str) {
    println!("SKIP: {what}: {why}");
}

/// True where the long forms are wanted: `LOLIGO_LONG=1`.
pub fn is_long() -> bool {
    std::env::var_os("LOLIGO_LONG").is_some_and(|value| value == "1")
}

/// True where `what` is to run although it takes a minute or so; else it is skipped.
pub fn at_length(what: &str) -> bool {
    if !is_long() {
        skip(what, "it takes long: LOLIGO_LONG=1 runs it");
    }
    is_long()
}

/// True if `program` can be run.
pub fn installed(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", "command -v \"$0\"", program])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// True if this process is root.
pub fn root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Checks that this process can mount through FUSE.
///
/// # Errors
/// The reason, for a person to read.
pub fn fuse() -> Result<(), String> {
    if !std::path::Path::new("/dev/fuse").exists() {
        return Err("/dev/fuse is missing (modprobe fuse)".to_owned());
    }
    if installed("fusermount3") || root() {
        Ok(())
    } else {
        Err("fusermount3 is missing (apt-get install fuse3), and this is not root".to_owned())
    }
}

/// True where a lab can be; else `what` is skipped.
pub fn cluster(what: &str) -> bool {
    let is_there = ["ceph-mon", "ceph-mgr", "ceph-osd"].iter().all(|program| installed(program));
    if !is_there {
        skip(what, "Ceph is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common");
    }
    is_there
}

/// True where a lab of pairs can be, and these programs beside what it needs itself; else `what` is skipped.
pub fn pairs(what: &str, more: &[&str]) -> bool {
    let own = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph-bluestore-tool", "rbd", "ip", "nsenter"];
    let why = match own.iter().chain(more).find(|program| !installed(program)) {
        Some(program) => Some(format!(
            "{program} is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common iproute2 qemu-utils libnbd-bin"
        )),
        None if !root() => Some("network namespaces need root".to_owned()),
        None => fuse().err(),
    };
    why.inspect(|why| skip(what, why)).is_none()
}
