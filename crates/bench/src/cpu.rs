//! Processor time of whole processes, as the kernel counts it.

use anyhow::{Context, Result};
use loligo_block::processes::Stat;

/// Seconds that a process has used, all threads, user and system.
pub(crate) fn of_process(pid: u32) -> Result<f64> {
    let stat = Stat::of(pid).with_context(|| format!("reading /proc/{pid}/stat"))?;
    Ok(seconds(stat.ticks))
}

/// Seconds that all ended children of this process had used when they ended.
pub(crate) fn of_children() -> Result<f64> {
    Ok(seconds(Stat::of("self").context("reading /proc/self/stat")?.children_ticks))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
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
}
