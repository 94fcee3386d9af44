//! A variable in the environment of an OSD: a line of a file that this program's drop-in of the unit names.
//!
//! `EnvironmentFile=` goes before `Environment=`, and the last of several before the others (systemd.exec(5)). Ceph's packages have one,
//! so that a line `Environment=` would be without effect.

use super::replaced::{gone, replace};
use super::systemd::{is_live, read_anew};
use super::value::Value;
use crate::gather::environment::{PRELOAD, TCMALLOCS, THREAD_CACHE, in_force, of};
use crate::gather::processes::of_unit;
use crate::gather::units::{by_package, has_unit};
use loligo_block::host_files::HostFiles;
use std::path::{Path, PathBuf};

/// The template that Ceph's packages run OSDs by.
const TEMPLATE: &str = "ceph-osd@.service";
/// The head of both files.
const HEAD: &str = "# Written by 'loligo tune apply'. 'loligo tune rollback' takes it away again.\n";
/// Folders of libraries that root alone writes.
const LIBRARIES: [&str; 4] = ["/usr/lib/", "/usr/lib64/", "/lib/", "/lib64/"];

/// A variable of an OSD.
#[derive(Debug)]
pub(super) struct Variable<'a> {
    host: &'a HostFiles,
    id: i64,
    name: &'a str,
    /// Variables with their values, a line each.
    lines: PathBuf,
    drop_in: PathBuf,
    /// The whole of the drop-in.
    text: String,
}

impl<'a> Variable<'a> {
    /// The one of a key: `osd.3/LD_PRELOAD`.
    ///
    /// # Errors
    /// If it is none that this program sets.
    pub(super) fn new(host: &'a HostFiles, key: &'a str) -> Result<Variable<'a>, String> {
        let (id, name) = parts(key).ok_or_else(|| format!("{key} is no variable that this program sets"))?;
        let folder = format!("/etc/systemd/system/{}.d", by_package(id));
        let lines = format!("{folder}/loligo-tune.environment");
        // The OSD starts without the file, too: a file that is lost must not keep it down.
        let text = format!("{HEAD}[Service]\nEnvironmentFile=-{lines}\n");
        let drop_in = host.at(format!("{folder}/60-loligo-tune-environment.conf"));
        Ok(Variable { host, id, name, lines: host.at(lines), drop_in, text })
    }

    /// The value that its line has.
    pub(super) fn look(&self) -> Result<Value, String> {
        let all = self.read()?;
        Ok(Value::plain(
            all.into_iter()
                .find_map(|line| Some(line.strip_prefix(self.name)?.strip_prefix('=')?.to_owned())),
        ))
    }

    /// The value that the process of the OSD has; a library counts once it is loaded.
    pub(super) fn seen(&self) -> Option<String> {
        in_force(self.host, &self.process()?)?.remove(self.name)
    }

    /// The reason why it cannot be set, or not be put back.
    pub(super) fn fixed(&self) -> Option<String> {
        let id = self.id;
        if !has_unit(self.host, TEMPLATE) {
            return Some(format!("{TEMPLATE} is not installed: Ceph's packages do not run osd.{id} here"));
        }
        if let Err(why) = self.is_own() {
            return Some(why);
        }
        let own = match self.look() {
            Ok(own) => own.now,
            Err(why) => return Some(why),
        };
        if !takes(&format!("osd.{id}/{}", self.name), own.as_deref()) {
            return Some(format!(
                "{} has a value that this program does not put back: {}. Set it by hand",
                self.lines.display(),
                own.unwrap_or_default()
            ));
        }
        if self.name == PRELOAD
            && let Some(other) = self.process().and_then(|pid| of(self.host, &pid)?.remove(PRELOAD))
            && own.as_ref() != Some(&other)
        {
            return Some(format!("osd.{id} has {PRELOAD}={other} already, and would be without it"));
        }
        let above = self.drop_in.ancestors().skip(1).find(|path| path.exists())?;
        let why = rustix::fs::access(above, rustix::fs::Access::WRITE_OK).err()?;
        Some(format!("{} cannot be written: {why}", above.display()))
    }

    /// Checks that the drop-in is this program's to the byte, or not there; true: it is there.
    fn is_own(&self) -> Result<bool, String> {
        let file = self.drop_in.display();
        match std::fs::read_to_string(&self.drop_in) {
            Ok(text) if text == self.text => Ok(true),
            Ok(_) => {
                Err(format!("{file} has other lines than this program's: move them to a file of their own"))
            }
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(format!("{file}: {why}")),
        }
    }

    /// Sets its line, or takes it away. With the last line both files go.
    pub(super) fn put(&self, value: &Value) -> Result<(), String> {
        let mut lines = self.read()?;
        lines.retain(|line| !line.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('=')));
        lines.extend(value.now.as_ref().map(|now| format!("{}={now}", self.name)));
        let folder = self.drop_in.parent().unwrap_or(Path::new("/"));
        if lines.is_empty() {
            // The lines go first. A drop-in that names no file has no effect, also where systemd has not read anew.
            gone(&self.lines)?;
            // One that somebody has changed is theirs.
            if self.is_own() == Ok(true) {
                gone(&self.drop_in)?;
            }
            // Somebody else's drop-ins keep it.
            let _ = std::fs::remove_dir(folder);
        } else {
            if value.now.is_some() {
                self.is_own()?;
            }
            std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
            let all: String = lines.iter().map(|line| format!("{line}\n")).collect();
            replace(&self.lines, format!("{HEAD}{all}").as_bytes())?;
            if self.is_own() == Ok(false) {
                replace(&self.drop_in, self.text.as_bytes())?;
            }
        }
        if is_live(self.host) { read_anew() } else { Ok(()) }
    }

    /// The lines of its file. They count although nobody's drop-in names them: what is on the disk is what is taken back.
    fn read(&self) -> Result<Vec<String>, String> {
        match std::fs::read_to_string(&self.lines) {
            Ok(text) => Ok(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(why) => Err(format!("{}: {why}", self.lines.display())),
        }
    }

    fn process(&self) -> Option<String> {
        of_unit(self.host, &by_package(self.id))
    }
}

/// True if a variable may have a value: a number of bytes, or a tcmalloc in a folder of libraries.
pub(super) fn takes(key: &str, value: Option<&str>) -> bool {
    match (parts(key), value) {
        (None, _) => false,
        (_, None) => true,
        (Some((_, THREAD_CACHE)), Some(value)) => {
            value.parse::<u32>().is_ok_and(|it| it.to_string() == value)
        }
        (Some(_), Some(value)) => is_library(value),
    }
}

fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    LIBRARIES.iter().any(|folder| path.starts_with(folder))
        && TCMALLOCS.iter().any(|of| name.starts_with(of))
        && path.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.+".contains(c))
        && !path.split('/').any(|part| part == "..")
}

/// The OSD and the name in a key.
fn parts(key: &str) -> Option<(i64, &str)> {
    let (osd, name) = key.strip_prefix("osd.")?.split_once('/')?;
    let id = osd.parse::<u32>().ok().filter(|id| id.to_string() == osd)?;
    [THREAD_CACHE, PRELOAD].contains(&name).then_some((i64::from(id), name))
}

#[cfg(test)]
mod tests {
    use crate::apply::{Found, Order, Value, carry_out};
    use crate::rules::Target;
    use crate::small_tree::{put as write, tree};
    use std::path::Path;

    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";

    fn order(root: &Path, key: &str, put: Option<Value>) -> Result<Found, String> {
        let order = Order { target: Target::Env, key: key.into(), conf: "/x".into(), put, trial: None };
        carry_out(root, &order).map(|mut found| found.remove(0))
    }

    fn plain(value: &str) -> Option<Value> {
        Some(Value::plain(Some(value.into())))
    }

    #[test]
    fn variables_share_a_file_that_goes_with_the_last() {
        let dir = tree(&[("lib/systemd/system/ceph-osd@.service", "[Service]\n")]);
        let (cache, preload) = ("osd.3/TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "osd.3/LD_PRELOAD");
        let of = |key: &str, put: Option<Value>| order(dir.path(), key, put).expect("carried out");
        let found = of(cache, None);
        assert_eq!((found.value, found.fixed, found.seen), (Value::default(), None, None));
        of(cache, plain("134217728"));
        of(preload, plain(LIBRARY));
        let folder = dir.path().join("etc/systemd/system/ceph-osd@3.service.d");
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a file");
        assert!(text("60-loligo-tune-environment.conf").ends_with(
            "[Service]\nEnvironmentFile=-/etc/systemd/system/ceph-osd@3.service.d/loligo-tune.environment\n"
        ));
        let lines = text("loligo-tune.environment");
        assert!(lines.ends_with(&format!("_BYTES=134217728\nLD_PRELOAD={LIBRARY}\n")), "{lines}");
        of(cache, plain("268435456"));
        assert_eq!(of(cache, None).value.now.as_deref(), Some("268435456"));
        of(cache, Some(Value::default()));
        assert_eq!(of(preload, None).value.now.as_deref(), Some(LIBRARY));
        of(preload, Some(Value::default()));
        assert!(!folder.exists(), "nothing is left");
        // A kill has left the lines without their drop-in, or the drop-in without its lines.
        let drop_in = folder.join("60-loligo-tune-environment.conf");
        of(preload, plain(LIBRARY));
        std::fs::remove_file(&drop_in).expect("removed");
        assert_eq!(of(preload, None).value.now.as_deref(), Some(LIBRARY), "it is taken back");
        of(preload, Some(Value::default()));
        assert!(!folder.exists(), "nothing is left");
        of(preload, plain(LIBRARY));
        std::fs::remove_file(folder.join("loligo-tune.environment")).expect("removed");
        assert_eq!(of(preload, None).value.now, None);
        // Somebody has changed the drop-in: it is theirs, and the variable goes all the same.
        of(preload, plain(LIBRARY));
        std::fs::write(&drop_in, format!("{}# ticket 4711\n", text("60-loligo-tune-environment.conf")))
            .expect("a file");
        assert!(of(cache, None).fixed.is_some_and(|why| why.contains("has other lines")));
        assert!(order(dir.path(), cache, plain("134217728")).is_err());
        of(preload, Some(Value::default()));
        assert!(drop_in.exists() && !folder.join("loligo-tune.environment").exists());
        // A line of a person's own could not be put back.
        write(
            dir.path(),
            "etc/systemd/system/ceph-osd@4.service.d/loligo-tune.environment",
            "LD_PRELOAD=/opt/libtcmalloc.so\n",
        );
        let fixed = of("osd.4/LD_PRELOAD", None).fixed;
        assert!(fixed.is_some_and(|why| why.contains("does not put back: /opt/libtcmalloc.so")));
    }

    #[test]
    fn the_process_shows_its_variable_and_another_library_stays() {
        let dir = tree(&[
            ("etc/systemd/system/ceph-osd@.service", "[Service]\n"),
            ("proc/7/comm", "ceph-osd\n"),
            ("proc/7/cgroup", "0::/system.slice/system-ceph\\x2dosd.slice/ceph-osd@3.service\n"),
            (
                "proc/7/environ",
                "LD_PRELOAD=/usr/lib/libtcmalloc.so.4\0TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=9\0",
            ),
            ("proc/7/maps", "7f r-xp /usr/lib/libc.so.6\n"),
        ]);
        let look = |key: &str| order(dir.path(), key, None).expect("looked at");
        assert_eq!(look("osd.3/TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES").seen.as_deref(), Some("9"));
        let preload = look("osd.3/LD_PRELOAD");
        assert_eq!(preload.seen, None, "it was not loaded");
        assert!(
            preload.fixed.is_some_and(|why| why.contains("has LD_PRELOAD=/usr/lib/libtcmalloc.so.4 already"))
        );
        write(dir.path(), "proc/7/maps", "7f r-xp /usr/lib/libtcmalloc.so.4.5.16\n");
        assert_eq!(look("osd.3/LD_PRELOAD").seen.as_deref(), Some("/usr/lib/libtcmalloc.so.4"));
        assert_eq!(look("osd.4/LD_PRELOAD").seen, None, "another OSD's");
        let bare = tree(&[("etc/x", "")]);
        let fixed = order(bare.path(), "osd.3/LD_PRELOAD", None).expect("looked at").fixed;
        assert!(fixed.is_some_and(|why| why.contains("ceph-osd@.service is not installed")));
    }

    #[test]
    fn no_other_variable_and_no_other_library_is_set() {
        let dir = tree(&[("lib/systemd/system/ceph-osd@.service", "[Service]\n")]);
        for (key, value) in [
            ("osd.3/LD_PRELOAD", "/tmp/libtcmalloc.so"),
            ("osd.3/LD_PRELOAD", "/usr/lib/../../tmp/libtcmalloc.so"),
            ("osd.3/LD_PRELOAD", "/usr/lib/libevil.so"),
            ("osd.3/LD_PRELOAD", "/usr/lib/libtcmalloc_debug.so.4"),
            ("osd.3/LD_PRELOAD", "/usr/lib/libtcmalloc.so /tmp/x.so"),
            ("osd.3/LD_PRELOAD", "/usr/lib/libtcmalloc.so:/tmp/x.so"),
            ("osd.3/TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "1\nLD_PRELOAD=/tmp/x.so"),
            ("osd.3/TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "01"),
            ("osd.3/LD_LIBRARY_PATH", "/usr/lib/libtcmalloc.so"),
            ("osd.03/LD_PRELOAD", LIBRARY),
            ("osd.3/../LD_PRELOAD", LIBRARY),
            ("mon.a/LD_PRELOAD", LIBRARY),
        ] {
            assert!(order(dir.path(), key, plain(value)).is_err(), "{key} {value}");
        }
        assert!(!dir.path().join("etc").exists(), "nothing was written");
    }
}
