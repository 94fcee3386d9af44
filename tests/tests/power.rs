//! Claims about power loss: the real service, its cache and its core on a file system that loses what was not flushed.
//!
//! `LOLIGO_SEED=n` repeats the plan of a run (when the power goes, what survives, what clients ask), `LOLIGO_CUTS=n` sets the
//! number of cuts.

#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, ensure};
use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::lossy::Mounted;
use loligo_tests::server::{Server, Volume, program};
use loligo_tests::skip;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CORE: u64 = 64 << 20;
/// Cuts before everything is made anew, with another geometry.
const CUTS_PER_VOLUME: u64 = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is no number")))
}

fn seed() -> u64 {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
    number("LOLIGO_SEED").unwrap_or_else(clock)
}

/// A volume on a lossy file system, through its lives.
struct Rig {
    fs: Mounted,
    volume: Volume,
    history: History,
    rng: Rng,
    /// The end of the last life, while not everything has been read since.
    after: Option<Crash>,
    answered: u64,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(seed: u64) -> Result<Rig> {
        let mut rng = Rng::new(seed);
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let at = dir.path().join("fs");
        std::fs::create_dir(&at)?;
        let fs = Mounted::new(&at, rng.draw()).context("mounting the lossy file system")?;
        let core = fs.make("core", CORE);
        let volume = Volume {
            dir: dir.path().to_owned(),
            cache: at.join("cache"),
            cache_size: rng.range(6..17) << 22,
            core,
            mode: "wb",
            more: vec![
                "--line-size".into(),
                rng.pick(&["4k", "8k", "16k", "64k"]).into(),
                "--shards".into(),
                rng.pick(&["1", "1", "2"]).into(),
            ],
        };
        Ok(Rig { fs, volume, history: History::new(CORE), rng, after: None, answered: 0, _dir: dir })
    }

    fn enter(&mut self, server: &Server) -> Result<(Load, End)> {
        let mut load = Load::connect(&self.volume.socket(), Volume::NAME, 2)?;
        ensure!(load.size() == CORE, "the volume has {} bytes", load.size());
        let end = load.verify(&mut self.history, self.after).with_context(|| server.words())?;
        if end == End::Done {
            self.after = None;
        }
        Ok((load, end))
    }

    /// The power is off: the service dies with it, and both come back.
    fn outage(&mut self, server: Server) -> Result<()> {
        self.fs.power().power_cut(self.rng.draw());
        // It may have given up by itself when its devices failed; that is its right.
        let words = server.words();
        server.kill().or_else(|e| if words.contains("panicked") { Err(e) } else { Ok(()) })?;
        self.history.crashed(Crash::PowerLoss);
        self.after = Some(Crash::PowerLoss);
        self.fs.power().power_on();
        Ok(())
    }

    /// One life, from start to power cut.
    fn life(&mut self) -> Result<()> {
        self.volume.mode = self.rng.pick(&["wb", "wb", "wb", "wt", "wt", "wo", "wa", "wi", "pt"]);
        let soon = self.rng.chance(1, 2);
        let when = if soon { self.rng.skewed(1..2_000) } else { self.rng.range(2_000..12_000) };
        let survives = self.rng.draw();
        let during_start = self.rng.chance(1, 5);
        if during_start {
            let n = self.rng.skewed(1..60);
            self.fs.power().power_cut_after(n, survives);
        }
        let mut server = self.volume.launch()?;
        let started = server.ready();
        if during_start && !self.fs.power().is_on() {
            return self.outage(server);
        }
        started?;
        let (mut load, end) = match self.enter(&server) {
            Err(_) if !self.fs.power().is_on() => return self.outage(server),
            entered => entered?,
        };
        if end == End::Done && self.rng.chance(1, 6) {
            return self.cut_while_stopping(server, load);
        }
        if end == End::Done {
            self.fs.power().power_cut_after(when, survives);
            let _beside = self.disturbance()?;
            let mix = Mix {
                flush: self.rng.pick(&[0, 1, 3, 10]),
                fua: self.rng.pick(&[0, 5, 30]),
                ..Mix::default()
            };
            let late = Instant::now() + Duration::from_millis(self.rng.range(300..2_500));
            let fs = self.fs.power().clone();
            let mut rng = Rng::new(self.rng.draw());
            let end = load.run(&mut self.history, &mut rng, &mix, || {
                if Instant::now() > late {
                    fs.power_cut(survives);
                }
                false
            });
            let end = end.with_context(|| server.words())?;
            ensure!(
                end == End::Lost && !self.fs.power().is_on(),
                "requests failed under power: {}",
                server.words()
            );
        }
        self.answered += load.answered;
        self.outage(server)
    }

    /// Now and then something is asked of the service under load: to destage everything, or to change its mode.
    fn disturbance(&mut self) -> Result<Option<Beside>> {
        let modes = ["wb", "wt", "wo", "wa", "wi", "pt"];
        let (a, b) = (self.rng.pick(&modes), self.rng.pick(&modes));
        let script = match self.rng.below(4) {
            0 => "\"$0\" flush vol".to_owned(),
            1 => format!("\"$0\" mode vol {a}; sleep 0.1; \"$0\" mode vol {b}"),
            2 => format!("\"$0\" mode vol {a} --flush"),
            _ => return Ok(None),
        };
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(program()).env("LOLIGO_RUNTIME_DIR", &self.volume.dir);
        // Most of these are cut off by the power and complain.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Some(Beside(command.spawn()?)))
    }

    /// The power goes while the service flushes before it ends.
    fn cut_while_stopping(&mut self, server: Server, mut load: Load) -> Result<()> {
        let until = Instant::now() + Duration::from_millis(200);
        let mut rng = Rng::new(self.rng.draw());
        let end = load.run(&mut self.history, &mut rng, &Mix::default(), || Instant::now() > until)?;
        self.answered += load.answered;
        // A countdown that the start did not use up may end here.
        ensure!(end == End::Done || !self.fs.power().is_on(), "requests failed: {}", server.words());
        self.fs.power().power_cut_after(self.rng.skewed(1..40), self.rng.draw());
        server.terminate();
        std::thread::sleep(Duration::from_millis(self.rng.range(1..60)));
        self.outage(server)
    }

    /// A last life that ends as asked, after which even unflushed power loss takes nothing.
    fn orderly_end(&mut self) -> Result<()> {
        self.volume.mode = "wb";
        let server = self.volume.serve()?;
        let (mut load, end) = self.enter(&server)?;
        ensure!(end == End::Done, "requests failed: {}", server.words());
        let until = Instant::now() + Duration::from_millis(300);
        let mut rng = Rng::new(self.rng.draw());
        let end = load.run(&mut self.history, &mut rng, &Mix::default(), || Instant::now() > until)?;
        ensure!(end == End::Done, "requests failed: {}", server.words());
        server.stop()?;
        let everything = self.history.flush_issued();
        self.history.flush_done(everything);
        self.fs.power().power_cut(self.rng.draw());
        self.history.crashed(Crash::PowerLoss);
        self.fs.power().power_on();
        let cache = self.volume.cache.to_string_lossy().into_owned();
        let found = self.volume.loligo(&["inspect", &cache])?;
        ensure!(
            found.status.success(),
            "inspect after a clean stop: {}",
            String::from_utf8_lossy(&found.stdout)
        );
        let server = self.volume.serve()?;
        self.after = Some(Crash::PowerLoss);
        let (_, end) = self.enter(&server)?;
        ensure!(end == End::Done, "requests failed: {}", server.words());
        server.stop().map(drop)
    }
}

/// A command beside the load, ended with all it started.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        // SAFETY: the child leads a group of its own and is not yet waited for, so the number is still its own.
        unsafe { libc::kill(-(self.0.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

#[test]
fn a_power_cut_of_cache_and_core_keeps_every_flushed_write() {
    if let Err(why) = skip::fuse() {
        return skip::skip("power loss", &why);
    }
    let seed = seed();
    let cuts = number("LOLIGO_CUTS").unwrap_or(20);
    println!("LOLIGO_SEED={seed} LOLIGO_CUTS={cuts}");
    let mut seeds = Rng::new(seed);
    let (mut done, mut answered, mut lost) = (0, 0, 0);
    while done < cuts {
        let mut rig = Rig::new(seeds.draw()).expect("a volume on a lossy file system");
        for _ in 0..CUTS_PER_VOLUME.min(cuts - done) {
            done += 1;
            if let Err(e) = rig.life() {
                panic!("LOLIGO_SEED={seed}, cut {done}, {:?}: {e:?}", rig.volume);
            }
        }
        if let Err(e) = rig.orderly_end() {
            panic!("LOLIGO_SEED={seed}, clean stop after cut {done}, {:?}: {e:?}", rig.volume);
        }
        answered += rig.answered;
        lost += rig.history.stepped_back;
    }
    println!(
        "{done} cuts, {answered} requests answered before them, {lost} sectors seen without their newest write"
    );
    assert!(cuts < 5 || lost > 0, "the power cuts took nothing: they show nothing");
}

#[test]
fn a_disk_that_lies_about_its_flushes_is_found_out() {
    if let Err(why) = skip::fuse() {
        return skip::skip("lying disk", &why);
    }
    for seed in 1..=10 {
        let mut rig = Rig::new(seed).expect("a volume on a lossy file system");
        rig.fs.power().lie_about_flushes();
        if (0..CUTS_PER_VOLUME).any(|_| rig.life().is_err()) {
            return;
        }
    }
    panic!("flushes did nothing, and nothing was missed");
}
