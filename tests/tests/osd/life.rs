//! An OSD from its making to its end.

use crate::site::{BACK, DATA, Site, without};
use loligo_sim::rng::Rng;
use loligo_tests::skip::{installed, is_long, skip};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A client that writes, with sums, and reads all back in the end; it waits while the OSD is away.
fn load(site: &Site, seconds: u64) -> Child {
    let job = format!(
        "--ioengine=rbd --clientname=admin --pool=cached --rbdname=a --direct=1 --name=v --rw=randrw --bs=4k --iodepth=8 \
         --size=48m --io_size=100g --time_based=1 --runtime={seconds} --verify=crc32c --verify_fatal=1 --verify_backlog=256"
    );
    let mut fio = Command::new("fio");
    fio.args(job.split_whitespace()).env("CEPH_CONF", site.conf()).env_remove("CEPH_ARGS");
    fio.current_dir(site.path("run")).stdout(Stdio::piped()).stderr(Stdio::piped());
    fio.spawn().expect("fio runs")
}

/// A pool of one copy on the OSDs of class `cached`, with an image in it, and one that any OSD may have.
fn pool(site: &Site) {
    site.ceph_all(&[
        "osd crush rule create-replicated cached default osd cached",
        "osd pool create cached 8 8 replicated cached",
        "osd pool set cached size 1 --yes-i-really-mean-it",
        "osd pool create anywhere 4 4 replicated",
        "osd pool set anywhere size 1 --yes-i-really-mean-it",
    ]);
    let made =
        Command::new("rbd").args(["--conf", &site.conf(), "create", "--size", "64M", "cached/a"]).output();
    let made = made.expect("rbd runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Nobody finds anything of the OSD on the raw disk; on its device they do.
pub fn raw_disk_shows_nothing(data: &Path, device: &Path) {
    let run = |program: &str, args: &[&str], at: &Path| {
        Command::new(program).args(args).arg(at).output().expect("it runs")
    };
    let label = ["show-label", "--dev"];
    let seen = run("ceph-bluestore-tool", &label, device);
    assert!(seen.status.success(), "not even on its device: {}", String::from_utf8_lossy(&seen.stderr));
    let raw = run("ceph-bluestore-tool", &label, data);
    assert!(!raw.status.success(), "a label: {}", String::from_utf8_lossy(&raw.stdout));
    if installed("blkid") {
        let found = run("blkid", &["-p"], data);
        let text = String::from_utf8_lossy(&found.stdout);
        assert!(text.contains("TYPE=\"LVM1_member\"") && !text.contains("bluestore"), "{text}");
        let found = run("blkid", &["-p"], device);
        assert!(
            String::from_utf8_lossy(&found.stdout).contains("ceph_bluestore"),
            "blkid knows no BlueStore"
        );
    } else {
        skip("blkid on the raw disk", "blkid is missing: apt-get install util-linux");
    }
    if installed("pvs") {
        // It would open every device of the machine, those of other tests among them, which may be dead.
        let only = format!("devices {{ global_filter = [ \"a|^{}$|\", \"r|.*|\" ] }}", data.display());
        let found = run("timeout", &["20", "pvs", "--config", &only], data);
        assert_eq!(found.status.code(), Some(5), "LVM knows it: {}", String::from_utf8_lossy(&found.stdout));
    } else {
        skip("pvs on the raw disk", "pvs is missing: apt-get install lvm2");
    }
}

/// Options that `prepare` sets by name, for the default of each depends on what a device says.
const SET: [(&str, f64); 5] = [
    ("bluestore_min_alloc_size", 4096.0),
    ("bluestore_prefer_deferred_size", 65_536.0),
    ("bluestore_throttle_cost_per_io", 4000.0),
    ("osd_op_num_shards", 8.0),
    ("osd_op_num_threads_per_shard", 2.0),
];

/// Further options where requests are queued by weight.
const WEIGHED: [(&str, f64); 4] = [
    ("osd_recovery_max_active", 3.0),
    ("osd_recovery_sleep", 0.1),
    ("osd_delete_sleep", 5.0),
    ("osd_snap_trim_sleep", 5.0),
];

/// The options in their place under mClock, which overrules those.
const BY_MCLOCK: [(&str, f64); 4] = [
    ("osd_mclock_max_capacity_iops_hdd", 315.0),
    ("osd_mclock_max_capacity_iops_ssd", 315.0),
    ("osd_mclock_max_sequential_bandwidth_hdd", 157_286_400.0),
    ("osd_mclock_max_sequential_bandwidth_ssd", 157_286_400.0),
];

/// The OSD runs with these options, its store was made with what only then counts, and no others are set for it.
fn options_are_set(site: &Site) {
    let (id, who) = (site.id.to_string(), format!("osd.{}", site.id));
    let runs_with = site.json(&["tell", &who, "config", "show"]);
    let by_mclock = runs_with["osd_op_queue"] == "mclock_scheduler";
    let besides = if by_mclock { BY_MCLOCK } else { WEIGHED };
    let set: Vec<_> = SET.into_iter().chain(besides).collect();
    for (option, value) in &set {
        let now = runs_with[option].as_str().and_then(|v| v.parse::<f64>().ok());
        assert_eq!(now, Some(*value), "{option}");
    }
    let made = site.json(&["osd", "metadata", &id]);
    assert_eq!(made["bluestore_min_alloc_size"], "4096", "{made}");
    let dump = site.json(&["config", "dump"]);
    let own = dump.as_array().expect("a list").iter().filter(|e| e["section"] == *who);
    let mut names: Vec<&str> = own.filter_map(|e| e["name"].as_str()).collect();
    names.sort_unstable();
    let mut expected: Vec<&str> = set.iter().map(|(option, _)| *option).collect();
    if by_mclock {
        expected.push("osd_mclock_skip_benchmark");
    }
    expected.sort_unstable();
    assert_eq!(names, expected);
}

/// Kills the daemon or the OSD at a random moment; the OSD is back within a minute of the daemon's (or the OSD's) start.
fn kill_and_come_back(site: &mut Site, rng: &mut Rng, round: u32) -> Duration {
    let before = site.up_from().expect("it is up");
    std::thread::sleep(Duration::from_millis(300 + rng.below(2500)));
    let begun;
    if round.is_multiple_of(2) {
        site.crash();
        std::thread::sleep(Duration::from_millis(rng.below(1500)));
        begun = Instant::now();
        site.start();
    } else {
        site.end(libc::SIGKILL);
        begun = Instant::now();
        site.ok(&["osd", "activate", &site.id.to_string()]);
    }
    site.until("the OSD is back", BACK, || site.up_from().is_some_and(|now| now != before));
    let took = begun.elapsed();
    assert!(took < BACK, "back after {took:?} only");
    took
}

/// Another OSD, as a file and not started, whose cache lies on the same disk: that is said and shown.
fn a_second_one_shares_its_fate(site: &Site, cache: &Path) {
    let (core, second) = (site.path("core2"), cache.with_extension("2"));
    std::fs::File::create(&core).and_then(|f| f.set_len(DATA)).expect("a core");
    let (id, dir) = ((site.id + 1).to_string(), site.path("osd/second").display().to_string());
    let other = ["--id", &id, "--osd-dir", &dir, "--cache-size", "64m", "--via", "fuse", "--no-start"];
    // Nobody says of what class it is: a file does not turn.
    let words = without("--class", site.prepare(&core, &second, &other));
    let out = site.command(&words).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success() && said.contains(&format!("with that of osd.{}: if that device dies", site.id)),
        "{said}"
    );
    let row = site.listed();
    assert_eq!(row["shares_cache_with"], serde_json::json!([site.id + 1]), "{row}");
    let class = site.ceph(&["osd", "crush", "get-device-class", &format!("osd.{id}")]);
    assert_eq!(class.trim(), "ssd");
    site.ok(&["osd", "remove", &id, "--wait"]);
    assert!(!second.exists() && !site.path("osd/second").exists());
}

pub fn scrub(site: &Site) {
    let pgs = || {
        // The manager may not have heard of them yet.
        site.json(&["pg", "ls-by-osd", &site.id.to_string()])["pg_stats"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let stamps = |all: &[serde_json::Value]| -> Vec<(String, String)> {
        let text = |p: &serde_json::Value, k: &str| p[k].as_str().unwrap_or_default().to_owned();
        all.iter().map(|p| (text(p, "pgid"), text(p, "last_deep_scrub_stamp"))).collect()
    };
    let clean = || {
        let all = pgs();
        !all.is_empty() && all.iter().all(|p| p["state"] == "active+clean")
    };
    site.until("all clean", BACK, clean);
    let before = stamps(&pgs());
    assert!(!before.is_empty(), "nothing to scrub");
    let all: Vec<String> = before.iter().map(|(pg, _)| format!("pg deep-scrub {pg}")).collect();
    site.ceph_all(&all.iter().map(String::as_str).collect::<Vec<_>>());
    site.until("deep scrubs", 3 * BACK, || {
        let now = stamps(&pgs());
        now.iter().zip(&before).all(|(a, b)| a.0 == b.0 && a.1 != b.1)
    });
    site.until("all clean", BACK, clean);
}

pub fn fsck(site: &Site) {
    let ran = Command::new("ceph-bluestore-tool")
        .env("CEPH_CONF", site.conf())
        .args(["fsck", "--path"])
        .arg(site.osd_dir())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("success"), "{said}");
}

#[test]
fn an_osd_on_a_cached_volume_survives_kills_of_everything() {
    let Some(mut site) = Site::new("an OSD on a cached volume") else { return };
    let (data, cache) = (site.device("data", DATA), site.path("cache"));
    let words = site.prepare(data.path(), &cache, &["--cache-size", "192m"]);
    let begun = Instant::now();
    let past = |what: &str| println!("{what} after {:.1} s", begun.elapsed().as_secs_f64());
    let number = site.ok(&words);
    past("prepared");
    let id = site.id.to_string();
    assert_eq!(number.trim(), id);
    let mapped = site.mapped().expect("it is in the map");
    assert!(mapped["up"] == 1 && mapped["in"] == 1, "{mapped}");
    let class = site.ceph(&["osd", "crush", "get-device-class", &format!("osd.{id}")]);
    assert_eq!(class.trim(), "cached");
    let device = Path::new("/dev/loligo").join(format!("osd{id}"));
    assert_eq!(std::fs::read_link(site.osd_dir().join("block")).expect("a link"), device);
    options_are_set(&site);
    raw_disk_shows_nothing(data.path(), &device);
    let row = site.listed();
    assert!(row["id"] == site.id && row["state"] == "up" && row["in"] == true, "{row}");
    assert!(row["volume_state"] == "serving" && row["mode"] == "wb" && row["dirty_bytes"].is_u64(), "{row}");
    assert_eq!(row["shares_cache_with"], serde_json::json!([]));

    past("looked at");
    a_second_one_shares_its_fate(&site, &cache);
    past("a second one");
    pool(&site);
    let rounds = if is_long() { 20 } else { 2 };
    let mut rng = Rng::new(6);
    for round in 0..rounds {
        let fio = load(&site, 6);
        let took = kill_and_come_back(&mut site, &mut rng, round);
        println!("round {round}: back after {:.1} s", took.as_secs_f64());
        let out = fio.wait_with_output().expect("fio ends");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && !said.contains("verify"), "{said}");
    }
    past("kills");
    scrub(&site);
    past("scrubbed");
    // One that is asked to stop, and started again by hand.
    site.end(libc::SIGTERM);
    assert_eq!(site.listed()["runs"], false);
    fsck(&site);
    // Its folder is lost but for the link, which may lead anywhere.
    for file in ["fsid", "keyring", "whoami"] {
        std::fs::remove_file(site.osd_dir().join(file)).expect("it is there");
    }
    let link = site.osd_dir().join("block");
    std::fs::remove_file(&link)
        .and_then(|()| std::os::unix::fs::symlink("/dev/loop99", &link))
        .expect("a link");
    site.ok(&["osd", "activate", "--all"]);
    assert!(site.up_from().is_some());
    assert_eq!(std::fs::read_link(&link).expect("a link"), device);

    past("its folder");
    let said = site.refused(&["osd", "remove", &id]);
    assert!(said.contains("cannot be removed yet") && said.contains("--wait"), "{said}");
    let said = site.refused(&["osd", "remove", &id, "--force"]);
    assert!(said.contains("also not with --force"), "the only copy: {said}");
    assert!(site.up_from().is_some(), "a refusal changed something");
    site.ceph(&["osd", "pool", "rm", "cached", "cached", "--yes-i-really-really-mean-it"]);
    site.ok(&["osd", "remove", &id, "--wait", "--zap"]);
    assert_eq!(site.mapped(), None);
    assert!(
        !site.try_ceph(&["auth", "get", &format!("osd.{id}")]).status.success(),
        "its key is still there"
    );
    assert!(!site.ceph(&["config", "dump"]).contains(&format!("osd.{id}")));
    assert_eq!(site.ok(&["volume", "list", "--json"]).trim(), "[]");
    assert!(!site.osd_dir().exists() && !cache.exists() && device.symlink_metadata().is_err());
    let left = std::fs::read(site.path("data")).map(|all| all[..11 << 20].iter().all(|b| *b == 0));
    assert!(left.expect("it can be read"), "something is left at the start of the disk");
    assert_eq!(site.pid(), None);
    past("all");
}
