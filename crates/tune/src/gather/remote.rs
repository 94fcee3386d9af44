//! A host is asked over ssh, by the same program there.

use super::host::HostReport;
use loligo_lab::process::{Late, finish};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

/// The time that a host has to tell its facts.
const FACTS: Duration = Duration::from_secs(120);
/// The time that it has to measure its disks.
const MEASURED: Duration = Duration::from_secs(3600);
/// The time that it has to carry an order out: values are written to files there.
const ORDER: Duration = Duration::from_secs(60);
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
        let said = self.run_within(&format!("{} {words}", self.program), "", within, Kind::Question)?;
        serde_json::from_str(&said).map_err(|why| {
            format!("its '{}' is of another version ({why}): install this one there", self.program)
        })
    }

    /// Has the program there carry out an order, for up to a minute; its standard output.
    ///
    /// # Errors
    /// If it cannot be reached, has no end in time, lacks the program, or fails. The words say whether the deed may be done.
    pub fn order(&self, words: &str, input: &str) -> Result<String, String> {
        self.run_within(&format!("{} {words}", self.program), input, ORDER, Kind::Deed)
    }

    /// Has its shell run a command that changes something.
    ///
    /// # Errors
    /// As those of [`Remote::order`].
    pub fn shell(&self, command: &str, within: Duration) -> Result<(), String> {
        self.run_within(command, "", within, Kind::Deed).map(drop)
    }

    fn run_within(&self, command: &str, input: &str, within: Duration, kind: Kind) -> Result<String, String> {
        let unknown = match kind {
            Kind::Question => "try it by hand",
            Kind::Deed => "it is unknown whether it was carried out, and it may still be under way",
        };
        let out = finish(&mut self.ssh(command), input.to_owned(), within).map_err(|why| {
            if why.is::<Late>() {
                return format!("'{command}' has no end there after {} s: {unknown}", within.as_secs());
            }
            format!("ssh cannot be run: {why:#}. apt-get install openssh-client")
        })?;
        let last = out.err.trim().lines().last().unwrap_or_default();
        match (out.status.code(), kind) {
            (Some(0), _) => Ok(out.out),
            (Some(127), _) => Err(format!(
                "it has no '{}': install it there, or name it with --remote-program",
                self.program
            )),
            (Some(255), Kind::Question) => Err(format!("ssh does not reach it: {last}")),
            (Some(255), Kind::Deed) => {
                Err(format!("ssh does not reach it: {last}. If it broke off within '{command}', {unknown}"))
            }
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

/// A command that asks, or one that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Question,
    Deed,
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_deed_that_has_no_end_may_have_been_done() {
        // ssh runs this command here, and reaches nobody.
        let silent = vec!["ProxyCommand=sleep 60".to_owned(), "ConnectTimeout=60".to_owned()];
        let remote = Remote { destination: "nobody".into(), program: "loligo".into(), options: silent };
        let said = |kind| remote.run_within("true", "", Duration::from_millis(300), kind).expect_err("late");
        let [question, deed] = [Kind::Question, Kind::Deed].map(said);
        if question.contains("apt-get install openssh-client") {
            return;
        }
        assert!(question.contains("no end there after 0 s: try it by hand"), "{question}");
        assert!(deed.contains("unknown whether it was carried out"), "{deed}");
    }
}
