//! `loligo osd`.

use crate::outcome::{Json, refuse};
use anyhow::{Context, Result};
use clap::Subcommand;
use loligo_bench::table::Table;
use loligo_block::DeviceSpec;
use loligo_client::client::DaemonClient;
use loligo_client::outcome::OrRefused;
use loligo_format::mode::Mode;
use loligo_lab::interrupt::Interrupt;
use loligo_log::{out, outln, say};
use loligo_osd::adopt::{self, Adopt};
use loligo_osd::behind::{Behind, Via};
use loligo_osd::ceph_volume::By;
use loligo_osd::cluster::Access;
use loligo_osd::devices::own_cache;
use loligo_osd::list::{self, Row};
use loligo_osd::place::{self, Place};
use loligo_osd::prepare::{self, Prepare};
use loligo_osd::release::{self, Release};
use loligo_osd::remove::{self, Remove};
use loligo_osd::{activate, labels};
use loligo_volume::profile::Profile;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make, start, list and remove Ceph OSDs on cached volumes, and put caches under OSDs that exist
///
/// The volumes are the daemon's (loligod must run). An OSD that is made here has its data 1 MiB behind the start of its disk, behind a
/// label; one that is adopted has a label in the place of its first 4 KiB, which are kept behind that and on the cache. Either way LVM,
/// ceph-volume and ceph-osd find nothing of theirs on the raw disk, and cannot start on it without the cache.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  An OSD on a disk behind a partition of an NVMe device:
    loligo osd prepare --data /dev/sdb --cache /dev/nvme0n1p4
  With its database on flash beside the cache, as osd.7:
    loligo osd prepare --id 7 --data /dev/sdc --cache /dev/nvme0n1p5 --db /dev/nvme1n1p1
  What there is, and which OSDs share a cache device:
    loligo osd list
  After an OSD was stopped by hand:
    loligo osd activate 7
  A cache under an OSD that is there already, and away again:
    loligo osd adopt 3 --cache /dev/nvme0n1p6
    loligo osd release 3
  The same OSD when the daemon's state is lost:
    loligo osd adopt 3 --data /dev/sdd --cache /dev/nvme0n1p6
  Take one away once its data are elsewhere, and wait for that:
    loligo osd remove 7 --wait")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Prepare(Box<PrepareArgs>),
    Activate(Box<ActivateArgs>),
    /// List the OSDs on volumes of this host
    ///
    /// State and 'in' are what the cluster says; 'dies with' names the OSDs whose caches lie on the same device.
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    Remove(Box<RemoveArgs>),
    Adopt(Box<AdoptArgs>),
    Release(Box<ReleaseArgs>),
}

/// Make an OSD on a new volume, and start it
///
/// Everything is checked before anything is changed. The cluster hears of the OSD when its store is whole; an error or Ctrl-C
/// before that takes back what was done.
#[derive(Debug, clap::Args)]
struct PrepareArgs {
    /// The slow device, for the data: a device or file, or hdd:PATH?rpm=7200 (a disk modelled over a file)
    #[arg(long, value_name = "DEV")]
    data: String,
    /// Where BlueStore's database lies (default: with the data, and so behind the cache)
    #[arg(long, value_name = "DEV")]
    db: Option<PathBuf>,
    /// Where BlueStore's write-ahead log lies (default: with the database)
    #[arg(long, value_name = "DEV")]
    wal: Option<PathBuf>,
    /// The OSD's number (default: the least that is free)
    #[arg(long)]
    id: Option<u32>,
    /// Its CRUSH class (default: hdd or ssd, by what the data device says of itself)
    #[arg(long)]
    class: Option<String>,
    /// Who makes the store: ceph-osd, ceph-volume-raw or ceph-volume-lvm
    ///
    /// 'ceph-volume raw' or 'ceph-volume lvm' is run on the volume's device; for lvm a volume group ceph-loligo-osdID is made on it first, and it
    /// must be a device of ublk. The OSD is started by loligod either way, and its folder is one on disk. ceph-volume has its key in
    /// /var/lib/ceph/bootstrap-osd, and knows neither --osd-dir nor --user.
    #[arg(long, value_name = "WHO", default_value = "ceph-osd")]
    by: By,
    /// Make it only; 'loligo osd activate' starts it
    #[arg(long)]
    no_start: bool,
    #[command(flatten)]
    behind: BehindArgs,
    #[command(flatten)]
    json: Json,
}

/// The cache of an OSD, and how it stands behind it.
#[derive(Debug, clap::Args)]
struct BehindArgs {
    /// The cache: a device of its own, such as a partition, and no share of a pool; or a file, made with --cache-size
    #[arg(long, value_name = "DEV")]
    cache: PathBuf,
    /// Bytes of the cache (default: the whole device)
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    cache_size: Option<u64>,
    /// What is cached and what an answer waits for
    ///
    /// In wb the OSD is lost with its cache; in wt it is not, and writes are as slow as the disk.
    #[arg(long, default_value = "wb")]
    mode: Mode,
    /// A named set of the cache's tunables
    #[arg(long, value_name = "NAME", default_value = "osd-hdd", value_parser = crate::values::profile)]
    profile: &'static Profile,
    /// A tunable, as 'loligo param' names it; may be given several times
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = crate::values::param)]
    params: Vec<(String, String)>,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The OSD's folder (default: /var/lib/ceph/osd/ceph-ID)
    #[arg(long, value_name = "DIR")]
    osd_dir: Option<PathBuf>,
    /// As whom the OSD runs (default: as this cluster's OSDs do)
    ///
    /// That is ceph:ceph where systemd starts them or the configuration is /etc/ceph/ceph.conf; an OSD that is adopted runs on as who its folder
    /// belongs to. With another configuration, that of a lab for one, it is whom the folder belongs to in which that cluster's OSDs lie.
    #[arg(long, value_name = "USER:GROUP")]
    user: Option<String>,
    /// How the OSD reaches its volume: block (a block device, of ublk where the kernel has it), ublk (of ublk, or not at all) or fuse (a file)
    ///
    /// On a device of ublk an OSD lives on while the daemon is away, and its requests wait; the kernel must have ublk_drv (Linux 6.5).
    #[arg(long, value_name = "block|ublk|fuse", default_value = "block", value_parser = via)]
    via: Via,
    /// Overwrite data on the devices (with 'adopt': on the cache)
    ///
    /// Not data that somebody counts on: devices in use, of LVM or md, of an OSD in the cluster, or caches that hold what their
    /// core does not have.
    #[arg(long)]
    force: bool,
}

impl BehindArgs {
    fn wanted(self) -> Result<Behind> {
        Ok(Behind {
            cache: own_cache(&self.cache)?,
            cache_size: self.cache_size,
            mode: self.mode.name().to_owned(),
            profile: Some(self.profile.name.to_owned()),
            params: self.params.into_iter().collect(),
            cluster: self.cluster.access()?,
            dir: self.osd_dir,
            user: self.user,
            via: self.via,
            force: self.force,
            program: std::env::current_exe().context("the path of this program")?,
        })
    }
}

/// Which cluster, and as whom.
#[derive(Debug, clap::Args)]
struct ClusterArgs {
    /// The cluster's configuration [default: $CEPH_CONF or /etc/ceph/ceph.conf]
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The client that asks the cluster
    #[arg(long, default_value = "client.admin")]
    name: String,
    /// That client's key (default: where the configuration says)
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
}

impl ClusterArgs {
    fn access(self) -> Result<Access> {
        let conf = self.conf.unwrap_or_else(Access::default_conf);
        Ok(Access {
            conf: std::path::absolute(conf)?,
            name: self.name,
            keyring: self.keyring.map(std::path::absolute).transpose()?,
        })
    }
}

/// Start an OSD on its volume
///
/// Serves the volume, mends the links in the OSD's folder, starts the OSD (through systemd where that runs) and waits until the
/// cluster says that it is up. An OSD whose device went away with a daemon that died is ended first. The daemon runs this by itself
/// each time the volume has come.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["id", "all", "place"]))]
struct ActivateArgs {
    /// Its number
    id: Option<u32>,
    /// Every OSD on a volume of this host
    #[arg(long)]
    all: bool,
    /// What the daemon knows of the OSD whose volume has come
    #[arg(long, hide = true)]
    place: Option<Place>,
    #[command(flatten)]
    json: Json,
}

/// Take an OSD out of the cluster for good, and its volume away
///
/// Refused while the cluster cannot do without it ('ceph osd safe-to-destroy').
#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// Its number
    id: u32,
    /// Mark it out and wait until its data are elsewhere; Ctrl-C marks it in again
    #[arg(long, conflicts_with = "force")]
    wait: bool,
    /// Do without waiting where every placement group of it has another whole copy: nothing but redundancy is lost
    #[arg(long)]
    force: bool,
    /// Write over the start of the store, of the database and of the log
    #[arg(long)]
    zap: bool,
    #[command(flatten)]
    json: Json,
}

/// Put a cache under an OSD that exists, without making it anew
///
/// Everything is checked while the OSD runs, 'ceph osd ok-to-stop' among it. Then it is stopped, its volume made, and it is started on
/// that: no data move, and its options and CRUSH class stay as they are. Its device keeps everything in its place but the first 4
/// KiB, where a label stands from then on. An error or Ctrl-C takes everything back; after a SIGKILL the same command goes on.
/// 'block.db' and 'block.wal' stay where they are.
#[derive(Debug, clap::Args)]
struct AdoptArgs {
    /// Its number
    id: u32,
    /// Its own device, where this host has forgotten its volume
    ///
    /// The daemon's state may be lost while 'block' of the OSD leads to the volume. The label on the device says which cache it belongs to: with
    /// that one everything is as it was; with no other, unless that had nothing for itself.
    #[arg(long, value_name = "DEV")]
    data: Option<PathBuf>,
    #[command(flatten)]
    behind: BehindArgs,
    #[command(flatten)]
    json: Json,
}

/// Take the cache away from an adopted OSD, which goes on on its own device
///
/// Asks 'ceph osd ok-to-stop' first. Then everything dirty is written to the OSD's device, the OSD stopped, its first block and its
/// 'block' link put back, volume and cache removed, and the OSD started. After a SIGKILL the same command goes on.
#[derive(Debug, clap::Args)]
struct ReleaseArgs {
    /// Its number
    id: u32,
    /// Its cache is lost for good, and had nothing for itself
    ///
    /// The first block comes from behind the label on the OSD's device, which also tells whether anything is lost. Nothing is if the volume was
    /// stopped with nothing dirty; or was started with nothing dirty in wt, wa, wi or pt, and not switched to wb or wo since (one that was
    /// switched away from those counts from its next start on). Refused otherwise: the store would be a mixture of old and new. Remove the OSD then ('loligo osd remove'), and have the cluster make up for it.
    #[arg(long)]
    without_cache: bool,
    #[command(flatten)]
    json: Json,
}

fn via(text: &str) -> Result<Via, String> {
    match text {
        "block" => Ok(Via::Block),
        "ublk" => Ok(Via::Ublk),
        "fuse" => Ok(Via::Fuse),
        _ => Err("use block, ublk or fuse".to_owned()),
    }
}

/// Does it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    match a.what {
        What::Prepare(a) => make(*a, &stop)?,
        What::Activate(a) => start(&a, &stop)?,
        What::List { json } => show(&list::list(&stop)?, json)?,
        What::Remove(a) => {
            remove::remove(a.id, Remove { wait: a.wait, force: a.force, zap: a.zap }, &stop)?;
            a.json.done(json!({ "osd": a.id }), || ())?;
        }
        What::Adopt(a) => take_in(*a, &stop)?,
        What::Release(a) => {
            release::release(a.id, Release { without_cache: a.without_cache }, &stop)?;
            a.json.done(json!({ "osd": a.id }), || ())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn make(a: PrepareArgs, stop: &Interrupt) -> Result<()> {
    let data: DeviceSpec = a.data.parse::<DeviceSpec>().or_refused()?;
    let whole = |path: PathBuf| std::path::absolute(path);
    let data = match data {
        DeviceSpec::File(path) => DeviceSpec::File(whole(path)?),
        hdd @ DeviceSpec::Hdd { .. } => {
            if !hdd.path().is_absolute() {
                return refuse(format!("--data {}: give the whole path", a.data));
            }
            hdd
        }
    };
    let wanted = Prepare {
        behind: a.behind.wanted()?,
        data,
        text: a.data,
        db: a.db.map(whole).transpose()?,
        wal: a.wal.map(whole).transpose()?,
        id: a.id,
        class: a.class,
        by: a.by,
        start: !a.no_start,
    };
    let id = prepare::prepare(&wanted, stop)?;
    a.json.done(json!({ "osd": id }), || outln!("{id}"))
}

fn take_in(a: AdoptArgs, stop: &Interrupt) -> Result<()> {
    let data = a.data.map(std::path::absolute).transpose()?;
    let wanted = Adopt { id: a.id, data, behind: a.behind.wanted()? };
    adopt::adopt(&wanted, stop)?;
    a.json.done(json!({ "osd": a.id }), || ())
}

fn start(a: &ActivateArgs, stop: &Interrupt) -> Result<()> {
    if let Some(place) = &a.place {
        activate::volume_came(place, stop)?;
        return a.json.done(json!({ "osds": [] }), || ());
    }
    let daemon = DaemonClient::new()?;
    let all = match a.id {
        Some(id) => vec![place::one(&daemon, id)?],
        None => place::all(&daemon)?,
    };
    let mut failed = None;
    for known in &all {
        if let Err(why) = activate::activate(&daemon, known, stop) {
            stop.check()?;
            if let Some(before) = failed.replace(why) {
                say!("error: {before:#}");
            }
        }
    }
    match failed {
        Some(why) => Err(why),
        None => {
            let osds: Vec<u32> = all.iter().map(|known| known.place.id).collect();
            a.json.done(json!({ "osds": osds }), || ())
        }
    }
}

fn show(rows: &[Row], json: bool) -> Result<()> {
    if json {
        out!("{}\n", serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    let mut table = Table::new([
        "osd",
        "state",
        "in",
        "made by",
        "volume",
        "is",
        "mode",
        "dirty",
        "core",
        "cache",
        "dies with",
    ]);
    for r in rows {
        let shares: Vec<String> = r.shares_cache_with.iter().map(|id| format!("osd.{id}")).collect();
        let word = |w: Option<String>| w.unwrap_or_else(|| "-".to_owned());
        table.row([
            format!("osd.{}", r.id),
            r.state.to_owned(),
            word(r.r#in.map(|i| if i { "in" } else { "out" }.to_owned())),
            match r.by {
                None => "adopt".to_owned(),
                Some("ceph-osd") => "prepare".to_owned(),
                Some(by) => by.to_owned(),
            },
            r.volume.clone(),
            r.volume_state.to_owned(),
            word(r.mode.clone()),
            word(r.dirty_bytes.map(|n| n.to_string())),
            r.core.clone(),
            word(r.cache.as_ref().map(|c| c.display().to_string())),
            word(Some(shares.join(", ")).filter(|s| !s.is_empty())),
        ]);
    }
    out!("{}\n", table.text());
    for r in rows {
        if let Some(why) = &r.why {
            outln!("osd.{}: volume {} is {}: {why}", r.id, r.volume, r.volume_state);
        }
        if let Some(text) = labels::warning(r.id, &r.core, &r.labels_at) {
            outln!("warning: {text}");
        }
    }
    Ok(())
}
