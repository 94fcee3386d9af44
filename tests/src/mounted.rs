//! A volume served as a file through FUSE, in a folder that is gone afterwards, whatever became of the server.

use crate::server::{Server, Volume};
use crate::skip;
use anyhow::{Context, Result};
use loligo_block::mounts;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// True if `test` cannot run because nothing can be mounted here; says so.
pub fn impossible(test: &str) -> bool {
    match skip::fuse() {
        Ok(()) => false,
        Err(why) => {
            skip::skip(test, &why);
            true
        }
    }
}

/// True if the kernel lists a mount on `path`.
pub fn listed(path: &Path) -> bool {
    mounts::on(&mounts::all().unwrap_or_default(), path).is_some()
}

/// A volume's files, and the folder it is mounted on.
#[derive(Debug)]
pub struct Mounted {
    /// The volume, also served on its socket.
    pub volume: Volume,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// A core of `core` bytes and a place for a write-back cache of `cache` bytes; nothing runs yet.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn new(core: u64, cache: u64) -> Mounted {
        let dir = tempfile::tempdir_in(std::env::temp_dir()).expect("a folder");
        let path = dir.path().canonicalize().expect("its name");
        std::fs::create_dir(path.join("mnt")).expect("a mountpoint");
        File::create(path.join("core")).and_then(|f| f.set_len(core)).expect("a core");
        let volume = Volume {
            dir: path.clone(),
            cache: path.join("cache"),
            cache_size: cache,
            core: path.join("core"),
            mode: "wb",
            more: vec!["--listen".to_owned(), format!("fuse:{}", path.join("mnt").display())],
        };
        Mounted { volume, dir }
    }

    /// Its mountpoint.
    pub fn mountpoint(&self) -> PathBuf {
        self.volume.dir.join("mnt")
    }

    /// The volume as a file.
    pub fn path(&self) -> PathBuf {
        self.mountpoint().join(Volume::NAME)
    }

    /// Opens it for reading and writing, with these further flags.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(&self, flags: i32) -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path())
    }

    /// Serves the core without a cache, as the modelled disk, through the mount only.
    ///
    /// # Errors
    /// If it refuses.
    pub fn serve_disk(&self) -> Result<Server> {
        let core = format!("hdd:{}?rpm=7200&track=1MiB", self.volume.core.display());
        let mut args = ["--bare", "--core", &core].map(str::to_owned).to_vec();
        args.extend(self.volume.more.iter().cloned());
        let mut server = Server::launch(&self.volume.dir, &args)?;
        server.ready()?;
        Ok(server)
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
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failed test leaves a dead mount, which would keep the folder.
        if listed(&self.mountpoint()) {
            let _ = Command::new("fusermount3")
                .args(["-u", "-z", "--"])
                .arg(self.dir.path().join("mnt"))
                .stderr(Stdio::null())
                .status();
        }
    }
}
