//! A pool at work: one cache device that many cores share.
//!
//! The engine stays that of one core, with a superblock, a journal, checkpoints and slots of its own: so one core's load, dirty
//! data and damage are its own. The device is cut into extents; who has which stands in one table that changes as a whole or not
//! at all ([`store`]). [`balance`] says who should have how many. Decision 0020 has the reasons.

pub mod balance;
pub mod offline;
pub mod store;

pub use store::Pool;
