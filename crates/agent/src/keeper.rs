//! Keeps what a daemon sets of a volume by command, on the array, as long as the volume is this side's.

use crate::config::PairConfig;
use crate::luns::Luns;
use crate::values::Values;
use anyhow::{Context, Result, anyhow};
use loligo_client::api::volume::Keep;
use loligo_pair::machine::Proof;
use loligo_pair::plan::{LunId, Side};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keeps values.
#[derive(Debug, Clone)]
pub struct Keeper {
    luns: Luns,
    volumes: Arc<BTreeMap<String, (Values, Vec<LunId>)>>,
    /// One value at a time: each is added to those before it.
    pen: Arc<Mutex<()>>,
}

impl Keeper {
    /// For the volumes of `config`, on the side `me`.
    ///
    /// # Errors
    /// If a key makes no sense.
    pub fn new(config: &Arc<PairConfig>, me: Side) -> Result<Keeper> {
        let plan = config.plan(me)?;
        let of_unit = |name: &str| {
            let units = plan.units.iter().filter(|unit| unit.name == name);
            units.flat_map(|unit| unit.luns.clone()).collect()
        };
        let volumes = config
            .volumes()
            .into_iter()
            .map(|(unit, volume)| (volume.name.clone(), (Values::new(config, &volume, me), of_unit(&unit))));
        Ok(Keeper {
            luns: Luns::new(config.clone(), me)?,
            volumes: Arc::new(volumes.collect()),
            pen: Arc::default(),
        })
    }

    /// Keeps one value. It is durable when this returns.
    ///
    /// # Errors
    /// If the pair has no such volume, the array says that it is the partner's, or fails.
    pub fn keep(&self, keep: &Keep) -> Result<()> {
        let (values, luns) = self
            .volumes
            .get(&keep.volume)
            .with_context(|| format!("the pair has no volume {}", keep.volume))?;
        let _alone = self.pen.lock();
        for lun in luns {
            self.luns
                .prove(*lun, Proof::Held)
                .map_err(|why| anyhow!("the volume is not this side's: {why}"))?;
        }
        values.keep(&keep.set)
    }
}
