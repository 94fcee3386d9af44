//! One core of the pool, in service.

use crate::engine::format_options;
use anyhow::{Result, anyhow};
use loligo_block::{DeviceFile, DeviceSpec, OpenOptions as FileOptions};
use loligo_engine::api::Control;
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_export::{Export, Limits};
use loligo_format::mode::Mode;
use loligo_shard::{Backend, CoreSource, Leases, Local, Plan, Running};
use loligo_volume::pool::{Governing, Pool, Share};
use std::sync::Arc;

/// A write-back volume whose cache is a share that the balancer looks after.
pub(super) struct Member {
    pub(super) share: Arc<Share>,
    running: Running,
    governing: Governing,
}

impl Member {
    /// A new cache in the share of `number`, in front of `core`.
    pub(super) fn new(pool: &Pool, number: u16, core: &DeviceSpec) -> Result<Member> {
        let share = Arc::new(pool.share(number)?);
        let cache = share.device();
        let disk = DeviceFile::open(core.path(), &FileOptions::default())?;
        let (near, far, mut dev) = (cache.geometry(), disk.geometry(), cache.sync_io());
        let m = share.member();
        let mut uuid = *b"loligo-bench-...";
        uuid[..2].copy_from_slice(&number.to_le_bytes());
        let (name, shards, journal_len) = (m.name.clone(), m.shards, m.journal_len);
        let format = FormatOptions { uuid, name, shards, journal_len, ..format_options(m.max, far.size) };
        let mut sb = open::format(&mut dev, &format)?;
        sb.layout.limit = share.limit()?;
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let mut opened_core = loligo_block::SyncFile::new(disk.clone());
        let opened = open::open(&mut dev, &mut opened_core, sb, &options)?;
        let (sb, cores) = opened.into_engines(Mode::Wb, &options, &Devices::of(near, far));
        let running = loligo_shard::start(Plan {
            export: Export::new(&format!("core{number}"), sb.data_length),
            limits: Limits::default(),
            tls: None,
            listeners: Vec::new(),
            core: CoreSource::File(core.clone(), disk.into()),
            leases: Leases::default(),
            backend: Backend::Cached { cache, engines: cores, data_start: sb.data_start },
        })?;
        let governing = pool.govern(share.clone(), running.handle().clone())?;
        Ok(Member { share, running, governing })
    }

    /// A client of it.
    pub(super) fn local(&self) -> Local {
        self.running.handle().local(0)
    }

    /// Has everything dirty written to the core.
    pub(super) fn flush(&self) -> Result<()> {
        self.running.handle().control(&Control::FlushDirty).map_err(|why| anyhow!(why))
    }

    /// Stops it; what is dirty stays where it is.
    pub(super) fn end(self) -> Result<()> {
        drop(self.governing);
        self.running.handle().control(&Control::Stop).map_err(|why| anyhow!(why))?;
        self.running.join()?;
        Ok(())
    }
}
