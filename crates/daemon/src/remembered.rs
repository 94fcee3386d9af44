//! The daemon's memory of one volume: the values and the cache that commands gave it, and what counts of them.

use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::definition::{VolumeConfig, Word};
use loligo_volume::last_cache::LastCache;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The daemon's memory of one volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    /// It was made by command and is not in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<VolumeConfig>,
    /// Started (or stopped) by command, whatever `autostart` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<bool>,
    /// A cache that came or went by command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanged: Option<Exchanged>,
    /// The mode it was switched to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Override>,
    /// Tunables that were set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Override>,
    /// Its cache when it was last served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<LastCache>,
    /// The array has given its devices to another controller, in these words: only a command starts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// A value set by command. It counts as long as the definition says what it said then: who edits the file later means it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The value.
    pub value: String,
    /// The value in the definition then.
    pub instead_of: Option<String>,
}

/// The value of something that has one in the definition and may have been set by command.
pub fn effective<'a>(defined: Option<&'a str>, set: Option<&'a Override>) -> Option<&'a str> {
    match set {
        Some(o) if o.instead_of.as_deref() == defined => Some(&o.value),
        _ => defined,
    }
}

/// A cache that came or went by command. It counts as long as the definition says of the cache what it said then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanged {
    /// The configuration that counts.
    pub now: CacheConfig,
    /// The configuration in the definition then.
    pub instead_of: CacheConfig,
}

impl Exchanged {
    /// The definition with what counts.
    pub(crate) fn effective(of: Option<&Exchanged>, config: &VolumeConfig) -> VolumeConfig {
        match of {
            Some(e) if e.instead_of == CacheConfig::of(config) => e.now.put(config),
            _ => config.clone(),
        }
    }
}

impl Remembered {
    /// It is served bare. One that failed is remembered, since it is not waited for where it is not there.
    pub(super) fn forget_cache(&mut self) {
        self.cache = self.cache.take().filter(|c| c.void);
    }

    /// From now on the cache of the volume that is defined as `config` is `now`; what was set of the former one is void.
    pub(super) fn exchange(&mut self, config: &VolumeConfig, now: CacheConfig) {
        let instead_of = CacheConfig::of(config);
        self.exchanged = (now != instead_of).then_some(Exchanged { now, instead_of });
        self.mode = None;
        self.params.clear();
    }
}

/// A definition with what was set by command.
pub(super) fn with_overrides(config: &VolumeConfig, remembered: &Remembered) -> VolumeConfig {
    let mut config = Exchanged::effective(remembered.exchanged.as_ref(), config);
    if config.cache.is_none() {
        return config;
    }
    config.mode = effective(config.mode.as_deref(), remembered.mode.as_ref()).map(str::to_owned);
    for (key, set) in &remembered.params {
        let defined = config.params.get(key).map(|w| w.0.clone());
        if let Some(value) = effective(defined.as_deref(), Some(set)) {
            config.params.insert(key.clone(), Word(value.to_owned()));
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_set_by_command_holds_until_the_definition_is_edited() {
        let set = Override { value: "wt".to_owned(), instead_of: Some("wb".to_owned()) };
        assert_eq!(effective(Some("wb"), Some(&set)), Some("wt"));
        assert_eq!(effective(Some("wa"), Some(&set)), Some("wa"));
        assert_eq!(effective(Some("wb"), None), Some("wb"));
        let new = Override { value: "2".to_owned(), instead_of: None };
        assert_eq!(effective(None, Some(&new)), Some("2"));
    }
}
