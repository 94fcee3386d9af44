//! `loligo tune rollback`: a run is taken back.

use super::apply::{Terminal, With, changing, hosts, journal, said};
use super::from::{From, gather_from};
use super::given::Given;
use super::history::{covers, is_over_elsewhere};
use super::text;
use crate::outcome::{Json, refuse};
use anyhow::{Context, Result, anyhow, bail};
use loligo_bench::compare;
use loligo_ceph::commands::CommandClient;
use loligo_client::outcome::Ended;
use loligo_lab::interrupt::Interrupt;
use loligo_log::{out, say};
use loligo_tune::apply::shared::{self, State};
use loligo_tune::apply::{Entry, Hands, Journal, Lock, Rollback, Run, now};
use loligo_tune::facts::Facts;
use loligo_tune::rules::Rules;
use serde_json::json;
use std::collections::BTreeSet;

/// Take a run back: each value to what was there before
///
/// Steps are taken back in the reverse order, and each is looked at afterwards. A value that somebody changed since is left, unless
/// --force is given. A place that is gone or refuses is left, the others are taken back, and the run stays open until --force closes it. OSDs that
/// the run restarted are restarted again. It may be called again after it was cut anywhere, and on another host than the run: the
/// cluster has a copy of what was there, and RUN must be named then.
#[derive(Debug, clap::Args)]
pub(super) struct RollbackArgs {
    /// The run [default: the last that is not taken back]
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    from: From,
    /// Put back values that somebody changed since, too, and close the run where places are gone
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    with: With,
    #[command(flatten)]
    json: Json,
}

impl RollbackArgs {
    /// The options that commands of messages need as well.
    pub(super) fn given(&self) -> Given {
        self.with.lead(Given::new(&self.from))
    }
}

pub(super) fn rollback(a: &RollbackArgs) -> Result<()> {
    let client = changing(&a.from)?;
    let lock = Lock::take(&client).map_err(Ended::refused)?;
    let (facts, remotes) = gather_from(&a.from, Some(&client), &Rules::new()?)?;
    let Some(fsid) = facts.cluster.fsid.clone() else {
        return refuse("the cluster does not say its id: 'ceph status' says more");
    };
    let states = shared::states(&client).map_err(said)?;
    let is_meant = |state: &&State| match &a.run {
        Some(run) => state.run == *run,
        None => state.state != "rolled-back",
    };
    let Some(state) = states.iter().rev().find(is_meant) else {
        return refuse(match &a.run {
            Some(run) => format!("the cluster knows no run {run}: 'loligo tune history' lists them"),
            None => "there is no run to take back: 'loligo tune history' lists them".to_owned(),
        });
    };
    let path = journal(a.with.state.as_ref(), &fsid, &state.run)?;
    if a.run.is_none() && !path.exists() {
        // The copy may be anybody's who writes keys of the cluster: a person names the run that is believed.
        let open = states.iter().filter(is_meant).map(|it| format!("{} of {}", it.run, it.host));
        let open: Vec<String> = open.collect();
        return refuse(format!(
            "there is no journal of the run {0} here, and the cluster has a copy. Runs that are not taken back: {1}. Look at it by \
             'loligo tune history {0}', and name it: 'loligo tune rollback {0}'",
            state.run,
            open.join(", ")
        ));
    }
    let (mut journal, mut run) = recorded(&client, state, &path, &fsid)?;
    if is_over_elsewhere(state, &run) {
        journal.add(&Entry::RolledBack { at: now() })?;
        run.rolled_back = Some(now());
    }
    let has_left = run.undone.values().any(Option::is_some);
    if run.rolled_back.is_some() && !(a.force && has_left) {
        let mend = if has_left { "; --force puts back the values that were left" } else { "" };
        return refuse(format!("the run {} is taken back already{mend}", state.run));
    }
    let hosts = hosts(&a.from, &a.with.remote_conf, remotes);
    let accepted: BTreeSet<String> = a.with.accepted.iter().cloned().collect();
    let watch = Terminal(Interrupt::on_signals().context("catching Ctrl-C")?);
    let restarts = a.with.restarts(&client, &hosts, &facts, &accepted);
    let hands = Hands { client: &client, hosts: &hosts };
    let later = states.iter().filter(|it| it.at > state.at && it.state != "rolled-back");
    if let Some((other, place)) =
        covers(&client, a.with.state.as_ref(), &fsid, later, &run).filter(|_| !a.force)
    {
        return refuse(format!(
            "the later run {other} has put its value at {place}, and would put back that of {0}: take it back first, by \
             'loligo tune rollback {other}'; --force takes {0} back all the same",
            state.run
        ));
    }
    let back = Rollback { hands, lock: &lock, facts: &facts, restarts, force: a.force, watch: &watch }
        .run(&run, &mut journal, state.clone())
        .map_err(|why| {
            anyhow!("{why}. The rest is taken back by 'loligo tune rollback {}' again", state.run)
        })?;
    if !back.failed.is_empty() && !a.force {
        // The list is the error: scripts must not take this for a run that is taken back.
        bail!("{}", text::not_back(&state.run, &back));
    }
    let images = images_of(&facts, &state.run);
    let what = json!({"run": state.run, "back": back, "images": images});
    a.json.done(what, || {
        out!("{}", a.given().complete(&text::back(&state.run, &back)));
        for image in images {
            out!("An image of the run is left: 'rbd rm {image}'\n");
        }
    })
}

/// Images of a comparison that was killed: they have the number of its process, as the run has.
fn images_of(facts: &Facts, run: &str) -> Vec<String> {
    let Some((_, process)) = run.rsplit_once('-') else { return Vec::new() };
    let name = compare::image_of(process);
    facts.images.iter().filter(|it| it.name == name).map(|it| format!("{}/{}", it.pool, it.name)).collect()
}

/// A run by its journal here, or by the cluster's copy; with the journal that goes on.
fn recorded(
    client: &CommandClient,
    state: &State,
    path: &std::path::Path,
    fsid: &str,
) -> Result<(Journal, Run)> {
    if path.exists() {
        let (journal, entries) = Journal::open(path)?;
        let run = Run::of(&entries).ok_or_else(|| anyhow!("{} has no head", path.display()))?;
        run.is_of(fsid, &state.run).map_err(said)?;
        return Ok((journal, run));
    }
    let copy = shared::run(client, state, fsid).map_err(said)?;
    if let Some(why) = copy.doubt {
        return refuse(format!(
            "the cluster's copy of the run {0} is not believed: {why}. Take the run back on {1}, where its journal is",
            state.run, state.host
        ));
    }
    say!("the run {} was made on {}: it is taken back by the cluster's copy", state.run, state.host);
    Ok((Journal::create(path, &copy.entries)?, copy.run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_tune::facts::Image;

    #[test]
    fn the_image_of_a_killed_comparison_is_named() {
        let image = |name: &str| Image { pool: "rbd".into(), name: name.into(), ..Image::default() };
        let images = vec![image("loligo-verify-7"), image("loligo-verify-77"), image("vm")];
        let facts = Facts { images, ..Facts::default() };
        assert_eq!(images_of(&facts, "20261129-140000-77"), ["rbd/loligo-verify-77"]);
        assert!(images_of(&facts, "20261129-140000-78").is_empty());
    }
}
