//! The calls to the array that an agent makes, by the fence of crate `loligo-pair`.

use crate::config::PairConfig;
use crate::wire::{BEAT, SECTOR, Stranger, Wire};
use loligo_pair::beat::Beat;
use loligo_pair::fence::{BlockFence, Fence, FenceError, confirm, confirm_held, race, race_while, take};
use loligo_pair::machine::{Answer, Failure, Joining, Proof, View};
use loligo_pair::plan::{LunId, QUORUM, Side};
use loligo_pair::reservation::Key;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The place of the first side's sector on the quorum LUN, bytes.
const SECTORS: u64 = 1 << 20;

/// The array as one side reaches it.
#[derive(Debug, Clone)]
pub struct Luns {
    config: std::sync::Arc<PairConfig>,
    me: Side,
    keys: [Key; 2],
    wire: Wire,
}

/// The sector of a living partner changes within that time.
const ALIVE: Duration = Duration::from_millis(1500);

/// A buffer that direct I/O takes.
#[repr(align(4096))]
struct Aligned([u8; SECTOR]);

impl Luns {
    /// The array of `config`.
    ///
    /// # Errors
    /// If a key or the secret makes no sense.
    pub fn new(config: std::sync::Arc<PairConfig>, me: Side) -> anyhow::Result<Luns> {
        let keys = [config.key(Side::A)?, config.key(Side::B)?];
        let wire = Wire::new(&config.secret()?);
        Ok(Luns { config, me, keys, wire })
    }

    fn mine(&self) -> Key {
        self.keys[self.me.index()]
    }

    fn theirs(&self) -> Key {
        self.keys[self.me.other().index()]
    }

    /// The fence of this side's path to a LUN.
    ///
    /// # Errors
    /// If the path cannot be opened.
    pub fn open(&self, lun: LunId) -> Result<BlockFence, FenceError> {
        BlockFence::open(self.config.path(self.me, lun))
    }

    /// Writes this side's sector.
    pub fn write_sector(&self, beat: &Beat) -> Answer {
        answer(self.try_write_sector(beat), |()| Answer::Done)
    }

    fn try_write_sector(&self, beat: &Beat) -> io::Result<()> {
        let mut sector = Aligned([0; SECTOR]);
        sector.0[..BEAT].copy_from_slice(&self.wire.encode(beat));
        let file = direct(self.config.path(self.me, QUORUM), OFlags::WRONLY | OFlags::DSYNC)?;
        let written = rustix::io::pwrite(&file, &sector.0, sector_of(self.me))?;
        if written == SECTOR { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
    }

    /// Reads the partner's sector.
    pub fn read_sector(&self) -> Answer {
        answer(self.try_read_sector(), Answer::Sector)
    }

    fn try_read_sector(&self) -> io::Result<Option<Beat>> {
        Ok(self.wire.decode(&self.partners_sector()?.0))
    }

    fn partners_sector(&self) -> io::Result<Aligned> {
        self.sector(self.me.other())
    }

    fn sector(&self, side: Side) -> io::Result<Aligned> {
        let mut sector = Aligned([0; SECTOR]);
        let file = direct(self.config.path(self.me, QUORUM), OFlags::RDONLY)?;
        rustix::io::pread(&file, &mut sector.0, sector_of(side))?;
        Ok(sector)
    }

    /// The run of this side's agent that has written its sector last; nothing: none has, or it cannot be read.
    pub fn own_run(&self) -> Option<u64> {
        let sector = self.sector(self.me).ok()?;
        self.wire.decode(&sector.0).map(|beat| beat.run)
    }

    /// The reason why this side understands nothing of what a living partner writes; nothing: it does, or nobody writes. One that is
    /// not understood would be taken for dead.
    pub fn stranger(&self) -> Option<Stranger> {
        let before = self.partners_sector().ok()?;
        self.wire.stranger(&before.0)?;
        std::thread::sleep(ALIVE);
        let now = self.partners_sector().ok()?;
        self.wire.stranger(&now.0).filter(|_| now.0 != before.0)
    }

    /// Reads keys and holder.
    pub fn read_keys(&self, lun: LunId) -> Answer {
        fenced(self.view(lun), Answer::Keys)
    }

    fn view(&self, lun: LunId) -> Result<View, FenceError> {
        let shown = self.open(lun)?.read()?;
        let holder = shown.held.map(|(key, _)| key);
        Ok(View { generation: shown.generation, keys: shown.keys, holder })
    }

    /// The race for a LUN where this side is registered, if it `may` still be begun by the time that the LUN has been read.
    pub fn race(&self, lun: LunId, may: impl Fn() -> bool) -> Answer {
        let race = || {
            let done = race_while(&mut self.open(lun)?, self.mine(), self.theirs(), may)?;
            Ok(Answer::Taken { generation: done.generation(), drained: done.is_drained() })
        };
        fenced(race(), |answer| answer)
    }

    /// Takes a LUN of the partner's: registers, takes it, and holds it where nobody does.
    pub fn take(&self, lun: LunId) -> Answer {
        let take = || {
            let mut fence = self.open(lun)?;
            self.register(&mut fence)?;
            let is_theirs = fence.read()?.held.is_some_and(|(key, _)| key == self.theirs());
            let done = match is_theirs {
                true => take(&mut fence, self.mine(), self.theirs())?,
                false => race(&mut fence, self.mine(), self.theirs())?,
            };
            Ok(Answer::Taken { generation: done.generation(), drained: done.is_drained() })
        };
        fenced(take(), |answer| answer)
    }

    /// Holds a LUN where this side is registered.
    pub fn hold(&self, lun: LunId) -> Answer {
        let hold = || {
            let mut fence = self.open(lun)?;
            if let Err(why) = fence.reserve(self.mine()) {
                let shown = fence.read()?;
                let is_left_out = shown.held.is_none() && !shown.keys.contains(&self.mine());
                let left_out = FenceError::Unregistered { lun: fence.name() };
                return Err(if is_left_out { left_out } else { why });
            }
            confirm_held(&mut fence, self.mine(), self.theirs())
        };
        fenced(hold(), |_| Answer::Done)
    }

    /// Registers on a LUN that is in the state `joining`.
    pub fn join(&self, lun: LunId, joining: Joining) -> Answer {
        let join = || {
            let mut fence = self.open(lun)?;
            let view = self.view(lun)?;
            let fits = match joining {
                Joining::Empty => view.holder.is_none() && view.keys.iter().all(|key| *key == self.mine()),
                Joining::BesidePartner => view.holder.is_none() && view.keys.contains(&self.theirs()),
                Joining::UnderPartner => view.holder == Some(self.theirs()),
            };
            if !fits {
                let why = "it is not free for this side: another is registered or holds it".to_owned();
                return Err(FenceError::NotConfirmed { lun: fence.name(), why });
            }
            // What this host's page cache kept from before the partner wrote is stale, and must not be written.
            drop_cache(self.config.path(self.me, lun))
                .map_err(|why| FenceError::Io { lun: fence.name(), why })?;
            self.register(&mut fence)
        };
        fenced(join(), |()| Answer::Done)
    }

    /// Registers, unless this side's key is there.
    fn register(&self, fence: &mut BlockFence) -> Result<(), FenceError> {
        if fence.read()?.keys.contains(&self.mine()) {
            return Ok(());
        }
        fence.register(Key::NONE, self.mine())
    }

    /// Gives registration and reservation back.
    pub fn leave(&self, lun: LunId) -> Answer {
        let leave = || {
            let mut fence = self.open(lun)?;
            if fence.read()?.keys.contains(&self.mine()) {
                fence.register(self.mine(), Key::NONE)?;
            }
            let is_gone = !fence.read()?.keys.contains(&self.mine());
            let why = || FenceError::NotConfirmed {
                lun: fence.name(),
                why: "this side's key is still there".to_owned(),
            };
            if is_gone { Ok(()) } else { Err(why()) }
        };
        fenced(leave(), |()| Answer::Done)
    }

    /// Gives the reservation back and stays registered.
    pub fn release(&self, lun: LunId) -> Answer {
        let release = || {
            let mut fence = self.open(lun)?;
            fence.release(self.mine())?;
            match fence.read()?.held {
                None => Ok(()),
                Some(_) => {
                    Err(FenceError::NotConfirmed { lun: fence.name(), why: "it is still held".to_owned() })
                }
            }
        };
        fenced(release(), |()| Answer::Done)
    }

    /// Reads back that a LUN is this side's.
    ///
    /// # Errors
    /// If it is not, or cannot be read.
    pub fn prove(&self, lun: LunId, proof: Proof) -> Result<(), Failure> {
        let prove = || {
            let mut fence = self.open(lun)?;
            match proof {
                Proof::Sole => confirm(&mut fence, self.mine()).map(drop),
                Proof::Held => confirm_held(&mut fence, self.mine(), self.theirs()).map(drop),
            }
        };
        prove().map_err(|why| failure(&why))
    }
}

fn sector_of(side: Side) -> u64 {
    SECTORS + side.index() as u64 * SECTOR as u64
}

/// Opens a device past the page cache.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn direct(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    match open(flags | OFlags::DIRECT) {
        // The file of a model may have no page cache to go around.
        Err(rustix::io::Errno::INVAL) => Ok(open(flags)?),
        opened => Ok(opened?),
    }
}

/// Throws away what the page cache has of a device or file. Dirty pages are written first, which the reservation refuses: this
/// side is not registered.
fn drop_cache(path: &Path) -> io::Result<()> {
    let file = std::fs::File::open(path)?;
    let is_block = std::os::unix::fs::FileTypeExt::is_block_device(&file.metadata()?.file_type());
    // A refusal is what is expected of dirty pages.
    let _ = rustix::fs::fsync(&file);
    if is_block {
        return flush_buffers(&file);
    }
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Reads the first block of a LUN past the page cache.
///
/// # Errors
/// If the array fails.
pub(crate) fn read_first_block(path: &Path) -> io::Result<()> {
    let mut block = Aligned([0; SECTOR]);
    rustix::io::pread(direct(path, OFlags::RDONLY)?, &mut block.0, 0)?;
    Ok(())
}

/// Writes the first block of a LUN as it is there.
///
/// # Errors
/// If it is refused, which is what a probe hopes for.
pub(crate) fn rewrite_first_block(path: &Path) -> Result<(), Failure> {
    let rewrite = || {
        let mut block = Aligned([0; SECTOR]);
        let file = direct(path, OFlags::RDWR | OFlags::DSYNC)?;
        let read = rustix::io::pread(&file, &mut block.0, 0)?;
        rustix::io::pwrite(&file, &block.0[..read], 0)?;
        Ok(())
    };
    match answer(rewrite(), |()| Answer::Done) {
        Answer::Failed(why) => Err(why),
        _ => Ok(()),
    }
}

fn flush_buffers(file: &std::fs::File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    /// `BLKFLSBUF` of `<linux/fs.h>`.
    const BLKFLSBUF: libc::c_ulong = 0x1261;
    // SAFETY: the call takes no argument; the descriptor is open.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn answer<T>(result: io::Result<T>, done: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => done(value),
        Err(why) if why.raw_os_error() == Some(libc::EBADE) => {
            Answer::Failed(Failure::NotMine("the array refuses this side's write (EBADE)".to_owned()))
        }
        Err(why) => Answer::Failed(Failure::Array(why.to_string())),
    }
}

fn fenced<T>(result: Result<T, FenceError>, done: impl FnOnce(T) -> Answer) -> Answer {
    match result {
        Ok(value) => done(value),
        Err(why) => Answer::Failed(failure(&why)),
    }
}

/// The machine's word for a failure of the fence.
fn failure(why: &FenceError) -> Failure {
    let text = why.to_string();
    match why {
        _ if why.is_lost() => Failure::NotMine(text),
        FenceError::Conflict { .. } | FenceError::NoKeys { .. } => Failure::NotMine(text),
        FenceError::Io { .. } => Failure::Array(text),
        FenceError::TimedOut { .. } => Failure::TimedOut,
        _ => Failure::Other(text),
    }
}
