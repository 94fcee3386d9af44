//! Claims about the daemon: many volumes in one process, what it remembers, what it refuses, who may ask it.

#![allow(clippy::print_stdout)]

mod api;
mod belongs;
mod core_fails;
mod descriptors;
mod ended;
mod fenced;
mod fio;
mod forget;
mod gone;
mod hangs;
mod journal;
mod json;
mod label;
mod life;
mod live;
mod log;
mod newcomer;
mod notes;
mod pool;
mod random;
mod reload;
mod sections;
mod site;
mod supervisor;
mod told;
mod users;
