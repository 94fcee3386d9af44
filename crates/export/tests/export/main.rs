//! Claims about the NBD server: protocol, limits, sockets, TLS, real clients, fuzzing.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod clients;
mod common;
mod entry;
mod fuzz;
mod limits;
mod listen;
mod parts;
mod protocol;
mod server;
mod tls;
