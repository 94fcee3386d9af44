//! A daemon and devices for OSDs on its volumes, on a small cluster that all tests here share; nothing of it stays, whatever became of
//! the test.

use crate::lab::{self, Lab};
use loligo_tests::blockdev;
use loligo_tests::cli::Cli;
use loligo_tests::loops::Loop;
use loligo_tests::server::Server;
use loligo_tests::skip::{installed, skip};
use parking_lot::MutexGuard;
use serde_json::Value;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

/// Bytes of a data device.
pub const DATA: u64 = 3 << 30;
/// The time that an OSD may take to be back.
pub const BACK: Duration = Duration::from_secs(60);

/// The words of a command without the option `name` and its value.
pub fn without(name: &str, mut words: Vec<String>) -> Vec<String> {
    let at = words.iter().position(|word| word == name).expect("it is one of them");
    words.drain(at..at + 2);
    words
}

pub struct Site {
    pub server: Option<Server>,
    pub id: u32,
    cli: Cli,
    dir: tempfile::TempDir,
    /// Last, so that the next test finds nothing of this one.
    lab: MutexGuard<'static, Lab>,
}

impl Deref for Site {
    type Target = Cli;

    fn deref(&self) -> &Cli {
        &self.cli
    }
}

impl Site {
    /// Nothing where there is no Ceph or no block device here.
    pub fn new(what: &str) -> Option<Site> {
        let programs = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph-bluestore-tool", "rbd", "fio"];
        if let Some(missing) = programs.iter().find(|p| !installed(p)) {
            skip(
                what,
                &format!("{missing} is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common fio"),
            );
            return None;
        }
        if blockdev::impossible(what) {
            return None;
        }
        let mut lab = lab::alone();
        let dir = tempfile::Builder::new().prefix("lto").tempdir_in(std::env::temp_dir()).expect("a folder");
        let (id, cli) = (lab.next_id(), Cli::new(dir.path().join("run")));
        let mut site = Site { server: None, id, cli, dir, lab };
        for sub in ["run", "osd"] {
            std::fs::create_dir(site.path(sub)).expect("a folder");
        }
        let text = format!("[daemon]\nstate-dir = \"{}\"\n", site.path("state").display());
        std::fs::write(site.path("loligod.toml"), text).expect("a configuration");
        site.start();
        Some(site)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn conf(&self) -> String {
        self.lab.conf()
    }

    /// The store of the OSD that the cluster has of its own, osd.0.
    pub fn other_store(&self) -> PathBuf {
        self.lab.dir.join("osd.0/block")
    }

    /// The folder of the OSD.
    pub fn osd_dir(&self) -> PathBuf {
        self.path("osd").join(self.id.to_string())
    }

    /// Starts the daemon, as systemd would after it died.
    pub fn start(&mut self) {
        self.server = Some(self.cli.daemon(&self.path("loligod.toml")));
    }

    /// Kills the daemon, as a crash would.
    pub fn crash(&mut self) {
        self.server.take().expect("it runs").kill().expect("it lived");
    }

    /// A device of `bytes` without content.
    pub fn device(&self, name: &str, bytes: u64) -> Loop {
        Loop::new(&self.path(name), bytes, 512).expect("a loop device")
    }

    /// The words of a `prepare` of the site's OSD, of class `cached`, with `more` behind.
    pub fn prepare(&self, data: &Path, cache: &Path, more: &[&str]) -> Vec<String> {
        let (id, conf, dir) = (self.id.to_string(), self.conf(), self.osd_dir().display().to_string());
        let (data, cache) = (data.display().to_string(), cache.display().to_string());
        let words = [
            "osd",
            "prepare",
            "--data",
            &data,
            "--cache",
            &cache,
            "--id",
            &id,
            "--class",
            "cached",
            "--conf",
            &conf,
            "--osd-dir",
            &dir,
        ];
        let mut words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        let mut more = more.iter();
        while let Some(word) = more.next() {
            match words.iter().position(|w| w == word) {
                // Said again, it counts instead.
                Some(at) => words[at + 1] = more.next().expect("a value").to_string(),
                None => words.push((*word).to_owned()),
            }
        }
        words
    }

    pub fn ceph(&self, args: &[&str]) -> String {
        let out = self.try_ceph(args);
        assert!(out.status.success(), "ceph {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }

    pub fn try_ceph(&self, args: &[&str]) -> Output {
        self.lab.ceph(args)
    }

    /// Several commands, one in a line.
    pub fn ceph_all(&self, lines: &[&str]) {
        let wrong = self.lab.ceph_all(&(lines.join("\n") + "\n"));
        assert_eq!(wrong, "", "{lines:?}");
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let all: Vec<&str> = args.iter().copied().chain(["--format", "json"]).collect();
        serde_json::from_str(&self.ceph(&all)).expect("JSON")
    }

    /// The OSD in the cluster's map.
    pub fn mapped(&self) -> Option<Value> {
        let map = self.json(&["osd", "dump"]);
        map["osds"].as_array().expect("a list").iter().find(|o| o["osd"] == self.id).cloned()
    }

    /// The epoch in which the OSD came up, if it is up.
    pub fn up_from(&self) -> Option<u64> {
        self.mapped().filter(|o| o["up"] == 1).and_then(|o| o["up_from"].as_u64())
    }

    /// Waits until `is` says so.
    pub fn until(&self, what: &str, limit: Duration, mut is: impl FnMut() -> bool) -> Duration {
        let begun = Instant::now();
        while !is() {
            assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        begun.elapsed()
    }

    /// The OSD's process.
    pub fn pid(&self) -> Option<i32> {
        let dir = self.osd_dir().display().to_string();
        std::fs::read_dir("/proc").expect("/proc").flatten().find_map(|e| {
            let pid = e.file_name().to_string_lossy().parse().ok()?;
            let words = std::fs::read(e.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).into_owned();
            (words.starts_with("ceph-osd") && words.contains(&dir)).then_some(pid)
        })
    }

    /// Ends the OSD with a signal and waits until it is gone.
    pub fn end(&self, signal: i32) {
        let Some(pid) = self.pid() else { return };
        // SAFETY: two numbers; a process that is gone is an error that does not matter.
        unsafe { libc::kill(pid, signal) };
        // Its words go before its locks: those are free when nobody but its parent could still see it.
        let stat = format!("/proc/{pid}/stat");
        let ended =
            || std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z") || s.contains(") X"));
        self.until("the OSD ends", BACK, ended);
    }

    /// The one row of `loligo osd list`.
    pub fn listed(&self) -> Value {
        let all: Value = serde_json::from_str(&self.ok(&["osd", "list", "--json"])).expect("JSON");
        all.as_array().and_then(|l| l.first()).cloned().unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.end(libc::SIGKILL);
        if let Some(server) = self.server.take()
            && let Err(why) = server.stop()
        {
            eprintln!("the daemon: {why:?}");
        }
        self.lab.clear(self.id);
    }
}
