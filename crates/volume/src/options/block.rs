//! Options of a volume's block devices.

use loligo_export::blockdev::Owner;
use std::str::FromStr;

/// Properties of the block devices.
#[derive(Debug, Clone, Default)]
pub struct BlockOptions {
    /// The rotational flag of their queues.
    pub rotational: Rotational,
    /// Further names under /dev.
    pub dev_names: Vec<String>,
    /// To whom they belong.
    pub owner: Option<Owner>,
}

/// The word of a device on heads that it has to move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rotational {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// As the core does.
    #[default]
    Core,
}

impl Rotational {
    /// The rotational flag over a core that has heads to move (`turns`), or has none.
    pub(crate) fn of(self, turns: bool) -> bool {
        match self {
            Rotational::Yes => true,
            Rotational::No => false,
            Rotational::Core => turns,
        }
    }
}

impl FromStr for Rotational {
    type Err = String;

    fn from_str(text: &str) -> Result<Rotational, String> {
        match text {
            "yes" => Ok(Rotational::Yes),
            "no" => Ok(Rotational::No),
            "core" => Ok(Rotational::Core),
            _ => Err("use yes, no or core".to_owned()),
        }
    }
}
