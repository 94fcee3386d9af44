//! Keys and holder of a LUN as they were read. A model of an array shows them as an extended attribute of its file, since a
//! list of keys cannot come back by a call on a file.

use crate::reservation::{Key, Kind, Reservations};
use serde::{Deserialize, Serialize};

/// The name of the attribute, which holds a [`Shown`] as JSON.
pub const SHOWN: &str = "user.loligo.reservation";

/// The registrations and the reservation of a LUN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// It counts what changes registrations.
    pub generation: u32,
    /// One key for each registered path.
    pub keys: Vec<Key>,
    /// The holder's key, and the type.
    pub held: Option<(Key, Kind)>,
}

impl Shown {
    /// The present state of `lun`.
    pub fn of(lun: &Reservations) -> Shown {
        let (generation, keys) = lun.keys();
        let held = lun.held().1.map(|(held, key)| (key, held.kind));
        Shown { generation, keys: keys.into_iter().map(|(_, key)| key).collect(), held }
    }
}
