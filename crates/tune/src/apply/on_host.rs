//! Deeds on a host: values of its kernel and processors of threads with the files that keep them, Ceph's own file,
//! drop-ins, and values of network interfaces.

use super::affinity::{Bound, KEEPER};
use super::allowed::may_put;
use super::disk::identity;
use super::drop_in::DropIn;
use super::environment::Variable;
use super::frames::Frame;
use super::masks::Masks;
use super::nic::{self, Nic};
use super::osd_log::OsdLog;
use super::replaced::replace;
use super::scheduler::{self, is_scheduler};
use super::value::Value;
use crate::ceph_file::{given_back, in_file, taken_away};
use crate::gather::lists::chosen;
use crate::rules::Target;
use loligo_block::host_files::HostFiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The file that keeps values of sysctl; the last that is read of its folder.
const SYSCTL: &str = "/etc/sysctl.d/99-zz-loligo-tune.conf";
/// The file that keeps values below /sys.
const SYSFS: &str = "/etc/tmpfiles.d/zz-loligo-tune.conf";
/// The head of both.
const HEAD: &str = "# Written by 'loligo tune apply'. 'loligo tune rollback' takes its lines away again.\n";

/// The word before a share of memory where a limit in bytes is not in force.
const RATIO: &str = "ratio ";
/// Limits in bytes, each with the share of memory that it puts out of force (the kernel's admin-guide, sysctl/vm).
const RATIOS: [(&str, &str); 2] =
    [("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio")];

/// Something that is asked of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The kind of place: sysctl, sysfs, file, affinity, unit, nic, env, or daemon for an OSD's log.
    pub target: Target,
    /// The place. When it is looked at it may have `*` in names of folders.
    pub key: String,
    /// Ceph's file there.
    pub conf: PathBuf,
    /// The value that is to be put; nothing: it is looked at.
    pub put: Option<Value>,
    /// Packets that must pass with it. The value of an interface is taken back at once if they do not, or if its link stays down.
    /// Nothing: the value stays, whatever comes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Vec<Frame>>,
}

/// A place of a host with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// The place.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// The reason why it cannot be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
    /// The sight of packets, where an order names some; the variable that a process has; failures in the log of an OSD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

/// Carries an order out on the host whose root is `root`: the places with their values afterwards.
///
/// # Errors
/// If there is no such place, or it refuses the value.
pub fn carry_out(root: &Path, order: &Order) -> Result<Vec<Found>, String> {
    let host = HostFiles::new(root);
    let keys = match (&order.target, &order.put) {
        (Target::Sysfs, None) => matching(&host, &order.key)?,
        (Target::Nic, None) if order.trial.is_none() => nic::with_lower(&host, &order.key),
        _ => vec![order.key.clone()],
    };
    let mut all = Vec::new();
    for key in keys {
        let place = Place::new(&host, order.target, &key, &order.conf)?;
        let disk = identity(&host, &key).filter(|_| order.target == Target::Sysfs);
        let nic = place.nic();
        if let Some(value) = &order.put {
            may_put(order.target, &key, value)?;
            let is = Value { disk: disk.clone(), nic: nic.clone(), ..Value::default() };
            if let Some(why) = is.is_another(value) {
                return Err(format!("{key} is left: {why}"));
            }
            place.put(value, order.trial.as_deref())?;
        }
        let seen = place.seen(order)?;
        let (value, fixed) = (Value { disk, nic, ..place.look()? }, place.fixed());
        all.push(Found { key, value, fixed, seen });
    }
    Ok(all)
}

/// A place on a host.
enum Place<'a> {
    /// A value of the kernel, and the line of a file that keeps it.
    Kernel { file: PathBuf, keeper: PathBuf, line: String, ratio: Option<PathBuf>, is_scheduler: bool },
    /// An option in Ceph's file.
    Conf { file: PathBuf, key: &'a str },
    /// Processors of threads or interrupts, and the line of a file that keeps them.
    Bound { host: &'a HostFiles, bound: Bound, keeper: PathBuf, line: String },
    /// A drop-in of systemd.
    DropIn(DropIn),
    /// A value of a network interface.
    Nic { host: &'a HostFiles, nic: Nic },
    /// A variable in the environment of an OSD.
    Env(Variable<'a>),
    /// The process of an OSD and its log, which are only looked at.
    Osd { host: &'a HostFiles, osd: OsdLog },
}

impl<'a> Place<'a> {
    fn new(host: &'a HostFiles, target: Target, key: &'a str, conf: &Path) -> Result<Place<'a>, String> {
        let is_plain = key.chars().all(|c| c.is_ascii_graphic()) && !key.split('/').any(|it| it == "..");
        match target {
            Target::Sysctl if is_plain && !key.contains('/') => Ok(Place::Kernel {
                file: host.at(sysctl(key)),
                keeper: host.at(SYSCTL),
                line: format!("{key} = "),
                ratio: RATIOS.iter().find(|(bytes, _)| *bytes == key).map(|(_, it)| host.at(sysctl(it))),
                is_scheduler: false,
            }),
            Target::Sysfs if is_plain && key.starts_with("/sys/") => Ok(Place::Kernel {
                file: host.at(key),
                keeper: host.at(SYSFS),
                line: format!("w {key} - - - - "),
                ratio: None,
                is_scheduler: is_scheduler(key),
            }),
            Target::File if is_plain => {
                let file = host.at(conf);
                let file = file.canonicalize().map_err(|why| format!("{}: {why}", file.display()))?;
                Ok(Place::Conf { file, key })
            }
            Target::Affinity if is_plain => {
                let fsid = host.read(conf).and_then(|text| in_file(text.as_bytes(), "fsid"));
                let bound = Bound::new(key, fsid)?;
                let line = bound.line(host, key)?;
                Ok(Place::Bound { host, bound, keeper: host.at(KEEPER), line })
            }
            Target::Unit if is_plain => DropIn::new(host, key).map(Place::DropIn),
            Target::Nic if is_plain => Nic::new(key).map(|nic| Place::Nic { host, nic }),
            Target::Env if is_plain => Variable::new(host, key).map(Place::Env),
            Target::Daemon if is_plain => OsdLog::new(host, key, conf).map(|osd| Place::Osd { host, osd }),
            _ => Err(format!("{key} is no place on a host that this program writes")),
        }
    }

    fn look(&self) -> Result<Value, String> {
        match self {
            Place::Kernel { file, keeper, line, ratio, is_scheduler } => {
                let mut now = read(file)?;
                if let Some(ratio) = ratio.as_ref().filter(|_| now.trim() == "0") {
                    now = format!("{RATIO}{}", read(ratio)?);
                }
                let now =
                    chosen(&now).unwrap_or_else(|| now.split_whitespace().collect::<Vec<_>>().join(" "));
                let beside = if *is_scheduler { scheduler::beside(file) } else { BTreeMap::new() };
                Ok(Value { kept: kept(keeper, line), beside, ..Value::plain(Some(now)) })
            }
            Place::Bound { host, bound, keeper, line } => {
                Ok(Value { kept: kept(keeper, line), ..Value::plain(bound.look(host)?) })
            }
            Place::DropIn(drop_in) => drop_in.look(),
            Place::Nic { host, nic } => {
                Ok(Value { beside: nic.beside(host), ..Value::plain(Some(nic.look(host)?)) })
            }
            Place::Conf { file, key } => Ok(Value::plain(in_file(&bytes(file)?, key))),
            Place::Env(variable) => variable.look(),
            Place::Osd { host, osd } => Ok(osd.look(host)),
        }
    }

    /// The identity of its interface.
    fn nic(&self) -> Option<String> {
        match self {
            Place::Nic { host, nic } => nic.identity(host),
            _ => None,
        }
    }

    /// The sight of the packets that an order names.
    fn seen(&self, order: &Order) -> Result<Option<String>, String> {
        match (self, &order.trial) {
            (Place::Nic { host, nic }, Some(frames)) if order.put.is_none() => {
                nic.sight(host, frames).map(Some)
            }
            (Place::Env(variable), _) => Ok(variable.seen()),
            (Place::Osd { osd, .. }, _) => Ok(osd.words()),
            _ => Ok(None),
        }
    }

    /// The reason why it cannot be written; what only a write shows is not known here.
    fn fixed(&self) -> Option<String> {
        let file = match self {
            Place::Kernel { file, .. } | Place::Conf { file, .. } => file,
            Place::Bound { host, bound, .. } => return bound.fixed(host),
            Place::DropIn(drop_in) => return drop_in.fixed(),
            Place::Nic { host, nic } => return nic.fixed(host),
            Place::Env(variable) => return variable.fixed(),
            Place::Osd { .. } => return None,
        };
        let why = std::fs::OpenOptions::new().write(true).open(file).err()?;
        Some(format!("{} cannot be written: {why}", file.display()))
    }

    fn put(&self, value: &Value, trial: Option<&[Frame]>) -> Result<(), String> {
        match self {
            Place::Nic { host, nic } => {
                value.now.as_ref().map_or(Ok(()), |now| nic.put(host, now, &value.beside, trial))
            }
            Place::Kernel { file, keeper, line, ratio, .. } => {
                // The line comes first: a value that is there and kept by nobody would be gone with the next boot.
                keep(keeper, line, value.kept.as_deref())?;
                let Some(now) = &value.now else { return Ok(()) };
                let (file, now) = match (ratio, now.strip_prefix(RATIO)) {
                    (Some(ratio), Some(share)) => (ratio, share),
                    _ => (file, now.as_str()),
                };
                let wrote = std::fs::OpenOptions::new().write(true).open(file);
                let wrote = wrote.and_then(|mut it| it.write_all(format!("{now}\n").as_bytes()));
                wrote.map_err(|why| format!("{} takes no '{now}': {why}", file.display()))?;
                scheduler::restore(file, &value.beside)
            }
            Place::Bound { host, bound, keeper, line } => {
                if value.now.as_ref().is_some_and(|now| Masks::parse(now).is_none()) {
                    return Err(format!("'{}' is no list of processors", value.words()));
                }
                keep(keeper, line, value.kept.as_deref())?;
                value.now.as_ref().map_or(Ok(()), |now| bound.put(host, now).map(drop))
            }
            Place::DropIn(drop_in) => drop_in.put(value),
            Place::Env(variable) => variable.put(value),
            Place::Osd { .. } => Err("an OSD and its log are only looked at".to_owned()),
            Place::Conf { file, key } => {
                let text = bytes(file)?;
                let after = match &value.now {
                    None => taken_away(&text, key),
                    Some(_) => given_back(&text, key),
                };
                if after == text { Ok(()) } else { replace(file, &after) }
            }
        }
    }
}

/// The file of a value of sysctl.
fn sysctl(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|why| format!("{}: {why}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

/// The rest of the line of `keeper` that begins with `of`.
fn kept(keeper: &Path, of: &str) -> Option<String> {
    let text = std::fs::read_to_string(keeper).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(of)).map(str::to_owned)
}

/// Sets the line of `keeper` that begins with `of`, or takes it away.
fn keep(keeper: &Path, of: &str, value: Option<&str>) -> Result<(), String> {
    let before = match std::fs::read_to_string(keeper) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("{} is none of this program's: {why}", keeper.display()));
        }
        text => text.unwrap_or_default(),
    };
    let others = before.lines().filter(|line| !line.starts_with(of));
    let mut after: String = others.map(|line| format!("{line}\n")).collect();
    if let Some(value) = value {
        if after.is_empty() {
            after.push_str(HEAD);
        }
        after.push_str(&format!("{of}{value}\n"));
    }
    if after == before {
        return Ok(());
    }
    let fail = |why: std::io::Error| format!("{}: {why}", keeper.display());
    let is_empty = after.lines().all(|line| line.starts_with('#'));
    if is_empty {
        return std::fs::remove_file(keeper).map_err(fail);
    }
    if let Some(folder) = keeper.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    replace(keeper, after.as_bytes())
}

/// The files that a path with `*` in names means, sorted.
fn matching(host: &HostFiles, pattern: &str) -> Result<Vec<String>, String> {
    let mut all = vec![String::new()];
    for part in pattern.split('/').skip(1) {
        let mut next = Vec::new();
        for at in &all {
            match part.split_once('*') {
                None => next.push(format!("{at}/{part}")),
                Some((begin, end)) => next.extend(
                    host.names(at)
                        .into_iter()
                        .filter(|name| {
                            name.len() >= part.len() - 1 && name.starts_with(begin) && name.ends_with(end)
                        })
                        .map(|name| format!("{at}/{name}")),
                ),
            }
        }
        all = next;
    }
    all.retain(|path| !pattern.contains('*') || host.has(path));
    if all.is_empty() { Err(format!("there is no {pattern}")) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    fn host() -> tempfile::TempDir {
        tree(&[
            ("proc/sys/vm/swappiness", "60\n"),
            ("proc/sys/kernel/core_pattern", "core\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("sys/block/sda/queue/scheduler", "[none] mq-deadline\n"),
            ("sys/block/sdb/queue/scheduler", "none [mq-deadline]\n"),
        ])
    }

    fn order(target: Target, key: &str, put: Option<Value>) -> Order {
        Order { target, key: key.to_owned(), conf: PathBuf::from("/etc/ceph/ceph.conf"), put, trial: None }
    }

    #[test]
    fn a_kernel_value_is_kept_over_a_boot_and_taken_back_whole() {
        let dir = host();
        let look = || carry_out(dir.path(), &order(Target::Sysctl, "vm.swappiness", None)).expect("found");
        let before = look()[0].value.clone();
        assert_eq!(before, Value { now: Some("60".into()), kept: None, ..Value::default() });
        let put = |value: Value| carry_out(dir.path(), &order(Target::Sysctl, "vm.swappiness", Some(value)));
        put(Value { now: Some("10".into()), kept: Some("10".into()), ..Value::default() }).expect("put");
        let kept =
            std::fs::read_to_string(dir.path().join("etc/sysctl.d/99-zz-loligo-tune.conf")).expect("kept");
        assert!(kept.ends_with("\nvm.swappiness = 10\n"), "{kept}");
        assert_eq!(look()[0].value.kept.as_deref(), Some("10"));
        put(before.clone()).expect("put");
        assert_eq!(look()[0].value, before);
        assert!(
            !dir.path().join("etc/sysctl.d/99-zz-loligo-tune.conf").exists(),
            "a file without lines goes"
        );
    }

    #[test]
    fn a_star_means_each_file_and_the_choice_is_the_value() {
        let dir = host();
        let found = carry_out(dir.path(), &order(Target::Sysfs, "/sys/block/sd*/queue/scheduler", None));
        let found = found.expect("found");
        let all: Vec<_> =
            found.iter().map(|it| (it.key.as_str(), it.value.now.as_deref().unwrap_or_default())).collect();
        assert_eq!(
            all,
            [("/sys/block/sda/queue/scheduler", "none"), ("/sys/block/sdb/queue/scheduler", "mq-deadline")]
        );
        let wide = carry_out(dir.path(), &order(Target::Sysctl, "net.ipv4.tcp_rmem", None)).expect("found");
        assert_eq!(wide[0].value.words(), "4096 131072 6291456");
        assert!(
            carry_out(dir.path(), &order(Target::Sysfs, "/sys/block/nvme*/queue/scheduler", None)).is_err()
        );
    }

    #[test]
    fn a_share_of_memory_comes_back_where_a_limit_in_bytes_was_set() {
        let dir = host();
        let file = |name: &str| dir.path().join("proc/sys/vm").join(name);
        std::fs::write(file("dirty_bytes"), "0\n").expect("a file");
        std::fs::write(file("dirty_ratio"), "20\n").expect("a file");
        let of = |put| carry_out(dir.path(), &order(Target::Sysctl, "vm.dirty_bytes", put)).expect("found");
        let before = of(None)[0].value.clone();
        assert_eq!(before.words(), "ratio 20");
        // The kernel clears the one as the other is set.
        std::fs::write(file("dirty_bytes"), "1073741824\n").expect("a file");
        std::fs::write(file("dirty_ratio"), "0\n").expect("a file");
        of(Some(before));
        assert_eq!(std::fs::read_to_string(file("dirty_ratio")).expect("text"), "20\n");
    }

    #[test]
    fn a_disk_in_the_place_of_another_keeps_its_value() {
        let dir = host();
        let serial = dir.path().join("sys/block/sda/serial");
        std::fs::write(&serial, "A\n").expect("a file");
        let key = "/sys/block/sda/queue/scheduler";
        std::fs::write(dir.path().join(&key[1..]), "none\n").expect("a file");
        let of = |put| carry_out(dir.path(), &order(Target::Sysfs, key, put));
        let before = of(None).expect("found")[0].value.clone();
        assert_eq!(before.disk.as_deref(), Some("A"));
        assert_eq!(of(Some(before.clone())).expect("put")[0].value, before);
        std::fs::write(serial, "B\n").expect("a file");
        let why = of(Some(before.clone())).expect_err("left");
        assert!(why.contains("another disk has this name now: B"), "{why}");
        assert!(!dir.path().join("etc/tmpfiles.d").exists());
        let kept = Value { disk: Some("B".into()), kept: Some("none".into()), ..before };
        assert!(of(Some(kept)).is_err(), "no line of a file names a disk by its name in the kernel");
    }

    #[test]
    fn a_place_that_takes_no_writes_is_known_beforehand() {
        let found =
            carry_out(Path::new("/"), &order(Target::Sysctl, "kernel.osrelease", None)).expect("found");
        assert!(found[0].fixed.as_ref().is_some_and(|why| why.contains("cannot be written")), "{found:?}");
        let dir = host();
        let found = carry_out(dir.path(), &order(Target::Sysctl, "vm.swappiness", None)).expect("found");
        assert_eq!(found[0].fixed, None);
    }

    #[test]
    fn nothing_but_its_own_places_is_written() {
        let dir = host();
        for (target, key) in [
            (Target::Sysfs, "/sys/../etc/passwd"),
            (Target::Sysfs, "/etc/passwd"),
            (Target::Sysctl, "vm/../../../etc/passwd"),
            (Target::Sysfs, "/sys/a b"),
            (Target::Sysctl, "kernel.core_pattern"),
            (Target::Pool, "size"),
        ] {
            let value = Value { now: Some("x".into()), kept: Some("x".into()), ..Value::default() };
            assert!(carry_out(dir.path(), &order(target, key, Some(value))).is_err(), "{key}");
        }
    }
}
