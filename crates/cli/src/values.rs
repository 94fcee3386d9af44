//! How values are typed.

use std::time::Duration;

pub(crate) use loligo_block::parse_size as size;
pub(crate) use loligo_lab::config::key_value as param;

/// A cache line.
pub(crate) fn line_size(text: &str) -> Result<u32, String> {
    match size(text) {
        Ok(n @ (4096 | 8192 | 16384 | 32768 | 65536)) => Ok(n as u32),
        _ => Err("use 4k, 8k, 16k, 32k or 64k".to_owned()),
    }
}

/// Seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.trim_end_matches('s')
        .parse()
        .map(Duration::from_secs)
        .map_err(|_| "give a number of seconds".to_owned())
}

/// A named set of tunables.
pub(crate) fn profile(text: &str) -> Result<&'static loligo_volume::profile::Profile, String> {
    loligo_volume::profile::find(text).map_err(|e| e.to_string())
}
