//! One volume's answers about itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The description of a volume; `GET /v1/info`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// The version of the program that serves it.
    pub version: &'static str,
    /// The process that serves it.
    pub pid: u32,
    /// The core, as it was given.
    pub core: String,
    /// The cache; null: it is served without one.
    pub cache: Option<String>,
    /// Bytes exported.
    pub size: u64,
    /// Bytes of a cache line.
    pub line_size: Option<u32>,
    /// Threads that serve it.
    pub shards: u16,
    /// Percent of the core that is not exported.
    pub core_reserve: Option<u8>,
    /// The cache's UUID.
    pub uuid: Option<String>,
    /// Its exports, as they were given.
    pub listen: Vec<String>,
}

/// The socket of a definition that is to be bound or let go of.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WhichSocket {
    /// Its address, as `tcp:10.0.0.5:10809`; left out: those that wait to be told.
    #[serde(default)]
    pub listen: Option<String>,
}

/// A value of a volume that is set by command, as its keeper is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// The volume.
    pub volume: String,
    /// The value.
    pub set: Set,
}

/// A value that is set by command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// The mode.
    Mode(String),
    /// A tunable.
    Param {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
}

/// The exports of a volume after that.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Bound {
    /// As in its description.
    pub listen: Vec<String>,
}

/// One tunable as the API shows it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Param {
    /// As typed.
    pub key: String,
    /// Now.
    pub value: String,
    /// The values that it accepts.
    pub range: String,
    /// Without being set.
    pub default: String,
}

/// One flush; `GET /v1/flush?number=N`, without a number the last that was asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct FlushState {
    /// Counts flushes.
    pub number: u64,
    /// It is under way.
    pub running: bool,
    /// Bytes it had before it at its start.
    pub total_bytes: u64,
    /// Bytes it has before it now, roughly.
    pub remaining_bytes: u64,
    /// The reason why it failed.
    pub error: Option<String>,
}

/// One change; `GET /v1/volumes/NAME/change`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeState {
    /// Counts the changes of this life of the volume; 0: there was none.
    pub number: u64,
    /// The kind of change.
    pub what: String,
    /// It waits or is under way.
    pub running: bool,
    /// Bytes that had to go to the core at its start.
    pub total_bytes: u64,
    /// Those that are left.
    pub remaining_bytes: u64,
    /// Milliseconds for which clients' requests were held.
    pub held_ms: f64,
    /// The work done, in a sentence.
    pub done: String,
    /// The reason why it came to nothing; the volume is as it was then.
    pub error: Option<String>,
    /// It was refused: nothing of it was begun.
    #[serde(default)]
    pub refused: bool,
}
