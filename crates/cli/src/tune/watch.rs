//! `loligo tune watch`: do applied values still stand, and act?

use super::apply::{hosts, known_runs};
use super::from::{From, connect, gather_from};
use anyhow::{Context, Result};
use loligo_ceph::commands::CommandClient;
use loligo_lab::interrupt::Interrupt;
use loligo_log::{out, outln, say};
use loligo_tune::apply::{Drift, Hands, drifts, standing};
use loligo_tune::rules::Rules;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    from: From,
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
    state: Option<PathBuf>,
    /// Print JSON: one document for each look
    #[arg(long)]
    json: bool,
}

/// What one look saw.
struct Seen {
    steps: usize,
    drifts: BTreeSet<Drift>,
}

/// Runs it.
pub(super) fn watch(a: &WatchArgs) -> Result<ExitCode> {
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let mut before: BTreeSet<Drift> = BTreeSet::new();
    loop {
        // A cluster that does not answer now may answer the next time; one look alone says so by its end.
        match connect(&a.from).and_then(|client| look(a, &client)) {
            Err(why) if a.once => return Err(why),
            Err(why) => {
                say!("not looked at: {why:#}");
                tell(a, None)?;
            }
            Ok(seen) => {
                tell(a, Some(&seen))?;
                if a.json {
                    out!("{}\n", json!({"steps": seen.steps, "drifts": seen.drifts}));
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
                        outln!("{} of {} values drifted", seen.drifts.len(), seen.steps);
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

fn look(a: &WatchArgs, client: &CommandClient) -> Result<Seen> {
    let runs = known_runs(client, a.state.as_ref())?;
    let steps = standing(&runs);
    let (facts, remotes) = gather_from(&a.from, Some(client), &Rules::new()?)?;
    let hosts = hosts(&a.from, &a.remote_conf, remotes);
    let drifts = drifts(Hands { client, hosts: &hosts }, &facts, &steps);
    Ok(Seen { steps: steps.len(), drifts: drifts.into_iter().collect() })
}

/// Writes the metrics; nothing: nobody could look.
fn tell(a: &WatchArgs, seen: Option<&Seen>) -> Result<()> {
    let Some(path) = &a.textfile else { return Ok(()) };
    replace(path, &metrics(seen)).with_context(|| path.display().to_string())
}

fn metrics(seen: Option<&Seen>) -> String {
    let up = u8::from(seen.is_some());
    let mut text = format!(
        "# HELP loligo_tune_up 1 if applied values could be looked at.\n# TYPE loligo_tune_up gauge\nloligo_tune_up {up}\n"
    );
    let Some(seen) = seen else { return text };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
    text.push_str(&format!(
        "# HELP loligo_tune_looked_seconds Time of the last look, seconds since 1970.\n# TYPE loligo_tune_looked_seconds gauge\n\
         loligo_tune_looked_seconds {now}\n# HELP loligo_tune_values Applied values that are looked at.\n\
         # TYPE loligo_tune_values gauge\nloligo_tune_values {}\n# HELP loligo_tune_drifted 1 for each value that drifted.\n\
         # TYPE loligo_tune_drifted gauge\n",
        seen.steps
    ));
    for it in &seen.drifts {
        let [run, rule, place] = [&it.run, &it.rule, &it.place].map(|it| escaped(it));
        text.push_str(&format!("loligo_tune_drifted{{run=\"{run}\",rule=\"{rule}\",place=\"{place}\"}} 1\n"));
    }
    text
}

/// A label's value (Prometheus, text-based format).
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
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
        let text = metrics(Some(&Seen { steps: 3, drifts: BTreeSet::from([drift]) }));
        assert!(
            text.contains("loligo_tune_drifted{run=\"r\",rule=\"X\",place=\"a \\\"b\\\"\\\\\\nof osd\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("loligo_tune_up 1\n") && text.contains("loligo_tune_values 3\n"));
        assert!(metrics(None).ends_with("loligo_tune_up 0\n"));
    }
}
