//! Limits on a slow, greedy or vanished client.

use crate::common::client::{option, replies, request, write};
use crate::common::{SIZE, Talk};
use loligo_export::nbd::Closed;
use loligo_export::{Export, Limits};
use std::time::Duration;

fn talk(limits: Limits) -> Talk {
    Talk::transmission(Export::new("disk", SIZE as u64), limits, false)
}

#[test]
fn reading_pauses_at_the_limit_and_goes_on_with_the_answers() {
    let mut t = talk(Limits { in_flight: 4, ..Limits::default() });
    let many: Vec<u8> = (0..100).flat_map(|c| write(0, c, c * 512, &[c as u8; 512])).collect();
    let used = t.hand_in(&many);
    assert_eq!((t.requests.len(), t.conn.wants_read()), (4, false));
    assert!(used < 200 << 10);
    t.answer_all();
    let mut back = t.take_output();
    t.conn.resume(t.now, &mut t.requests);
    back.extend(t.say(&many[used..]));
    assert_eq!(replies(&back, 0).len(), 100);
}

#[test]
fn reads_that_nobody_takes_hold_no_more_than_the_allowance() {
    let limits = Limits { in_flight_bytes: 4 << 20, ..Limits::default() };
    let mut t = talk(limits);
    let many: Vec<u8> = (0..64).flat_map(|c| request(0, 0, c, 0, 1 << 20)).collect();
    t.hand_in(&many);
    for _ in 0..10 {
        t.answer_all();
        t.conn.resume(t.now, &mut t.requests);
    }
    assert_eq!((t.conn.held_bytes(), t.conn.in_flight(), t.conn.wants_read()), (4 << 20, 0, false));
    assert!(t.conn.unsent_bytes() <= (4 << 20) + 64);
    assert_eq!(replies(&t.say(&[]), 1 << 20).len(), 64);
    assert_eq!(t.conn.held_bytes(), 0);
}

#[test]
fn answers_that_nobody_takes_are_bounded_as_well() {
    let mut t = talk(Limits { output_bytes: 8 << 10, ..Limits::default() });
    let bad = request(0, 99, 1, 0, 0);
    let flood: Vec<u8> = bad.iter().copied().cycle().take(bad.len() * 100_000).collect();
    let used = t.hand_in(&flood);
    assert!(!t.conn.wants_read() && used < 300 << 10, "{used}");
    assert!(t.conn.unsent_bytes() < 10 << 10);
    let options = Limits { output_bytes: 8 << 10, ..Limits::default() };
    let mut t = Talk::new(Export::new("disk", 1 << 20), options, false);
    t.hand_in(&[0, 0, 0, 3]);
    let flood: Vec<u8> = (0..10_000).flat_map(|_| option(3, &[])).collect();
    t.hand_in(&flood);
    assert!(!t.conn.wants_read() && t.conn.unsent_bytes() < 10 << 10);
}

#[test]
fn one_request_beyond_the_allowance_is_served_alone() {
    let mut t = talk(Limits { in_flight_bytes: 64 << 10, ..Limits::default() });
    let got = t.say(&[request(0, 0, 1, 0, 1 << 20), request(0, 0, 2, 0, 1 << 20)].concat());
    assert_eq!(replies(&got, 1 << 20).len(), 2);
}

#[test]
fn a_handshake_that_is_not_done_in_time_ends_the_connection() {
    let mut t = Talk::new(Export::new("disk", 1 << 20), Limits::default(), false);
    let due = t.conn.next_deadline().unwrap();
    assert_eq!(due, t.now + Duration::from_secs(10));
    t.now += Duration::from_secs(9);
    t.say(&[0, 0, 0, 3]);
    t.conn.tick(due - Duration::from_millis(1));
    assert_eq!(t.conn.finished(), None);
    t.conn.tick(due);
    assert_eq!(t.conn.finished(), Some(Closed::Handshake));
}

#[test]
fn an_idle_client_may_stay_and_a_half_sent_request_may_not() {
    let mut t = talk(Limits::default());
    t.say(&request(0, 3, 1, 0, 0));
    assert_eq!(t.conn.next_deadline(), None);
    for half in [request(0, 0, 1, 0, 512)[..20].to_vec(), write(0, 1, 0, &[1; 1 << 20])[..500_000].to_vec()] {
        let mut t = talk(Limits::default());
        t.say(&half);
        let due = t.conn.next_deadline().unwrap();
        assert_eq!(due, t.now + Duration::from_secs(60));
        t.conn.tick(due);
        assert_eq!((t.conn.finished(), t.conn.held_bytes()), (Some(Closed::Stalled), 0));
    }
}

#[test]
fn a_client_that_takes_no_answer_is_cut_and_its_memory_freed() {
    let mut t = talk(Limits::default());
    t.hand_in(&request(0, 0, 1, 0, 16 << 20));
    t.answer_all();
    t.conn.sent(100, t.now);
    // A trickle does not count as progress.
    t.now += Duration::from_secs(59);
    t.conn.sent(100, t.now);
    t.conn.tick(t.now + Duration::from_secs(1));
    assert_eq!((t.conn.finished(), t.conn.held_bytes()), (Some(Closed::Stalled), 0));
}

#[test]
fn a_slow_client_that_makes_progress_stays() {
    let mut t = talk(Limits::default());
    t.hand_in(&request(0, 0, 1, 0, 16 << 20));
    t.answer_all();
    for _ in 0..16 {
        t.conn.sent(1 << 20, t.now);
        t.now += Duration::from_secs(50);
        t.conn.tick(t.now);
        assert_eq!(t.conn.finished(), None);
    }
}

#[test]
fn a_client_that_takes_nothing_delays_the_stop_by_a_bound() {
    let mut t = talk(Limits::default());
    t.hand_in(&request(0, 0, 1, 0, 1 << 20));
    t.answer_all();
    t.conn.shutdown(t.now);
    let (linger, begun) = (Limits::default().linger, t.now);
    t.conn.tick(begun + linger);
    let due = t.conn.next_deadline().unwrap();
    assert_eq!((t.conn.finished(), due), (None, begun + Duration::from_secs(5)));
    t.conn.tick(due);
    assert_eq!(t.conn.finished(), Some(Closed::Stopping));
}

#[test]
fn a_volume_that_takes_long_is_waited_for_by_the_stop() {
    let mut t = talk(Limits::default());
    t.hand_in(&request(0, 0, 1, 0, 4096));
    t.conn.shutdown(t.now);
    for _ in 0..10 {
        t.now = t.conn.next_deadline().unwrap();
        t.conn.tick(t.now);
        assert_eq!(t.conn.finished(), None, "what was accepted is answered");
    }
    t.answer_all();
    assert!(t.take_output().len() > 4096);
    assert_eq!(t.conn.finished(), Some(Closed::Stopping));
}
