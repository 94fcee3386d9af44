//! `loligo daemon`, which is what `loligod` runs.

use anyhow::Result;
use loligo_daemon::config::DEFAULT_PATH;
use loligo_daemon::daemon::DaemonOptions;
use loligo_daemon::run::run as serve;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve many volumes, as one file and 'loligo volume' say (this is loligod)
///
/// Starts every volume of the file and those made by command, each by itself: one that cannot start delays no
/// other. A volume whose cache or core is missing waits for it. Prints 'ready' (and tells systemd) when no
/// volume is starting any more.
///
/// SIGTERM or SIGINT stops all volumes, as it stops 'loligo serve'. SIGHUP reads the file again: new volumes
/// start, removed ones stop, and changed ones wait for 'loligo volume restart'.
///
/// The state folder remembers what is set by command: volumes made, modes, tunables, stopped volumes. It also
/// remembers which cache holds data that its core does not have: without that cache such a volume is not
/// started.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Environment:
  LOLIGO_RUNTIME_DIR  folder of control sockets; default /run/loligo for root
  LOLIGO_STATE_DIR    folder of the daemon's state, unless the file says state-dir;
                      default /var/lib/loligo for root

'loligo config --help' shows a file. The API is HTTP with JSON on the socket
loligod.sock; GET /v1/openapi.json describes it.")]
pub(crate) struct Args {
    /// The file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
}

/// Serves.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    serve(&DaemonOptions { config: a.config.clone() })
}
