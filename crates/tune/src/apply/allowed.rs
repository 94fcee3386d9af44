//! The bounds of an order to a host. Orders come from journals too, and a cluster's copy of one is no authority over root on its hosts.

use super::disk::is_of_disk;
use super::environment::takes as takes_variable;
use super::masks::Masks;
use super::nic::takes;
use super::scheduler::{are_beside, is_scheduler};
use super::value::Value;
use crate::cpus::Cpus;
use crate::gather::units::drop_in_text;
use crate::rules::{Target, is_key};

/// Checks that `value` may be put at a place.
///
/// # Errors
/// If the place or value is none that this program makes.
pub(super) fn may_put(target: Target, key: &str, value: &Value) -> Result<(), String> {
    let none = |what: &str| Err(format!("{key} is left: {what}. No rule of this program makes it"));
    if target == Target::Unit {
        let daemon = daemon(key)?;
        return match &value.now {
            Some(text) if !is_drop_in(daemon, text) => {
                none("the drop-in has other lines than this program's")
            }
            _ if value.kept.is_some() => none("nothing keeps a drop-in"),
            _ => Ok(()),
        };
    }
    if target == Target::Env {
        let is_one =
            takes_variable(key, value.now.as_deref()) && value.kept.is_none() && value.beside.is_empty();
        return if is_one { Ok(()) } else { none("no rule names the variable or the value") };
    }
    if target == Target::Nic {
        let is_one = is_key(target, key) && takes(key, value.now.as_deref(), &value.beside);
        return if is_one && value.kept.is_none() {
            Ok(())
        } else {
            none("no rule names the place or the value")
        };
    }
    let is_beside = target == Target::Sysfs && is_scheduler(key) && are_beside(&value.beside);
    if !value.beside.is_empty() && !is_beside {
        return none("the values beside it are not those of a scheduler");
    }
    let mut values = value.now.iter().chain(&value.kept);
    if values.clone().any(|it| it.chars().any(char::is_control)) {
        return none("the value is no single line");
    }
    match target {
        Target::Sysctl | Target::Sysfs if key.contains('*') || !is_key(target, key) => {
            none("no rule names the place")
        }
        Target::Sysfs if is_of_disk(key) && value.kept.is_some() => {
            none("a disk has another name after a boot, and no line keeps its value")
        }
        Target::Affinity if values.any(|it| Masks::parse(it).is_none()) => {
            none("the value is no list of processors")
        }
        _ => Ok(()),
    }
}

/// The daemon of a unit that this program writes drop-ins of: an OSD's number, or `loligod`.
///
/// # Errors
/// If it is another unit.
pub(super) fn daemon(unit: &str) -> Result<&str, String> {
    let other = || format!("'{unit}' is no unit of an OSD or of loligod: no drop-in of it is written");
    let name = unit.strip_suffix(".service").ok_or_else(other)?;
    if name == "loligod" {
        return Ok(name);
    }
    let is_fsid =
        |it: &str| !it.is_empty() && it.chars().all(|c| c == '-' || matches!(c, '0'..='9' | 'a'..='f'));
    let by_cephadm = || {
        let (fsid, id) = name.strip_prefix("ceph-")?.split_once("@osd.")?;
        is_fsid(fsid).then_some(id)
    };
    let id = name.strip_prefix("ceph-osd@").or_else(by_cephadm);
    let is_id = |it: &&str| it.parse::<u32>().is_ok_and(|id| id.to_string() == *it);
    id.filter(is_id).ok_or_else(other)
}

/// True if this program makes such a drop-in of a daemon, to the byte.
pub(super) fn is_drop_in(daemon: &str, text: &str) -> bool {
    let of = |key: &str| text.lines().filter_map(|line| line.strip_prefix(key)).rfind(|it| !it.is_empty());
    let cpus = of("CPUAffinity=").and_then(Cpus::parse);
    let node = of("NUMAMask=").and_then(|it| it.parse::<u32>().ok()).map(i64::from);
    text == drop_in_text(daemon, cpus.as_ref(), node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_units_and_other_lines_are_never_written() {
        let cpus = Cpus::parse("0-3,8").expect("a list");
        let own = drop_in_text("3", Some(&cpus), Some(1));
        let put = |unit: &str, text: &str| may_put(Target::Unit, unit, &Value::plain(Some(text.to_owned())));
        for unit in ["ceph-osd@3.service", "ceph-0a-1f@osd.3.service"] {
            assert_eq!(put(unit, &own), Ok(()));
            assert_eq!(may_put(Target::Unit, unit, &Value::default()), Ok(()));
        }
        assert_eq!(put("loligod.service", &drop_in_text("loligod", None, None)), Ok(()));
        assert!(put("ceph-osd@4.service", &own).is_err(), "another OSD's");
        for more in
            ["ExecStartPre=/bin/sh\n", "[Service]\nExecStartPre=x\n", "CPUAffinity=1\n", "NUMAMask=2\n", "\n"]
        {
            assert!(put("ceph-osd@3.service", &format!("{own}{more}")).is_err(), "{more}");
        }
        assert!(put("ceph-osd@3.service", "[Service]\nExecStartPre=/bin/sh\n").is_err());
        let others = ["cron.service", "ceph-osd@.service", "ceph-osd@+3.service", "ceph-mon@3.service"];
        let odd = ["ceph-x@osd.3.service", "ceph-osd@3.timer", "ceph-f@osd.3/../a.service"];
        for unit in others.iter().chain(&odd) {
            assert!(may_put(Target::Unit, unit, &Value::default()).is_err(), "{unit}");
        }
    }

    #[test]
    fn places_that_no_rule_names_are_never_written() {
        let value = |it: &str| Value { now: Some(it.into()), kept: Some(it.into()), ..Value::default() };
        for (target, key) in [
            (Target::Sysctl, "vm.swappiness"),
            (Target::Sysctl, "vm.dirty_ratio"),
            (Target::Sysfs, "/sys/kernel/mm/transparent_hugepage/enabled"),
            (Target::Sysfs, "/sys/devices/system/cpu/cpu12/cpufreq/scaling_governor"),
        ] {
            assert_eq!(may_put(target, key, &value("1")), Ok(()), "{key}");
            assert!(may_put(target, key, &value("1\nkernel.core_pattern = |/x")).is_err(), "{key}");
        }
        for (target, key) in [
            (Target::Sysctl, "kernel.core_pattern"),
            (Target::Sysctl, "kernel.modprobe"),
            (Target::Sysfs, "/sys/kernel/uevent_helper"),
            (Target::Sysfs, "/sys/devices/system/cpu/cpu1/online"),
            (Target::Sysfs, "/sys/block/sda/x/queue/scheduler"),
            (Target::Sysfs, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
        ] {
            assert!(may_put(target, key, &value("1")).is_err(), "{key}");
        }
        let beside = |key: &str, name: &str| {
            let beside = std::collections::BTreeMap::from([(name.to_owned(), "1".to_owned())]);
            may_put(Target::Sysfs, key, &Value { beside, ..Value::plain(Some("none".into())) })
        };
        assert_eq!(beside("/sys/block/sda/queue/scheduler", "nr_requests"), Ok(()));
        assert!(beside("/sys/block/sda/queue/scheduler", "../../x").is_err());
        assert!(beside("/sys/block/sda/queue/nr_requests", "nr_requests").is_err());
        assert!(may_put(Target::Affinity, "osd.1/all", &value("0-3 x")).is_err());
        assert_eq!(may_put(Target::Affinity, "e0/irq", &value("36=0 37=1")), Ok(()));
    }

    #[test]
    fn interfaces_take_no_value_that_cuts_them_off() {
        let put = |key: &str, value: &str| may_put(Target::Nic, key, &Value::plain(Some(value.into())));
        for (key, value) in [
            ("e0/mtu", "9000"),
            ("e0.5/mtu", "1280"),
            ("e0/rps_cpus", "none"),
            ("e0/rps_cpus", "rx-0=0-3 rx-1=none"),
            ("e0/rings.rx", "4096"),
            ("e0/adaptive_rx", "false"),
            ("e0/rx_usecs", "8"),
        ] {
            assert_eq!(put(key, value), Ok(()), "{key} {value}");
        }
        for (key, value) in [
            ("e0/mtu", "68"),
            ("e0/mtu", "65535"),
            ("e0/mtu", "01500"),
            ("e0/rps_cpus", "0-3; x"),
            ("e0/rings.rx", "1"),
            ("e0/adaptive_rx", "2"),
            ("e0/rx_usecs", "1000000"),
            ("e0/operstate", "down"),
            ("../mtu", "1500"),
            ("*/mtu", "1500"),
            ("e0/x/mtu", "1500"),
            ("/sys/class/net/e0/mtu", "1500"),
        ] {
            assert!(put(key, value).is_err(), "{key} {value}");
        }
        assert!(may_put(Target::Nic, "e0/mtu", &Value::default()).is_err(), "nothing is no value of one");
        let kept = Value { kept: Some("1500".into()), ..Value::plain(Some("1500".into())) };
        assert!(may_put(Target::Nic, "e0/mtu", &kept).is_err(), "no file keeps it");
        let beside = |key: &str, name: &str, delay: &str| {
            let beside = std::collections::BTreeMap::from([(name.to_owned(), delay.to_owned())]);
            may_put(Target::Nic, key, &Value { beside, ..Value::plain(Some("false".into())) })
        };
        assert_eq!(beside("e0/adaptive_rx", "rx_usecs", "3"), Ok(()));
        assert!(beside("e0/adaptive_rx", "rx_usecs", "100000").is_err());
        assert!(beside("e0/adaptive_rx", "mtu", "68").is_err());
    }
}
