//! The tuner: facts of a cluster and its hosts, rules as data, and plans with reason and evidence.

pub mod apply;
mod ceph_file;
mod counted;
pub mod cpus;
pub mod expression;
pub mod facts;
pub mod gather;
pub mod measure;
mod nearest;
pub mod partition;
pub mod plan;
pub mod rules;
#[cfg(test)]
mod small_tree;

pub use counted::{counted, is_or_are};
pub use nearest::did_you_mean;
