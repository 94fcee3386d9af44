//! Sectors that a core refuses: all threads' as one text. The log has each change once, and never oftener than once a minute.

use loligo_engine::Refused;
use loligo_shard::Snapshot;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Places that are named.
const NAMED: usize = 8;

/// The core's refusals in all threads, in words. `offset`: the byte of the device at which what the engine knows as the core begins.
pub(crate) fn told(snapshots: &[Snapshot], offset: u64) -> Option<String> {
    text(snapshots.iter().filter_map(|s| s.core_refuses.as_ref()), offset)
}

fn text<'a>(refused: impl Iterator<Item = &'a Refused>, offset: u64) -> Option<String> {
    let refused: Vec<&Refused> = refused.collect();
    let why = &refused.first()?.why;
    let (ranges, joined) = joined(refused.iter().flat_map(|r| r.ranges.iter().cloned()).collect());
    let places = refused.iter().map(|r| r.places).sum::<u64>() - joined;
    let more = match places - ranges.len().min(NAMED) as u64 {
        0 => String::new(),
        n => format!(" and in {n} more places"),
    };
    let (untried, _) = self::joined(refused.iter().flat_map(|r| r.untried_ranges.iter().cloned()).collect());
    let others = if untried.len() > NAMED { " and more" } else { "" };
    let beside = match refused.iter().map(|r| r.untried).sum::<u64>() {
        0 => String::new(),
        n => format!(
            "; {n} blocks of 4 KiB beside them were not tried, in sectors {}{others}",
            sectors(&untried, offset)
        ),
    };
    let rest = if refused.iter().any(|r| r.full) {
        "They fill the cache: a write to a new place goes to the core itself, and fails where that refuses it. Give a thin core \
         more space, or"
    } else {
        "They stay dirty on the cache, everything else goes on:"
    };
    Some(format!(
        "the core refuses writes to its sectors of 512 bytes {}{more} ({why}){beside}. {rest} have the disk remap them or replace it, \
         then flush again",
        sectors(&ranges, offset)
    ))
}

/// `ranges` in order, with neighbours as one, and how many fewer they are by that.
fn joined(mut ranges: Vec<Range<u64>>) -> (Vec<Range<u64>>, u64) {
    ranges.sort_unstable_by_key(|r| r.start);
    let found = ranges.len();
    ranges.dedup_by(|next, last| {
        let joins = last.end == next.start;
        if joins {
            last.end = next.end;
        }
        joins
    });
    let fewer = (found - ranges.len()) as u64;
    (ranges, fewer)
}

/// The first of `ranges` as sectors of the device.
fn sectors(ranges: &[Range<u64>], offset: u64) -> String {
    let of =
        |r: &Range<u64>| format!("{} to {}", (r.start + offset) / 512, (r.end + offset).div_ceil(512) - 1);
    ranges.iter().take(NAMED).map(of).collect::<Vec<_>>().join(", ")
}

/// Between two lines of the log.
const PAUSE: Duration = Duration::from_secs(60);

/// The message that was said last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    at: Option<Instant>,
    said: Option<String>,
}

impl Refusals {
    /// The line to log now, if there is one. `refused`: what the core refuses at present.
    pub(crate) fn line(&mut self, now: Instant, refused: Option<String>) -> Option<String> {
        if self.said == refused || self.at.is_some_and(|at| now.duration_since(at) < PAUSE) {
            return None;
        }
        self.at = Some(now);
        self.said = refused;
        Some(match &self.said {
            Some(why) => format!("warning: {why}"),
            None => "the core has taken what it refused".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_sectors_of_all_shards_are_told_in_device_places() {
        const MIB: u64 = 1 << 20;
        let of = |ranges: Vec<Range<u64>>, untried: u64| Refused {
            places: ranges.len() as u64,
            ranges,
            untried,
            untried_ranges: (untried > 0).then_some(4 * MIB..4 * MIB + untried * 4096).into_iter().collect(),
            why: "why".to_owned(),
            full: false,
        };
        assert_eq!(text([].iter(), 0), None);
        // Neighbours over the border of two shards' windows are one place.
        let shards = [
            of(vec![2 * MIB - 4096..2 * MIB, 9 * MIB..9 * MIB + 512], 0),
            of(vec![MIB..MIB + 4096, 2 * MIB..2 * MIB + 4096], 3),
        ];
        let told = text(shards.iter(), MIB).expect("there are some");
        assert!(told.contains("bytes 4096 to 4103, 6136 to 6151, 20480 to 20480 (why); 3 blocks of 4 KiB beside them were not tried, in sectors 10240 to 10263."), "{told}");
        let many = Refused { places: 1000, ..of((0..20).map(|i| i * MIB..i * MIB + 4096).collect(), 0) };
        let told = text([many].iter(), 0).expect("there are some");
        assert!(told.contains("14336 to 14343 and in 992 more places (why). They stay"), "{told}");
        let told =
            text([Refused { full: true, ..of(Vec::from_iter(std::iter::once(0..4096)), 0) }].iter(), 0)
                .expect("there are some");
        assert!(told.contains("They fill the cache") && told.contains("or have the disk"), "{told}");
    }

    #[test]
    fn refused_sectors_are_logged_once_and_a_change_a_minute_later() {
        let (mut r, begun) = (Refusals::default(), Instant::now());
        let mut line =
            |s: u64, what: Option<&str>| r.line(begun + Duration::from_secs(s), what.map(str::to_owned));
        assert_eq!(line(0, None), None);
        assert_eq!(line(1, Some("a")).as_deref(), Some("warning: a"));
        assert_eq!(line(2, Some("a")), None);
        assert_eq!(line(3, Some("b")), None);
        assert_eq!(line(61, Some("b")).as_deref(), Some("warning: b"));
        assert_eq!(line(100, None), None);
        assert!(line(121, None).is_some_and(|l| l.contains("has taken")));
    }
}
