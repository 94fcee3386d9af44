//! Two paths to one LUN, and their peculiarities.

use std::path::PathBuf;
use std::time::Duration;

/// The speed of writes. Each has a place of its own on the LUN, since some targets are slow by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// At once.
    None,
    /// [`Target::short`].
    Short,
    /// [`Target::long`].
    Long,
}

impl Delay {
    /// The byte at which writes of this speed are made; 16 MiB are free there.
    pub fn place(self) -> u64 {
        match self {
            Delay::None => 1 << 20,
            Delay::Long => 32 << 20,
            Delay::Short => 48 << 20,
        }
    }
}

/// The effect of a preemption with abort by a partner that holds the LUN, as it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfPartnerHolds {
    /// It waits for the victim's writes.
    Waits,
    /// It misses them, and they land later (LIO).
    Misses,
    /// Nothing; it answers success (nvmet).
    Nothing,
}

/// Two paths to one LUN of 64 MiB.
pub struct Target<'a> {
    /// The path of the owner.
    pub a: PathBuf,
    /// The path of its partner.
    pub b: PathBuf,
    /// A preemption by a partner that holds.
    pub if_partner_holds: IfPartnerHolds,
    /// Writes by `a` are slow from now on, as said, at the place that belongs to it.
    pub set_delay: &'a (dyn Fn(Delay) + Sync),
    /// A short delay.
    pub short: Duration,
    /// A long one.
    pub long: Duration,
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("a", &self.a).field("b", &self.b).finish_non_exhaustive()
    }
}
