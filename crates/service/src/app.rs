//! What the management side shares: who this is, the threads, and a flush that may be under way.

use crate::serve::{HeldCache, ServeOptions};
use loligo_block::DeviceSpec;
use loligo_cache::api::Control;
use loligo_cache::units::BLOCK;
use loligo_export::Listener;
use loligo_shard::Handle;
use serde::{Deserialize, Serialize};
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
    pub(crate) fn new(o: &ServeOptions, held: Option<&HeldCache>, listeners: &[Listener], size: u64) -> Info {
        let sb = held.map(|h| &h.superblock);
        let kind = if matches!(o.core, DeviceSpec::Hdd { .. }) { "hdd:" } else { "" };
        Info {
            name: o.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            core: format!("{kind}{}", o.core.path().display()),
            cache: o.cache.as_ref().map(|c| c.path.display().to_string()),
            size,
            line_size: sb.map(|s| s.line_size),
            shards: sb.map_or(1, |s| s.layout.shards),
            core_reserve: sb.map(|s| s.core_reserve),
            uuid: sb.map(|s| s.uuid.iter().map(|b| format!("{b:02x}")).collect()),
            listen: listeners.iter().map(|l| l.addr().to_string()).collect(),
        }
    }
}

/// The flush that was last asked for; `GET /v1/flush`.
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
    pub(crate) started: Instant,
    flush: Mutex<FlushState>,
}

impl App {
    pub(crate) fn new(info: Info, handle: Handle) -> App {
        App { info, handle, started: Instant::now(), flush: Mutex::default() }
    }

    fn flush_state(&self) -> MutexGuard<'_, FlushState> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty_bytes(&self) -> u64 {
        self.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum()
    }

    /// Starts to destage everything dirty, unless that is under way.
    pub(crate) fn start_flush(self: &Arc<App>) -> FlushState {
        let total = self.dirty_bytes();
        let mut state = self.flush_state();
        if state.running {
            return state.clone();
        }
        *state = FlushState {
            number: state.number + 1,
            running: true,
            total_bytes: total,
            remaining_bytes: total,
            error: None,
        };
        let now = state.clone();
        drop(state);
        let app = self.clone();
        std::thread::spawn(move || {
            let result = app.handle.control(&Control::FlushDirty);
            let mut state = app.flush_state();
            state.running = false;
            state.error = result.err();
        });
        now
    }

    /// How far the flush is.
    pub(crate) fn flush_progress(&self) -> FlushState {
        let remaining: u64 = self.handle.snapshots().iter().filter_map(|s| s.flush_remaining).sum();
        let mut state = self.flush_state();
        state.remaining_bytes = if state.running { (remaining * BLOCK).min(state.total_bytes) } else { 0 };
        state.clone()
    }
}
