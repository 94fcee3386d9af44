//! The answers that a volume may give: per 512-byte sector, the writes that a read may still show.
//!
//! Requests that overlap are never in flight together here (the simulator does that), so a sector's writes have one order.

use std::ops::Range;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// The effect of a request on its sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The pattern of its stamp.
    Write,
    /// Zeros.
    Zeroes,
    /// Zeros, or what was there.
    Discard,
}

/// The end of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Only the process: what was acknowledged is there.
    Killed,
    /// Power: what was flushed is there.
    PowerLoss,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    stamp: u64,
    kind: Kind,
    /// The time at which it was acknowledged; `u64::MAX` while it is not.
    acked: u64,
    /// It is durable whatever is flushed.
    sure: bool,
}

/// The stamps and the order of every write to a volume.
#[derive(Debug)]
pub struct History {
    sectors: Vec<Vec<Version>>,
    next: u64,
    now: u64,
    /// Everything acknowledged up to then is durable.
    flushed: u64,
    /// Sectors seen after a crash without the newest write that was sent to them.
    pub stepped_back: u64,
}

/// Fills `out`, one or more sectors from sector `first`, with the pattern of `stamp`.
pub fn pattern(stamp: u64, first: u64, out: &mut [u8]) {
    for (sector, bytes) in (first..).zip(out.chunks_mut(SECTOR)) {
        for (i, word) in (0u64..).zip(bytes.chunks_exact_mut(8)) {
            let w = match i {
                0 => stamp,
                1 => sector,
                _ => (stamp ^ sector.rotate_left(32)).wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            };
            word.copy_from_slice(&w.to_le_bytes());
        }
    }
}

fn describe(data: &[u8]) -> String {
    let word = |i: usize| data[i * 8..i * 8 + 8].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    let (stamp, sector) = (word(0), word(1));
    let mut whole = vec![0; data.len()];
    pattern(stamp, sector, &mut whole);
    if data.iter().all(|b| *b == 0) {
        "zeros".to_owned()
    } else if whole == data {
        format!("stamp {stamp} of sector {sector}")
    } else {
        format!("no whole write (begins {:02x?})", &data[..24.min(data.len())])
    }
}

impl History {
    /// A volume of `size` bytes, all zeros.
    pub fn new(size: u64) -> History {
        let zeros = Version { stamp: 0, kind: Kind::Zeroes, acked: 0, sure: true };
        History {
            sectors: vec![vec![zeros]; size as usize / SECTOR],
            next: 1,
            now: 1,
            flushed: 0,
            stepped_back: 0,
        }
    }

    /// The volume has `size` bytes by now; zeros behind what it had.
    pub fn grow(&mut self, size: u64) {
        let zeros = Version { stamp: 0, kind: Kind::Zeroes, acked: 0, sure: true };
        let more = (size as usize / SECTOR).max(self.sectors.len());
        self.sectors.resize(more, vec![zeros]);
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// A request is about to be sent; returns its stamp.
    pub fn issue(&mut self, sectors: Range<u64>, kind: Kind) -> u64 {
        let stamp = self.next;
        self.next += 1;
        let flushed = self.flushed;
        for versions in &mut self.sectors[sectors.start as usize..sectors.end as usize] {
            prune(versions, flushed);
            versions.push(Version { stamp, kind, acked: u64::MAX, sure: false });
        }
        stamp
    }

    /// The request `stamp` has been acknowledged; with `fua` it is durable.
    pub fn acknowledge(&mut self, sectors: Range<u64>, stamp: u64, fua: bool) {
        self.now += 1;
        for versions in &mut self.sectors[sectors.start as usize..sectors.end as usize] {
            if let Some(v) = versions.iter_mut().find(|v| v.stamp == stamp) {
                v.acked = self.now;
                v.sure |= fua;
            }
        }
    }

    /// A flush is about to be sent; its answer goes to [`History::flush_done`] with the number returned.
    pub fn flush_issued(&self) -> u64 {
        self.now
    }

    /// The flush has been acknowledged.
    pub fn flush_done(&mut self, issued: u64) {
        self.flushed = self.flushed.max(issued);
    }

    /// The service is gone; what is in flight may or may not have happened.
    pub fn crashed(&mut self, crash: Crash) {
        if crash == Crash::Killed {
            return;
        }
        for versions in &mut self.sectors {
            let base = base(versions, self.flushed);
            for v in &mut versions[base + 1..] {
                v.acked = u64::MAX;
            }
            // What is durable stays it, however `flushed` is read later.
            versions[base].sure = true;
        }
    }

    /// Checks what was read from sector `first` on, and holds later reads to it.
    ///
    /// # Errors
    /// The first sector that shows what it must not, and what it might have shown.
    pub fn check(&mut self, first: u64, data: &[u8], after: Option<Crash>) -> Result<(), String> {
        let mut want = [0; SECTOR];
        self.now += 1;
        for (sector, got) in (first..).zip(data.chunks(SECTOR)) {
            let versions = &mut self.sectors[sector as usize];
            let last = versions.iter().rposition(|v| v.acked != u64::MAX).unwrap_or(0);
            let from = shown_from(versions, last);
            let hit = versions[from..].iter().rposition(|v| match v.kind {
                Kind::Write => {
                    pattern(v.stamp, sector, &mut want);
                    want == got
                }
                Kind::Zeroes | Kind::Discard => got.iter().all(|b| *b == 0),
            });
            let Some(hit) = hit else {
                return Err(format!(
                    "sector {sector} (byte {}) reads as {}; it may show {:?}",
                    sector * SECTOR as u64,
                    describe(got),
                    &versions[from..]
                ));
            };
            // Under a discard the content may still change its mind; else what was seen after a crash is what happened.
            if let Some(crash) = after.filter(|_| versions[from..].iter().all(|v| v.kind != Kind::Discard)) {
                let mut seen = versions[from + hit];
                self.stepped_back += u64::from(from + hit + 1 < versions.len());
                seen.acked = seen.acked.min(self.now);
                // After power loss nothing is left that is not durable.
                seen.sure |= crash == Crash::PowerLoss;
                versions.truncate(if seen.sure { 0 } else { from + hit });
                versions.push(seen);
            }
        }
        Ok(())
    }
}

/// The last version that is durable for certain.
fn base(versions: &[Version], flushed: u64) -> usize {
    versions.iter().rposition(|v| v.sure || v.acked <= flushed).unwrap_or(0)
}

/// From which version on a read may show them: `last`, or the content that is certain under a discard.
fn shown_from(versions: &[Version], last: usize) -> usize {
    let certain = |v: &Version| v.kind != Kind::Discard && (v.sure || v.acked != u64::MAX);
    (0..=last).rev().find(|i| certain(&versions[*i])).unwrap_or(0)
}

/// Forgets what can never be seen again.
fn prune(versions: &mut Vec<Version>, flushed: u64) {
    let from = shown_from(versions, base(versions, flushed));
    versions.drain(..from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(stamp: u64) -> Vec<u8> {
        let mut d = vec![0; SECTOR];
        pattern(stamp, 3, &mut d);
        d
    }

    fn may_read(build: impl Fn(&mut History) -> Vec<u64>, show: usize) -> bool {
        let mut h = History::new(8192);
        let stamps = build(&mut h);
        let d = if show == 0 { vec![0; SECTOR] } else { data(stamps[show - 1]) };
        h.check(3, &d, None).is_ok()
    }

    fn write(h: &mut History, acked: bool, fua: bool) -> u64 {
        let s = h.issue(3..4, Kind::Write);
        if acked {
            h.acknowledge(3..4, s, fua);
        }
        s
    }

    #[test]
    fn a_live_volume_shows_the_last_acknowledged_write_only() {
        let two = |h: &mut History| vec![write(h, true, false), write(h, true, false)];
        assert_eq!([0, 1, 2].map(|i| may_read(two, i)), [false, false, true]);
    }

    #[test]
    fn after_power_loss_nothing_older_than_the_flush_shows() {
        let lives = |h: &mut History| {
            let a = write(h, true, false);
            let b = write(h, true, false);
            let t = h.flush_issued();
            h.flush_done(t);
            let (c, d) = (write(h, true, false), write(h, false, false));
            h.crashed(Crash::PowerLoss);
            vec![a, b, c, d]
        };
        assert_eq!([0, 1, 2, 3, 4].map(|i| may_read(lives, i)), [false, false, true, true, true]);
    }

    #[test]
    fn after_a_kill_every_acknowledged_write_is_there() {
        let lives = |h: &mut History| {
            let v = vec![write(h, true, false), write(h, true, false), write(h, false, false)];
            h.crashed(Crash::Killed);
            v
        };
        assert_eq!([0, 1, 2, 3].map(|i| may_read(lives, i)), [false, false, true, true]);
    }

    #[test]
    fn fua_alone_is_durable_and_a_flush_covers_what_came_before() {
        let fua = |h: &mut History| {
            let v = vec![write(h, true, false), write(h, true, true)];
            h.crashed(Crash::PowerLoss);
            v
        };
        assert_eq!([0, 1, 2].map(|i| may_read(fua, i)), [false, false, true]);
        let late = |h: &mut History| {
            let t = h.flush_issued();
            let v = vec![write(h, true, false)];
            h.flush_done(t);
            h.crashed(Crash::PowerLoss);
            v
        };
        assert_eq!([0, 1].map(|i| may_read(late, i)), [true, true]);
    }

    #[test]
    fn a_discarded_sector_shows_zeros_or_its_last_content() {
        let discard = |h: &mut History| {
            let v = vec![write(h, true, true), write(h, true, true)];
            let s = h.issue(3..4, Kind::Discard);
            h.acknowledge(3..4, s, true);
            h.crashed(Crash::PowerLoss);
            v
        };
        assert_eq!([0, 1, 2].map(|i| may_read(discard, i)), [true, false, true]);
    }

    #[test]
    fn what_was_seen_after_power_loss_stays() {
        let mut h = History::new(8192);
        let (a, b) = (write(&mut h, true, false), write(&mut h, true, false));
        h.crashed(Crash::PowerLoss);
        h.check(3, &data(a), Some(Crash::PowerLoss)).unwrap();
        assert!(h.check(3, &data(b), None).is_err());
        h.crashed(Crash::PowerLoss);
        assert!(h.check(3, &data(b), None).is_err() && h.check(3, &data(a), None).is_ok());
    }

    #[test]
    fn a_torn_or_misplaced_sector_is_no_write() {
        let mut h = History::new(8192);
        let s = write(&mut h, true, false);
        let mut torn = data(s);
        torn[256..].fill(0);
        assert!(h.check(3, &torn, None).is_err());
        let mut elsewhere = vec![0; SECTOR];
        pattern(s, 4, &mut elsewhere);
        assert!(h.check(3, &elsewhere, None).is_err());
    }
}
