//! Text for scripts and logs.

use super::cells::{HEADS, cells};
use super::sort::Order;
use anyhow::Result;
use loligo_bench::table::Table;
use loligo_client::watch::{Look, Row, look, rows};
use loligo_log::out;
use serde_json::json;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prints what happened in each interval, `count` times or until the reader is gone.
pub(super) fn run(interval: Duration, count: Option<u64>, json: bool, order: Order) -> Result<()> {
    let mut before = look()?;
    let mut printed = 0;
    while count.is_none_or(|n| printed < n) {
        std::thread::sleep(interval.saturating_sub(before.at.elapsed()));
        let now = look()?;
        let mut all = rows(Some(&before), &now);
        order.apply(&mut all);
        let passed = now.at.duration_since(before.at);
        let text = if json { line(&all, passed) } else { table(&all, &now) };
        out!("{text}");
        if !loligo_log::flush_output() {
            return Ok(());
        }
        (before, printed) = (now, printed + 1);
    }
    Ok(())
}

fn line(rows: &[Row], passed: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let all = json!({ "unix_time": now.as_secs_f64(), "interval_s": passed.as_secs_f64(), "volumes": rows });
    format!("{all}\n")
}

fn table(rows: &[Row], now: &Look) -> String {
    if now.volumes.is_empty() {
        return "no volume is served on this host\n".to_owned();
    }
    let mut table = Table::new(HEADS);
    rows.iter().for_each(|r| table.row(cells(r)));
    let whys = rows.iter().filter_map(|r| Some(format!("{}: {}\n", r.name, r.why.as_ref()?)));
    format!("{}\n{}\n", table.text(), whys.collect::<String>())
}
