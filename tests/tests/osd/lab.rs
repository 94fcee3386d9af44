//! The cluster that all tests here share, one after the other: brought up by the first, taken down when the process ends.

use loligo_tests::cli::Cli;
use parking_lot::{Mutex, MutexGuard};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Settings that make a cluster of one host answer sooner; nothing of what is stored, nor when, depends on them. The monitor does not gather changes
/// for a second before it writes them, placement groups are told of each second, and deep scrubs are not put off.
const SOON: [&str; 6] = [
    "mon.paxos_propose_interval=0.05",
    "mon.paxos_min_wait=0.02",
    "global.mgr_stats_period=1",
    "osd.osd_max_scrubs=8",
    "osd.osd_scrub_backoff_ratio=0",
    "osd.osd_scrub_sleep=0",
];

/// The pools that tests make, each with a rule of its name if with one.
const POOLS: [&str; 4] = ["anywhere", "both", "cached", "one"];

static LAB: OnceLock<Mutex<Lab>> = OnceLock::new();

/// A running lab: a monitor, a manager and one OSD, and no pool.
#[derive(Debug)]
pub struct Lab {
    pub dir: PathBuf,
    /// The number of tests that have had it.
    tests: u32,
}

/// The cluster while nobody else uses it: one small machine runs one OSD under test at a time in reasonable time.
pub fn alone() -> MutexGuard<'static, Lab> {
    LAB.get_or_init(|| Mutex::new(Lab::up())).lock()
}

/// At the end of the process.
extern "C" fn down() {
    if let Some(lab) = LAB.get() {
        let lab = lab.lock();
        let out = lab.loligo("down", &[]);
        if !out.status.success() {
            eprintln!("the lab stays: {}", String::from_utf8_lossy(&out.stderr));
        }
    }
}

impl Lab {
    fn up() -> Lab {
        // SAFETY: the function is one of this program and takes nothing.
        unsafe { libc::atexit(down) };
        let lab = Lab { dir: std::env::temp_dir().join(format!("ltl-{}", std::process::id())), tests: 0 };
        let size = ["--osds", "1", "--replicas", "1", "--osd-size", "2g", "--pg-num", "1"];
        let set = SOON.iter().flat_map(|set| ["--set", *set]);
        let out = lab.loligo("up", &size.into_iter().chain(set).collect::<Vec<_>>());
        if !out.status.success() {
            let _ = lab.loligo("down", &[]);
            panic!("no lab: {}", String::from_utf8_lossy(&out.stderr));
        }
        // Whose one copy would go to each OSD that comes.
        lab.ceph(&["osd", "pool", "rm", "rbd", "rbd", "--yes-i-really-really-mean-it"]);
        lab
    }

    fn loligo(&self, what: &str, more: &[&str]) -> Output {
        let dir = self.dir.display().to_string();
        Cli::new(&self.dir).loligo(&[&["lab", what, "--dir", &dir][..], more].concat())
    }

    pub fn conf(&self) -> String {
        self.dir.join("ceph.conf").display().to_string()
    }

    /// The output of `ceph ARGS` and how it ends.
    pub fn ceph(&self, args: &[&str]) -> Output {
        let mut command = Command::new("ceph");
        command.args(["--conf", &self.conf(), "--connect-timeout", "20"]).args(args);
        command.env_remove("CEPH_ARGS").output().expect("ceph runs")
    }

    /// Has one `ceph` do what `lines` say, one command each, for starting it takes longer than most commands; what it says of what went wrong.
    pub fn ceph_all(&self, lines: &str) -> String {
        let mut command = Command::new("ceph");
        command.args(["--conf", &self.conf(), "--connect-timeout", "20"]).env_remove("CEPH_ARGS");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ceph = command.spawn().expect("ceph runs");
        // It reads to the end of what it is given, which is when this is dropped.
        ceph.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
        let out = ceph.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        said.lines().filter(|line| line.starts_with("Error") || line.starts_with("error")).collect()
    }

    /// A number for the next test's OSD; the one after that is its own too. Devices are called after it, and tests of other trees may run
    /// beside.
    pub fn next_id(&mut self) -> u32 {
        self.tests += 1;
        100 + std::process::id() % 100 * 8 + (self.tests - 1) % 4 * 2
    }

    /// Takes everything away that a test may have made: its OSDs, its pools and their rules. Missing ones are no matter.
    pub fn clear(&self, id: u32) {
        let mut lines = String::new();
        for id in [id, id + 1] {
            lines += &format!("osd down {id}\nosd purge {id} --force --yes-i-really-mean-it\n");
        }
        for pool in POOLS {
            lines += &format!("osd pool rm {pool} {pool} --yes-i-really-really-mean-it\n");
            lines += &format!("osd crush rule rm {pool}\n");
        }
        self.ceph_all(&lines);
    }
}
