//! The handshake and the rules of transmission, byte by byte.

use crate::common::client::{Got, info, meta, option, option_replies, replies, request, write};
use crate::common::{SIZE, Talk};
use loligo_block::{Answer, Buf, ReqKind, alignment};
use loligo_export::nbd::Closed;
use loligo_export::{Export, Limits};

fn export() -> Export {
    Export::new("disk", SIZE as u64)
}

fn hello(tls: bool) -> Talk {
    let mut t = Talk::new(export(), Limits::default(), tls);
    t.say(&[0, 0, 0, 3]);
    t
}

fn simple() -> Talk {
    Talk::transmission(export(), Limits::default(), false)
}

fn error(cookie: u64, number: u32) -> Vec<Got> {
    vec![Got::Simple(cookie, number, vec![])]
}

#[test]
fn the_list_names_the_export_and_both_names_lead_to_it() {
    let mut t = hello(false);
    let got = option_replies(&t.say(&option(3, &[])));
    assert_eq!(got, [(3, 2, b"\0\0\0\x04disk".to_vec()), (3, 1, vec![])]);
    for name in ["", "disk"] {
        let got = option_replies(&t.say(&option(6, &info(name, &[1]))));
        let size = got.iter().find(|r| r.2[..2] == [0, 0]).unwrap();
        assert_eq!(size.2[2..10], (SIZE as u64).to_be_bytes());
        assert!(got.contains(&(6, 3, b"\0\x01disk".to_vec())));
        assert!(got.contains(&(6, 3, [&[0, 3, 0, 0, 2, 0, 0, 0, 16, 0][..], &[2, 0, 0, 0]].concat())));
        assert_eq!(got.last().unwrap(), &(6, 1, vec![]));
    }
}

#[test]
fn a_wrong_option_gets_its_error_and_the_next_is_understood() {
    let mut t = hello(false);
    let long = vec![7; 100 << 10];
    for (opt, data, kind) in [
        (99, &b"what"[..], 0x8000_0001u32),
        (5, b"", 0x8000_0002),
        (3, b"data", 0x8000_0003),
        (7, b"\0\0\0\xffx", 0x8000_0003),
        (7, &info("other", &[]), 0x8000_0006),
        (10, &meta("", &["base:allocation"]), 0x8000_0003),
        (9, &long, 0x8000_0009),
    ] {
        let got = option_replies(&t.say(&option(opt, data)));
        assert_eq!((got.len(), got[0].0, got[0].1), (1, opt, kind), "option {opt}");
    }
    assert_eq!(option_replies(&t.say(&option(8, &[]))), [(8, 1, vec![])]);
    assert_eq!(option_replies(&t.say(&option(2, &[]))), [(2, 1, vec![])]);
    assert_eq!(t.conn.finished(), Some(Closed::ByClient));
}

#[test]
fn a_server_with_tls_serves_and_takes_nothing_in_the_clear() {
    let mut t = hello(true);
    for opt in [3, 6, 7, 8, 9, 10] {
        assert_eq!(option_replies(&t.say(&option(opt, &info("", &[]))))[0].1, 0x8000_0005, "option {opt}");
    }
    assert_eq!(t.hand_in(&option(5, &[])), 16);
    assert_eq!(option_replies(&t.take_output()), [(5, 1, vec![])]);
    assert!(t.conn.take_start_tls());

    let mut smuggler = hello(true);
    smuggler.hand_in(&[option(5, &[]), option(8, &[])].concat());
    assert!(matches!(smuggler.conn.finished(), Some(Closed::Protocol(_))));
}

#[test]
fn export_name_enters_transmission_with_or_without_zeros() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let mut t = Talk::new(export(), Limits::default(), false);
        t.say(&[0, 0, 0, flags]);
        let got = t.say(&option(1, b"disk"));
        assert_eq!(got.len(), 10 + zeroes);
        assert_eq!(got[..8], (SIZE as u64).to_be_bytes());
        assert_eq!(replies(&t.say(&request(0, 3, 5, 0, 0)), 0), [Got::Simple(5, 0, vec![])]);
    }
    let mut t = hello(false);
    t.say(&option(1, b"other"));
    assert!(t.conn.is_closed());
}

#[test]
fn a_stream_out_of_step_is_cut() {
    let mut t = hello(false);
    t.say(&[b'x'; 16]);
    assert!(matches!(t.conn.finished(), Some(Closed::Protocol(_))));
    let mut t = simple();
    t.say(&[b'x'; 28]);
    assert!(matches!(t.conn.finished(), Some(Closed::Protocol(_))));
    let mut t = Talk::new(export(), Limits::default(), false);
    t.say(&[0, 0, 0, 7]);
    assert!(matches!(t.conn.finished(), Some(Closed::Protocol(_))));
}

#[test]
fn what_is_written_is_read_back_however_the_stream_is_cut() {
    let mut stream = Vec::new();
    let lens = [512usize, 4096, 16 << 10, 60 << 10, 100 << 10, 1 << 20, 512, 300 << 10];
    let mut at = 0;
    for (i, len) in lens.iter().enumerate() {
        let payload: Vec<u8> = (0..*len).map(|b| (b / 7 + i * 31) as u8).collect();
        stream.extend(write(0, i as u64, at, &payload));
        at += *len as u64;
    }
    for cut in [1 << 22, 100_000, 4096, 28, 27, 3] {
        let mut t = simple();
        for part in stream.chunks(cut) {
            assert_eq!(t.hand_in(part), part.len());
        }
        assert_eq!(t.requests.len(), lens.len(), "cut {cut}");
        for r in &t.requests {
            let ReqKind::Write(p) = &r.kind else { panic!("{r:?}") };
            assert!(p.is_aligned(alignment()) && p.len() as u64 == r.len);
        }
        t.answer_all();
        assert_eq!(replies(&t.take_output(), 0).len(), lens.len());
        let mut at = 0;
        for (i, len) in lens.iter().enumerate() {
            let want: Vec<u8> = (0..*len).map(|b| (b / 7 + i * 31) as u8).collect();
            let got = t.say(&request(0, 0, 9, at, *len as u32));
            assert!(replies(&got, *len) == [Got::Simple(9, 0, want)], "cut {cut}, write {i}");
            at += *len as u64;
        }
    }
}

#[test]
fn every_bad_request_gets_its_error_and_the_connection_goes_on() {
    let end = SIZE as u64;
    let mut t = simple();
    for (name, bytes, number) in [
        ("unknown command", request(0, 77, 1, 0, 512), 22),
        ("unknown flag", request(1 << 9, 0, 1, 0, 512), 22),
        ("DF without structured replies", request(4, 0, 1, 0, 512), 22),
        ("no length", request(0, 0, 1, 0, 0), 22),
        ("off the blocks", request(0, 0, 1, 100, 512), 22),
        ("length off the blocks", request(0, 0, 1, 0, 100), 22),
        ("read past the end", request(0, 0, 1, end - 512, 1024), 22),
        ("offset overflows", request(0, 0, 1, u64::MAX - 511, 512), 22),
        ("read too long", request(0, 0, 1, 0, (32 << 20) + 512), 22),
        ("trim past the end", request(0, 4, 1, end, 512), 22),
        ("zero past the end", request(0, 6, 1, end, 512), 28),
        ("write past the end", write(0, 1, end, &[1; 2048]), 28),
        ("write off the blocks", write(0, 1, 7, &[1; 200_000]), 22),
        ("write too long", write(0, 1, 0, &vec![1; (32 << 20) + 512]), 22),
        ("flush with a range", request(0, 3, 1, 0, 512), 22),
        ("status without context", request(0, 7, 1, 0, 512), 22),
        ("fast zero", request(16, 6, 1, 0, 512), 95),
    ] {
        assert_eq!(replies(&t.say(&bytes), 0), error(1, number), "{name}");
        assert_eq!(t.conn.held_bytes(), 0, "{name}");
    }
    assert_eq!(replies(&t.say(&request(0, 0, 2, 0, 512)), 512), [Got::Simple(2, 0, vec![0; 512])]);
}

#[test]
fn a_read_only_export_refuses_every_change_with_eperm() {
    let mut e = export();
    e.read_only = true;
    let mut t = Talk::transmission(e, Limits::default(), false);
    for bytes in [write(0, 1, 0, &[1; 512]), request(0, 4, 1, 0, 512), request(0, 6, 1, 0, 512)] {
        assert_eq!(replies(&t.say(&bytes), 0), error(1, 1));
    }
    assert_eq!(replies(&t.say(&request(0, 0, 2, 0, 512)), 512), [Got::Simple(2, 0, vec![0; 512])]);
}

#[test]
fn an_export_with_4k_blocks_takes_no_smaller_ones() {
    let mut t = Talk::transmission(export().with_min_block(4096), Limits::default(), false);
    assert_eq!(replies(&t.say(&request(0, 0, 1, 512, 4096)), 0), error(1, 22));
    assert_eq!(replies(&t.say(&request(0, 0, 1, 4096, 4096)), 4096).len(), 1);
    assert_eq!(Export::new("x", 10_000).with_min_block(4096).size, 8192);
}

#[test]
fn flags_of_commands_reach_the_volume() {
    let mut t = simple();
    t.hand_in(&write(1, 1, 512, &[1; 512]));
    t.hand_in(&request(2, 6, 2, 0, 4096));
    t.hand_in(&request(1, 6, 3, 0, 4096));
    t.hand_in(&request(0, 4, 4, 0, 4096));
    t.hand_in(&request(0, 3, 5, 0, 0));
    t.hand_in(&request(0, 5, 6, 0, 4096));
    let kinds: Vec<String> = t.requests.iter().map(|r| format!("{:?} {}", r.kind, r.fua)).collect();
    assert_eq!(
        kinds,
        [
            "Write(Shared(512 B)) true",
            "WriteZeroes { unmap: false } false",
            "WriteZeroes { unmap: true } true",
            "Discard false",
            "Flush false",
            "Read false"
        ]
    );
    t.answer_all();
    let back = replies(&t.take_output(), 0);
    assert_eq!(back, (1..=6).map(|c| Got::Simple(c, 0, vec![])).collect::<Vec<_>>(), "CACHE sends no data");
}

#[test]
fn structured_reads_come_in_one_chunk_and_errors_say_why() {
    let mut t = Talk::transmission(export(), Limits::default(), true);
    t.say(&write(0, 1, 4096, &[9; 512]));
    let got = replies(&t.say(&request(4, 0, 2, 4096, 512)), 0);
    assert_eq!(got, [Got::Chunk(2, 1, 1, [&4096u64.to_be_bytes()[..], &[9; 512]].concat())]);
    let [Got::Chunk(3, 1, 0x8001, text)] = &replies(&t.say(&request(0, 0, 3, SIZE as u64, 512)), 0)[..]
    else {
        panic!("not an error chunk");
    };
    assert_eq!(text[..4], 22u32.to_be_bytes());
    assert!(String::from_utf8_lossy(&text[6..]).contains("past the end"));
}

#[test]
fn block_status_joins_extents_and_gives_one_where_one_is_asked() {
    let mut t = hello(false);
    t.say(&option(8, &[]));
    let got = option_replies(&t.say(&option(10, &meta("", &["base:allocation", "x:y"]))));
    assert_eq!(got[0], (10, 4, [&[0, 0, 0, 1][..], b"base:allocation"].concat()));
    t.say(&option(7, &info("", &[])));
    t.say(&write(0, 1, 128 << 10, &[1; 128 << 10]));
    let words = |got: Vec<Got>| match &got[..] {
        [Got::Chunk(2, 1, 5, b)] => {
            b.chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let all = words(replies(&t.say(&request(0, 7, 2, 0, 1 << 20)), 0));
    assert_eq!(all, [1, 128 << 10, 3, 128 << 10, 0, 768 << 10, 3]);
    let one = words(replies(&t.say(&request(8, 7, 2, 128 << 10, 1 << 20)), 0));
    assert_eq!(one, [1, 128 << 10, 0]);
}

#[test]
fn contexts_count_only_for_the_name_they_were_chosen_with() {
    let mut t = hello(false);
    t.say(&option(8, &[]));
    t.say(&option(10, &meta("", &["base:allocation"])));
    t.say(&option(7, &info("disk", &[])));
    assert!(matches!(replies(&t.say(&request(0, 7, 2, 0, 512)), 0)[..], [Got::Chunk(2, 1, 0x8001, _)]));
}

#[test]
fn disconnect_waits_for_the_answers_of_what_came_before() {
    let mut t = simple();
    t.hand_in(&[write(0, 1, 0, &[1; 512]), request(0, 2, 2, 0, 0), request(0, 3, 3, 0, 0)].concat());
    assert_eq!((t.requests.len(), t.conn.finished(), t.conn.wants_read()), (1, None, false));
    t.answer_all();
    assert_eq!(replies(&t.take_output(), 0), [Got::Simple(1, 0, vec![])]);
    assert_eq!(t.conn.finished(), Some(Closed::ByClient));
}

#[test]
fn a_stopping_server_answers_the_accepted_and_refuses_the_rest() {
    let mut t = simple();
    t.hand_in(&write(0, 1, 0, &[1; 512]));
    let half = write(0, 2, 0, &[2; 1 << 20]);
    t.hand_in(&half[..300_000]);
    t.conn.shutdown(t.now);
    t.hand_in(&half[300_000..]);
    t.hand_in(&write(0, 3, 0, &[3; 512]));
    assert_eq!((t.requests.len(), t.conn.finished()), (1, None));
    t.answer_all();
    let got = replies(&t.take_output(), 0);
    assert_eq!(got, [Got::Simple(2, 108, vec![]), Got::Simple(3, 108, vec![]), Got::Simple(1, 0, vec![])]);
    t.now += Limits::default().linger;
    t.conn.tick(t.now);
    assert_eq!((t.conn.finished(), t.conn.held_bytes()), (Some(Closed::Stopping), 0));
}

#[test]
fn an_answer_that_does_not_fit_becomes_an_error_in_step() {
    let mut t = simple();
    let short = || std::iter::once(Buf::zeroed(512).freeze()).collect();
    for answer in [Answer::Done, Answer::Data(short()), Answer::Extents(vec![])] {
        t.hand_in(&request(0, 0, 1, 0, 4096));
        let r = t.requests.pop().unwrap();
        t.conn.answer(r.id, Ok(answer.clone()));
        // A second answer to the same request finds nothing.
        t.conn.answer(r.id, Ok(answer));
        assert_eq!(replies(&t.take_output(), 0), error(1, 5));
    }
    assert_eq!(t.conn.held_bytes(), 0);
}
