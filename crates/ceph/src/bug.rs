//! Steps of the grouped destage left out on request, so that tests can show what each is for. Only compiled with the feature
//! `planted-bugs`; without it nothing can be left out.

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Step {
    /// The write through librbd that comes before the first group of an object.
    Primer = 1,
    /// The demand that the object knows of the newest snapshot.
    Guard = 2,
    /// The snapshot context read again after a snapshot.
    Refresh = 4,
    /// The demand that the object exists.
    Exists = 8,
    /// Being told before somebody takes a snapshot. Counts when an image is taken.
    Quiesce = 16,
    /// The same client instance for librbd and for groups. Counts when an image is taken.
    Instance = 32,
    /// Having the cluster refuse whoever had the image before. Counts when an image is taken.
    Fence = 64,
    /// A primer counts for the epoch in which it was sent, not for that in which its end is noticed.
    Epoch = 128,
    /// The noting of the header's version when a lock has been broken, and everything after it: the attach ends there as a crash
    /// does.
    Noting = 256,
    /// The taking of the lock, and everything after it, likewise.
    Taking = 512,
    /// The header's own sequence: without it that of the newest snapshot there is counts, which goes back when that is removed.
    Sequence = 1024,
    /// Keeping a client from sending once nobody has said for a while that its image is ours. Counts when an image is taken.
    Silence = 2048,
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::Step;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicU16, Ordering};

    static LEFT_OUT: AtomicU16 = AtomicU16::new(0);

    /// From now on these steps are left out for every image of this process, and no others.
    pub fn leave_out(steps: &[Step]) {
        LEFT_OUT.store(steps.iter().fold(0, |all, s| all | *s as u16), Ordering::SeqCst);
    }

    type Visit = Box<dyn FnOnce() + Send>;

    static VISIT: Mutex<Option<Visit>> = Mutex::new(None);

    /// Comes the next time that nobody holds the lock of an image which this process is about to take, or has just let go.
    pub fn visit(by: impl FnOnce() + Send + 'static) {
        *VISIT.lock() = Some(Box::new(by));
    }

    pub(crate) fn nobody_has_it() {
        let visit = VISIT.lock().take();
        if let Some(visit) = visit {
            visit();
        }
    }

    pub(crate) fn is_left_out(step: Step) -> bool {
        LEFT_OUT.load(Ordering::SeqCst) & step as u16 != 0
    }
}

#[cfg(feature = "planted-bugs")]
pub(crate) use planted::{is_left_out, nobody_has_it};
#[cfg(feature = "planted-bugs")]
pub use planted::{leave_out, visit};

/// Nothing can be left out.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is_left_out(_step: Step) -> bool {
    false
}

/// Nobody comes.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn nobody_has_it() {}
