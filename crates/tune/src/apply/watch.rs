//! The watcher of a run.

/// The watcher of a run.
pub trait Watch: std::fmt::Debug {
    /// Says what is done.
    fn say(&self, words: &str);
    /// True once the run is to stop before its next step.
    fn is_interrupted(&self) -> bool;
}
