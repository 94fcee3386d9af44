//! Workloads, runners, statistics, reports.

pub mod child;
pub mod demo;
pub mod facts;
pub mod fio;
pub mod interrupt;
pub mod nbd;
pub mod report;
pub mod rng;
pub mod server;
pub mod stats;
pub mod table;
pub mod trace;
pub mod units;
