//! Devices that definitions lead to, looked at before they are compared.
//!
//! A look asks the file systems that paths lie on, and one that is dead never answers. Who looks holds nothing that
//! others wait for; who compares asks no file system.

use loligo_client::api::definition::VolumeConfig;
use loligo_volume::core::CoreSpec;
use loligo_volume::identity::{DeviceId, device_id};
use loligo_volume::options::ServeOptions;
use loligo_volume::pool::PoolSpec;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Devices found at paths: which device, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceIds(BTreeMap<PathBuf, Option<DeviceId>>);

impl DeviceIds {
    /// Looks at the devices of `volumes`.
    pub(super) fn at<'a>(volumes: impl IntoIterator<Item = &'a VolumeConfig>) -> DeviceIds {
        let mut looked = DeviceIds::default();
        looked.look(volumes.into_iter().flat_map(paths));
        looked
    }

    /// Looks at the devices of `options`.
    pub(super) fn at_those_of(options: &ServeOptions) -> DeviceIds {
        let mut looked = DeviceIds::default();
        let cache = options.cache.as_ref();
        let mirror = cache.and_then(|cache| cache.mirror.as_ref()).map(|mirror| mirror.path.clone());
        looked.look(places(&options.core, cache.map(|cache| cache.path.as_path())).into_iter().chain(mirror));
        looked
    }

    /// Looks at what is at `paths` now.
    pub(super) fn look(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            let found = device_id(&path);
            self.0.insert(path, found);
        }
    }

    /// The device that was found at `path`.
    pub(super) fn id(&self, path: &Path) -> Option<DeviceId> {
        self.0.get(path).copied().flatten()
    }

    /// The paths of `volumes` that nobody has looked at.
    pub(super) fn lacks(&self, volumes: &[VolumeConfig]) -> Vec<PathBuf> {
        volumes.iter().flat_map(paths).filter(|path| !self.0.contains_key(path)).collect()
    }
}

/// The paths of the devices of `volume`.
fn paths(volume: &VolumeConfig) -> Vec<PathBuf> {
    // One that cannot be read is refused for that.
    let mirror = volume.journal_mirror.clone();
    let places = volume.core.parse().map(|core| places(&core, volume.cache.as_deref()));
    places.unwrap_or_default().into_iter().chain(mirror).collect()
}

/// The same of its core and cache.
fn places(core: &CoreSpec, cache: Option<&Path>) -> Vec<PathBuf> {
    let cache = cache.map(|cache| match PoolSpec::of(cache) {
        Ok(Some(pool)) => pool.path,
        _ => cache.to_owned(),
    });
    core.path().map(Path::to_owned).into_iter().chain(cache).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_what_it_was_when_it_was_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("disk"), "").unwrap();
        let volume = |core: &str, cache: &str| -> VolumeConfig {
            let dir = dir.path().display();
            let text = format!("core = \"hdd:{dir}/{core}\"\ncache = \"pool:{dir}/{cache}#3\"\nlisten = []");
            toml::from_str(&text).unwrap()
        };
        let (mine, other) = (volume("disk", "gone"), volume("disk", "new"));
        let mut looked = DeviceIds::at([&mine]);
        let id = looked.id(&at("disk"));
        assert!(id.is_some() && looked.id(&at("gone")).is_none());
        assert!(looked.lacks(&[mine]).is_empty(), "that nothing is there is known");
        std::fs::remove_file(at("disk")).unwrap();
        let lacks = looked.lacks(&[other]);
        assert_eq!(lacks, [at("new")]);
        looked.look(lacks);
        assert_eq!(looked.id(&at("disk")), id);
    }
}
