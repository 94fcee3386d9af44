//! The reason why a thread did not do what management asked.

use loligo_block::IoError;
use loligo_engine::refusal::ControlError;
use loligo_engine::resize::TooLarge;
use std::time::Duration;
use thiserror::Error;

/// The reason why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The engine refused it, or failed meanwhile.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The cache cannot follow to another size.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// It is for a cache, and there is none.
    #[error("this volume is served bare: it has no cache to set anything of")]
    Uncached,
    /// An engine to come could not be made.
    #[error(transparent)]
    Device(#[from] IoError),
    /// The thread is not there any more.
    #[error("a thread of the volume has ended")]
    Ended,
    /// A device does not answer.
    #[error("what was under way to the devices has not been answered for {} s", .0.as_secs())]
    Slow(Duration),
}

impl From<CommandError> for String {
    fn from(why: CommandError) -> String {
        why.to_string()
    }
}
