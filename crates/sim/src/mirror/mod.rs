//! A mirrored device in a seeded world: legs that fail, fall silent and are lost, crashes and power cuts at any moment, and
//! what must never happen. The machine is that of the product; a block is the number of the last write to it.

mod disk;
mod oracle;
mod scenario;
mod work;
mod world;

pub use scenario::{Outcome, Scenario};
pub use world::run;
