//! Entry points for fuzzers: arbitrary bytes against the state machines, with a volume that answers everything.
//! The targets in `fuzz/` share it.

use loligo_block::{Answer, Buf, Extent, ReqError, ReqKind, Request};
use loligo_export::ConnId;
use loligo_export::nbd::{Budget, Conn, Export, Limits, MAX_SLICES, PeerUse, proto};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

const SIZE: u64 = 8 << 20;
/// Bytes that one connection may hold here.
const HELD: u64 = 256 << 10;
/// Largest read or write.
const BLOCK: u32 = 1 << 20;

/// Feeds `bytes` to a fresh connection. The first byte chooses how they are cut into pieces, and whether TLS is on.
///
/// # Panics
/// When the connection holds more than its limits allow, or loses track of what it holds.
pub fn fuzz_negotiation(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    run(first, &[], bytes);
}

/// Feeds `bytes` to a connection in transmission, with structured replies and base:allocation negotiated when the
/// first byte is odd.
///
/// # Panics
/// As [`fuzz_negotiation`].
pub fn fuzz_transmission(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut hello = vec![0, 0, 0, 3];
    let mut option = |opt: u32, data: &[u8]| {
        hello.extend(proto::OPTION_MAGIC.to_be_bytes());
        hello.extend(opt.to_be_bytes());
        hello.extend((data.len() as u32).to_be_bytes());
        hello.extend(data);
    };
    if first & 1 == 1 {
        option(proto::option::STRUCTURED_REPLY, &[]);
        let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, proto::BASE_ALLOCATION.len() as u8];
        query.extend(proto::BASE_ALLOCATION.as_bytes());
        option(proto::option::SET_META_CONTEXT, &query);
    }
    option(proto::option::GO, &[0, 0, 0, 0, 0, 0]);
    run(first & 0x7f, &hello, bytes);
}

fn run(first: u8, hello: &[u8], bytes: &[u8]) {
    // With few common bytes, so that long reads go in pieces at times.
    let limits = Limits {
        connections: 1,
        server_bytes: HELD,
        minimum_bytes: 64 << 10,
        in_flight: 8,
        in_flight_bytes: HELD,
        part: 4 << 10,
        output_bytes: 64 << 10,
        option_data: 4096,
        ..Limits::default()
    };
    let mut export = Export::new("disk", SIZE).with_min_block(if first & 2 == 2 { 4096 } else { 512 });
    export.max_block = BLOCK;
    export.read_only = first & 4 == 4;
    export.fast_zero = first & 8 == 8;
    let (budget, now) = (Budget::new(&limits), Instant::now());
    let share = budget.share(&PeerUse::default());
    let mut conn = Conn::new(
        Arc::new(export),
        Arc::new(limits),
        share,
        first & 0x80 != 0,
        ConnId::from_u64(1 << 16).expect("a generation"),
        now,
    );
    let mut requests = Vec::new();
    let piece = [1 << 20, 7, 29, 4096][usize::from(first >> 4 & 3)];
    for part in hello.chunks(1 << 20).chain(bytes.chunks(piece)) {
        feed(&mut conn, part, now, &mut requests);
    }
    conn.end_of_input();
    turn(&mut conn, now, &mut requests);
    assert!(conn.finished().is_some(), "everything is answered, so nothing keeps the connection");
    assert_eq!(conn.held_bytes(), 0, "everything is sent, so nothing is held");
    drop(conn);
    assert_eq!(budget.common_used(), 0);
}

fn feed(conn: &mut Conn, mut part: &[u8], now: Instant, requests: &mut Vec<Request>) {
    while !part.is_empty() {
        let Some(target) = conn.recv_target() else {
            turn(conn, now, requests);
            if !conn.wants_read() {
                return;
            }
            continue;
        };
        let n = target.len().min(part.len());
        target[..n].copy_from_slice(&part[..n]);
        part = &part[n..];
        conn.received(n, now, requests);
        assert!(conn.held_bytes() <= HELD && conn.in_flight() <= 8);
        if requests.len() > 4 {
            turn(conn, now, requests);
        }
    }
}

/// Answers everything, sends everything, and takes up what was held back until nothing moves.
fn turn(conn: &mut Conn, now: Instant, requests: &mut Vec<Request>) {
    loop {
        for r in requests.drain(..) {
            assert!(r.offset + r.len <= SIZE && r.offset.is_multiple_of(512) && r.len.is_multiple_of(512));
            let result = match &r.kind {
                _ if r.offset & 0x2000 != 0 => Err(ReqError::Unsupported),
                ReqKind::Read => {
                    Ok(Answer::Data(std::iter::once(Buf::alloc(r.len as usize).freeze()).collect()))
                }
                ReqKind::Status => {
                    Ok(Answer::Extents(vec![Extent { len: r.len, allocated: true, zero: false }]))
                }
                _ => Ok(Answer::Done),
            };
            conn.answer(r.id, result);
        }
        while conn.wants_write() {
            assert!(conn.unsent_bytes() < 4 << 20, "output is bounded");
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = conn.gather(&mut slices);
            let n = slices[..used].iter().map(|s| s.len()).sum();
            conn.sent(n, now);
        }
        if !conn.is_paused() {
            return;
        }
        conn.resume(now, requests);
    }
}
