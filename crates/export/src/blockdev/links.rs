//! Names of a device: symbolic links that are put in place all at once, and only ever over such links.

use super::error::BlockError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The thing at a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum There {
    Nothing,
    Link(PathBuf),
    Other(String),
}

pub(super) fn look(path: &Path) -> Result<There, BlockError> {
    let failed = |why| BlockError::Path { path: path.to_owned(), why };
    let kind = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        Err(e) => return Err(failed(e)),
    };
    if kind.is_symlink() {
        return std::fs::read_link(path).map(There::Link).map_err(failed);
    }
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_file() {
        "a file"
    } else {
        "a device or socket"
    };
    Ok(There::Other(what.to_owned()))
}

/// Refuses what is not a link, or one to a place of which `ours` says no.
pub(super) fn check(path: &Path, ours: impl Fn(&Path) -> bool) -> Result<(), BlockError> {
    let what = match look(path)? {
        There::Nothing => return Ok(()),
        There::Link(target) if ours(&target) => return Ok(()),
        There::Link(target) => format!("a link to {}", target.display()),
        There::Other(what) => what,
    };
    Err(BlockError::Foreign { path: path.to_owned(), what })
}

/// True if `target` is a device as the names under `/dev/loligo` lead to.
pub(super) fn is_device(target: &Path) -> bool {
    let number =
        |t: &str| ["/dev/loop", "/dev/ublkb"].iter().find_map(|p| Some(t.strip_prefix(p)?.to_owned()));
    target.to_str().and_then(number).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Makes `path` lead to `target`; who looks meanwhile sees the old link or the new one.
pub(super) fn put(path: &Path, target: &Path) -> Result<(), BlockError> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".loligo-tmp");
    let beside = path.with_file_name(name);
    let _ = std::fs::remove_file(&beside);
    std::os::unix::fs::symlink(target, &beside)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|why| BlockError::Path { path: path.to_owned(), why })
}

/// Removes `path` if it still leads to `target`.
pub(super) fn remove(path: &Path, target: &Path) {
    if matches!(look(path), Ok(There::Link(t)) if t == target) {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes all other links in `folder` that lead where `own` does: the kernel gives the number of a device that is gone to the next one, and
/// whoever had it is not to find a stranger there, nor to be refused for its sake.
pub(super) fn remove_others(folder: &Path, own: &Path) {
    let (Ok(There::Link(target)), Ok(entries)) = (look(own), std::fs::read_dir(folder)) else { return };
    for path in entries.flatten().map(|e| e.path()).filter(|path| path != own) {
        remove(&path, &target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_name_and_the_last_one_counts() {
        let dir = tempfile::tempdir().unwrap();
        let [old, own, other] = ["old", "own", "other"].map(|n| dir.path().join(n));
        put(&old, Path::new("/dev/ublkb0")).unwrap();
        put(&other, Path::new("/dev/ublkb1")).unwrap();
        put(&own, Path::new("/dev/ublkb0")).unwrap();
        remove_others(dir.path(), &own);
        assert_eq!(look(&old).unwrap(), There::Nothing, "its device is gone, and the number is another's");
        assert!(
            matches!(look(&own).unwrap(), There::Link(_)) && matches!(look(&other).unwrap(), There::Link(_))
        );
    }

    #[test]
    fn only_device_links_are_replaced_and_only_own_ones_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        let (first, second) = (Path::new("/dev/loop7"), Path::new("/dev/loop12"));
        check(&link, is_device).unwrap();
        put(&link, first).unwrap();
        check(&link, is_device).unwrap();
        put(&link, second).unwrap();
        assert_eq!(look(&link).unwrap(), There::Link(second.to_owned()));
        remove(&link, first);
        assert_eq!(look(&link).unwrap(), There::Link(second.to_owned()), "it is a successor's");
        remove(&link, second);
        assert_eq!(look(&link).unwrap(), There::Nothing);
        std::fs::write(&file, "precious").unwrap();
        assert!(check(&file, |_| true).unwrap_err().to_string().contains("it is a file"));
        assert!(check(dir.path(), |_| true).unwrap_err().to_string().contains("it is a folder"));
        put(&link, Path::new("/dev/sda")).unwrap();
        assert!(check(&link, is_device).unwrap_err().to_string().contains("a link to /dev/sda"));
        for no in ["/dev/loop", "/dev/loop1p1", "/dev/loop-control", "loop1", "/dev/mapper/x"] {
            assert!(!is_device(Path::new(no)), "{no}");
        }
    }
}
