//! Two controllers, their array and the monitors in a seeded world: faults at any moment, and what must never happen.
//!
//! The machines are those of the product; the LUNs are those of the lab's array. One seed draws everything.

mod array;
mod call;
mod check;
mod faults;
mod host;
mod monitors;
mod processes;
mod scenario;
mod setting;
mod told;
mod trouble;
mod world;

pub use faults::{Fault, FaultKind};
pub use scenario::{Outcome, Scenario, run};
pub use setting::Time;
pub use world::Violation;
