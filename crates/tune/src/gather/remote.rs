//! A host is asked over ssh, by the same program there.

use super::host::HostReport;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The time that a host has to tell its facts.
const FACTS: Duration = Duration::from_secs(120);
/// The time that it has to measure its disks.
const MEASURED: Duration = Duration::from_secs(3600);
/// Options of ssh. Nobody is there to type a password, and a host that falls silent is given up after 15 s.
const OPTIONS: [&str; 4] =
    ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];

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
    /// Asks it for its facts, for up to two minutes. It sends packets to those of `probes` that are other hosts.
    ///
    /// # Errors
    /// If it cannot be reached, does not answer in time, lacks the program, or has one of another version.
    pub fn ask(&self, probes: &[IpAddr]) -> Result<HostReport, String> {
        let probes: String = probes.iter().map(|address| format!(" --probe {address}")).collect();
        self.report(&format!("tune facts --this-host --json{probes}"), FACTS)
    }

    /// Has it measure its disks, which it reads for some seconds each. An hour is all that it has for that.
    ///
    /// # Errors
    /// As those of [`Remote::ask`].
    pub fn ask_measured(&self) -> Result<HostReport, String> {
        self.report("tune facts --this-host --measure --yes --json", MEASURED)
    }

    fn report(&self, words: &str, within: Duration) -> Result<HostReport, String> {
        let said = self.order(&format!("{} {words}", self.program), b"", Some(within))?;
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
        self.order(command, input, None)
    }

    fn order(&self, command: &str, input: &[u8], within: Option<Duration>) -> Result<Vec<u8>, String> {
        let Some(out) = carry(self.ssh(command), input, within)? else {
            let seconds = within.unwrap_or_default().as_secs();
            return Err(format!("'{command}' has no end there after {seconds} s: try it by hand"));
        };
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

    /// The first value of an option counts: those that were given come before these.
    fn ssh(&self, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        for option in self.options.iter().map(String::as_str).chain(OPTIONS) {
            ssh.args(["-o", option]);
        }
        ssh.arg("--").arg(&self.destination).arg(command);
        ssh
    }
}

/// Ctrl-C is for this program, which ends between two deeds: a child is not cut in the middle of one.
pub(crate) fn shielded(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Runs ssh with this input. Nothing: it was ended after the time that it had.
fn carry(mut ssh: Command, input: &[u8], within: Option<Duration>) -> Result<Option<Output>, String> {
    let fail = |why: std::io::Error| format!("ssh cannot be run: {why}. apt-get install openssh-client");
    shielded(&mut ssh).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ssh.spawn().map_err(fail)?;
    let (pid, stdin, input) = (child.id(), child.stdin.take(), input.to_vec());
    let (tell, told) = channel();
    let wait = move || {
        if let Some(mut stdin) = stdin {
            // A command that reads nothing may end first; its status says how it went.
            let _ = stdin.write_all(&input);
        }
        // Whoever asked may have gone.
        let _ = tell.send(child.wait_with_output());
    };
    std::thread::Builder::new().name("tune-ssh".to_owned()).spawn(wait).map_err(fail)?;
    let said = match within {
        Some(within) => told.recv_timeout(within),
        None => told.recv().map_err(RecvTimeoutError::from),
    };
    match said {
        Ok(out) => out.map(Some).map_err(fail),
        Err(_) => {
            let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn sh(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn options_that_are_given_come_before_those_of_this_program() {
        let options = vec!["ConnectTimeout=3".to_owned()];
        let remote = Remote { destination: "n1".into(), program: "loligo".into(), options };
        let ssh = remote.ssh("true");
        let words: Vec<_> = ssh.get_args().filter_map(|it| it.to_str()).filter(|it| *it != "-o").collect();
        let ours = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"];
        assert_eq!(words, [&["ConnectTimeout=3"], &ours[..], &["--", "n1", "true"]].concat());
    }

    #[test]
    fn a_host_that_never_answers_is_given_up() {
        let begun = Instant::now();
        let said = carry(sh("sleep 30 & sleep 30"), b"", Some(Duration::from_millis(50)));
        assert!(said.is_ok_and(|it| it.is_none()) && begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn ctrl_c_does_not_reach_ssh() {
        let alone = sh("set -- $(cat /proc/$$/stat); test $5 = $$ && cat");
        let out = carry(alone, b"heard", Some(Duration::from_secs(30))).expect("it runs").expect("it ends");
        assert!(out.status.success() && out.stdout == b"heard", "it is in a group of its own");
    }
}
