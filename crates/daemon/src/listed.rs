//! A volume as it is listed: how it is, what it is served by, and what it is from its next start on.

use crate::daemon::Daemon;
use crate::remembered::with_overrides;
use crate::supervisor::Supervisor;
use crate::volumes::Member;
use loligo_client::api::definition::VolumeConfig;
use loligo_client::api::listed::{Listed, ServedBy};
use loligo_volume::core::CoreSpec;
use loligo_volume::definition::mode_at_start;
use loligo_volume::stats::{ANSWER, is_stuck, trouble};
use loligo_volume::volume_state::VolumeState;

/// By which `supervisor` has its clients served through `app`; nothing where it has nothing open any more.
fn served_by(supervisor: &Supervisor, app: &VolumeState, definition: &VolumeConfig) -> Option<ServedBy> {
    let (used, _) = supervisor.used()?;
    // A cache comes and goes by command; a core and listeners stay those of the start.
    let cache = app.info().cache;
    let defined = definition.cache.as_ref().map(|c| c.display().to_string());
    let is = |core: &str| core.parse::<CoreSpec>();
    let others = [
        ("core", used.core != definition.core && is(&used.core) != is(&definition.core)),
        ("cache", cache != defined),
        ("listen", used.listen != definition.listen),
    ];
    let changed = others.iter().filter(|(_, other)| *other).map(|(key, _)| (*key).to_owned());
    Some(ServedBy { core: used.core, cache, changed: changed.collect() })
}

impl Daemon {
    /// All volumes.
    pub(crate) fn list(&self) -> Vec<Listed> {
        self.volumes.all().iter().map(|known| self.listed(known)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// If there is no such volume.
    pub(crate) fn show(&self, name: &str) -> anyhow::Result<Listed> {
        Ok(self.listed(&self.volumes.find(name)?))
    }

    fn listed(&self, known: &Member) -> Listed {
        let supervisor = &known.supervisor;
        let app = supervisor.app();
        let says = app.as_ref().and_then(|app| app.handle.snapshots_within(ANSWER));
        let mode = says.iter().flatten().next().and_then(|s| s.mode);
        let remembered = self.memory.of(&supervisor.name);
        let definition = with_overrides(&supervisor.config(), &remembered);
        Listed {
            name: supervisor.name.clone(),
            status: supervisor.status(),
            from_file: known.from_file,
            leaving: known.leaving,
            ending: supervisor.is_in_kernel(),
            stuck: says.as_deref().is_some_and(is_stuck),
            says: supervisor.says(),
            served: app.as_deref().and_then(|app| served_by(supervisor, app, &definition)),
            mode: mode.map(|mode| mode.name().to_owned()),
            next_mode: mode_at_start(&definition),
            definition,
            size: app.as_ref().map(|a| a.info().size),
            dirty_bytes: says.as_ref().map(|all| all.iter().map(|s| s.stats.dirty_bytes).sum()),
            lacks: remembered.cache.filter(|_| app.is_none()).and_then(|last| last.lost()),
            trouble: app.as_deref().and_then(|app| trouble(app, says.as_deref())),
        }
    }
}
