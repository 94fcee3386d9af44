//! `loligo tune partition`: the processors of hosts, divided among OSDs, loligod's shards and interrupts.

use super::from::{From, gather, read};
use crate::outcome::{refuse, show};
use anyhow::Result;
use loligo_log::{one_line, out};
use loligo_tune::counted;
use loligo_tune::partition::{InterruptPart, Partition};
use loligo_tune::rules::Rules;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Show how the processors of hosts are divided among OSDs, loligod and interrupts
///
/// An OSD has whole cores of the node of its disk, and groups of its threads have cores of their own among those, where they suffice.
/// Each line says why. Nothing is changed: rules CPU-05, CPU-16 to CPU-19 and NET-05 set it by 'loligo tune apply'.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  This host:
    loligo tune partition
  A recorded tree of another machine, by its processes alone:
    loligo tune partition --root tree --no-cluster
  Facts that were gathered elsewhere:
    loligo tune partition --facts facts.json --json")]
pub(super) struct PartitionArgs {
    #[command(flatten)]
    pub(super) from: From,
    /// Use these facts, as 'loligo tune facts --json' wrote them; nobody is asked
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "no_cluster", "conf", "keyring"])]
    facts: Option<PathBuf>,
    /// Print JSON: a partition for each host
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(super) fn partition(a: &PartitionArgs) -> Result<()> {
    let facts = match &a.facts {
        Some(path) => read(path)?,
        None => gather(&a.from, &Rules::new()?)?,
    };
    let all: Vec<Partition> =
        facts.hosts.iter().filter_map(|host| Partition::of(&facts, &host.name)).collect();
    if all.is_empty() {
        return refuse(
            "no host says its processors: /sys/devices/system/cpu/online is not there, or no host was asked",
        );
    }
    show(a.json, &all, || all.iter().for_each(|it| out!("{}", text(it))))
}

fn text(partition: &Partition) -> String {
    let mut text = format!("host {}\n", partition.host);
    let mut rows = vec![
        ["", "node", "cores are", "msgr-worker", "tp_osd_tp", "bstore, rocksdb", "other"].map(str::to_owned),
    ];
    for osd in &partition.osds {
        rows.push([
            format!("osd.{}", osd.id),
            osd.node.to_string(),
            osd.level.word().to_owned(),
            osd.msgr_worker.to_string(),
            osd.tp_osd_tp.to_string(),
            osd.bstore.to_string(),
            osd.other.to_string(),
        ]);
    }
    if !partition.osds.is_empty() {
        text.push_str(&columns(&rows));
    }
    if let Some(it) = &partition.loligod {
        let own = if it.own { "own" } else { "shared" };
        let _ = writeln!(
            text,
            "  loligod: {} on node {}, cores are {own}: {}",
            counted(usize::try_from(it.shards).unwrap_or_default(), "shard"),
            it.node,
            it.cpus
        );
    }
    for it in &partition.nics {
        text.push_str(&interrupts("nic", it));
    }
    for it in &partition.nvmes {
        text.push_str(&interrupts("nvme", it));
    }
    for osd in &partition.osds {
        for why in &osd.why {
            let _ = writeln!(text, "  osd.{}: {}", osd.id, one_line(why));
        }
    }
    for why in partition
        .loligod
        .iter()
        .flat_map(|it| &it.why)
        .map(|why| format!("loligod: {why}"))
        .chain(partition.notes.clone())
    {
        let _ = writeln!(text, "  {}", one_line(&why));
    }
    text
}

fn interrupts(kind: &str, it: &InterruptPart) -> String {
    let node = it.node.map_or_else(|| "?".to_owned(), |node| node.to_string());
    let to = if it.to.is_empty() { String::new() } else { format!(": {}", it.value()) };
    format!("  {kind} {}, node {node}: {}{to}\n", one_line(&it.device), it.why)
}

/// Rows as columns, each as wide as its widest cell.
fn columns(rows: &[[String; 7]]) -> String {
    let wide = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(wide).collect();
    let line = |row: &[String; 7]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
