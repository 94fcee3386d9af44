//! Limits on one client's hold of the server's memory and time.

use std::time::Duration;

/// Bounds on one connection, and on all of a server's together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Requests accepted and not answered; reading stops above it.
    pub in_flight: usize,
    /// Bytes of accepted writes and unsent reads; reading stops above it. A longer request proceeds in pieces.
    pub in_flight_bytes: u64,
    /// Bytes of all connections together.
    pub server_bytes: u64,
    /// Bytes that a connection has to itself, whatever others hold; less where [`Limits::server_bytes`] is too little
    /// for so many connections.
    pub minimum_bytes: u64,
    /// Connections, those included whose client is gone while its requests still run.
    pub connections: usize,
    /// Bytes of a part of a write that is longer, so that the volume need not wait for all of it.
    pub part: usize,
    /// Replies without payload that may wait for the client, in bytes.
    pub output_bytes: usize,
    /// Longest data of an option, in bytes; longer ones are dropped and refused.
    pub option_data: usize,
    /// From connecting to transmission, TLS included.
    pub negotiation: Duration,
    /// Longest time in which a client may move less than [`Limits::STALL_BYTES`] of what is under way.
    pub stall: Duration,
    /// From the order to stop until connections whose client does not read are cut.
    pub shutdown: Duration,
    /// From the order to stop until connections with nothing under way are closed: what a client sent before it could
    /// know still gets its ESHUTDOWN.
    pub linger: Duration,
}

impl Limits {
    /// Bytes that count as progress of a transfer under way.
    pub const STALL_BYTES: u64 = 256 << 10;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            in_flight: 128,
            in_flight_bytes: 64 << 20,
            server_bytes: 512 << 20,
            minimum_bytes: 1 << 20,
            connections: 256,
            // Smaller parts cost more operations than the waiting does: a cluster takes 10 ms for two halves of 1 MiB, and 7 ms for
            // the whole.
            part: 2 << 20,
            output_bytes: 256 << 10,
            option_data: 64 << 10,
            negotiation: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            shutdown: Duration::from_secs(5),
            linger: Duration::from_millis(100),
        }
    }
}
