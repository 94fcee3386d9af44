//! Two legs that were opened, and what they became once somebody began to use them.

use super::access::Time;
use super::device::MirroredDevice;
use super::flaw::Flaws;
use super::io::MirroredIo;
use super::live::{Guard, Live};
use super::machine::{Machine, Policy, Settings};
use super::mark::{Leg, Opening};
use super::setup::{MirrorView, Setup};
use crate::file::{DeviceFile, SyncFile};
use crate::silence::Silence;
use crate::uring::DevId;
use crate::{AnyDevice, Geometry, IoError, IoKind, SyncIo};
use std::sync::{Arc, OnceLock};

/// Numbers of devices on a ring between a leg's and the other's.
const MIRROR_IDS: u16 = 1 << 12;
/// Bytes at the start of new content that are zeroed: those of another cache are not to be taken for this one's.
const HEAD: usize = 1 << 20;

/// A device on two legs. Nothing is written to either before [`Mirror::begin`]. Clones are the same.
#[derive(Debug, Clone)]
pub struct Mirror {
    legs: [Option<DeviceFile>; 2],
    setup: Arc<Setup>,
    size: u64,
    live: Arc<OnceLock<Guard>>,
}

impl Mirror {
    /// Legs as they were opened, whole.
    ///
    /// # Errors
    /// If a leg has no room for the content.
    pub fn new(legs: [Option<DeviceFile>; 2], setup: Setup) -> Result<Mirror, IoError> {
        let room = legs.iter().flatten().map(|leg| leg.geometry().size.saturating_sub(setup.content));
        let room = room.min().unwrap_or(0) / 4096 * 4096;
        let size = match setup.opening {
            Opening::New => room,
            Opening::InStep(mark) | Opening::On { mark, .. } => mark.size,
        };
        if size == 0 || room < size {
            let text = format!("a leg of the mirror has room for {room} bytes, and {size} are needed");
            return Err(IoError::new(IoKind::Invalid, text));
        }
        Ok(Mirror { legs, setup: Arc::new(setup), size, live: Arc::default() })
    }

    /// The same, silent with all others that `silence` was given to.
    pub fn silenced_by(self, silence: &Silence) -> Mirror {
        Mirror { legs: self.legs.map(|leg| leg.map(|leg| leg.silenced_by(silence))), ..self }
    }

    /// The leg that is read first, whole.
    pub fn file(&self) -> &DeviceFile {
        let [local, mirror] = &self.legs;
        let wanted = match self.setup.opening {
            Opening::On { leg: Leg::Mirror, .. } => mirror.as_ref(),
            _ => local.as_ref(),
        };
        wanted.or(local.as_ref()).or(mirror.as_ref()).expect("one of the legs is there")
    }

    /// The legs that are there, whole.
    pub fn files(&self) -> impl Iterator<Item = &DeviceFile> {
        self.legs.iter().flatten()
    }

    /// Size and traits, of both.
    pub fn geometry(&self) -> Geometry {
        let all = || self.files().map(DeviceFile::geometry);
        let most = |of: fn(Geometry) -> u32| all().map(of).max().unwrap_or(512);
        Geometry {
            size: self.size,
            logical_block: most(|g| g.logical_block),
            physical_block: most(|g| g.physical_block),
            volatile_cache: all().any(|g| g.volatile_cache),
            rotational: all().any(|g| g.rotational),
            can_unmap: all().all(|g| g.can_unmap),
        }
    }

    /// Writes the marks of the opening, durably, and has the legs looked after from now on. It has no effect the second time.
    ///
    /// # Errors
    /// If a mark cannot be written, or there is no thread.
    pub fn begin(&self) -> Result<(), IoError> {
        if self.live.get().is_some() {
            return Ok(());
        }
        let setup = &self.setup;
        let settings = Settings { seed: setup.seed, ..settings(setup.policy) };
        let (machine, marks) = Machine::open(settings, setup.opening, (setup.set, self.size, setup.top));
        for (leg, mark) in marks {
            let Some(file) = &self.legs[leg.index()] else { continue };
            let mut whole = SyncFile::new(file.clone());
            if setup.opening == Opening::New {
                whole.write_at(setup.content, &vec![0; HEAD])?;
            }
            (setup.store)(&mut whole, &mark)?;
        }
        let contents = self.contents()?;
        let guard = Live::begin(machine, self.legs.clone(), contents, setup.clone())?;
        // Whoever else began it first has its threads; these end with their guard.
        let _ = self.live.set(guard);
        Ok(())
    }

    /// The legs behind their labels.
    fn contents(&self) -> Result<[Option<DeviceFile>; 2], IoError> {
        let behind =
            |leg: &Option<DeviceFile>| leg.as_ref().map(|leg| leg.behind(self.setup.content)).transpose();
        Ok([behind(&self.legs[0])?, behind(&self.legs[1])?])
    }

    /// Notes on both legs that they are alike, if they are and nothing is under way. Nothing is written afterwards.
    pub fn close(&self) {
        if let Some(guard) = self.live.get() {
            guard.live().close();
        }
    }

    /// Blocking access.
    pub fn sync_io(&self) -> MirroredIo {
        let first = match self.setup.opening {
            Opening::New => None,
            Opening::InStep(_) => Some(Leg::Local),
            Opening::On { leg, .. } => Some(leg),
        };
        // A leg with room for its content has some behind its label.
        let contents = self.contents().unwrap_or_default();
        MirroredIo::new(self.live.clone(), contents, (first, self.size))
    }

    /// Access through the ring of a thread, as its devices [`Mirror::ids`] of `id`.
    ///
    /// # Errors
    /// If a leg cannot be opened once more, or nobody has begun.
    pub fn on_ring(&self, id: DevId) -> Result<AnyDevice, IoError> {
        let unused = || IoError::new(IoKind::Invalid, "the mirror is not in use yet");
        let live = self.live.get().map(Guard::live).ok_or_else(unused)?;
        let device = MirroredDevice::new(live.clone(), self.geometry(), self.contents()?, Mirror::ids(id))?;
        Ok(AnyDevice::Mirrored(Box::new(device)))
    }

    /// The numbers of both legs on a ring where the first has `id`.
    pub fn ids(id: DevId) -> [DevId; 2] {
        [id, DevId(id.0 + MIRROR_IDS)]
    }

    /// The state by now; nothing before it has begun.
    pub fn view(&self) -> Option<MirrorView> {
        self.live.get().map(|guard| guard.live().view())
    }
}

/// The constants of the product.
fn settings(policy: Policy) -> Settings {
    const MS: Time = 1_000_000;
    Settings {
        policy,
        // With the time between two ticks and that of a note, an acknowledgement waits for 2 s.
        limit: 1800 * MS,
        retry: 5000 * MS,
        region: 1 << 20,
        seed: 0,
        flaws: Flaws::default(),
    }
}
