//! This program's drop-in of a unit of systemd: a whole file, as it is or not there.

use super::allowed::{daemon, is_drop_in};
use super::replaced::{gone, replace};
use super::systemd::{is_live, read_anew};
use super::value::Value;
use crate::gather::units::{HOOK, drop_in_path, has_hook};
use loligo_block::host_files::HostFiles;
use std::path::{Path, PathBuf};

/// The drop-in of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DropIn {
    file: PathBuf,
    /// An OSD's number, or `loligod`.
    daemon: String,
    has_hook: bool,
    /// systemd runs here, and is to read its units anew.
    is_live: bool,
}

impl DropIn {
    /// The one of a unit.
    ///
    /// # Errors
    /// If it is none of an OSD or of loligod.
    pub(super) fn new(host: &HostFiles, unit: &str) -> Result<DropIn, String> {
        let daemon = daemon(unit)?.to_owned();
        let (file, has_hook, is_live) = (host.at(drop_in_path(unit)), has_hook(host), is_live(host));
        Ok(DropIn { file, daemon, has_hook, is_live })
    }

    pub(super) fn look(&self) -> Result<Value, String> {
        match std::fs::read_to_string(&self.file) {
            Ok(text) => Ok(Value::plain(Some(text))),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Value::default()),
            Err(why) => Err(format!("{}: {why}", self.file.display())),
        }
    }

    /// The reason why it cannot be written.
    pub(super) fn fixed(&self) -> Option<String> {
        if !self.has_hook {
            return Some(format!(
                "{HOOK} is not installed, and without it threads are not bound again: install the package of this program"
            ));
        }
        // It could not be put back: a host takes no other drop-in than one of this program.
        if let Ok(Value { now: Some(text), .. }) = self.look()
            && !is_drop_in(&self.daemon, &text)
        {
            let file = self.file.display();
            return Some(format!(
                "{file} has other lines than this program's: move them to a file of their own"
            ));
        }
        let above = self.file.ancestors().skip(1).find(|path| path.exists())?;
        let why = rustix::fs::access(above, rustix::fs::Access::WRITE_OK).err()?;
        Some(format!("{} cannot be written: {why}", above.display()))
    }

    /// Puts it there, or takes it away with its folder if that is empty then.
    pub(super) fn put(&self, value: &Value) -> Result<(), String> {
        let fail = |why: std::io::Error| format!("{}: {why}", self.file.display());
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        match &value.now {
            Some(text) => {
                std::fs::create_dir_all(folder).map_err(fail)?;
                replace(&self.file, text.as_bytes())?;
            }
            None => {
                gone(&self.file)?;
                // Somebody else's drop-ins keep it.
                let _ = std::fs::remove_dir(folder);
            }
        }
        if self.is_live { read_anew() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::apply::{Order, Value, carry_out};
    use crate::gather::units::drop_in_text;
    use crate::rules::Target;

    #[test]
    fn a_drop_in_is_written_whole_and_goes_without_a_trace() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("etc/systemd/system/ceph-osd@3.service.d");
        let order = |unit: &str, put| {
            let order = Order { target: Target::Unit, key: unit.into(), conf: "/x".into(), put, trial: None };
            carry_out(dir.path(), &order).map(|mut found| found.remove(0))
        };
        let found = order("ceph-osd@3.service", None).expect("looked at");
        assert_eq!(found.value, Value::default());
        assert!(found.fixed.is_some_and(|why| why.contains("loligo-tune-threads@.service is not installed")));
        let hook = dir.path().join("lib/systemd/system/loligo-tune-threads@.service");
        std::fs::create_dir_all(hook.parent().expect("a folder")).expect("folders");
        std::fs::write(hook, "[Service]\n").expect("a file");
        assert_eq!(order("ceph-osd@3.service", None).expect("looked at").fixed, None);
        let text = drop_in_text("3", None, None);
        let put = Value::plain(Some(text.clone()));
        assert_eq!(order("ceph-osd@3.service", Some(put.clone())).expect("put").value, put);
        let hook = "loligo-tune-threads@3.service";
        assert_eq!(put.words(), format!("[Unit]; Wants={hook}; Before={hook}"));
        assert_eq!(std::fs::read_to_string(folder.join("50-loligo-tune.conf")).expect("a text"), text);
        let planted = Value::plain(Some("[Service]\nExecStartPre=/bin/true\n".into()));
        assert!(order("ceph-osd@3.service", Some(planted)).is_err(), "no lines but its own");
        std::fs::write(folder.join("50-loligo-tune.conf"), "[Service]\nNice=1\n").expect("a file");
        let others = order("ceph-osd@3.service", None).expect("looked at").fixed;
        assert!(others.is_some_and(|why| why.contains("other lines")), "it could not be put back");
        assert_eq!(order("ceph-osd@3.service", Some(Value::default())).expect("put").value, Value::default());
        assert!(!folder.exists());
        for bad in ["../x.service", "x", "a b.service", "x.service/../y.service", "cron.service"] {
            assert!(order(bad, None).is_err(), "{bad}");
        }
    }
}
