//! A name under `/dev/loligo` that belongs to one process of this machine at a time, whatever kind of device
//! it leads to. The process with the lock on its file has the name. The kernel takes the lock from a process
//! that ends, in whatever way.

use super::error::BlockError;
use super::loops::{self, LoopDevice, Released};
use super::record::Record;
use super::{holders, links};
use crate::names;
use loligo_block::processes::{self, boot_id};
use rustix::fs::{FlockOperation, flock, fstat};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder with the names of all devices.
pub const NAMES: &str = "/dev/loligo";
/// The folder of further names.
const DEV: &str = "/dev";
/// The time that a process that is ending is waited for, and the time between two looks.
const ENDING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a record that are read; one is much shorter.
const MOST: usize = 16 << 10;

/// A name that is this process's; dropping it gives it back.
#[derive(Debug)]
pub struct Name {
    name: String,
    /// Further names, whole paths.
    more: Vec<PathBuf>,
    lock: Lock,
}

/// The locked file of a name. It goes while it is locked: who waits for the lock then sees that, and makes another.
#[derive(Debug)]
struct Lock {
    file: File,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A start that was left behind has lost it, and another may have it by now.
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses what cannot be a file's name of its own under /dev.
fn check_name(name: &str) -> Result<(), BlockError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(BlockError::BadName(name.to_owned()));
    }
    Ok(())
}

fn link_of(name: &str) -> PathBuf {
    Path::new(NAMES).join(name)
}

fn lock_of(name: &str) -> PathBuf {
    Path::new(NAMES).join(format!(".{name}.lock"))
}

pub(super) fn path_error(path: &Path) -> impl Fn(std::io::Error) -> BlockError {
    move |why| BlockError::Path { path: path.to_owned(), why }
}

/// The target of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A loop device over a mount of this service's.
    Loop,
    /// A device of the kernel that outlives its service.
    Ublk,
}

impl Name {
    /// Takes `name`, and `more` names under /dev, for a device of the kernel that outlives its service.
    ///
    /// # Errors
    /// As for a loop device.
    pub fn for_ublk(name: &str, more: &[String]) -> Result<Name, BlockError> {
        Name::take(name, more, Kind::Ublk)
    }

    /// Takes `name`, and `more` names under /dev. The remains of a killed owner are cleared away: its dead
    /// mount, and its loop device. A loop device that somebody still has open goes with its last user.
    ///
    /// # Errors
    /// If the name is another process's, something foreign stands in the way, or a device of the other kind waits for its service.
    pub(super) fn take(name: &str, more: &[String], kind: Kind) -> Result<Name, BlockError> {
        check_name(name)?;
        more.iter().try_for_each(|name| check_name(name))?;
        names::make(Path::new(NAMES)).map_err(path_error(Path::new(NAMES)))?;
        let lock = lock(name)?;
        links::check(&link_of(name), links::is_device)?;
        if kind == Kind::Loop
            && let Some(node) = ublk_at(name)?
        {
            // It outlives its service, and its users wait for it: they are not to find another under its name.
            return Err(BlockError::Waits { name: name.to_owned(), node });
        }
        let more: Vec<PathBuf> = more.iter().map(|name| Path::new(DEV).join(name)).collect();
        for path in &more {
            further(path, name)?;
        }
        if let Some(left) = read(&lock.file) {
            clear_away(name, &left);
        }
        let taken = Name { name: name.to_owned(), more, lock };
        taken.write_down(&Record { pid: std::process::id(), boot: boot_id(), ..Record::default() })?;
        Ok(taken)
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The path that users should give to programs.
    pub fn path(&self) -> PathBuf {
        link_of(&self.name)
    }

    /// The file that stands for the name in use; it goes with this.
    pub fn file(&self) -> &Path {
        &self.lock.path
    }

    /// Writes a record over the old one, in one piece: the process may be killed at any moment.
    pub(super) fn write_down(&self, record: &Record) -> Result<(), BlockError> {
        let text = record.to_text();
        let Lock { file, path } = &self.lock;
        file.write_all_at(text.as_bytes(), 0)
            .and_then(|()| file.set_len(text.len() as u64))
            .map_err(path_error(path))
    }

    /// Makes all names lead to `device`.
    pub(crate) fn link(&self, device: &Path) -> Result<(), BlockError> {
        let _alone = alone();
        let own = self.path();
        links::check(&own, links::is_device)?;
        links::put(&own, device)?;
        links::remove_others(Path::new(NAMES), &own);
        for path in &self.more {
            further(path, &self.name)?;
            links::put(path, &own)?;
        }
        Ok(())
    }

    /// Refuses to lead elsewhere while the name leads to another volume's device that waits for its service.
    pub(crate) fn refuse_other(&self, node: &str) -> Result<(), BlockError> {
        match ublk_at(&self.name)? {
            Some(other) if other != node => Err(BlockError::Waits { name: self.name.clone(), node: other }),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes the names away.
    pub(crate) fn unlink(&self, device: &Path) {
        let _alone = alone();
        for path in &self.more {
            links::remove(path, &self.path());
        }
        links::remove(&self.path(), device);
    }
}

/// The ublk device that a name leads to, if that is there.
fn ublk_at(name: &str) -> Result<Option<String>, BlockError> {
    let links::There::Link(target) = links::look(&link_of(name))? else { return Ok(None) };
    let node = target.file_name().and_then(|n| n.to_str()).filter(|n| n.starts_with("ublkb"));
    Ok(node.filter(|n| Path::new(DEV).join(n).exists()).map(str::to_owned))
}

/// Held while links are looked at and put, so that no two processes do it at once. Others may lock the folder for reasons of
/// their own; after two seconds it is done without.
fn alone() -> Option<File> {
    let folder = File::open(NAMES).ok()?;
    for _ in 0..100 {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    None
}

/// Looks at a further name: free, this device's, or that of one which nobody serves any more and whose users wait for nobody.
fn further(path: &Path, name: &str) -> Result<(), BlockError> {
    let owner = |target: &Path| {
        (target.parent() == Some(Path::new(NAMES)))
            .then(|| target.file_name()?.to_str().map(str::to_owned))?
    };
    links::check(path, |target| owner(target).is_some())?;
    if let links::There::Link(target) = links::look(path)?
        && let Some(owner) = owner(&target)
        && owner != name
        && (is_locked(&owner) || ublk_at(&owner)?.is_some())
    {
        return Err(BlockError::Taken { path: path.to_owned(), owner });
    }
    Ok(())
}

fn is_locked(name: &str) -> bool {
    let Ok(file) = File::open(lock_of(name)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// Opens the file of `name` and locks it. A process that is ending is waited for.
fn lock(name: &str) -> Result<Lock, BlockError> {
    let path = lock_of(name);
    let deadline = Instant::now() + ENDING;
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(path_error(&path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Its last owner may have removed it in between.
            Ok(()) if is_at(&file, &path) => return Ok(Lock { file, path }),
            Ok(()) => {}
            Err(_) => {
                let pid = read(&file).map(|r| r.pid);
                let ending = pid.is_none_or(processes::has_ended);
                if !ending || Instant::now() > deadline {
                    let who = pid.map_or_else(|| "another process".to_owned(), processes::described);
                    return Err(BlockError::InUse { name: name.to_owned(), who });
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let Ok(own) = fstat(file) else { return false };
    std::fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (own.st_dev, own.st_ino))
}

fn read(lock: &File) -> Option<Record> {
    let mut text = vec![0; MOST];
    let n = lock.read_at(&mut text, 0).ok()?;
    Record::from_text(std::str::from_utf8(&text[..n]).ok()?)
}

/// Takes away what a killed owner of the name left. Only what is known to be its: the sequence number is given to no other
/// device, and before it is known the path must be the one that was mounted.
fn clear_away(name: &str, left: &Record) {
    if left.boot != boot_id() {
        return;
    }
    let sequence = left.number.and_then(loops::sequence);
    let same = left.sequence.is_some() && left.sequence == sequence;
    let file = left.mount.join(name);
    let caught = left.sequence.is_none() && left.number.and_then(loops::backing) == Some(file);
    if let (Some(number), Some(sequence)) = (left.number, sequence.filter(|_| same || caught)) {
        let device = LoopDevice { number, sequence };
        let node = loops::node(number);
        match device.abandon(left.before) {
            Ok(Released::Gone) => {}
            Ok(Released::Busy) => {
                let who = holders::of(number).join(", ");
                tracing::warn!(
                    "{} of the killed service is still open ({who}): it gives errors, and goes with its last user",
                    node.display()
                );
            }
            Err(why) => tracing::warn!("{} of the killed service stays: {why}", node.display()),
        }
    }
    // The path of the file as the loop device knows it ends with the mount: that comes second.
    if !left.mount.as_os_str().is_empty()
        && let Err(why) = crate::fuse::clear_dead(&left.mount)
    {
        tracing::warn!("{}: {why}", left.mount.display());
    }
}
