//! `loligo cache`: devices that many cores share.

use crate::out::outln;
use crate::values;
use anyhow::Result;
use clap::Subcommand;
use loligo_service::client::DaemonClient;
use loligo_service::daemon::Listed;
use loligo_service::daemon::entry::Status;
use loligo_service::pool::{self, Attach, CoreName, Pool, PoolSpec, Resize, view_json, view_rows};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One cache device that many cores share
///
/// 'create' makes a pool of a device or file, 'attach' gives a core a share of it, and 'loligo serve --cache pool:PATH#CORE'
/// serves that core from its share. Each core keeps a cache of its own: its load, its dirty data and its damage do not
/// touch the others. One process has a pool at a time; these commands work while none does,
/// but for 'resize --size' of a share that the daemon serves.
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
        /// Threads of its cache, for good
        #[arg(long, value_name = "N", default_value_t = 1)]
        shards: u16,
    },
    /// Take a core's share away
    ///
    /// Refused while its cache holds what the core does not have.
    Detach {
        /// The pool
        path: PathBuf,
        /// The core's number or name
        core: CoreName,
        /// Lose what its cache holds
        #[arg(long)]
        force: bool,
    },
    /// Change a core's share, or take in what the pool's device has grown by
    ///
    /// A share that gets smaller drops what is clean in the part it loses; what is dirty is moved. Its cache must have been
    /// stopped cleanly, or be served by the daemon, whose definition names the core as it is named here: then --size acts at once, and
    /// what is dirty in the part that goes is written to the core.
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
    },
    /// Make the device no pool any more; refused while it has cores
    Dissolve {
        /// The pool
        path: PathBuf,
    },
}

/// The volume of the daemon that is served through this share, by the name that its definition has for the core.
fn served(path: &Path, core: &CoreName) -> Option<String> {
    let same = |volume: &Listed| {
        let spec = PoolSpec::of(volume.definition.cache.as_ref()?).ok()??;
        let paths = (spec.path.canonicalize().ok()?, path.canonicalize().ok()?);
        Some(spec.core == *core && paths.0 == paths.1 && volume.status == Status::Serving)
    };
    let volumes = DaemonClient::new().and_then(|daemon| daemon.volumes()).ok()?;
    volumes.into_iter().find(|v| same(v) == Some(true)).map(|v| v.name)
}

/// Does it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.command {
        Command::Create { path, size, sparse, force } => {
            let pool = pool::create(&path, size, sparse, force)?;
            view_rows(&pool.view()?).iter().for_each(|row| eprintln!("{row}"));
        }
        Command::Show { path, json } => {
            let view = Pool::open_idle(&path)?.view()?;
            if json {
                outln!("{}", serde_json::to_string_pretty(&view_json(&view))?);
            } else {
                view_rows(&view).iter().for_each(|row| outln!("{row}"));
            }
        }
        Command::Attach { path, core, name, min, max, weight, shards } => {
            let pool = Pool::open_idle(&path)?;
            let number = pool.attach(&Attach { number: core, name, min, max, weight, shards })?;
            outln!("{number}");
            eprintln!("serve it with --cache pool:{}#{number}", path.display());
        }
        Command::Detach { path, core, force } => Pool::open_idle(&path)?.detach(&core, force)?,
        Command::Resize { path, core: None, .. } => {
            let more = pool::grow(&path)?;
            eprintln!("{} has {more} bytes more", path.display());
        }
        Command::Resize { path, core: Some(core), size, min, weight } => {
            anyhow::ensure!(
                size.is_some() || min.is_some() || weight.is_some(),
                "nothing is to change: give --size, --min or --weight"
            );
            match (served(&path, &core), size) {
                (Some(volume), Some(bytes)) if min.is_none() && weight.is_none() => {
                    crate::volume::changed(&DaemonClient::new()?.resize_cache(&volume, bytes)?, false)?;
                }
                _ => Pool::open_idle(&path)?.resize(&core, &Resize { size, min, weight })?,
            }
        }
        Command::Dissolve { path } => pool::dissolve(&path)?,
    }
    Ok(ExitCode::SUCCESS)
}
