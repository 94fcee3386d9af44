//! `loligo cache`: devices that many cores share.

use crate::outcome::{Json, Patience, refuse, show};
use crate::values;
use anyhow::Result;
use clap::Subcommand;
use loligo_client::api::listed::Listed;
use loligo_client::api::pool::{AttachCore, DetachCore, PoolView, ResizeCore, view_rows};
use loligo_client::api::status::Status;
use loligo_client::api::volume::ChangeState;
use loligo_client::client::{DaemonClient, Until};
use loligo_log::{outln, say};
use loligo_volume::pool::{self, Attach, CoreName, Pool, PoolSpec, Resize};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// One cache device that many cores share
///
/// 'create' makes a pool of a device or file, 'attach' gives a core a share of it, and 'loligo serve --cache pool:PATH#CORE'
/// serves that core from its share. Each core keeps a cache of its own: its load, its dirty data and its damage do not
/// touch the others.
///
/// One process has a pool at a time. 'show', 'attach', 'detach' and 'resize' of a core work while none does, and while it is the
/// daemon that serves volumes from it: it does then what is asked, and the other volumes are served on. 'create', 'dissolve' and
/// 'resize' of the pool itself need a pool that nobody has; so does everything, where a 'loligo serve' has it.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Sizes are bytes, or k, m, g, t in either case, optionally followed by iB: powers of 1024.

Examples:
  loligo cache create /dev/nvme0n1p3
  loligo cache attach /dev/nvme0n1p3 --core 0 --name osd0 --min 8g --max 100g
  loligo serve --name osd0 --cache pool:/dev/nvme0n1p3#0 --core /dev/sdb --mode wb \\
    --listen unix:/run/osd0.sock
  loligo cache show /dev/nvme0n1p3
  loligo cache resize /dev/nvme0n1p3 osd0 --size 50g"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make an empty pool
    ///
    /// Refuses a device that holds anything, unless told otherwise.
    Create {
        /// A block device, or a file
        path: PathBuf,
        /// Bytes of it, 64 MiB or more (default: the whole device; needed for a file that does not exist)
        #[arg(long, value_name = "SIZE", value_parser = values::size)]
        size: Option<u64>,
        /// Do not write a new file whole: it grows as it is used, and may find no room then
        #[arg(long)]
        sparse: bool,
        /// Overwrite what is there
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Show a pool and its cores
    Show {
        /// The pool
        path: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give a core a share
    ///
    /// The share begins with what it is promised. Its cache is made when the core is first served.
    ///
    /// Where the daemon serves other cores of the pool, and these have grown into all of it, they give back what they have beyond their
    /// own promise first: what is dirty there is written to their disks, which takes a while. Ctrl-C gives that up.
    Attach {
        /// The pool
        path: PathBuf,
        /// The core's number, 0 to 4095 (default: the lowest free one, which is printed)
        #[arg(long, value_name = "N")]
        core: Option<u16>,
        /// A name for it, usually the volume's
        #[arg(long)]
        name: String,
        /// Bytes that it always has: nobody takes them from it
        #[arg(long, value_name = "SIZE", value_parser = values::size)]
        min: u64,
        /// Bytes that it may have, for good (default: eight times --min, at most the pool)
        ///
        /// What it may have costs about 8.3 bytes of memory for each 4 KiB, what it has 12 more.
        #[arg(long, value_name = "SIZE", value_parser = values::size)]
        max: Option<u64>,
        /// What it gets of what several want, in proportion to the others'
        #[arg(long, value_name = "N", default_value_t = 100)]
        weight: u32,
        /// Shards of its cache, for good; each has a thread, those of an RBD image have one
        #[arg(long, value_name = "N", default_value_t = 1)]
        shards: u16,
        /// Wait so long at most for room that others give; after that nothing is attached, and the exit status is 4
        #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
        timeout: Option<Duration>,
        #[command(flatten)]
        json: Json,
    },
    /// Take a core's share away
    ///
    /// Refused while it is served, and while its cache holds what the core does not have. Other cores of the pool may be served
    /// by the daemon meanwhile.
    Detach {
        /// The pool
        path: PathBuf,
        /// The core's number or name
        core: CoreName,
        /// Lose what its cache holds
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Change a core's share, or take in what the pool's device has grown by
    ///
    /// A share that gets smaller drops what is clean in the part it loses; what is dirty is moved. Its cache must have been
    /// stopped cleanly, or be served by the daemon: then --size acts at once, and what is dirty in the part that goes is written to
    /// the core. With --min and --weight alone the shares that are served follow in the seconds after.
    Resize {
        /// The pool
        path: PathBuf,
        /// The core's number or name; without it, the pool itself follows its device
        core: Option<CoreName>,
        /// Bytes that it has from now on
        #[arg(long, value_name = "SIZE", value_parser = values::size, requires = "core")]
        size: Option<u64>,
        /// Bytes that nobody takes from it
        #[arg(long, value_name = "SIZE", value_parser = values::size, requires = "core")]
        min: Option<u64>,
        /// What it gets of what several want
        #[arg(long, value_name = "N", requires = "core")]
        weight: Option<u32>,
        #[command(flatten)]
        patience: Patience,
        #[command(flatten)]
        json: Json,
    },
    /// Make the device no pool any more; refused while it has cores
    Dissolve {
        /// The pool
        path: PathBuf,
        #[command(flatten)]
        json: Json,
    },
}

/// A pool that the daemon has open: the daemon, the pool's whole path, and what it has.
struct Beside {
    daemon: DaemonClient,
    path: PathBuf,
    view: PoolView,
}

impl Beside {
    /// The pool at `path`, if it is the daemon's. Where that cannot be asked, the device's lock tells.
    fn of(path: &Path) -> Option<Beside> {
        let path = path.canonicalize().ok()?;
        let daemon = DaemonClient::new().ok()?;
        let view = daemon.pool(&path).ok()??;
        Some(Beside { daemon, path, view })
    }

    fn number(&self, core: &CoreName) -> Option<u16> {
        let is_it = |name: &str, number: u16| match core {
            CoreName::Number(n) => *n == number,
            CoreName::Name(n) => n == name,
        };
        self.view.cores.iter().find(|m| is_it(&m.name, m.core)).map(|m| m.core)
    }

    /// The volume that is served from `core`.
    fn volume(&self, core: &CoreName) -> Result<Option<String>> {
        let number = self.number(core);
        let same = |volume: &Listed| {
            let spec = PoolSpec::of(volume.definition.cache.as_ref()?).ok()??;
            let here = spec.path.canonicalize().ok()? == self.path;
            Some(here && self.number(&spec.core) == number && volume.status == Status::Serving)
        };
        let volumes = self.daemon.volumes()?;
        Ok(volumes.into_iter().find(|v| number.is_some() && same(v) == Some(true)).map(|v| v.name))
    }

    fn attach(self, a: Attach, limit: Option<Duration>) -> Result<u16> {
        if self.view.free_bytes < a.min {
            say!(
                "{} bytes are free, {} are wanted: cores that are served give what they have beyond their promise; Ctrl-C gives it up",
                self.view.free_bytes,
                a.min
            );
        }
        let Attach { number: core, name, min, max, weight, shards } = a;
        let daemon = self.daemon.waiting(Until::Over, limit);
        daemon.attach_core(&AttachCore { path: self.path, core, name, min, max, weight, shards })
    }

    fn detach(self, core: &CoreName, force: bool) -> Result<Option<String>> {
        self.daemon.detach_core(&DetachCore { path: self.path, core: core.to_string(), force })
    }

    fn resize(self, core: &CoreName, to: &Resize, patience: Patience) -> Result<Option<ChangeState>> {
        let served = if to.size.is_some() { self.volume(core)? } else { None };
        let size = to.size.filter(|_| served.is_none());
        if size.is_some() || to.min.is_some() || to.weight.is_some() {
            let (min, weight) = (to.min, to.weight);
            let path = self.path.clone();
            self.daemon.resize_core(&ResizeCore { path, core: core.to_string(), size, min, weight })?;
        }
        let daemon = self.daemon.waiting(patience.until(), patience.limit());
        let change = served.zip(to.size).map(|(volume, bytes)| daemon.resize_cache(&volume, bytes));
        change.transpose()
    }
}

/// Does it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.command {
        Command::Create { path, size, sparse, force, json } => {
            let view = pool::create(&path, size, sparse, force)?.view()?;
            json.done(&view, || view_rows(&view).iter().for_each(|row| say!("{row}")))?;
        }
        Command::Show { path, json } => {
            let view = match Beside::of(&path) {
                Some(beside) => beside.view,
                None => Pool::open_idle(&path)?.view()?,
            };
            show(json, &view, || view_rows(&view).iter().for_each(|row| outln!("{row}")))?;
        }
        Command::Attach { path, core, name, min, max, weight, shards, timeout, json } => {
            let wanted = Attach { number: core, name, min, max, weight, shards };
            let number = match Beside::of(&path) {
                Some(beside) => beside.attach(wanted, timeout)?,
                None => Pool::open_idle(&path)?.attach(&wanted)?,
            };
            json.done(json!({ "core": number }), || {
                outln!("{number}");
                say!("serve it with --cache pool:{}#{number}", path.display());
            })?;
        }
        Command::Detach { path, core, force, json } => {
            let lost = match Beside::of(&path) {
                Some(beside) => beside.detach(&core, force)?,
                None => Pool::open_idle(&path)?.detach(&core, force)?,
            };
            json.done(json!({ "lost": lost }), || lost.iter().for_each(|lost| say!("{lost}")))?;
        }
        Command::Resize { path, core: None, json, .. } => {
            let more = pool::grow(&path)?;
            json.done(json!({ "grown_bytes": more }), || {
                say!("{} has {more} bytes more", path.display());
            })?;
        }
        Command::Resize { path, core: Some(core), size, min, weight, patience, json } => {
            if size.is_none() && min.is_none() && weight.is_none() {
                return refuse("nothing is to change: give --size, --min or --weight");
            }
            let to = Resize { size, min, weight };
            let change = match Beside::of(&path) {
                Some(beside) => beside.resize(&core, &to, patience)?,
                None => Pool::open_idle(&path)?.resize(&core, &to).map(|()| None)?,
            };
            match change {
                Some(change) => json.changed(&change)?,
                None => json.done(json!({ "core": core.to_string() }), || ())?,
            }
        }
        Command::Dissolve { path, json } => {
            pool::dissolve(&path)?;
            json.done(json!({ "pool": path }), || ())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
