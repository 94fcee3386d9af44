//! The daemon's file.

use super::{Check, Finding};
use loligo_block::host_files::HostFiles;
use loligo_daemon::config::{Config, DEFAULT_PATH};
use std::path::Path;

/// Reads it; where it is not right, or nobody made one, other checks see an empty one.
pub(super) fn check(host: &HostFiles, path: Option<&Path>) -> (Config, Vec<Finding>) {
    let check = Check::new("config", "a volume is not served if its section is wrong");
    let (path, asked) = (path.unwrap_or(Path::new(DEFAULT_PATH)), path.is_some());
    if !asked && !host.has(path) {
        let seen = format!("no {}: only the things that all volumes need were checked", path.display());
        return (Config::default(), vec![check.ok(seen)]);
    }
    // A path that was given is one of whoever asks.
    let place = if asked { path.to_owned() } else { host.at(path) };
    match Config::load(&place) {
        Ok(config) => {
            let seen = format!("{}: right, {} volume(s)", path.display(), config.volumes.len());
            (config, vec![check.ok(seen)])
        }
        Err(why) => {
            let mend = format!("mend it, and try 'loligo config check --config {}'", path.display());
            (Config::default(), vec![check.bad(format!("{why:#}"), mend)])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    #[test]
    fn a_wrong_file_is_bad_and_says_where_and_none_is_no_matter() {
        let fake = Fake::new(&[]);
        assert_eq!(check(&fake.host(), None).1[0].verdict, Verdict::Ok);
        assert_eq!(check(&fake.host(), Some(Path::new("/nowhere.toml"))).1[0].verdict, Verdict::Bad);
        fake.write(DEFAULT_PATH, "[volume.a]\ncore = \"/x\"\nlisten = [\"udp:1\"]\n");
        let (config, found) = check(&fake.host(), None);
        assert!(config.volumes.is_empty() && found[0].seen.contains("volume.a"), "{found:?}");
        fake.write(DEFAULT_PATH, "[volume.a]\ncore = \"/x\"\nlisten = [\"unix:/y\"]\n");
        assert_eq!(check(&fake.host(), None).0.volumes.len(), 1);
    }
}
