//! The folder in which the names of block devices lie.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::io::Result;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes the folder, and lets everybody pass: whoever opens a volume is another user than the service, whose umask may keep all
/// others out of what it makes.
pub(crate) fn make(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).create(dir)?;
    set_permissions(dir, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_pass_whatever_umask_the_folder_was_made_with() {
        let dir = tempfile::tempdir().unwrap();
        let names = dir.path().join("a/names");
        std::fs::create_dir_all(&names).unwrap();
        set_permissions(&names, Permissions::from_mode(0o700)).unwrap();
        for _ in 0..2 {
            make(&names).unwrap();
            assert_eq!(names.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        }
    }
}
