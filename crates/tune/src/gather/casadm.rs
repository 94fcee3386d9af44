//! Caches of Open CAS, by its program `casadm`.

use super::cache_words::percent;
use crate::facts::Cache;
use loligo_block::host_files::HostFiles;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// Caches by the devices that they export: `cas1-1`. None where there is no Open CAS.
pub(super) fn look(files: &HostFiles) -> BTreeMap<String, Cache> {
    let has_devices = files.names("/sys/block").iter().any(|name| name.starts_with("cas"));
    if !files.are_live() || !has_devices {
        return BTreeMap::new();
    }
    let Some(list) = casadm(&["-L", "-o", "csv"]) else { return BTreeMap::new() };
    let mut all = caches(&list);
    for cache in all.values_mut() {
        let (id, core) = cache.name.split_once('-').unwrap_or((&cache.name, "1"));
        let (id, core) = (id.to_owned(), core.to_owned());
        if let Some(said) = casadm(&["-P", "-i", &id, "-o", "csv"]) {
            enter(cache, &said);
        }
        let cutoff = casadm(&["-G", "-n", "seq-cutoff", "-i", &id, "-j", &core, "-o", "csv"]);
        if let Some(said) = cutoff {
            streams(cache, &said);
        }
        let classes = casadm(&["-C", "-L", "-i", &id, "-o", "csv"]);
        cache.io_classes = classes.map(|said| said.lines().skip(1).map(str::to_owned).collect());
    }
    all
}

fn casadm(args: &[&str]) -> Option<String> {
    let out = Command::new("casadm").args(args).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Reads the list: `type,id,disk,status,write policy,device`. A core stands below its cache.
fn caches(list: &str) -> BTreeMap<String, Cache> {
    let (mut all, mut above) = (BTreeMap::new(), None);
    for line in list.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [kind, id, disk, _, mode, device] = cells[..] else { continue };
        if kind == "cache" {
            above = Some((id.to_owned(), disk.to_owned(), mode.to_owned()));
        }
        let (Some((cache, fast, mode)), true) = (&above, kind.ends_with("core")) else { continue };
        let Some(name) = device.strip_prefix("/dev/") else { continue };
        let found = Cache {
            kind: "opencas".to_owned(),
            name: format!("{cache}-{id}"),
            core: Some(disk.to_owned()),
            device: Some(fast.clone()),
            mode: Some(mode.clone()),
            ..Cache::default()
        };
        all.insert(name.to_owned(), found);
    }
    all
}

/// Enters statistics: a line of names, and one of values.
fn enter(cache: &mut Cache, said: &str) {
    let mut lines = said.lines();
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let row: BTreeMap<String, &str> = names
        .split(',')
        .map(|name| name.trim().to_lowercase())
        .zip(values.split(',').map(str::trim))
        .collect();
    let number = |name: &str| row.get(name).and_then(|value| value.parse::<f64>().ok());
    let text = |name: &str| row.get(name).map(|value| value.to_lowercase());
    let blocks = number("cache size [4kib blocks]");
    cache.bytes = blocks.map(|blocks| (blocks * 4096.0) as i64);
    cache.line_size = number("cache line size [kib]").map(|kib| (kib as i64) << 10);
    cache.cleaning = text("cleaning policy");
    cache.promotion = text("promotion policy");
    let dirty = number("dirty [4kib blocks]");
    cache.dirty_percent = dirty.zip(blocks).and_then(|(dirty, blocks)| percent(dirty, blocks));
    let (hits, reads) = (number("read hits [requests]"), number("read total [requests]"));
    cache.hit_percent = hits.zip(reads).and_then(|(hits, reads)| percent(hits, reads));
}

/// Enters the sequential cut-off: lines of a name and a value.
fn streams(cache: &mut Cache, said: &str) {
    let value = |word: &str| {
        let mut lines = said.lines().filter_map(|line| line.split_once(','));
        lines
            .find(|(name, _)| name.to_lowercase().contains(word))
            .map(|(_, value)| value.trim().to_lowercase())
    };
    cache.seq_cutoff_policy = value("policy");
    cache.seq_cutoff_kib = value("threshold").and_then(|it| it.parse().ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_found_by_the_device_that_it_exports() {
        let list = "type,id,disk,status,write policy,device\n\
                    cache,1,/dev/nvme0n1p1,Running,wb,-\n\
                    core,1,/dev/sdb,Active,-,/dev/cas1-1\n\
                    core,2,/dev/sdc,Active,-,/dev/cas1-2\n\
                    cache,2,/dev/nvme1n1,Running,wt,-\n";
        let all = caches(list);
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), ["cas1-1", "cas1-2"]);
        let cache = &all["cas1-2"];
        assert_eq!(
            (cache.core.as_deref(), cache.device.as_deref(), cache.mode.as_deref()),
            (Some("/dev/sdc"), Some("/dev/nvme0n1p1"), Some("wb"))
        );
    }

    #[test]
    fn statistics_are_read_by_their_names() {
        let said = "Cache Id,Cache Size [4KiB Blocks],Cache Size [GiB],Cleaning Policy,Promotion Policy,Cache line size [KiB],Dirty [4KiB Blocks],Dirty [%],Read hits [Requests],Read total [Requests]\n\
                    1,1000,0.00,alru,always,4,250,50.0,90,100\n";
        let mut cache = Cache::default();
        enter(&mut cache, said);
        assert_eq!(
            (cache.bytes, cache.line_size, cache.cleaning.as_deref()),
            (Some(4_096_000), Some(4096), Some("alru"))
        );
        assert_eq!((cache.dirty_percent, cache.hit_percent), (Some(25.0), Some(90.0)));
        streams(
            &mut cache,
            "Parameter name,Value\nSequential cutoff threshold [KiB],1024\nSequential cutoff policy,full\n",
        );
        assert_eq!((cache.seq_cutoff_kib, cache.seq_cutoff_policy.as_deref()), (Some(1024), Some("full")));
    }
}
