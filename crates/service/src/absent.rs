//! The one refusal that mends itself: a device that is not there, and may come.

/// A cache or core that is not there.
#[derive(Debug)]
pub(crate) struct Absent(pub(crate) String);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}
