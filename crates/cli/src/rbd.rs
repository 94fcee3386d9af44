//! `loligo rbd`.

use crate::values;
use anyhow::Result;
use loligo_bench::units;
use loligo_ceph::spec::ImageSpec;
use loligo_ceph::status::{ImageStatus, status};
use std::path::PathBuf;
use std::process::ExitCode;

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
/// lock and disturbs nobody. Exits with 1 where the image could not be a core now.
#[derive(Debug, clap::Args)]
struct Status {
    /// The image: POOL[/NAMESPACE]/IMAGE
    #[arg(value_parser = values::image)]
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
    if a.json {
        println!("{}", serde_json::to_string_pretty(&s)?);
    } else {
        print(&s);
    }
    Ok(if s.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(s: &ImageStatus) {
    let line = |key: &str, value: &str| println!("{key:<14} {value}");
    line("image", &format!("{}, {}", s.image, units::bytes(s.size as f64)));
    line("cluster", &s.fsid);
    let lock = s.lock.as_ref().map(|h| format!("{} at {} ({})", h.client, h.address, h.cookie));
    line("lock", lock.as_deref().unwrap_or("free"));
    for w in &s.watchers {
        line("open at", &format!("{} (client.{})", w.address, w.client));
    }
    if let Some(m) = &s.cache {
        let cache = format!(
            "volume '{}' on {} has it in cache {}: stock clients may see older data",
            m.volume, m.host, m.cache
        );
        line("cache", &cache);
    }
    let quiesce = if s.quiesce {
        "hold every acknowledged write while a cache is attached; while it is detached they lack what is dirty"
    } else {
        "cannot hold cached writes: librbd is too old"
    };
    line("snapshots", quiesce);
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
