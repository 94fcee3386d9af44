//! A pool whose device is not there, told of with what it held.

use crate::remembered::Remembered;
use crate::state::State;
use anyhow::Result;
use loligo_client::outcome::Absent;
use loligo_volume::options::ServeOptions;
use loligo_volume::pool::{self, PoolSpec};
use std::io::ErrorKind;
use std::path::Path;

/// Refuses to start on a pool whose device is not there, with what is remembered of it: who reads that may be about to make another one.
pub(super) fn refuse(options: &ServeOptions, state: &State) -> Result<()> {
    let cache = options.cache.as_ref().map(|cache| PoolSpec::of(&cache.path)).transpose()?.flatten();
    let Some(PoolSpec { path, .. }) = cache else { return Ok(()) };
    match std::fs::metadata(&path) {
        Err(why) if why.kind() == ErrorKind::NotFound => {
            Err(Absent(pool::missing(&path, &held_by(&path, state), "no such file or device").into()).into())
        }
        // Whatever else is wrong with it, the start finds.
        _ => Ok(()),
    }
}

/// The contents of the pool at `path` when its cores were last served, in words.
fn held_by(path: &Path, state: &State) -> String {
    let of = |name: &String, remembered: &Remembered| {
        let last = remembered.cache.as_ref().filter(|last| !last.void)?;
        let spec = PoolSpec::of(&last.path).ok()?.filter(|spec| spec.path == path)?;
        let lost = last.lost().unwrap_or_else(|| format!("nothing that core {} does not have", last.core));
        Some(format!("of volume '{name}' (core {} of the pool): {lost}", spec.core))
    };
    let held: Vec<String> = state.volumes.iter().filter_map(|(name, r)| of(name, r)).collect();
    match held.is_empty() {
        true => "nothing is remembered of what it held".to_owned(),
        false => format!("it held, as far as is remembered, the caches {}", held.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_client::api::definition::Leave;
    use loligo_client::api::definition::VolumeConfig;
    use loligo_volume::last_cache::LastCache;

    #[test]
    fn a_missing_pool_is_refused_with_what_it_held() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        let share = |core: &str| format!("pool:{}#{core}", path.display());
        let remembered = |core: &str, dirty_bytes, void| {
            let cache = LastCache {
                core_names: Vec::new(),
                path: share(core).into(),
                uuid: core.into(),
                core: format!("/dev/{core}"),
                dirty_bytes,
                void,
                attaching: false,
            };
            Remembered { cache: Some(cache), ..Remembered::default() }
        };
        let text =
            format!("core = \"/dev/a\"\ncache = \"{}\"\nmode = \"wb\"\nlisten = [\"block:a\"]", share("a"));
        let config: VolumeConfig = toml::from_str(&text).unwrap();
        let options = ServeOptions::of(&config, "a", Leave::default()).unwrap();
        let mut state = State::default();
        let why = |state: &State| {
            let why = refuse(&options, state).unwrap_err();
            assert!(why.is::<Absent>(), "it is waited for: {why}");
            why.to_string()
        };
        assert!(why(&state).contains("nothing is remembered of what it held"), "{}", why(&state));
        state.volumes.insert("a".into(), remembered("a", Some(4096), false));
        state.volumes.insert("b".into(), remembered("b", None, false));
        state.volumes.insert("c".into(), remembered("c", Some(0), false));
        state.volumes.insert("d".into(), remembered("d", None, true));
        let why = why(&state);
        for said in [
            "volume 'a' (core a of the pool): 4096 bytes that core /dev/a does not have",
            "volume 'b' (core b of the pool): whatever core /dev/b did not have",
            "volume 'c' (core c of the pool): nothing that core /dev/c",
            "made anew in its place ('loligo cache create') has none of the caches",
        ] {
            assert!(why.contains(said), "{why}");
        }
        assert!(!why.contains("'d'"), "what is void is no loss: {why}");
        std::fs::write(&path, "").unwrap();
        refuse(&options, &state).unwrap();
    }
}
