//! Names of volumes, and the control socket that stands for a name in use.

use anyhow::{Context, Result, bail};
use loligo_export::{Guard, ListenAddr, ListenError, Listener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The name of the daemon's own socket among those of volumes.
pub(crate) const SOCKET: &str = "loligod";

/// Longest path of a unix socket, bytes.
const MOST_PATH: usize = 107;

/// Where control sockets lie: `$LOLIGO_RUNTIME_DIR`, else `/run/loligo` for root and `$XDG_RUNTIME_DIR/loligo` for others.
///
/// # Errors
/// Where none of them is known.
pub fn runtime_dir() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = from("LOLIGO_RUNTIME_DIR") {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/loligo"));
    }
    match from("XDG_RUNTIME_DIR") {
        Some(dir) => Ok(dir.join("loligo")),
        None => bail!("no place for control sockets: set LOLIGO_RUNTIME_DIR to a folder of yours"),
    }
}

/// Refuses what cannot name a volume.
///
/// # Errors
/// A sentence that says what can.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        bail!(
            "'{name}' cannot name a volume: use 1 to 64 letters, digits, dots, dashes and underscores, no dot first"
        );
    }
    if name == SOCKET {
        bail!("'{name}' is the daemon's own name: choose another for the volume");
    }
    Ok(())
}

/// The names of which there are control sockets, whether or not anybody still listens, without the daemon's.
///
/// # Errors
/// Where the folder is there and cannot be read.
pub(crate) fn with_sockets() -> Result<Vec<String>> {
    let dir = runtime_dir()?;
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).with_context(|| format!("{} cannot be read", dir.display())),
    };
    let name = |file: std::fs::DirEntry| Some(file.file_name().to_str()?.strip_suffix(".sock")?.to_owned());
    let mut names: Vec<String> =
        entries.flatten().filter_map(name).filter(|n| check_name(n).is_ok()).collect();
    names.sort();
    Ok(names)
}

/// The control socket of the volume `name`.
pub(crate) fn socket_of(name: &str) -> Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{name}.sock")))
}

/// Takes `name` for this process: binds its control socket, replacing one that nobody listens on.
///
/// # Errors
/// Where the name is in use, or the folder cannot be used.
pub(crate) fn claim(name: &str) -> Result<Listener> {
    check_name(name)?;
    bind(name, &format!("a volume named '{name}' is being served"), "stop it first, or choose another --name")
}

/// Takes the daemon's place for this process.
///
/// # Errors
/// Where another daemon runs, or the folder cannot be used.
pub(crate) fn claim_daemon() -> Result<Listener> {
    bind(
        SOCKET,
        "another loligod runs",
        "one serves all volumes; stop it first, or set LOLIGO_RUNTIME_DIR to another folder",
    )
}

fn bind(name: &str, who: &str, mend: &str) -> Result<Listener> {
    let path = socket_of(name)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        format!(
            "cannot make the folder {} for control sockets: set LOLIGO_RUNTIME_DIR to another",
            dir.display()
        )
    })?;
    if path.as_os_str().len() > MOST_PATH {
        bail!(
            "the control socket {} would have a path of {} bytes, and the system takes {MOST_PATH}: choose a shorter \
             --name, or set LOLIGO_RUNTIME_DIR to a folder with a shorter path",
            path.display(),
            path.as_os_str().len()
        );
    }
    let addr = ListenAddr::Unix(path.clone());
    match Listener::bind(&addr, Guard::Cleartext) {
        Ok(l) => Ok(l),
        Err(ListenError::InUse(_)) => bail!("{who} (it answers on {}): {mend}", path.display()),
        Err(e) => Err(e).context("the control socket"),
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn a_name_is_a_plain_file_name() {
        for good in ["vol", "osd.3", "a-b_c", "9"] {
            check_name(good).unwrap();
        }
        for bad in ["", ".", "../x", "a/b", "a b", "é", &"x".repeat(65)] {
            assert!(check_name(bad).unwrap_err().to_string().contains("letters"), "{bad}");
        }
    }
}
