//! Processor time of whole processes, as the kernel counts it.

use std::fs;

use anyhow::{Context, Result};

/// Seconds that a process has used, all threads, user and system.
pub(crate) fn of_process(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    seconds(&text, 11).with_context(|| format!("{path} is cut short"))
}

/// Seconds that all ended children of this process had used when they ended.
pub(crate) fn of_children() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    seconds(&text, 13).context("/proc/self/stat is cut short")
}

/// The sum of the two fields from `from` on, counted from behind the name, in seconds.
fn seconds(stat: &str, from: usize) -> Option<f64> {
    // The name is in brackets and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 =
        fields.get(from..from + 2)?.iter().map(|f| f.parse::<f64>().ok()).sum::<Option<f64>>()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_work_counts_for_it_and_once_ended_for_its_parent() {
        let begun = of_children().unwrap();
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", spin]).status().unwrap();
        assert!(status.success());
        assert!(of_children().unwrap() > begun);
        assert!(of_process(std::process::id()).unwrap() >= 0.0);
        assert!(of_process(0).is_err());
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = format!("7 (a) b) S {}", (4..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(seconds(&stat, 11), Some((14.0 + 15.0) / ticks));
    }
}
