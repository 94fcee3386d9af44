//! Claims about `loligo osd`, with the system's own Ceph: OSDs made on cached volumes, killed under load, and taken away.

mod life;
mod refusals;
mod site;
