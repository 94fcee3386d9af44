//! Files of rules that cannot be used.

/// The version of the files.
pub(super) const VERSION: u32 = 1;

/// A file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the rules of {file} cannot be used: {why}")]
pub struct BadRules {
    /// The file.
    pub file: String,
    /// The first thing that is wrong, with the rule.
    pub why: String,
}
