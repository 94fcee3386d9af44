//! `loligo rbd`.

use anyhow::Result;
use loligo_bench::units;
use loligo_ceph::spec::ImageSpec;
use loligo_ceph::status::{ImageStatus, status};
use loligo_client::client::Client;
use loligo_client::outcome::Outcome;
use loligo_log::{out, outln};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// RBD images
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Status(Status),
}

/// Show who uses an image, and whether it could be a core
///
/// Also whether a cache may hold data that it lacks, and how dirty data would go to it. Looks without asking for the image's
/// lock and disturbs nobody. Where a service on this host has it, also how long whoever took the last snapshot waited. Exits
/// with 1 where the image could not be a core now.
#[derive(Debug, clap::Args)]
struct Status {
    /// The image: POOL[/NAMESPACE]/IMAGE
    image: ImageSpec,
    /// Ceph's configuration file [default: $CEPH_CONF or /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The client's name without 'client.' [default: admin]
    #[arg(long)]
    id: Option<String>,
    /// The client's keyring [default: as the configuration says]
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let What::Status(a) = a.what;
    let mut spec = a.image;
    spec.conf = a.conf.or(spec.conf);
    spec.id = a.id.or(spec.id);
    spec.keyring = a.keyring.or(spec.keyring);
    let s = status(&spec)?;
    let (served, silent) = match served(&s) {
        Ok(served) => (served, None),
        Err(why) => (None, Some(format!("{why:#}"))),
    };
    if a.json {
        let mut all = serde_json::to_value(&s)?;
        all["service"] = served.unwrap_or_default();
        all["service_error"] = silent.into();
        out!("{}\n", serde_json::to_string_pretty(&all)?);
    } else {
        print(&s, served.as_ref(), silent.as_deref());
    }
    Ok(if s.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How long the service on this host may take to say how it is.
const BRIEFLY: Duration = Duration::from_secs(5);

/// The words of the service on this host that has the image, if there is one; or why it says nothing.
fn served(s: &ImageStatus) -> Result<Option<Value>> {
    let Some(mark) = &s.cache else { return Ok(None) };
    // Whoever wrote it there may have another idea of names.
    let Ok(client) = Client::new(&mark.volume) else { return Ok(None) };
    let stats = match client.within(BRIEFLY).stats() {
        // It may be another host's.
        Err(why) if Outcome::of(&why) == Outcome::Refused => return Ok(None),
        stats => stats?,
    };
    let numbers = &stats["rbd"];
    // A volume of the same name may have another image.
    let is_its =
        |id: &str| id.starts_with(&format!("rbd:{}/", s.fsid)) && id.ends_with(&format!("/{}", s.id));
    Ok(numbers["id"].as_str().is_some_and(is_its).then(|| numbers.clone()))
}

fn print(s: &ImageStatus, served: Option<&Value>, silent: Option<&str>) {
    let line = |key: &str, value: &str| outln!("{key:<14} {value}");
    line("image", &format!("{}, {}", s.image, units::bytes(s.size as f64)));
    line("cluster", &s.fsid);
    let lock = s.lock.as_ref().map(|h| format!("{} at {} ({})", h.client, h.address, h.cookie));
    line("lock", lock.as_deref().unwrap_or("free"));
    for w in &s.watchers {
        let mirrors = if w.mirrors { ", which mirrors it to another cluster" } else { "" };
        line("open at", &format!("{} (client.{}){mirrors}", w.address, w.client));
    }
    if let Some(m) = &s.cache {
        let cache = format!(
            "volume '{}' on {} has it in cache {}: stock clients may see older data",
            m.volume, m.host, m.cache
        );
        line("cache", &cache);
    }
    if let Some(why) = silent {
        line("service", &format!("says nothing of it: {why}"));
    }
    line(
        "snapshots",
        "hold every acknowledged write while a cache is attached; while it is detached they lack what is dirty",
    );
    if let Some(snapshots) = served.map(|numbers| &numbers["snapshots"]) {
        let [made, refused] = ["quiesced", "refused"].map(|key| snapshots[key].as_u64().unwrap_or_default());
        let wait = snapshots["last_wait"].as_f64().unwrap_or_default();
        let doing = snapshots["doing"].as_str().unwrap_or_default();
        let now = if doing == "running" { String::new() } else { format!("; now: {doing}") };
        let words =
            format!("{made} made ready, {refused} refused; the last requester waited {wait:.1} s{now}");
        line("", &words);
    }
    let destage = if s.ungrouped.is_empty() {
        "grouped by object".to_owned()
    } else {
        format!("through librbd: {}", s.ungrouped.join("; "))
    };
    line("destage", &destage);
    for why in &s.warnings {
        line("note", why);
    }
    match s.refused.as_slice() {
        [] => line("as a core", "yes"),
        all => all.iter().for_each(|why| line("as a core", &format!("no: {why}"))),
    }
}
