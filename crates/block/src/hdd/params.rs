//! The figures of a modelled disk.

use crate::SECTOR;

/// Spindle speeds with a calibrated preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rpm {
    /// 7,200 revolutions per minute: nearline SATA and SAS.
    R7200,
    /// 10,000 revolutions per minute: performance SAS.
    R10000,
}

impl Rpm {
    /// From the number, if there is a preset for it.
    pub fn from_number(n: u64) -> Option<Rpm> {
        match n {
            7200 => Some(Rpm::R7200),
            10000 => Some(Rpm::R10000),
            _ => None,
        }
    }

    /// Revolutions per minute.
    pub fn number(self) -> u64 {
        match self {
            Rpm::R7200 => 7200,
            Rpm::R10000 => 10000,
        }
    }
}

/// Timing of a disk; times in nanoseconds. Distances are fractions of the modelled size, so a small file spans the
/// full stroke.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HddParams {
    /// One revolution.
    pub revolution: u64,
    /// Bytes that pass the head in one revolution; a multiple of a sector.
    pub track: u64,
    /// To the neighbouring track, settled.
    pub switch: u64,
    /// By how much the first sector of a track lies behind the last of the one before; more than `switch` plus
    /// `overhead`, so that the next command just catches it.
    pub skew: u64,
    /// The shortest seek beyond the neighbouring track, extrapolated to no distance: acceleration and settling.
    pub seek_base: u64,
    /// A seek over the fraction `knee` of the stroke; up to there it grows with the square root of the distance.
    pub seek_knee: u64,
    /// Fraction of the stroke from which on the arm coasts and a seek grows linearly.
    pub knee: f64,
    /// From the first track to the last.
    pub seek_full: u64,
    /// Controller time for each command. A command that finds the disk idle pays it while the platter turns; for one
    /// that was queued it is pure cost: the platter's clock stops, so that neighbours in the queue are written in one
    /// turn, as firmware that plans ahead does, but each still costs its controller time.
    pub overhead: u64,
    /// Time of a command that touches no medium (discard, write zeroes).
    pub metadata: u64,
    /// Commands the disk chooses from.
    pub queue: usize,
    /// A command that has waited this long goes before all others.
    pub patience: u64,
    /// Bytes the disk reads ahead of the last read while it has nothing else to do.
    pub read_ahead: u64,
    /// Nanoseconds per KiB from the disk's buffer to the host.
    pub bus_per_kib: u64,
    /// Writes at least this long that follow each other are one stream: see `stream_gap`.
    pub stream_min: u64,
    /// The next write of a stream may come this late without losing a revolution. Disks lay such a stream through
    /// their segment buffer; without it, large writes one by one would each wait a turn.
    pub stream_gap: u64,
}

impl HddParams {
    /// The preset for a spindle speed, with `track` bytes per track (rounded down to sectors, at least one).
    ///
    /// Calibrated on: 4 KiB random at 7,200 rpm 80/s one by one and 170-215/s at 32 outstanding, 105 MB/s sequential
    /// with 1 MiB tracks; at 10,000 rpm 311-350/s at 32 outstanding (a measured drive did 335/s).
    pub fn preset(rpm: Rpm, track: u64) -> HddParams {
        let common = HddParams {
            revolution: 60_000_000_000 / rpm.number(),
            track: (track / SECTOR * SECTOR).max(SECTOR),
            switch: 1_400_000,
            skew: 1_600_000,
            seek_base: 1_700_000,
            seek_knee: 5_900_000,
            knee: 0.15,
            seek_full: 17_200_000,
            overhead: 30_000,
            metadata: 50_000,
            queue: 32,
            patience: 1_000_000_000,
            read_ahead: 8 << 20,
            bus_per_kib: 1_900,
            stream_min: 64 << 10,
            stream_gap: 1_000_000,
        };
        match rpm {
            Rpm::R7200 => common,
            Rpm::R10000 => HddParams {
                switch: 900_000,
                skew: 1_050_000,
                seek_base: 850_000,
                seek_knee: 3_150_000,
                seek_full: 9_000_000,
                ..common
            },
        }
    }

    /// Nanoseconds of arm movement over `distance` of `tracks` tracks.
    pub(super) fn seek(&self, distance: u64, tracks: u64) -> u64 {
        match distance {
            0 => 0,
            1 => self.switch,
            _ => {
                let f = distance as f64 / tracks as f64;
                let (base, knee, full) =
                    (self.seek_base as f64, self.seek_knee as f64, self.seek_full as f64);
                let ns = if f < self.knee {
                    base + (knee - base) * (f / self.knee).sqrt()
                } else {
                    knee + (full - knee) * (f - self.knee) / (1.0 - self.knee)
                };
                ns as u64
            }
        }
    }

    /// Nanoseconds from the start of the first track to the start of the sector at `offset`, all read in one go. Modulo
    /// a revolution this is its angle.
    pub(super) fn media_start(&self, offset: u64) -> u64 {
        let (track, inside) = (offset / self.track, offset % self.track);
        track * (self.revolution + self.skew) + self.within(inside)
    }

    /// The same to the end of the sector before `offset`, which lies before the skew where a track ends there.
    pub(super) fn media_end(&self, offset: u64) -> u64 {
        if offset == 0 {
            return 0;
        }
        let (track, inside) = ((offset - 1) / self.track, (offset - 1) % self.track + 1);
        track * (self.revolution + self.skew) + self.within(inside)
    }

    fn within(&self, bytes: u64) -> u64 {
        (bytes as u128 * self.revolution as u128 / self.track as u128) as u64
    }
}
