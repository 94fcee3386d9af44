//! The scheduler of a disk: as it changes, the kernel sets other values of the disk's queue anew.
//!
//! `nr_requests` follows each scheduler, `wbt_lat_usec` some, and those of the scheduler itself go with it. Some values are refused
//! under another scheduler. They are read with the scheduler, and put back after it.

use super::disk::is_of_disk;
use super::step::Step;
use crate::plan::Change;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

/// Values of the queue that follow the scheduler.
const FOLLOW: [&str; 2] = ["nr_requests", "wbt_lat_usec"];
/// The folder of values of the scheduler itself.
const OWN: &str = "iosched";

/// True if a place is the scheduler of a disk.
pub(super) fn is_scheduler(key: &str) -> bool {
    is_of_disk(key) && key.ends_with("/queue/scheduler")
}

/// Steps as they are to be made: a scheduler comes before the values that it would reset, and before their rule's other steps.
pub(super) fn in_order(mut steps: Vec<Step>) -> Vec<Step> {
    for at in 0..steps.len() {
        let Some(mut to) = steps[..at].iter().position(|it| resets(&steps[at].change, &it.change)) else {
            continue;
        };
        let rule = &steps[to].rule;
        if *rule != steps[at].rule {
            to = steps[..to].iter().rposition(|it| it.rule != *rule).map_or(0, |other| other + 1);
        }
        steps[to..=at].rotate_right(1);
    }
    steps
}

/// Steps that are to be taken back, with those of schedulers first: values of the queue may be refused before.
pub(super) fn first<'a>(steps: impl Iterator<Item = &'a Step>) -> Vec<&'a Step> {
    let mut steps: Vec<&Step> = steps.collect();
    steps.sort_by_key(|step| !is_scheduler(&step.change.key));
    steps
}

/// True if a change sets the value at the place of another anew.
pub(super) fn resets(change: &Change, other: &Change) -> bool {
    let queue =
        change.key.strip_suffix("scheduler").filter(|_| is_scheduler(&change.key) && change.who == other.who);
    let name = queue.and_then(|queue| other.key.strip_prefix(queue));
    name.is_some_and(|name| FOLLOW.contains(&name) || name.starts_with(OWN))
}

/// The values that go with the scheduler in `file`, by their names below its folder. What the kernel does not tell is not among them.
pub(super) fn beside(file: &Path) -> BTreeMap<String, String> {
    let Some(queue) = file.parent() else { return BTreeMap::new() };
    let own = std::fs::read_dir(queue.join(OWN)).into_iter().flatten().flatten();
    let own = own.map(|it| format!("{OWN}/{}", it.file_name().to_string_lossy()));
    let names = FOLLOW.map(str::to_owned).into_iter().chain(own);
    let with_value = |name: String| {
        let value = read(&queue.join(&name))?;
        Some((name, value))
    };
    names.filter_map(with_value).collect()
}

/// Puts them back, once the scheduler is the one that they are of.
///
/// # Errors
/// If the kernel refuses one.
pub(super) fn restore(file: &Path, beside: &BTreeMap<String, String>) -> Result<(), String> {
    let Some(queue) = file.parent() else { return Ok(()) };
    // A scheduler divides the requests of its queue: their number comes before its own values.
    let (own, follow): (Vec<_>, Vec<_>) = beside.iter().partition(|(name, _)| name.starts_with(OWN));
    for (name, value) in follow.into_iter().chain(own) {
        let file = queue.join(name);
        if read(&file).as_ref() == Some(value) {
            continue;
        }
        let wrote = std::fs::OpenOptions::new().write(true).open(&file);
        let wrote = wrote.and_then(|mut it| it.write_all(format!("{value}\n").as_bytes()));
        wrote.map_err(|why| format!("{} takes no '{value}': {why}", file.display()))?;
    }
    Ok(())
}

/// True if these are values that go with a scheduler, and no others.
pub(super) fn are_beside(beside: &BTreeMap<String, String>) -> bool {
    let is_plain =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_one = |name: &str| {
        FOLLOW.contains(&name)
            || name.strip_prefix(OWN).and_then(|it| it.strip_prefix('/')).is_some_and(is_plain)
    };
    beside.iter().all(|(name, value)| is_one(name) && !value.chars().any(char::is_control))
}

fn read(file: &Path) -> Option<String> {
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Order, Value, carry_out};
    use crate::plan::Now;
    use crate::rules::{Observe, Target};
    use std::path::PathBuf;
    use std::process::Command;

    fn step(number: u32, key: &str) -> Step {
        let (who, now) = ("n1".to_owned(), Now::default());
        let (target, value, observe) = (Target::Sysfs, Some("1".to_owned()), Observe::Sysfs);
        let change = Change { target, who, key: key.to_owned(), now, value, observe };
        Step { number, rule: "R".into(), change, before: Value::default(), restarts: Vec::new() }
    }

    #[test]
    fn schedulers_come_before_the_values_that_they_reset() {
        let all = [
            step(1, "/sys/block/sda/queue/nr_requests"),
            step(2, "/sys/kernel/x"),
            step(3, "/sys/block/sda/queue/scheduler"),
        ];
        let numbers = |steps: Vec<&Step>| steps.iter().map(|step| step.number).collect::<Vec<_>>();
        assert_eq!(numbers(in_order(all.to_vec()).iter().collect()), [3, 1, 2]);
        let rules = |words: &str| {
            let named = words.split(' ').zip([1, 0, 2, 1]).map(|(rule, at): (&str, usize)| Step {
                rule: rule.to_owned(),
                number: at as u32,
                ..all[at].clone()
            });
            in_order(named.collect())
                .iter()
                .map(|step| format!("{}{}", step.rule, step.number))
                .collect::<Vec<_>>()
        };
        assert_eq!(rules("A B C D").join(" "), "A1 C2 B0 D1");
        assert_eq!(rules("B B C D").join(" "), "C2 B1 B0 D1", "steps of a rule stay together");
        assert_eq!(rules("B B B D").join(" "), "B1 B2 B0 D1");
        assert_eq!(numbers(first(all.iter().rev())), [3, 2, 1]);
        let reset = |by: usize, of: usize| resets(&all[by].change, &all[of].change);
        assert!(reset(2, 0) && !reset(2, 1) && !reset(2, 2) && !reset(0, 2));
    }

    #[test]
    fn no_other_file_is_written_beside_a_scheduler() {
        let of = |name: &str, value: &str| are_beside(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        assert!(of("nr_requests", "256") && of("iosched/read_expire", "500") && of("wbt_lat_usec", "0"));
        for name in ["read_ahead_kb", "iosched/../scheduler", "iosched", "iosched/", "../../x", "/etc/passwd"]
        {
            assert!(!of(name, "1"), "{name}");
        }
        assert!(!of("nr_requests", "1\n2"));
    }

    /// A loop device that goes with the test.
    struct Loop {
        name: String,
        /// The folder of its file.
        _dir: tempfile::TempDir,
    }

    impl Loop {
        fn new() -> Option<Loop> {
            let dir = tempfile::tempdir().ok()?;
            let file = dir.path().join("disk");
            std::fs::File::create(&file).and_then(|it| it.set_len(16 << 20)).ok()?;
            let out = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().ok()?;
            let name = String::from_utf8(out.stdout).ok()?.trim().strip_prefix("/dev/")?.to_owned();
            Some(Loop { name, _dir: dir })
        }

        fn file(&self, name: &str) -> PathBuf {
            PathBuf::from(format!("/sys/block/{}/queue/{name}", self.name))
        }

        fn set(&self, name: &str, value: &str) {
            std::fs::write(self.file(name), value).expect("the kernel takes it");
        }

        fn get(&self, name: &str) -> String {
            read(&self.file(name)).expect("the kernel says it")
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["-d", &format!("/dev/{}", self.name)]).status();
        }
    }

    #[test]
    fn a_scheduler_comes_back_with_the_values_that_it_had() {
        let disk = rustix::process::geteuid().is_root().then(Loop::new).flatten();
        let schedulers = disk.as_ref().map(|disk| disk.get("scheduler")).unwrap_or_default();
        let Some(disk) = disk.filter(|_| schedulers.contains("mq-deadline") && schedulers.contains("none"))
        else {
            let mut to = std::io::stderr();
            let _ = writeln!(
                to,
                "SKIP: there is no loop device with schedulers, or no right to it: run it as root"
            );
            return;
        };
        disk.set("scheduler", "mq-deadline");
        // More than the device has itself: without a scheduler the kernel refuses it.
        disk.set("nr_requests", "300");
        disk.set("iosched/fifo_batch", "9");
        let key = format!("/sys/block/{}/queue/scheduler", disk.name);
        let order = |put| {
            let order =
                Order { target: Target::Sysfs, key: key.clone(), conf: PathBuf::new(), put, trial: None };
            carry_out(Path::new("/"), &order).expect("carried out").remove(0).value
        };
        let before = order(None);
        assert_eq!(before.beside.get("nr_requests").map(String::as_str), Some("300"));
        order(Some(Value::plain(Some("none".into()))));
        assert_ne!(disk.get("nr_requests"), "300", "the kernel sets it anew");
        let back = order(Some(before.clone()));
        assert!(back.is_as(&before), "{back:?} and {before:?}");
        assert_eq!((disk.get("nr_requests").as_str(), disk.get("iosched/fifo_batch").as_str()), ("300", "9"));
    }
}
