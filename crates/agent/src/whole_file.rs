//! Files that are written whole, or not at all.

use std::path::Path;

/// Writes a file whole, or not at all.
///
/// # Errors
/// If the folder or the file cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    std::fs::File::open(folder)?.sync_all()
}
