//! `loligo doctor`.

use crate::outcome::show;
use anyhow::Result;
use loligo_doctor::{Finding, Verdict, examine};
use loligo_log::{one_line, out};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look for what stands in the way of volumes on this host, and say the mend
///
/// Kernel and modules, memory and limits, the clock, the daemon's folders and unit, Ceph's libraries, LVM's filters, and every cache
/// and core of the daemon's configuration: the file system it is on, or the device and who else uses it. Nothing is changed.
/// What cannot be told from here (in a container, or without being root) is unknown.
///
/// Exit status 1 where something is bad; 0 otherwise, warnings included.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Verdicts:
  ok       as it should be, or of no matter here
  unknown  cannot be told from here
  warn     works, and could be better or safer
  bad      does not work, or data is in danger")]
pub(crate) struct Args {
    /// The daemon's file (default: /etc/loligo/loligod.toml, where there is one)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show all, not only what is not ok
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON: all findings
    #[arg(long)]
    json: bool,
}

/// Looks.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let findings = examine(a.config.as_deref());
    show(a.json, json!({ "findings": findings }), || out!("{}", text(&findings, a.verbose)))?;
    let bad = findings.iter().any(|f| f.verdict == Verdict::Bad);
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The worst last, where it is read first.
fn text(findings: &[Finding], verbose: bool) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().filter(|f| verbose || f.verdict != Verdict::Ok).collect();
    sorted.sort_by_key(|f| f.verdict);
    let mut text = String::new();
    for f in sorted {
        text.push_str(&format!("{:<8} {}: {}\n", f.verdict.word(), f.check, one_line(&f.seen)));
        if f.verdict != Verdict::Ok {
            text.push_str(&format!("         why: {}\n", one_line(f.why)));
        }
        if let Some(mend) = &f.mend {
            text.push_str(&format!("         mend: {}\n", one_line(mend)));
        }
    }
    let count = |v| findings.iter().filter(|f| f.verdict == v).count();
    text.push_str(&format!(
        "{} ok, {} unknown, {} to be better, {} bad\n",
        count(Verdict::Ok),
        count(Verdict::Unknown),
        count(Verdict::Warn),
        count(Verdict::Bad)
    ));
    text
}
