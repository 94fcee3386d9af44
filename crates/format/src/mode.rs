//! Cache modes as one table: what is cached and what an acknowledgement waits for.

use std::fmt;
use std::str::FromStr;

/// The mode of a cache; switched live, stored as its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Write-through: cache and core are both written before the answer.
    Wt = 0,
    /// Write-back: the cache is written, the core later.
    Wb = 1,
    /// Write-around: writes go to the core; a copy that is wholly cached is updated.
    Wa = 2,
    /// Write-invalidate: writes go to the core; cached copies are dropped.
    Wi = 3,
    /// Write-only: writes as in write-back, reads are never promoted.
    Wo = 4,
    /// Pass-through: nothing is promoted; dirty data stays newest until swept.
    Pt = 5,
}

/// The route of a write that touches no dirty block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteRoute {
    /// Dirty into the cache.
    Back,
    /// To the core, then clean into the cache.
    Through,
    /// To the core, then clean into the cache where every block was cached, dropped elsewhere.
    Around,
    /// To the core; cached copies are dropped.
    Invalidate,
}

impl Mode {
    /// Every mode, in the order of their numbers.
    pub const ALL: [Mode; 6] = [Mode::Wt, Mode::Wb, Mode::Wa, Mode::Wi, Mode::Wo, Mode::Pt];

    /// The mode stored as `n`.
    pub fn from_number(n: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(n)).copied()
    }

    /// The route of a write that touches no dirty block.
    pub fn write_route(self) -> WriteRoute {
        match self {
            Mode::Wb | Mode::Wo => WriteRoute::Back,
            Mode::Wt => WriteRoute::Through,
            Mode::Wa => WriteRoute::Around,
            Mode::Wi | Mode::Pt => WriteRoute::Invalidate,
        }
    }

    /// True if writes are acknowledged that the core does not have.
    pub fn is_ahead_of_core(self) -> bool {
        self.write_route() == WriteRoute::Back
    }

    /// True if read misses may be promoted.
    pub fn promotes_reads(self) -> bool {
        matches!(self, Mode::Wt | Mode::Wb | Mode::Wa | Mode::Wi)
    }

    /// True if clean cached data answers reads.
    pub fn serves_clean(self) -> bool {
        self != Mode::Pt
    }

    /// The two-letter name.
    pub fn name(self) -> &'static str {
        ["wt", "wb", "wa", "wi", "wo", "pt"][self as usize]
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(s: &str) -> Result<Mode, String> {
        Mode::ALL
            .into_iter()
            .find(|m| m.name() == s)
            .ok_or_else(|| format!("unknown cache mode '{s}': use wt, wb, wa, wi, wo or pt"))
    }
}
