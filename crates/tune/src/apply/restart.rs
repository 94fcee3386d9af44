//! OSDs are restarted one by one, each only while the others have all data.

use super::effect::runs_with;
use super::gate::Health;
use super::hosts::Hosts;
use super::last_words::{Anew, LastWords, order};
use super::watch::Watch;
use crate::gather::asked::{ask, by_id, command};
use crate::gather::units::is_service;
use loligo_ceph::commands::{CommandClient, Recipient};
use loligo_lab::process::{Late, finish_aloud};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time between two looks.
const BETWEEN: Duration = Duration::from_millis(500);

/// The time between two words on something that takes long.
const ALOUD: Duration = Duration::from_secs(10);

/// The time after a command from which on an OSD that still answers was not restarted by it.
const UNTOUCHED: Duration = Duration::from_secs(60);

/// The way to restart an OSD.
#[derive(Debug, Clone)]
pub enum Way {
    /// A command of this host's shell; `{id}` and `{host}` are filled in.
    Command(String),
    /// The orchestrator's.
    Orchestrator,
    /// The unit of systemd on its host.
    Systemd,
}

/// An OSD in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The epoch of the map in which it came up; nothing: it is down.
    pub up_from: Option<i64>,
    /// The flag noout is on it.
    pub own_noout: bool,
    /// The flag noout is on all.
    pub all_noout: bool,
}

impl Seen {
    fn of(map: &Value, osd: i64) -> Seen {
        let said = by_id(&map["osds"], "osd", osd);
        let has = |words: &Value| words.as_array().into_iter().flatten().any(|it| it == "noout");
        let up_from = (said["up"].as_i64() == Some(1)).then(|| said["up_from"].as_i64()).flatten();
        Seen { up_from, own_noout: has(&said["state"]), all_noout: has(&map["flags_set"]) }
    }

    /// It is down, and its flag is not to end.
    pub fn keeps_noout(&self) -> bool {
        self.up_from.is_none() && self.own_noout
    }
}

/// Restarts of a run.
#[derive(Debug)]
pub struct Restarts<'a> {
    /// The cluster.
    pub client: &'a CommandClient,
    /// The hosts.
    pub hosts: &'a Hosts,
    /// The way.
    pub way: Way,
    /// Checks of health that were there before.
    pub accepted: &'a BTreeSet<String>,
    /// The time that the cluster has to become clean.
    pub patience: Duration,
}

impl Restarts<'_> {
    /// Says that this OSD may be stopped now: all data stay within reach.
    ///
    /// # Errors
    /// If it may not after the patience; the manager's words.
    pub fn wait_until_ok(&self, osd: i64, watch: &dyn Watch) -> Result<(), String> {
        self.wait_for(watch, |_| {
            let mut order = command("osd ok-to-stop");
            order["ids"] = json!([osd.to_string()]);
            self.client.send(Recipient::Manager, &order).map(drop).map_err(|why| why.to_string())
        })
    }

    /// Looks at it in the map.
    ///
    /// # Errors
    /// If no monitor answers.
    pub fn look(&self, osd: i64) -> Result<Seen, String> {
        let map = ask(self.client, Recipient::Monitors, &command("osd dump"))?;
        Ok(Seen::of(&map, osd))
    }

    /// Keeps it from being marked out, or ends that.
    ///
    /// # Errors
    /// If no monitor answers.
    pub fn noout(&self, osd: i64, on: bool) -> Result<(), String> {
        let prefix = if on { "osd set-group" } else { "osd unset-group" };
        let order = json!({"prefix": prefix, "flags": "noout", "who": [format!("osd.{osd}")]});
        self.client.send(Recipient::Monitors, &order).map(drop).map_err(|why| why.to_string())
    }

    /// Ends that. An OSD that is down keeps it: its data would be moved away.
    ///
    /// # Errors
    /// If it is down, or no monitor answers.
    pub fn end_noout(&self, osd: i64) -> Result<(), String> {
        let seen = self.look(osd)?;
        if seen.keeps_noout() {
            return Err(format!(
                "osd.{osd} is down, and stays in by the flag noout: start it. 'loligo tune rollback' ends the flag then, and \
                 'ceph osd unset-group noout osd.{osd}' does at once"
            ));
        }
        if seen.own_noout { self.noout(osd, false) } else { Ok(()) }
    }

    /// Restarts it, and waits until it is up by a new start. `unit` is its unit of systemd, where that is known.
    ///
    /// # Errors
    /// If it cannot be told to, is not up after the patience, or has ended: with the last words of its log.
    pub fn restart(&self, osd: i64, host: &str, unit: Option<&str>, watch: &dyn Watch) -> Result<(), String> {
        let before = self.up_from(osd)?;
        // One that does not answer names none, and has no words then.
        let log = runs_with(self.client, osd, "log_file").unwrap_or_default();
        let mut anew = Anew::new(self.last_words(osd, host, &log).unwrap_or_default());
        match &self.way {
            Way::Command(text) => self.by_command(text, osd, host)?,
            Way::Orchestrator => {
                let order =
                    json!({"prefix": "orch daemon", "action": "restart", "name": format!("osd.{osd}")});
                self.client.send(Recipient::Manager, &order).map_err(|why| why.to_string())?;
            }
            Way::Systemd => self.by_systemd(osd, host, &unit_of(osd, unit)?)?,
        }
        let told = Instant::now();
        self.wait_for(watch, |is_aloud| match self.up_from(osd)? {
            Some(from) if Some(from) > before => Ok(Ok(())),
            // It is asked where the one before was: a new one is elsewhere, and counts as another.
            Some(_) if self.is_by_command() && told.elapsed() > UNTOUCHED && self.answers(osd) => {
                let seconds = UNTOUCHED.as_secs();
                Ok(Err(format!(
                    "osd.{osd} runs on {seconds} s after the command of --restart-with: it does not restart that OSD"
                )))
            }
            _ => {
                let mut why = format!("osd.{osd} was restarted and is not up");
                if let Some(is) = is_aloud.then(|| self.last_words(osd, host, &log)).flatten()
                    && let Some(words) = anew.failures(is)
                {
                    why.push_str(&format!(". Its log: {words}"));
                }
                if anew.has_ended() {
                    return Ok(Err(format!("{why}. It has ended")));
                }
                Err(why)
            }
        })?
    }

    fn last_words(&self, osd: i64, host: &str, log: &str) -> Option<LastWords> {
        let found = self.hosts.order(host, order(osd, log)).ok()?;
        found.into_iter().next().map(LastWords::of)
    }

    fn is_by_command(&self) -> bool {
        matches!(self.way, Way::Command(_))
    }

    /// It answers at the address that the map has.
    fn answers(&self, osd: i64) -> bool {
        self.client.send(Recipient::Osd(osd as u32), &command("version")).is_ok()
    }

    /// Waits until the cluster is as it was before.
    ///
    /// # Errors
    /// If it is not after the patience; what is wrong.
    pub fn wait_until_clean(&self, watch: &dyn Watch) -> Result<(), String> {
        self.wait_for(watch, |_| match Health::ask(self.client)?.complaint(self.accepted) {
            Some(why) => Err(why),
            None => Ok(()),
        })
    }

    /// Waits until `is_so`, and says from time to time why it is not. The look before such words is told so.
    fn wait_for<T>(
        &self,
        watch: &dyn Watch,
        mut is_so: impl FnMut(bool) -> Result<T, String>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        let (mut aloud, mut before) = (begun + ALOUD, String::new());
        loop {
            let is_late = begun.elapsed() >= self.patience;
            let is_aloud = is_late || Instant::now() >= aloud;
            let (seconds, patience) = (begun.elapsed().as_secs(), self.patience.as_secs());
            match is_so(is_aloud) {
                Ok(it) => return Ok(it),
                Err(why) if is_late => return Err(format!("{why}, after {patience} s (--patience)")),
                Err(why) if is_aloud => {
                    let words = if why == before { "as before" } else { &why };
                    watch.say(&format!("{words} ({seconds} s of {patience} s)"));
                    before = why;
                    aloud = Instant::now() + ALOUD;
                }
                Err(_) => {}
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// The epoch of the map in which it came up; nothing: it is down.
    fn up_from(&self, osd: i64) -> Result<Option<i64>, String> {
        Ok(self.look(osd)?.up_from)
    }

    fn by_command(&self, text: &str, osd: i64, host: &str) -> Result<(), String> {
        if !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
            return Err(format!("'{host}' is no name of a host for a command"));
        }
        let text = text.replace("{id}", &osd.to_string()).replace("{host}", host);
        run(Command::new("sh").args(["-c", &text]), &text, self.patience)
    }

    fn by_systemd(&self, osd: i64, host: &str, unit: &str) -> Result<(), String> {
        let [forget, restart] = orders(unit);
        if host == self.hosts.here {
            let systemctl =
                |order: &[&str; 2]| run(Command::new("systemctl").args(order), &words(order), self.patience);
            let _ = systemctl(&forget);
            return systemctl(&restart);
        }
        let Some(remote) = self.hosts.remote.get(host) else {
            return Err(format!("osd.{osd} is on {host}, which cannot be reached: add --host {host}"));
        };
        remote
            .shell(&format!("{}; {}", words(&forget), words(&restart)), self.patience)
            .map_err(|why| format!("{host}: {why}"))
    }
}

/// The unit of an OSD: the one that facts know, or that of Ceph's packages.
fn unit_of(osd: i64, unit: Option<&str>) -> Result<String, String> {
    match unit.filter(|unit| !unit.is_empty()) {
        Some(unit) if is_service(unit) => Ok(unit.to_owned()),
        Some(unit) => Err(format!("osd.{osd} is said to be run by '{unit}', which is no unit of systemd")),
        None => Ok(format!("ceph-osd@{osd}.service")),
    }
}

/// Orders of systemctl for one restart. Starts before it do not count against the unit's limit, which is 3 in 30 minutes.
fn orders(unit: &str) -> [[&str; 2]; 2] {
    [["reset-failed", unit], ["restart", unit]]
}

/// An order as words of a shell.
fn words(order: &[&str; 2]) -> String {
    format!("systemctl {} '{}'", order[0], order[1])
}

/// Its own words go to where this program's go. Ctrl-C is for this program, which ends between two deeds.
fn run(command: &mut Command, words: &str, within: Duration) -> Result<(), String> {
    match finish_aloud(command, within) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("'{words}' failed: {status}")),
        Err(why) if why.is::<Late>() => Err(format!(
            "'{words}' has no end after {} s (--patience): it is unknown whether the OSD was restarted",
            within.as_secs()
        )),
        Err(why) => Err(format!("'{words}' cannot be run: {why:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_before_are_forgotten_before_each_restart() {
        let [first, second] = orders("ceph-osd@3.service");
        assert_eq!(words(&first), "systemctl reset-failed 'ceph-osd@3.service'");
        assert_eq!(words(&second), "systemctl restart 'ceph-osd@3.service'");
    }

    #[test]
    fn an_osd_that_is_down_keeps_its_noout() {
        let map = json!({"flags_set": ["sortbitwise"], "osds": [
            {"osd": 0, "up": 1, "up_from": 7, "state": ["exists", "up", "noout"]},
            {"osd": 1, "up": 0, "up_from": 5, "state": ["exists", "noout"]},
            {"osd": 2, "up": 0, "up_from": 5, "state": ["exists"]}
        ]});
        let keeps = |osd| Seen::of(&map, osd).keeps_noout();
        assert_eq!([keeps(0), keeps(1), keeps(2)], [false, true, false]);
        assert_eq!(Seen::of(&map, 0), Seen { up_from: Some(7), own_noout: true, all_noout: false });
    }

    #[test]
    fn ctrl_c_does_not_reach_a_restart() {
        let sh = |text: &str, within| run(Command::new("sh").args(["-c", text]), text, within);
        let alone = "set -- $(cat /proc/$$/stat); test $5 = $$";
        assert_eq!(sh(alone, Duration::from_secs(30)), Ok(()), "it is in a group of its own");
        let said = sh("sleep 60", Duration::from_millis(50)).expect_err("late");
        assert!(said.contains("unknown whether the OSD was restarted"), "{said}");
    }

    #[test]
    fn the_unit_that_facts_know_is_restarted() {
        assert_eq!(unit_of(3, Some("ceph-f-osd@3.service")).as_deref(), Ok("ceph-f-osd@3.service"));
        for unknown in [None, Some("")] {
            assert_eq!(unit_of(3, unknown).as_deref(), Ok("ceph-osd@3.service"));
        }
        assert!(unit_of(3, Some("x'; reboot; '.service")).is_err(), "it goes to a shell");
    }
}
