//! The place of a comparison: an image of its own on the cluster, and the load on it.

use super::judge::steady;
use super::options::Options;
use super::outcome::Run;
use super::pulse::Pulse;
use crate::bed::Bed;
use crate::fio::{Job, Measured};
use crate::rbd::{Cluster, Librbd, image_name};
use anyhow::{Result, anyhow};
use loligo_block::host_files::HostFiles;
use loligo_ceph::commands::CommandClient;
use loligo_tune::apply::Health;
use std::collections::BTreeSet;
use std::path::Path;

/// Share of processor time that the host may take away from a run.
pub(super) const STEAL: f64 = 0.1;
/// Bytes of the scratch folder.
const SCRATCH: u64 = 64 << 20;

/// The purpose of the image, in its name.
const IMAGE: &str = "verify";

/// The name of the image of a comparison that the process of this number makes.
pub fn image_of(process: &str) -> String {
    image_name(IMAGE, process)
}

/// The place.
pub(crate) struct Field<'a> {
    client: &'a CommandClient,
    pulse: &'a Pulse,
    // It goes before the scratch folder, which has its configuration.
    cluster: Cluster,
    bed: Bed,
    job: Job,
    /// Checks that complained before the first run.
    complaints: BTreeSet<String>,
}

impl<'a> Field<'a> {
    /// Makes the image, and writes it whole.
    pub(crate) fn new(
        options: &Options,
        client: &'a CommandClient,
        pulse: &'a Pulse,
        say: &dyn Fn(&str),
    ) -> Result<Field<'a>> {
        let bed = Bed::new(&options.place, SCRATCH)?;
        let mut cluster = Cluster::new(&bed, &options.place, "cluster", &options.source, say)?;
        say(&format!("writing an image of {} bytes", options.size));
        let image = cluster.image(&bed, IMAGE, options.size);
        if image.is_err() && pulse.is_silent() {
            cluster.leave();
        }
        let image = image?;
        let load = options.load;
        let target = cluster.native(&image, Librbd::Shipped);
        let job = Job::new(target, load.rw, load.block, load.depth).lasting(options.time).after(options.ramp);
        let health = Health::ask(client).map_err(|why| anyhow!(why))?;
        let complaints = health.checks.into_iter().map(|(check, _)| check).collect();
        Ok(Field { client, pulse, cluster, bed, job, complaints })
    }

    /// The machine and the cluster.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        self.bed.facts().with(self.cluster.facts.clone())
    }

    /// The reason why a run would not count now: the cluster has a new complaint, or is at work for itself.
    pub(crate) fn disturbed(&self) -> Result<Option<String>> {
        let health = Health::ask(self.client).map_err(|why| anyhow!(why))?;
        let new = health.checks.iter().find(|(check, _)| !self.complaints.contains(check));
        let new = new.map(|(check, words)| format!("the cluster complains: {check}: {words}"));
        Ok(new.or_else(|| health.busy.map(|state| format!("placement groups are {state}"))))
    }

    /// One run with addresses of `seed`, and the reason why it does not count.
    pub(crate) fn load(&self, arm: usize, seed: u64) -> Result<(Run, Option<String>, Measured)> {
        let before = processor();
        let measured = self.bed.run(&self.job.clone().seeded(seed))?;
        let steal = before.zip(processor()).map_or(0.0, |(before, after)| {
            let (all, stolen) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
            stolen as f64 / all.max(1) as f64
        });
        let (run, mut why) = of(&measured, arm, steal);
        if steal > STEAL {
            why = Some(format!("the host took {:.0} % of the processor time away", steal * 100.0));
        }
        Ok((run, why, measured))
    }
}

impl Drop for Field<'_> {
    fn drop(&mut self) {
        if self.pulse.is_silent() {
            self.cluster.leave();
        }
    }
}

/// The figures of a run, and the reason why it is not steady.
fn of(measured: &Measured, arm: usize, steal: f64) -> (Run, Option<String>) {
    let series: Vec<f64> = measured.series.iter().map(|second| second.iops).collect();
    let cut = steady(&series);
    let why = cut.is_none().then(|| "its rate did not become even".to_owned());
    let cut = cut.unwrap_or(0);
    let rest = &series[cut..];
    // Where nothing was cut fio's own figure has the last, unfinished second as well.
    let iops = if cut == 0 { measured.iops } else { rest.iter().sum::<f64>() / rest.len() as f64 };
    let latency = measured.latency;
    let run = Run { arm, iops, mean_ns: latency.mean_ns, p99_ns: latency.p99_ns as f64, steal, cut };
    (run, why)
}

/// Ticks of all processors since boot: all, and those that the host took away.
fn processor() -> Option<(u64, u64)> {
    let text = HostFiles::new(Path::new("/")).read("/proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    // Guests' time is in that of users already (proc_stat(5)).
    Some((ticks.iter().take(8).sum(), *ticks.get(7)?))
}
