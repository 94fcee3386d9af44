//! Processors that outlive a restart, under a real systemd in name spaces of its own: it runs an OSD of a lab by its unit.

use loligo_tests::lab::{Lab, good, until};
use loligo_tests::server::program;
use loligo_tests::skip::{at_length, installed, root, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A host whose systemd runs osd.2 of a lab.
struct Space {
    lab: Lab,
    dir: tempfile::TempDir,
    unshare: Child,
    /// Its first process.
    init: String,
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.init]).status();
        let _ = self.unshare.wait();
        // It is empty once all of its processes have ended.
        let group = format!("loligo-test-{}", self.unshare.id());
        let _ = Command::new("sh")
            .args(["-c", "find \"$(findmnt -t cgroup2 -n -o TARGET | head -n 1)/$0\" -depth -type d -exec rmdir {} \\;", &group])
            .stderr(Stdio::null())
            .status();
    }
}

impl Space {
    fn new(lab: Lab) -> Space {
        let dir = tempfile::tempdir().expect("a folder");
        let units = dir.path().join("units");
        std::fs::create_dir(&units).expect("a folder");
        let sources = loligo_tests::tidy::root();
        let hook = std::fs::read_to_string(sources.join("packaging/systemd/loligo-tune-threads@.service"));
        let hook = hook
            .expect("a unit")
            .replace("@BINDIR@/loligo", &program().display().to_string())
            .replace("--settle 60", "--settle 15")
            .replace("[Unit]", "[Unit]\nDefaultDependencies=no");
        let osd = format!(
            "[Unit]\nDefaultDependencies=no\n[Service]\nEnvironment=CEPH_CONF={}\nExecStart=/usr/bin/ceph-osd -f --id %i\n\
             LimitNOFILE=1048576\nRestart=on-failure\nRestartSec=1\n",
            lab.dir.join("ceph.conf").display()
        );
        for (name, text) in [
            ("loligo-tune-threads@.service", hook.as_str()),
            ("ceph-osd@.service", osd.as_str()),
            ("only.target", "[Unit]\nDefaultDependencies=no\n"),
        ] {
            std::fs::write(units.join(name), text).expect("a file");
        }
        let script = sources.join("tests/systemd/space.sh");
        let mut command = Command::new("sh");
        command.arg(script).arg(&units).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let unshare = command.spawn().expect("it runs");
        let mut space = Space { lab, dir, unshare, init: String::new() };
        until("systemd answers", Duration::from_secs(20), || {
            let path = format!("/proc/{0}/task/{0}/children", space.unshare.id());
            space.init = std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
            !space.init.is_empty() && space.run(&["systemctl", "show", "only.target"]).status.success()
        });
        space
    }

    /// Runs a command in it.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init, "-m", "-p", "-C"]).args(args).stdin(Stdio::null());
        command.output().expect("nsenter runs")
    }

    fn tune(&self, args: &[&str]) -> Output {
        let (conf, state) = (self.lab.dir.join("ceph.conf"), self.dir.path().join("state"));
        let place = ["--conf", conf.to_str().expect("a path"), "--state", state.to_str().expect("a path")];
        let program = program().display().to_string();
        self.run(&[&[&program, "tune"], args, &place].concat())
    }

    /// The process of the OSD, and the processors of its threads with their number.
    fn threads(&self) -> (String, BTreeSet<String>, usize) {
        let script = "pgrep -x ceph-osd; cat /proc/$(pgrep -x ceph-osd)/task/*/status";
        let said = String::from_utf8_lossy(&self.run(&["sh", "-c", script]).stdout).into_owned();
        let cpus: Vec<&str> =
            said.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:")).collect();
        let all = cpus.iter().map(|it| it.trim().to_owned()).collect();
        (said.lines().next().unwrap_or_default().to_owned(), all, cpus.len())
    }

    /// Waits until a process other than `before` has all of its threads on these processors, and the hook is over.
    fn is_bound(&self, before: &str, cpus: &str) -> String {
        let mut now = String::new();
        until("the hook is over", Duration::from_secs(60), || {
            let hook =
                self.run(&["systemctl", "show", "-p", "ActiveState,Result", "loligo-tune-threads@2.service"]);
            let hook = String::from_utf8_lossy(&hook.stdout).into_owned();
            let (pid, all, count) = self.threads();
            let is_over = hook.contains("ActiveState=inactive") && hook.contains("Result=success");
            now = pid;
            is_over && now != before && count > 40 && all == BTreeSet::from([cpus.to_owned()])
        });
        now
    }
}

/// A variable comes to the OSD by its unit, is seen in its process, and goes with the run.
fn takes_a_library_at_its_start(space: &Space) {
    let (program, conf) = (program().display().to_string(), space.lab.dir.join("ceph.conf"));
    let plan = space.run(&[&program, "tune", "plan", "--json", "--conf", conf.to_str().expect("a path")]);
    let plan: Value = serde_json::from_slice(&good(plan).stdout).expect("JSON");
    let proposed =
        |rule: &str| plan["proposals"].as_array().is_some_and(|all| all.iter().any(|it| it["rule"] == rule));
    // A build has tcmalloc, or has not.
    let Some((rule, name)) = [("MEM-07", "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"), ("MEM-12", "LD_PRELOAD")]
        .into_iter()
        .find(|(rule, _)| proposed(rule))
    else {
        return skip("a variable of an OSD under systemd", "no libtcmalloc is installed");
    };
    let script = format!("tr '\\0' '\\n' </proc/$(pgrep -x ceph-osd)/environ | grep ^{name}=");
    let has = || String::from_utf8_lossy(&space.run(&["sh", "-c", &script]).stdout).trim().to_owned();
    assert_eq!(has(), "");
    // A lab does not run this one.
    let by_systemd = ["--restart-with", "systemctl restart ceph-osd@{id}.service"];
    let apply = ["apply", "--rule", rule, "--risk", "restart", "--yes"];
    let said = good(space.tune(&[&apply[..], &by_systemd].concat()));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let variable = has();
    assert!(variable.starts_with(name), "{variable}");
    assert!(said.contains(&format!("acts: the process of osd.2 has {variable}")), "{said}");
    // It outlives a start that is none of the tuner's.
    good(space.run(&["systemctl", "restart", "ceph-osd@2.service"]));
    assert_eq!(has(), variable);
    good(space.tune(&[&["rollback"], &by_systemd[..]].concat()));
    assert_eq!(has(), "");
}

#[test]
fn an_osd_keeps_its_processors_over_restarts_by_systemd() {
    let what = "an OSD under systemd";
    if !at_length(what) {
        return;
    }
    let tools = ["ceph-osd", "unshare", "nsenter", "findmnt", "systemctl"];
    let has_two = std::thread::available_parallelism().is_ok_and(|it| it.get() >= 2);
    if !tools.iter().all(|it| installed(it))
        || !Path::new("/lib/systemd/systemd").exists()
        || !root()
        || !has_two
    {
        return skip(what, "it takes root, two CPUs, Ceph, systemd and util-linux");
    }
    let lab = Lab::new("tune-systemd");
    good(lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g"]));
    good(lab.run("fail osd 2", &[]));
    until("osd.2 is down", Duration::from_secs(60), || {
        String::from_utf8_lossy(&lab.sh("ceph osd stat").stdout).contains("2 up")
    });
    let space = Space::new(lab);
    good(space.run(&["systemctl", "start", "ceph-osd@2.service"]));
    let clean = || {
        until("all is clean", Duration::from_secs(60), || {
            let said: Value =
                serde_json::from_slice(&space.lab.sh("ceph status --format json").stdout).unwrap_or_default();
            let states = said["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
            said["health"]["status"] == "HEALTH_OK"
                && said["osdmap"]["num_up_osds"] == 3
                && states.len() == 1
                && states[0]["state_name"] == "active+clean"
        })
    };
    clean();
    takes_a_library_at_its_start(&space);
    clean();
    let (first, all, _) = space.threads();
    assert_eq!(all, BTreeSet::from(["0-1".to_owned()]));
    good(space.tune(&["apply", "--rule", "CPU-16", "--rule", "CPU-17", "--yes"]));
    assert_eq!(space.threads().1, BTreeSet::from(["0".to_owned()]));

    good(space.run(&["systemctl", "restart", "ceph-osd@2.service"]));
    let second = space.is_bound(&first, "0");

    // Ceph binds it to the other node as it boots. It is killed, and systemd starts it anew.
    good(space.lab.sh("ceph config set osd.2 osd_numa_node 1"));
    good(space.run(&["kill", "-9", &second]));
    space.is_bound(&second, "0");
    let log = std::fs::read_to_string(space.lab.dir.join("log/osd.2.log")).expect("a log");
    let said: Vec<&str> = log.lines().filter(|line| line.contains("set_numa_affinity")).collect();
    let is_bound = said.iter().any(|line| line.contains("setting numa affinity to node 1 "));
    assert!(is_bound, "Ceph has not bound it: {said:#?}");

    clean();
    good(space.tune(&["rollback"]));
    assert_eq!(space.threads().1, BTreeSet::from(["0-1".to_owned()]));
    let left = space.run(&["sh", "-c", "ls -d /etc/systemd/system/*.d /etc/loligo/* 2>/dev/null"]);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}
