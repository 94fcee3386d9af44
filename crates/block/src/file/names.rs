//! The names of a file or device, whatever path it is given by.

use super::block;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// All names of what is at `path`: two paths that lead to one thing have one of them in common. A link has the name of the file it
/// leads to; a file has its number, for hard links and moves; a device has what the kernel knows it by, and a loop device the
/// path of its file, and the number of that with the place in it. Nothing where nothing is there.
///
/// A name may come to mean something else (a path, the number of a deleted file): equal names are a reason to ask, not a proof.
pub fn names_of(path: &Path) -> Vec<String> {
    let Ok(real) = std::fs::canonicalize(path) else { return Vec::new() };
    let Ok(meta) = std::fs::metadata(&real) else { return Vec::new() };
    let named = |path: &Path| format!("path:{}", path.display());
    let mut names = vec![named(&real)];
    if meta.file_type().is_block_device() {
        names.extend(block::lasting_name(meta.rdev()).map(|(id, offset)| format!("device:{id}+{offset}")));
        if let Some((file, offset)) = block::backing_file(meta.rdev()) {
            names.push(named(&file));
            let number = std::fs::metadata(&file).ok().and_then(|meta| numbered(&file, &meta));
            names
                .extend(number.map(|number| if offset == 0 { number } else { format!("{number}+{offset}") }));
        }
    } else {
        names.extend(numbered(&real, &meta));
    }
    names
}

/// The name of a file by its number.
fn numbered(path: &Path, meta: &Metadata) -> Option<String> {
    let fs = rustix::fs::statvfs(path).ok().filter(|fs| fs.f_fsid != 0)?;
    // A file system may use a number again; when the file was made tells the two apart.
    let made = meta.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    Some(format!("file:{:x}:{}:{}", fs.f_fsid, meta.ino(), made.map_or(0, |t| t.as_nanos())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(a: &Path, b: &Path) -> bool {
        let b = names_of(b);
        names_of(a).iter().any(|name| b.contains(name))
    }

    #[test]
    fn links_and_moves_keep_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("core"), "x").unwrap();
        std::fs::write(at("other"), "x").unwrap();
        std::os::unix::fs::symlink("core", at("link")).unwrap();
        std::fs::hard_link(at("core"), at("hard")).unwrap();
        assert!(meet(&at("core"), &at("link")) && meet(&at("core"), &at("hard")));
        assert!(!meet(&at("core"), &at("other")));
        assert!(names_of(&at("none")).is_empty());
        let before = names_of(&at("core"));
        std::fs::rename(at("core"), at("moved")).unwrap();
        assert!(names_of(&at("moved")).iter().any(|name| before.contains(name)));
    }
}
