//! A volume as short cells, so that 80 columns are enough.

use loligo_client::watch::{Quantiles, Row};

/// The heads of the columns.
pub(super) const HEADS: [&str; 13] = [
    "VOLUME", "STATE", "MODE", "R/s", "W/s", "RMB/s", "WMB/s", "HIT%", "DIRT%", "P50", "P99", "DESTG",
    "BYPASS",
];
/// The widths of all but the first and the last.
pub(super) const WIDTHS: [u16; 11] = [5, 4, 5, 5, 5, 5, 4, 5, 4, 4, 5];

/// The content of each column.
pub(super) fn cells(row: &Row) -> [String; 13] {
    let r = row.rates.as_ref();
    let none = || "-".to_owned();
    let rate = |v: Option<f64>| v.map_or_else(none, short);
    let percent = |v: Option<f64>| v.map_or_else(none, |p| format!("{p:.0}"));
    let latency = r.and_then(|r| r.latency);
    let took = |of: fn(&Quantiles) -> f64| latency.as_ref().map(of).map_or_else(none, time);
    let top = r.and_then(|r| r.bypass.first());
    [
        row.name.clone(),
        state(row).to_owned(),
        row.mode.clone().unwrap_or_else(none),
        rate(r.map(|r| r.read_iops)),
        rate(r.map(|r| r.write_iops)),
        rate(r.map(|r| r.read_bytes_s / 1e6)),
        rate(r.map(|r| r.write_bytes_s / 1e6)),
        percent(r.and_then(|r| r.hit_percent)),
        percent(row.dirty_percent),
        took(|q| q.p50_us),
        took(|q| q.p99_us),
        rate(r.map(|r| r.destage_bytes_s / 1e6)),
        top.map(|(why, n)| format!("{why} {}", short(*n))).unwrap_or_default(),
    ]
}

/// Five letters at most; what an administrator must see is in capitals.
pub(super) fn state(row: &Row) -> &'static str {
    match row.state.as_str() {
        _ if row.poisoned => "POIS",
        "lost" => "LOST",
        _ if row.lost => "LOST",
        _ if row.cache_gone => "GONE",
        "serving" => "ok",
        "starting" => "start",
        "waiting" => "wait",
        "refused" => "refus",
        "stopped" | "stopping" => "stop",
        "failed" => "fail",
        "silent" => "silen",
        _ => "?",
    }
}

/// A number in four characters.
pub(super) fn short(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let unit = units[unit];
    if value < 0.05 && unit.is_empty() {
        "0".to_owned()
    } else if value < 9.95 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

/// Microseconds in four characters.
pub(super) fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 999.5 => return format!("{us:.0}u"),
        us if us < 999.5e3 => (us / 1e3, "m"),
        us => (us / 1e6, "s"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_wider_than_its_column() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (9.94, "9.9"),
            (9.96, "10"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (53_467.0, "53k"),
            (999_600.0, "1.0M"),
            (2.5e12, "2.5T"),
        ] {
            assert_eq!(short(value), text);
        }
        for (us, text) in
            [(0.0, "0u"), (850.0, "850u"), (1_340.0, "1.3m"), (45_000.0, "45m"), (999_600.0, "1.0s")]
        {
            assert_eq!(time(us), text);
        }
    }
}
