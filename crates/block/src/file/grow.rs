//! A file or device that got larger while it is open.

use super::{DeviceFile, block};
use crate::{IoError, IoKind, SECTOR};
use rustix::fs::{fstat, ftruncate};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

impl DeviceFile {
    fn failed(&self, errno: Errno) -> IoError {
        IoError::from_errno(errno.raw_os_error(), format!("{}", self.path().display()))
    }

    /// Takes the size that it has by now, if that is more than it had; what it has now, less what lies before this one. All clones follow.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn look_again(&self) -> Result<u64, IoError> {
        let now = if self.is_block() {
            block::size(self.main_fd()).map_err(|e| self.failed(e))?
        } else {
            fstat(self.main_fd()).map_err(|e| self.failed(e))?.st_size as u64 / SECTOR * SECTOR
        };
        // What is cut off under its user is found when it is read.
        self.handle.size.fetch_max(now, Ordering::Relaxed);
        Ok(now.saturating_sub(self.start))
    }

    /// Makes a file `bytes` long, all of it: a hole behind its former end. It is taken with [`DeviceFile::look_again`].
    ///
    /// # Errors
    /// If it is a device, which somebody else makes larger, or longer already.
    pub fn extend(&self, bytes: u64) -> Result<(), IoError> {
        let invalid = |text: String| Err(IoError::new(IoKind::Invalid, text));
        let path = self.path().display();
        if self.is_block() {
            return invalid(format!(
                "{path} is a device: make it larger with the tool that made it, and give no size"
            ));
        }
        if !bytes.is_multiple_of(SECTOR) {
            return invalid(format!("{bytes} bytes are no multiple of {SECTOR}"));
        }
        let now = fstat(self.main_fd()).map_err(|e| self.failed(e))?.st_size as u64;
        if bytes < now {
            return invalid(format!("{path} has {now} bytes already"));
        }
        ftruncate(self.main_fd(), bytes).map_err(|e| self.failed(e))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DeviceFile, OpenOptions, SyncFile, SyncIo};

    #[test]
    fn a_file_that_grew_did_so_for_all_and_one_that_shrank_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 4 << 20]).unwrap();
        let whole = DeviceFile::open(&path, &OpenOptions::default()).unwrap();
        let behind = whole.behind(1 << 20).unwrap();
        let mut io = SyncFile::new(behind.clone());
        assert!(io.write_at(3 << 20, &[2; 512]).is_err(), "its end");
        assert_eq!(whole.look_again().unwrap(), 4 << 20);
        assert!(whole.extend((5 << 20) + 1).is_err() && whole.extend(1 << 20).is_err());
        whole.extend(5 << 20).unwrap();
        assert_eq!(behind.geometry().size, 3 << 20, "nobody has looked");
        assert_eq!(behind.look_again().unwrap(), 4 << 20);
        assert_eq!((whole.geometry().size, io.size()), (5 << 20, 4 << 20));
        io.write_at(3 << 20, &[2; 512]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        assert_eq!(whole.look_again().unwrap(), 2 << 20);
        assert_eq!(whole.geometry().size, 5 << 20);
    }
}
