//! Refusals of a volume that need no look at any device.

use super::{IMAGE_SHARDS, ServeOptions};
use anyhow::{Result, bail, ensure};
use loligo_block::keyed;
use loligo_block::keys::{CORE_RESERVE, DATA_OFFSET, LINE_SIZE, LISTEN, SHARDS};
use loligo_client::names;
use loligo_export::{Credentials, ExportSpec, ListenAddr};
use loligo_format::superblock::{MAX_RESERVE, valid_line_size};

pub(crate) fn check(o: &ServeOptions) -> Result<()> {
    names::check_name(&o.name)?;
    ensure!(
        !o.listen.is_empty(),
        keyed!(
            "nobody could reach the volume: give {LISTEN} unix:PATH, tcp:ADDR:PORT, fuse:MOUNTPOINT or block:NAME"
        )
    );
    for (i, spec) in o.listen.iter().enumerate() {
        // A port of 0 is another one each time.
        let fixed =
            !matches!(spec, ExportSpec::Socket(s) if matches!(s.addr, ListenAddr::Tcp(a) if a.port() == 0));
        let place = spec.place();
        let twice = o.listen[..i].iter().any(|other| other.place() == place);
        ensure!(!fixed || !twice, keyed!("{LISTEN} {place} is given twice: once is enough"));
        if let ExportSpec::Socket(spec) = spec {
            spec.check(Credentials::guard(o.tls.as_ref()))?;
        }
    }
    let seconds = o.rbd.lease.as_secs();
    ensure!(
        (2..=25).contains(&seconds),
        "a lease of {seconds} s: 2 to 25 seconds are possible; a watch that is not renewed ends after 30"
    );
    ensure!(
        o.rbd.snapshot_deadline.as_secs() <= 3600,
        "the deadline for snapshots: 0 to 3600 seconds are possible"
    );
    ensure!(
        o.data_offset.is_none_or(|n| o.core.path().is_some() && (o.cache.is_some() || n == 0)),
        keyed!("a data offset is for devices and files behind a cache: leave {DATA_OFFSET} out")
    );
    let Some(c) = &o.cache else {
        ensure!(o.params.is_empty(), "a bare core has no tunables: leave them out, or give a cache");
        return Ok(());
    };
    if let Some(n) = c.line_size.filter(|n| !valid_line_size(*n)) {
        bail!(keyed!("{LINE_SIZE:#} {n} is none: use 4k, 8k, 16k, 32k or 64k"));
    }
    if let Some(n) = c.core_reserve.filter(|n| *n > MAX_RESERVE) {
        bail!(keyed!("{CORE_RESERVE:#} {n}: 0 to {MAX_RESERVE} percent of the core can be kept back"));
    }
    if let Some(n) = c.shards.filter(|n| !(1..=loligo_format::layout::MAX_SHARDS).contains(n)) {
        bail!(keyed!("{SHARDS:#} {n}: 1 to {} threads can share a cache", loligo_format::layout::MAX_SHARDS));
    }
    if let Some(n) = c.shards.filter(|n| o.core.is_one_threads() && *n > IMAGE_SHARDS) {
        bail!(keyed!("{SHARDS:#} {n}: 1 to {IMAGE_SHARDS} of them can share an RBD image"));
    }
    if let Some(why) = o.core.single_shard().filter(|_| c.shards.is_some_and(|n| n > 1)) {
        bail!(keyed!("{why}: use it with {SHARDS:#} 1"));
    }
    Ok(())
}
