//! Claims about pools: what a crash in any step leaves, what is refused, what garbage does.

mod crash;
mod rig;
mod table;
