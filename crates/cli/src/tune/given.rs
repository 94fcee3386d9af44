//! The options that lead a command to its cluster, hosts and journals: commands that its messages name need the same.

use super::from::From;
use loligo_client::outcome::{Ended, Outcome};
use loligo_lab::interrupt::{Interrupted, exit_code};
use std::path::Path;

/// The begin of a command where a message names one; it ends with a quote.
const COMMAND: &str = "'loligo tune ";
/// Defaults of options: one that is given as it is by default leads nowhere else.
const DEFAULTS: [(&str, &str); 5] = [
    ("--patience", "600"),
    ("--name", "client.admin"),
    ("--remote-program", "loligo"),
    ("--root", "/"),
    ("--remote-conf", "/etc/ceph/ceph.conf"),
];

/// Options as they were given, for a shell.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    /// Those of the cluster.
    cluster: String,
    /// Those of hosts.
    hosts: String,
    /// The folder of journals.
    state: String,
    /// Those of a run that changes something.
    run: String,
}

impl Given {
    /// Those of the sources of facts.
    pub(super) fn new(from: &From) -> Given {
        let (conf, keyring) = (path(from.conf.as_deref()), path(from.keyring.as_deref()));
        let mut given = Given::default();
        for (option, value) in [("--conf", conf), ("--name", Some(from.name.clone())), ("--keyring", keyring)]
        {
            add(&mut given.cluster, option, value.iter());
        }
        add(&mut given.hosts, "--host", from.hosts.iter());
        add(&mut given.hosts, "--remote-program", [&from.remote_program].into_iter());
        add(&mut given.hosts, "--ssh-option", from.ssh_option.iter());
        add(&mut given.hosts, "--root", path(Some(&from.root)).iter());
        given
    }

    /// And the folder of journals.
    pub(super) fn with_state(self, state: Option<&Path>) -> Given {
        let mut given = self;
        add(&mut given.state, "--state", path(state).iter());
        given
    }

    /// And Ceph's file on other hosts, and the way to restart OSDs.
    pub(super) fn with_run(self, remote_conf: &Path, restart_with: Option<&String>) -> Given {
        let mut given = self;
        add(&mut given.run, "--remote-conf", path(Some(remote_conf)).iter());
        add(&mut given.run, "--restart-with", restart_with.into_iter());
        given
    }

    /// And the checks of health that may stay, and the time to become clean, seconds.
    pub(super) fn with_health(self, accepted: &[String], patience: u64) -> Given {
        let mut given = self;
        add(&mut given.run, "--accept", accepted.iter());
        add(&mut given.run, "--patience", [&patience.to_string()].into_iter());
        given
    }

    /// A text whose commands have these options, so that they can be pasted.
    pub(super) fn complete(&self, text: &str) -> String {
        let (mut whole, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(COMMAND) {
            let Some((words, later)) = after.split_once('\'') else { break };
            whole.push_str(&format!("{before}{COMMAND}{words}{}'", self.options_of(words)));
            rest = later;
        }
        whole + rest
    }

    /// The options that a command takes.
    fn options_of(&self, words: &str) -> String {
        let Given { cluster, hosts, state, run } = self;
        match words.split_whitespace().next().unwrap_or_default() {
            "facts" | "plan" | "partition" => format!("{cluster}{hosts}"),
            "history" => format!("{cluster}{state}"),
            "watch" => format!("{cluster}{hosts}{state}"),
            "apply" | "rollback" | "verify" | "search" => format!("{cluster}{hosts}{state}{run}"),
            _ => String::new(),
        }
    }

    /// The same of an error. Its outcome stays; an interrupt names no command.
    pub(super) fn complete_error(&self, error: anyhow::Error) -> anyhow::Error {
        let said = format!("{error:#}");
        let whole = self.complete(&said);
        if whole == said || exit_code(&error) == Interrupted::EXIT_CODE {
            return error;
        }
        Ended::with(Outcome::of(&error), whole).into()
    }
}

fn path(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

fn add<'a>(words: &mut String, option: &str, values: impl Iterator<Item = &'a String>) {
    for value in values.filter(|value| !DEFAULTS.contains(&(option, value.as_str()))) {
        words.push_str(&format!(" {option} {}", quoted(value)));
    }
}

/// A word for a shell. Quotes are double ones: a command of a message stands in single ones.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::from('"');
    for c in word.chars() {
        if "\"\\$`".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Args {
        #[command(flatten)]
        from: From,
    }

    fn given(words: &str) -> Given {
        Given::new(&Args::parse_from(["x"].into_iter().chain(words.split_whitespace())).from)
    }

    #[test]
    fn a_command_of_a_message_has_the_options_that_were_given() {
        let given = given("--conf /l/ceph.conf --name client.t --keyring k --host n1")
            .with_state(Some(Path::new("s")))
            .with_run(Path::new("/e/c.conf"), None)
            .with_health(&["OSD_X".to_owned(), "OSD_Y".to_owned()], 60);
        assert_eq!(
            given.complete("by 'loligo tune rollback R'. See 'loligo tune history', 'ceph status' and more"),
            "by 'loligo tune rollback R --conf /l/ceph.conf --name client.t --keyring k --host n1 --state s --remote-conf \
             /e/c.conf --accept OSD_X --accept OSD_Y --patience 60'. See 'loligo tune history --conf /l/ceph.conf --name client.t --keyring k --state s', 'ceph status' and more"
        );
        assert_eq!(given.complete("'loligo tune explain' lists them"), "'loligo tune explain' lists them");
        assert_eq!(given.complete("it's 'loligo tune plan"), "it's 'loligo tune plan", "no end of a command");
    }

    #[test]
    fn what_is_so_by_default_is_left_out() {
        let by_default = given("--name client.admin --root / --remote-program loligo")
            .with_state(None)
            .with_run(Path::new("/etc/ceph/ceph.conf"), None)
            .with_health(&[], 600);
        assert_eq!(by_default.complete("'loligo tune rollback R'"), "'loligo tune rollback R'");
    }

    #[test]
    fn a_word_of_a_shell_stays_one() {
        let with = "mend \"{id}\"".to_owned();
        let given =
            Given::default().with_state(Some(Path::new("/a b/$c"))).with_run(Path::new("/e"), Some(&with));
        let said = given.complete("'loligo tune rollback R'");
        assert_eq!(
            said,
            r#"'loligo tune rollback R --state "/a b/\$c" --remote-conf /e --restart-with "mend \"{id}\""'"#
        );
        let echo = said.trim_matches('\'').replace("loligo tune rollback R", "printf '%s|'");
        let out = std::process::Command::new("sh").args(["-c", &echo]).output().expect("a shell");
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            "--state|/a b/$c|--remote-conf|/e|--restart-with|mend \"{id}\"|"
        );
    }

    #[test]
    fn an_error_keeps_its_outcome() {
        let given = Given::default().with_state(Some(Path::new("s")));
        let of = |why: anyhow::Error| {
            let why = given.complete_error(why);
            (format!("{why:#}"), Outcome::of(&why))
        };
        let (said, outcome) = of(Ended::refused("by 'loligo tune rollback R'").into());
        assert_eq!((said.as_str(), outcome), ("by 'loligo tune rollback R --state s'", Outcome::Refused));
        let (said, outcome) = of(anyhow!("by 'loligo tune rollback R'").context("stopped"));
        assert_eq!(
            (said.as_str(), outcome),
            ("stopped: by 'loligo tune rollback R --state s'", Outcome::Failed)
        );
    }
}
