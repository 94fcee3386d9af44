//! The control socket that stands for a name in use.

use anyhow::{Context, Result, bail};
use loligo_block::keys::NAME;
use loligo_block::{KeyedText, keyed};
use loligo_client::names::{SOCKET, check_name, socket_of};
use loligo_export::{Guard, ListenAddr, ListenError, Listener};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Longest path of a unix socket, bytes.
const MOST_PATH: usize = 107;

/// Takes `name` for this process: binds its control socket, replacing one that nobody listens on.
///
/// # Errors
/// If the name is in use, or the folder cannot be used.
pub fn claim(name: &str) -> Result<Listener> {
    check_name(name)?;
    let mend = keyed!("stop it first, or choose another {NAME}");
    bind(name, &format!("a volume named '{name}' is being served"), &mend)
}

/// Takes the daemon's place for this process.
///
/// # Errors
/// If another daemon runs, or the folder cannot be used.
pub fn claim_daemon() -> Result<Listener> {
    bind(
        SOCKET,
        "another loligod runs",
        &"one serves all volumes; stop it first, or set LOLIGO_RUNTIME_DIR to another folder".into(),
    )
}

fn bind(name: &str, who: &str, mend: &KeyedText) -> Result<Listener> {
    let path = socket_of(name)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        format!(
            "cannot make the folder {} for control sockets: set LOLIGO_RUNTIME_DIR to another",
            dir.display()
        )
    })?;
    if path.as_os_str().len() > MOST_PATH {
        bail!(keyed!(
            "the control socket {} would have a path of {} bytes, and the system takes {MOST_PATH}: choose a shorter \
             {NAME}, or set LOLIGO_RUNTIME_DIR to a folder with a shorter path",
            path.display(),
            path.as_os_str().len()
        ));
    }
    let addr = ListenAddr::Unix(path.clone());
    match Listener::bind(&addr, Guard::Cleartext) {
        Ok(l) => Ok(l),
        Err(ListenError::InUse(_)) => bail!(keyed!("{who} (it answers on {}): {mend}", path.display())),
        Err(e) => Err(e).context("the control socket"),
    }
}
