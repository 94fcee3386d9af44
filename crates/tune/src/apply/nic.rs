//! Values of a network interface on a host: of the kernel and of its driver. Each is put, read back, and taken back at once if the
//! interface does not carry packets with it.

use super::connections::end_larger;
use super::frames::{self, Frame, Way};
use super::interface::{self, Interface};
use super::rps::{Steering, mask, of_mask};
use crate::cpus::Cpus;
use crate::gather::ethtool::{self, Field};
use loligo_block::host_files::HostFiles;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The value that goes with [`What::Driver`] of coalescing that adapts.
const DELAY: &str = "rx_usecs";

/// A value of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nic {
    name: String,
    what: What,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Mtu,
    Rps,
    Driver(Field),
}

impl What {
    fn new(word: &str) -> Option<What> {
        Some(match word {
            "mtu" => What::Mtu,
            "rps_cpus" => What::Rps,
            "rings.rx" => What::Driver(Field::Ring),
            "adaptive_rx" => What::Driver(Field::AdaptiveRx),
            "rx_usecs" => What::Driver(Field::RxUsecs),
            _ => return None,
        })
    }

    /// True if this is a value that rules make, or that an interface of a cluster may have had before.
    fn takes(self, value: &str) -> bool {
        let within = |from: u32, to: u32| {
            value.parse::<u32>().is_ok_and(|it| (from..=to).contains(&it) && it.to_string() == value)
        };
        match self {
            // Less than IPv6 wants, and more than rules propose.
            What::Mtu => within(1280, 9000),
            What::Rps => Steering::parse(value).is_some(),
            What::Driver(Field::Ring) => within(64, 65536),
            What::Driver(Field::RxUsecs) => within(0, 1000),
            What::Driver(Field::AdaptiveRx) => matches!(value, "true" | "false"),
        }
    }

    /// True if drivers may take the link down for it, or set their other values anew.
    fn resets(self) -> bool {
        matches!(self, What::Mtu | What::Driver(Field::Ring))
    }
}

/// True if `value`, with those `beside` it, may be put at a place.
pub(super) fn takes(key: &str, value: Option<&str>, beside: &BTreeMap<String, String>) -> bool {
    let Ok(nic) = Nic::new(key) else { return false };
    let is_delay = |name: &str, value: &str| {
        nic.what == What::Driver(Field::AdaptiveRx)
            && name == DELAY
            && What::Driver(Field::RxUsecs).takes(value)
    };
    value.is_some_and(|it| nic.what.takes(it)) && beside.iter().all(|(name, value)| is_delay(name, value))
}

/// The keys that a change of `key` is of: the MTU of an interface is that of all that it lies on, the lowest first.
pub(super) fn with_lower(host: &HostFiles, key: &str) -> Vec<String> {
    let lower = match Nic::new(key) {
        Ok(nic) if nic.what == What::Mtu => nic.of(host).all_lower(),
        _ => Vec::new(),
    };
    lower.into_iter().map(|name| format!("{name}/mtu")).chain([key.to_owned()]).collect()
}

impl Nic {
    /// Of its key: `eth0/mtu`.
    ///
    /// # Errors
    /// If there is no such place.
    pub(super) fn new(key: &str) -> Result<Nic, String> {
        let parts = key.split_once('/').filter(|(name, _)| {
            !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.starts_with('.') && !name.contains('*')
        });
        let parts = parts.and_then(|(name, word)| Some((name, What::new(word)?)));
        let (name, what) = parts.ok_or_else(|| format!("{key} is no place of a network interface"))?;
        Ok(Nic { name: name.to_owned(), what })
    }

    fn of<'a>(&'a self, host: &'a HostFiles) -> Interface<'a> {
        Interface { host, name: &self.name }
    }

    /// The identity of its interface.
    pub(super) fn identity(&self, host: &HostFiles) -> Option<String> {
        self.of(host).identity()
    }

    /// The value that is there now.
    ///
    /// # Errors
    /// If there is no such interface, or its driver does not tell.
    pub(super) fn look(&self, host: &HostFiles) -> Result<String, String> {
        let mtu = self.of(host).mtu()?;
        match self.what {
            What::Mtu => Ok(mtu.to_string()),
            What::Rps => {
                let all = self.queues(host)?.into_iter().map(|(queue, _, cpus)| (queue, cpus)).collect();
                Steering::of(all)
                    .map(|it| it.to_string())
                    .ok_or_else(|| format!("{} has no receive queue", self.name))
            }
            What::Driver(field) => {
                let value = self.driver(host, |name| ethtool::get(name, field))?;
                Ok(match field {
                    Field::AdaptiveRx => (value != 0).to_string(),
                    _ => value.to_string(),
                })
            }
        }
    }

    /// Values that may change with this one, by their names: the delay of interrupts while it does not adapt.
    pub(super) fn beside(&self, host: &HostFiles) -> BTreeMap<String, String> {
        let is_fixed = || self.look(host).is_ok_and(|it| it == "false");
        let delay = self.sibling(What::Driver(Field::RxUsecs));
        match self.what {
            What::Driver(Field::AdaptiveRx) if is_fixed() => {
                delay.look(host).into_iter().map(|it| (DELAY.to_owned(), it)).collect()
            }
            _ => BTreeMap::new(),
        }
    }

    fn sibling(&self, what: What) -> Nic {
        Nic { name: self.name.clone(), what }
    }

    /// Asks the driver, on this host alone.
    fn driver<T>(&self, host: &HostFiles, ask: impl FnOnce(&str) -> std::io::Result<T>) -> Result<T, String> {
        if !host.are_live() {
            return Err(format!("{} has no driver here: this is a recorded tree", self.name));
        }
        ask(&self.name).map_err(|why| {
            let more = match why.raw_os_error() {
                Some(libc::EOPNOTSUPP) => ". Its driver does not know this",
                Some(libc::EPERM) => ". Run it as root",
                _ => "",
            };
            format!("the driver of {} refuses: {why}{more}", self.name)
        })
    }

    /// Receive queues, each with its file and its processors.
    fn queues(&self, host: &HostFiles) -> Result<Vec<(String, PathBuf, Cpus)>, String> {
        let at = self.of(host).path("queues");
        let queues = host.names(&at).into_iter().filter(|name| name.starts_with("rx-"));
        let one = |queue: String| {
            let path = format!("{at}/{queue}/rps_cpus");
            let cpus = host.read(&path).and_then(|text| of_mask(&text));
            let cpus = cpus.ok_or_else(|| format!("{path} is no mask of processors"))?;
            Ok((queue, host.at(path), cpus))
        };
        queues.map(one).collect()
    }

    /// The reason why it cannot be put, or not be put back.
    pub(super) fn fixed(&self, host: &HostFiles) -> Option<String> {
        let is = match self.look(host) {
            Ok(is) => is,
            Err(why) => return Some(why),
        };
        if let Some(why) = self.of(host).is_of_two() {
            return Some(why);
        }
        if !self.what.takes(&is) {
            return Some(format!(
                "{} has a value that this program does not put back: {is}. Set it by hand",
                self.name
            ));
        }
        let files = match self.what {
            What::Mtu => vec![host.at(self.of(host).path("mtu"))],
            What::Rps => self.queues(host).into_iter().flatten().map(|(_, path, _)| path).collect(),
            What::Driver(_) if !rustix::process::geteuid().is_root() => {
                return Some("drivers are set by root alone".to_owned());
            }
            What::Driver(_) => Vec::new(),
        };
        files.iter().find_map(|file| {
            let why = std::fs::OpenOptions::new().write(true).open(file).err()?;
            Some(format!("{} cannot be written: {why}. Run it as root on the host itself", file.display()))
        })
    }

    /// Puts a value. With a `trial` it stays only if the link comes back, the driver has taken it, and those packets pass.
    ///
    /// # Errors
    /// If it is refused, or did not stay. The words say what is there.
    pub(super) fn put(
        &self,
        host: &HostFiles,
        value: &str,
        beside: &BTreeMap<String, String>,
        trial: Option<&[Frame]>,
    ) -> Result<(), String> {
        let before = self.look(host)?;
        if let Some(why) = self.of(host).is_of_two() {
            return Err(why);
        }
        self.is_possible(host, value)?;
        let is_mtu = self.what == What::Mtu;
        let is_larger = is_mtu && number(value) > number(&before);
        let is_raise = is_larger || (is_mtu && before == value);
        let frames = trial.unwrap_or_default();
        let nics = [vec![self.name.clone()], self.of(host).all_upper()].concat();
        // Whoever is silent now proves nothing afterwards.
        let (answered, silent) = frames::answered(frames::behind(host, &nics, frames))?;
        if is_raise {
            frames::provable(&answered, &silent, number(&before).unwrap_or_default())?;
            self.is_shown(host, &[&self.name], frames, &answered)?;
        }
        let others = self.others(host);
        let is_up = |name: &String| host.are_live() && Interface { host, name }.is_up();
        let ports = others.iter().map(|(other, _)| &other.name);
        let up: BTreeSet<&String> = ports.chain([&self.name]).filter(|it| is_up(it)).collect();
        let up: Vec<String> = up.into_iter().filter(|_| self.what.resets()).cloned().collect();
        let change = |from: &str, to: &str| {
            let deadline = interface::back_by();
            self.set(host, from, to)?;
            interface::wait_until_up(host, &up, deadline)?;
            others.iter().try_for_each(|(other, value)| other.restore(host, value))?;
            interface::wait_until_up(host, &up, deadline)?;
            if let Some(mtu) = number(to).filter(|mtu| is_mtu && Some(*mtu) < number(from)) {
                end_larger(host, &nics, mtu);
            }
            Ok(())
        };
        let tried = change(&before, value).and_then(|()| {
            let is = self.look(host)?;
            if is == value {
                Ok(())
            } else {
                Err(format!("{} has {is} afterwards, and not {value}", self.name))
            }
        });
        // Interfaces above that did not follow send no larger packets than before. All must be reached as before.
        let has_grown = |nic: &&String| {
            is_raise && Interface { host, name: nic }.mtu().is_ok_and(|it| Some(it) >= number(value))
        };
        let tried = tried.and_then(|()| {
            let grown: Vec<&String> = nics.iter().filter(has_grown).collect();
            self.is_shown(host, &grown, frames, &answered)?;
            let large = answered.iter().filter(|way| grown.contains(&&way.nic)).cloned();
            frames::pass(&answered.iter().map(Way::short).chain(large).collect::<Vec<_>>())
        });
        let Err(why) = tried else {
            let delay = beside.get(DELAY);
            return delay.map_or(Ok(()), |it| self.sibling(What::Driver(Field::RxUsecs)).restore(host, it));
        };
        if trial.is_none() || before == value {
            return Err(why);
        }
        match self.look(host).and_then(|is| change(&is, &before)) {
            Ok(()) => Err(format!("{why}. It is {before} again")),
            Err(more) => Err(format!("{why}. It could not be put back to {before}: {more}")),
        }
    }

    /// Checks that packets show what becomes of those interfaces that have addresses and more than before.
    fn is_shown(
        &self,
        host: &HostFiles,
        grown: &[&String],
        frames: &[Frame],
        ways: &[Way],
    ) -> Result<(), String> {
        let is_bare = |nic: &&&String| {
            !ways.iter().any(|way| way.nic == ***nic) && Interface { host, name: nic }.has_addresses()
        };
        match grown.iter().filter(|_| !frames.is_empty()).find(is_bare) {
            None => Ok(()),
            Some(nic) => Err(format!(
                "{nic} has addresses, and no OSD of another host lies behind it by the routes of this host, so that nothing shows whether large packets pass: set {} by hand, by 'ip link set'",
                self.name
            )),
        }
    }

    /// Checks that the interfaces below and above can go with an MTU.
    fn is_possible(&self, host: &HostFiles, value: &str) -> Result<(), String> {
        let Some(mtu) = number(value).filter(|_| self.what == What::Mtu) else { return Ok(()) };
        let of = |name: &String| Interface { host, name }.mtu().map(|mtu| (name.clone(), mtu));
        let nic = self.of(host);
        for (lower, its) in nic.lower().iter().map(of).collect::<Result<Vec<_>, _>>()? {
            if its < mtu {
                return Err(format!(
                    "{} lies on {lower}, whose MTU is {its}: no more than that passes. Raise that one first",
                    self.name
                ));
            }
        }
        // The kernel lowers a VLAN with its parent, and lets others lose what is too large. A bridge may follow.
        let upper = nic.upper().into_iter().filter(|name| !Interface { host, name }.is_bridge());
        for (upper, its) in upper.map(|name| of(&name)).collect::<Result<Vec<_>, _>>()? {
            if its > mtu {
                return Err(format!(
                    "{upper} lies on {}, and has an MTU of {its}: lower that one first",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// Values that a driver may set anew with this one, as they are: also the MTUs of ports, which a bond sets.
    fn others(&self, host: &HostFiles) -> Vec<(Nic, String)> {
        if !self.what.resets() || !host.are_live() {
            return Vec::new();
        }
        let adapts = self.sibling(What::Driver(Field::AdaptiveRx)).look(host).is_ok_and(|it| it == "true");
        let all = [What::Mtu, What::Rps, What::Driver(Field::Ring), What::Driver(Field::AdaptiveRx)];
        let delay = (!adapts).then_some(What::Driver(Field::RxUsecs));
        let own = all.into_iter().chain(delay).filter(|what| *what != self.what).map(|it| self.sibling(it));
        let lower = if self.what == What::Mtu { self.of(host).lower() } else { Vec::new() };
        let lower = lower.into_iter().map(|name| Nic { name, what: What::Mtu });
        own.chain(lower).filter_map(|nic| Some((nic.clone(), nic.look(host).ok()?))).collect()
    }

    /// Sets it, if it is not so.
    fn restore(&self, host: &HostFiles, value: &str) -> Result<(), String> {
        let is = self.look(host)?;
        if is == value { Ok(()) } else { self.set(host, &is, value) }
    }

    fn set(&self, host: &HostFiles, before: &str, value: &str) -> Result<(), String> {
        if before == value {
            return Ok(());
        }
        match self.what {
            What::Mtu => self.set_mtu(host, before, value),
            What::Rps => self.steer(host, value),
            What::Driver(field) => {
                let number = match value {
                    "true" => Some(1),
                    "false" => Some(0),
                    number => number.parse().ok(),
                };
                let number = number.ok_or_else(|| format!("'{value}' is no number"))?;
                self.driver(host, |name| ethtool::set(name, field, number))
            }
        }
    }

    fn set_mtu(&self, host: &HostFiles, before: &str, value: &str) -> Result<(), String> {
        let file = host.at(self.of(host).path("mtu"));
        write(&file, value)?;
        let is_larger = |name: &String| {
            let nic = Interface { host, name };
            nic.is_bridge() && nic.mtu().ok() > number(value)
        };
        match self.of(host).upper().into_iter().find(is_larger) {
            Some(bridge) if host.are_live() && number(value) < number(before) => {
                write(&file, before)?;
                Err(format!("{bridge} lies on {}, and has a larger MTU: lower that one first", self.name))
            }
            _ => Ok(()),
        }
    }

    fn steer(&self, host: &HostFiles, value: &str) -> Result<(), String> {
        let want = Steering::parse(value).ok_or_else(|| format!("'{value}' is no list of processors"))?;
        let mut done: Vec<(PathBuf, Cpus)> = Vec::new();
        for (queue, path, is) in self.queues(host)? {
            let Some(cpus) = want.queue(&queue).filter(|it| **it != is) else { continue };
            if let Err(why) = write(&path, &mask(cpus)) {
                done.iter().for_each(|(path, cpus)| drop(write(path, &mask(cpus))));
                return Err(why);
            }
            done.push((path, is));
        }
        Ok(())
    }

    /// Large packets in words, as they pass by its interface now.
    ///
    /// # Errors
    /// If one does not pass.
    pub(super) fn sight(&self, host: &HostFiles, frames: &[Frame]) -> Result<String, String> {
        frames::sight(self.of(host), frames)
    }
}

fn number(value: &str) -> Option<i64> {
    value.parse().ok()
}

fn write(file: &Path, value: &str) -> Result<(), String> {
    let wrote = std::fs::OpenOptions::new().write(true).truncate(true).open(file);
    let wrote = wrote.and_then(|mut it| it.write_all(format!("{value}\n").as_bytes()));
    wrote.map_err(|why| format!("{} takes no '{value}': {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Order, Value, carry_out};
    use crate::rules::Target;
    use crate::small_tree::tree;

    /// A host with a bond of two ports, and an interface of two queues.
    fn host() -> tempfile::TempDir {
        tree(&[
            ("sys/class/net/e0/mtu", "1500\n"),
            ("sys/class/net/e0/queues/rx-0/rps_cpus", "00\n"),
            ("sys/class/net/e0/queues/rx-1/rps_cpus", "0f\n"),
            ("sys/class/net/e0/upper_bond0/x", ""),
            ("sys/class/net/e1/mtu", "9000\n"),
            ("sys/class/net/e1/upper_bond0/x", ""),
            ("sys/class/net/bond0/mtu", "1500\n"),
            ("sys/class/net/bond0/lower_e0/x", ""),
            ("sys/class/net/bond0/lower_e1/x", ""),
            ("sys/class/net/bond0/uevent", "DEVTYPE=bond\n"),
        ])
    }

    fn order(root: &Path, key: &str, put: Option<Value>) -> Result<Vec<(String, Value)>, String> {
        let order = Order { target: Target::Nic, key: key.into(), conf: "/x".into(), put, trial: None };
        Ok(carry_out(root, &order)?.into_iter().map(|it| (it.key, it.value)).collect())
    }

    fn value(text: &str) -> Option<Value> {
        Some(Value::plain(Some(text.to_owned())))
    }

    #[test]
    fn files_of_a_recorded_tree_are_set_and_no_driver() {
        let dir = host();
        let before = order(dir.path(), "e0/rps_cpus", None).expect("found").remove(0).1;
        assert_eq!(before.words(), "rx-0=none rx-1=0-3");
        order(dir.path(), "e0/rps_cpus", value("0-1")).expect("set");
        let mask = |queue| {
            std::fs::read_to_string(dir.path().join(format!("sys/class/net/e0/queues/{queue}/rps_cpus")))
        };
        assert_eq!(mask("rx-0").expect("a mask").trim(), "00000003");
        order(dir.path(), "e0/rps_cpus", Some(before.clone())).expect("put back");
        assert_eq!(order(dir.path(), "e0/rps_cpus", None), Ok(vec![("e0/rps_cpus".to_owned(), before)]));
        assert!(
            order(dir.path(), "e0/rings.rx", value("512")).expect_err("no driver").contains("recorded tree")
        );
        assert!(order(dir.path(), "e9/mtu", None).expect_err("none").contains("no interface e9"));
    }

    #[test]
    fn ports_come_before_what_lies_on_them() {
        let dir = host();
        let found = order(dir.path(), "bond0/mtu", None).expect("found");
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["e1/mtu", "e0/mtu", "bond0/mtu"]);
        let raised = order(dir.path(), "bond0/mtu", value("9000")).expect_err("a port takes less");
        assert!(raised.contains("bond0 lies on e0, whose MTU is 1500"), "{raised}");
        order(dir.path(), "e0/mtu", value("9000")).expect("set");
        order(dir.path(), "bond0/mtu", value("9000")).expect("set");
        let lowered = order(dir.path(), "e0/mtu", value("1500")).expect_err("the bond sends more");
        assert!(lowered.contains("bond0 lies on e0, and has an MTU of 9000"), "{lowered}");
    }

    #[test]
    fn a_value_that_would_not_be_put_back_is_known_beforehand() {
        let dir = host();
        std::fs::write(dir.path().join("sys/class/net/e0/mtu"), "576\n").expect("a file");
        let order =
            Order { target: Target::Nic, key: "e0/mtu".into(), conf: "/x".into(), put: None, trial: None };
        let found = carry_out(dir.path(), &order).expect("found");
        assert!(
            found[0].fixed.as_ref().is_some_and(|why| why.contains("does not put back: 576")),
            "{found:?}"
        );
    }
}
