//! Claims about RBD images as cores, on one real cluster for all of them.
//!
//! `LOLIGO_LONG=1` takes the long forms: more rounds, and faults that last as long as in life.

mod cluster;
mod faults;
mod left_out;
mod refusals;
mod restart;
mod shadow;
mod site;
mod snapshots;
mod takeover;
mod writer;
