//! A volume as it is listed.

use super::definition::VolumeConfig;
use super::status::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume in a list; `GET /v1/volumes`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: Status,
    /// It is in the file, and not made by command.
    pub from_file: bool,
    /// It is being stopped, and is no volume any more once that is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// It was ended at once, and the kernel may still have writes of it: they are waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// It acknowledges nothing any more since its cache failed. What was acknowledged is on it: a start anew recovers that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
    /// Its last message; while it starts or stops, and if it said anything.
    #[serde(default)]
    pub says: Option<String>,
    /// Its definition from its next start on, with what was set by command.
    pub definition: VolumeConfig,
    /// The core and cache that it is served by; while it is served.
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
    /// Data that its cache holds and its core lacks; while it is not served, and if that is so or not known.
    #[serde(default)]
    pub lacks: Option<String>,
    /// The fault of its devices; while it is served, and if there is one.
    #[serde(default)]
    pub trouble: Option<String>,
}

impl Listed {
    /// More than its state in a word, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        let ending = self.ending.then_some("its writes under way in the kernel are waited for");
        self.status.why().or(ending).or(self.says.as_deref())
    }
}

/// The core and cache that a volume is served by. Its definition may have changed since its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServedBy {
    /// The core.
    pub core: String,
    /// The cache; null: there is none.
    pub cache: Option<String>,
    /// Those keys among core, cache and listen for which the definition has another value by now.
    pub changed: Vec<String>,
}
