//! The state of a volume of the daemon, in a word and in sentences.

use crate::outcome::{Ended, Outcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The state of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", content = "why", rename_all = "lowercase")]
pub enum Status {
    /// Nobody wants it to run.
    #[default]
    Stopped,
    /// Cache and core are being opened and recovered.
    Starting,
    /// Clients may come.
    Serving,
    /// Its cache or core is not there: it starts when that comes.
    Waiting(String),
    /// It cannot start, and will not by itself.
    Refused(String),
    /// It is being stopped.
    Stopping,
    /// It ended by itself, or its stop failed; it is started again after a while.
    Failed(String),
    /// The array has given its devices to another controller: it ended at once, and does not start by itself.
    Lost(String),
}

impl Status {
    /// The values of [`Status::word`].
    pub const WORDS: [&str; 8] =
        ["stopped", "starting", "serving", "waiting", "refused", "stopping", "failed", "lost"];

    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Status::Stopped => "stopped",
            Status::Starting => "starting",
            Status::Serving => "serving",
            Status::Waiting(_) => "waiting",
            Status::Refused(_) => "refused",
            Status::Stopping => "stopping",
            Status::Failed(_) => "failed",
            Status::Lost(_) => "lost",
        }
    }

    /// More than a word, where there is more to say.
    pub fn why(&self) -> Option<&str> {
        match self {
            Status::Waiting(why) | Status::Refused(why) | Status::Failed(why) | Status::Lost(why) => {
                Some(why)
            }
            Status::Stopped | Status::Starting | Status::Serving | Status::Stopping => None,
        }
    }

    /// The reason why nothing can be done to the volume `name` that is done to one that is served, and what
    /// makes it one.
    pub fn unserved(&self, name: &str) -> String {
        let start = format!("'loligo volume start {name}'");
        match self {
            Status::Stopped => format!("volume '{name}' is stopped: {start} starts it"),
            Status::Starting => {
                format!(
                    "volume '{name}' is starting: {start} waits until it is served and shows the cause \
                    of a wait"
                )
            }
            Status::Serving => format!(
                "volume '{name}' is starting or stopping at this moment: try \
                again"
            ),
            Status::Waiting(why) => {
                format!(
                    "volume '{name}' is waiting for a device or service, and starts once it is \
                    there: {why}"
                )
            }
            Status::Refused(why) => {
                format!("volume '{name}' is refused: {why}. Mend that, then run {start}")
            }
            Status::Stopping => format!("volume '{name}' is stopping: {start} starts it again afterwards"),
            Status::Failed(why) => {
                format!("volume '{name}' has failed, and the daemon starts it again: {why}")
            }
            Status::Lost(why) => format!(
                "volume '{name}' is lost to this controller: {why}. Once the array has given it back, run {start}"
            ),
        }
    }

    /// The same, as an error that knows whether that changes by itself.
    pub fn refuse(&self, name: &str) -> Ended {
        Ended::with(Outcome::of_unserved(self), self.unserved(name))
    }

    /// It stays so until somebody does something.
    pub fn settled(&self) -> bool {
        !matches!(self, Status::Starting | Status::Stopping)
    }
}
