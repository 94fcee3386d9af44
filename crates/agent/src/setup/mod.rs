//! Makes a pair of two controllers, and undoes that: places and options of the cluster, then the side's keys.
//!
//! Each side registers by its own paths. The first of them probes nothing; the second probes that the array really refuses a write.

mod cluster;
mod done;

use crate::config::PairConfig;
use crate::luns::Luns;
use crate::osd::Osd;
use crate::runner::Runner;
use anyhow::{Context, Result, bail, ensure};
use cluster::Cluster;
pub use done::Done;
use loligo_pair::fence::Fence;
use loligo_pair::machine::{Answer, Failure};
use loligo_pair::plan::{LunId, QUORUM, Side};
use loligo_pair::reservation::Key;
use std::sync::Arc;

/// Registers `me` on all LUNs, reserves its own, and sets the cluster up but for the options in `leave`. Nothing is changed if `dry`.
///
/// # Errors
/// If the cluster refuses, `leave` names an unknown option, or a LUN has no reservations, a stranger's key, or does not refuse a write
/// that it should.
pub fn register(config: &PairConfig, me: Side, leave: &[String], dry: bool) -> Result<Vec<Done>> {
    let config = Arc::new(config.clone());
    let cluster = Cluster::new(&config, me, leave, dry)?;
    let luns = Luns::new(config.clone(), me)?;
    let plan = config.plan(me)?;
    let mine = plan.mine();
    let all: Vec<(LunId, Option<Side>)> = std::iter::once((QUORUM, None))
        .chain(plan.luns().into_iter().map(|(lun, home)| (lun, Some(home))))
        .collect();
    let mut done = Vec::new();
    // All are looked at before one is changed.
    for (lun, home) in &all {
        done.extend(look(&config, &luns, me, (*lun, *home), dry)?);
    }
    for osd in &config.osd {
        Osd::new(&config, osd, me)?.check_luns()?;
    }
    done.extend(cluster.set_up()?);
    for (lun, home) in all {
        let mut fence = luns.open(lun)?;
        let name = fence.name();
        let shown = fence.read()?;
        let mut say = |what: &str| done.push(Done { lun: name.clone(), what: what.to_owned() });
        if !shown.keys.contains(&mine) {
            say("registered");
            if !dry {
                fence.register(Key::NONE, mine).with_context(|| format!("registering on {name}"))?;
            }
        }
        if home == Some(me) && shown.held.is_none_or(|(key, _)| key != mine) {
            say("reserved");
            if !dry && let Answer::Failed(why) = luns.hold(lun) {
                bail!("{name} cannot be reserved: {why}");
            }
        }
    }
    Ok(done)
}

/// Looks at a LUN, with the side that it is at home on. Nothing is changed by that: a probe writes what is there.
fn look(
    config: &PairConfig,
    luns: &Luns,
    me: Side,
    (lun, home): (LunId, Option<Side>),
    dry: bool,
) -> Result<Option<Done>> {
    let [mine, theirs] = [config.key(me)?, config.key(me.other())?];
    let mut fence = luns.open(lun)?;
    let name = fence.name();
    let shown = fence.read().with_context(|| {
        format!("{name} cannot be used by a pair: it takes a LUN whose array has SCSI-3 or NVMe reservations")
    })?;
    if let Some(stranger) = shown.keys.iter().find(|key| **key != mine && **key != theirs) {
        bail!(
            "{name} is registered with {:#x}, which is none of this pair's keys: find out who uses it, and take that registration \
             away there",
            stranger.0
        );
    }
    if shown.held.is_none_or(|(key, _)| key != theirs) {
        return Ok(None);
    }
    ensure!(home != Some(me), "{name} is held by the partner: it gives back by 'loligo pair giveback'");
    if shown.keys.contains(&mine) {
        return Ok(None);
    }
    ensure!(
        lun != QUORUM,
        "{name} is held by the partner, which has taken over: it gives back by 'loligo pair giveback'"
    );
    if dry {
        return Ok(None);
    }
    probe(config, me, lun)?;
    Ok(Some(Done { lun: name, what: "a write without a key was refused".to_owned() }))
}

/// A side that is not registered must be refused: its write of what is there already.
fn probe(config: &PairConfig, me: Side, lun: LunId) -> Result<()> {
    let path = config.path(me, lun);
    match crate::luns::rewrite_first_block(path) {
        Err(Failure::NotMine(_)) => Ok(()),
        Ok(()) => bail!(
            "{} takes a write of a controller that is not registered: its reservations do not protect, and no takeover \
             would be safe",
            path.display()
        ),
        Err(why) => bail!("{} cannot be probed: {why}", path.display()),
    }
}

/// Takes `me` away from all LUNs, and sets the cluster's options back.
///
/// # Errors
/// If an agent or an OSD runs on this side, a path fails, or the cluster refuses.
pub fn unregister(config: &PairConfig, me: Side, dry: bool) -> Result<Vec<Done>> {
    let config = Arc::new(config.clone());
    // Without its key an OSD would lose its array.
    let _alone =
        crate::run::lock(&config.controller[&me].run).context("registrations stay while the agent runs")?;
    for unit in config.units() {
        let runner = Runner::new(&config, unit, me)?;
        ensure!(!runner.is_here(), "{} runs here: stop it first", runner.name());
    }
    let luns = Luns::new(config.clone(), me)?;
    let plan = config.plan(me)?;
    let mut done = Vec::new();
    for lun in std::iter::once(QUORUM).chain(plan.luns().into_iter().map(|(lun, _)| lun)) {
        let mut fence = luns.open(lun)?;
        if fence.read()?.keys.contains(&plan.mine()) {
            done.push(Done { lun: fence.name(), what: "registration taken away".to_owned() });
            if !dry && let Answer::Failed(why) = luns.leave(lun) {
                bail!("{}: {why}", fence.name());
            }
        }
    }
    done.extend(Cluster::new(&config, me, &[], dry)?.set_back()?);
    Ok(done)
}
