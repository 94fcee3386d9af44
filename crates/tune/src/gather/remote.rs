//! A host is asked over ssh, by the same program there.

use super::host::HostReport;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Another host with this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The host as ssh knows it.
    pub destination: String,
    /// This program there.
    pub program: String,
    /// Options of ssh, as for its -o.
    pub options: Vec<String>,
}

impl Remote {
    /// Asks it for its facts. It sends packets to those of `probes` that are other hosts.
    ///
    /// # Errors
    /// If it cannot be reached, lacks the program, or has one of another version.
    pub fn ask(&self, probes: &[IpAddr]) -> Result<HostReport, String> {
        let probes: String = probes.iter().map(|address| format!(" --probe {address}")).collect();
        self.report(&format!("tune facts --this-host --json{probes}"))
    }

    /// Has it measure its disks, which it reads for some seconds each.
    ///
    /// # Errors
    /// As those of [`Remote::ask`].
    pub fn ask_measured(&self) -> Result<HostReport, String> {
        self.report("tune facts --this-host --measure --yes --json")
    }

    fn report(&self, words: &str) -> Result<HostReport, String> {
        let said = self.run(words, b"")?;
        serde_json::from_slice(&said).map_err(|why| {
            format!("its '{}' is of another version ({why}): install this one there", self.program)
        })
    }

    /// Runs the program there with these words, and `input` as its standard input; its standard output.
    ///
    /// # Errors
    /// If it cannot be reached, lacks the program, or fails.
    pub fn run(&self, words: &str, input: &[u8]) -> Result<Vec<u8>, String> {
        self.shell(&format!("{} {words}", self.program), input)
    }

    /// Runs a command of its shell.
    ///
    /// # Errors
    /// If it cannot be reached, or the command fails.
    pub fn shell(&self, command: &str, input: &[u8]) -> Result<Vec<u8>, String> {
        let mut ssh = Command::new("ssh");
        // Nobody is there to type a password.
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        for option in &self.options {
            ssh.args(["-o", option]);
        }
        ssh.arg("--").arg(&self.destination).arg(command);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let fail = |why: std::io::Error| format!("ssh cannot be run: {why}. apt-get install openssh-client");
        let mut child = ssh.spawn().map_err(fail)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that reads nothing may end first; its status says how it went.
            let _ = stdin.write_all(input);
        }
        let out = child.wait_with_output().map_err(fail)?;
        let said = String::from_utf8_lossy(&out.stderr);
        let last = said.trim().lines().last().unwrap_or_default();
        match out.status.code() {
            Some(0) => Ok(out.stdout),
            Some(127) => Err(format!(
                "it has no '{}': install it there, or name it with --remote-program",
                self.program
            )),
            Some(255) => Err(format!("ssh does not reach it: {last}")),
            _ => Err(format!("'{command}' fails there: {last}")),
        }
    }
}
