//! Caches of the device mapper, which LVM makes: `dm-cache` and `dm-writecache`.

use super::cache_words::{mode_of, percent};
use crate::facts::Cache;
use loligo_block::host_files::HostFiles;
use std::process::{Command, Stdio};

/// Bytes of a sector.
const SECTOR: i64 = 512;

/// The cache that the device `name` of `/sys/block` is; nothing where it is none.
///
/// The names of its parts tell it, as LVM gives them. Its numbers are in its status, which only the host itself has.
pub(super) fn look(files: &HostFiles, name: &str) -> Option<Cache> {
    let mapping = files.read(format!("/sys/block/{name}/dm/name"))?;
    let parts: Vec<(String, String)> = files
        .names(format!("/sys/block/{name}/slaves"))
        .into_iter()
        .filter_map(|slave| Some((files.read(format!("/sys/block/{slave}/dm/name"))?, slave)))
        .collect();
    let part = |ends: &[&str]| {
        let mut those = parts.iter().filter(|(name, _)| ends.iter().any(|end| name.ends_with(end)));
        those.next().map(|(_, device)| format!("/dev/{device}"))
    };
    let (kind, core) = match (part(&["_corig"]), part(&["_wcorig"])) {
        (Some(core), _) => ("dm-cache", core),
        (_, Some(core)) => ("dm-writecache", core),
        _ => return None,
    };
    let cache = Cache {
        kind: kind.to_owned(),
        name: mapping.clone(),
        core: Some(core),
        device: part(&["_cdata", "_cvol"]),
        ..Cache::default()
    };
    let ask = |what: &str| if files.are_live() { dmsetup(what, &mapping) } else { None };
    Some(match kind {
        "dm-cache" => ask("status").and_then(|said| cached(cache.clone(), &said)).unwrap_or(cache),
        _ => {
            let cache = Cache { mode: Some("wo".to_owned()), ..cache };
            let block = ask("table").and_then(|said| said.split_whitespace().nth(6)?.parse().ok());
            ask("status")
                .zip(block)
                .and_then(|(said, block)| written(cache.clone(), &said, block))
                .unwrap_or(cache)
        }
    })
}

/// The answer of `dmsetup WHAT NAME`; nothing where it cannot be run, or may not ask.
fn dmsetup(what: &str, name: &str) -> Option<String> {
    let out = Command::new("dmsetup").args([what, name]).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Enters the status of a `cache` target, as the kernel's documentation of it has the words.
fn cached(cache: Cache, status: &str) -> Option<Cache> {
    let mut words = status.split_whitespace().skip_while(|word| *word != "cache").skip(1);
    let _metadata_block = words.next()?;
    let _metadata_used = words.next()?;
    let block: i64 = words.next()?.parse().ok()?;
    let (_, blocks) = words.next()?.split_once('/')?;
    let blocks: i64 = blocks.parse().ok()?;
    let mut number = || words.next()?.parse::<i64>().ok();
    let (hits, misses) = (number()?, number()?);
    let (_write_hits, _write_misses, _demotions, _promotions) = (number()?, number()?, number()?, number()?);
    let dirty = number()?;
    let features = number()?;
    let features: Vec<&str> = words.take(usize::try_from(features).ok()?).collect();
    let mode = ["writeback", "writethrough", "passthrough"].into_iter().find(|mode| features.contains(mode));
    Some(Cache {
        mode: mode.map(|mode| mode_of(mode).to_owned()),
        line_size: Some(block * SECTOR),
        bytes: Some(block * SECTOR * blocks),
        dirty_percent: percent(dirty as f64, blocks as f64),
        hit_percent: percent(hits as f64, (hits + misses) as f64),
        ..cache
    })
}

/// Enters the status of a `writecache` target with blocks of `block` bytes. All that is not free waits to be written back.
fn written(cache: Cache, status: &str, block: i64) -> Option<Cache> {
    let mut words = status.split_whitespace().skip_while(|word| *word != "writecache").skip(2);
    let mut number = || words.next()?.parse::<i64>().ok();
    let (blocks, free) = (number()?, number()?);
    Some(Cache {
        line_size: Some(block),
        bytes: Some(blocks * block),
        dirty_percent: percent((blocks - free) as f64, blocks as f64),
        ..cache
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::put;

    #[test]
    fn the_status_of_a_cache_is_read() {
        let said = "0 20971520 cache 8 27/2048 128 1024/8192 30 10 5 6 0 1024 2048 2 metadata2 writeback 2 migration_threshold 2048 smq 0 rw -";
        let cache = cached(Cache::default(), said).expect("a status");
        assert_eq!(
            (cache.mode.as_deref(), cache.line_size, cache.bytes),
            (Some("wb"), Some(65536), Some(8192 * 65536))
        );
        assert_eq!((cache.dirty_percent, cache.hit_percent), (Some(25.0), Some(75.0)));
        let said = "0 20971520 writecache 0 1000 250 3";
        let cache = written(Cache::default(), said, 4096).expect("a status");
        assert_eq!((cache.bytes, cache.dirty_percent), (Some(4_096_000), Some(75.0)));
        assert_eq!(cached(Cache::default(), "0 20971520 linear"), None);
    }

    #[test]
    fn parts_of_a_mapping_tell_a_cache_of_lvm() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        for (device, name) in [
            ("dm-0", "vg-lv_corig"),
            ("dm-1", "vg-fast_cpool_cdata"),
            ("dm-2", "vg-lv"),
            ("dm-4", "vg-w_wcorig"),
            ("dm-5", "vg-w"),
        ] {
            put(&format!("sys/block/{device}/dm/name"), name);
        }
        for link in ["dm-2/slaves/dm-0", "dm-2/slaves/dm-1", "dm-5/slaves/dm-4"] {
            put(&format!("sys/block/{link}"), "");
        }
        let files = HostFiles::new(dir.path());
        let cache = look(&files, "dm-2").expect("a cache");
        assert_eq!(
            (cache.kind.as_str(), cache.core.as_deref(), cache.device.as_deref()),
            ("dm-cache", Some("/dev/dm-0"), Some("/dev/dm-1"))
        );
        assert_eq!(
            look(&files, "dm-5").map(|it| (it.kind, it.mode)),
            Some(("dm-writecache".into(), Some("wo".into())))
        );
        assert_eq!(look(&files, "dm-0"), None);
    }
}
