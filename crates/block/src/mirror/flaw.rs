//! Rules of a mirror broken on request, so that the simulator can show what each is for. None is broken unless this is compiled
//! with the feature `planted-bugs`.

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// An acknowledgement waits for one leg.
    AckBeforeMirror,
    /// An acknowledgement without a leg does not wait for the note that it is left.
    AckBeforeNote,
    /// A leg is left without a note.
    NoNote,
    /// A region is copied while writes to it are under way.
    CopyUnderWrites,
    /// Writes beside a copy go to the sound leg alone.
    JoinSkipsWrites,
    /// A leg joins while operations that it never answered may still land.
    JoinBesideLate,
    /// A leg joins without the note that it is stale.
    NoStaleNote,
    /// A leg that has joined is noted without a flush before.
    NoteUnflushed,
    /// The joining leg is noted as in step before the sound one.
    JoinedLegFirst,
    /// A read goes to the local leg, whatever it holds.
    ReadStale,
    /// A flush goes to one leg.
    FlushOneLeg,
    /// The local leg is believed at an open, whatever the notes say.
    LocalAlwaysWins,
    /// A leg that is alone reachable is believed, whatever its note says.
    AloneUnasked,
    /// Two legs of one generation are believed after a crash.
    CrashForgotten,
    /// A leg that the array has fenced is left like one that failed.
    FenceIsLoss,
}

/// The rules that a mirror breaks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flaws {
    #[cfg(feature = "planted-bugs")]
    flaws: Vec<Flaw>,
}

#[cfg(feature = "planted-bugs")]
impl Flaws {
    /// These rules.
    pub fn of(flaws: &[Flaw]) -> Flaws {
        Flaws { flaws: flaws.to_vec() }
    }

    /// True if this rule is broken.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaws.contains(&flaw)
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Flaws {
    /// Nothing can be broken.
    pub fn of(_flaws: &[Flaw]) -> Flaws {
        Flaws {}
    }

    /// False.
    pub const fn has(&self, _flaw: Flaw) -> bool {
        false
    }
}
