//! Faults of a lab, made on purpose and mended.
//!
//! A fault is written down before it is done. [`mend`] undoes what is written, and nothing else.

mod deed;
mod make;
mod plan;
mod power;
mod record;

pub(crate) use make::in_force;
pub use make::{Meant, fail, mend, now_ms};
pub use plan::{Deed, Kind};
pub use power::{is_on, switch_off, switch_on};
pub use record::Fault;
pub(crate) use record::{forget, is_off, read};
