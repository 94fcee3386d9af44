//! An array that two controllers share, as `loligo lab array` models it: one file by two paths, each like a host's own.

use crate::server::program;
use crate::skip::{fuse, skip};
use loligo_pair::fence::{BlockFence, Fence, take};
use loligo_pair::reservation::Key;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The key of the controller at path `a`.
pub const A: Key = Key(0xa);
/// The key of its partner at path `b`.
pub const B: Key = Key(0xb);

/// An array with the paths `a` and `b`, ended and unmounted by its drop.
#[derive(Debug)]
pub struct SharedArray {
    process: Child,
    dir: PathBuf,
}

impl SharedArray {
    /// One of `size` bytes, as one writes sizes, in the folder `dir`, which is made. `a` holds it, and `b` is registered. `None`,
    /// once said, where nothing can be mounted.
    ///
    /// # Panics
    /// If the program does not run.
    pub fn new(test: &str, dir: &Path, size: &str) -> Option<SharedArray> {
        if let Err(why) = fuse() {
            skip(test, &why);
            return None;
        }
        std::fs::create_dir(dir).expect("a folder");
        let mut command = Command::new(program());
        command.args(["lab", "array", "--size", size]).arg(dir.join("bytes"));
        for name in ["a", "b"] {
            let place = dir.join(name);
            std::fs::create_dir(&place).expect("a folder");
            command.args(["--path", &format!("{name}={}", place.display())]);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut line = String::new();
        let out = process.stdout.as_mut().expect("it is piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let array = SharedArray { process, dir: dir.to_owned() };
        array.fence("a").register(Key::NONE, A).expect("a registers");
        array.fence("b").register(Key::NONE, B).expect("b registers");
        array.fence("a").reserve(A).expect("a reserves");
        Some(array)
    }

    /// Its file by a path.
    pub fn lun(&self, path: &str) -> PathBuf {
        self.dir.join(path).join("lun")
    }

    /// The calls of a path.
    ///
    /// # Panics
    /// If it does not open.
    pub fn fence(&self, path: &str) -> BlockFence {
        BlockFence::open(&self.lun(path)).expect("it opens")
    }

    /// The partner takes it.
    ///
    /// # Panics
    /// If the array does not confirm that.
    pub fn take(&self) {
        let proof = take(&mut self.fence("b"), B, A).expect("a fence");
        assert_eq!(Path::new(proof.lun()), self.lun("b"));
    }

    /// The partner gives it back, and stays registered.
    ///
    /// # Panics
    /// If the array does not do that.
    pub fn give_back(&self) {
        let (mut a, mut b) = (self.fence("a"), self.fence("b"));
        b.register(B, Key::NONE).expect("b leaves");
        a.register(Key::NONE, A).expect("a registers");
        a.reserve(A).expect("a reserves");
        b.register(Key::NONE, B).expect("b registers");
    }

    /// Sets the fault of a path, as JSON.
    ///
    /// # Panics
    /// If it is not taken.
    pub fn fault(&self, path: &str, fault: &str) {
        setxattr(self.lun(path), "user.loligo.fault", fault.as_bytes(), XattrFlags::empty())
            .expect("it is taken");
    }

    /// A counter of a path: `written`, `rejected`, `landed`.
    ///
    /// # Panics
    /// If there is none.
    pub fn count(&self, path: &str, what: &str) -> u64 {
        let mut raw = vec![0; 4096];
        let read = getxattr(self.lun("b"), "user.loligo.counters", &mut raw[..]).expect("counters");
        let all: Value = serde_json::from_slice(&raw[..read]).expect("JSON");
        all[path][what].as_u64().expect("a counter")
    }

    /// The bytes on its medium.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.dir.join("bytes")).expect("its file")
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for.
        unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGTERM) };
        let _ = self.process.wait();
    }
}
