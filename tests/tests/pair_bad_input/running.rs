//! Claims about agents that are given what they must not act on.

use crate::pair::{A, Pair};
use loligo_format::layout::SUPERBLOCKS;
use loligo_pair::fence::Fence;
use loligo_pair::reservation::Key;
use loligo_tests::server::program;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The place of the sector of side b.
const SECTOR_B: u64 = (1 << 20) + 4096;
/// A partner that never comes is no reason for a takeover here.
const NO_TAKEOVER: &str = "[timings]\nfirst-contact = 600000\n";

/// The options that a setup sets, for all of the cluster.
const OPTIONS: [&str; 8] = [
    "osd_crush_update_on_start",
    "mon_osd_down_out_subtree_limit",
    "paxos_propose_interval",
    "mon_lease",
    "mon_election_timeout",
    "mon_client_ping_interval",
    "mon_client_ping_timeout",
    "bluestore_rocksdb_options_annex",
];

/// What the monitors know of an OSD, by `key` of its entry in `list`.
fn known(pair: &Pair, list: &str, osd: u32, key: &str) -> u64 {
    let map = pair.ask("osd dump");
    let all = map[list].as_array().expect("a list");
    let one = all.iter().find(|one| one["osd"] == osd).expect("the OSD");
    one[key].as_u64().unwrap_or_else(|| panic!("no {key} in {one}"))
}

/// Waits until an OSD that the agent has started is up for the monitors, too.
fn is_up(pair: &Pair, osd: u32) {
    pair.until(&format!("osd.{osd} is up"), |pair| known(pair, "osds", osd, "up") == 1);
}

/// The partner's agent, which writes this heartbeat with another number each time.
fn living(pair: &Pair, beat: [u8; 64], work: impl FnOnce()) {
    let (ends, path) = (AtomicBool::new(false), pair.at("b/quorum"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).expect("the LUN");
            // Not for ever, should the work panic.
            for number in 0u64..600 {
                let mut bytes = beat;
                bytes[24..32].copy_from_slice(&number.to_le_bytes());
                file.write_all_at(&bytes, SECTOR_B).and_then(|()| file.sync_all()).expect("a write");
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        work();
        ends.store(true, Ordering::Relaxed);
    });
}

/// A run of the agent ends by itself, with these words; nothing but the heartbeats is changed.
fn does_not_run(pair: &Pair, words: &[&str]) {
    let before = pair.everything();
    let mut child =
        pair.command("run", "a").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let ran = child.try_wait().expect("it is ours").is_none();
    // One that runs is no part of the outcome any more.
    let _ = child.kill();
    let said = child.wait_with_output().expect("it ended").stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(!ran, "it runs: {said}");
    for word in words {
        assert!(said.contains(word), "no '{word}' in: {said}");
    }
    assert_eq!(pair.everything().but(&["quorum"]), before.but(&["quorum"]));
    assert_eq!(pair.process("a", 1), None, "an OSD was started");
}

#[test]
fn a_living_partner_that_is_not_understood_is_no_dead_one() {
    let Some(pair) = Pair::new("a pair of two versions", None) else { return };
    pair.register(&["a", "b"]);
    let mut beat = [0; 64];
    beat[..8].copy_from_slice(b"LoliBeat");
    beat[8] = 9;
    living(&pair, beat, || does_not_run(&pair, &["version 9", "the same version on both controllers"]));
    beat[8] = 1;
    living(&pair, beat, || does_not_run(&pair, &["signed with another secret", "the same file"]));
}

#[test]
fn an_osd_is_not_started_over_an_unregistered_path() {
    let Some(mut pair) = Pair::new("a pair with a path that is not registered", None) else { return };
    pair.register(&["a", "b"]);
    let mut a = pair.fence("a", "osd1");
    a.release(A).expect("it is given back");
    a.register(A, Key::NONE).expect("and left");
    pair.write(&(pair.file() + NO_TAKEOVER));
    let before = pair.everything();
    let mut agent = pair.command("run", "a");
    pair.spawn(&mut agent);
    pair.until("the agent says why", |pair| pair.history().contains("is not this side's"));
    assert_eq!(pair.everything().but(&["quorum"]), before.but(&["quorum"]));
    assert_eq!(pair.process("a", 1), None, "an OSD was started");
    let history = pair.history();
    assert!(history.contains("'loligo pair setup' on this controller registers it"), "{history}");

    let left = OPTIONS.iter().flat_map(|option| ["--leave", option]).collect::<Vec<_>>();
    let out = pair.run("setup", "a", &left);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    pair.until("the OSD is started once the path is registered", |pair| pair.unit("osd.1") == "running");
    is_up(&pair, 1);
}

#[test]
fn a_power_command_that_does_nothing_proves_no_death() {
    let Some(mut pair) = Pair::new("a pair with a board that lies", None) else { return };
    pair.register(&["a", "b"]);
    let [power, asked] = ["power", "asked"].map(|name| pair.at(name));
    fs::write(&power, "on\n").expect("a file");
    let _ = fs::remove_file(&asked);
    let board = format!(
        "power-off = [\"true\"]\npower-status = [\"sh\", \"-c\", \"echo asked >>{}; cat {}\"]\n",
        asked.display(),
        power.display()
    );
    let text = pair.file().replacen("[[osd]]", &(board + "[[osd]]"), 1);
    pair.write(&(text + "[timings]\nfirst-contact = 1000\n"));
    // The OSD is not started before the command has answered.
    let block = pair.at("a.2/block");
    fs::rename(&block, pair.at("block.aside")).expect("a link");
    let mut agent = pair.command("run", "a");
    pair.spawn(&mut agent);
    pair.until("the partner's OSD waits", |pair| pair.history().contains("osd.2 cannot be started"));
    assert_eq!(pair.status()["role"], "DUAL");
    let times = || fs::read_to_string(&asked).unwrap_or_default().lines().count();
    let before = times();
    fs::rename(pair.at("block.aside"), &block).expect("a link");
    is_up(&pair, 2);
    assert_eq!(known(&pair, "osd_xinfo", 2, "dead_epoch"), 0, "the monitors were told of a death");
    let believes = |pair: &Pair| pair.history().contains("the partner's power is off");
    assert!(!believes(&pair), "{}", pair.history());
    pair.until("the power is asked for again and again", |_| times() > before + 5);

    fs::write(&power, "off\n").expect("a file");
    pair.until("the status says so", believes);
}

/// Spoils a superblock so that its magic stays.
fn spoil(file: &File, at: u64) {
    let mut bytes = [0; 512];
    file.read_exact_at(&mut bytes, at).expect("a superblock");
    bytes[64..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    file.write_all_at(&bytes, at).expect("a write");
}

/// `loligo ARGS` for side a.
fn loligo(pair: &Pair, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null());
    command.env("LOLIGO_RUNTIME_DIR", pair.at("run-a")).env("LOLIGO_STATE_DIR", pair.at("run-a"));
    command
}

fn daemon(pair: &Pair) -> Command {
    let mut command = loligo(pair, &["daemon", "--config"]);
    command.arg(pair.at("run-a/loligod.toml"));
    command
}

#[test]
fn a_volume_without_a_superblock_leaves_its_osd_alone() {
    let Some(mut pair) = Pair::new("a pair with a damaged cache", None) else { return };
    pair.register(&["a", "b"]);
    let dir = pair.at("");
    let dir = dir.display().to_string();
    let dir = dir.trim_end_matches('/');
    let conf = pair.conf();
    let volume = format!(
        "[[volume]]\nid = 0\nname = \"vm\"\nhome = \"a\"\ncache = {{ a = \"{dir}/a/cache\", b = \"{dir}/b/cache\" }}\n\
         [volume.definition]\ncore = \"rbd:rbd/vm?conf={}&id=admin\"\nmode = \"wb\"\nlisten = [\"unix:{dir}/vm.sock\"]\n",
        conf.display()
    );
    pair.write(&(pair.file() + &volume + NO_TAKEOVER));
    fs::write(pair.at("run-a/loligod.toml"), "[daemon]\nidentity = \"n0a\"\n").expect("a file");
    let first = pair.spawn(&mut daemon(&pair));
    let mut agent = pair.command("run", "a");
    pair.spawn(&mut agent);
    pair.until("all is well", |pair| pair.unit("osd.1") == "running" && pair.unit("volume vm") == "running");
    is_up(&pair, 1);
    pair.end(first);
    let lun = File::options().read(true).write(true).open(pair.at("a/cache")).expect("the LUN");
    SUPERBLOCKS.iter().for_each(|at| spoil(&lun, *at));
    lun.sync_all().expect("a write");
    drop(lun);

    let osd = pair.process("a", 1).expect("the OSD runs");
    let before = pair.everything();
    pair.spawn(&mut daemon(&pair));
    pair.until("the start is refused", |pair| pair.history().contains("both superblocks are damaged"));
    let history = pair.history();
    assert!(history.contains("Look at it with 'loligo inspect"), "{history}");
    assert!(history.contains("--create --force replaces it"), "{history}");
    assert_ne!(pair.unit("volume vm"), "running");
    let after = pair.everything();
    assert_eq!(after.but(&["quorum", "osd1"]), before.but(&["quorum", "osd1"]));
    assert_eq!((pair.process("a", 1), pair.unit("osd.1").as_str()), (Some(osd), "running"));
    assert_eq!(known(&pair, "osds", 1, "up"), 1);

    // The agent makes the volume anew with each try, and for a moment there is none.
    pair.until("the mend that was told is done", |pair| {
        let mend = ["volume", "start", "vm", "--create", "--force"];
        loligo(pair, &mend).stderr(Stdio::null()).status().expect("it runs").success()
    });
    pair.until("the volume that was mended is the pair's", |pair| pair.unit("volume vm") == "running");
}
