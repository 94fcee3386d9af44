//! Life cycle of a served volume, control socket and metrics
