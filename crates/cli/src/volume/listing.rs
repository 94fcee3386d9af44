//! The output of 'loligo volume list' and 'show'.

use anyhow::Result;
use loligo_bench::table::Table;
use loligo_client::api::listed::Listed;
use loligo_client::api::status::Status;
use loligo_log::{out, outln};
use serde_json::json;
use std::collections::BTreeMap;

/// The word in the place of a mode where there is no cache.
const BARE: &str = "bare";

/// In what a volume is defined otherwise than it is served.
fn changes(v: &Listed) -> Vec<String> {
    let Some(served) = &v.served else { return Vec::new() };
    let (name, d) = (&v.name, &v.definition);
    let next = format!("from the next start on ('loligo volume restart {name}')");
    let cache = d.cache.as_ref().map(|cache| cache.display().to_string());
    let said = |key: &String| match key.as_str() {
        "core" => format!("core {} is served; {next} {} is", served.core, d.core),
        "cache" => match (&served.cache, cache.as_deref()) {
            (None, defined) => {
                format!("it is served without a cache; {next} with {}", defined.unwrap_or("none"))
            }
            (Some(now), Some(defined)) => format!("cache {now} is served; {next} {defined} is"),
            (Some(now), None) => format!("cache {now} is served; {next} none is"),
        },
        "listen" => format!("clients come as at the last start; {next} by {}", d.listen.join(", ")),
        other => format!("its {other} is another {next}"),
    };
    served.changed.iter().map(said).collect()
}

/// Bytes in the cache of a volume that its core lacks, once it neither starts nor stops: until then that is not known, and no news.
fn lacks(v: &Listed) -> Option<&str> {
    v.lacks.as_deref().filter(|_| !matches!(v.status, Status::Starting | Status::Stopping))
}

pub(super) fn list(volumes: &[Listed], json: bool) -> Result<()> {
    if json {
        out!("{}\n", serde_json::to_string_pretty(volumes)?);
        return Ok(());
    }
    let mut table = Table::new(["volume", "state", "mode", "size", "dirty", "core", "cache"]);
    for v in volumes {
        let (d, served) = (&v.definition, v.served.as_ref());
        let defined = || d.cache.as_ref().map(|c| c.display().to_string());
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        table.row([
            v.name.clone(),
            v.status.word().to_owned(),
            // One that is served without a mode is served bare, whatever comes next.
            v.mode
                .clone()
                .or(v.next_mode.clone().filter(|_| v.size.is_none()))
                .unwrap_or_else(|| BARE.to_owned()),
            number(v.size),
            number(v.dirty_bytes),
            served.map_or(&d.core, |served| &served.core).clone(),
            served.map_or_else(defined, |served| served.cache.clone()).unwrap_or("-".to_owned()),
        ]);
    }
    out!("{}\n", table.text());
    for v in volumes {
        if let Some(why) = v.why() {
            outln!("{}: {}: {why}", v.name, v.status.word());
        }
        changes(v).iter().for_each(|change| outln!("{}: {change}", v.name));
        if let Some(lacks) = lacks(v) {
            outln!("{}: its cache holds {lacks}", v.name);
        }
        if let Some(trouble) = &v.trouble {
            outln!("{}: trouble: {trouble}", v.name);
        }
    }
    Ok(())
}

pub(super) fn show(v: &Listed, json: bool) -> Result<()> {
    if json {
        out!("{}\n", serde_json::to_string_pretty(&json!(v))?);
        return Ok(());
    }
    let why = v.why().map(|why| format!(": {why}")).unwrap_or_default();
    outln!("# {}{why}", v.status.word());
    let next = v.next_mode.as_deref().unwrap_or(BARE);
    match &v.mode {
        Some(now) if now != next => {
            outln!("# mode {now} is in force; from the next start on it is {next}");
        }
        Some(now) => outln!("# mode {now}"),
        None if next == BARE => outln!("# {BARE}"),
        None => outln!("# mode {next} from the next start on"),
    }
    outln!("# {}", if v.from_file { "defined in the configuration" } else { "made by command" });
    if let (Some(size), Some(dirty)) = (v.size, v.dirty_bytes) {
        outln!("# {size} bytes, {dirty} of them newer than the core");
    }
    changes(v).iter().for_each(|change| outln!("# {change}"));
    if let Some(lacks) = lacks(v) {
        outln!("# its cache holds {lacks}");
    }
    if let Some(trouble) = &v.trouble {
        outln!("# trouble: {trouble}");
    }
    // As it stands in a file: its tables have the section's name, and a name with a dot its quotes.
    let section = BTreeMap::from([("volume", BTreeMap::from([(&v.name, &v.definition)]))]);
    out!("{}", toml::to_string(&section)?);
    Ok(())
}
