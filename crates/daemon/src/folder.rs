//! The folder that the daemon remembers in belongs to one daemon at a time, as long as that lives.

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time that a predecessor may take to be gone.
const PREDECESSOR: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// The folder is this process's until this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    _lock: File,
}

impl Folder {
    /// Takes the folder `dir`, which is there.
    ///
    /// # Errors
    /// If another daemon has it; the error says which.
    pub(super) fn take(dir: &Path) -> Result<Folder> {
        let path = dir.join("lock");
        let options = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let mut file = options.open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
        let since = Instant::now();
        while let Err(why) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if why != rustix::io::Errno::WOULDBLOCK {
                return Err(why).with_context(|| format!("{} cannot be locked", path.display()));
            }
            if since.elapsed() >= PREDECESSOR {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                bail!(
                    "another loligod (process {}) remembers in {}: stop that one first, or give this one a folder of its own with \
                     state-dir in the configuration",
                    holder.trim(),
                    dir.display()
                );
            }
            std::thread::sleep(PAUSE);
        }
        let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        note.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Folder { _lock: file })
    }
}
