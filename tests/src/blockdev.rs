//! A volume served as a block device of the kernel, under a name that no other test has; nothing of it stays behind, whatever
//! became of the server.

use crate::server::Volume;
use crate::skip;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// True if `test` cannot run because block devices cannot be made here; says so.
pub fn impossible(test: &str) -> bool {
    let control = || OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    let why = match (skip::root(), skip::fuse(), control()) {
        (false, _, _) => "this is not root".to_owned(),
        (_, Err(why), _) => why,
        (_, _, Err(why)) => format!("/dev/loop-control: {why} (modprobe loop)"),
        _ => return false,
    };
    skip::skip(test, &why);
    true
}

/// A volume's files, and the name of its device.
#[derive(Debug)]
pub struct Device {
    /// The volume, also served on its socket.
    pub volume: Volume,
    /// Its name under `/dev/loligo`.
    pub name: String,
    _dir: tempfile::TempDir,
}

impl Device {
    /// A core of `core` bytes and a place for a write-back cache of `cache` bytes; nothing runs yet.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn new(core: u64, cache: u64) -> Device {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::tempdir_in(std::env::temp_dir()).expect("a folder");
        let path = dir.path().canonicalize().expect("its name");
        File::create(path.join("core")).and_then(|f| f.set_len(core)).expect("a core");
        let name = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let volume = Volume {
            dir: path.clone(),
            cache: path.join("cache"),
            cache_size: cache,
            core: path.join("core"),
            mode: "wb",
            more: vec!["--listen".to_owned(), format!("loop:{name}")],
        };
        Device { volume, name, _dir: dir }
    }

    /// The path for programs.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/loligo").join(&self.name)
    }

    /// The kernel's name of the device that it leads to.
    ///
    /// # Panics
    /// If it leads nowhere.
    pub fn kernel_name(&self) -> String {
        let node = self.path().canonicalize().expect("the link leads somewhere");
        node.file_name().expect("a node").to_string_lossy().into_owned()
    }

    /// A setting of its queue.
    ///
    /// # Panics
    /// If there is none of that name.
    pub fn queue(&self, name: &str) -> String {
        let path = format!("/sys/block/{}/queue/{name}", self.kernel_name());
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}")).trim().to_owned()
    }

    /// Opens it for reading and writing, with these further flags.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(&self, flags: i32) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path())
    }

    /// One number of the running volume's statistics.
    ///
    /// # Errors
    /// If there are none, or not this one.
    pub fn number(&self, name: &str) -> Result<u64> {
        let out = self.volume.loligo(&["stats", Volume::NAME, "--json"])?;
        let all: Value = serde_json::from_slice(&out.stdout).context("statistics are JSON")?;
        all[name].as_u64().with_context(|| format!("no number {name} in {all}"))
    }

    /// The remains of it in the kernel and under /dev: loop devices, mounts, links and locks.
    pub fn left(&self) -> Vec<String> {
        let mut left = self.loops();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(mounts.lines().filter(|l| l.contains(&self.name)).map(str::to_owned));
        for path in [self.path(), Path::new("/dev/loligo").join(format!(".{}.lock", self.name))] {
            if path.symlink_metadata().is_ok() {
                left.push(path.display().to_string());
            }
        }
        left
    }

    /// The loop devices over its file, with the path as the kernel has it: that ends with the mount's.
    pub fn loops(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if file.trim_end().trim_end_matches(" (deleted)").ends_with(&format!("/{}", self.name)) {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        found
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A failed test leaves a dead device and its mount.
        let quiet = |program: &str, args: &[&str]| {
            let _ = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        for name in self.loops() {
            quiet("losetup", &["--detach", &format!("/dev/{name}")]);
        }
        let mount = self.volume.dir.join("block").join(&self.name);
        if crate::mounted::listed(&mount) {
            quiet("umount", &["--lazy", &mount.display().to_string()]);
        }
        let _ = std::fs::remove_file(Path::new("/dev/loligo").join(format!(".{}.lock", self.name)));
        if self.path().is_symlink() {
            let _ = std::fs::remove_file(self.path());
        }
    }
}
