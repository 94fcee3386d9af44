//! `/dev/loligo/NAME`: the name of a volume's block device, whatever number the kernel gave it.

use super::error::UblkError;
use crate::names;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the names lie.
const DIR: &str = "/dev/loligo";

/// A link that this process made, or found.
#[derive(Debug)]
pub(super) struct Link {
    path: PathBuf,
    target: PathBuf,
}

impl Link {
    /// `/dev/loligo/NAME` leads to the device `node` of `/dev` from now on.
    pub(super) fn make(name: &str, node: &str) -> Result<Link, UblkError> {
        Link::make_in(Path::new(DIR), name, node)
    }

    fn make_in(dir: &Path, name: &str, node: &str) -> Result<Link, UblkError> {
        let path = dir.join(name);
        let target = Path::new("..").join(node);
        let link = |why| UblkError::Link { path: path.display().to_string(), why };
        match std::fs::symlink_metadata(&path) {
            Ok(m) if !m.is_symlink() => {
                return Err(UblkError::NameTaken { path: path.display().to_string() });
            }
            // The users of that name would come to another volume than theirs.
            Ok(_) if path.exists() && std::fs::read_link(&path).is_ok_and(|to| to != target) => {
                return Err(UblkError::NameInUse { path: path.display().to_string() });
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(link(e)),
        }
        names::make(dir).map_err(link)?;
        // All at once, so that whoever opens it finds the one or the other.
        let beside = dir.join(format!(".{name}.loligo-tmp"));
        let _ = std::fs::remove_file(&beside);
        std::os::unix::fs::symlink(&target, &beside).map_err(link)?;
        std::fs::rename(&beside, &path).map_err(link)?;
        Ok(Link { path, target })
    }

    /// Takes the name away from a device that is deleted.
    pub(super) fn forget(name: &str, node: &str) {
        Link { path: Path::new(DIR).join(name), target: Path::new("..").join(node) }.remove();
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away, unless it leads elsewhere by now.
    pub(super) fn remove(&self) {
        if std::fs::read_link(&self.path).is_ok_and(|now| now == self.target) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_moves_with_its_volume_and_nothing_else_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("loligo");
        let first = Link::make_in(&dir, "vol", "ublkb0").unwrap();
        assert_eq!(std::fs::read_link(first.path()).unwrap(), Path::new("../ublkb0"));
        let second = Link::make_in(&dir, "vol", "ublkb3").unwrap();
        first.remove();
        assert_eq!(std::fs::read_link(second.path()).unwrap(), Path::new("../ublkb3"));
        second.remove();
        assert!(std::fs::symlink_metadata(second.path()).is_err());
        // The device behind a name is there: it is somebody's.
        std::fs::write(dir.parent().unwrap().join("ublkb5"), "").unwrap();
        Link::make_in(&dir, "vol", "ublkb5").unwrap();
        Link::make_in(&dir, "vol", "ublkb5").unwrap();
        let taken = Link::make_in(&dir, "vol", "ublkb6").unwrap_err().to_string();
        assert!(taken.contains("another volume"), "{taken}");
        std::fs::write(dir.join("file"), "x").unwrap();
        let taken = Link::make_in(&dir, "file", "ublkb0").unwrap_err().to_string();
        assert!(taken.contains("choose another name"), "{taken}");
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"x");
    }
}
