//! The cluster's word on an option (`config help`), and the values that it may have.

use super::places::Hands;
use crate::gather::asked::{ask, command};
use crate::rules::Acts;
use loligo_ceph::commands::Recipient;
use serde::Deserialize;
use serde_json::json;

/// Decimals of a number that the configuration database keeps: it writes 0.0000001 as 0.000000.
const DECIMALS: usize = 6;
/// Services that are clients, as releases spell them: an option of these alone is used by no OSD.
const CLIENTS: [&str; 7] = [
    "rbd",
    "rbd-mirror",
    "immutable-object-cache",
    "immutable-objet-cache",
    "rgw",
    "mds_client",
    "cephfs-mirror",
];
/// Powers of 1024, by the letter that stands for them.
const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];

/// The cluster's word on an option.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct OptionHelp {
    /// As the cluster spells it: it takes other spellings, and keeps this one.
    pub(super) name: String,
    #[serde(rename = "type")]
    kind: String,
    min: serde_json::Value,
    max: serde_json::Value,
    enum_values: Vec<String>,
    services: Vec<String>,
    pub(super) can_update_at_runtime: bool,
}

impl OptionHelp {
    /// The monitors' word on an option; nothing: they know none of this name.
    pub(super) fn ask(hands: Hands<'_>, option: &str) -> Result<Option<OptionHelp>, String> {
        let order = json!({"prefix": "config help", "key": option, "format": "json"});
        match hands.client.send(Recipient::Monitors, &order) {
            Ok(said) => serde_json::from_str(&said).map(Some).map_err(|why| format!("config help: {why}")),
            Err(why) if why.errno() == Some(libc::ENOENT) => Ok(None),
            Err(why) => Err(why.to_string()),
        }
    }

    /// True if no OSD uses the option: it is one of clients. `acts` is the word of the table of options.
    pub(super) fn is_of_clients(&self, acts: Option<Acts>) -> bool {
        let by_services =
            !self.services.is_empty() && self.services.iter().all(|it| CLIENTS.contains(&it.as_str()));
        acts == Some(Acts::Client) || by_services
    }

    /// The reason why the option cannot have this value; nothing: the cluster may take it.
    pub(super) fn refuses(&self, value: &str) -> Option<String> {
        let kind = self.kind.as_str();
        let is_number = match kind {
            "int" => value.parse::<i64>().is_ok(),
            "uint" | "size" | "secs" | "millisecs" => value.parse::<u64>().is_ok(),
            "float" => value.parse::<f64>().is_ok_and(f64::is_finite),
            _ => true,
        };
        let is_level = kind == "str" && self.name.starts_with("debug_");
        if is_level && !value.split_once('/').is_some_and(|(log, memory)| both(log, memory)) {
            return Some("write both levels, as 1/5: the cluster keeps both".to_owned());
        }
        if kind == "bool" && !["true", "false"].contains(&value) {
            return Some("it takes true or false".to_owned());
        }
        if let Some(kept) = self.respelt(value) {
            return Some(format!("write {kept}: the cluster keeps it so, and it is compared with that"));
        }
        if !is_number {
            let what = if kind == "float" { "a number" } else { "a whole number" };
            let sign = if matches!(kind, "int" | "float") { "" } else { ", not below 0" };
            return Some(format!("it takes {what}{sign}"));
        }
        let is_kept = |it: f64| format!("{it:.DECIMALS$}").parse() == Ok(it);
        if kind == "float" && !value.parse().is_ok_and(is_kept) {
            return Some(format!("the cluster keeps {DECIMALS} decimals of it"));
        }
        if !self.enum_values.is_empty() && !self.enum_values.iter().any(|it| it == value) {
            return Some(format!("it takes one of these: {}", self.enum_values.join(", ")));
        }
        let is = value.parse::<f64>().ok();
        match (is, bound(&self.min), bound(&self.max)) {
            (Some(is), Some(min), _) if is < min => Some(format!("it takes {min} at least")),
            (Some(is), _, Some(max)) if is > max => Some(format!("it takes {max} at most")),
            _ => None,
        }
    }

    /// The number that K stands for: the cluster reads sizes in powers of 1024, and other numbers in powers of 1000.
    fn unit(&self) -> f64 {
        if self.kind == "size" { 1024.0 } else { 1000.0 }
    }

    /// The spelling to use for a number that the cluster would keep in another one; nothing: it is spelt so, or is no number.
    fn respelt(&self, value: &str) -> Option<String> {
        let kept = match self.kind.as_str() {
            "int" | "uint" | "size" | "secs" | "millisecs" => match value.parse::<i128>() {
                Ok(number) => number.to_string(),
                Err(_) => in_full(value, self.unit())?,
            },
            "float" if is_plain(value) => return None,
            "float" => value.parse::<f64>().ok().filter(|it| it.is_finite())?.to_string(),
            _ => return None,
        };
        (kept != value).then_some(kept)
    }
}

/// The names of all options that the monitors know.
pub(super) fn names(hands: Hands<'_>) -> Vec<String> {
    let all = ask(hands.client, Recipient::Monitors, &command("config ls")).unwrap_or_default();
    all.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Levels of a log: of what is written, and of what is kept in memory.
fn both(log: &str, memory: &str) -> bool {
    [log, memory].iter().all(|it| it.parse::<u8>().is_ok_and(|level| level.to_string() == *it))
}

/// A bound as the cluster says it: a number, a number as text, or an empty text where there is none.
fn bound(said: &serde_json::Value) -> Option<f64> {
    said.as_f64().or_else(|| said.as_str()?.parse().ok())
}

/// `0.5`, `3` and `1e-3`, and none of `.5`, `5.`, `+5` and `05`.
fn is_plain(value: &str) -> bool {
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    let value = value.strip_prefix('-').unwrap_or(value);
    let (number, power) = value.split_once(['e', 'E']).unwrap_or((value, "0"));
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_whole = digits(whole) && (whole == "0" || !whole.starts_with('0'));
    is_whole && digits(part) && digits(power.strip_prefix('-').unwrap_or(power))
}

/// `33554432` for `32M` of a size, and `32000000` of another number: the cluster writes numbers out.
fn in_full(value: &str, base: f64) -> Option<String> {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &value[..value.len() - unit.len()];
    let power = UNITS
        .iter()
        .position(|it| unit.strip_prefix(it).is_some_and(|rest| ["", "i", "B", "iB"].contains(&rest)))?;
    // `4Ki` is binary whatever the kind.
    let base = if unit.contains('i') { 1024.0 } else { base };
    let whole = number.parse::<f64>().ok()? * base.powi(power as i32 + 1);
    Some(format!("{whole:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: serde_json::Value) -> OptionHelp {
        serde_json::from_value(said).expect("help of an option")
    }

    #[test]
    fn numbers_with_units_are_written_out() {
        for (short, base, full) in [
            ("32M", 1024.0, "33554432"),
            ("4Ki", 1000.0, "4096"),
            ("1.5GiB", 1024.0, "1610612736"),
            ("10K", 1000.0, "10000"),
        ] {
            assert_eq!(in_full(short, base).as_deref(), Some(full), "{short}");
        }
        for full in ["33554432", "kernel", "0/1", "compression=M", "M", "high_client_ops", "10s"] {
            assert_eq!(in_full(full, 1024.0), None, "{full}");
        }
    }

    #[test]
    fn a_number_is_refused_with_the_spelling_that_is_kept() {
        let kept = |kind: &str, value: &str| {
            let said = of(json!({"type": kind})).refuses(value)?;
            Some(said.strip_prefix("write ")?.split_once(':')?.0.to_owned())
        };
        for (kind, value, want) in [
            ("int", "+2", "2"),
            ("uint", "02", "2"),
            ("int", "-0", "0"),
            ("size", "1G", "1073741824"),
            ("secs", "007", "7"),
            ("float", ".5", "0.5"),
            ("float", "5.", "5"),
            ("float", "+0.5", "0.5"),
            ("float", "05", "5"),
            ("float", "-.25", "-0.25"),
        ] {
            assert_eq!(kept(kind, value).as_deref(), Some(want), "{kind} {value}");
        }
        for (kind, value) in [
            ("int", "-2"),
            ("uint", "20"),
            ("float", "0.5"),
            ("float", "0.50"),
            ("float", "1e-3"),
            ("str", "02"),
            ("str", "4G"),
        ] {
            assert_eq!(of(json!({"type": kind})).refuses(value), None, "{kind} {value}");
        }
    }

    #[test]
    fn an_option_of_clients_is_known_by_table_or_services() {
        let rbd = of(json!({"services": ["rbd"]}));
        let osd = of(json!({"services": ["osd", "rbd"]}));
        let none = of(json!({"services": []}));
        assert!(rbd.is_of_clients(None) && none.is_of_clients(Some(Acts::Client)));
        assert!(
            !osd.is_of_clients(None) && !none.is_of_clients(None) && !none.is_of_clients(Some(Acts::Live))
        );
        // OSDs read some options that are said to be the monitors' or the manager's.
        assert!(!of(json!({"services": ["mgr"]})).is_of_clients(None));
    }

    #[test]
    fn values_that_an_option_cannot_have_are_refused() {
        let uint = of(json!({"type": "uint", "min": "", "max": "", "enum_values": []}));
        let float = of(json!({"type": "float", "min": 0.0, "max": "1"}));
        let word =
            of(json!({"type": "str", "min": "", "max": "", "enum_values": ["wpq", "mclock_scheduler"]}));
        let refused = |help: &OptionHelp, value: &str| help.refuses(value).unwrap_or_default();
        assert_eq!(refused(&uint, "7"), "");
        assert_eq!(refused(&uint, "many"), "it takes a whole number, not below 0");
        assert_eq!(refused(&uint, "-1"), "it takes a whole number, not below 0");
        assert_eq!(refused(&float, "0.5"), "");
        for small in ["0.0000001", "1e-7", "0.1234567"] {
            assert_eq!(refused(&float, small), "the cluster keeps 6 decimals of it");
        }
        assert_eq!(refused(&float, "1e-3"), "");
        let (truth, time) = (of(json!({"type": "bool"})), of(json!({"type": "secs"})));
        assert_eq!((refused(&truth, "true"), refused(&time, "5")), (String::new(), String::new()));
        let level = of(json!({"type": "str", "name": "debug_osd"}));
        assert_eq!(refused(&level, "1/5"), "");
        for bad in ["1", "perhaps", "01/5", "1/"] {
            assert!(refused(&level, bad).contains("both levels"), "{bad}");
        }
        assert_eq!(refused(&truth, "True"), "it takes true or false");
        assert_eq!(refused(&time, "5m"), "it takes a whole number, not below 0");
        assert_eq!(refused(&float, "1.5"), "it takes 1 at most");
        assert_eq!(refused(&float, "-1"), "it takes 0 at least");
        assert_eq!(refused(&word, "wpq"), "");
        assert_eq!(refused(&word, "fifo"), "it takes one of these: wpq, mclock_scheduler");
        assert!(of(json!({"type": "str", "newer": [1]})).refuses("x=1,y=2").is_none());
    }
}
