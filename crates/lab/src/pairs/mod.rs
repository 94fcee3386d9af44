//! Labs of pairs: each node has an array and two controllers that share it, as network namespaces.

pub(crate) mod agents;
pub mod array;
pub(crate) mod begin;
pub(crate) mod daemons;
pub(crate) mod description;
pub(crate) mod osds;
pub mod place;
pub(crate) mod pools;
pub mod side;
pub mod store;
