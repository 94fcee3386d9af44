//! Values at their places: read, and put.

use super::disk::is_of_disk;
use super::frames::Frame;
use super::hosts::{Hosts, Unheard};
use super::masks::Masks;
use super::on_host::{Found, Order};
use super::step::{Step, place};
use super::value::Value;
use crate::gather::asked::{ask, command};
use crate::plan::{Change, Now, Seen};
use crate::rules::{Observe, Target};
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// The hands of a run: the cluster, and the hosts.
#[derive(Debug, Clone, Copy)]
pub struct Hands<'a> {
    /// The cluster.
    pub client: &'a CommandClient,
    /// The hosts.
    pub hosts: &'a Hosts,
}

/// A value that was not put.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPut {
    /// The place is as it was.
    #[error("{0}")]
    Refused(String),
    /// It may be there all the same.
    #[error("{0}")]
    Perhaps(String),
    /// It may yet come there: nobody knows what became of the order.
    #[error("{0}")]
    Lost(String),
}

impl Hands<'_> {
    /// The values at the place of a change, each with its change: a path with `*` is several places.
    ///
    /// # Errors
    /// If it cannot be asked, or a host cannot write there.
    pub fn look(&self, change: &Change) -> Result<Vec<(Change, Value)>, String> {
        if !is_of_host(change.target) {
            return Ok(vec![(change.clone(), self.value(change)?)]);
        }
        let mut found = self.hosts.order(&change.who, order(change, None))?;
        // Ports of an interface that carry as much already are left.
        let size = |value: Option<&String>| value.and_then(|it| it.parse::<i64>().ok());
        let is_port = |it: &Found| change.target == Target::Nic && it.key != change.key;
        found.retain(|it| !is_port(it) || size(it.value.now.as_ref()) < size(change.value.as_ref()));
        if let Some(why) = found.iter().find_map(|it| it.fixed.as_ref()) {
            return Err(format!("{}: {why}", change.who));
        }
        let of = |it: Found| (Change { key: it.key, ..change.clone() }, it.value);
        Ok(found.into_iter().map(of).collect())
    }

    /// The values of a pool, an interface or below /sys with their sources; nothing: they cannot be told, or do not outlive a boot as they should.
    pub fn seen(&self, target: Target, who: &str, key: &str) -> Option<Vec<Seen>> {
        let (who, key, now) = (who.to_owned(), key.to_owned(), Now::default());
        let change = Change { target, who, key, now, value: None, observe: Observe::None };
        let found = match target {
            Target::Pool => vec![(change.clone(), self.value(&change).ok()?)],
            Target::Sysfs | Target::Nic => {
                let found = self.hosts.order(&change.who, order(&change, None)).ok()?;
                found.into_iter().map(|it| (Change { key: it.key, ..change.clone() }, it.value)).collect()
            }
            _ => return None,
        };
        let source = |kept: &Option<String>| match (target, kept) {
            (Target::Pool, _) => "the pool's",
            (_, Some(_)) => "the kernel's, kept over a boot by this program",
            _ => "the kernel's",
        };
        let one = |(change, is): (Change, Value)| {
            let want = wanted(&Change { value: is.now.clone(), ..change.clone() });
            let source = source(&is.kept).to_owned();
            // One that the next boot takes away is not so yet.
            (want.kept == is.kept).then_some(Seen { key: change.key, value: is.now?, source })
        };
        found.into_iter().map(one).collect()
    }

    /// The value at the one place of a change.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub fn value(&self, change: &Change) -> Result<Value, String> {
        match change.target {
            Target::Daemon => Ok(Value::default()),
            Target::Config | Target::Mgr => {
                let dump = ask(self.client, Recipient::Monitors, &command("config dump"))?;
                Ok(Value::plain(entry(&dump, &change.who, &change.key)))
            }
            Target::Pool => {
                let mut order = command("osd pool get");
                order["pool"] = json!(change.who);
                order["var"] = json!(change.key);
                let said = ask(self.client, Recipient::Monitors, &order)?;
                let value = &said[change.key.as_str()];
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Ok(Value::plain((!value.is_null()).then_some(text)))
            }
            _ if is_of_host(change.target) => {
                let found = self.hosts.order(&change.who, order(change, None))?;
                let one = found.into_iter().find(|it| it.key == change.key).map(|it| it.value);
                one.ok_or_else(|| format!("there is no {}", place(change)))
            }
            _ => Err(format!("{} is not read by this program", place(change))),
        }
    }

    /// Packets that pass by the interface of a change, in words; nothing: none are meant.
    ///
    /// # Errors
    /// If one does not pass, or the host cannot be asked.
    pub(super) fn sight(&self, change: &Change, frames: Vec<Frame>) -> Result<Option<String>, String> {
        if frames.is_empty() {
            return Ok(None);
        }
        let asks = Order { trial: Some(frames), ..order(change, None) };
        Ok(self.hosts.order(&change.who, asks)?.into_iter().find_map(|it| it.seen))
    }

    /// The variable that the process of an OSD has; nothing: none, or no process.
    ///
    /// # Errors
    /// If the host cannot be asked.
    pub(super) fn variable(&self, change: &Change) -> Result<Option<String>, String> {
        let found = self.hosts.order(&change.who, order(change, None))?;
        Ok(found.into_iter().find_map(|it| it.seen))
    }

    /// Puts a value there. `known` is false where a release may not know the name any more. With a `trial` the value of an interface
    /// stays only if the interface carries packets with it, these among them.
    ///
    /// # Errors
    /// If it is refused, with the words of whoever refuses, or nobody knows whether it is there.
    pub(super) fn put(
        &self,
        change: &Change,
        value: &Value,
        known: bool,
        trial: Option<Vec<Frame>>,
    ) -> Result<(), NotPut> {
        let order = match (change.target, &value.now) {
            (Target::Config | Target::Mgr, Some(now)) => json!({
                "prefix": "config set", "who": change.who, "name": change.key, "value": now, "force": !known
            }),
            (Target::Config | Target::Mgr, None) => {
                json!({"prefix": "config rm", "who": change.who, "name": change.key})
            }
            (Target::Pool, Some(now)) => {
                json!({"prefix": "osd pool set", "pool": change.who, "var": change.key, "val": now})
            }
            (Target::Daemon, _) => return Ok(()),
            _ if is_of_host(change.target) => {
                let trial = trial.filter(|_| change.target == Target::Nic);
                let said =
                    self.hosts.heard(&change.who, Order { trial, ..order(change, Some(value.clone())) });
                return said.map(drop).map_err(|why| match why {
                    Unheard::Refused(why) => NotPut::Perhaps(why),
                    Unheard::Lost(why) => NotPut::Lost(why),
                });
            }
            _ => return Err(NotPut::Refused(format!("{} is not written by this program", place(change)))),
        };
        self.client.send(Recipient::Monitors, &order).map(drop).map_err(|why| match why.errno() {
            Some(libc::EINVAL | libc::ENOENT | libc::ERANGE) => NotPut::Refused(why.to_string()),
            _ => NotPut::Perhaps(why.to_string()),
        })
    }
}

/// The value that a step puts: what is kept by files of the host is kept as well. Values of disks end with a boot: a disk may have
/// another name then.
pub fn wanted(change: &Change) -> Value {
    let is_kept = match change.target {
        Target::Sysctl | Target::Affinity => true,
        Target::Sysfs => !is_of_disk(&change.key),
        _ => false,
    };
    let kept = is_kept.then(|| change.value.clone()).flatten();
    Value { kept, ..Value::plain(change.value.clone()) }
}

/// The same for the disk or interface that was looked at: another one that has its name since is left.
pub(super) fn meant(step: &Step) -> Value {
    Value { disk: step.before.disk.clone(), nic: step.before.nic.clone(), ..wanted(&step.change) }
}

fn is_of_host(target: Target) -> bool {
    matches!(
        target,
        Target::Sysctl
            | Target::Sysfs
            | Target::File
            | Target::Affinity
            | Target::Unit
            | Target::Nic
            | Target::Env
    )
}

/// True if a place has the value `want`. Threads come and go: those that are there are compared, and none is as good as any.
pub(super) fn has(change: &Change, is: &Value, want: &Value) -> bool {
    is.kept == want.kept && is_in_force(change, is, want)
}

/// The same of the value in force alone.
pub(super) fn is_in_force(change: &Change, is: &Value, want: &Value) -> bool {
    match (change.target, &is.now, &want.now) {
        (Target::Affinity, None, _) => true,
        (Target::Affinity, Some(is), Some(want)) => match (Masks::parse(is), Masks::parse(want)) {
            (Some(is), Some(want)) if is_irq(change) => is.are(&want.renamed_as(&is)),
            (Some(is), Some(want)) => is.are(&want),
            _ => is == want,
        },
        (_, is, want) => is == want,
    }
}

/// True if a change is of interrupts. They have new numbers after a boot.
pub(super) fn is_irq(change: &Change) -> bool {
    change.target == Target::Affinity && change.key.ends_with("/irq")
}

fn order(change: &Change, put: Option<Value>) -> Order {
    Order { target: change.target, key: change.key.clone(), conf: PathBuf::new(), put, trial: None }
}

/// The value of a key at a section with its mask, as the database has it.
pub(super) fn entry(dump: &Json, who: &str, key: &str) -> Option<String> {
    let (section, mask) = who.split_once('/').unwrap_or((who, ""));
    let mut entries = dump.as_array().into_iter().flatten();
    let found = entries.find(|it| {
        it["name"] == key && it["section"] == section && it["mask"].as_str().unwrap_or_default() == mask
    });
    found.and_then(|it| it["value"].as_str()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_that_of_its_very_section_and_mask() {
        let dump = json!([
            {"section": "osd", "name": "k", "value": "1", "mask": "class:hdd"},
            {"section": "osd", "name": "k", "value": "2", "mask": ""},
            {"section": "osd.1", "name": "k", "value": "3"}
        ]);
        let of = |who: &str| entry(&dump, who, "k");
        assert_eq!(of("osd/class:hdd").as_deref(), Some("1"));
        assert_eq!(of("osd").as_deref(), Some("2"));
        assert_eq!(of("osd.1").as_deref(), Some("3"));
        assert_eq!(of("global"), None);
    }

    #[test]
    fn an_order_names_the_interface_that_was_looked_at() {
        let change = Change {
            target: Target::Nic,
            who: "n1".into(),
            key: "e0/mtu".into(),
            now: Now::default(),
            value: Some("9000".into()),
            observe: Observe::Nic,
        };
        let before = Value { nic: Some("aa:01".into()), ..Value::plain(Some("1500".into())) };
        let step = Step { number: 1, rule: "NET-02".into(), change, before, restarts: Vec::new() };
        let order = meant(&step);
        assert_eq!((order.now.as_deref(), order.nic.as_deref()), (Some("9000"), Some("aa:01")));
    }
}
