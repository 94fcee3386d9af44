//! `loligo tune apply` and `rollback` on a real cluster: effects are seen, and a run that is cut anywhere is taken back whole.

use loligo_tests::lab::{Lab, good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::{installed, is_long, skip};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Advice of old articles, in sections with and without masks. Some of it acts at once, some once OSDs start anew.
const ADVICE: &str = "ceph config set osd osd_max_backfills 8; ceph config set osd osd_recovery_op_priority 63; \
                      ceph config set osd osd_recovery_max_active_hdd 20; ceph config set osd osd_recovery_sleep_hdd 0; \
                      ceph config set osd/class:ssd filestore_max_sync_interval 10; \
                      ceph config set osd osd_recovery_sleep_hybrid 0; ceph config set osd osd_recovery_max_active_ssd 40; \
                      ceph config set osd filestore_queue_max_ops 100; ceph config set osd osd_journal_size 1024; \
                      ceph config set global journal_max_write_bytes 1048576";

/// A lab, with the arguments that lead the tuner to it.
struct Site {
    lab: Lab,
    dir: tempfile::TempDir,
}

impl Site {
    fn new(name: &str) -> Option<Site> {
        if !["ceph-mon", "ceph-mgr", "ceph-osd"].iter().all(|program| installed(program)) {
            skip(name, "Ceph is missing: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common");
            return None;
        }
        let site = Site { lab: Lab::new(name), dir: tempfile::tempdir().expect("a folder") };
        good(site.lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g"]));
        Some(site)
    }

    /// `loligo tune ARGS`, with the cluster, and a tree of a host that can be changed.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("tune").args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        command.arg("--root").arg(self.root());
        if args[0] != "facts" {
            command.arg("--state").arg(self.dir.path().join("state"));
        }
        command.stdin(Stdio::null());
        command
    }

    fn tune(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = good(self.tune(&[args, &["--json"]].concat()));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// A host's files, as far as the tests need them.
    fn root(&self) -> std::path::PathBuf {
        let root = self.dir.path().join("root");
        let conf = root.join(self.lab.dir.strip_prefix("/").expect("an absolute path")).join("ceph.conf");
        for (path, text) in [
            (root.join("proc/sys/kernel/hostname"), hostname()),
            (root.join("proc/sys/vm/swappiness"), "60\n".to_owned()),
            (
                root.join("proc/meminfo"),
                "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\nSwapTotal: 2097152 kB\n".to_owned(),
            ),
            (conf, "[osd]\n".to_owned()),
        ] {
            if !path.exists() {
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
                std::fs::write(path, text).expect("a file");
            }
        }
        root
    }

    /// The configuration of the cluster, as a text that is the same for the same content.
    fn dump(&self) -> String {
        let out = good(self.lab.sh("ceph config dump --format json"));
        let mut all: Vec<String> = serde_json::from_slice::<Vec<Value>>(&out.stdout)
            .expect("a list")
            .iter()
            .map(|it| format!("{} {} {}={}", it["section"], it["mask"], it["name"], it["value"]))
            .collect();
        all.sort();
        all.join("\n")
    }

    fn backfills(&self) -> i64 {
        let out = good(self.lab.sh("ceph tell osd.0 dump_recovery_reservations"));
        let said: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        said["local_reservations"]["max_allowed"].as_i64().expect("a number")
    }

    fn last_run(&self) -> Value {
        let all = self.json(&["history"]);
        all.as_array().and_then(|all| all.last()).expect("a run").clone()
    }
}

fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name")
}

/// Kills an apply when it has said `lines` lines; true if it had not ended by itself before.
fn cut_after(site: &Site, args: &[&str], lines: usize) -> bool {
    let mut child = site.command(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let said = BufReader::new(child.stderr.take().expect("a pipe"));
    let is_cut = said.lines().map_while(Result::ok).nth(lines).is_some();
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    is_cut
}

#[test]
fn what_is_applied_acts_and_is_taken_back_to_the_byte() {
    let Some(site) = Site::new("tune-apply") else { return };
    good(site.lab.sh(ADVICE));
    let before = site.dump();

    // Without --yes nothing is changed.
    let dry = site.json(&["apply"]);
    assert_eq!((&dry["done"], site.dump()), (&Value::Bool(false), before.clone()));
    let places = |it: &Value| {
        let all = it["steps"].as_array().expect("steps").iter();
        all.map(|it| (it["change"]["key"].to_string(), it["before"]["now"].to_string())).collect::<Vec<_>>()
    };
    assert!(places(&dry).contains(&("\"osd_max_backfills\"".into(), "\"8\"".into())), "{dry}");
    assert!(places(&dry).iter().any(|(key, _)| key.contains("filestore_max_sync_interval")), "{dry}");

    let done = site.json(&["apply", "--yes"]);
    assert_eq!(places(&done), places(&dry));
    assert_eq!(site.backfills(), 1, "the reservers have the new limit");
    let after = site.dump();
    assert!(!after.contains("filestore") && after != before, "{after}");
    let swappiness = || std::fs::read_to_string(site.root().join("proc/sys/vm/swappiness")).expect("text");
    assert_eq!(swappiness().trim(), "10");
    let sight = done["seen"].to_string();
    assert!(sight.contains("the reservers of osd.2 admit 1"), "{sight}");
    assert!(site.json(&["apply"])["steps"].as_array().expect("steps").is_empty(), "nothing is left to do");

    // A value that somebody changed since is theirs.
    let calm = site.tune(&["watch", "--once"]);
    assert!(calm.status.success(), "{}", String::from_utf8_lossy(&calm.stdout));
    good(site.lab.sh("ceph config set osd osd_recovery_op_priority 7"));
    let drift = site.tune(&["watch", "--once"]);
    let words = String::from_utf8_lossy(&drift.stdout).into_owned();
    assert!(drift.status.code() == Some(1) && words.contains("osd_recovery_op_priority of osd"), "{words}");
    a_daemon_tells_of_the_drift(&site);
    let back = site.json(&["rollback"]);
    assert!(back["back"]["left"].to_string().contains("osd_recovery_op_priority"), "{back}");
    assert!(site.dump().contains("\"osd_recovery_op_priority\"=\"7\""), "{}", site.dump());
    good(site.lab.sh("ceph config set osd osd_recovery_op_priority 63"));
    assert_eq!(site.dump(), before);
    assert_eq!((site.backfills(), swappiness().trim()), (8, "60"));
    assert!(!site.root().join("etc/sysctl.d/99-zz-loligo-tune.conf").exists());
    assert_eq!(site.last_run()["state"], "rolled-back");

    // The copy in the cluster serves where the journal is not.
    good(site.tune(&["apply", "--yes"]));
    std::fs::remove_dir_all(site.dir.path().join("state")).expect("the journals go");
    let run = site.last_run()["run"].as_str().expect("a name").to_owned();
    let said = refused(&site.tune(&["rollback"]));
    assert!(
        said.contains(&format!("loligo tune rollback {run}")),
        "the copy is believed by name alone: {said}"
    );
    good(site.tune(&["rollback", &run]));
    assert_eq!((site.dump(), site.backfills(), swappiness().trim()), (before.clone(), 8, "60"));

    // A place that is gone keeps the others from nothing, and the run open until it is forced.
    good(site.tune(&["apply", "--yes"]));
    let run = site.last_run()["run"].as_str().expect("a name").to_owned();
    let gone = site.root().join("proc/sys/vm/swappiness");
    let aside = site.root().join("proc/sys/vm/aside");
    std::fs::rename(&gone, &aside).expect("it goes");
    std::fs::create_dir(&gone).expect("nothing that can be read");
    let out = site.tune(&["rollback"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("vm.swappiness on") && said.contains("--force"), "{said}");
    assert_eq!(site.dump(), before, "the others are taken back");
    assert!(refused(&site.tune(&["apply", "--yes"])).contains("--force closes it"));
    let forced = site.json(&["rollback", &run, "--force"]);
    assert!(forced["back"]["failed"].to_string().contains("vm.swappiness"), "{forced}");
    assert_eq!(site.last_run()["state"], "rolled-back");
    std::fs::remove_dir(&gone).expect("it goes");
    std::fs::rename(&aside, &gone).expect("it comes back");
    good(site.tune(&["rollback", &run, "--force"]));
    assert_eq!(swappiness().trim(), "60");

    // A copy that somebody planted under another name or cluster writes nothing.
    let plant = "n=$(ceph config-key ls | grep -o 'loligo/tune/[^\"]*/state' | tail -1 | cut -d/ -f3); \
                 ceph config-key get loligo/tune/$n/0000 > /tmp/loligo-planted-$$; \
                 ceph config-key get loligo/tune/$n/state | sed \"s/$n/20200101-000000-1/; s/rolled-back/applied/\" > /tmp/loligo-planted-$$.s; \
                 ceph config-key set loligo/tune/20200101-000000-1/0000 -i /tmp/loligo-planted-$$ && \
                 ceph config-key set loligo/tune/20200101-000000-1/state -i /tmp/loligo-planted-$$.s; rm /tmp/loligo-planted-$$*";
    good(site.lab.sh(plant));
    let said = String::from_utf8_lossy(&site.tune(&["rollback", "20200101-000000-1"]).stderr).into_owned();
    assert!(said.contains("is refused: it says that it is the run"), "{said}");
    good(site.lab.sh("ceph config-key rm loligo/tune/20200101-000000-1/state"));
    assert_eq!(site.dump(), before);

    is_refused_where_it_is_not_fit(&site);
}

/// A daemon with a section [tune] has it in its log and its metrics.
fn a_daemon_tells_of_the_drift(site: &Site) {
    let (dir, state) = (site.dir.path(), site.dir.path().join("daemon"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    std::fs::create_dir_all(&state).expect("a folder");
    std::os::unix::fs::symlink(dir.join("state"), state.join("tune")).expect("its journals");
    let conf = site.lab.dir.join("ceph.conf");
    let text = format!(
        "[daemon]\nstate-dir = \"{}\"\nmetrics = \"{port}\"\n[tune]\nevery = 1\nconf = \"{}\"\n",
        state.display(),
        conf.display()
    );
    std::fs::write(dir.join("loligod.toml"), text).expect("a file");
    // It ends by itself if it never says the line.
    let mut daemon = Command::new("timeout");
    daemon.args(["--signal=KILL", "60"]).arg(program()).args(["daemon", "--config"]);
    daemon.arg(dir.join("loligod.toml")).env("LOLIGO_RUNTIME_DIR", dir.join("run"));
    let mut daemon = daemon.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a daemon");
    let mut said = BufReader::new(daemon.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let is_told =
        |line: &String| line.contains("tune: drift") && line.contains("osd_recovery_op_priority of osd");
    assert!(said.any(|line| is_told(&line)), "the daemon says nothing of the drift");
    let metrics = good(site.lab.sh(&format!("curl -s http://{port}/metrics")));
    let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(metrics.contains("loligo_tune_up 1") && metrics.contains("loligo_tune_drifted{"), "{metrics}");
    good(Command::new("kill").arg(daemon.id().to_string()).output().expect("it is told to end"));
    assert!(daemon.wait().expect("it ends").success());
}

/// Bad states: each has its words, and nothing is changed.
fn is_refused_where_it_is_not_fit(site: &Site) {
    let before = site.dump();
    let no = |args: &[&str], words: &str| {
        let said = refused(&site.tune(args));
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(site.dump(), before, "{args:?} changed something");
    };
    no(&["rollback"], "there is no run");
    no(&["rollback", "20000101-000000-1"], "knows no run");
    no(&["rollback", "../x"], "knows no run");
    no(&["apply", "--rule", "OSD-07"], "proposes nothing here");
    no(&["apply", "--rule", "NOPE"], "there is no rule NOPE");
    good(site.lab.sh("ceph osd set noout"));
    loligo_tests::lab::until("the flag is a complaint", std::time::Duration::from_secs(30), || {
        let said = site.tune(&["apply", "--yes"]);
        !said.status.success() && String::from_utf8_lossy(&said.stderr).contains("OSDMAP_FLAGS")
    });
    good(site.lab.sh("ceph osd unset noout"));
    no(&["apply", "--no-cluster", "--yes"], "--no-cluster");
    // An OSD that is down is a complaint that nobody accepted.
    good(site.lab.run("fail osd 2", &[]));
    good(site.lab.sh("ceph osd down 2 --definitely-dead"));
    no(&["apply", "--yes"], "the cluster complains");
    good(site.lab.run("mend", &[]));
    good(site.lab.run("fail mon a", &[]));
    let said = refused(&site.tune(&["apply", "--yes"]));
    assert!(said.contains("cannot be asked"), "{said}");
    good(site.lab.run("mend", &[]));
    assert_eq!(site.dump(), before);
}

#[test]
fn a_run_that_is_killed_anywhere_is_taken_back_whole() {
    let Some(site) = Site::new("tune-kill") else { return };
    good(site.lab.sh(ADVICE));
    let before = site.dump();
    let every = if is_long() { 1 } else { 7 };
    let mut cut = 0;
    for lines in (0..).step_by(every) {
        let is_cut = cut_after(&site, &["apply", "--yes"], lines);
        if !is_cut {
            break;
        }
        cut += 1;
        assert_ne!(site.last_run()["state"], "applied", "after {lines} lines");
        if lines == 0 {
            let said = refused(&site.tune(&["apply", "--yes"]));
            assert!(said.contains("was cut in the middle"), "{said}");
        }
        // Taking back is cut as well, once in a while.
        if lines % 3 == 0 {
            cut_after(&site, &["rollback"], lines % 5);
        }
        let state = site.last_run()["state"].clone();
        if state != "rolled-back" {
            good(site.tune(&["rollback"]));
        }
        assert_eq!(site.dump(), before, "cut after {lines} lines");
        assert_eq!(site.backfills(), 8, "cut after {lines} lines");
    }
    println!("killed at {cut} places, and taken back at each");
    assert!(cut >= if is_long() { 20 } else { 3 }, "{cut} places");
    if is_long() {
        return;
    }
    assert!(!Path::new("/etc/sysctl.d/99-zz-loligo-tune.conf").exists(), "the host itself is not touched");
}

#[test]
fn osds_restart_one_by_one_and_two_tuners_keep_apart() {
    let Some(site) = Site::new("tune-restart") else { return };
    // Read as an OSD starts.
    good(site.lab.sh("ceph config set osd osd_op_num_shards 3"));
    let before = site.dump();
    let shards = || {
        let out = good(site.lab.sh("ceph tell osd.1 dump_op_pq_state"));
        String::from_utf8_lossy(&out.stdout).matches("ShardedOpWQ").count()
    };
    let of_default = shards();
    assert_ne!(of_default, 3);
    let dir = site.lab.dir.display();
    let program = program().display();
    let restart = format!(
        "{program} lab fail osd {{id}} --dir {dir} >&2 && sleep 1 && {program} lab mend --dir {dir} >&2"
    );
    let no_risk = refused(&site.tune(&["apply", "--rule", "OSD-28"]));
    assert!(no_risk.contains("--risk"), "{no_risk}");
    let args = [
        "apply",
        "--rule",
        "OSD-28",
        "--risk",
        "restart",
        "--restart-with",
        &restart,
        "--yes",
        "--patience",
        "120",
    ];
    let mut first =
        site.command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    let said = BufReader::new(first.stderr.take().expect("a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let restarting = lines.find(|line| line.contains("restart 1 of 3")).expect("it restarts");
    println!("{restarting}");
    let busy = refused(&site.tune(&["rollback"]));
    assert!(busy.contains("another tuner has this cluster: process"), "{busy}");
    let rest: Vec<String> = lines.collect();
    assert!(first.wait().expect("it ends").success(), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("osd.2 is up, and all is clean")), "{rest:?}");
    assert!(!site.dump().contains("shards"), "{}", site.dump());
    assert_eq!(shards(), of_default);
    let flags = good(site.lab.sh("ceph osd dump --format json"));
    assert!(!String::from_utf8_lossy(&flags.stdout).contains("noout"), "noout is left");

    good(site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]));
    assert_eq!((site.dump(), shards()), (before.clone(), 3));

    if !is_long() {
        return;
    }
    // One that is killed while an OSD restarts leaves a flag and half of the OSDs: both are put right.
    assert!(cut_after(&site, &args, 2), "it was over too soon");
    good(site.tune(&["rollback", "--restart-with", &restart, "--patience", "120"]));
    assert_eq!((site.dump(), shards()), (before, 3));
    let flags = good(site.lab.sh("ceph osd dump --format json"));
    assert!(!String::from_utf8_lossy(&flags.stdout).contains("noout"), "noout is left");
}

#[test]
fn an_osd_left_down_keeps_noout_until_another_host_mends_it() {
    let Some(site) = Site::new("tune-noout") else { return };
    good(site.lab.sh("ceph config set osd osd_op_num_shards 3"));
    let before = site.dump();
    let dir = site.lab.dir.display();
    let program = program().display();
    let fails = format!(
        "{program} lab fail osd {{id}} --dir {dir} >&2; until ceph -c {dir}/ceph.conf osd dump | grep -q '^osd.{{id}} down'; \
         do sleep 0.2; done; false"
    );
    let apply = ["apply", "--rule", "OSD-28", "--risk", "restart", "--yes", "--restart-with", &fails];
    let said = refused(&site.tune(&apply));
    assert!(said.contains("osd.0 is down") && said.contains("ceph osd unset-group noout osd.0"), "{said}");
    let states = || String::from_utf8_lossy(&good(site.lab.sh("ceph osd dump")).stdout).into_owned();
    let is_kept = |line: &str| line.starts_with("osd.0 down") && line.contains("noout");
    assert!(states().lines().any(is_kept), "{}", states());

    let restart =
        format!("{program} lab fail osd {{id}} --dir {dir} >&2; sleep 1; {program} lab mend --dir {dir} >&2");
    // Another host has no journal, and wants the name of the run.
    let run = site.last_run()["run"].as_str().expect("its name").to_owned();
    std::fs::remove_dir_all(site.dir.path().join("state")).expect("journals");
    let out = good(site.tune(&["rollback", &run, "--restart-with", &restart, "--patience", "120"]));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("by the cluster's copy") && said.contains("restart 3 of 3"), "{said}");
    assert_eq!(site.dump(), before);
    assert!(!states().contains("noout"), "{}", states());
}

#[test]
fn a_planted_effect_is_seen_and_all_is_as_before() {
    if !installed("fio") {
        return skip("verify", "fio is missing: apt-get install fio");
    }
    let Some(site) = Site::new("tune-verify") else { return };
    let before = site.dump();
    let common =
        ["--pool", "rbd", "--size", "64m", "--seconds", "1", "--ramp", "0", "--depth", "4", "--detect", "60"];
    let verify = |more: &[&'static str]| [&["verify"], &common[..], more].concat();
    let said = refused(&site.tune(&verify(&["--set", "client:rbd_qos_write_iops_limit=50"])));
    assert!(said.contains("--yes"), "{said}");
    let said = refused(&site.tune(&verify(&["--set", "osd:no_such_option=1", "--yes"])));
    assert!(said.contains("no_such_option"), "{said}");
    let said = refused(&site.tune(&verify(&["--set", "osd_max_backfills=1", "--yes"])));
    assert!(said.contains("WHO:NAME=VALUE"), "{said}");
    assert_eq!(site.dump(), before);

    if !is_long() {
        return;
    }
    let report = site.dir.path().join("report.html");
    let limit = ["--set", "client:rbd_qos_write_iops_limit=50", "--yes"];
    let with_report = [&verify(&limit)[..], &["--report", report.to_str().expect("a path")]].concat();
    let seen = site.json(&with_report);
    let iops = &seen["metrics"][0];
    assert!(iops["effect"]["is_seen"] == true && iops["effect"]["ratio"].as_f64() < Some(0.5), "{iops}");
    assert!(iops["second"].as_f64() < Some(70.0), "the second arm has its limit: {iops}");
    assert!(seen["power"]["pairs_needed"].as_u64() >= Some(16), "{}", seen["power"]);
    let orders: Vec<bool> = seen["blocks"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|it| it["runs"][0]["is_second"] == true)
        .collect();
    assert!(orders.contains(&true) && orders.contains(&false), "the order is by lot: {orders:?}");
    assert!(std::fs::read_to_string(&report).expect("a page").contains("Verdict"));
    assert_eq!(site.dump(), before);
    let images = good(site.lab.sh("rbd ls rbd"));
    assert!(images.stdout.is_empty(), "the image is left: {}", String::from_utf8_lossy(&images.stdout));

    // One that is killed leaves one arm in place until it is taken back.
    assert!(cut_after(&site, &verify(&limit), 6), "it was over too soon");
    assert_eq!(site.last_run()["state"], "applying");
    good(site.tune(&["rollback"]));
    assert_eq!(site.dump(), before);
}

/// Twenty comparisons of nothing with nothing, and twenty of a real effect of ten percent.
#[test]
fn twenty_of_nothing_and_twenty_of_ten_percent() {
    if !is_long() {
        return skip("the error rates of verify", "it takes an hour: LOLIGO_LONG=1");
    }
    let Some(site) = Site::new("tune-rates") else { return };
    let common =
        ["verify", "--pool", "rbd", "--size", "256m", "--seconds", "3", "--ramp", "1", "--depth", "4"];
    let run = |more: &[&str]| {
        site.json(&[&common[..], &["--detect", "8", "--budget", "6", "--yes"], more].concat())
    };
    let effect = |seen: &Value| {
        let it = &seen["metrics"][0]["effect"];
        (it["is_seen"] == true, it["ratio"].as_f64().expect("a number"), seen["metrics"][0]["first"].as_f64())
    };
    let (mut quiet, mut found) = (0, 0);
    for round in 0..20 {
        let (is_seen, ratio, rate) = effect(&run(&["--same"]));
        quiet += usize::from(!is_seen);
        let limit = format!("client:rbd_qos_write_iops_limit={:.0}", rate.expect("a rate") * 0.9);
        let (is_found, slower, _) = effect(&run(&["--set", &limit]));
        found += usize::from(is_found && slower < 1.0);
        println!("round {round}: same {ratio:.3} seen {is_seen}; limited {slower:.3} seen {is_found}");
    }
    println!("{quiet} of 20 without effect, {found} of 20 found");
    assert!(quiet >= 19 && found >= 19, "{quiet} and {found}");
}

/// A host that sshd leads to, with files of its own: its program is given another root.
struct Host {
    dir: tempfile::TempDir,
    sshd: std::process::Child,
    port: u16,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl Host {
    fn new() -> Host {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        for key in ["host", "client"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status();
            assert!(made.expect("ssh-keygen runs").success());
        }
        let files = [
            ("root/proc/sys/kernel/hostname", "node2\n"),
            ("root/proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\n"),
            ("root/sys/block/rbd0/queue/nr_requests", "128\n"),
            ("root/sys/block/rbd0/queue/read_ahead_kb", "4096\n"),
            ("root/sys/block/rbd1/queue/nr_requests", "128\n"),
            ("root/sys/block/rbd1/queue/read_ahead_kb", "2048\n"),
        ];
        for (path, text) in files {
            std::fs::create_dir_all(at(path).parent().expect("a folder")).expect("folders");
            std::fs::write(at(path), text).expect("a file");
        }
        let wrapper =
            format!("#!/bin/sh\nexec {} \"$@\" --root {}\n", program().display(), at("root").display());
        std::fs::write(at("loligo"), wrapper).expect("a file");
        std::fs::set_permissions(at("loligo"), std::fs::Permissions::from_mode(0o755)).expect("rights");
        std::fs::create_dir_all("/run/sshd").expect("its folder");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f", "/dev/null", "-p", &port.to_string(), "-o", "ListenAddress=127.0.0.1"]);
        for option in ["StrictModes=no", "UsePAM=no", "PermitRootLogin=yes", "PidFile=none"] {
            sshd.args(["-o", option]);
        }
        sshd.arg("-o").arg(format!("HostKey={}", at("host").display()));
        sshd.arg("-o").arg(format!("AuthorizedKeysFile={}", at("client.pub").display()));
        let sshd = sshd.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("sshd runs");
        let host = Host { dir, sshd, port };
        loligo_tests::lab::until("sshd answers", std::time::Duration::from_secs(10), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        host
    }

    /// The arguments that lead to it.
    fn args(&self) -> Vec<String> {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let mut args = vec!["--host".to_owned(), "root@127.0.0.1".to_owned()];
        args.extend(["--remote-program".to_owned(), at("loligo")]);
        for option in [
            format!("Port={}", self.port),
            format!("IdentityFile={}", at("client")),
            "StrictHostKeyChecking=no".to_owned(),
            "UserKnownHostsFile=/dev/null".to_owned(),
        ] {
            args.extend(["--ssh-option".to_owned(), option]);
        }
        args
    }

    fn file(&self, path: &str) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("root").join(path)).unwrap_or_default();
        text.trim().to_owned()
    }
}

#[test]
fn another_host_is_changed_over_ssh_and_put_back() {
    if !Path::new("/usr/sbin/sshd").exists() {
        return skip("another host over ssh", "sshd is missing: apt-get install openssh-server");
    }
    let Some(site) = Site::new("tune-ssh") else { return };
    let host = Host::new();
    let more = host.args();
    let with = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(more.iter().map(String::as_str)).collect();
        site.tune(&all)
    };
    good(with(&["apply", "--yes", "--rule", "BLK-03"]));
    let ahead = |disk: &str| host.file(&format!("sys/block/{disk}/queue/read_ahead_kb"));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("128", "128"));
    let kept = host.file("etc/tmpfiles.d/zz-loligo-tune.conf");
    assert!(kept.is_empty(), "a disk has another name after a boot: {kept}");

    // Without the way there nothing of it is taken back, and it says which way is missing.
    let out = site.tune(&["rollback"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("--host node2"), "{said}");
    good(with(&["rollback"]));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("4096", "2048"));
    assert!(host.file("etc/tmpfiles.d/zz-loligo-tune.conf").is_empty());

    // A host that does not answer is named among what was not seen, and its rules propose nothing.
    let dead = ["--host", "root@127.0.0.1", "--ssh-option", "Port=1", "--rule", "BLK-03"];
    let said = refused(&site.tune(&[&["apply", "--yes"], &dead[..]].concat()));
    assert!(said.contains("BLK-03 proposes nothing here"), "{said}");
    let facts = site.json(&["facts", "--host", "root@127.0.0.1", "--ssh-option", "Port=1"]);
    assert!(facts["unseen"].to_string().contains("ssh does not reach it"), "{}", facts["unseen"]);
}

#[test]
fn a_search_finds_a_limit_that_slows_and_goes_on_after_a_cut() {
    if !is_long() {
        return skip("a search", "it takes five minutes: LOLIGO_LONG=1");
    }
    let Some(site) = Site::new("tune-search") else { return };
    let before = site.dump();
    let (space, record) = (site.dir.path().join("space.toml"), site.dir.path().join("record.jsonl"));
    let text = "version = 1\n[[option]]\nwho = \"client\"\nname = \"rbd_qos_write_iops_limit\"\n\
                values = [\"20\", \"40\", \"80\", \"0\"]\n\
                [[option]]\nwho = \"osd\"\nname = \"osd_client_message_cap\"\nfrom = 64\nto = 512\nlog = true\n";
    std::fs::write(&space, text).expect("a file");
    let (space, record) = (space.display().to_string(), record.display().to_string());
    let args = [
        "search",
        "--space",
        &space,
        "--record",
        &record,
        "--trials",
        "12",
        "--pool",
        "rbd",
        "--size",
        "64m",
        "--seconds",
        "1",
        "--ramp",
        "0",
        "--depth",
        "4",
        "--detect",
        "50",
        "--p99",
        "10",
        "--yes",
    ];
    let said = refused(&site.tune(&args));
    assert!(said.contains("--lab"), "{said}");
    let args = [&args[..], &["--lab"]].concat();
    assert!(cut_after(&site, &args, 6), "it was over too soon");
    good(site.tune(&["rollback"]));
    assert_eq!(site.dump(), before);
    let had = std::fs::read_to_string(&record).expect("a record").lines().count();
    assert!(had > 2, "{had}");
    let found = site.json(&args);
    assert_eq!(found["values"][0], "0", "no limit is the best of these: {found}");
    let all = std::fs::read_to_string(&record).expect("a record");
    assert_eq!(all.lines().count(), 13, "{all}");
    assert_eq!(site.dump(), before);
}
