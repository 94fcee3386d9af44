//! `loligo config`.

use crate::outcome::Json;
use anyhow::{Result, bail};
use clap::Subcommand;
use loligo_client::api::daemon::Reloaded;
use loligo_client::client::DaemonClient;
use loligo_client::outcome::{OrRefused, Outcome};
use loligo_daemon::config::{Config, DEFAULT_PATH};
use loligo_daemon::daemon::{Shown, show};
use loligo_log::{out, outln, say};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check, show or reload the daemon's configuration
#[derive(Debug, clap::Args)]
#[command(after_long_help = "A file, /etc/loligo/loligod.toml unless --config says otherwise:

  [daemon]
  metrics = \"127.0.0.1:9283\"       # Prometheus text; left out: none
  state-dir = \"/var/lib/loligo\"    # the daemon's memory

  [volume.osd0]                    # the volume's name
  core = \"/dev/disk/by-id/wwn-0x5000c500a1b2c3d4\"
  cache = \"/dev/nvme0n1p3\"
  cache-size = \"64g\"               # of a new cache; default: the whole device
  mode = \"wb\"                      # wt, wb, wa, wi, wo or pt
  listen = [\"block:osd0\"]         # /dev/loligo/osd0; unix:PATH, tcp:ADDR:PORT, fuse:DIR
  dev-owner = \"ceph:ceph\"
  after-start = [\"/bin/systemctl\", \"start\", \"ceph-osd@0\"]
  params = { seq-cutoff = \"always\", seq-threshold = \"128k\" }

  [volume.vm1]
  core = \"rbd:volumes/vm1?id=loligo\"
  cache = \"/ssd/vm1.cache\"
  cache-size = \"64g\"
  mode = \"wb\"
  # For libvirt's user, and for readers; default: this user's, mode 0600, read and write
  listen = [\"unix:/run/vm1.sock?owner=libvirt-qemu:kvm&mode=0660\",
            \"unix:/run/vm1.ro?read-only\"]
  rbd = { snapshot-deadline = 30, lease = 20, destage = \"auto\" }
  flush-on-stop = false
  autostart = true

  [volume.images]                  # without a cache: bare
  core = \"file:/srv/images\"
  listen = [\"tcp:0.0.0.0:10809\"]
  tls = { cert = \"/etc/loligo/srv.pem\", key = \"/etc/loligo/srv.key\", ca = \"/etc/loligo/clients.pem\" }

tls = {..., anonymous = true } in place of ca serves clients without a certificate; tls = { psk = FILE } is by keys.
Further keys, as 'loligo serve' has them: profile, sparse, line-size, shards, core-reserve, data-offset, rotational, dev-names,
journal-mirror and mirror (a cache on two arrays);
and keeper, the socket of a pair's agent, which sets it.
The paths of cores and caches begin where the file lies, unless they are whole; those of unix:PATH and fuse:DIR must be whole.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what is wrong with a file, or that nothing is
    Check {
        /// The file
        #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
        config: PathBuf,
    },
    /// Show what a daemon started with a file would serve, including changes made by command
    ///
    /// If a section is not right, the others are shown, and the exit status is 3.
    Show {
        /// The file; left out: that of the daemon that runs here, or else /etc/loligo/loligod.toml
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the running daemon read its file again
    ///
    /// If a section is not right, or a file for TLS cannot be used, the others count, and the exit status is 1.
    Reload {
        #[command(flatten)]
        json: Json,
    },
}

/// Shows the file `config`, or the one that the daemon has.
fn shown(config: Option<PathBuf>, json: bool) -> Result<ExitCode> {
    let daemon = if config.is_none() { DaemonClient::new()?.about_if_there()? } else { None };
    let whose = daemon.as_ref().map(|d| format!(", the file of the daemon that runs as process {}", d.pid));
    let state = daemon.as_ref().map(|d| d.state_dir.clone());
    let path = config.or_else(|| daemon.map(|d| d.config.into())).unwrap_or_else(|| DEFAULT_PATH.into());
    let Shown { config, wrong } = show(&path, state.as_deref()).or_refused()?;
    let error = format!("{} is not right: {}", path.display(), wrong.join(". "));
    if json {
        let mut all = serde_json::to_value(&config)?;
        if !wrong.is_empty() {
            all["outcome"] = json!(Outcome::Refused);
            all["error"] = json!(error);
        }
        out!("{}\n", serde_json::to_string_pretty(&all)?);
    } else {
        outln!("# {}{}", path.display(), whose.unwrap_or_default());
        out!("{}", toml::to_string(&config)?);
    }
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    // What is right stands on stdout already, and is to stay one object where JSON is wanted.
    say!("error: {error}");
    Ok(ExitCode::from(Outcome::Refused.exit_code()))
}

/// Does it.
pub(crate) fn run(a: Args) -> Result<ExitCode> {
    match a.what {
        What::Check { config } => {
            let checked = Config::load(&config).or_refused()?;
            checked.distinct().or_refused()?;
            let volumes = checked.volumes.len();
            outln!("{}: right, {volumes} volume(s)", config.display());
        }
        What::Show { config, json } => return shown(config, json),
        What::Reload { json } => {
            let Reloaded { done, refused } = DaemonClient::new()?.reload()?;
            if !refused.is_empty() {
                done.iter().for_each(|line| say!("{line}"));
                bail!("{}. Mend that, and reload again", refused.join(". "));
            }
            json.done(json!({ "changes": done }), || match done.is_empty() {
                true => outln!("nothing has changed"),
                false => done.iter().for_each(|line| outln!("{line}")),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
