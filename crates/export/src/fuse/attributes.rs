//! The answers to `stat` of the folder and of the file in it. Owner and mode may be changed and hold until the unmount, so that
//! root can hand the file to the user that a program runs as.

use super::wire::Attr;
use rustix::fs::FileType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The file.
pub(super) const FILE: u64 = 2;

#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
    mode: u32,
}

/// The attributes of both.
#[derive(Debug)]
pub(super) struct Attributes {
    /// Bytes of the file; whoever has the mount may raise them.
    size: Arc<AtomicU64>,
    block: u32,
    /// Since 1970.
    born: Duration,
    owner: Owner,
}

impl Attributes {
    /// A file of `size` bytes, best used in pieces of `block`, that is this process's user's alone.
    pub(super) fn new(size: u64, block: u32) -> Attributes {
        let (uid, gid) = ids();
        let born = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let owner = Owner { uid, gid, mode: 0o600 };
        Attributes { size: Arc::new(AtomicU64::new(size)), block, born, owner }
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// For whoever may raise them.
    pub(super) fn shared_size(&self) -> Arc<AtomicU64> {
        self.size.clone()
    }

    /// Changes what is given; the kernel has seen that whoever asks may.
    pub(super) fn change(&mut self, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) {
        let owner = &mut self.owner;
        owner.mode = mode.map_or(owner.mode, |m| m & 0o7777);
        owner.uid = uid.unwrap_or(owner.uid);
        owner.gid = gid.unwrap_or(owner.gid);
    }

    /// Those of `node`.
    pub(super) fn of(&self, node: u64) -> Attr {
        let file = node == FILE;
        let (uid, gid) = ids();
        let owner = if file { self.owner } else { Owner { uid, gid, mode: 0o755 } };
        let kind = if file { FileType::RegularFile } else { FileType::Directory };
        let (born, born_ns) = (self.born.as_secs(), self.born.subsec_nanos());
        Attr {
            node,
            size: if file { self.size() } else { 0 },
            blocks: if file { self.size() / 512 } else { 0 },
            atime: born,
            mtime: born,
            ctime: born,
            atime_ns: born_ns,
            mtime_ns: born_ns,
            ctime_ns: born_ns,
            mode: kind.as_raw_mode() | owner.mode,
            links: if file { 1 } else { 2 },
            uid: owner.uid,
            gid: owner.gid,
            rdev: 0,
            block: self.block,
            flags: 0,
        }
    }
}

fn ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::super::wire::ROOT;
    use super::*;

    #[test]
    fn the_file_is_private_until_given_away_and_of_the_volumes_size() {
        let mut a = Attributes::new(8 << 20, 4096);
        assert_eq!((a.of(FILE).mode, a.of(FILE).size, a.of(FILE).blocks), (0o100600, 8 << 20, 16 << 10));
        a.change(None, Some(167), Some(167));
        a.change(Some(0o100640), None, None);
        let now = a.of(FILE);
        assert_eq!((now.uid, now.gid, now.mode, now.size), (167, 167, 0o100640, 8 << 20));
        a.shared_size().store(9 << 20, Ordering::Relaxed);
        assert_eq!((a.of(FILE).size, a.of(FILE).blocks), (9 << 20, 18 << 10));
        assert_eq!(a.of(ROOT).mode, 0o40755);
    }
}
