//! The write path of a pair's volume: native RBD with three copies against fast ack, in one run.
//!
//! The *native* arm is librbd without its cache. The *fast* arm is a volume of a pair in write-back mode: its cache lies on the
//! pair's array, its core is an image in the same pool, and each write is answered once it is durable on the array. Both
//! clients are fio on the lab's client host. The two arms alternate.

mod field;
mod options;
mod outcome;
mod point;
mod run;

pub use options::Options;
pub use outcome::Outcome;
pub use run::run;
