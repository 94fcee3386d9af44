//! A volume as it is listed: how it is, what it is served by, and what it is from its next start on.

use super::Daemon;
use super::registry::with_overrides;
use super::supervisor::{Status, Supervisor};
use super::volumes::Member;
use crate::core::CoreSpec;
use crate::stats::{ANSWER, trouble};
use crate::volume_config::VolumeConfig;
use crate::volume_state::VolumeState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume in a list; `GET /v1/volumes`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// It is in the file, and not made by command.
    pub from_file: bool,
    /// It is being stopped, and is no volume any more once that is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// What it said last; while it starts or stops, and if it said anything.
    #[serde(default)]
    pub says: Option<String>,
    /// What it is from its next start on, with what was set by command.
    pub definition: VolumeConfig,
    /// What it is served by; while it is served.
    #[serde(default)]
    pub served: Option<ServedBy>,
    /// The mode in force; while it is served with a cache.
    #[serde(default)]
    pub mode: Option<String>,
    /// The mode from its next start on, which may be its profile's; if it has a cache then.
    #[serde(default)]
    pub next_mode: Option<String>,
    /// Bytes exported; while it is served.
    pub size: Option<u64>,
    /// Bytes that the core does not have yet; while it is served.
    pub dirty_bytes: Option<u64>,
    /// What its cache holds that its core lacks; while it is not served, and if that is so or not known.
    #[serde(default)]
    pub lacks: Option<String>,
    /// What is wrong with its devices; while it is served, and if anything is.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl Listed {
    /// More than its state in a word, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        self.status.why().or(self.says.as_deref())
    }
}

/// What a volume is served by. Its definition may have changed since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServedBy {
    /// The core.
    pub core: String,
    /// The cache; null: there is none.
    pub cache: Option<String>,
    /// Those keys among core, cache and listen for which the definition has another value by now.
    pub changed: Vec<String>,
}

impl ServedBy {
    /// By which `supervisor` has its clients served through `app`; nothing where it has nothing open any more.
    fn of(supervisor: &Supervisor, app: &VolumeState, definition: &VolumeConfig) -> Option<ServedBy> {
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
}

impl Daemon {
    /// All volumes.
    pub(crate) fn list(&self) -> Vec<Listed> {
        self.volumes.all().iter().map(|known| self.listed(known)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// Where there is no such volume.
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
            says: supervisor.says(),
            served: app.as_deref().and_then(|app| ServedBy::of(supervisor, app, &definition)),
            mode: mode.map(|mode| mode.name().to_owned()),
            next_mode: definition.mode_to_be(),
            definition,
            size: app.as_ref().map(|a| a.info().size),
            dirty_bytes: says.as_ref().map(|all| all.iter().map(|s| s.stats.dirty_bytes).sum()),
            lacks: remembered.cache.filter(|_| app.is_none()).and_then(|last| last.lost()),
            trouble: app.as_deref().and_then(|app| trouble(app, says.as_deref())),
        }
    }
}
