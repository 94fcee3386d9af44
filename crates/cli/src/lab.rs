//! `loligo lab`.

use crate::array;
use crate::lab_fault;
use crate::lab_place::Where;
use crate::outcome::{Json, show as show_as};
use anyhow::{Context, Result, bail};
use clap::{Args as Flags, Subcommand};
use loligo_bench::table::Table;
use loligo_bench::units;
use loligo_client::client::Client;
use loligo_client::outcome::OrRefused;
use loligo_format::mode::Mode;
use loligo_lab::config::{Aside, Data, Hosts, LabConfig};
use loligo_lab::down;
use loligo_lab::interrupt::Interrupt;
use loligo_lab::status::{self, Status};
use loligo_lab::up::{self, UpOptions};
use loligo_log::{out, outln, say};
use loligo_volume::profile::Profile;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// A real Ceph cluster on this machine, for tests, demos and benchmarks
///
/// Runs monitor, manager and OSDs (BlueStore, cephx on) from the system's packages, in a folder of their own
/// and with their own ports. Several labs can run side by side. A lab never touches another cluster, nor a
/// process that it did not start.
#[derive(Debug, Flags)]
#[command(after_long_help = "Examples:
  Three OSDs on files, and stock tools on it:
    loligo lab up
    eval \"$(loligo lab env)\"
    rbd create --size 10G rbd/image; ceph status
    loligo lab down
  Three OSDs on modelled 7,200 rpm disks, two copies:
    loligo lab up --data hdd --replicas 2 --dir /data/hddlab
  The same with a cache of 1 GiB under each OSD:
    loligo lab up --data hdd --cache 1g --replicas 2 --dir /data/cachedlab
    loligo lab cache status --dir /data/cachedlab
  From a file:
    loligo lab up lab.toml
  Three nodes of two controllers that share an array, and a controller that dies:
    loligo lab up --pairs 3
    loligo lab fail controller n0a; loligo lab status
    loligo lab mend

A file holds the same settings as the flags; what a flag says wins:
  osds = 3                # osd-size = \"10g\", data = \"hdd\" or [\"/dev/sdb\", ...]
  replicas = 3            # pool = \"rbd\", pg-num = 32, rpm = 7200
  db = \"file\"             # or devices; wal the same
  hosts = \"namespaces\"    # pairs = 3, mons = 3, agents = false
  array-defects = [\"forgets-at-power-cycle\"]
  public-network = \"127.0.0.0/8\"
  [layout]                # OSDs by CRUSH host, each osd:data:db_wal
  node1 = [\"0:/dev/sdb:/dev/nvme0n1p1\", \"1:/dev/sdc:/dev/nvme0n1p2\"]
  [set]                   # options of Ceph
  \"osd.osd_op_num_shards\" = \"5\"")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Up(Box<Up>),
    Status(Look),
    /// Print what lets stock tools speak to a lab: eval "$(loligo lab env)"
    Env(Where),
    Exec(Exec),
    /// Look at the caches that OSDs stand on
    #[command(subcommand)]
    Cache(Caches),
    Down(Down),
    Fail(lab_fault::Fail),
    Mend(lab_fault::Mend),
    #[command(subcommand)]
    Power(lab_fault::Power),
    Array(array::Args),
}

#[derive(Debug, Subcommand)]
enum Caches {
    /// Show how each is: mode, what it holds, hits, what its core lacks
    Status(Look),
}

/// Make a cluster and start it; returns when it says HEALTH_OK
///
/// A lab that was taken down with --keep is started again with its data. Ctrl-C stops and removes what was begun.
#[derive(Debug, Flags)]
struct Up {
    /// A TOML file with the lab's settings (see 'loligo lab --help')
    file: Option<PathBuf>,
    /// The number of OSDs [default: 3]
    #[arg(long)]
    osds: Option<u32>,
    /// Nodes of two controllers that share an array, with an OSD for each controller (needs root)
    #[arg(long, value_name = "NODES")]
    pairs: Option<u32>,
    /// Monitors; those of pairs die with a controller, unless there is but one [default: 3 with 3 pairs or more,
    /// else 1]
    #[arg(long)]
    mons: Option<u32>,
    /// With pairs: OSDs are started by the agents of 'loligo pair' (on), or by the lab on their home controllers
    /// (off) [default: on]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    agents: Option<String>,
    /// With pairs: each controller serves a volume over an image of this size
    #[arg(long, value_name = "SIZE")]
    volumes: Option<String>,
    /// With volumes: bytes of the cache of each, on the array [default: 256m]
    #[arg(long, value_name = "SIZE")]
    volume_cache: Option<String>,
    /// With volumes: each cache has a mirror, on a second array of its node
    #[arg(long)]
    mirror: bool,
    /// With pairs: a defect of the arrays, as 'loligo lab array --defect' knows it (repeatable)
    #[arg(long = "array-defect", value_name = "DEFECT", value_enum)]
    array_defects: Vec<array::Defect>,
    /// Bytes of each OSD's data, where it is a file [default: 10g, with pairs 3g]
    #[arg(long, value_name = "SIZE")]
    osd_size: Option<String>,
    /// The devices that OSDs keep their data on: file, hdd (a modelled spinning disk), or a device for each:
    /// DEV,DEV,... [default: file]
    #[arg(long, value_name = "KIND")]
    data: Option<Data>,
    /// Revolutions a minute of the modelled disks: 7200 or 10000 [default: 7200]
    #[arg(long)]
    rpm: Option<u32>,
    /// The place of BlueStore's database: file, or a device for each OSD: DEV,DEV,... [default: with the
    /// data]
    #[arg(long, value_name = "FILE|DEV")]
    db: Option<Aside>,
    /// The place of BlueStore's write-ahead log: file, or a device for each OSD [default: with the database]
    #[arg(long, value_name = "FILE|DEV")]
    wal: Option<Aside>,
    /// Put a flash cache of so many bytes in front of each OSD's data; of pairs it is a LUN of the array
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// The folder that the caches lie in [default: the lab's own]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Their mode [default: wb]
    #[arg(long, value_name = "MODE")]
    cache_mode: Option<Mode>,
    /// A named set of their tunables, as 'loligo serve --profile' knows them [default: osd-hdd on modelled disks]
    #[arg(long, value_name = "NAME", value_parser = crate::values::profile)]
    cache_profile: Option<&'static Profile>,
    /// A tunable of theirs, as 'loligo param' names it (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::values::param)]
    cache_set: Vec<(String, String)>,
    /// Copies of each object, 1 to 10 [default: 3; on fewer pairs one for each, on a single one 2]
    #[arg(long)]
    replicas: Option<u32>,
    /// The pool that is made [default: rbd]
    #[arg(long)]
    pool: Option<String>,
    /// Placement groups of the pool [default: by the number of OSDs and copies]
    #[arg(long)]
    pg_num: Option<u32>,
    /// Give each OSD, and a client, a network namespace of its own (needs root)
    #[arg(long, value_name = "namespaces", value_parser = ["namespaces", "loopback"])]
    hosts: Option<String>,
    #[command(flatten)]
    place: Where,
    /// An option of Ceph, as osd.osd_op_num_shards=5 (repeatable)
    #[arg(long = "set", value_name = "SECTION.OPTION=VALUE")]
    options: Vec<String>,
    /// Overwrite devices that hold data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    json: Json,
}

/// Show how a lab is
#[derive(Debug, Flags)]
struct Look {
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Run a command against a lab's cluster
///
/// Its exit status is the command's. With --host it runs in that host's network (labs with --hosts namespaces, or
/// --pairs).
#[derive(Debug, Flags)]
struct Exec {
    #[command(flatten)]
    place: Where,
    /// One of the lab's hosts: osd0, osd1, ..., client; n0a, n0b, ..., client of pairs
    #[arg(long)]
    host: Option<String>,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Stop a lab and remove it with its data
#[derive(Debug, Flags)]
struct Down {
    #[command(flatten)]
    place: Where,
    /// Stop only: 'lab up' with the same folder starts it again
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    json: Json,
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Up(a) => bring_up(*a),
        What::Status(a) => show(&a),
        What::Env(a) => {
            for (name, value) in status::environment(&a.dir())? {
                outln!("export {name}='{}'", value.replace('\'', r"'\''"));
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Exec(a) => {
            let (program, rest) = a.command.split_first().context("a command is needed")?;
            let mut command = status::command(&a.place.dir(), a.host.as_deref(), program, rest)?;
            // Only an error comes back: signals and the exit status are the command's own.
            Err(command.exec()).with_context(|| format!("running {program}"))
        }
        What::Cache(Caches::Status(a)) => show_caches(&a),
        What::Fail(a) => lab_fault::fail(&a),
        What::Mend(a) => lab_fault::mend(&a),
        What::Power(a) => lab_fault::power(&a),
        What::Array(a) => array::run(&a),
        What::Down(a) => {
            down::down(&a.place.dir(), a.keep, &mut steps())?;
            a.json.done(json!({ "dir": a.place.dir(), "kept": a.keep }), || ())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Says each step on standard error, with the time since the first.
fn steps() -> impl FnMut(&str) {
    let begun = Instant::now();
    move |text: &str| {
        say!("[{:5.1} s] {text}", begun.elapsed().as_secs_f64());
    }
}

fn bring_up(a: Up) -> Result<ExitCode> {
    let json = a.json;
    let options = UpOptions {
        dir: a.place.dir(),
        program: std::env::current_exe().context("the path of this program")?,
        force: a.force,
        config: config(a).or_refused()?,
    };
    options.config.plan().or_refused()?;
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let mut step = steps();
    let state = up::up(&options, &stop, &mut step)?;
    step(&format!("HEALTH_OK: cluster {}", state.fsid));
    let dir = options.dir.display();
    say!("Speak to it: eval \"$(loligo lab env --dir {dir})\"");
    json.done(json!({ "dir": options.dir, "fsid": state.fsid }), || ())?;
    Ok(ExitCode::SUCCESS)
}

fn config(a: Up) -> Result<LabConfig> {
    let mut c = a.file.as_deref().map_or_else(|| Ok(LabConfig::default()), LabConfig::read)?;
    let LabConfig { osds, pairs, data, rpm, pool, .. } = &mut c;
    fn put<T>(to: &mut T, said: Option<T>) {
        if let Some(said) = said {
            *to = said;
        }
    }
    put(osds, a.osds);
    put(pairs, a.pairs);
    put(data, a.data);
    put(rpm, a.rpm);
    put(pool, a.pool);
    c.osd_size = a.osd_size.or(c.osd_size);
    c.replicas = a.replicas.or(c.replicas);
    c.mons = a.mons.or(c.mons);
    if let Some(agents) = a.agents {
        c.agents = agents == "on";
    }
    c.volumes = a.volumes.or(c.volumes);
    if let Some(size) = a.volume_cache {
        c.volume_cache = size;
    }
    c.mirror |= a.mirror;
    c.array_defects.extend(a.array_defects.iter().map(|defect| defect.name()));
    c.pg_num = a.pg_num.or(c.pg_num);
    c.cache = a.cache.or(c.cache);
    c.cache_dir = a.cache_dir.map(std::path::absolute).transpose()?.or(c.cache_dir);
    if let Some(mode) = a.cache_mode {
        c.cache_mode = mode.name().to_owned();
    }
    c.cache_profile = a.cache_profile.map(|p| p.name.to_owned()).or(c.cache_profile);
    c.cache_set.extend(a.cache_set);
    c.db = a.db.or(c.db);
    c.wal = a.wal.or(c.wal);
    if let Some(hosts) = a.hosts {
        c.hosts = if hosts == "namespaces" { Hosts::Namespaces } else { Hosts::Loopback };
    }
    for option in &a.options {
        let Some((key, value)) = option.split_once('=') else {
            bail!("--set {option}: write section.option=value, as osd.osd_op_num_shards=5");
        };
        c.set.insert(key.trim().to_owned(), value.trim().to_owned());
    }
    Ok(c)
}

fn show(a: &Look) -> Result<ExitCode> {
    let s = status::status(&a.place.dir())?;
    show_as(a.json, &s, || print(&s))?;
    Ok(ExitCode::SUCCESS)
}

fn print(s: &Status) {
    let line = |key: &str, value: String| outln!("{key:<18} {value}");
    line("lab", format!("{} ({})", s.dir.display(), s.state));
    line("cluster", s.fsid.clone());
    line("health", s.health.clone().unwrap_or_else(|| "-".to_owned()));
    if let Some(up) = s.osds_up {
        line("OSDs up", up.to_string());
    }
    if let Some([clean, all]) = s.pgs {
        line("placement groups", format!("{clean} of {all} active and clean"));
    }
    if let Some([used, all]) = s.bytes {
        line("stored", format!("{} of {}", units::bytes(used as f64), units::bytes(all as f64)));
    }
    line("pool", format!("{}, {} copies", s.config.pool, s.config.copies()));
    line("OSD cache", units::bytes(s.osd_cache_bytes as f64));
    for d in &s.daemons {
        let rss = d.rss_bytes.map(|b| format!(", {}", units::bytes(b as f64))).unwrap_or_default();
        let how = if d.running { format!("process {}{rss}", d.pid) } else { "not running".to_owned() };
        line(&d.name, how);
    }
    print_pairs(s);
}

fn print_pairs(s: &Status) {
    let line = |key: &str, value: String| outln!("{key:<18} {value}");
    for c in &s.controllers {
        let link = |name: &str, up: bool| if up { String::new() } else { format!(", {name} link down") };
        let osds: Vec<String> = c.osds.iter().map(|id| format!("osd.{id}")).collect();
        let osds = if osds.is_empty() { "no OSD".to_owned() } else { osds.join(", ") };
        let links = [link("public", c.public_link), link("private", c.private_link)].concat();
        line(&c.name, format!("{}, {osds}{links}", c.power));
    }
    for volume in &s.volumes {
        line(&volume.name, format!("nbd://{}, {} at home on {}", volume.address, volume.image, volume.home));
    }
    for array in &s.arrays {
        let Some(luns) = &array.luns else {
            line(&array.array, "the array does not answer".to_owned());
            continue;
        };
        for lun in luns {
            let key = |key: &loligo_pair::reservation::Key| format!("{:#x}", key.0);
            let held = lun.reservation.held.as_ref().map(|(holder, _)| key(holder));
            let keys: Vec<String> = lun.reservation.keys.iter().map(key).collect();
            let keys =
                if keys.is_empty() { "no keys".to_owned() } else { format!("keys {}", keys.join(", ")) };
            let faults: Vec<String> = lun.faults.keys().map(|path| format!(", fault by {path}")).collect();
            let held = held.map(|holder| format!(", held by {holder}")).unwrap_or_default();
            line(&format!("{} {}", array.array, lun.lun), format!("{keys}{held}{}", faults.concat()));
        }
    }
    for fault in &s.faults {
        line("fault", format!("{} {} since {} ms", fault.kind, fault.target, fault.at_ms));
    }
}

/// The columns of `lab cache status`.
const SHOWN: [&str; 9] = [
    "mode",
    "cache_bytes",
    "occupied_bytes",
    "dirty_bytes",
    "read_hits",
    "read_misses",
    "write_hits",
    "write_misses",
    "poisoned",
];

fn show_caches(a: &Look) -> Result<ExitCode> {
    let lab = a.place.dir();
    let caches = status::caches(&lab)?;
    let mut all = serde_json::Map::new();
    for (osd, cache) in caches {
        all.insert(osd, Client::at(&cache.runtime_dir, &cache.volume)?.stats()?);
    }
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(std::iter::once("OSD").chain(SHOWN));
    for (osd, stats) in &all {
        let word = |key: &&str| match &stats[*key] {
            serde_json::Value::String(s) => s.clone(),
            serde_json::Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        table.row(std::iter::once(osd.clone()).chain(SHOWN.iter().map(word)));
    }
    out!("{}\n", table.text());
    Ok(ExitCode::SUCCESS)
}
