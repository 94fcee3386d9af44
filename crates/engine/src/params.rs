//! Tunables that change live, with their ranges and defaults.

use crate::policy::Kind;
use crate::policy::admit::AdmitKind;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The condition on which sequential streams bypass the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeqCutoff {
    /// From the threshold on.
    Always,
    /// From the threshold on, once the cache is full.
    Full,
    /// Never.
    Never,
}

/// The read misses that are promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionKind {
    /// Second touch, seen through a queue in memory and a ghost.
    Probation,
    /// The third touch, as Open CAS's nhit.
    Nhit,
    /// Every one.
    Always,
}

/// The moment at which a write is answered in write-back mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The cache has taken it: what a power failure of a volatile cache may undo until a flush.
    Written,
    /// It is durable, as if it had asked for that (FUA).
    Durable,
}

/// The way of large writes over a core that takes groups, while the cache has room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeWrites {
    /// To the core: it takes them as fast as destaging would bring them there.
    Past,
    /// Into the cache, so that nobody waits for the core.
    Cached,
}

/// The tunables of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// The moment at which a write is answered.
    pub ack: Ack,
    /// The way of large writes while the cache has room.
    pub large_writes: LargeWrites,
    /// The condition on which sequential streams bypass the cache.
    pub seq_cutoff: SeqCutoff,
    /// Bytes of a stream from which it is sequential.
    pub seq_threshold: u64,
    /// Requests after which a run counts as a stream.
    pub seq_promotion: u32,
    /// The policy that picks the line which makes room.
    pub replacement: Kind,
    /// The read misses that are promoted.
    pub admission: AdmissionKind,
    /// Bytes of a run of reads beyond which its misses are not promoted; 0: no limit.
    pub promote_run: u64,
    /// Percent dirty below which destaging waits for an idle core, and writes are not paced.
    pub destage_low: u32,
    /// Most blocks destaged a second; 0: no limit.
    pub destage_rate: u64,
    /// Seconds after which what is dirty is in the core, where that leaves pauses; 0: no limit.
    pub destage_age: u64,
    /// Seconds in which what is dirty should be in the core before a snapshot of it (RBD images); 0: no limit.
    pub snapshot_deadline: u64,
}

impl AdmissionKind {
    /// The policy behind the name, with Open CAS's defaults where it has parameters.
    pub fn kind(self) -> AdmitKind {
        match self {
            AdmissionKind::Probation => AdmitKind::Probation,
            AdmissionKind::Nhit => AdmitKind::Nhit { threshold: 3, trigger_permille: 800 },
            AdmissionKind::Always => AdmitKind::Always,
        }
    }
}

impl Default for Params {
    fn default() -> Params {
        Params {
            ack: Ack::Written,
            large_writes: LargeWrites::Past,
            seq_cutoff: SeqCutoff::Full,
            seq_threshold: 1 << 20,
            seq_promotion: 8,
            replacement: Kind::S3Cm,
            admission: AdmissionKind::Probation,
            promote_run: 0,
            destage_low: 10,
            destage_rate: 0,
            destage_age: 30,
            snapshot_deadline: 60,
        }
    }
}

/// One row of `param get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamRow {
    /// Key as typed.
    pub key: &'static str,
    /// Current value.
    pub value: String,
    /// The values that it accepts.
    pub range: &'static str,
    /// Default value.
    pub default: String,
}

/// Keys and ranges, in the order shown.
const KEYS: [(&str, &str); 12] = [
    ("ack", "written | durable"),
    ("large-writes", "past | cached"),
    ("seq-cutoff", "always | full | never"),
    ("seq-threshold", "4k to 4294966272 bytes"),
    ("seq-promotion", "1 to 65535 requests"),
    ("replacement", "s3cm | lru | fifo"),
    ("admission", "probation | nhit | always"),
    ("promote-run", "0 (no limit) to 4294966272 bytes"),
    ("destage-low", "0 to 90 percent dirty"),
    ("destage-rate", "0 (no limit) to 10000000 blocks of 4 KiB a second"),
    ("destage-age", "0 (no limit) to 86400 seconds"),
    ("snapshot-deadline", "0 (no limit) to 3600 seconds"),
];

macro_rules! words {
    ($t:ty { $($v:ident = $s:literal),+ }) => {
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(<$t>::$v => $s),+ })
            }
        }
        impl FromStr for $t {
            type Err = ();
            fn from_str(s: &str) -> Result<Self, ()> {
                match s { $($s => Ok(<$t>::$v),)+ _ => Err(()) }
            }
        }
    };
}
words!(Ack { Written = "written", Durable = "durable" });
words!(LargeWrites { Past = "past", Cached = "cached" });
words!(SeqCutoff { Always = "always", Full = "full", Never = "never" });
words!(AdmissionKind { Probation = "probation", Nhit = "nhit", Always = "always" });

/// Bytes, with or without a unit.
fn bytes(s: &str, lo: u64, hi: u64) -> Result<u64, ()> {
    loligo_block::parse_size(s).ok().filter(|n| (lo..=hi).contains(n)).ok_or(())
}

fn number(s: &str, lo: u64, hi: u64) -> Result<u64, ()> {
    s.parse::<u64>().ok().filter(|n| (lo..=hi).contains(n)).ok_or(())
}

/// The reason why a tunable cannot be set like that.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParamError {
    /// There is none of that name.
    #[error("unknown parameter '{0}': use one of {keys}", keys = keys())]
    Unknown(String),
    /// It does not take that.
    #[error("'{value}' is no value for {key}: it takes {range}")]
    Value {
        /// The tunable.
        key: &'static str,
        /// The value that was asked for.
        value: String,
        /// The values that are possible.
        range: &'static str,
    },
}

fn keys() -> String {
    let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    keys.join(", ")
}

impl Params {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<String> {
        Some(match key {
            "ack" => self.ack.to_string(),
            "large-writes" => self.large_writes.to_string(),
            "seq-cutoff" => self.seq_cutoff.to_string(),
            "seq-threshold" => self.seq_threshold.to_string(),
            "seq-promotion" => self.seq_promotion.to_string(),
            "replacement" => self.replacement.name().to_string(),
            "admission" => self.admission.to_string(),
            "promote-run" => self.promote_run.to_string(),
            "destage-low" => self.destage_low.to_string(),
            "destage-rate" => self.destage_rate.to_string(),
            "destage-age" => self.destage_age.to_string(),
            "snapshot-deadline" => self.snapshot_deadline.to_string(),
            _ => return None,
        })
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`ParamError`]; its text names the keys or the range.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ParamError> {
        let Some(&(key, range)) = KEYS.iter().find(|(k, _)| *k == key) else {
            return Err(ParamError::Unknown(key.to_owned()));
        };
        let mut p = *self;
        let done = (|| {
            match key {
                "ack" => p.ack = value.parse()?,
                "large-writes" => p.large_writes = value.parse()?,
                "seq-cutoff" => p.seq_cutoff = value.parse()?,
                "seq-threshold" => p.seq_threshold = bytes(value, 4096, 4_294_966_272)?,
                "seq-promotion" => p.seq_promotion = number(value, 1, 65_535)? as u32,
                "replacement" => p.replacement = value.parse().map_err(drop)?,
                "admission" => p.admission = value.parse()?,
                "promote-run" => p.promote_run = bytes(value, 0, 4_294_966_272)?,
                "destage-low" => p.destage_low = number(value, 0, 90)? as u32,
                "destage-rate" => p.destage_rate = number(value, 0, 10_000_000)?,
                "destage-age" => p.destage_age = number(value, 0, 86_400)?,
                "snapshot-deadline" => p.snapshot_deadline = number(value, 0, 3600)?,
                _ => unreachable!("{key} is in KEYS: give it an arm in Params::set"),
            }
            Ok::<(), ()>(())
        })();
        done.map_err(|()| ParamError::Value { key, value: value.to_owned(), range })?;
        *self = p;
        Ok(())
    }

    /// Every tunable with its value, range and default.
    pub fn rows(&self) -> Vec<ParamRow> {
        let defaults = Params::default();
        KEYS.iter()
            .map(|(key, range)| ParamRow {
                key,
                value: self.get(key).unwrap_or_default(),
                range,
                default: defaults.get(key).unwrap_or_default(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_takes_its_default_and_refuses_nonsense() {
        let mut p = Params::default();
        for row in Params::default().rows() {
            let key = row.key;
            assert!(p.get(key).is_some(), "{key} is in KEYS: give it an arm in Params::get");
            p.set(key, &row.default).unwrap_or_else(|e| panic!("{e}: its default is outside its range"));
            assert_eq!(p, Params::default(), "the arms of {key} in Params::get and Params::set differ");
            let err = p.set(key, "nonsense").unwrap_err();
            assert!(err.to_string().contains(row.range), "{err}");
        }
        p.set("seq-threshold", "2MiB").unwrap();
        assert_eq!(p.seq_threshold, 2 << 20);
        assert!(p.set("seq-cutof", "full").unwrap_err().to_string().contains("seq-cutoff"));
    }
}
