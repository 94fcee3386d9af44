//! The names of the roles that a side of a pair can have.

use serde::{Deserialize, Serialize};

/// The name of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RoleName {
    /// The array is being read.
    Starting,
    /// Own units run.
    Normal,
    /// The race is under way.
    Race,
    /// All units run here.
    Dual,
    /// The partner's units are being given back.
    Giveback,
    /// Nothing runs here.
    Fenced,
}

impl RoleName {
    /// All of them, each at its number in a heartbeat.
    pub const ALL: [RoleName; 6] = [
        RoleName::Starting,
        RoleName::Normal,
        RoleName::Race,
        RoleName::Dual,
        RoleName::Giveback,
        RoleName::Fenced,
    ];
}

impl std::fmt::Display for RoleName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RoleName::Starting => "STARTING",
            RoleName::Normal => "NORMAL",
            RoleName::Race => "RACE",
            RoleName::Dual => "DUAL",
            RoleName::Giveback => "GIVEBACK",
            RoleName::Fenced => "FENCED",
        })
    }
}
