//! The parts of a thread's engine before it is on that thread's ring: at the start, and when it is exchanged.

use crate::devices::{DeviceQueue, Devices, MOST};
use crate::engine_driver::{EngineDriver, Parts};
use crate::message::ThreadMailbox;
use crate::reactor::Driver;
use crate::start::{Backend, CORE_ID, CoreSource, cache_id};
use crate::uncached::Uncached;
use loligo_block::keys::SHARDS;
use loligo_block::{AnyDevice, DeviceSpec, IoError, IoKind, KeyedText, keyed};
use loligo_engine::{Engine, Router};
use std::sync::Arc;

/// One thread's engine.
#[derive(Debug)]
pub struct EngineSetup {
    me: u16,
    size: u64,
    block: u32,
    core: AnyDevice,
    /// Its shards, each with the cache, and the first byte of the core that is exported.
    cache: Option<(Vec<(Engine, AnyDevice)>, u64)>,
}

/// The engines of `threads` threads over `core`, for a volume of `size` bytes in blocks of `block`. Each thread has one shard of
/// the cache; where there is one thread it has all.
///
/// # Errors
/// If the core belongs to one thread and there are more, or the cache has another number of shards.
pub(crate) fn all(
    core: CoreSource,
    backend: Backend,
    threads: usize,
    (size, block): (u64, u32),
) -> Result<Vec<EngineSetup>, IoError> {
    let invalid = |text: KeyedText| Err(IoError::new(IoKind::Invalid, text));
    let devices: Vec<AnyDevice> = match core {
        CoreSource::File(DeviceSpec::Hdd { .. }, _) if threads > 1 => {
            return invalid(keyed!("a modelled disk has one set of heads: use it with {SHARDS:#} 1"));
        }
        CoreSource::File(spec, file) => {
            (0..threads).map(|_| file.on_ring(&spec, CORE_ID)).collect::<Result<_, _>>()?
        }
        CoreSource::Device(_) if threads > 1 => {
            return invalid(keyed!("this core belongs to one thread: use it with {SHARDS:#} 1"));
        }
        CoreSource::Device(device) => vec![AnyDevice::Other(device)],
    };
    let caches: Vec<Option<_>> = match backend {
        Backend::Uncached => (0..threads).map(|_| None).collect(),
        Backend::Cached { cache, engines, data_start } => {
            let shards: Vec<Vec<Engine>> = if threads == 1 {
                vec![engines]
            } else {
                engines.into_iter().map(|core| vec![core]).collect()
            };
            if shards.len() != threads || shards.iter().any(Vec::is_empty) {
                return invalid("the cache has another number of shards than the volume has threads".into());
            }
            if shards.iter().any(|engines| engines.len() > MOST) {
                return invalid("one thread has 32 shards at most".into());
            }
            let shard = |(n, core)| Ok((core, cache.on_ring(cache_id(n))?));
            let part = |engines: Vec<Engine>| {
                let engines = engines.into_iter().enumerate().map(shard).collect::<Result<_, IoError>>()?;
                Ok(Some((engines, data_start)))
            };
            shards.into_iter().map(part).collect::<Result<_, IoError>>()?
        }
    };
    let all = devices.into_iter().zip(caches).enumerate().map(|(me, (core, cache))| EngineSetup {
        me: me as u16,
        size,
        block,
        core,
        cache,
    });
    Ok(all.collect())
}

impl EngineSetup {
    /// The engine.
    pub(crate) fn make(self, boxes: &Arc<[ThreadMailbox]>) -> Driver {
        match self.cache {
            None => Driver::Uncached(Box::new(Uncached::new(DeviceQueue::new(self.core), self.size))),
            Some((shards, data_start)) => {
                let (engines, caches): (Vec<Engine>, Vec<AnyDevice>) = shards.into_iter().unzip();
                let promotion = engines[0].params().seq_promotion;
                Driver::Cached(Box::new(EngineDriver::new(Parts {
                    me: self.me,
                    router: Router::new(self.size, self.block, engines[0].striping(), promotion),
                    engines,
                    devices: Devices::new(caches, self.core),
                    data_start,
                    boxes: boxes.clone(),
                })))
            }
        }
    }
}
