//! Claims about `loligo osd`, with the system's own Ceph: OSDs made on cached volumes or put on them, killed under load, and taken away.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod adopt;
mod apart;
mod lab;
mod life;
mod refusals;
mod site;
