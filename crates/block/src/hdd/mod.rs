//! A spinning disk: where the heads are, what passes under them, and what that costs. [`HddModel`] keeps the time and
//! nothing else, so a simulation can run it on a virtual clock; [`HddDevice`] holds back the completions of another
//! device by the same model on the real one.

mod device;
mod model;
mod params;

pub use device::HddDevice;
pub use model::{Finished, HddKind, HddModel};
pub use params::{HddParams, Rpm};
