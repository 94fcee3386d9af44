//! Loop devices: block devices of any sector size, over a file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device; dropping it detaches it.
#[derive(Debug)]
pub struct Loop {
    path: PathBuf,
    backing: PathBuf,
}

fn run(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

impl Loop {
    /// Over the new file `backing` of `size` bytes, with sectors of `sector` bytes.
    ///
    /// # Errors
    /// If there can be none (not root, no loop driver); the error says why, for a person to read.
    pub fn new(backing: &Path, size: u64, sector: u32) -> Result<Loop, String> {
        Loop::set_up(backing, size, &["--sector-size", &sector.to_string()])
    }

    /// The same with sectors of 512 bytes, and the kernel reads its partition table.
    ///
    /// # Errors
    /// As [`Loop::new`].
    pub fn with_partitions(backing: &Path, size: u64) -> Result<Loop, String> {
        Loop::set_up(backing, size, &["--partscan"])
    }

    fn set_up(backing: &Path, size: u64, more: &[&str]) -> Result<Loop, String> {
        std::fs::File::create(backing).and_then(|f| f.set_len(size)).map_err(|e| e.to_string())?;
        let path = run(Command::new("losetup").args(["--find", "--show"]).args(more).arg(backing))?;
        Ok(Loop { path: path.into(), backing: backing.to_owned() })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it as long as its file is to be.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn resize(&self, size: u64) -> Result<(), String> {
        let file = std::fs::File::options().write(true).open(&self.backing).map_err(|e| e.to_string())?;
        file.set_len(size).map_err(|e| e.to_string())?;
        run(Command::new("losetup").arg("--set-capacity").arg(&self.path)).map(drop)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(e) = run(Command::new("losetup").arg("--detach").arg(&self.path)) {
            eprintln!("detaching {}: {e}", self.path.display());
        }
    }
}
