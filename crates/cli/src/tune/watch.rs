//! `loligo tune watch`: do applied values still stand, and act?

use super::apply::hosts;
use super::from::{From, connect, gather_from};
use super::history::known_runs;
use anyhow::{Context, Result};
use loligo_ceph::commands::CommandClient;
use loligo_client::tune::{Drift, Look};
use loligo_daemon::{TuneNumbers, tune_metrics};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{out, outln, say};
use loligo_tune::apply::{Hands, drifts, standing};
use loligo_tune::counted;
use loligo_tune::rules::Rules;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The exit status of --once where something drifted.
const DRIFTED: u8 = 1;

/// Look again and again whether applied values are still there, and act
///
/// Each value of a run that was applied and not taken back is looked at as 'apply' did. One line is printed when it is no more as it was
/// made, and one when it is so again: somebody changed it, a daemon started with another value, or a new release does not act by it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  Once, for a script: the exit status is 1 if something drifted
    loligo tune watch --once
  Every five minutes, as metrics for the textfile collector of node_exporter:
    loligo tune watch --every 300 --textfile /var/lib/prometheus/node-exporter/loligo-tune.prom")]
pub(super) struct WatchArgs {
    #[command(flatten)]
    pub(super) from: From,
    /// Look once, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::values::seconds)]
    every: Duration,
    /// Write metrics to this file after each look
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Ceph's file on each --host
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf")]
    remote_conf: PathBuf,
    /// The folder of journals [default: $LOLIGO_STATE_DIR/tune or /var/lib/loligo/tune]
    #[arg(long, value_name = "FOLDER")]
    pub(super) state: Option<PathBuf>,
    /// Print JSON: one document for each look
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(super) fn watch(a: &WatchArgs) -> Result<ExitCode> {
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let mut before: BTreeSet<Drift> = BTreeSet::new();
    let mut numbers = TuneNumbers { last: None, is_blind: true };
    loop {
        // A cluster that does not answer now may answer the next time; one look alone says so by its end.
        match connect(&a.from).and_then(|client| look(a, &client)) {
            Err(why) if a.once => return Err(why),
            Err(why) => {
                say!("not looked at: {why:#}");
                numbers.is_blind = true;
                tell(a, &numbers)?;
            }
            Ok(seen) => {
                numbers = TuneNumbers { last: Some((SystemTime::now(), seen.clone())), is_blind: false };
                tell(a, &numbers)?;
                if a.json {
                    out!("{}\n", json!(seen));
                } else {
                    for it in seen.drifts.difference(&before) {
                        outln!("drift: {} ({}, {}): {}", it.place, it.rule, it.run, it.why);
                    }
                    for it in before.difference(&seen.drifts) {
                        outln!("as before: {} ({}, {})", it.place, it.rule, it.run);
                    }
                }
                if a.once {
                    if !a.json {
                        let all = usize::try_from(seen.steps).unwrap_or(usize::MAX);
                        outln!("{} of {} drifted", seen.drifts.len(), counted(all, "value"));
                    }
                    return Ok(ExitCode::from(if seen.drifts.is_empty() { 0 } else { DRIFTED }));
                }
                before = seen.drifts;
            }
        }
        if stop.sleep(a.every).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn look(a: &WatchArgs, client: &CommandClient) -> Result<Look> {
    let runs = known_runs(client, a.state.as_ref())?;
    let steps = standing(&runs);
    let (facts, remotes) = gather_from(&a.from, Some(client), &Rules::new()?)?;
    let hosts = hosts(&a.from, &a.remote_conf, remotes);
    let drifts = drifts(Hands { client, hosts: &hosts }, &facts, &steps);
    Ok(Look { steps: steps.len() as u64, drifts: drifts.into_iter().collect() })
}

/// Writes the metrics.
fn tell(a: &WatchArgs, numbers: &TuneNumbers) -> Result<()> {
    let Some(path) = &a.textfile else { return Ok(()) };
    replace(path, &tune_metrics(numbers)).with_context(|| path.display().to_string())
}

/// A collector reads the old file or the new one, and no half of one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("tmp");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_a_cluster_that_is_silent_is_down() {
        let drift =
            Drift { run: "r".into(), rule: "X".into(), place: "a \"b\"\\\nof osd".into(), why: "w".into() };
        let look = Look { steps: 3, drifts: BTreeSet::from([drift]) };
        let mut numbers = TuneNumbers { last: Some((SystemTime::now(), look)), is_blind: false };
        let text = tune_metrics(&numbers);
        assert!(
            text.contains("loligo_tune_drifted{run=\"r\",rule=\"X\",place=\"a \\\"b\\\"\\\\\\nof osd\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("loligo_tune_up 1\n") && text.contains("loligo_tune_values 3\n"), "{text}");
        numbers.is_blind = true;
        assert!(tune_metrics(&numbers).contains("loligo_tune_up 0\n"));
        assert!(!tune_metrics(&TuneNumbers { last: None, is_blind: true }).contains("loligo_tune_values"));
    }
}
