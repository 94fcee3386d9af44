//! Admission: the choice of clean read misses that become resident. Writes always do.

use super::ghost::Ghost;
use super::hash::{below, mix};

/// Occupancy above which admission is selective, permille: Open CAS's default trigger.
const TRIGGER: u32 = 800;
/// Entries in a bucket of counters.
const WAYS: usize = 4;

/// The admission policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitKind {
    /// Every read miss is inserted.
    Always,
    /// Inserted when the line was accessed `threshold` times of late (Open CAS: 2 to 1,000, default 3), but always
    /// while occupancy is below `trigger_permille` (default 800).
    Nhit {
        /// Accesses needed.
        threshold: u16,
        /// Occupancy in permille below which everything is inserted.
        trigger_permille: u16,
    },
    /// The first read is kept in RAM only; a second one soon enough is inserted. The default.
    Probation,
}

/// The fate of the data of a clean read miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Insert it.
    Admit,
    /// Keep it in the probation queue.
    Probation,
    /// Keep nothing.
    Refuse,
}

/// An admission policy and what it has counted.
#[derive(Debug)]
pub struct Admission {
    kind: AdmitKind,
    nhit: Option<Counters>,
    seen: Option<Ghost>,
}

impl Admission {
    /// A policy for a cache of `lines` lines.
    pub fn new(kind: AdmitKind, lines: u32) -> Admission {
        Admission {
            kind,
            nhit: matches!(kind, AdmitKind::Nhit { .. }).then(|| Counters::new(lines)),
            seen: matches!(kind, AdmitKind::Probation).then(|| Ghost::new(lines / 4)),
        }
    }

    /// Remembers as much as a cache of so many lines wants, of those given at the start.
    pub fn set_limit(&mut self, lines: u32) {
        if let Some(seen) = &mut self.seen {
            seen.set_limit(lines / 4);
        }
    }

    /// The policy in force.
    pub fn kind(&self) -> AdmitKind {
        self.kind
    }

    /// Decides on a read miss of `key` while `occupancy_permille` of the lines are occupied, and counts the access.
    /// `known`: the replacement policy remembers the key ([`super::Replacement::remembers`]).
    pub fn admit(&mut self, key: u64, occupancy_permille: u32, known: bool) -> Verdict {
        let hash = mix(key);
        match self.kind {
            AdmitKind::Always => Verdict::Admit,
            AdmitKind::Nhit { threshold, trigger_permille } => {
                let count = self.nhit.as_mut().map_or(u16::MAX, |c| c.count(hash));
                if occupancy_permille < u32::from(trigger_permille) || count >= threshold {
                    Verdict::Admit
                } else {
                    Verdict::Refuse
                }
            }
            AdmitKind::Probation => {
                if occupancy_permille < TRIGGER || known || self.seen.as_mut().is_some_and(|s| s.take(hash)) {
                    return Verdict::Admit;
                }
                if let Some(seen) = &mut self.seen {
                    seen.put(hash);
                }
                Verdict::Probation
            }
        }
    }

    /// Counts an access to `key` that needs no decision (a hit, or a write): only `nhit` counts those.
    #[inline]
    pub fn touched(&mut self, key: u64) {
        if let Some(c) = &mut self.nhit {
            c.count(mix(key));
        }
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Admission>()
            + self.nhit.as_ref().map_or(0, Counters::bytes)
            + self.seen.as_ref().map_or(0, Ghost::bytes)
    }
}

/// Access counts of as many keys as there are lines, the least counted of a bucket replaced. 4 B a line (Open CAS
/// keeps two ring entries a line, about 70 B).
#[derive(Debug)]
struct Counters {
    slots: Vec<[(u16, u16); WAYS]>,
}

impl Counters {
    fn new(lines: u32) -> Counters {
        Counters { slots: vec![[(0, 0); WAYS]; (lines as usize).div_ceil(WAYS).max(1)] }
    }

    /// Counts one more access and returns how many there were.
    fn count(&mut self, hash: u64) -> u16 {
        let b = below(hash, self.slots.len());
        let bucket = &mut self.slots[b];
        let fp = (hash as u16).max(1);
        let at = match bucket.iter().position(|s| s.0 == fp) {
            Some(at) => {
                bucket[at].1 = bucket[at].1.saturating_add(1);
                at
            }
            None => {
                bucket[WAYS - 1] = (fp, 1);
                WAYS - 1
            }
        };
        // The latest comes first, so the last of a bucket is the one not seen for longest.
        let count = bucket[at].1;
        bucket[..=at].rotate_right(1);
        count
    }

    fn bytes(&self) -> usize {
        self.slots.len() * size_of::<[(u16, u16); WAYS]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u32 = 1000;

    #[test]
    fn while_the_cache_fills_everything_is_admitted() {
        for kind in
            [AdmitKind::Always, AdmitKind::Nhit { threshold: 3, trigger_permille: 800 }, AdmitKind::Probation]
        {
            let mut a = Admission::new(kind, 1000);
            assert_eq!(a.admit(7, 799, false), Verdict::Admit, "{kind:?}");
            let selective = a.admit(8, 800, false) != Verdict::Admit;
            assert_eq!(selective, kind != AdmitKind::Always, "{kind:?}");
        }
    }

    #[test]
    fn nhit_admits_at_its_threshold_of_reads_or_writes() {
        let mut a = Admission::new(AdmitKind::Nhit { threshold: 3, trigger_permille: 0 }, 1000);
        assert_eq!(a.admit(5, FULL, false), Verdict::Refuse);
        a.touched(5);
        assert_eq!(a.admit(6, FULL, false), Verdict::Refuse);
        assert_eq!(a.admit(5, FULL, false), Verdict::Admit);
    }

    #[test]
    fn probation_admits_a_second_touch_and_what_is_remembered() {
        let mut a = Admission::new(AdmitKind::Probation, 1000);
        assert_eq!(a.admit(5, FULL, false), Verdict::Probation);
        assert_eq!(a.admit(5, FULL, false), Verdict::Admit);
        assert_eq!(a.admit(6, FULL, true), Verdict::Admit);
    }

    #[test]
    fn a_scan_of_new_keys_is_kept_out() {
        for kind in [AdmitKind::Nhit { threshold: 2, trigger_permille: 800 }, AdmitKind::Probation] {
            let mut a = Admission::new(kind, 1000);
            let admitted = (0..100_000).filter(|&k| a.admit(k, FULL, false) == Verdict::Admit).count();
            assert!(admitted < 1000, "{kind:?} admitted {admitted} of 100,000 strangers");
        }
    }
}
