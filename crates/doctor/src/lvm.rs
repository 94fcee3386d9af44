//! LVM: whether it looks at raw cores, which it must not, and at volumes, which it may be meant to.

use super::facts::Kind;
use super::{Case, Check, Finding};
use loligo_block::host_files::HostFiles;
use loligo_volume::probe::Found;
use regex::Regex;

const FILES: [&str; 2] = ["/etc/lvm/lvm.conf", "/etc/lvm/lvmlocal.conf"];
const PROGRAMS: [&str; 4] = ["/usr/sbin/lvm", "/sbin/lvm", "/usr/bin/lvm", "/bin/lvm"];

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let check = Check::new("lvm", "LVM takes a core for its own physical volume, if the volume holds one");
    if !PROGRAMS.iter().any(|p| case.host.has(p)) {
        return vec![check.ok("not installed")];
    }
    let lvm = Lvm::read(case.host);
    let mut all = cores(case, &lvm);
    all.extend(volumes(case, &lvm));
    if all.is_empty() {
        all.push(check.ok("no volume of the configuration concerns it"));
    }
    all
}

fn cores(case: &Case<'_>, lvm: &Lvm) -> Vec<Finding> {
    let mut all = Vec::new();
    for part in case.parts().iter().filter(|p| !p.is_cache) {
        let Some(thing) = case.facts.paths.get(&part.path).filter(|t| t.kind == Kind::Device) else {
            continue;
        };
        let check = Check::new(
            part.check("lvm", "raw"),
            "a core without its cache is old and inconsistent, and must not be used",
        );
        let labelled = matches!(thing.found, Some(Found::Core(_)));
        let names = [part.path.to_string_lossy().into_owned(), thing.real.to_string_lossy().into_owned()];
        all.push(if labelled {
            check.ok(format!("the {} begins with a label: LVM finds nothing there", part.name()))
        } else if !lvm.accepts(&names) {
            check.ok(format!("LVM does not look at the {}", part.name()))
        } else {
            check.warn(
                format!("LVM looks at the {}, whose content begins at its start", part.name()),
                format!("global_filter = [ \"r|^{}$|\" ] in the section devices of /etc/lvm/lvm.conf, for each name that it has", names[1]),
            )
        });
    }
    all
}

fn volumes(case: &Case<'_>, lvm: &Lvm) -> Vec<Finding> {
    let mut all = Vec::new();
    for (volume, v) in &case.config.volumes {
        let kind =
            |l: &str| ["block:", "ublk:", "loop:"].iter().find_map(|k| Some(l.strip_prefix(k)?.to_owned()));
        for name in v.listen.iter().filter_map(|l| kind(l)) {
            let check = Check::new(
                format!("lvm.{volume}.volume"),
                "physical volumes on it (ceph-volume lvm makes them) must be found",
            );
            let path = format!("/dev/loligo/{name}");
            let mend = if lvm.by_list {
                format!("lvmdevices --adddev {path}, if LVM is to use it")
            } else {
                "global_filter = [ \"a|^/dev/loligo/|\", \"a|^/dev/loop|\", \"a|^/dev/ublkb|\", ... ] before what rejects it".to_owned()
            };
            all.push(if lvm.accepts(&[path.clone(), "/dev/loop0".to_owned()]) {
                check.ok(format!("LVM would accept {path}"))
            } else {
                check.warn(format!("LVM does not look at {path}"), mend)
            });
        }
    }
    all
}

/// LVM's settings about devices.
#[derive(Debug, Default)]
struct Lvm {
    /// Patterns of names, with true if a name is accepted; the first that matches counts.
    global: Vec<(bool, Regex)>,
    filter: Vec<(bool, Regex)>,
    /// It looks only at devices that it was told of one by one.
    by_list: bool,
    list: String,
}

impl Lvm {
    fn read(host: &HostFiles) -> Lvm {
        let text: String = FILES.iter().filter_map(|f| host.read(f)).map(|t| without_comments(&t)).collect();
        let listed = host.read("/etc/lvm/devices/system.devices");
        // Where nobody says, distributions differ; a list that was made is used.
        let by_list = value(&text, "use_devicesfile").is_none_or(|v| v.trim() != "0") && listed.is_some();
        Lvm {
            global: patterns(&text, "global_filter"),
            filter: patterns(&text, "filter"),
            by_list,
            list: listed.unwrap_or_default(),
        }
    }

    /// True if it looks at a device of these names.
    fn accepts(&self, names: &[String]) -> bool {
        if self.by_list && !names.iter().any(|n| self.list.contains(n.as_str())) {
            return false;
        }
        // With a list, filters other than the global one are not asked.
        passes(&self.global, names) && (self.by_list || passes(&self.filter, names))
    }
}

/// Accepted by one of its names, or by none of them rejected.
fn passes(filter: &[(bool, Regex)], names: &[String]) -> bool {
    let said = |name: &String| filter.iter().find(|(_, r)| r.is_match(name)).map(|(accept, _)| *accept);
    let said: Vec<Option<bool>> = names.iter().map(said).collect();
    said.contains(&Some(true)) || !said.contains(&Some(false))
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        let mut quoted = false;
        let code = line.chars().take_while(|c| {
            quoted ^= *c == '"';
            *c != '#' || quoted
        });
        kept.extend(code);
        kept.push('\n');
    }
    kept
}

/// The value behind `key =`: to the end of the line, or of the list that begins there.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    for (at, _) in text.match_indices(key) {
        let before = text[..at].chars().next_back().unwrap_or('\n');
        let rest = text[at + key.len()..].trim_start();
        if before.is_alphanumeric() || before == '_' {
            continue;
        }
        let Some(rest) = rest.strip_prefix('=') else { continue };
        let rest = rest.trim_start_matches([' ', '\t']);
        let end = if rest.starts_with('[') { closing(rest) } else { rest.find('\n') };
        return Some(&rest[..end.unwrap_or(rest.len())]);
    }
    None
}

/// The end of a list; a bracket in quotes does not end it.
fn closing(list: &str) -> Option<usize> {
    let mut quoted = false;
    list.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == ']' && !quoted).then_some(at)
    })
}

/// Patterns like `a|^/dev/sd|`; one that cannot be read rejects and accepts nothing.
fn patterns(text: &str, key: &str) -> Vec<(bool, Regex)> {
    let quoted = value(text, key).unwrap_or_default().split('"').skip(1).step_by(2);
    quoted
        .filter_map(|pattern| {
            let mut chars = pattern.chars();
            let accept = match chars.next()? {
                'a' => true,
                'r' => false,
                _ => return None,
            };
            let open = chars.next()?;
            let close = match open {
                '(' => ')',
                '[' => ']',
                '{' => '}',
                same => same,
            };
            let inside = chars.as_str().strip_suffix(close)?;
            Some((accept, Regex::new(inside).ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::facts::Thing;
    use crate::fake::Fake;
    use loligo_format::core_label::CoreLabel;

    fn host(conf: &str) -> Fake {
        let text = "[volume.a]\ncore = \"/dev/disk/by-id/wwn-1\"\nlisten = [\"block:osd0\"]";
        let mut fake = Fake::new(&[("/usr/sbin/lvm", ""), ("/etc/lvm/lvm.conf", conf)]).configured(text);
        let thing = Thing { kind: Kind::Device, real: "/dev/sdb".into(), ..Thing::default() };
        fake.facts.paths.insert("/dev/disk/by-id/wwn-1".into(), thing);
        fake
    }

    fn verdicts(fake: &Fake) -> (Verdict, Verdict) {
        (fake.verdict(check, "lvm.a.core.raw"), fake.verdict(check, "lvm.a.volume"))
    }

    #[test]
    fn filters_are_read_as_lvm_reads_them() {
        use Verdict::{Ok, Warn};
        assert_eq!(verdicts(&host("")), (Warn, Ok));
        assert_eq!(verdicts(&host("devices {\n\t# global_filter = [ \"r|.*|\" ]\n}")), (Warn, Ok));
        let reject = "devices {\n filter = [ \"a|.*|\" ] # all\n global_filter = [ \"a|^/dev/loligo/|\",\n \"r|.*|\" ]\n}";
        assert_eq!(verdicts(&host(reject)), (Ok, Ok));
        assert_eq!(verdicts(&host("devices/filter = \"r/.*/\"")), (Ok, Warn));
        // One name that is accepted is enough.
        assert_eq!(verdicts(&host("devices { filter = [ \"a|/by-id/|\", \"r|.*|\" ] }")), (Warn, Warn));
        // A class with a bracket does not end the list.
        assert_eq!(
            verdicts(&host("devices { filter = [ \"r|^/dev/sd[a-z]|\", \"r|/by-id/|\" ] }")),
            (Ok, Ok)
        );
    }

    #[test]
    fn a_list_of_devices_keeps_lvm_off_all_others() {
        let fake = host("devices { use_devicesfile = 1 }");
        fake.write("/etc/lvm/devices/system.devices", "IDTYPE=devname IDNAME=/dev/sda2 DEVNAME=/dev/sda2\n");
        assert_eq!(verdicts(&fake), (Verdict::Ok, Verdict::Warn));
        assert!(fake.one(check, "lvm.a.volume").mend.is_some_and(|m| m.contains("--adddev")));
    }

    #[test]
    fn a_label_is_enough() {
        let mut fake = host("");
        let label = CoreLabel {
            generation: 1,
            cache: [1; 16],
            name: "a".into(),
            data_start: 1 << 20,
            dirty_bytes: None,
            through: false,
        };
        let thing = fake.facts.paths.get_mut(std::path::Path::new("/dev/disk/by-id/wwn-1")).unwrap();
        thing.found = Some(Found::Core(label));
        assert_eq!(verdicts(&fake).0, Verdict::Ok);
        assert_eq!(Fake::new(&[]).one(check, "lvm").seen, "not installed");
    }
}
