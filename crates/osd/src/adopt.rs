//! Putting a cache under an OSD that exists, without making it anew.
//!
//! Everything is checked while the OSD runs. It is down from when it is stopped until it runs on the volume;
//! cut off there, the same command goes on once the volume is made, and before that the OSD is as it was. If
//! a host has forgotten the volume of an adopted OSD, the label on its device and the cache are enough to
//! make it again.

mod plan;

pub use plan::Adopt;

use crate::cluster::Cluster;
use crate::daemon::{self, has_open, holder};
use crate::devices::free;
use crate::place::{self, Known};
use crate::prepare::is_serving;
use crate::release::{self, forget, may_stop, part};
use crate::undo::Deed;
use crate::{activate, before_anything, folder};
use anyhow::{Result, ensure};
use loligo_client::api::daemon::{Create, Stop};
use loligo_client::api::definition::Leave;
use loligo_client::api::status::Status;
use loligo_client::client::DaemonClient;
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;
use plan::Plan;

/// The phases of an adoption, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The OSD ends.
    StopOsd,
    /// Nobody else has its device: no mount, no device on top, no other program.
    CheckDevice,
    /// There is a folder, and a mount point in it.
    MakeFolder,
    /// The daemon serves the volume: the label is on the device, and the cache is this OSD's.
    MakeVolume,
    /// The OSD runs on the volume, and is up.
    StartOsd,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Phase::StopOsd, Phase::CheckDevice, Phase::MakeFolder, Phase::MakeVolume, Phase::StartOsd];
}

/// Puts a cache under an OSD, and returns when it is up again.
///
/// # Errors
/// If something stands in the way; the error gives the mend. The OSD then runs as before, or the error says
/// what is to be done.
pub fn adopt(wanted: &Adopt, stop: &Interrupt) -> Result<()> {
    let id = wanted.id;
    let cluster = Cluster::new(&wanted.behind.cluster, stop);
    let daemon = DaemonClient::new()?;
    daemon.about()?;
    cluster.answers()?;
    if let Some(known) = place::all(&daemon)?.into_iter().find(|k| k.place.id == id) {
        return go_on(&daemon, &known, stop);
    }
    let plan = before_anything(plan::check(wanted, &daemon, cluster))?;
    if plan.runs {
        before_anything(may_stop(&plan.cluster, id))?;
    }
    stop.check()?;
    Deed::all(Phase::ALL.map(|phase| plan.deed(phase, &daemon)), stop)
}

/// It has a volume already: its adoption may have been cut off.
fn go_on(daemon: &DaemonClient, known: &Known, stop: &Interrupt) -> Result<()> {
    let id = known.place.id;
    ensure!(
        known.place.adopted.is_some(),
        "osd.{id} was made by 'loligo osd prepare', on volume {}: it has a cache already",
        known.volume.name
    );
    let runs = known.volume.status == Status::Serving
        && holder(&known.place.dir).is_some_and(|pid| known.target().is_ok_and(|t| has_open(pid, &t)));
    ensure!(!runs, "osd.{id} is adopted already, and runs on volume {}", known.volume.name);
    say!("osd.{id}: its adoption was begun: going on");
    activate::activate(daemon, known, stop)
}

impl Plan<'_> {
    /// The deed of `phase`, and how it is taken back.
    fn deed<'d>(&'d self, phase: Phase, daemon: &'d DaemonClient) -> Deed<'d> {
        let (id, name) = (self.place.id, self.place.volume());
        match phase {
            // It waits for its volume, or has no device to run on.
            Phase::StopOsd if self.is_lost => Deed::new(|| Ok(())),
            Phase::StopOsd if self.runs => Deed::new(|| self.stop_osd())
                .undone_by(format!("systemctl start {}", daemon::unit(id)), || self.start_as_before()),
            Phase::StopOsd => Deed::new(|| self.stop_osd()),
            Phase::CheckDevice => Deed::new(|| free("the OSD's device", &self.core).map(drop)),
            Phase::MakeFolder => Deed::new(|| self.make_folder()),
            Phase::MakeVolume if self.is_lost => Deed::new(|| self.make_volume(daemon))
                .undone_by(format!("loligo volume stop {name}; loligo volume delete --force {name}"), || {
                    self.forget_volume()
                }),
            Phase::MakeVolume => Deed::new(|| self.make_volume(daemon))
                .undone_by(format!("loligo osd release {id}"), || self.release()),
            Phase::StartOsd => Deed::new(|| self.start_osd(daemon)),
        }
    }

    fn stop_osd(&self) -> Result<()> {
        let id = self.place.id;
        say!("osd.{id}: stopping");
        daemon::stop(id, &self.place.dir, self.cluster.interrupt())
    }

    /// Undoes `stop_osd`.
    fn start_as_before(&self) -> Result<()> {
        release::start(&self.place, &Interrupt::default(), self.before)
    }

    fn make_folder(&self) -> Result<()> {
        say!("osd.{}: making volume {}", self.place.id, self.place.volume());
        folder::make(&self.place.dir)?;
        self.wanted.behind.make_mountpoint(&self.place)
    }

    fn make_volume(&self, daemon: &DaemonClient) -> Result<()> {
        let create = self.cache_exists && !self.cache_begun;
        let allow = Leave { create, force: create && self.wanted.behind.force, ..Leave::default() };
        let wanted = Create { name: self.place.volume(), definition: self.definition()?, allow };
        is_serving(&wanted.name, &daemon.create(&wanted)?)
    }

    /// Undoes `make_volume` of an OSD that had no cache before: what was done ends with its own first block in its place.
    fn release(&self) -> Result<()> {
        let (id, dir) = (self.place.id, &self.place.dir);
        let daemon = DaemonClient::new()?;
        let Ok(known) = place::one(&daemon, id) else { return Ok(()) };
        folder::begin_release(dir)?;
        daemon::stop(id, dir, &Interrupt::default())?;
        part(&daemon, &known, false, &Interrupt::default())?;
        forget(&daemon, &known, !self.cache_exists)
    }

    /// Undoes `make_volume` of an OSD that was adopted already: device and cache stay married, with all that the cache holds, and the host
    /// forgets them again.
    fn forget_volume(&self) -> Result<()> {
        let (id, dir, name) = (self.place.id, &self.place.dir, self.place.volume());
        let daemon = DaemonClient::new()?;
        if place::one(&daemon, id).is_err() {
            return Ok(());
        }
        folder::begin_release(dir)?;
        daemon::stop(id, dir, &Interrupt::default())?;
        daemon.stop(&name, &Stop { flush: false, force: false })?;
        daemon.delete(&name, true)?;
        folder::end_release(dir);
        Ok(())
    }

    fn start_osd(&self, daemon: &DaemonClient) -> Result<()> {
        let known = place::one(daemon, self.place.id)?;
        // One that was not stopped here may have gone on.
        let before = self.before.filter(|_| !self.is_lost);
        activate::bring_up(daemon, &known, before, self.cluster.interrupt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behind::{Behind, Via};
    use crate::cluster::Access;
    use std::cell::RefCell;
    use std::path::Path;

    /// Nothing is there: neither the cluster nor the daemon.
    fn wanted() -> Adopt {
        let behind = Behind {
            cache: "/x/cache".into(),
            cache_size: None,
            mode: "wb".to_owned(),
            profile: None,
            params: Default::default(),
            cluster: Access { conf: "/x".into(), name: "client.admin".to_owned(), keyring: None },
            dir: Some("/x".into()),
            user: None,
            via: Via::Block,
            force: false,
            program: "/x/loligo".into(),
        };
        Adopt { id: 4, data: None, behind }
    }

    fn plan<'a>(wanted: &'a Adopt, stop: &Interrupt, is_lost: bool) -> Plan<'a> {
        Plan {
            wanted,
            place: plan::tests::place(),
            core: Path::new("/x/core").to_owned(),
            cache_exists: true,
            cache_begun: is_lost,
            is_lost,
            runs: !is_lost,
            before: None,
            cluster: Cluster::new(&wanted.behind.cluster, stop),
        }
    }

    /// The phases that were begun until `at` was reached, and those that were taken back: `at` fails, or there is a Ctrl-C in it.
    fn cut_off(at: Phase, fails: bool, is_lost: bool) -> (Vec<Phase>, Vec<Phase>) {
        let (wanted, stop) = (wanted(), Interrupt::default());
        let (plan, daemon) = (plan(&wanted, &stop, is_lost), DaemonClient::new().expect("asked nothing"));
        let (begun, undone) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let deeds = Phase::ALL.map(|phase| {
            let (begun, undone, stop) = (&begun, &undone, &stop);
            plan.deed(phase, &daemon).spied(move |is_undo| {
                let done = if is_undo { undone } else { begun };
                done.borrow_mut().push(phase);
                match (is_undo, phase == at) {
                    (false, true) if fails => anyhow::bail!("it is to fail"),
                    (false, true) => stop.set(),
                    _ => {}
                }
                Ok(())
            })
        });
        let done = Deed::all(deeds, &stop);
        assert_eq!(done.is_ok(), !fails && at == Phase::StartOsd, "{at:?}: {done:?}");
        (begun.into_inner(), undone.into_inner())
    }

    #[test]
    fn a_phase_cut_off_has_those_begun_undone_in_reverse() {
        for (is_lost, has_undo) in
            [(false, &[Phase::MakeVolume, Phase::StopOsd][..]), (true, &[Phase::MakeVolume])]
        {
            for (n, at) in Phase::ALL.into_iter().enumerate() {
                let first = &Phase::ALL[..=n];
                let expected: Vec<Phase> = has_undo.iter().copied().filter(|p| first.contains(p)).collect();
                let (begun, undone) = cut_off(at, true, is_lost);
                assert_eq!((&begun[..], &undone), (first, &expected), "{at:?} failed");
                let (begun, undone) = cut_off(at, false, is_lost);
                let kept = at == Phase::StartOsd;
                let expected = if kept { Vec::new() } else { expected };
                assert_eq!((&begun[..], &undone), (first, &expected), "Ctrl-C in {at:?}");
            }
        }
    }

    #[test]
    fn one_that_did_not_run_is_not_started_when_it_is_undone() {
        let (wanted, stop) = (wanted(), Interrupt::default());
        let (plan, daemon) = (plan(&wanted, &stop, false), DaemonClient::new().expect("asked nothing"));
        let plan = Plan { runs: false, ..plan };
        let undone = RefCell::new(0);
        let spied = plan.deed(Phase::StopOsd, &daemon).spied(|is_undo| {
            *undone.borrow_mut() += u32::from(is_undo);
            anyhow::bail!("it is to fail")
        });
        assert!(Deed::all([spied], &stop).is_err());
        assert_eq!(undone.into_inner(), 0);
    }
}
