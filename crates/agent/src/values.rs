//! The values of a volume that were set by command, as long as the pair's file says what it said then.

use crate::config::{PairConfig, VolumeUnit};
use crate::kept::{Kept, KeptPlace};
use anyhow::{Context, Result};
use loligo_client::api::volume::Set;
use loligo_pair::plan::Side;

/// The values of one volume.
#[derive(Debug, Clone)]
pub struct Values {
    name: String,
    /// The definition in the file.
    defined: serde_json::Value,
    place: KeptPlace,
}

impl Values {
    /// Those of `unit`, by the path of `side` to the quorum LUN.
    pub fn new(pair: &PairConfig, unit: &VolumeUnit, side: Side) -> Values {
        Values {
            name: unit.name.clone(),
            // A table of TOML is a value of JSON.
            defined: serde_json::to_value(&unit.definition).unwrap_or_default(),
            place: KeptPlace::new(&pair.controller[&side].quorum, unit.id),
        }
    }

    /// The values that count; nothing: none were set since the file was edited.
    ///
    /// # Errors
    /// If the quorum LUN cannot be read.
    pub fn read(&self) -> Result<Option<Kept>> {
        let kept = self.place.read().context("the quorum LUN cannot be read")?;
        Ok(kept.filter(|kept| kept.name == self.name && kept.instead_of == self.defined))
    }

    /// Keeps one more. It is durable when this returns.
    ///
    /// # Errors
    /// If the quorum LUN fails.
    pub fn keep(&self, set: &Set) -> Result<()> {
        let fresh = || Kept { name: self.name.clone(), instead_of: self.defined.clone(), ..Kept::default() };
        let mut kept = self.read()?.unwrap_or_else(fresh);
        match set {
            Set::Mode(mode) => kept.mode = Some(mode.clone()),
            Set::Param { key, value } => {
                kept.params.insert(key.clone(), value.clone());
            }
        }
        self.place.write(&kept).context("the quorum LUN cannot be written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::QUORUM_BYTES;

    fn values(file: &tempfile::NamedTempFile, defined: &str) -> Values {
        Values {
            name: "vm1".to_owned(),
            defined: serde_json::json!({ "mode": defined }),
            place: KeptPlace::new(file.path(), 3),
        }
    }

    #[test]
    fn values_set_by_command_hold_until_the_file_is_edited() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(QUORUM_BYTES).unwrap();
        let before = values(&file, "wb");
        before.keep(&Set::Mode("wt".to_owned())).unwrap();
        let param = Set::Param { key: "seq-cutoff".to_owned(), value: "never".to_owned() };
        before.keep(&param).unwrap();
        let kept = before.read().unwrap().unwrap();
        assert_eq!((kept.mode.as_deref(), kept.params.len()), (Some("wt"), 1));
        let edited = values(&file, "wo");
        assert_eq!(edited.read().unwrap(), None);
        edited.keep(&param).unwrap();
        assert_eq!(edited.read().unwrap().unwrap().mode, None);
        assert_eq!(before.read().unwrap(), None);
    }
}
