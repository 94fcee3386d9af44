//! Files of a host in a temporary folder, for tests.

use std::path::Path;

/// Writes a file below `root`, with the folders above it.
pub(crate) fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, text).expect("a file");
}

/// A folder with these files.
pub(crate) fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    files.iter().for_each(|(path, text)| put(dir.path(), path, text));
    dir
}
