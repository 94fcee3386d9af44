//! A drill on a pair that runs: something fails under a client that checks what it reads, and all is given back.

mod ready;

use super::client_process::Client;
use super::ledger::Counts;
use super::map::unclean;
use super::op::{self, Report};
use crate::table::Table;
use anyhow::{Context, Result, bail, ensure};
use loligo_agent::client::AgentClient;
use loligo_agent::config::PairConfig;
use loligo_agent::osd::Osd;
use loligo_agent::status::Status;
use loligo_ceph::monitors::Monitors;
use loligo_client::api::status::Status as VolumeStatus;
use loligo_client::client::{DaemonClient, Until};
use loligo_lab::fail::now_ms;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use loligo_pair::machine::{Order, RoleName};
use loligo_pair::plan::Side;
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

pub use ready::NotReady;

/// The load runs so long before and after everything.
const AROUND: Duration = Duration::from_secs(4);
/// Between a takeover and its giveback.
const HELD: Duration = Duration::from_secs(3);
/// The time that a part of the drill may take.
const PART: Duration = Duration::from_secs(120);
/// The time that one command to the cluster may take.
const COMMAND: Duration = Duration::from_secs(60);
/// Between two orders to give back.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(25);
/// The size of the client's image.
const SIZE: &str = "256M";

/// The thing that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The partner's units are taken over by order, and given back
    Takeover,
    /// The process of an OSD of this controller is killed
    Osd,
    /// A volume of this controller is ended at once
    Volume,
}

/// The drill that is wanted
#[derive(Debug, Clone, clap::Args)]
pub struct DrillOptions {
    /// The thing that fails
    #[arg(long, value_enum, default_value = "takeover")]
    pub kind: Kind,
    /// The pool in which the client's image is made; the image is removed afterwards
    #[arg(long)]
    pub pool: String,
    /// Operations a second
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rate: u32,
}

/// The pair, and the means.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The pair.
    pub config: &'a PairConfig,
    /// This controller.
    pub side: Side,
    /// Its agent.
    pub agent: &'a AgentClient,
    /// The `loligo` program.
    pub program: PathBuf,
    /// Stops the drill; what was taken over is given back.
    pub stop: &'a Interrupt,
}

/// Seconds of the longest operations.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Longest {
    /// The longest read.
    pub read: f64,
    /// The longest write.
    pub write: f64,
}

/// The findings of a drill.
#[derive(Debug, Clone, Serialize)]
pub struct DrillOutcome {
    /// What failed.
    pub kind: Kind,
    /// The unit that failed, or the controller whose units were taken over.
    pub target: String,
    /// Seconds until everything ran again.
    pub over: f64,
    /// The longest operations of that time.
    pub fault: Longest,
    /// Seconds from the order to give back until everything ran at home.
    pub given_back: Option<f64>,
    /// The longest operations of that time.
    pub giveback: Option<Longest>,
    /// Operations of the client, and what was wrong with them.
    pub counts: Counts,
    /// Words of its first errors.
    pub client_errors: Vec<String>,
}

impl DrillOutcome {
    /// True if something was lost, stale, wrong or refused.
    pub fn has_failed(&self) -> bool {
        let c = &self.counts;
        c.errors + c.stuck + c.stale + c.wrong + c.lost > 0
    }

    /// For people.
    pub fn table(&self) -> Table {
        let head =
            ["part", "seconds", "longest read", "longest write", "errors", "lost", "stale", "read back"];
        let mut table = Table::new(head);
        let c = &self.counts;
        let of = |part: &str, seconds: f64, longest: Longest, counts: [u64; 4]| {
            let mut cells = vec![part.to_owned()];
            cells.extend([seconds, longest.read, longest.write].map(|s| format!("{s:.2}")));
            cells.extend(counts.map(|n| n.to_string()));
            cells
        };
        let counts = [c.errors + c.stuck, c.lost, c.stale + c.wrong, c.read_back];
        table.row(of(&format!("{} fails", self.target), self.over, self.fault, counts));
        if let Some((seconds, longest)) = self.given_back.zip(self.giveback) {
            let mut cells = of("given back", seconds, longest, [0; 4]);
            cells[4..].fill("-".to_owned());
            table.row(cells);
        }
        table
    }
}

/// The times of a drill, milliseconds since 1970.
struct Times {
    target: String,
    fault: u64,
    over: u64,
    /// The order to give back, and its end.
    giveback: Option<[u64; 2]>,
}

/// Drills. Units that were taken over are given back in any case.
///
/// # Errors
/// If the pair is not ready for it ([`NotReady`]), a part of it does not end in time, or after an interrupt.
pub fn drill(stage: &Stage<'_>, options: &DrillOptions) -> Result<DrillOutcome> {
    let ceph = &stage.config.ceph;
    let monitors = Monitors::connect(&ceph.conf, &ceph.name, ceph.keyring.as_deref())?;
    ready::check(&stage.agent.status()?, &monitors)?;
    let image = Image::make(stage, &options.pool)?;
    let seed = now_ms();
    let mut client = image.verify(options.rate, seed)?;
    stage.stop.sleep(AROUND)?;
    let times = match options.kind {
        Kind::Takeover => stage.takeover()?,
        Kind::Osd => stage.kill_osd(&monitors)?,
        Kind::Volume => stage.end_volume()?,
    };
    stage.stop.sleep(AROUND)?;
    let end = now_ms();
    let report = client.finish()?;
    client.close(stage.stop)?;
    drop(image);
    Ok(summary(options.kind, times, &report, end))
}

fn summary(kind: Kind, times: Times, report: &Report, end: u64) -> DrillOutcome {
    let longest = |from: u64, to: u64| {
        let of = |write| op::worst(report, 0, write, [from as f64, to as f64]) / 1e3;
        Longest { read: of(false), write: of(true) }
    };
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let turn = times.giveback.map_or(end, |[order, _]| order);
    DrillOutcome {
        kind,
        over: seconds(times.fault, times.over),
        fault: longest(times.fault, turn),
        given_back: times.giveback.map(|[order, over]| seconds(order, over)),
        giveback: times.giveback.map(|[order, _]| longest(order, end)),
        counts: report.counts.first().copied().unwrap_or_default(),
        client_errors: report.errors.clone(),
        target: times.target,
    }
}

impl Stage<'_> {
    /// Waits until `is` says so.
    fn until(&self, what: &str, stop: &Interrupt, mut is: impl FnMut() -> Result<bool>) -> Result<u64> {
        let begun = Instant::now();
        while !is()? {
            stop.check()?;
            ensure!(
                begun.elapsed() < PART,
                "after {} s {what} is still awaited: see 'loligo pair status'",
                PART.as_secs()
            );
            std::thread::sleep(LOOK);
        }
        Ok(now_ms())
    }

    fn takeover(&self) -> Result<Times> {
        let other = self.side.other();
        let fault = now_ms();
        self.agent.order(Order::Takeover)?;
        let taken = || {
            let over = self.until("the takeover", self.stop, || {
                Ok(self.agent.status()?.is_settled_as(RoleName::Dual))
            })?;
            self.stop.sleep(HELD)?;
            Ok::<_, anyhow::Error>(over)
        };
        let taken = taken();
        // Also after an interrupt: the partner's units are not left here.
        let given_back = self.give_back().context(
            "the partner's units may be on this controller still: 'loligo pair giveback' gives them back",
        );
        let (over, giveback) = (taken?, given_back?);
        let target = format!("controller {other}");
        Ok(Times { target, fault, over, giveback: Some(giveback) })
    }

    /// Gives back what was taken over: when that was ordered, and when all ran at home. An interrupt is heard afterwards.
    fn give_back(&self) -> Result<[u64; 2]> {
        let on = Interrupt::default();
        self.until("a partner that units can be given back to", &on, || {
            Ok(self.agent.status()?.may_give_back)
        })?;
        let (order, mut last) = (now_ms(), None::<Instant>);
        let at_home = || {
            let status = self.agent.status()?;
            if status.may_give_back && last.is_none_or(|at| at.elapsed() > AGAIN) {
                last = Some(Instant::now());
                // A partner that has become silent since the look has it refused.
                self.agent.try_order(Order::Giveback)?;
            }
            Ok(status.is_settled_as(RoleName::Normal) && status.partner_runs_all())
        };
        let over = self.until("the giveback", &on, at_home)?;
        Ok([order, over])
    }

    fn kill_osd(&self, monitors: &Monitors) -> Result<Times> {
        let own = self.config.osd.iter().find(|osd| osd.home == self.side);
        let own = own.context("this controller has no OSD: choose another --kind")?;
        let find = || Osd::new(self.config, own, self.side).ok()?.process();
        let pid =
            find().with_context(|| format!("the process of osd.{} is not found on this host", own.id))?;
        let fault = now_ms();
        kill_process(pid, Signal::KILL).with_context(|| format!("osd.{} cannot be killed", own.id))?;
        let name = format!("osd.{}", own.id);
        let is_back = || {
            let runs = find().is_some_and(|new| new != pid);
            Ok(runs && self.runs(&self.agent.status()?, &name))
        };
        let over = self.until(&format!("{name} to run again"), self.stop, is_back)?;
        self.until("a clean cluster", self.stop, || Ok(unclean(monitors).is_none()))?;
        Ok(Times { target: name, fault, over, giveback: None })
    }

    fn end_volume(&self) -> Result<Times> {
        let own = self.config.volume.iter().find(|volume| volume.home == self.side);
        let name = &own.context("this controller has no volume: choose another --kind")?.name;
        let daemon = &self.config.controller[&self.side].daemon;
        let daemon = DaemonClient::at(daemon)?.waiting(Until::Begun, None);
        let fault = now_ms();
        daemon.end(name)?;
        let unit = format!("volume {name}");
        let is_back = || {
            let all = daemon.volumes()?;
            let serves =
                all.iter().any(|listed| listed.name == *name && listed.status == VolumeStatus::Serving);
            Ok(serves && self.runs(&self.agent.status()?, &unit))
        };
        let over = self.until(&format!("{unit} to be served again"), self.stop, is_back)?;
        Ok(Times { target: unit, fault, over, giveback: None })
    }

    fn runs(&self, status: &Status, name: &str) -> bool {
        status.units.iter().any(|unit| unit.name == name && unit.state == "running")
    }
}

/// The client's image; it is removed when dropped.
struct Image<'a> {
    stage: &'a Stage<'a>,
    name: String,
}

impl<'a> Image<'a> {
    fn make(stage: &'a Stage<'a>, pool: &str) -> Result<Image<'a>> {
        let image = Image { stage, name: format!("{pool}/loligo-drill-{}", now_ms()) };
        image.rbd(&["create", "--size", SIZE, &image.name]).context("the client's image cannot be made")?;
        Ok(image)
    }

    fn rbd(&self, args: &[&str]) -> Result<String> {
        let ceph = &self.stage.config.ceph;
        let mut command = Command::new("rbd");
        command.arg("--conf").arg(&ceph.conf).args(["--name", &ceph.name]);
        if let Some(keyring) = &ceph.keyring {
            command.arg("--keyring").arg(keyring);
        }
        command.args(args);
        process::run(&mut command, COMMAND, &Interrupt::default())
    }

    /// Starts the client, and waits until its image is written and its load runs.
    fn verify(&self, rate: u32, seed: u64) -> Result<Client> {
        let ceph = &self.stage.config.ceph;
        let id = ceph.name.trim_start_matches("client.");
        let mut image = format!("{}?conf={}&id={id}", self.name, ceph.conf.display());
        if let Some(keyring) = &ceph.keyring {
            image.push_str(&format!("&keyring={}", keyring.display()));
        }
        let mut command = Command::new(&self.stage.program);
        command.args(["bench", "pair-client", "--image", &image]);
        command.args(["--rate", &rate.to_string(), "--seed", &seed.to_string()]);
        let log = std::env::temp_dir().join(format!("loligo-drill-{seed}.log"));
        let client = Client::start(command, &log);
        match client {
            Ok(client) => {
                // It says nothing more than an error that it ends with.
                let _ = std::fs::remove_file(&log);
                Ok(client)
            }
            Err(why) => bail!("{why:#} ({})", log.display()),
        }
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        if let Err(why) = self.rbd(&["rm", "--no-progress", &self.name]) {
            loligo_log::say!("warning: the image {} is left, remove it with 'rbd rm': {why:#}", self.name);
        }
    }
}
