//! Claims about the rules, one by one, and about any order of commands.

use super::*;
use proptest::prelude::*;

const A: Port = Port(1);
const B: Port = Port(2);
const KEY_A: Key = Key(0xa);
const KEY_B: Key = Key(0xb);
const WERO: Kind = Kind::WriteExclusiveRegistrants;

/// A holds, B is registered: the state of a healthy pair on the LUN of A.
fn pair() -> Reservations {
    let mut lun = Reservations::default();
    lun.register(A, Key::NONE, KEY_A, false, true).unwrap();
    lun.register(B, Key::NONE, KEY_B, false, true).unwrap();
    lun.reserve(A, KEY_A, WERO).unwrap();
    lun
}

#[test]
fn without_a_reservation_everybody_writes() {
    let lun = Reservations::default();
    assert!(lun.may_write(A) && lun.may_read(B));
}

#[test]
fn registrants_write_and_strangers_only_read() {
    let lun = pair();
    assert!(lun.may_write(A) && lun.may_write(B));
    assert!(!lun.may_write(Port(3)) && lun.may_read(Port(3)));
}

#[test]
fn exclusive_access_bars_reads_of_strangers_too() {
    let mut lun = pair();
    lun.release(A, KEY_A, WERO).unwrap();
    lun.reserve(A, KEY_A, Kind::ExclusiveAccessRegistrants).unwrap();
    assert!(lun.may_read(B) && !lun.may_read(Port(3)));
}

#[test]
fn a_preempted_owner_writes_no_more_and_hears_why() {
    let mut lun = pair();
    let done = lun.preempt(B, KEY_B, KEY_A, WERO).unwrap();
    assert_eq!(done, Preempted { victims: vec![A], holders: vec![A] });
    assert!(!lun.may_write(A) && lun.may_write(B));
    assert_eq!(lun.held().1, Some((Held { holder: B, kind: WERO }, KEY_B)));
    let attention = Refusal::Attention(Attention::RegistrationsPreempted);
    assert_eq!(lun.attend(A), Err(attention));
    assert_eq!(lun.attend(A), Ok(()), "it is told once");
}

#[test]
fn a_preemption_of_nobody_is_a_conflict() {
    let mut lun = pair();
    lun.preempt(B, KEY_B, KEY_A, WERO).unwrap();
    let before = lun.clone();
    assert_eq!(lun.preempt(B, KEY_B, KEY_A, WERO), Err(Refusal::Conflict));
    assert_eq!(lun.preempt(A, KEY_A, KEY_B, WERO), Err(Refusal::Conflict), "the victim strikes back");
    assert_eq!(lun.preempt(B, KEY_B, Key::NONE, WERO), Err(Refusal::Illegal));
    assert_eq!(lun, before);
}

#[test]
fn a_victim_that_registers_again_writes_again() {
    // The array lets it. That it does not is a rule of the pair alone.
    let mut lun = pair();
    lun.preempt(B, KEY_B, KEY_A, WERO).unwrap();
    lun.register(A, Key::NONE, KEY_A, false, true).unwrap();
    assert!(lun.may_write(A));
}

#[test]
fn a_wrong_old_key_registers_nothing() {
    let mut lun = pair();
    let before = lun.clone();
    assert_eq!(lun.register(A, KEY_B, Key(7), false, true), Err(Refusal::Conflict));
    assert_eq!(lun.register(Port(3), KEY_B, Key(7), false, true), Err(Refusal::Conflict));
    assert_eq!(lun, before);
    lun.register(A, KEY_B, Key(7), true, true).expect("it ignores the old key");
    assert_eq!(lun.key(A), Key(7));
}

#[test]
fn a_holder_that_unregisters_releases_and_registrants_hear_it() {
    let mut lun = pair();
    lun.register(A, KEY_A, Key::NONE, false, true).unwrap();
    assert_eq!(lun.held().1, None);
    assert_eq!(lun.attend(B), Err(Refusal::Attention(Attention::ReservationsReleased)));
}

#[test]
fn a_release_by_another_registrant_has_no_effect() {
    let mut lun = pair();
    lun.release(B, KEY_B, WERO).expect("it holds nothing, which is no error");
    assert_eq!(lun.release(A, KEY_A, Kind::WriteExclusive), Err(Refusal::Illegal));
    assert!(lun.held().1.is_some());
}

#[test]
fn of_a_type_that_all_hold_the_last_one_releases_it() {
    let mut lun = pair();
    lun.release(A, KEY_A, WERO).unwrap();
    lun.reserve(A, KEY_A, Kind::WriteExclusiveAll).unwrap();
    lun.register(A, KEY_A, Key::NONE, false, true).unwrap();
    assert!(lun.held().1.is_some() && lun.may_write(B) && !lun.may_write(A));
    lun.register(B, KEY_B, Key::NONE, false, true).unwrap();
    assert_eq!(lun.held().1, None);
}

#[test]
fn registrations_outlive_the_power_only_if_kept_and_asked_for() {
    let kept = |keeps, persistent| {
        let mut lun = pair();
        lun.register(B, KEY_B, KEY_B, false, persistent).unwrap();
        lun.power_cycle(keeps);
        assert_eq!(lun.attend(A), Err(Refusal::Attention(Attention::PowerOn)));
        lun.held().1.is_some() && lun.key(A) == KEY_A
    };
    assert!(kept(true, true));
    assert!(!kept(false, true) && !kept(true, false));
}

#[test]
fn types_have_the_kernels_numbers() {
    assert_eq!(Kind::of(3), Some(WERO));
    assert_eq!((Kind::of(0), Kind::of(7)), (None, None));
}

/// Any command of a few ports with few keys.
fn steps() -> impl Strategy<Value = Vec<(u8, u32, u64, u64, u32)>> {
    proptest::collection::vec((0..7u8, 0..3u32, 0..4u64, 0..4u64, 1..7u32), 1..60)
}

proptest! {
    #[test]
    fn whoever_holds_is_registered_and_a_victim_never_writes(steps in steps()) {
        let mut lun = Reservations::default();
        for (what, port, key, other, kind) in steps {
            let (port, key, other) = (Port(port), Key(key), Key(other));
            let kind = Kind::of(kind).expect("one of six");
            let before = lun.clone();
            let done = match what {
                0 => lun.register(port, key, other, false, true),
                1 => lun.register(port, key, other, true, false),
                2 => lun.reserve(port, key, kind),
                3 => lun.release(port, key, kind),
                4 => lun.clear(port, key),
                5 => lun.attend(port).or(Ok(())),
                _ => lun.preempt(port, key, other, kind).map(|done| {
                    for victim in done.victims {
                        assert!(victim != port && lun.key(victim) == Key::NONE);
                        // A type that is not taken over may let strangers go on: without a reservation all may write.
                        assert!(lun.held().1.is_none() || !lun.may_write(victim));
                    }
                }),
            };
            if done.is_err() {
                prop_assert_eq!(&lun, &before, "a refusal changes nothing");
            }
            if let Some((held, _)) = lun.held().1 {
                prop_assert!(held.kind.is_held_by_all() || lun.key(held.holder) != Key::NONE);
                prop_assert!(!lun.keys().1.is_empty());
            }
            let stored = serde_json::to_string(&lun).unwrap();
            prop_assert_eq!(serde_json::from_str::<Reservations>(&stored).unwrap(), lun.clone());
        }
    }
}
