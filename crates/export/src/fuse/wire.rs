//! The kernel's side of FUSE as it is written in its header (linux/fuse.h): operations, structures, flags. Numbers only.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is spoken: what it has is enough, and every kernel that Loligo runs on knows it.
pub(super) const MAJOR: u32 = 7;
pub(super) const MINOR: u32 = 31;

/// The root of every mount.
pub(super) const ROOT: u64 = 1;

/// Operations.
pub(super) mod op {
    pub(in crate::fuse) const LOOKUP: u32 = 1;
    pub(in crate::fuse) const FORGET: u32 = 2;
    pub(in crate::fuse) const GETATTR: u32 = 3;
    pub(in crate::fuse) const SETATTR: u32 = 4;
    pub(in crate::fuse) const SYMLINK: u32 = 6;
    pub(in crate::fuse) const MKNOD: u32 = 8;
    pub(in crate::fuse) const MKDIR: u32 = 9;
    pub(in crate::fuse) const UNLINK: u32 = 10;
    pub(in crate::fuse) const RMDIR: u32 = 11;
    pub(in crate::fuse) const RENAME: u32 = 12;
    pub(in crate::fuse) const LINK: u32 = 13;
    pub(in crate::fuse) const OPEN: u32 = 14;
    pub(in crate::fuse) const READ: u32 = 15;
    pub(in crate::fuse) const WRITE: u32 = 16;
    pub(in crate::fuse) const STATFS: u32 = 17;
    pub(in crate::fuse) const RELEASE: u32 = 18;
    pub(in crate::fuse) const FSYNC: u32 = 20;
    pub(in crate::fuse) const FLUSH: u32 = 25;
    pub(in crate::fuse) const INIT: u32 = 26;
    pub(in crate::fuse) const OPENDIR: u32 = 27;
    pub(in crate::fuse) const READDIR: u32 = 28;
    pub(in crate::fuse) const RELEASEDIR: u32 = 29;
    pub(in crate::fuse) const CREATE: u32 = 35;
    pub(in crate::fuse) const DESTROY: u32 = 38;
    pub(in crate::fuse) const BATCH_FORGET: u32 = 42;
    pub(in crate::fuse) const FALLOCATE: u32 = 43;
    pub(in crate::fuse) const RENAME2: u32 = 45;
}

/// Reads of one file may go side by side.
pub(super) const INIT_ASYNC_READ: u32 = 1 << 0;
/// Writes may be larger than a page.
pub(super) const INIT_BIG_WRITES: u32 = 1 << 5;
/// So may direct requests of a program that does not wait for each.
pub(super) const INIT_ASYNC_DIO: u32 = 1 << 15;
/// `max_pages` counts.
pub(super) const INIT_MAX_PAGES: u32 = 1 << 22;

/// Past the page cache.
pub(super) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// Direct writes may go side by side.
pub(super) const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

/// The fields of a `SetAttrIn` that count.
pub(super) const SET_MODE: u32 = 1 << 0;
pub(super) const SET_UID: u32 = 1 << 1;
pub(super) const SET_GID: u32 = 1 << 2;
pub(super) const SET_SIZE: u32 = 1 << 3;

/// In place of an error: attributes of a file are no longer what the kernel thinks.
pub(super) const NOTIFY_INVAL_INODE: i32 = 2;

/// Before every request.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InHeader {
    pub(super) len: u32,
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) pid: u32,
    pub(super) extra: u32,
}

/// Before every answer.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OutHeader {
    pub(super) len: u32,
    /// Negative, or 0.
    pub(super) error: i32,
    pub(super) unique: u64,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitIn {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InitOut {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) max_readahead: u32,
    pub(super) flags: u32,
    pub(super) max_background: u16,
    pub(super) congestion_threshold: u16,
    pub(super) max_write: u32,
    pub(super) time_gran: u32,
    pub(super) max_pages: u16,
    pub(super) map_alignment: u16,
    pub(super) unused: [u32; 8],
}

/// Of a read, and the beginning of one of a folder.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct ReadIn {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) read_flags: u32,
    pub(super) lock_owner: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

/// The same of a write, whose bytes follow.
pub(super) type WriteIn = ReadIn;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct WriteOut {
    pub(super) size: u32,
    pub(super) padding: u32,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FallocateIn {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) mode: i32,
    pub(super) padding: u32,
}

/// The times are left out: they lie between `lock_owner` and `mode` as nine words.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SetAttrIn {
    pub(super) valid: u32,
    pub(super) padding: u32,
    pub(super) handle: u64,
    pub(super) size: u64,
    pub(super) lock_owner: u64,
    pub(super) times: [u32; 9],
    pub(super) mode: u32,
    pub(super) unused: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) unused2: u32,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct OpenOut {
    pub(super) handle: u64,
    pub(super) flags: u32,
    pub(super) padding: u32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Attr {
    pub(super) node: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) atime: u64,
    pub(super) mtime: u64,
    pub(super) ctime: u64,
    pub(super) atime_ns: u32,
    pub(super) mtime_ns: u32,
    pub(super) ctime_ns: u32,
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) block: u32,
    pub(super) flags: u32,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AttrOut {
    pub(super) valid: u64,
    pub(super) valid_ns: u32,
    pub(super) padding: u32,
    pub(super) attr: Attr,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct EntryOut {
    pub(super) node: u64,
    pub(super) generation: u64,
    pub(super) entry_valid: u64,
    pub(super) attr_valid: u64,
    pub(super) entry_valid_ns: u32,
    pub(super) attr_valid_ns: u32,
    pub(super) attr: Attr,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct StatfsOut {
    pub(super) blocks: u64,
    pub(super) free: u64,
    pub(super) available: u64,
    pub(super) files: u64,
    pub(super) files_free: u64,
    pub(super) block: u32,
    pub(super) name_len: u32,
    pub(super) fragment: u32,
    pub(super) padding: u32,
    pub(super) spare: [u32; 6],
}

/// An entry of a folder; its name follows, padded to 8 bytes.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Dirent {
    pub(super) node: u64,
    pub(super) next: u64,
    pub(super) name_len: u32,
    pub(super) kind: u32,
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InvalInodeOut {
    pub(super) node: u64,
    pub(super) offset: i64,
    pub(super) len: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_structure_has_the_length_that_the_kernel_gives_it() {
        assert_eq!((size_of::<InHeader>(), size_of::<OutHeader>()), (40, 16));
        assert_eq!((size_of::<ReadIn>(), size_of::<WriteIn>(), size_of::<WriteOut>()), (40, 40, 8));
        assert_eq!((size_of::<InitOut>(), size_of::<FallocateIn>()), (64, 32));
        assert_eq!((size_of::<SetAttrIn>(), size_of::<OpenOut>()), (88, 16));
        assert_eq!((size_of::<Attr>(), size_of::<AttrOut>(), size_of::<EntryOut>()), (88, 104, 128));
        assert_eq!((size_of::<StatfsOut>(), size_of::<Dirent>(), size_of::<InvalInodeOut>()), (80, 24, 24));
    }
}
