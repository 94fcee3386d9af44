//! The speed of hosts' links.

use crate::layout::Layout;
use crate::namespaces;
use crate::state::State;
use anyhow::{Result, ensure};
use std::path::Path;

/// Limits the public link of each host of a lab to so many megabits a second, in both directions; nothing: lets it go as fast
/// as it can.
///
/// # Errors
/// If there is no lab, it has no hosts, or `tc` is missing or fails.
pub fn limit(dir: &Path, megabits: Option<u32>) -> Result<()> {
    let state = State::of(&Layout::at(dir)?)?;
    ensure!(!state.namespaces.is_empty(), "the lab has no hosts whose links could be limited");
    namespaces::limit_links(&state, megabits)
}
