//! An image of a test's own, and the hosts that serve it: each with a folder and a cache.

use crate::cluster::{Cluster, wait_until};
use crate::shadow::{Shadow, content};
use crate::writer::request;
use loligo_ceph::attach::{AttachRequest, Destage};
use loligo_ceph::lock_record::LockRecord;
use loligo_ceph::spec::ImageSpec;
use loligo_tests::nbd;
use loligo_tests::server::{Server, Volume, program};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// NBD's error number of a service that is going away.
pub(crate) const ESHUTDOWN: u32 = 108;

/// Bytes of an image where a test does not say.
pub(crate) const SIZE: u64 = 64 << 20;

/// To take the image `spec` bare, with a lease of 20 s, where nobody has it.
pub(crate) fn attach_request<'a>(
    spec: &'a ImageSpec,
    remember: &'a mut dyn FnMut(&LockRecord) -> Result<(), String>,
) -> AttachRequest<'a> {
    AttachRequest {
        spec,
        cache: None,
        steal: false,
        without_cache: false,
        lease: Duration::from_secs(20),
        destage: Destage::Grouped,
        quiesce_attempts: 4,
        remember,
    }
}

/// An image in the pool `rbd`.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) cluster: &'static Cluster,
    /// Pool and name.
    pub(crate) spec: String,
    folder: TempDir,
}

impl Image {
    /// Makes it, of 64 MiB.
    pub(crate) fn new(cluster: &'static Cluster, name: &str) -> Image {
        cluster.rbd(&["create", "--size", &format!("{SIZE}B"), &format!("rbd/{name}")]);
        Image::existing(cluster, &format!("rbd/{name}"))
    }

    /// One that is there.
    pub(crate) fn existing(cluster: &'static Cluster, spec: &str) -> Image {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        Image { cluster, spec: spec.to_owned(), folder }
    }

    /// The image's name with a snapshot's.
    pub(crate) fn at(&self, snapshot: &str) -> String {
        format!("{}@{snapshot}", self.spec)
    }

    /// A host with this name.
    pub(crate) fn site(&self, name: &str) -> Site<'_> {
        let dir = self.folder.path().join(name);
        std::fs::create_dir_all(&dir).expect("a folder");
        Site { image: self, cache: dir.join("cache"), dir }
    }

    /// The bytes that a stock client reads of it, or of a snapshot or clone.
    pub(crate) fn export(&self, what: &str) -> Vec<u8> {
        let file = self.folder.path().join("export");
        let _ = std::fs::remove_file(&file);
        self.cluster.rbd(&["export", "--no-progress", what, &file.display().to_string()]);
        std::fs::read(&file).expect("the export")
    }

    /// Checks that a stock client sees exactly what the shadow says, and that nothing of ours is left on the image.
    pub(crate) fn is_whole_and_free(&self, shadow: &Shadow) {
        shadow.holds(&self.export(&self.spec)).unwrap_or_else(|e| panic!("{}: {e}", self.spec));
        self.is_free();
    }

    /// Checks that nothing of ours is left on the image.
    pub(crate) fn is_free(&self) {
        assert_eq!(self.mark(), None, "the metadata still names a cache");
        assert_eq!(self.lock(), None, "the lock is held");
    }

    /// The metadata's word on a cache.
    pub(crate) fn mark(&self) -> Option<Value> {
        let all = self.cluster.rbd_json(&["image-meta", "list", &self.spec]);
        let text = all["loligo.cache"].as_str()?.to_owned();
        Some(serde_json::from_str(&text).expect("JSON"))
    }

    /// The holder of the lock.
    pub(crate) fn lock(&self) -> Option<String> {
        let all = self.cluster.rbd_json(&["lock", "ls", &self.spec]);
        Some(all.as_array()?.first()?["address"].as_str()?.to_owned())
    }

    /// The client that holds the lock, by its name: `client.4123`.
    pub(crate) fn locker(&self) -> Option<String> {
        let all = self.cluster.rbd_json(&["lock", "ls", &self.spec]);
        Some(all.as_array()?.first()?["locker"].as_str()?.to_owned())
    }

    /// Checks the object maps of the image and of these snapshots.
    pub(crate) fn object_maps_are_right(&self, snapshots: &[String]) {
        for what in snapshots.iter().map(|s| self.at(s)).chain([self.spec.clone()]) {
            self.cluster.rbd(&["object-map", "check", "--no-progress", &what]);
            let flags = &self.cluster.rbd_json(&["info", &what])["flags"];
            assert_eq!(*flags, serde_json::json!([]), "{what}: the check found its object map wrong");
        }
    }
}

/// A host that serves the image.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    image: &'a Image,
    pub(crate) dir: PathBuf,
    /// The path of the cache.
    pub(crate) cache: PathBuf,
}

impl Site<'_> {
    /// The NBD socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    /// The core as `serve` names it.
    pub(crate) fn core(&self) -> String {
        format!("rbd:{}?conf={}&id=loligo", self.image.spec, self.image.cluster.conf().display())
    }

    fn options(&self, core: &str, more: &[&str]) -> Vec<String> {
        // What is read of its words is of this start.
        let _ = std::fs::remove_file(self.dir.join("serve.log"));
        let mut args: Vec<String> =
            ["--core", core, "--cache-size", "64m", "--sparse"].map(str::to_owned).to_vec();
        if !more.contains(&"--mode") {
            args.extend(["--mode", "wb"].map(str::to_owned));
        }
        args.extend(["--cache".to_owned(), self.cache.display().to_string()]);
        args.extend(["--listen".to_owned(), format!("unix:{}", self.socket().display())]);
        args.extend(more.iter().map(|s| (*s).to_owned()));
        args
    }

    /// Starts the service with these further options, not waiting for it.
    pub(crate) fn launch(&self, core: &str, more: &[&str]) -> Server {
        Server::launch(&self.dir, &self.options(core, more)).expect("the program runs")
    }

    /// Starts it and waits until clients may come.
    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        let mut server = self.launch(&self.core(), more);
        server.ready().unwrap_or_else(|e| panic!("{e:?}"));
        server
    }

    /// The same on the cluster's client host, if it has one.
    pub(crate) fn serve_on_client(&self, more: &[&str]) -> Option<Server> {
        let command = self.image.cluster.on_client(program())?;
        let mut server = Server::launch_by(command, &self.dir, &self.options(&self.core(), more)).ok()?;
        server.ready().unwrap_or_else(|e| panic!("{e:?}"));
        Some(server)
    }

    /// Its words, where a start must be refused.
    pub(crate) fn refused(&self, core: &str, more: &[&str]) -> String {
        let mut server = self.launch(core, more);
        let status = server.ended().unwrap_or_else(|e| panic!("{e:?}"));
        assert!(!status.success(), "{core}: it was not refused: {}", server.words());
        server.words()
    }

    /// `loligo` with these arguments, speaking to the service.
    pub(crate) fn loligo(&self, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(args).env("LOLIGO_RUNTIME_DIR", &self.dir).stdin(Stdio::null());
        command.output().expect("the program runs")
    }

    /// Has everything dirty written to the image.
    pub(crate) fn flush(&self) {
        let out = self.loligo(&["flush", Volume::NAME]);
        assert!(out.status.success(), "flush: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// The service's numbers.
    pub(crate) fn stats(&self) -> Value {
        let out = self.loligo(&["stats", Volume::NAME, "--json"]);
        assert!(out.status.success(), "stats: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// Checks that the service has lost its image: every request fails at once, reads too, and its dirty data is there.
    pub(crate) fn is_lost(&self, server: &Server) {
        let begun = Instant::now();
        assert_eq!(request(&self.socket(), 0, &nbd::Command::Read(4096)), Err(ESHUTDOWN));
        let write = nbd::Command::Write { data: content(0, 9), fua: false };
        assert_eq!(request(&self.socket(), 0, &write), Err(ESHUTDOWN));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        wait_until("the loss to be told", || server.words().contains("another client's now"));
        let dirty = self.stats()["dirty_bytes"].as_u64();
        assert!(dirty.is_some_and(|n| n > 0), "its dirty data is gone: {dirty:?}");
    }
}
