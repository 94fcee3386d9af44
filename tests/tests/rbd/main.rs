//! Claims about RBD images as cores, on one real cluster for all of them.
//!
//! `LOLIGO_LONG=1` takes the long forms: more rounds, and faults that last as long as in life.

#![allow(clippy::print_stdout)]

mod autopsy;
mod cluster;
mod cut_off;
mod driven;
mod elsewhere;
mod failed_stop;
mod faults;
mod fio;
mod gap;
mod gone;
mod large;
mod late;
mod layouts;
mod left_out;
mod mirror;
mod options;
mod others;
mod partner;
mod power;
mod record;
mod refusals;
mod release;
mod restart;
mod shadow;
mod site;
mod sizes;
mod snapshots;
mod stuck;
mod takeover;
mod told;
mod trims;
mod writer;
