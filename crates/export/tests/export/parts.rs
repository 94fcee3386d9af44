//! Very long writes, which reach the volume in parts, and long requests where others leave no room for the whole.

use crate::common::client::{Got, replies, request, write};
use crate::common::{SIZE, Talk};
use loligo_block::{ReqError, ReqKind};
use loligo_export::nbd::Closed;
use loligo_export::{Export, Limits};

const MIB: usize = 1 << 20;
/// Bytes of the header.
const HEAD: usize = 28;

fn talk(limits: Limits) -> Talk {
    Talk::transmission(Export::new("disk", SIZE as u64), limits, false)
}

/// Offsets and lengths of the requests that the volume has.
fn ranges(t: &Talk) -> Vec<(u64, u64)> {
    t.requests.iter().map(|r| (r.offset, r.len)).collect()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 512 * 7 + n) as u8).collect()
}

#[test]
fn the_first_part_of_a_long_write_comes_before_the_rest_is_sent() {
    let mut t = talk(Limits::default());
    let data = content(8 * MIB);
    let sent = write(0, 7, 8192, &data);
    t.hand_in(&sent[..HEAD + 4 * MIB]);
    assert_eq!(ranges(&t), [(8192, 2 << 20), (8192 + (2 << 20), 2 << 20)]);
    t.answer_all();
    assert_eq!(t.take_output(), [0; 0], "answered before all of it is there");
    assert_eq!(replies(&t.say(&sent[HEAD + 4 * MIB..]), 0), [Got::Simple(7, 0, vec![])]);
    assert_eq!(
        replies(&t.say(&request(0, 0, 8, 8192, data.len() as u32)), data.len()),
        [Got::Simple(8, 0, data)]
    );
    assert_eq!(t.conn.held_bytes(), 0);
}

#[test]
fn every_part_has_the_writes_flag_and_a_short_write_goes_whole() {
    let mut t = talk(Limits::default());
    let odd = 4 * MIB + 1536;
    t.hand_in(&[write(1, 1, 512, &content(odd)), write(0, 2, 0, &content(2 * MIB))].concat());
    let at = |n: usize| 512 + (n * MIB) as u64;
    assert_eq!(ranges(&t), [(at(0), 2 << 20), (at(2), 2 << 20), (at(4), 1536), (0, 2 << 20)]);
    assert_eq!(t.requests.iter().map(|r| r.fua).collect::<Vec<_>>(), [true, true, true, false]);
    t.answer_all();
    assert_eq!(replies(&t.take_output(), 0).len(), 2);
    assert_eq!((t.conn.in_flight(), t.conn.held_bytes()), (0, 0));
}

#[test]
fn a_failed_part_fails_the_write_once_when_all_parts_are_over() {
    let mut t = talk(Limits::default());
    t.hand_in(&write(0, 1, 0, &content(8 * MIB)));
    let parts: Vec<_> = t.requests.drain(..).map(|r| r.id).collect();
    assert_eq!(parts.len(), 4);
    let done = || Ok(loligo_block::Answer::Done);
    t.conn.answer(parts[2], Err(ReqError::NoSpace));
    t.conn.answer(parts[0], done());
    t.conn.answer(parts[3], Err(ReqError::Io));
    assert_eq!(t.take_output(), [0; 0]);
    t.conn.answer(parts[1], done());
    assert_eq!(replies(&t.take_output(), 0), [Got::Simple(1, 28, vec![])], "the first refusal counts");
    assert_eq!(t.conn.held_bytes(), 0);
}

#[test]
fn a_write_of_more_parts_than_places_waits_and_goes_on() {
    let mut t = talk(Limits { in_flight: 2, ..Limits::default() });
    let data = content(8 * MIB);
    let sent = write(0, 1, 0, &data);
    let used = t.hand_in(&sent);
    assert_eq!((t.requests.len(), t.conn.wants_read(), used), (2, false, HEAD + 6 * MIB));
    assert_eq!(t.conn.next_deadline(), None, "it is not the client who is slow");
    t.answer_all();
    t.conn.resume(t.now, &mut t.requests);
    assert_eq!(replies(&t.say(&sent[used..]), 0), [Got::Simple(1, 0, vec![])]);
    let read = t.say(&request(0, 0, 2, 0, data.len() as u32));
    assert_eq!(replies(&read, data.len()), [Got::Simple(2, 0, data)]);
}

#[test]
fn a_stop_mid_write_refuses_it_and_a_lost_client_holds_nothing() {
    let sent = write(0, 1, 0, &content(4 * MIB));
    let mut t = talk(Limits::default());
    t.hand_in(&sent[..3 * MIB]);
    t.conn.shutdown(t.now);
    t.hand_in(&sent[3 * MIB..]);
    assert!(
        matches!(t.requests[..], [ref r] if matches!(r.kind, ReqKind::Write(_))),
        "later parts do not arrive"
    );
    assert_eq!(t.take_output(), [0; 0]);
    t.answer_all();
    assert_eq!(replies(&t.take_output(), 0), [Got::Simple(1, 108, vec![])]);
    assert_eq!(t.conn.held_bytes(), 0);

    let mut t = talk(Limits::default());
    t.hand_in(&sent[..3 * MIB]);
    t.conn.end_of_input();
    assert_eq!(t.conn.finished(), None, "what is accepted is written");
    t.answer_all();
    assert_eq!((t.conn.finished(), t.conn.held_bytes()), (Some(Closed::ByClient), 0));
    let mut t = talk(Limits::default());
    t.hand_in(&sent[..3 * MIB]);
    t.conn.close(Closed::Socket);
    t.answer_all();
    assert_eq!(t.conn.held_bytes(), 0);
}

/// Nothing is common, so that each connection has its minimum of 1 MiB alone.
fn crowded(structured: bool) -> Talk {
    let limits = Limits { connections: 8, server_bytes: 8 << 20, ..Limits::default() };
    Talk::transmission(Export::new("disk", SIZE as u64), limits, structured)
}

const LONG: usize = 3 * MIB + 1536;

#[test]
fn a_crowded_server_answers_long_requests_in_pieces() {
    for structured in [false, true] {
        let mut t = crowded(structured);
        let data = content(LONG);
        let sent = write(0, 1, 512, &data);
        let used = t.hand_in(&sent);
        assert_eq!(ranges(&t), [(512, 1 << 20)], "a part of the minimum's length");
        assert!(!t.conn.wants_read() && t.conn.held_bytes() == 1 << 20);
        t.answer_all();
        t.conn.resume(t.now, &mut t.requests);
        assert_eq!(replies(&t.say(&sent[used..]), 0), [Got::Simple(1, 0, vec![])]);
        let asked = [request(0, 0, 2, 512, LONG as u32), request(0, 3, 3, 0, 0)].concat();
        let used = t.hand_in(&asked);
        assert_eq!(ranges(&t), [(512, 1 << 20)]);
        let mut got = t.say(&[]);
        got.extend(t.say(&asked[used..]));
        let (read, flushed) = got.split_at(got.len() - 16);
        assert_eq!(
            replies(flushed, 0),
            [Got::Simple(3, 0, vec![])],
            "what was asked later is answered later"
        );
        let pieces = replies(read, LONG);
        if structured {
            let chunks = pieces.iter().map(|p| match p {
                Got::Chunk(2, flags, 1, bytes) => (*flags, bytes[8..].to_vec()),
                other => panic!("{other:?}"),
            });
            let (flags, bytes): (Vec<_>, Vec<_>) = chunks.unzip();
            assert_eq!((flags, bytes.concat()), (vec![0, 0, 0, 1], data));
        } else {
            assert_eq!(pieces, [Got::Simple(2, 0, data)]);
        }
        assert_eq!((t.conn.in_flight(), t.conn.held_bytes()), (0, 0));
    }
}

#[test]
fn a_piece_that_fails_is_told_of_where_the_reply_has_room() {
    for (structured, flags, first, closes) in
        [(true, 0, false, false), (true, 4, false, true), (false, 0, false, true), (false, 0, true, false)]
    {
        let mut t = crowded(structured);
        t.hand_in(&request(flags, 0, 2, 0, LONG as u32));
        if !first {
            t.answer_all();
            t.take_output();
            t.conn.resume(t.now, &mut t.requests);
        }
        let id = t.requests.drain(..).next().unwrap().id;
        t.conn.answer(id, Err(ReqError::Io));
        let ended = closes.then_some(Closed::ReadFailed);
        assert_eq!((t.conn.finished(), t.conn.held_bytes()), (ended, 0), "{structured} {flags} {first}");
        if !closes {
            assert!(!t.take_output().is_empty(), "an error");
            assert_eq!(t.say(&request(0, 3, 3, 0, 0)).len(), 16, "and the connection goes on");
        }
    }
}

#[test]
fn a_client_that_says_goodbye_still_gets_all_pieces() {
    let mut t = crowded(false);
    t.hand_in(&[request(0, 0, 2, 0, LONG as u32), request(0, 2, 3, 0, 0)].concat());
    t.conn.end_of_input();
    t.conn.shutdown(t.now);
    assert_eq!(t.say(&[]).len(), 16 + LONG);
    assert_eq!(t.conn.finished(), Some(Closed::ByClient));
}
