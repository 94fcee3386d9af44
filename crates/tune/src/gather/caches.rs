//! Caches of a host: those of Loligo by their own word, those of the kernel by its files and by the programs that go with them.

use super::cache_words::{mode_of, percent};
use super::casadm;
use super::dm_cache;
use super::lists::chosen;
use super::stack::{Layer, Stack, plain};
use super::volumes::Volume;
use crate::facts::{Behind, Cache, Disk};
use loligo_block::host_files::HostFiles;
use loligo_block::mounts::Mount;
use std::collections::BTreeMap;
use std::path::Path;

/// A cache, with the layer that it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// The layer.
    pub(super) layer: Layer,
    /// What is known of it.
    pub(super) cache: Cache,
}

/// All caches of the host `name`.
pub(super) fn look(stack: &Stack<'_>, mounts: &[Mount], disks: &[Disk], name: &str) -> Vec<Found> {
    let mut all = Vec::new();
    for (at, volume) in stack.volumes.iter().enumerate().filter(|(_, volume)| volume.cache.is_some()) {
        all.push(Found { layer: Layer::Volume(at), cache: of_volume(volume) });
    }
    let by_program = casadm::look(stack.files);
    for device in stack.files.names("/sys/block") {
        let cache = if device.starts_with("bcache") {
            bcache(stack.files, &device)
        } else if device.starts_with("cas") {
            Some(by_program.get(&device).cloned().unwrap_or_else(|| Cache {
                kind: "opencas".to_owned(),
                name: device.clone(),
                ..Cache::default()
            }))
        } else {
            dm_cache::look(stack.files, &device)
        };
        all.extend(cache.map(|cache| Found { layer: Layer::Device(device), cache }));
    }
    for found in &mut all {
        name.clone_into(&mut found.cache.host);
        found.cache.on_osd = Some(false);
        found.cache.mirrored = found.cache.mirrored.or_else(|| is_mirrored(stack, &found.cache, mounts));
    }
    share(stack, mounts, disks, &mut all);
    all
}

/// The cache of an OSD whose data lie at `path`; nothing where the layers below that cannot be seen.
pub(super) fn behind(stack: &Stack<'_>, path: &Path, mounts: &[Mount], all: &mut [Found]) -> Option<Behind> {
    let layers = stack.below(path, mounts);
    for layer in &layers {
        if let Some(found) = all.iter_mut().find(|found| found.layer == *layer) {
            found.cache.on_osd = Some(true);
            let cache = found.cache.clone();
            return Some(Behind {
                kind: cache.kind,
                name: Some(cache.name),
                bytes: cache.bytes,
                mode: cache.mode,
            });
        }
        if let Layer::Silent(name) = layer {
            // A volume may be bare; one that says nothing is not taken for that.
            return Some(Behind { kind: "loligo".to_owned(), name: Some(name.clone()), ..Behind::default() });
        }
    }
    (!layers.is_empty()).then(Behind::default)
}

fn of_volume(volume: &Volume) -> Cache {
    let number = |key: &str| volume.stats[key].as_i64();
    let (bytes, dirty) = (number("cache_bytes"), number("dirty_bytes"));
    let text = |key: &str| volume.param(key).map(str::to_owned);
    Cache {
        kind: "loligo".to_owned(),
        name: volume.name.clone(),
        core: Some(volume.core.clone()),
        device: volume.cache.clone(),
        mode: volume.stats["mode"].as_str().map(str::to_owned),
        line_size: volume.line_size,
        bytes,
        dirty_percent: bytes.zip(dirty).and_then(|(bytes, dirty)| percent(dirty as f64, bytes as f64)),
        hit_percent: number("read_hits")
            .zip(number("read_misses"))
            .and_then(|(hits, misses)| percent(hits as f64, (hits + misses) as f64)),
        seq_cutoff_policy: text("seq-cutoff"),
        seq_cutoff_kib: volume
            .param("seq-threshold")
            .and_then(|it| it.parse::<i64>().ok())
            .map(|it| it >> 10),
        promotion: text("admission"),
        mirrored: Some(volume.stats["mirror"].is_object()),
        ..Cache::default()
    }
}

/// A cache of the kernel's bcache. A backing device that no cache is attached to is none.
fn bcache(files: &HostFiles, device: &str) -> Option<Cache> {
    let at = format!("/sys/block/{device}/bcache");
    let set = format!("{at}/cache");
    let text = |path: String| files.read(path);
    let mode = text(format!("{at}/cache_mode")).and_then(|it| chosen(&it))?;
    files.has(&set).then_some(())?;
    let core = files.names(format!("/sys/block/{device}/slaves")).into_iter().next();
    let fast = files.names(&set).into_iter().find(|name| {
        name.strip_prefix("cache")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_digit()))
    });
    // The link leads to the folder `bcache` of the device: `../../../devices/.../nvme0n1/bcache`.
    let fast_device = fast.as_ref().and_then(|fast| {
        let to = files.link(format!("{set}/{fast}"))?;
        Some(format!("/dev/{}", to.parent()?.file_name()?.to_string_lossy()))
    });
    let buckets = fast.as_ref().and_then(|fast| files.number(format!("{set}/{fast}/nbuckets")));
    let bucket = text(format!("{set}/bucket_size")).and_then(|it| bytes(&it));
    let size = buckets.zip(bucket).map(|(count, bytes)| count as i64 * bytes as i64);
    let dirty = text(format!("{at}/dirty_data")).and_then(|it| bytes(&it));
    Some(Cache {
        kind: "bcache".to_owned(),
        name: device.to_owned(),
        core: core.map(|name| format!("/dev/{name}")),
        device: fast_device,
        mode: Some(mode_of(&mode).to_owned()),
        bytes: size,
        dirty_percent: dirty.zip(size).and_then(|(dirty, size)| percent(dirty, size as f64)),
        hit_percent: text(format!("{at}/stats_total/cache_hit_ratio")).and_then(|it| it.parse().ok()),
        seq_cutoff_kib: text(format!("{at}/sequential_cutoff"))
            .and_then(|it| bytes(&it))
            .map(|it| it as i64 >> 10),
        ..Cache::default()
    })
}

/// A number with a unit as bcache writes it: `4.0M`, `512k`, `0`.
fn bytes(text: &str) -> Option<f64> {
    let units = [('k', 10), ('M', 20), ('G', 30), ('T', 40)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(*unit));
    let number = unit.map_or(text, |(unit, _)| text.trim_end_matches(*unit));
    Some(number.parse::<f64>().ok()? * f64::from(unit.map_or(0, |(_, power)| *power)).exp2())
}

/// The fast device lies on a mirror of the kernel.
fn is_mirrored(stack: &Stack<'_>, cache: &Cache, mounts: &[Mount]) -> Option<bool> {
    let layers = stack.below(plain(cache.device.as_deref()?)?, mounts);
    let is_mirror = |layer: &Layer| match layer {
        Layer::Device(name) => stack
            .files
            .read(format!("/sys/block/{name}/md/level"))
            .is_some_and(|level| ["raid1", "raid10"].contains(&level.as_str())),
        _ => false,
    };
    (!layers.is_empty()).then(|| layers.iter().any(is_mirror))
}

/// Counts caches whose fast devices lie on the same disk, and enters what is known of that.
fn share(stack: &Stack<'_>, mounts: &[Mount], disks: &[Disk], all: &mut [Found]) {
    let disk = |found: &Found| {
        let device = found.cache.device.as_deref()?;
        Some(plain(device).and_then(|path| stack.disk(path, mounts)).unwrap_or_else(|| device.to_owned()))
    };
    let under: Vec<Option<String>> = all.iter().map(disk).collect();
    let mut counts: BTreeMap<&String, i64> = BTreeMap::new();
    for disk in under.iter().flatten() {
        *counts.entry(disk).or_default() += 1;
    }
    for (found, disk) in all.iter_mut().zip(&under) {
        let Some(disk) = disk else { continue };
        found.cache.shared_by = counts.get(disk).copied();
        let known = disks.iter().find(|it| it.name == *disk);
        found.cache.plp = Some(known.and_then(|it| it.plp.clone()).unwrap_or_else(|| "unknown".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::put;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_cache_of_a_volume_is_as_it_says() {
        let info = json!({"name": "osd3", "core": "/dev/sdb", "cache": "/dev/nvme0n1p4", "line_size": 4096});
        let stats =
            json!({"mode": "wb", "cache_bytes": 1000, "dirty_bytes": 250, "read_hits": 3, "read_misses": 1});
        let params = vec![
            ("seq-threshold".to_owned(), "16384".to_owned()),
            ("seq-cutoff".to_owned(), "always".to_owned()),
        ];
        let cache = of_volume(&Volume::new(&info, stats, params).expect("a volume"));
        assert_eq!(
            (cache.mode.as_deref(), cache.dirty_percent, cache.hit_percent),
            (Some("wb"), Some(25.0), Some(75.0))
        );
        assert_eq!((cache.seq_cutoff_kib, cache.mirrored), (Some(16), Some(false)));
    }

    #[test]
    fn an_osd_on_bcache_has_a_cache_and_one_beside_it_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        put("sys/block/bcache0/bcache/cache_mode", "writethrough [writeback] writearound none\n");
        put("sys/block/bcache0/bcache/dirty_data", "256.0M\n");
        put("sys/block/bcache0/bcache/sequential_cutoff", "4.0M\n");
        put("sys/block/bcache0/bcache/stats_total/cache_hit_ratio", "83\n");
        put("sys/block/bcache0/bcache/cache/bucket_size", "512.0k\n");
        put("sys/devices/nvme0n1/bcache/nbuckets", "2048\n");
        put("sys/block/bcache0/slaves/sdb", "");
        put("sys/block/sdb/size", "8\n");
        put("sys/block/sdc/size", "8\n");
        symlink(
            "../../../../devices/nvme0n1/bcache",
            dir.path().join("sys/block/bcache0/bcache/cache/cache0"),
        )
        .expect("a link");
        let files = HostFiles::new(dir.path());
        let stack = Stack { files: &files, volumes: &[] };
        let plp = Some("yes".to_owned());
        let disks = [Disk { name: "nvme0n1".into(), plp: plp.clone(), ..Disk::default() }];
        put("sys/block/nvme0n1/size", "8\n");
        let mut all = look(&stack, &[], &disks, "n1");
        let want = Cache {
            kind: "bcache".into(),
            name: "bcache0".into(),
            host: "n1".into(),
            core: Some("/dev/sdb".into()),
            device: Some("/dev/nvme0n1".into()),
            mode: Some("wb".into()),
            bytes: Some(1 << 30),
            dirty_percent: Some(25.0),
            hit_percent: Some(83.0),
            seq_cutoff_kib: Some(4096),
            on_osd: Some(false),
            mirrored: Some(false),
            plp,
            shared_by: Some(1),
            ..Cache::default()
        };
        assert_eq!(all.iter().map(|it| it.cache.clone()).collect::<Vec<_>>(), [want]);
        let mut of = |path: &str| behind(&stack, Path::new(path), &[], &mut all);
        let cached = of("/dev/bcache0").expect("seen");
        assert_eq!((cached.kind.as_str(), cached.mode.as_deref()), ("bcache", Some("wb")));
        assert_eq!(of("/dev/sdc"), Some(Behind::default()));
        assert_eq!(of("/dev/none"), None);
        assert_eq!(all[0].cache.on_osd, Some(true));
    }
}
