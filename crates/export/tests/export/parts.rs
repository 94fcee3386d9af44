//! Very long writes, which reach the volume in parts.

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

/// Where the requests that the volume has begin, and how long they are.
fn ranges(t: &Talk) -> Vec<(u64, u64)> {
    t.requests.iter().map(|r| (r.offset, r.len)).collect()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 512 * 7 + n) as u8).collect()
}

#[test]
fn the_volume_has_the_first_part_of_a_long_write_before_the_client_has_sent_the_rest() {
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
fn every_part_has_the_writes_flag_and_what_is_not_longer_than_one_goes_whole() {
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
fn a_part_that_fails_fails_the_write_once_when_all_parts_are_over() {
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
fn a_write_of_more_parts_than_there_are_places_waits_for_the_first_and_goes_on() {
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
fn a_stop_in_the_middle_refuses_the_write_and_a_client_that_goes_leaves_nothing_held() {
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
