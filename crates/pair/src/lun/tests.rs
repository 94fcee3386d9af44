//! Claims about fences: which writes they reach, and what the counters say of them.

use super::*;

const A: Port = Port(1);
const B: Port = Port(2);
const KEY_A: Key = Key(0xa);
const KEY_B: Key = Key(0xb);
const KIND: Kind = Kind::WriteExclusiveRegistrants;

fn must(lun: &mut Lun, port: Port, command: Command) {
    assert_eq!(lun.command(port, command), Reply::Now(Ok(())), "{command:?}");
}

fn register(lun: &mut Lun, port: Port, new: Key) {
    must(lun, port, Command::Register { old: Key::NONE, new, ignore: false, persistent: true });
}

/// Both are registered, and `holder` holds the reservation.
fn pair(holder: Port, defects: Defects) -> Lun {
    let mut lun = Lun::new(Reservations::default(), defects);
    register(&mut lun, A, KEY_A);
    register(&mut lun, B, KEY_B);
    let key = if holder == A { KEY_A } else { KEY_B };
    must(&mut lun, holder, Command::Reserve { key, kind: KIND });
    lun
}

fn begun(lun: &mut Lun, port: Port) -> Ticket {
    let ticket = lun.take_write(port).expect("it may write");
    lun.begin_write(ticket).expect("it may write still");
    ticket
}

/// B preempts A.
fn preempt(lun: &mut Lun, abort: bool) -> Reply {
    lun.command(B, Command::Preempt { key: KEY_B, victim: KEY_A, kind: KIND, abort })
}

#[test]
fn a_fence_waits_for_the_owners_begun_write() {
    let mut lun = pair(A, Defects::default());
    let write = begun(&mut lun, A);
    let Reply::After(abort) = preempt(&mut lun, true) else { panic!("a write has begun") };
    assert_eq!(lun.end_write(write), Some(vec![abort]));
    assert_eq!(lun.counters(A), Counters { written: 1, ..Counters::default() });
    assert_eq!(lun.take_write(A), Err(Refusal::Conflict));
    assert_eq!(lun.counters(A).rejected, 1);
}

#[test]
fn a_fence_cancels_a_write_that_waits() {
    let mut lun = pair(A, Defects::default());
    let write = lun.take_write(A).unwrap();
    assert_eq!(preempt(&mut lun, true), Reply::Now(Ok(())));
    assert_eq!(lun.begin_write(write), Err((Refusal::Conflict, Vec::new())));
    assert_eq!(lun.counters(A), Counters { rejected: 1, ..Counters::default() });
}

#[test]
fn after_a_plain_preemption_a_begun_write_lands() {
    let mut lun = pair(A, Defects::default());
    let write = begun(&mut lun, A);
    assert_eq!(preempt(&mut lun, false), Reply::Now(Ok(())));
    assert_eq!(lun.end_write(write), Some(Vec::new()));
    assert_eq!(lun.counters(A).landed, 1);
}

#[test]
fn with_a_defect_the_owners_write_lands_if_the_partner_holds() {
    for (holder, landed) in [(A, 0), (B, 1)] {
        let mut lun = pair(holder, Defects { abort_misses_registrants: true, ..Defects::default() });
        let write = begun(&mut lun, A);
        let reply = preempt(&mut lun, true);
        assert_eq!(matches!(reply, Reply::After(_)), holder == A);
        lun.end_write(write);
        assert_eq!(lun.counters(A).landed, landed, "held by {holder:?}");
    }
}

#[test]
fn with_a_defect_success_says_nothing_and_the_keys_do() {
    let mut lun = pair(B, Defects { preempts_without_effect: true, ..Defects::default() });
    assert_eq!(preempt(&mut lun, true), Reply::Now(Ok(())));
    assert_eq!(lun.read_keys(B).unwrap(), [KEY_A, KEY_B], "a reader sees that nothing was done");
    assert!(lun.take_write(A).is_ok());
}

#[test]
fn a_victim_is_told_at_its_next_command_and_not_again() {
    let mut lun = pair(A, Defects::default());
    preempt(&mut lun, true);
    assert!(matches!(lun.read_keys(A), Err(Refusal::Attention(_))));
    assert_eq!(lun.read_keys(A).unwrap(), [KEY_B]);
    assert_eq!(lun.read_reservation(A).unwrap(), Some((Held { holder: B, kind: KIND }, KEY_B)));
}

#[test]
fn a_loss_of_power_with_a_defect_leaves_nobody_registered() {
    for forgets_at_power_cycle in [false, true] {
        let mut lun = pair(A, Defects { forgets_at_power_cycle, ..Defects::default() });
        let write = begun(&mut lun, A);
        let Reply::After(abort) = preempt(&mut lun, true) else { panic!("a write has begun") };
        assert_eq!(lun.power_cycle(), [abort], "its caller hears nothing");
        assert_eq!(lun.end_write(write), None, "it is not acknowledged");
        assert_eq!(lun.reservations().keys().1.is_empty(), forgets_at_power_cycle);
    }
}
