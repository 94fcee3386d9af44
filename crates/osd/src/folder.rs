//! The folder of an OSD.

use crate::place::Place;
use anyhow::{Context, Result, bail};
use loligo_export::blockdev::Owner;
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid, chownat, flock};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// There as long as an OSD is being made.
const UNFINISHED: &str = "loligo-unfinished";
/// There as long as the OSD is being released: nobody starts it on its volume.
const RELEASING: &str = "loligo-releasing";
/// The time that a process may take which comes to lock a folder that is being removed.
const COMES: Duration = Duration::from_secs(2);
/// Held by who starts the OSD.
const LOCK: &str = "loligo-lock";
/// The kernel's number for a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// True if an OSD is being made in `dir`, or its making was cut off.
pub fn unfinished(dir: &Path) -> bool {
    dir.join(UNFINISHED).exists()
}

/// True if the OSD is being released, or that was cut off.
pub(crate) fn is_releasing(dir: &Path) -> bool {
    dir.join(RELEASING).exists()
}

/// From now on the OSD is not started when its volume comes: whoever was about to has done so when this returns.
///
/// # Errors
/// If the file system refuses.
pub(crate) fn begin_release(dir: &Path) -> Result<()> {
    let _lock = lock(dir)?;
    let path = dir.join(RELEASING);
    write(&path, "", 0o644).with_context(|| format!("writing {}", path.display()))
}

/// It is started on its volume again, or has none any more.
pub(crate) fn end_release(dir: &Path) {
    // It may not be there. Where it cannot be removed, the OSD is not started by its volume alone.
    let _ = fs::remove_file(dir.join(RELEASING));
}

/// Makes the folder, which must not be there or be empty; it is marked as unfinished.
///
/// # Errors
/// If it holds something.
pub(crate) fn begin(dir: &Path) -> Result<()> {
    if let Ok(mut entries) = fs::read_dir(dir)
        && entries.next().is_some()
    {
        bail!("{} is not empty: an OSD needs a new folder", dir.display());
    }
    let make = || -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o750))?;
        fs::write(dir.join(UNFINISHED), "")
    };
    make().with_context(|| format!("making {}", dir.display()))
}

/// Makes the folder of an OSD whose own was lost, if it was.
///
/// # Errors
/// If the file system refuses.
pub(crate) fn make(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
    made.with_context(|| format!("making {}", dir.display()))
}

/// The OSD is whole.
pub(crate) fn finish(dir: &Path) -> Result<()> {
    let path = dir.join(UNFINISHED);
    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
}

/// Removes the folder. The targets of its links stay as they are. Who was about to start the OSD may come to
/// lock it at this moment, and finds then that there is none any more.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        match fs::remove_dir_all(dir) {
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(()),
            Err(why) if why.kind() == ErrorKind::DirectoryNotEmpty && begun.elapsed() < COMES => {
                std::thread::sleep(COMES / 100);
            }
            gone => return gone.with_context(|| format!("removing {}", dir.display())),
        }
    }
}

/// Removes what lies in the folder, which was there before.
pub(crate) fn empty(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        let gone = if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        gone.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

/// Takes away a folder in memory, as ceph-volume makes them, from over the one on disk, which a boot does not
/// empty. Its content is written again from the store's own label. True if there was one.
///
/// # Errors
/// If the system refuses.
pub(crate) fn onto_disk(dir: &Path) -> Result<bool> {
    let is_in_memory = || -> rustix::io::Result<bool> {
        let Some(parent) = dir.parent() else { return Ok(false) };
        let is_mounted = rustix::fs::stat(dir)?.st_dev != rustix::fs::stat(parent)?.st_dev;
        Ok(is_mounted && rustix::fs::statfs(dir)?.f_type as u64 == TMPFS)
    };
    let mut was = false;
    while is_in_memory().with_context(|| format!("looking at {}", dir.display()))? {
        // Whoever waits for the lock in it has it open.
        unmount(dir, UnmountFlags::DETACH).with_context(|| format!("unmounting {}", dir.display()))?;
        was = true;
    }
    Ok(was)
}

/// Waits until nobody else starts this OSD; until what it gives is dropped, nobody else does.
///
/// # Errors
/// If the folder cannot be written.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK);
    let open = || -> std::io::Result<File> {
        let file = for_writing(0o600).open(&path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    };
    open().with_context(|| format!("locking {}", path.display()))
}

/// Options to open a file for writing in a folder that is another user's: through no link that he may have put there.
pub(crate) fn for_writing(mode: u32) -> OpenOptions {
    let mut options = File::options();
    options.create(true).write(true).mode(mode).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    std::io::Write::write_all(&mut for_writing(mode).truncate(true).open(path)?, text.as_bytes())
}

/// Writes who the OSD is, beside its links.
///
/// # Errors
/// If the file system refuses.
pub(crate) fn fill(place: &Place, target: &Path, key: &str) -> Result<()> {
    let dir = &place.dir;
    let fill = || -> std::io::Result<()> {
        write(&dir.join("fsid"), &format!("{}\n", place.uuid), 0o644)?;
        write(&dir.join("keyring"), &format!("[osd.{}]\n\tkey = {key}\n", place.id), 0o600)
    };
    fill().with_context(|| format!("writing in {}", dir.display()))?;
    link(place, target)?;
    own(place)
}

/// Makes the links lead where they should. True if any had to be changed.
///
/// # Errors
/// If the file system refuses.
pub(crate) fn link(place: &Place, target: &Path) -> Result<bool> {
    let mut changed = false;
    let links =
        [("block", Some(target)), ("block.db", place.db.as_deref()), ("block.wal", place.wal.as_deref())];
    for (name, target) in links {
        let Some(target) = target else { continue };
        changed |= make_link(&place.dir.join(name), target)?;
    }
    Ok(changed)
}

/// Makes `block` lead to `target`, word for word.
///
/// # Errors
/// If the file system refuses.
pub(crate) fn link_block(dir: &Path, target: &Path) -> Result<bool> {
    make_link(&dir.join("block"), target)
}

fn make_link(link: &Path, target: &Path) -> Result<bool> {
    if fs::read_link(link).is_ok_and(|to| to == target) {
        return Ok(false);
    }
    let made = match fs::remove_file(link) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => symlink(target, link),
    };
    made.with_context(|| format!("linking {}", link.display()))?;
    Ok(true)
}

/// Gives the folder to the OSD's user, and what its links lead to: the OSD's devices, and its volume where that is a file. Nothing else, whatever
/// links the user has put there.
///
/// # Errors
/// If there is no such user, or the system does not allow it.
pub(crate) fn own(place: &Place) -> Result<()> {
    let owner: Owner = place.user.parse().map_err(anyhow::Error::msg)?;
    give(&place.dir, false, owner)?;
    for entry in fs::read_dir(&place.dir).with_context(|| format!("reading {}", place.dir.display()))? {
        let path = entry?.path();
        if path.is_symlink() {
            if ["block", "block.db", "block.wal"].iter().any(|name| path.ends_with(name)) {
                give(&path, true, owner)?;
            }
        } else if !path.is_dir() {
            // What is mounted below is the volume's, and given away by the link to it.
            give(&path, false, owner)?;
        }
    }
    Ok(())
}

fn give(path: &Path, follow: bool, owner: Owner) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    let flags = OFlags::PATH | OFlags::CLOEXEC | if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let change = || -> rustix::io::Result<()> {
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        let is_volume = || {
            let mounted = path.parent().unwrap_or(path).join("volume");
            let open = format!("/proc/self/fd/{}", file.as_raw_fd());
            fs::read_link(open).is_ok_and(|at| at.starts_with(mounted))
        };
        if follow && kind != FileType::BlockDevice && !is_volume() {
            return Ok(());
        }
        chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
    };
    match change() {
        // A link that leads nowhere stays root's.
        Err(rustix::io::Errno::NOENT) => Ok(()),
        other => other.with_context(|| format!("giving {} to user {}", path.display(), owner.uid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceph_volume::By;
    use crate::cluster::Access;
    use std::os::unix::fs::MetadataExt;

    /// An OSD with the folder `at` that runs as `user`.
    fn place(at: &Path, user: &str) -> Place {
        Place {
            id: 3,
            uuid: "the-id".to_owned(),
            dir: at.to_owned(),
            cluster: Access { conf: "/x".into(), name: "client.admin".to_owned(), keyring: None },
            user: user.to_owned(),
            by: By::CephOsd,
            db: None,
            wal: None,
            adopted: None,
            unit: None,
            fsid: None,
        }
    }

    #[test]
    fn a_folder_goes_though_somebody_comes_to_lock_it_meanwhile() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().join("ceph-3");
        begin(&at).expect("it is new");
        let (coming, until) = (at.clone(), Instant::now() + Duration::from_millis(300));
        let comes = std::thread::spawn(move || {
            // Where there is no folder there is nothing to lock.
            while Instant::now() < until && lock(&coming).is_ok() {}
        });
        std::thread::sleep(Duration::from_millis(50));
        remove(&at).expect("it goes");
        comes.join().expect("it came");
        assert!(!at.exists());
    }

    #[test]
    fn a_folder_holds_who_the_osd_is_and_links_are_mended() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().join("ceph-3");
        let uid = rustix::process::getuid().as_raw();
        begin(&at).expect("it is new");
        assert!(unfinished(&at));
        assert!(begin(&at).expect_err("it is not").to_string().contains("is not empty"));
        let target = dir.path().join("volume");
        fs::write(&target, "").expect("a file");
        let place = place(&at, &format!("{uid}:{}", rustix::process::getgid().as_raw()));
        fill(&place, &target, "AQ==").expect("it can be written");
        assert_eq!(fs::read_link(at.join("block")).expect("a link"), target);
        assert_eq!(fs::metadata(at.join("keyring")).expect("a file").permissions().mode() & 0o777, 0o600);
        assert!(!link(&place, &target).expect("links"), "they were right");
        let other = dir.path().join("loop7");
        assert!(link(&place, &other).expect("links"));
        assert_eq!(fs::read_link(at.join("block")).expect("a link"), other);
        finish(&at).expect("it was");
        assert!(!unfinished(&at));
        remove(&at).expect("it goes");
        remove(&at).expect("it is gone");
        assert!(target.exists());
    }

    #[test]
    fn a_users_link_is_neither_given_away_nor_written_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().join("ceph-3");
        begin(&at).expect("it is new");
        let (secret, volume) = (dir.path().join("secret"), at.join("volume/osd3"));
        fs::write(&secret, "x").expect("a file");
        fs::create_dir(at.join("volume")).expect("a folder");
        fs::write(&volume, "").expect("a file");
        for name in ["block.db", "mine", RELEASING, LOCK] {
            symlink(&secret, at.join(name)).expect("a link");
        }
        symlink(&volume, at.join("block")).expect("a link");
        assert!(begin_release(&at).is_err() && lock(&at).is_err());
        assert_eq!(fs::read_to_string(&secret).expect("a file"), "x");
        if !rustix::process::geteuid().is_root() {
            return println!("SKIP: whose files are given away: this needs root");
        }
        own(&place(&at, "12345:12345")).expect("it can be given away");
        let of = |path: &Path| fs::metadata(path).expect("it is there").uid();
        assert_eq!([of(&at), of(&volume), of(&secret)], [12345, 12345, 0]);
    }

    #[test]
    fn a_folder_in_memory_gives_way_to_the_one_on_disk() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = dir.path().join("ceph-3");
        begin(&at).expect("it is new");
        assert!(!onto_disk(&at).expect("it can be looked at"), "it is on disk");
        let mount = |at: &Path| {
            let none = None::<&std::ffi::CStr>;
            rustix::mount::mount("tmpfs", at, "tmpfs", rustix::mount::MountFlags::empty(), none)
        };
        if let Err(why) = mount(&at) {
            return println!("SKIP: a folder in memory: it cannot be mounted: {why}");
        }
        mount(&at).expect("twice, as by a second start");
        assert!(!unfinished(&at));
        let lock = lock(&at).expect("nobody has it");
        assert!(onto_disk(&at).expect("it goes, held or not"));
        assert!(unfinished(&at), "what is on disk is seen again");
        drop(lock);
    }
}
