//! Names of volumes, and of the control sockets that stand for them.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// The name of the daemon's own socket among those of volumes.
pub const SOCKET: &str = "loligod";

/// The folder of control sockets: `$LOLIGO_RUNTIME_DIR`, else `/run/loligo` for root and `$XDG_RUNTIME_DIR/loligo` for others.
///
/// # Errors
/// If none of them is known.
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
pub fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        bail!(
            "'{name}' cannot name a volume: use 1 to 64 letters, digits, dots, dashes and underscores, \
            and do not begin with a dot"
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
/// If the folder is there and cannot be read.
pub fn with_sockets() -> Result<Vec<String>> {
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
pub fn socket_of(name: &str) -> Result<PathBuf> {
    Ok(runtime_dir()?.join(format!("{name}.sock")))
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
