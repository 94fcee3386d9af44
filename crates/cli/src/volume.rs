//! `loligo volume`.

mod definition;
mod listing;

use crate::outcome::{Json, Named, Patience, refuse};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use listing::{list, show};
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::daemon::{Attach, Create, Resize, Stop};
use loligo_client::api::definition::{Bytes, Leave, VolumeConfig, Word, beside, way_beside};
use loligo_client::api::status::Status;
use loligo_client::api::volume::{Bound, WhichSocket};
use loligo_client::client::{DaemonClient, Until};
use loligo_client::outcome::{Ended, OrRefused};
use loligo_log::{outln, say};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// List, make, start and stop the volumes of the daemon; attach, detach and resize while they are served
///
/// 'loligo stats', 'flush', 'mode' and 'param' take the name of such a volume too.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  loligo volume list
  loligo volume create osd3 --core /dev/sdd --cache /dev/nvme0n1p4 --mode wb \\
    --listen fuse:/run/osd3 --param seq-cutoff=always
  loligo volume stop osd3 --flush
  loligo volume detach osd3
  loligo volume attach osd3 --cache /dev/nvme1n1p1
  loligo volume resize osd3
  loligo volume delete osd3")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: what it is and how it is
    Show {
        /// The volume
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a volume and start it; it is remembered over restarts of the daemon
    Create(Box<CreateArgs>),
    /// Forget a stopped volume that was made by command; cache and core stay as they are
    Delete {
        /// The volume
        name: String,
        /// Also where its cache holds what its core does not have
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Forget the cache that a stopped volume was served through, so that it can have another cache, or the
    /// name another core
    ///
    /// The name may be that of a volume which no longer exists. The cache stays as it is: a volume that gets
    /// it is served its content, until its core was served without it.
    Forget {
        /// The volume
        name: String,
        /// Also where the cache holds what its core does not have
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: Json,
    },
    /// Start one; that holds over restarts of the daemon
    Start {
        #[command(flatten)]
        allow: Allow,
        #[command(flatten)]
        of: Named,
    },
    /// Stop one; that holds over restarts of the daemon
    Stop {
        /// Write everything dirty to the core first
        #[arg(long)]
        flush: bool,
        /// Do not wait for users of its block device, nor for a flush: users get errors, and dirty data stays on the cache
        #[arg(long, conflicts_with = "flush")]
        force: bool,
        #[command(flatten)]
        of: Named,
    },
    /// End one at once, as the death of its process would: for a controller whose partner takes over
    ///
    /// Nothing is written to cache or core, nothing is sent to its cluster, and no device is waited for, also
    /// where one hangs. Clients are hung up on. The cache is as after a crash. Nothing is remembered: the
    /// daemon's next start starts it.
    End {
        #[command(flatten)]
        of: Named,
    },
    /// Listen on sockets of its definition that wait to be told (tcp:ADDR:PORT?when-told), or on the one that is named
    Bind(Socket),
    /// Let go of such sockets and hang up on the clients that came by them: the address can go afterwards
    Unbind(Socket),
    /// Put a new cache in front of a bare volume while its clients go on; it stays over restarts
    ///
    /// The cache is made empty, and its former content is dropped. It is refused if the device holds anything
    /// else. Clients wait only while the engines are exchanged.
    Attach(Box<AttachArgs>),
    /// Write all dirty data to the core and take the cache away while the clients go on; it stays away over restarts
    ///
    /// Meanwhile writes go through to the core. An interrupt (Ctrl-C) during that time gives it up, and the volume keeps its cache. Afterwards
    /// the device is no cache any more, as after 'loligo release'.
    Detach(Named),
    /// Have a served one take the size that its core has by now
    ///
    /// Mounts and block devices follow at once; ublk devices that are open follow from Linux 6.16 on. NBD
    /// clients follow when they connect again. A volume does not get smaller while it is served.
    Resize {
        /// Make a core in a file so long first
        #[arg(long, value_parser = crate::values::size)]
        size: Option<u64>,
        #[command(flatten)]
        of: Named,
    },
    /// Stop one and start it again, as it is defined now
    ///
    /// Faults of its definition that can be seen while it is served, as by 'loligo config check', are
    /// reported before it is stopped. Faults that only a start sees, on a device that is in use until then,
    /// are not.
    Restart(Named),
}

#[derive(Debug, clap::Args)]
struct Socket {
    /// The volume
    name: String,
    /// The socket's address; left out: those that wait to be told
    listen: Option<String>,
    #[command(flatten)]
    json: Json,
}

impl Socket {
    fn which(&self) -> WhichSocket {
        WhichSocket { listen: self.listen.clone() }
    }

    fn done(self, bound: &Bound) -> Result<()> {
        self.json.done(bound, || outln!("clients come by {}", bound.listen.join(", ")))
    }
}

/// Permissions for one start alone.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Allow {
    /// Insist on a new cache: refuse one that exists (with --force: replace it)
    #[arg(long)]
    create: bool,
    /// Overwrite foreign data, give up damaged or missing data, use a core whose content differs
    #[arg(long)]
    force: bool,
    /// Take an RBD image away from the client that has it: that client is fenced first
    #[arg(long)]
    steal: bool,
    /// Open an RBD image although another cache holds data that it lacks, and lose that data
    #[arg(long)]
    force_without_cache: bool,
    /// Believe one device of a mirrored cache although the other cannot be seen: what that holds alone is lost
    #[arg(long)]
    mirror_alone: bool,
}

impl Allow {
    fn leave(self) -> Leave {
        Leave {
            create: self.create,
            force: self.force,
            steal: self.steal,
            without_cache: self.force_without_cache,
            mirror_alone: self.mirror_alone,
        }
    }
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Its name
    name: String,
    /// The core, as for 'loligo serve'
    #[arg(long, value_name = "SPEC", required_unless_present = "definition")]
    core: Option<String>,
    /// The cache: a file or block device; left out, the core is served bare. It needs --mode or --profile
    #[arg(long, value_name = "PATH")]
    cache: Option<PathBuf>,
    /// Bytes of a new cache (default: the whole device)
    #[arg(long, value_name = "SIZE")]
    cache_size: Option<String>,
    /// A device on the partner's array that holds the same as the cache, as for 'loligo serve'
    #[arg(long, value_name = "PATH", requires = "cache")]
    journal_mirror: Option<PathBuf>,
    /// Once it is gone: preferred or required, as for 'loligo serve'
    #[arg(long, value_name = "WORD", requires = "journal_mirror")]
    mirror: Option<String>,
    /// wt, wb, wa, wi, wo or pt
    #[arg(long, requires = "cache")]
    mode: Option<String>,
    /// A named set of tunables, as for 'loligo serve'
    #[arg(long, value_name = "NAME", requires = "cache")]
    profile: Option<String>,
    /// The way that clients come, as for 'loligo serve'; may be given several times
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// A tunable; may be given several times
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = crate::values::param)]
    params: Vec<(String, String)>,
    /// Any other key of a [volume.NAME] section of the configuration: "shards = 2"; may be given several times
    #[arg(long, value_name = "KEY = VALUE")]
    set: Vec<String>,
    /// A file with such keys, or the output of 'volume show', with --json or without; options given beside it win
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    #[command(flatten)]
    allow: Allow,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
}

impl CreateArgs {
    fn definition(&self) -> Result<VolumeConfig> {
        let mut all = toml::Table::new();
        if let Some(file) = &self.definition {
            let at = || file.display().to_string();
            let text = std::fs::read_to_string(file).with_context(at)?;
            all = definition::read(&text, &self.name).with_context(at)?;
        }
        for line in &self.set {
            all.extend(definition::parse(line)?);
        }
        let mut put = |key: &str, value: Option<toml::Value>| {
            if let Some(value) = value {
                all.insert(key.to_owned(), value);
            }
        };
        put("core", self.core.clone().map(Into::into));
        put("cache", self.cache.as_ref().map(|c| c.display().to_string().into()));
        put("cache-size", self.cache_size.clone().map(Into::into));
        put("journal-mirror", self.journal_mirror.as_ref().map(|m| m.display().to_string().into()));
        put("mirror", self.mirror.clone().map(Into::into));
        put("mode", self.mode.clone().map(Into::into));
        put("profile", self.profile.clone().map(Into::into));
        put("listen", Some(self.listen.clone().into()).filter(|_| !self.listen.is_empty()));
        if !self.params.is_empty() {
            let params: toml::Table =
                self.params.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
            put("params", Some(params.into()));
        }
        // A path in a command is meant in the folder where that was typed, and the daemon's is another.
        let here = std::env::current_dir()?;
        let mut wanted: VolumeConfig = all.try_into()?;
        wanted.core = beside(&here, &wanted.core);
        wanted.cache = wanted.cache.map(|cache| beside(&here, &cache.display().to_string()).into());
        wanted.journal_mirror = wanted.journal_mirror.map(|path| here.join(path));
        wanted.listen.iter_mut().for_each(|way| *way = way_beside(&here, way));
        Ok(wanted)
    }
}

#[derive(Debug, clap::Args)]
struct AttachArgs {
    /// The volume
    name: String,
    /// The cache: a file or block device, or a core's share of a pool: pool:PATH#CORE
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// Bytes of it (default: the whole device); a missing file is made this long
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    cache_size: Option<u64>,
    /// Do not write a new file whole
    #[arg(long)]
    sparse: bool,
    /// wt, wb, wa, wi, wo or pt. Without it and --profile, the mode, profile, cache line and tunables of the
    /// volume's definition hold
    #[arg(long)]
    mode: Option<String>,
    /// A named set of tunables, as for 'loligo serve'
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Cache line: 4k, 8k, 16k, 32k or 64k (default 4k)
    #[arg(long, value_name = "SIZE", value_parser = crate::values::size)]
    line_size: Option<u64>,
    /// A tunable; may be given several times
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = crate::values::param)]
    params: Vec<(String, String)>,
    /// Overwrite what lies there, also another cache
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    json: Json,
}

impl AttachArgs {
    fn wanted(&self) -> Result<Attach> {
        let cache = CacheConfig {
            cache: Some(beside(&std::env::current_dir()?, &self.cache.display().to_string()).into()),
            cache_size: self.cache_size.map(Bytes),
            sparse: self.sparse,
            profile: self.profile.clone(),
            mode: self.mode.clone(),
            line_size: self.line_size.map(Bytes),
            params: self.params.iter().map(|(k, v)| (k.clone(), Word(v.clone()))).collect(),
            ..CacheConfig::default()
        };
        Ok(Attach { cache, force: self.force })
    }
}

/// Does it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let daemon = DaemonClient::new()?;
    let patient = |daemon: DaemonClient, p: Patience| daemon.waiting(p.until(), p.limit());
    match a.what {
        What::List { json } => list(&daemon.volumes()?, json)?,
        What::Show { name, json } => show(&daemon.volume(&name)?, json)?,
        What::Create(args) => {
            let CreateArgs { name, allow, patience, json, .. } = &*args;
            let definition = args.definition().or_refused()?;
            let wanted = Create { name: name.clone(), definition, allow: allow.leave() };
            let daemon = patient(daemon, *patience);
            made(&daemon, name, &daemon.create(&wanted)?, *patience, *json)?;
        }
        What::Delete { name, force, json } => {
            daemon.delete(&name, force)?;
            json.done(json!({ "volume": name }), || ())?;
        }
        What::Forget { name, force, json } => {
            let gone = daemon.forget(&name, force)?;
            json.done(&gone, || match &gone.lost {
                Some(lost) => {
                    outln!(
                        "the cache {} at {} is forgotten. It holds {lost}",
                        gone.uuid,
                        gone.cache.display()
                    );
                }
                None => outln!("the cache {} at {} is forgotten", gone.uuid, gone.cache.display()),
            })?;
        }
        What::Start { allow, of: Named { name, patience, json } } => {
            let status = patient(daemon, patience).start(&name, allow.leave())?;
            began(&name, &status, patience, json)?;
        }
        What::Stop { flush, force, of: Named { name, patience, json } } => {
            let daemon = patient(daemon, patience);
            let status = daemon.stop(&name, &Stop { flush, force })?;
            ended(&daemon, &name, &status, flush, patience, json)?;
        }
        What::End { of: Named { name, patience, json } } => {
            let daemon = patient(daemon, patience);
            let status = daemon.end(&name)?;
            ended(&daemon, &name, &status, false, patience, json)?;
        }
        What::Bind(socket) => {
            let bound = daemon.bind(&socket.name, &socket.which())?;
            socket.done(&bound)?;
        }
        What::Unbind(socket) => {
            let bound = daemon.unbind(&socket.name, &socket.which())?;
            socket.done(&bound)?;
        }
        What::Attach(args) => {
            let daemon = patient(daemon, args.patience);
            args.json.changed(&daemon.attach(&args.name, &args.wanted()?)?)?;
        }
        What::Detach(Named { name, patience, json }) => {
            json.changed(&patient(daemon, patience).detach(&name)?)?;
        }
        What::Resize { size, of: Named { name, patience, json } } => {
            json.changed(&patient(daemon, patience).resize(&name, &Resize { bytes: size })?)?;
        }
        What::Restart(Named { name, patience, json }) => {
            began(&name, &patient(daemon, patience).restart(&name)?, patience, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A volume that cannot start is not kept, because it would be in the way of the next try.
fn made(daemon: &DaemonClient, name: &str, status: &Status, patience: Patience, json: Json) -> Result<()> {
    if let Status::Refused(why) = status {
        let kept = match daemon.delete(name, false) {
            Ok(()) => "it is not kept".to_owned(),
            Err(why) => format!("it is kept, because it cannot be deleted: {why:#}"),
        };
        return refuse(format!("volume '{name}' is refused, and {kept}: {why}"));
    }
    began(name, status, patience, json)
}

/// A volume and how it is, as JSON.
fn state(name: &str, status: &Status) -> Value {
    let mut all = json!(status);
    all["volume"] = json!(name);
    all
}

/// The outcome of a start.
fn began(name: &str, status: &Status, patience: Patience, json: Json) -> Result<()> {
    match status {
        Status::Serving => json.done(state(name, status), || ()),
        Status::Waiting(_) | Status::Starting | Status::Stopping if patience.until() == Until::Begun => {
            json.begun(state(name, status), || say!("volume '{name}' is {}", status.word()))
        }
        Status::Waiting(why) => bail!(Ended::waiting(format!("volume '{name}' waits: {why}"))),
        Status::Starting | Status::Stopping => {
            bail!(Ended::waiting(format!("volume '{name}' is {} still, and goes on", status.word())))
        }
        Status::Refused(why) => refuse(format!("volume '{name}' is refused: {why}")),
        other => {
            bail!("volume '{name}' is {}: {}", other.word(), other.why().unwrap_or("somebody stopped it"))
        }
    }
}

/// The outcome of a stop.
fn ended(
    daemon: &DaemonClient,
    name: &str,
    status: &Status,
    flush: bool,
    patience: Patience,
    json: Json,
) -> Result<()> {
    match status {
        Status::Stopped => {
            if let Some(lacks) = daemon.volume(name)?.lacks.filter(|_| flush) {
                bail!(
                    "volume '{name}' was stopped without a flush, and its cache holds {lacks}. Start \
                    it, run 'loligo flush {name}', and stop it again"
                );
            }
            json.done(state(name, status), || ())
        }
        Status::Stopping if patience.until() == Until::Begun => {
            json.begun(state(name, status), || say!("volume '{name}' is stopping"))
        }
        Status::Stopping => {
            bail!(Ended::waiting(format!("volume '{name}' is stopping still, and goes on")))
        }
        other => {
            bail!("volume '{name}' is {}: {}", other.word(), other.why().unwrap_or("somebody started it"))
        }
    }
}
