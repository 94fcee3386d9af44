//! Tests across crates: the house rules, real clients, fuzzed decoders and power loss.

#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod blockdev;
pub mod cgroup;
pub mod cli;
pub mod decoders;
pub mod direct;
pub mod fence_claims;
pub mod fio;
pub mod fixture;
pub mod fuzz;
pub mod history;
pub mod lab;
pub mod line;
pub mod load;
pub mod loops;
pub mod lossy;
pub mod machine;
pub mod mounted;
pub mod nbd;
pub mod server;
pub mod shared_array;
pub mod skip;
pub mod ssh;
pub mod tidy;
pub mod vm;
