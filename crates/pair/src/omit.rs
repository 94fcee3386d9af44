//! Steps of a takeover left out on request, so that the simulator can show what each is for. Nothing is left out unless the plan
//! was made with the feature `planted-bugs`.

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// The fence of a data LUN before its unit is started.
    Fence = 1,
    /// The race on the quorum LUN before the data LUNs.
    Race = 2,
    /// A monitor that has answered right before a takeover.
    Monitor = 4,
    /// The partner's sector as evidence beside the links.
    SecondEvidence = 8,
    /// The question whether the partner's OSDs speak.
    Speaks = 16,
    /// The word to the monitors that the OSD is down.
    Down = 32,
    /// A confirmed death before `--definitely-dead`.
    Death = 64,
    /// The look at keys before a command to the monitors and before a start.
    Owner = 128,
    /// The pause after a takeover that failed.
    Backoff = 256,
    /// The question at start whether this side is fenced.
    FencedAtStart = 512,
    /// The end of what runs here once the side's key is gone.
    EndWhenFenced = 1024,
    /// The partner's giveback before this side takes its units back.
    Giveback = 2048,
    /// The processes that were found running when the agent started.
    Adopt = 4096,
    /// A partner that has no monitor counts only if this side has had one for a while.
    SteadyMonitor = 16_384,
    /// The reading back after a fence. Carried out by who carries actions out.
    ReadBack = 32_768,
    /// The abort of the partner's writes under way. Carried out by who carries actions out.
    Abort = 65_536,
    /// A command to the monitors that hung before it was sent is not sent any more. Carried out by who carries actions out.
    InTime = 131_072,
}

/// The steps that a plan leaves out: none, unless this is compiled with the feature `planted-bugs`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Omitted {
    #[cfg(feature = "planted-bugs")]
    steps: Vec<Step>,
}

#[cfg(feature = "planted-bugs")]
impl Omitted {
    /// These steps.
    pub fn of(steps: &[Step]) -> Omitted {
        Omitted { steps: steps.to_vec() }
    }

    pub(crate) fn has(&self, step: Step) -> bool {
        self.steps.contains(&step)
    }
}

#[cfg(not(feature = "planted-bugs"))]
impl Omitted {
    /// Nothing can be left out.
    pub fn of(_steps: &[Step]) -> Omitted {
        Omitted {}
    }

    pub(crate) const fn has(&self, _step: Step) -> bool {
        false
    }
}
