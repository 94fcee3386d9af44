//! What the management side shares: who this is, the threads, and a flush that may be under way.

use crate::rbd::Kept;
use crate::serve::{HeldCache, ServeOptions};
use loligo_block::lease::Hold;
use loligo_cache::api::Control;
use loligo_cache::units::BLOCK;
use loligo_export::fuse::Counters;
use loligo_shard::Handle;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a volume is; `GET /v1/info`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Info {
    pub(crate) name: String,
    pub(crate) version: &'static str,
    pub(crate) pid: u32,
    pub(crate) core: String,
    pub(crate) cache: Option<String>,
    /// Bytes exported.
    pub(crate) size: u64,
    pub(crate) line_size: Option<u32>,
    pub(crate) shards: u16,
    pub(crate) core_reserve: Option<u8>,
    pub(crate) uuid: Option<String>,
    pub(crate) listen: Vec<String>,
}

impl Info {
    pub(crate) fn new(o: &ServeOptions, held: Option<&HeldCache>, listen: Vec<String>, size: u64) -> Info {
        let sb = held.map(|h| h.superblock.lock().unwrap_or_else(PoisonError::into_inner));
        let sb = sb.as_deref();
        Info {
            name: o.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            core: o.core.to_string(),
            cache: o.cache.as_ref().map(|c| c.path.display().to_string()),
            size,
            line_size: sb.map(|s| s.line_size),
            shards: sb.map_or(1, |s| s.layout.shards),
            core_reserve: sb.map(|s| s.core_reserve),
            uuid: sb.map(|s| s.uuid_text()),
            listen,
        }
    }
}

/// One flush; `GET /v1/flush?number=N`, without a number the last that was asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct FlushState {
    /// Counts flushes.
    pub number: u64,
    /// It is under way.
    pub running: bool,
    /// Bytes it had before it at its start.
    pub total_bytes: u64,
    /// Bytes it has before it now, roughly.
    pub remaining_bytes: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// The volume as management sees it.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) info: Info,
    pub(crate) handle: Handle,
    /// The image that is the core, and whether it is still ours.
    pub(crate) rbd: Mutex<Option<Kept>>,
    /// What came through mounts.
    pub(crate) fuse: Arc<Counters>,
    pub(crate) started: Instant,
    /// Held while the tunables are read, changed and handed out again, so that of two changes at once none is lost.
    pub(crate) setting: Mutex<()>,
    /// The last flushes, oldest first.
    flushes: Mutex<VecDeque<FlushState>>,
}

impl App {
    pub(crate) fn new(info: Info, handle: Handle, rbd: Option<Kept>) -> App {
        App {
            info,
            handle,
            rbd: Mutex::new(rbd),
            fuse: Arc::default(),
            started: Instant::now(),
            setting: Mutex::default(),
            flushes: Mutex::default(),
        }
    }

    /// Snapshots by others are refused from now on, so that none holds the stop up.
    pub(crate) fn refuse_snapshots(&self) {
        if let Some(kept) = &*self.rbd.lock().unwrap_or_else(PoisonError::into_inner) {
            kept.keeper.refuse_snapshots();
        }
    }

    /// What the lease of the image that is the core is worth; nothing: it is no image.
    pub(crate) fn lease(&self) -> Option<Hold> {
        let rbd = self.rbd.lock().unwrap_or_else(PoisonError::into_inner);
        rbd.as_ref().map(|kept| kept.image.lease.now())
    }

    /// Whether the core is an image that another client has taken.
    pub(crate) fn has_lost_image(&self) -> bool {
        self.lease() == Some(Hold::Lost)
    }

    /// Nobody keeps the image any more; a snapshot that is being taken is waited for.
    pub(crate) fn end_rbd(&self) {
        let kept = self.rbd.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(kept);
    }

    fn flushes(&self) -> MutexGuard<'_, VecDeque<FlushState>> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty_bytes(&self) -> u64 {
        self.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum()
    }

    /// Starts to destage everything that is dirty now. One that is under way already does not do: it knows nothing of what
    /// was written since it began.
    pub(crate) fn start_flush(self: &Arc<App>) -> FlushState {
        let total = self.dirty_bytes();
        let mut flushes = self.flushes();
        let number = flushes.back().map_or(0, |f| f.number) + 1;
        let state =
            FlushState { number, running: true, total_bytes: total, remaining_bytes: total, error: None };
        if flushes.len() >= FLUSHES_KEPT {
            flushes.pop_front();
        }
        flushes.push_back(state.clone());
        drop(flushes);
        let app = self.clone();
        std::thread::spawn(move || {
            let result = app.handle.control(&Control::FlushDirty);
            if let Some(state) = app.flushes().iter_mut().find(|f| f.number == number) {
                state.running = false;
                state.error = result.err();
            }
        });
        state
    }

    /// How far flush `number` is, or the last one.
    pub(crate) fn flush_progress(&self, number: Option<u64>) -> FlushState {
        let remaining: u64 = self.handle.snapshots().iter().filter_map(|s| s.flush_remaining).sum();
        let mut flushes = self.flushes();
        let found = match number {
            Some(n) => flushes.iter_mut().find(|f| f.number == n),
            None => flushes.back_mut(),
        };
        let Some(state) = found else { return FlushState::default() };
        // Later flushes wait behind earlier ones; what is left never seems to grow.
        let left = if state.running { remaining * BLOCK } else { 0 };
        state.remaining_bytes = state.remaining_bytes.min(left);
        state.clone()
    }
}

/// Flushes whose outcome can still be asked for.
const FLUSHES_KEPT: usize = 256;
