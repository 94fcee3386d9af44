//! The ways in which a change of a served volume comes to nothing.

use anyhow::anyhow;
use loligo_shard::CommandError;

/// The reason why a change came to nothing.
pub(super) enum Trouble {
    /// Everything is as it was.
    Unchanged(anyhow::Error),
    /// The same, and the volume is to stop.
    Stop,
    /// The same, and the cache device answers nothing.
    Silent,
    /// The same, but for the daemon's state, which may say that nothing in the cache is dirty: nothing is to become so.
    Through(anyhow::Error),
    /// The same, but for the daemon's state, which may name the cache that was to be attached.
    Named(anyhow::Error),
    /// The work done could not be taken back.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Trouble {
    fn from(why: E) -> Trouble {
        Trouble::Unchanged(why.into())
    }
}

/// The same from a wait for threads.
pub(super) struct Cancellable(pub(super) Trouble);

impl From<CommandError> for Cancellable {
    fn from(why: CommandError) -> Cancellable {
        Cancellable(Trouble::Unchanged(why.into()))
    }
}

impl From<String> for Cancellable {
    fn from(why: String) -> Cancellable {
        Cancellable(Trouble::Unchanged(anyhow!(why)))
    }
}
