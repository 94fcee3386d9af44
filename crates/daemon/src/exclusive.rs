//! Things that no two volumes can have: cores, caches and listeners, by how they are written and by the devices behind that.

use crate::device_ids::DeviceIds;
use anyhow::{Result, anyhow, bail, ensure};
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_client::names;
use loligo_export::{ExportSpec, ListenAddr};
use loligo_volume::core::CoreSpec;
use loligo_volume::definition::export_spec;
use loligo_volume::identity::DeviceId;
use loligo_volume::options::ServeOptions;
use loligo_volume::pool::{CoreName, PoolSpec};
use std::collections::BTreeMap;

/// Things that no two volumes can have.
#[derive(Debug, Default)]
pub(crate) struct Exclusive {
    /// By how they are written, who has it.
    things: BTreeMap<String, String>,
    /// The same of devices: which, what share of it if it is a pool's, and who.
    devices: Vec<(DeviceId, Option<CoreName>, String)>,
}

/// Names the things of `volume` that no other can have, as they are written, and checks that nothing is wrong with it by itself.
///
/// # Errors
/// An error says what is wrong with it.
pub(super) fn things(name: &str, volume: &VolumeConfig) -> Result<Vec<String>> {
    names::check_name(name)?;
    ServeOptions::of(volume, name, Leave::default())?;
    ensure!(
        volume.after_start.first().is_none_or(|c| c.starts_with('/')),
        "after-start: give the command's whole path, and its arguments as further words"
    );
    Ok(readable_things(volume))
}

/// The same as far as it can be read, whatever else is wrong with it.
pub(super) fn readable_things(volume: &VolumeConfig) -> Vec<String> {
    let core = volume.core.parse::<CoreSpec>().ok();
    let mut things: Vec<String> = core.iter().map(|core| format!("core {core}")).collect();
    things.extend(volume.cache.as_ref().map(|c| format!("cache {}", c.display())));
    let any_port = |spec: &ExportSpec| matches!(spec, ExportSpec::Socket(s) if matches!(s.addr, ListenAddr::Tcp(a) if a.port() == 0));
    let specs = volume.listen.iter().filter_map(|text| export_spec(text).ok()).filter(|spec| !any_port(spec));
    things.extend(specs.map(|spec| format!("listen {}", spec.place())));
    things
}

impl Exclusive {
    /// Checks `volume`, by itself and beside those before it.
    pub(super) fn add(&mut self, name: &str, volume: &VolumeConfig) -> Result<()> {
        for thing in things(name, volume)? {
            if let Some(other) = self.things.get(&thing) {
                bail!("{thing} is volume '{other}' already: no two can share it");
            }
            self.things.insert(thing, name.to_owned());
        }
        Ok(())
    }

    /// Both checks.
    pub(super) fn add_whole(&mut self, name: &str, volume: &VolumeConfig, looked: &DeviceIds) -> Result<()> {
        self.add(name, volume)?;
        self.add_devices(name, volume, looked)
    }

    /// Checks the devices of `volume` as they were `looked` at, by whatever names; those that were not there are anybody's.
    pub(super) fn add_devices(
        &mut self,
        name: &str,
        volume: &VolumeConfig,
        looked: &DeviceIds,
    ) -> Result<()> {
        let core: CoreSpec = volume.core.parse().map_err(|e| anyhow!("core = \"{}\": {e}", volume.core))?;
        let pool = volume.cache.as_deref().map(PoolSpec::of).transpose()?.flatten();
        let cache = pool.as_ref().map(|pool| pool.path.as_path()).or(volume.cache.as_deref());
        let share = pool.as_ref().map(|pool| pool.core.clone());
        for (path, share) in [(core.path(), None), (cache, share), (volume.journal_mirror.as_deref(), None)] {
            let Some((path, id)) = path.and_then(|path| Some((path, looked.id(path)?))) else { continue };
            let same = |(other, part, _): &&(DeviceId, Option<CoreName>, String)| {
                *other == id && (part.is_none() || share.is_none() || *part == share)
            };
            if let Some((_, _, other)) = self.devices.iter().find(same) {
                let path = path.display();
                if other == name {
                    match volume.journal_mirror {
                        None => bail!("core and cache are the same device, {path}: give two"),
                        Some(_) => bail!(
                            "core, cache and journal-mirror are to be different devices, and {path} is two of them"
                        ),
                    }
                }
                bail!("the device {path} is volume '{other}' already, by whatever name: no two can share it");
            }
            self.devices.push((id, share, name.to_owned()));
        }
        Ok(())
    }
}

/// Names what `volume` cannot have because `other` has it, each with its devices as they were looked at; nothing if both can be
/// served at once.
pub(super) fn shared(
    volume: (&str, &VolumeConfig, &DeviceIds),
    other: (&str, &VolumeConfig, &DeviceIds),
) -> Option<String> {
    let mut taken = Exclusive::default();
    // What is wrong with either by itself is no matter here. Names say most.
    let _ = taken.add(other.0, other.1);
    things(volume.0, volume.1).ok()?;
    if let Err(why) = taken.add(volume.0, volume.1) {
        return Some(why.to_string());
    }
    Exclusive::default().add_devices(volume.0, volume.1, volume.2).ok()?;
    let _ = taken.add_devices(other.0, other.1, other.2);
    taken.add_devices(volume.0, volume.1, volume.2).err().map(|why| why.to_string())
}
