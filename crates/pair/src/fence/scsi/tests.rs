//! Claims about answers to PERSISTENT RESERVE IN.

use super::*;
use proptest::prelude::*;

/// LIO, Linux 6.12: two keys are registered, and the first holds.
const KEYS: [u8; 24] = [0, 0, 0, 0x5e, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xa, 0, 0, 0, 0, 0, 0, 0, 0xb];
const HELD: [u8; 24] = [0, 0, 0, 0x5e, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xa, 0, 0, 0, 0, 0, 5, 0, 0];
/// The same, nobody is registered.
const NOBODY: [u8; 8] = [0, 0, 0, 0x68, 0, 0, 0, 0];

/// LIO's sense after a preemption (unit attention 2Ah/05h), with another key.
fn sense(key: u8) -> Vec<u8> {
    vec![0x70, 0, key, 0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0x2a, 0x05, 0, 0, 0, 0]
}

#[test]
fn real_answers_are_read() {
    assert_eq!(keys(&KEYS).unwrap(), (0x5e, vec![Key(0xa), Key(0xb)]));
    assert_eq!(reservation(&HELD).unwrap(), (0x5e, Some((Key(0xa), Kind::WriteExclusiveRegistrants))));
    assert_eq!((keys(&NOBODY).unwrap(), reservation(&NOBODY).unwrap()), ((0x68, vec![]), (0x68, None)));
}

#[test]
fn a_key_has_all_its_bytes() {
    let raw = [[0, 0, 0, 7, 0, 0, 0, 8], [0xbb, 0, 0, 0, 0, 0, 0, 0xb]].concat();
    assert_eq!(keys(&raw).unwrap(), (7, vec![Key(0xbb00_0000_0000_000b)]));
}

#[test]
fn an_answer_that_is_cut_off_is_garbage() {
    for len in 0..KEYS.len() {
        assert!(matches!(keys(&KEYS[..len]), Err(CommandError::Garbage(_))), "{len}");
        assert!(matches!(reservation(&HELD[..len]), Err(CommandError::Garbage(_))), "{len}");
    }
    assert!(
        matches!(keys(&[0, 0, 0, 2, 0, 0, 0, 4, 1, 2, 3, 4]), Err(CommandError::Garbage(_))),
        "half a key"
    );
}

#[test]
fn a_type_or_scope_without_meaning_is_garbage() {
    for byte in [0x00, 0x02, 0x04, 0x09, 0x0f, 0x15, 0x25] {
        let raw = [[0, 0, 0, 2, 0, 0, 0, 16], [0; 8], [0, 0, 0, 0, 0, byte, 0, 0]].concat();
        assert!(matches!(reservation(&raw), Err(CommandError::Garbage(_))), "{byte:#x}");
    }
}

#[test]
fn a_unit_attention_is_asked_again_and_other_senses_are_not() {
    assert_eq!(outcome(0, 0, &[]).unwrap(), Outcome::Answered);
    assert_eq!(outcome(0x02, 0, &sense(6)).unwrap(), Outcome::Again);
    assert_eq!(outcome(0x02, 0, &[0x72, 6, 0x2a, 3, 0, 0, 0, 0]).unwrap(), Outcome::Again);
    assert!(matches!(outcome(0x02, 0, &sense(5)), Err(CommandError::Unknown)));
    assert!(matches!(outcome(0x02, 0, &sense(3)), Err(CommandError::Failed(_))));
    assert!(matches!(outcome(0x02, 0, &[]), Err(CommandError::Failed(_))));
    assert!(matches!(outcome(0x18, 0, &[]), Err(CommandError::Conflict)));
    assert!(matches!(outcome(0, 1, &[]), Err(CommandError::Failed(_))), "the path is gone");
}

#[test]
fn a_file_is_no_scsi_device() {
    use std::os::fd::AsFd;
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(matches!(read(file.as_fd()), Err(CommandError::Failed(_))));
}

#[test]
fn the_header_is_the_kernels() {
    assert_eq!(size_of::<Header>(), 88);
    assert_eq!(std::mem::offset_of!(Header, status), 64);
}

proptest! {
    #[test]
    fn garbage_gives_an_error_or_no_more_than_is_there(raw in proptest::collection::vec(any::<u8>(), 0..64), len in 0u8..64) {
        let mut raw = raw;
        if let Some(bytes) = raw.get_mut(4..8) {
            bytes.copy_from_slice(&[0, 0, 0, len]);
        }
        if let Ok((_, keys)) = keys(&raw) {
            prop_assert!(keys.len() * 8 + 8 <= raw.len());
        }
        if let Ok((_, Some(_))) = reservation(&raw) {
            prop_assert!(raw.len() >= 22);
        }
    }
}
