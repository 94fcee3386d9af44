//! Open files: a process may have as many as its hard limit says, if it asks.

use loligo_log::say;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

/// The limit that this process was started with, if it has asked for more.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one: each volume, each connection and each image takes some, and the usual 1024
/// are few.
pub(crate) fn raise() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }) {
        Ok(()) => drop(BEFORE.set(before)),
        Err(e) => say!("warning: the limit of open files cannot be raised ({e}): give LimitNOFILE=65536"),
    }
}

/// Has `command` start with what this process was started with: programs that use select(2) go wrong with more than
/// 1024.
pub(crate) fn as_before(command: &mut Command) {
    let Some(before) = BEFORE.get() else { return };
    let restore = || setrlimit(Resource::Nofile, *before).map_err(Into::into);
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(restore) };
}
