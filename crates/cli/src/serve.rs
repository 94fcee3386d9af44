//! `loligo serve`.

use crate::values;
use anyhow::Result;
use clap::ArgGroup;
use loligo_ceph::attach::Destage;
use loligo_export::blockdev::Owner;
use loligo_export::{Credentials, ExportSpec};
use loligo_format::mode::Mode;
use loligo_volume::core::CoreSpec;
use loligo_volume::options::{
    BlockOptions, CacheOptions, MirrorOptions, RbdOptions, ReservationKey, Rotational, ServeOptions,
};
use loligo_volume::profile::Profile;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve one volume in the foreground
///
/// Opens (or makes) the cache and recovers it after a crash. Exports the core through it: over NBD under the
/// volume's name and as the default export, as a file, or as a block device. Prints the line 'ready' on
/// stdout when clients may come. Everything else goes to stderr.
///
/// SIGTERM or SIGINT ends it. It does not wait for clients, except for those of a block device (see
/// --listen). Accepted requests are answered, later ones get ESHUTDOWN, and everything acknowledged is made
/// durable. Dirty data stays on the cache until the next start. With --flush-on-stop it is written to the
/// core first; a second signal gives that up.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("how").required(true).args(["cache", "bare"]))]
#[command(
    after_long_help = "Sizes are bytes, or k, m, g, t in either case, optionally followed by iB: powers of 1024.

Examples:
  A file in front of a disk, made at the first start:
    loligo serve --name vol --cache /ssd/vol.cache --cache-size 64g \\
      --core /dev/sdb --mode wb --listen unix:/run/vol.sock
  The same for clients elsewhere, with TLS:
    loligo serve --name vol --cache /dev/nvme0n1p3 --core /dev/sdb --mode wb \\
      --listen tcp:0.0.0.0:10809 --tls-cert srv.pem --tls-key srv.key --tls-ca ca.pem
  As a file, for an OSD on this machine:
    loligo serve --name osd0 --cache /dev/nvme0n1p3 --core /dev/sdb --mode wb \\
      --listen fuse:/run/osd0
    chown ceph:ceph /run/osd0/osd0
  As a block device, /dev/loligo/osd0, for an OSD that runs as ceph:
    loligo serve --name osd0 --cache /dev/nvme0n1p3 --core /dev/sdb --mode wb \\
      --listen block:osd0 --dev-owner ceph:ceph
  The same only where the kernel has ublk (modprobe ublk_drv): it outlives the service
    loligo serve --name osd0 --cache /dev/nvme0n1p3 --core /dev/sdb --mode wb \\
      --listen ublk:osd0
  In front of an RBD image, on a compute node:
    loligo serve --name vm1 --cache /ssd/vm1.cache --cache-size 64g \\
      --core 'rbd:volumes/vm1?id=loligo' --mode wb --listen unix:/run/vm1.sock
  A client:
    nbdinfo 'nbd+unix:///vol?socket=/run/vol.sock'"
)]
pub(crate) struct Args {
    /// Name of the volume, of its export and of its control socket
    #[arg(long)]
    name: String,
    /// The cache: a file or block device, or a core's share of one: pool:PATH#CORE
    ///
    /// A file that does not exist is made with --cache-size. Content that is not a Loligo cache is refused
    /// without --force. Shares are made with 'loligo cache attach'; CORE is the number or the name given there.
    #[arg(long, value_name = "PATH")]
    cache: Option<PathBuf>,
    /// A device or file on the partner's array that holds the same as the cache, both made for it alone
    ///
    /// A write is acknowledged once both have it. See --mirror. The cache begins behind a label on each, so that a cache that
    /// exists cannot be mirrored as it is.
    #[arg(long, value_name = "PATH", conflicts_with = "bare", requires = "cache")]
    journal_mirror: Option<PathBuf>,
    /// Once either of the two is gone: preferred (2 s later the volume goes on with the other, and its label says so) or
    /// required (no more writes are taken) [default: preferred]
    #[arg(long, value_name = "WORD", requires = "journal_mirror", value_parser = ["preferred", "required"])]
    mirror: Option<String>,
    /// Believe one of the two at this start although the other cannot be seen: what that holds alone is lost
    #[arg(long, requires = "journal_mirror")]
    mirror_alone: bool,
    /// Bytes of a new cache, 24 MiB or more (default: the whole device)
    #[arg(long, value_name = "SIZE", value_parser = values::size, conflicts_with = "bare")]
    cache_size: Option<u64>,
    /// Do not write a new cache file whole: it grows as it is used, and may find no room then
    #[arg(long, conflicts_with = "bare")]
    sparse: bool,
    /// Export the core as it is, without a cache
    #[arg(long)]
    bare: bool,
    /// The core: file:PATH, a device's path, hdd:PATH?rpm=7200&track=1MiB (a disk modelled over a file), or an RBD image:
    /// rbd:POOL[/NAMESPACE]/IMAGE[?conf=FILE&id=NAME&keyring=FILE]
    ///
    /// An image must have the exclusive-lock feature, and this client holds that lock while it serves. See --steal,
    /// --destage, --lease and --snapshot-deadline.
    #[arg(long, value_name = "SPEC")]
    core: CoreSpec,
    /// The mode, which says what is cached and what an answer waits for: wt, wb, wa, wi, wo or pt (needed
    /// unless --bare or --profile)
    ///
    /// wt: write-through. wb: write-back. wa: write-around. wi: write-invalidate. wo: write-only. pt: pass-through. The
    /// mode given here counts, whatever it was before.
    #[arg(long, required_unless_present_any = ["bare", "profile"], conflicts_with = "bare")]
    mode: Option<Mode>,
    /// A named set of tunables: osd-hdd (a Ceph OSD whose data, database and log lie on one spinning disk)
    ///
    /// It sets the mode, too. A value given with --mode or --param wins.
    #[arg(long, value_name = "NAME", value_parser = values::profile, conflicts_with = "bare")]
    profile: Option<&'static Profile>,
    /// Cache line of a new cache: 4k, 8k, 16k, 32k or 64k (default 4k)
    #[arg(long, value_name = "SIZE", value_parser = values::line_size, conflicts_with = "bare")]
    line_size: Option<u32>,
    /// The way that clients come: unix:PATH, tcp:ADDR:PORT, fuse:MOUNTPOINT or block:NAME (ublk:NAME,
    /// loop:NAME: of that kind); may be given several times
    ///
    /// unix and tcp are served over NBD. TCP addresses other than loopback are refused without TLS, unless '?cleartext'
    /// is behind them: everybody who reaches the port can read and write the volume then.
    /// '?read-only' behind either lets its clients change nothing. '?owner=USER:GROUP&mode=0660' sets the
    /// owner and mode of a unix socket (default: this user, mode 0600). Options are joined by '&'. fuse
    /// mounts a file system of one file, MOUNTPOINT/NAME, on an empty folder: for programs that want a path,
    /// such as an OSD. The file belongs to this user with mode 0600; root may chown it. A user other than
    /// root needs fusermount3. block makes a kernel block device, /dev/loligo/NAME: of the kind ublk if the
    /// kernel has it, else of the kind loop. Both need root. loop is a loop device over such a file. While it
    /// is open, a stop waits for its users. ublk is the kernel's own device, from Linux 6.5 on with ublk_drv.
    /// The device outlives this service: while it is open, a stop or a crash leaves it, requests wait, and
    /// the next start of the volume answers them. A stop deletes it if it is not open.
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<ExportSpec>,
    /// The word of a block device on heads that it has to move: yes, no, or as the core does
    ///
    /// Ceph takes the class of an OSD and its settings from this. Default: the answer of the device that
    /// holds the data, so that an OSD on a cached disk stays in class hdd.
    #[arg(long, value_name = "yes|no|core", default_value = "core")]
    rotational: Rotational,
    /// A further name of the block device, /dev/NAME, for example cas1-1; may be given several times
    ///
    /// It is a link to /dev/loligo/NAME. If something else than such a link stands there, it is left alone
    /// and the start is refused.
    #[arg(long, value_name = "NAME")]
    dev_name: Vec<String>,
    /// The user that block devices belong to, for example ceph:ceph; by name or number (default: as the system has it)
    ///
    /// The kernel gives a device another number at each start, so that a chown by hand does not last.
    #[arg(long, value_name = "USER[:GROUP]")]
    dev_owner: Option<Owner>,
    /// Serve TLS only, with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_psk")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Clients must show a certificate signed by one of these (PEM); needed beyond loopback
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Serve clients without a certificate beyond loopback: everybody who reaches the port has the volume
    #[arg(long, requires = "tls_cert", conflicts_with = "tls_ca")]
    anonymous: bool,
    /// Serve TLS only, with pre-shared keys: lines user:hexkey
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tls_key", "tls_ca"])]
    tls_psk: Option<PathBuf>,
    /// Serve Prometheus text at http://ADDR:PORT/metrics, to everybody who reaches this address of the host
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Rewrite this file with the statistics every second, all at once
    #[arg(long, value_name = "FILE")]
    stats_json: Option<PathBuf>,
    /// Insist on a new cache: refuse one that exists (with --force: replace it)
    #[arg(long, conflicts_with = "bare")]
    create: bool,
    /// Overwrite foreign data, give up damaged data, use a core whose content differs; with --bare, give up
    /// the data in the core's cache
    #[arg(long)]
    force: bool,
    /// Shards of a new cache, each with a thread and a part of core and cache (default 1). An RBD image has one thread for all
    /// of them (default one for each 8 TiB)
    #[arg(long, value_name = "N", conflicts_with = "bare")]
    shards: Option<u16>,
    /// Percent of the core that a new cache leaves unexported, 0 to 50 (default 0)
    #[arg(long, value_name = "PCT", conflicts_with = "bare")]
    core_reserve: Option<u8>,
    /// Keep so many bytes at the start of a new core for a label (1m or more), and its content behind them; or 0
    ///
    /// While the cache may hold data that the core lacks, nobody else may use the raw device. Behind a label
    /// nobody finds anything on it: no file system, no LVM, no OSD. The label also remembers the cache. A
    /// core that has one is recognised without this option. With 0 a core keeps its content in place: the
    /// label takes the place of its first 4 KiB, which are kept behind it and on the cache. For OSDs 'loligo
    /// osd adopt' does that. With --bare, 0 says that the content begins at byte 0 and a label there is a
    /// client's; a sound label needs --force.
    #[arg(long, alias = "home-offset", value_name = "SIZE", value_parser = values::size)]
    data_offset: Option<u64>,
    /// Take an RBD image away from the client that has it: that client is fenced first
    #[arg(long)]
    steal: bool,
    /// Open an RBD image although another cache holds data that it lacks, and lose that data
    #[arg(long)]
    force_without_cache: bool,
    /// The way of dirty data to an RBD image: auto, grouped (one atomic operation per object, or refuse) or
    /// librbd
    #[arg(long, value_name = "WAY", default_value = "auto")]
    destage: Destage,
    /// Seconds for which one confirmation that an RBD image is still this client's is valid; after that
    /// answers wait
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = values::seconds)]
    lease: Duration,
    /// Keep no more dirty data than can be destaged in this time, so that a snapshot of an RBD image by
    /// another client waits no longer; 0: off
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = values::seconds)]
    snapshot_deadline: Duration,
    /// Open cache and core only while the arrays that they lie on say that this key, as 0xa, holds their
    /// reservation: for arrays that two controllers share
    #[arg(long, value_name = "KEY")]
    reservation: Option<ReservationKey>,
    /// The name by which others see who has an RBD image [default: $LOLIGO_IDENTITY or the host's name]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Write everything dirty to the core before the end
    #[arg(long, conflicts_with = "bare")]
    flush_on_stop: bool,
    /// A tunable and its value, as 'loligo param' names it; may be given several times
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = values::param, conflicts_with = "bare")]
    params: Vec<(String, String)>,
}

/// Serves.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    let tls = match (a.tls_cert, a.tls_key, a.tls_psk) {
        (Some(cert), Some(key), _) => {
            Some(Credentials::X509 { cert, key, client_ca: a.tls_ca, anonymous: a.anonymous })
        }
        (_, _, Some(file)) => Some(Credentials::Psk { file }),
        _ => None,
    };
    let mode = a.mode.or(a.profile.map(|p| p.mode));
    let params = a.profile.map(|p| p.with(&a.params)).unwrap_or(a.params);
    let mirror = a.journal_mirror.map(|path| MirrorOptions {
        path,
        required: a.mirror.as_deref() == Some("required"),
        alone: a.mirror_alone,
    });
    let cache = a.cache.zip(mode).map(|(path, mode)| CacheOptions {
        path,
        size: a.cache_size,
        sparse: a.sparse,
        mode,
        line_size: a.line_size,
        shards: a.shards,
        core_reserve: a.core_reserve,
        mirror,
        create: a.create,
        force: a.force,
        replace: None,
        expected: None,
        disputed: None,
    });
    loligo_daemon::foreground::run(ServeOptions {
        name: a.name,
        core: a.core,
        rbd: RbdOptions {
            steal: a.steal,
            without_cache: a.force_without_cache,
            destage: a.destage,
            lease: a.lease,
            snapshot_deadline: a.snapshot_deadline,
        },
        cache,
        reservation: a.reservation,
        identity: a.identity,
        force: a.force,
        listen: a.listen,
        block: BlockOptions { rotational: a.rotational, dev_names: a.dev_name, owner: a.dev_owner },
        tls,
        metrics: a.metrics,
        stats_json: a.stats_json,
        flush_on_stop: a.flush_on_stop,
        params,
        data_offset: a.data_offset,
    })
}
