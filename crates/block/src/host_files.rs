//! Files of the kernel and of administrators, under a folder that is `/` but for tests.

use std::path::{Path, PathBuf};

/// A host's files.
#[derive(Debug, Clone)]
pub struct HostFiles {
    root: PathBuf,
}

impl HostFiles {
    /// The host whose root is `root`.
    pub fn new(root: &Path) -> HostFiles {
        HostFiles { root: root.to_owned() }
    }

    /// True for the host that this program runs on: its processes can be asked, too. A recorded tree stands still.
    pub fn are_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The place of that host's `path`.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text without white space at its end.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let raw = std::fs::read(self.at(path)).ok()?;
        Some(String::from_utf8_lossy(&raw).trim_end().to_owned())
    }

    /// A file that holds one number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// True if there is such a file; a link that leads nowhere is one.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// The names in a folder, sorted.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The target of a link, as it is written.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        std::fs::read_link(self.at(path)).ok()
    }
}
