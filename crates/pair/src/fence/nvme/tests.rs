//! Claims about Reservation Reports.

use super::*;
use proptest::prelude::*;

const WERO: u8 = 3;

/// A report with these registrants: key, and whether it holds.
fn made(kind: u8, registrants: &[(u64, bool)], extended: bool) -> Vec<u8> {
    let (size, key_at) = if extended { (64, 8) } else { (24, 16) };
    let mut raw = vec![0; size * (1 + registrants.len())];
    raw[..7].copy_from_slice(&[9, 0, 0, 0, kind, registrants.len() as u8, 0]);
    for (one, (key, holds)) in raw[size..].chunks_exact_mut(size).zip(registrants) {
        one[2] = u8::from(*holds);
        one[key_at..key_at + 8].copy_from_slice(&key.to_le_bytes());
    }
    raw.resize(ROOM, 0);
    raw
}

/// nvmet, Linux 7.2: two hosts are registered, and the first holds. All other bytes are zero.
#[test]
fn a_real_report_is_read() {
    let mut raw = vec![0; 192];
    raw[..6].copy_from_slice(&[0x6b, 0, 0, 0, 3, 2]);
    raw[64..96].copy_from_slice(&[
        0xff, 0xff, 1, 0, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0,
        0, 0, 0,
    ]);
    raw[128..160].copy_from_slice(&[
        0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0,
        0, 0, 0,
    ]);
    let shown = report(&raw, true).unwrap();
    assert_eq!((shown.generation, shown.keys), (0x6b, vec![Key(0xa), Key(0xb)]));
    assert_eq!(shown.held, Some((Key(0xa), Kind::WriteExclusiveRegistrants)));
}

#[test]
fn keys_and_holder_are_read_from_both_forms() {
    for extended in [true, false] {
        let shown = report(&made(WERO, &[(0xa, true), (0xbb << 40, false)], extended), extended).unwrap();
        assert_eq!((shown.generation, shown.keys), (9, vec![Key(0xa), Key(0xbb << 40)]));
        assert_eq!(shown.held, Some((Key(0xa), Kind::WriteExclusiveRegistrants)));
        let shown = report(&made(0, &[(0xa, false)], extended), extended).unwrap();
        assert_eq!((shown.keys, shown.held), (vec![Key(0xa)], None));
    }
}

#[test]
fn a_host_with_two_controllers_holds_once() {
    let shown = report(&made(WERO, &[(0xa, true), (0xa, true)], true), true).unwrap();
    assert_eq!(shown.held, Some((Key(0xa), Kind::WriteExclusiveRegistrants)));
    assert_eq!(shown.keys.len(), 2);
}

#[test]
fn a_report_that_contradicts_itself_is_garbage() {
    let garbage = |raw: &[u8]| matches!(report(raw, true), Err(CommandError::Garbage(_)));
    assert!(garbage(&made(WERO, &[(0xa, true), (0xb, true)], true)), "two hold it");
    assert!(garbage(&made(WERO, &[(0xa, false)], true)), "a type without holder");
    assert!(garbage(&made(0, &[(0xa, true)], true)), "a holder without type");
    assert!(garbage(&made(7, &[(0xa, true)], true)), "a type without meaning");
    assert!(garbage(&[0; 63]), "no head");
    let mut many = made(WERO, &[(0xa, true)], true);
    many[6] = 1;
    assert!(garbage(&many), "more registrants than bytes");
}

#[test]
fn a_file_is_no_namespace() {
    use std::os::fd::AsFd;
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(namespace(file.as_fd()), None);
}

#[test]
fn a_status_says_what_failed() {
    // The bit 4000h says that the same command would fail again.
    assert!(matches!(failure(0x4083), CommandError::Conflict));
    assert!(matches!(failure(0x4018), CommandError::HostNames));
    assert!(matches!(failure(0x4001), CommandError::Unknown));
    let other = failure(0x371).to_string();
    assert!(other.contains("0x371"), "{other}");
}

#[test]
fn the_command_is_the_kernels() {
    assert_eq!((size_of::<Command>(), IO_COMMAND), (72, 0xc048_4e43));
}

proptest! {
    #[test]
    fn garbage_is_an_error_or_within_the_bytes(raw in proptest::collection::vec(any::<u8>(), 0..512), extended in any::<bool>()) {
        if let Ok(shown) = report(&raw, extended) {
            prop_assert!(shown.keys.len() < raw.len() / 24);
        }
    }
}
