//! Named sets of tunables, for what caches are often put in front of.

use anyhow::{Result, bail};
use loligo_format::mode::Mode;

/// A named set of tunables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// The mode, where none is given.
    pub mode: Mode,
    /// Tunables; one that is given beside counts.
    pub params: &'static [(&'static str, &'static str)],
    /// Its purpose.
    pub what: &'static str,
}

/// All of them.
pub const PROFILES: [Profile; 1] = [Profile {
    name: "osd-hdd",
    mode: Mode::Wb,
    // As measured on OSDs over modelled disks: docs/decisions/0024.
    params: &[
        ("seq-cutoff", "always"),
        ("seq-threshold", "16m"),
        ("promote-run", "128k"),
        ("destage-low", "10"),
    ],
    what: "a Ceph OSD whose data, database and log lie on one spinning disk",
}];

/// The profile `name`.
///
/// # Errors
/// With the names that there are.
pub fn find(name: &str) -> Result<&'static Profile> {
    match PROFILES.iter().find(|p| p.name == name) {
        Some(profile) => Ok(profile),
        None => {
            let names: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
            bail!("there is no profile '{name}': use {}", names.join(" or "))
        }
    }
}

impl Profile {
    /// Its tunables, and behind them those given, which count where both have one.
    pub fn with(&self, given: &[(String, String)]) -> Vec<(String, String)> {
        let own = self.params.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        own.filter(|(k, _)| given.iter().all(|(g, _)| g != k)).chain(given.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_engine::params::Params;

    #[test]
    fn profiles_set_known_tunables_and_values_given_beside_win() {
        for profile in PROFILES {
            let mut params = Params::default();
            for (key, value) in profile.params {
                params.set(key, value).unwrap();
            }
            let (key, _) = profile.params[0];
            let given = [(key.to_owned(), "x".to_owned()), ("new".to_owned(), "y".to_owned())];
            let all = profile.with(&given);
            assert_eq!(all.iter().filter(|(k, _)| k == key).count(), 1);
            assert!(all.contains(&given[0]) && all.contains(&given[1]));
        }
        assert!(find("osd-hd").unwrap_err().to_string().contains("osd-hdd"));
    }
}
