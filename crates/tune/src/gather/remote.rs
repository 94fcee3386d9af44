//! A host is asked over ssh, by the same program there.

use super::host::HostReport;
use std::process::{Command, Stdio};

/// Asks the host that `ssh` knows as `destination`; `program` is this program there.
///
/// # Errors
/// If it cannot be reached, lacks the program, or has one of another version.
pub fn ask(destination: &str, program: &str, options: &[String]) -> Result<HostReport, String> {
    let mut ssh = Command::new("ssh");
    // Nobody is there to type a password.
    ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
    for option in options {
        ssh.args(["-o", option]);
    }
    ssh.arg("--")
        .arg(destination)
        .arg(format!("{program} tune facts --this-host --json"))
        .stdin(Stdio::null());
    let out =
        ssh.output().map_err(|why| format!("ssh cannot be run: {why}. apt-get install openssh-client"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.trim().lines().last().unwrap_or_default();
    match out.status.code() {
        Some(0) => serde_json::from_slice(&out.stdout)
            .map_err(|why| format!("its '{program}' is of another version ({why}): install this one there")),
        Some(127) => {
            Err(format!("it has no '{program}': install it there, or name it with --remote-program"))
        }
        Some(255) => Err(format!("ssh does not reach it: {last}")),
        _ => Err(format!("'{program} tune facts' fails there: {last}")),
    }
}
