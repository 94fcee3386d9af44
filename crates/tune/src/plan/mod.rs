//! A plan: what the rules say of these facts, with the present value of each thing that is to be changed.

mod already;
mod document;
mod now;
mod subjects;
mod weigh;

pub use already::{Look, Seen, already};
pub use document::{Change, Finding, Other, Plan, Proposal, Purpose, Unknown};
pub use now::{Now, Running, is_of, is_same};
