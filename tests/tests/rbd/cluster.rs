//! The cluster that all tests here share: brought up by the first, taken down when the process ends.

use crate::autopsy::autopsy;
use loligo_tests::server::{Server, program};
pub(crate) use loligo_tests::skip::is_long;
use loligo_tests::skip::{installed, root, skip};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Seconds after which a command on the cluster is killed: stock clients wait for OSDs for ever.
const PATIENCE: &str = "100";

static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
/// Tests that disturb the cluster itself have it alone.
static QUIET: RwLock<()> = RwLock::new(());

/// A running lab.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
    /// Each OSD, and a client, has a network of its own.
    hosts: bool,
}

/// The cluster while other tests use it too.
pub(crate) fn shared(what: &str) -> Option<(&'static Cluster, RwLockReadGuard<'static, ()>)> {
    let cluster = up(what)?;
    Some((cluster, QUIET.read()))
}

/// The cluster while nobody else uses it.
pub(crate) fn alone(what: &str) -> Option<(&'static Cluster, RwLockWriteGuard<'static, ()>)> {
    let cluster = up(what)?;
    Some((cluster, QUIET.write()))
}

fn up(what: &str) -> Option<&'static Cluster> {
    if !["ceph-mon", "ceph-mgr", "ceph-osd", "rbd", "timeout"].iter().all(|p| installed(p)) {
        skip(what, "Ceph is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common librbd1");
        return None;
    }
    let up = || {
        let dir = std::env::temp_dir().join(format!("ltr-{}", std::process::id()));
        // SAFETY: the function is one of this program and takes nothing.
        unsafe { libc::atexit(down) };
        let cluster = Cluster { dir, hosts: root() && installed("ip") };
        let hosts = if cluster.hosts { "namespaces" } else { "loopback" };
        // OSDs of less than 5 GiB have no room for RocksDB's logs.
        let args = ["--osds", "3", "--osd-size", "7g", "--replicas", "2", "--hosts", hosts];
        let out = cluster.lab("up", &args);
        assert!(out.status.success(), "no lab: {}", String::from_utf8_lossy(&out.stderr));
        Some(cluster)
    };
    CLUSTER.get_or_init(up).as_ref()
}

/// At the end of the process.
extern "C" fn down() {
    if let Some(Some(cluster)) = CLUSTER.get() {
        for daemon in ["osd.0", "osd.1", "osd.2", "mon.a"] {
            // Those that were started again here are not the lab's own.
            let file = cluster.dir.join(format!("run/{daemon}.pid"));
            if let Some(pid) = read_pid(&file) {
                let _ = kill_process(pid, Signal::CONT);
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        cluster.lab("down", &[]);
    }
}

fn read_pid(file: &Path) -> Option<Pid> {
    Pid::from_raw(std::fs::read_to_string(file).ok()?.trim().parse().ok()?)
}

/// A host without network until this is dropped.
#[derive(Debug)]
pub(crate) struct Cut<'a>(&'a Cluster);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.link("up");
    }
}

/// A pool that may hold only so much until this is dropped.
#[derive(Debug)]
pub(crate) struct Quota<'a>(&'a Cluster);

impl Drop for Quota<'_> {
    fn drop(&mut self) {
        // Where the test fails this must not fail again; the pool stays full then, which those after it tell.
        let _ = self.0.set_quota(0).output();
    }
}

/// Processes that stand still until this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen(Vec<Pid>);

impl Frozen {
    /// Has a service stand still.
    pub(crate) fn service(server: &Server) -> Frozen {
        let pid = Pid::from_raw(server.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::STOP).expect("it runs");
        Frozen(vec![pid])
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

/// A second cluster, of one OSD, until this is dropped.
#[derive(Debug)]
pub(crate) struct Second(Cluster);

impl Second {
    /// Brings it up.
    pub(crate) fn up() -> Second {
        let dir = std::env::temp_dir().join(format!("ltr-{}-b", std::process::id()));
        let second = Second(Cluster { dir, hosts: false });
        let args = ["--osds", "1", "--osd-size", "7g", "--replicas", "1", "--hosts", "loopback"];
        let out = second.lab("up", &args);
        assert!(out.status.success(), "no second lab: {}", String::from_utf8_lossy(&out.stderr));
        second
    }
}

impl std::ops::Deref for Second {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.0.lab("down", &[]);
    }
}

impl Cluster {
    fn lab(&self, what: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(["lab", what, "--dir"]).arg(&self.dir).args(args).stdin(Stdio::null());
        command.output().expect("the program runs")
    }

    /// Ceph's configuration file.
    pub(crate) fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// One of Ceph's programs as client `id`, killed where it takes too long.
    pub(crate) fn tool(&self, program: &str, id: &str, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", PATIENCE, program]);
        self.as_client(command, id, args)
    }

    /// `rbd` as client `id`, for as long as it likes: whoever ends it ends the program itself.
    pub(crate) fn stock_client(&self, id: &str, args: &[&str]) -> Command {
        self.as_client(Command::new("rbd"), id, args)
    }

    fn as_client(&self, mut command: Command, id: &str, args: &[&str]) -> Command {
        command.args(["--id", id, "--conf"]).arg(self.conf()).args(args);
        command.env_remove("CEPH_ARGS").env_remove("CEPH_CONF").stdin(Stdio::null());
        command
    }

    /// `rbd` with the key that volumes use.
    pub(crate) fn try_rbd(&self, args: &[&str]) -> Output {
        self.tool("rbd", "loligo", args).output().expect("rbd runs")
    }

    /// The same where it must succeed; what it says on stdout.
    pub(crate) fn rbd(&self, args: &[&str]) -> String {
        self.text(&format!("rbd {}", args.join(" ")), self.try_rbd(args))
    }

    /// `rbd` with the administrator's key.
    pub(crate) fn admin_rbd(&self, args: &[&str]) -> String {
        let out = self.tool("rbd", "admin", args).output().expect("rbd runs");
        self.text(&format!("rbd {}", args.join(" ")), out)
    }

    /// The same as JSON; null where `rbd` has nothing to say.
    pub(crate) fn rbd_json(&self, args: &[&str]) -> Value {
        let said = self.rbd(&[args, &["--format", "json"]].concat());
        if said.trim().is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("rbd {args:?}: {e}: {said}"))
    }

    /// `ceph` with the administrator's key.
    pub(crate) fn ceph(&self, args: &[&str]) -> String {
        let out = self.tool("ceph", "admin", args).output().expect("ceph runs");
        self.text(&format!("ceph {}", args.join(" ")), out)
    }

    /// A command that becomes `program` on one of the cluster's hosts.
    fn on_host(&self, host: &str, what: &Path) -> Command {
        let mut command = Command::new(program());
        command.args(["lab", "exec", "--host", host, "--dir"]).arg(&self.dir).arg("--").arg(what);
        command
    }

    /// The same on the host that is nothing but a client, if there is one.
    pub(crate) fn on_client(&self, what: &Path) -> Option<Command> {
        self.hosts.then(|| self.on_host("client", what))
    }

    fn link(&self, state: &str) {
        let mut ip = self.on_host("client", Path::new("ip"));
        let done = ip.args(["link", "set", "eth0", state]).stdin(Stdio::null()).status();
        assert!(done.is_ok_and(|s| s.success()), "the client's network does not go {state}");
    }

    /// Takes the client's network away.
    pub(crate) fn cut_client_off(&self) -> Cut<'_> {
        self.link("down");
        Cut(self)
    }

    fn set_quota(&self, bytes: u64) -> Command {
        self.tool("ceph", "admin", &["osd", "pool", "set-quota", "rbd", "max_bytes", &bytes.to_string()])
    }

    /// Has the pool `rbd` hold no more than `bytes`.
    pub(crate) fn quota(&self, bytes: u64) -> Quota<'_> {
        self.text("a quota", self.set_quota(bytes).output().expect("ceph runs"));
        Quota(self)
    }

    /// The stdout of a command that must succeed.
    fn text(&self, what: &str, out: Output) -> String {
        let said = String::from_utf8_lossy(&out.stderr);
        // One without an exit status was killed: nobody has answered it.
        assert!(out.status.code().is_some(), "{what}: {}: {said}\n{}", out.status, autopsy(&self.dir));
        assert!(out.status.success(), "{what}: {}: {said}", out.status);
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn pid(&self, daemon: &str) -> Pid {
        let file = self.dir.join(format!("run/{daemon}.pid"));
        read_pid(&file).unwrap_or_else(|| panic!("no process in {}", file.display()))
    }

    /// Has daemons stand still.
    pub(crate) fn freeze(&self, daemons: &[&str]) -> Frozen {
        let pids: Vec<Pid> = daemons.iter().map(|d| self.pid(d)).collect();
        for pid in &pids {
            kill_process(*pid, Signal::STOP).expect("the daemon runs");
        }
        Frozen(pids)
    }

    /// Ends a daemon as a power cut does.
    pub(crate) fn kill(&self, daemon: &str) {
        let pid = self.pid(daemon);
        kill_process(pid, Signal::KILL).expect("the daemon runs");
        wait_until("the daemon to be gone", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
            stat.map_or(true, |s| s.contains(") Z "))
        });
    }

    /// Starts one again, as the lab did.
    pub(crate) fn start(&self, kind: &str, id: &str) {
        let log = self.dir.join(format!("log/{kind}.{id}.out"));
        let log = std::fs::File::options().append(true).create(true).open(log).expect("a log");
        let program = PathBuf::from(format!("ceph-{kind}"));
        let mut command = match kind {
            "osd" if self.hosts => self.on_host(&format!("osd{id}"), &program),
            _ => Command::new(program),
        };
        if kind == "osd" && self.hosts {
            // Otherwise it moves to where this process is, and copies are to be on different hosts.
            command.arg(format!("--crush_location=root=default host=osd{id}"));
        }
        command.args(["-f", "-i", id, "--conf"]).arg(self.conf()).stdin(Stdio::null());
        command.env("CEPH_CONF", self.conf()).env_remove("CEPH_ARGS");
        command.current_dir("/").stdout(log.try_clone().expect("a descriptor")).stderr(log);
        // It is ended by its number when this process ends.
        drop(command.spawn().expect("the daemon runs"));
    }

    /// Waits until every placement group is active and clean.
    pub(crate) fn wait_clean(&self) {
        wait_until("placement groups to be clean", || {
            let status: Value =
                serde_json::from_str(&self.ceph(&["status", "--format", "json"])).expect("JSON");
            let states = status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
            status["osdmap"]["num_up_osds"] == 3
                && states.len() == 1
                && states[0]["state_name"] == "active+clean"
        });
    }
}

/// Waits, two minutes at most: what takes a second on an idle machine takes many on one whose disk is busy.
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
