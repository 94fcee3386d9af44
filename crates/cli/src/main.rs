//! `loligo`: the command line.

fn main() {}
