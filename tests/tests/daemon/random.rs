//! Everything at once: attach and detach, modes, tunables, sizes and kills at random moments, under loads that know what they may read.
//!
//! `LOLIGO_SEED=n` repeats the plan of a run; `LOLIGO_LONG=1` makes it one of 20 rounds.

use crate::site::{CORE, Site};
use loligo_sim::rng::Rng;
use loligo_tests::blockdev::impossible;
use loligo_tests::direct;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::skip::is_long;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most bytes that a core grows to.
const MOST: u64 = CORE + (16 << 20);

/// A refusal that is as it should be for a volume that is not what the plan thinks.
const EXPECTED: [&str; 5] =
    ["has a cache", "served bare", "does not get smaller", "bytes already", "is under way"];

/// Changes of two volumes: `n`, over NBD, and `d`, a block device, where there can be one.
pub struct Plan {
    pub site: Site,
    pub rng: Rng,
    seed: u64,
    pub volumes: Vec<&'static str>,
    /// The device of `d`.
    pub device: Option<PathBuf>,
    /// The number of times that each command was carried out.
    pub done: BTreeMap<String, u32>,
}

impl Plan {
    /// By the seed of the environment, or by the clock; `what` is the test's part of the device's name.
    pub fn new(what: &str) -> Plan {
        let clock =
            || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
        let seed = std::env::var("LOLIGO_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(clock);
        println!("LOLIGO_SEED={seed}");
        let (site, mut rng, mut volumes) = (Site::new(&["n", "d"]), Rng::new(seed), vec!["n"]);
        let threads = 1 + rng.below(2);
        let own = |v: &str| {
            site.section(v).replace(&format!("{v}.cache"), &format!("{v}.cache0")).replace("24m", "48m")
                + &format!("sparse = true\nshards = {threads}\n")
        };
        let name = format!("t{}-{what}", std::process::id());
        let mut sections = own("n");
        let device = (!impossible("changes under a block device"))
            .then(|| PathBuf::from(format!("/dev/loligo/{name}")));
        if device.is_some() {
            volumes.push("d");
            sections += &own("d").replace("nbd\"]", &format!("nbd\", \"block:{name}\"]"));
        }
        site.configure(&sections);
        Plan { site, rng, seed, volumes, device, done: BTreeMap::new() }
    }

    /// The words of a failure in `round`.
    pub fn context(&self, round: u64) -> String {
        format!("LOLIGO_SEED={}, round {round}", self.seed)
    }

    /// Something to do with a volume.
    pub fn command(&mut self) -> Vec<String> {
        let volume = self.rng.pick(&self.volumes).to_owned();
        let cache = self.site.path(&format!("{volume}.cache{}", self.rng.below(2))).display().to_string();
        let mode = self.rng.pick(&["wb", "wb", "wt", "wo", "wa", "wi"]).to_owned();
        let size = (CORE + self.rng.below(17) * (MOST - CORE) / 16).to_string();
        let low = self.rng.below(90).to_string();
        let words: Vec<&str> = match self.rng.below(10) {
            0..4 => vec![
                "volume",
                "attach",
                &volume,
                "--cache",
                &cache,
                "--cache-size",
                "48m",
                "--sparse",
                "--mode",
                &mode,
            ],
            4..6 => vec!["volume", "detach", &volume],
            6 => vec!["mode", &volume, &mode],
            7 => vec!["param", "set", &volume, "destage-low", &low],
            8 => vec!["volume", "resize", &volume, "--size", &size],
            _ => vec!["flush", &volume],
        };
        words.into_iter().map(str::to_owned).collect()
    }

    /// Begins something that a kill is to come in the middle of.
    pub fn begin(&mut self) -> Child {
        let command = self.command();
        let mut command = self.site.command(&command.iter().map(String::as_str).collect::<Vec<_>>());
        let begun = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        std::thread::sleep(Duration::from_millis(self.rng.below(150)));
        begun
    }

    /// Does it; what is refused as it should be is no failure.
    pub fn carry_out(&mut self, command: &[String]) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let out = self.site.loligo(&words);
        let why = String::from_utf8_lossy(&out.stderr).into_owned();
        if out.status.success() {
            let word = if words[0] == "volume" { words[1] } else { words[0] };
            *self.done.entry(word.to_owned()).or_default() += 1;
            return;
        }
        if EXPECTED.iter().any(|e| why.contains(e)) {
            return;
        }
        // A kill has come between the cache that was made and the word that it is the volume's.
        assert!(why.contains("holds the cache of volume"), "LOLIGO_SEED={} {words:?}: {why}", self.seed);
        self.site.ok(&[&words[..], &["--force"]].concat());
    }
}

#[test]
fn nothing_is_lost_whatever_changes_and_whenever_it_is_killed() {
    let rounds = if is_long() { 20 } else { 5 };
    let mut plan = Plan::new("live");
    let device = plan.device.clone();
    let mut histories = (History::new(CORE), History::new(CORE));
    for round in 0..rounds {
        let kills = round + 1 < rounds && plan.rng.chance(3, 4);
        let context = plan.context(round);
        let daemon = plan.site.daemon();
        let after = (round > 0).then_some(Crash::Killed);
        let socket = plan.site.path("n.nbd");
        for volume in &plan.volumes {
            assert_eq!(plan.site.status(volume).0, "serving", "{context}: {:?}", plan.site.status(volume));
        }
        let mut load = Load::connect(&socket, "n", 2).expect("connections");
        histories.0.grow(load.size());
        let end = load.verify(&mut histories.0, after).unwrap_or_else(|e| panic!("{context}: {e:?}"));
        assert_eq!(end, End::Done, "{context}: {}", daemon.words());
        if let Some(path) = &device {
            let right = direct::verify(path, &mut histories.1, after);
            right.unwrap_or_else(|e| panic!("{context}: the block device: {e:?}"));
        }
        let (over, mut loads) = (AtomicBool::new(false), plan.rng.fork());
        let mut directs = plan.rng.fork();
        let stop = || over.load(Ordering::Relaxed);
        let (n, d) = std::thread::scope(|s| {
            let n = s.spawn(|| load.run(&mut histories.0, &mut loads, &Mix::default(), stop));
            let d = s.spawn(|| {
                let path = device.as_ref();
                path.map(|p| direct::run(p, &mut histories.1, &mut directs, (3, 512), stop)).transpose()
            });
            for _ in 0..plan.rng.range(4..8) {
                let command = plan.command();
                plan.carry_out(&command);
                std::thread::sleep(Duration::from_millis(plan.rng.below(200)));
            }
            let alive = if kills {
                let mut last = plan.begin();
                daemon.kill().unwrap_or_else(|e| panic!("{context}: {e:?}"));
                over.store(true, Ordering::Relaxed);
                let _ = last.wait();
                None
            } else {
                over.store(true, Ordering::Relaxed);
                Some(daemon)
            };
            let joined = (n.join().expect("the load"), d.join().expect("the load"));
            if let Some(daemon) = alive {
                daemon.stop().unwrap_or_else(|e| panic!("{context}: {e:?}"));
            }
            joined
        });
        let n = n.unwrap_or_else(|e| panic!("{context}: {e:?}"));
        let d = d.unwrap_or_else(|e| panic!("{context}: the block device: {e:?}"));
        if kills {
            histories.0.crashed(Crash::Killed);
            histories.1.crashed(Crash::Killed);
        } else {
            assert_eq!(n, End::Done, "{context}: a request failed");
            assert_eq!(d.map_or(0, |d| d.failed), 0, "{context}: a request of the block device failed");
        }
    }
    println!("carried out: {:?}", plan.done);
    let daemon = plan.site.daemon();
    let mut load = Load::connect(&plan.site.path("n.nbd"), "n", 1).expect("a connection");
    histories.0.grow(load.size());
    assert_eq!(load.verify(&mut histories.0, Some(Crash::Killed)).expect("right data"), End::Done);
    drop(load);
    if let Some(path) = &device {
        direct::verify(path, &mut histories.1, Some(Crash::Killed)).expect("right data");
    }
    daemon.stop().expect("a clean stop");
}
