//! `loligo tune history`: runs that the cluster knows, and the steps of one.

use super::apply::{journal, said};
use super::from::{From, connect};
use super::text;
use crate::outcome::{refuse, show};
use anyhow::{Result, anyhow};
use loligo_ceph::commands::CommandClient;
use loligo_log::{out, say};
use loligo_tune::apply::shared::{self, State};
use loligo_tune::apply::{Run, RunKind, Step, read};
use loligo_tune::gather;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// List runs, or show the steps of one
#[derive(Debug, clap::Args)]
pub(super) struct HistoryArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: Option<String>,
    #[command(flatten)]
    pub(super) from: From,
    /// The folder of journals [default: $LOLIGO_STATE_DIR/tune or /var/lib/loligo/tune]
    #[arg(long, value_name = "FOLDER")]
    pub(super) state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All runs that the cluster knows, the oldest first, each by its journal here or by the cluster's copy.
pub(super) fn known_runs(client: &CommandClient, state: Option<&PathBuf>) -> Result<Vec<Run>> {
    let fsid = gather::fsid(client).map_err(said)?;
    let states = shared::states(client).map_err(said)?;
    let mut runs = Vec::new();
    for it in &states {
        let (run, doubt) = known_run(client, it, &journal(state, &fsid, &it.run)?, &fsid)?;
        match doubt.filter(|_| run.rolled_back.is_none()) {
            Some(why) => say!("the run {} is not looked at: {why}", it.run),
            None => runs.push(run),
        }
    }
    Ok(runs)
}

/// A run by its journal here, or by the cluster's copy; with the reason why the copy is not to be believed.
fn known_run(
    client: &CommandClient,
    state: &State,
    path: &std::path::Path,
    fsid: &str,
) -> Result<(Run, Option<String>)> {
    match std::fs::read(path) {
        Ok(text) => {
            let (entries, _) = read(&text).map_err(|why| anyhow!("{} is damaged: {why}", path.display()))?;
            let mut run = Run::of(&entries).ok_or_else(|| anyhow!("{} has no head", path.display()))?;
            run.is_of(fsid, &state.run).map_err(said)?;
            if is_over_elsewhere(state, &run) {
                run.rolled_back = Some(state.at);
            }
            Ok((run, None))
        }
        Err(_) => {
            let copy = shared::run(client, state, fsid).map_err(said)?;
            Ok((copy.run, copy.doubt))
        }
    }
}

/// Another host has taken the run back: its own journal does not know.
pub(super) fn is_over_elsewhere(state: &State, run: &Run) -> bool {
    state.state == "rolled-back" && run.rolled_back.is_none() && !run.by_copy
}

/// The first of some runs that has begun to change a place of `run`, with the place. One that cannot be read is passed by.
pub(super) fn covers<'a>(
    client: &CommandClient,
    folder: Option<&PathBuf>,
    fsid: &str,
    others: impl Iterator<Item = &'a State>,
    run: &Run,
) -> Option<(String, String)> {
    let begun = |run: &Run| -> Vec<Step> {
        run.steps.iter().filter(|step| run.begun.contains(&step.number)).cloned().collect()
    };
    let own = begun(run);
    others.into_iter().find_map(|state| {
        let (other, _) = known_run(client, state, &journal(folder, fsid, &state.run).ok()?, fsid).ok()?;
        let is_at = |it: &&Step| own.iter().any(|step| step.change.is_at(&it.change));
        begun(&other).iter().find(is_at).map(|step| (state.run.clone(), step.place()))
    })
}

/// A run as 'history' lists it.
#[derive(Serialize)]
struct Listed {
    run: String,
    host: String,
    at: u64,
    /// Nothing: an older program made it.
    kind: Option<RunKind>,
    state: String,
}

impl Listed {
    fn line(&self) -> String {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.at));
        format!("{}  {at}  {:<6}  {}  {}\n", self.run, text::kind(self.kind), self.host, self.state)
    }
}

pub(super) fn history(a: &HistoryArgs) -> Result<()> {
    let client = connect(&a.from)?;
    let states = shared::states(&client).map_err(said)?;
    let Some(name) = &a.run else {
        let all: Vec<Listed> = states
            .into_iter()
            .map(|it| Listed { run: it.run, host: it.host, at: it.at, kind: it.kind, state: it.state })
            .collect();
        return show(a.json, &all, || {
            all.iter().for_each(|it| out!("{}", it.line()));
        });
    };
    let Some(state) = states.iter().find(|it| it.run == *name) else {
        return refuse(format!("the cluster knows no run {name}: 'loligo tune history' lists them"));
    };
    let fsid = gather::fsid(&client).map_err(said)?;
    let path = journal(a.state.as_ref(), &fsid, name)?;
    let (run, doubt) = known_run(&client, state, &path, &fsid)?;
    if let Some(why) = doubt.filter(|_| run.rolled_back.is_none()) {
        say!("nothing is taken back by this copy: {why}");
    }
    show(a.json, &run, || out!("{}", text::run(&run)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_tells_a_comparison_from_values_that_stay() {
        let of =
            |kind| Listed { run: "r".into(), host: "h".into(), at: 0, kind, state: "rolled-back".into() };
        assert_eq!(of(Some(RunKind::Verify)).line(), "r  1970-01-01T00:00:00Z  verify  h  rolled-back\n");
        assert_eq!(of(None).line(), "r  1970-01-01T00:00:00Z  ?       h  rolled-back\n");
        let said = serde_json::to_value(of(Some(RunKind::Apply))).expect("JSON");
        assert_eq!(said["kind"], "apply");
    }
}
