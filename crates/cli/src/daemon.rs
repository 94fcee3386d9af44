//! `loligo daemon`, which is what `loligod` runs.

use anyhow::Result;
use loligo_daemon::config::DEFAULT_PATH;
use loligo_daemon::daemon::DaemonOptions;
use loligo_daemon::run::run as serve;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve many volumes, as one file and 'loligo volume' say (this is loligod)
///
/// Starts every volume of the file and those made by command, each by itself: one that cannot start holds nobody up. A volume
/// whose cache or core is not there waits for it. Prints 'ready' (and tells systemd) when none is starting any more.
///
/// SIGTERM or SIGINT stops all volumes as 'loligo serve' stops one; SIGHUP reads the file again: new volumes start, those
/// that are gone stop, those that changed wait for 'loligo volume restart'.
///
/// What is set by command (volumes made, modes, tunables, what is stopped) is remembered in the state folder, and so is
/// which cache holds what its core does not have: without that cache such a volume is not started.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Environment:
  LOLIGO_RUNTIME_DIR  where control sockets lie; default /run/loligo for root
  LOLIGO_STATE_DIR    where the daemon remembers, unless the file says state-dir;
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
