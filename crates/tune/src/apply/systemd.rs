//! systemd, where it runs: it is told of drop-ins.

use loligo_block::host_files::HostFiles;
use std::process::{Command, Stdio};

/// True if systemd runs on this host, and is to read its units anew.
pub(super) fn is_live(host: &HostFiles) -> bool {
    host.are_live() && host.has("/run/systemd/system")
}

/// Has it read its units anew.
///
/// # Errors
/// If it does not; its words.
pub(super) fn read_anew() -> Result<(), String> {
    let said = Command::new("systemctl").arg("daemon-reload").stdin(Stdio::null()).output();
    match said {
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => {
            let words = String::from_utf8_lossy(&said.stderr);
            Err(format!(
                "'systemctl daemon-reload' fails: {}",
                words.trim().lines().last().unwrap_or_default()
            ))
        }
        Err(why) => Err(format!("systemctl cannot be run: {why}")),
    }
}
