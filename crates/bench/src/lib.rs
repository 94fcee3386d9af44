//! Workloads, runners, statistics, reports.

pub mod bed;
pub mod cliff;
mod cpu;
pub mod demo;
mod direct_disk;
mod drive;
pub mod engine;
pub mod facts;
pub mod figure;
pub mod fio;
mod folder;
pub mod foreground;
pub mod fuse;
mod in_process;
pub mod latency;
pub mod many;
pub mod marks;
pub mod nbd;
pub mod nbd_ab;
pub mod null;
pub mod osd;
pub mod overhead;
pub mod pair;
pub mod rbd;
pub mod report;
pub mod restart;
pub mod rng;
pub mod server;
pub mod stats;
pub mod table;
pub mod trace;
pub mod units;
mod unknown_disk;
pub mod virtual_cliff;
mod watch;

pub use loligo_lab::{child, interrupt};
