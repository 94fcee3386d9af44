use super::*;
use crate::mirror::mark::{Opening, Seen, decide};

const MS: Time = 1_000_000;
const SIZE: u64 = 4096;

fn settings(policy: Policy) -> Settings {
    Settings { policy, limit: 2000 * MS, retry: 5000 * MS, region: 1024, seed: 3, flaws: Flaws::default() }
}

/// A machine, and what it asked for since the last look.
struct Rig {
    machine: Machine,
    out: Vec<Action>,
}

impl Rig {
    fn new(policy: Policy) -> Rig {
        Rig::opened(policy, Opening::New, 0)
    }

    fn opened(policy: Policy, opening: Opening, top: u64) -> Rig {
        let (machine, _) = Machine::open(settings(policy), opening, ([9; 16], SIZE, top));
        Rig { machine, out: Vec::new() }
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.out).into_iter().filter(|a| !matches!(a, Action::Say(_))).collect()
    }

    fn write(&mut self, now: Time, id: OpId, at: u64) -> Vec<Action> {
        self.machine.start(now, id, Access::Write(at..at + 512), &mut self.out);
        self.take()
    }

    fn ok(&mut self, now: Time, id: OpId, leg: Leg) -> Vec<Action> {
        self.machine.answered(now, id, leg, Ok(()), &mut self.out);
        self.take()
    }

    fn fails(&mut self, now: Time, id: OpId, leg: Leg, errno: i32) -> Vec<Action> {
        self.machine.answered(now, id, leg, Err(IoError::from_errno(errno, "x")), &mut self.out);
        self.take()
    }

    fn tick(&mut self, now: Time) -> Vec<Action> {
        self.machine.tick(now, &mut self.out);
        self.take()
    }

    /// Loses the mirror and has that noted.
    fn lose_mirror(&mut self) {
        self.write(0, 1, 0);
        self.ok(0, 1, Leg::Local);
        let asked = self.fails(0, 1, Leg::Mirror, libc::EIO);
        let [Action::Note(Leg::Local, mark)] = asked[..] else { panic!("{asked:?}") };
        self.machine.noted(0, Leg::Local, mark, Ok(()), &mut self.out);
        assert_eq!(self.take(), [Action::Answer(1, Ok(Leg::Local))]);
    }

    /// Has the mirror begin to join.
    fn rejoin(&mut self) {
        assert_eq!(self.tick(5000 * MS), [Action::Try(Leg::Mirror)]);
        self.machine.tried(5000 * MS, Leg::Mirror, Ok(()), &mut self.out);
        let asked = self.take();
        let [Action::Note(Leg::Mirror, mark)] = asked[..] else { panic!("{asked:?}") };
        assert_eq!(mark.state, MarkState::Stale);
        self.machine.noted(5000 * MS, Leg::Mirror, mark, Ok(()), &mut self.out);
    }
}

fn sends(id: OpId) -> [Action; 2] {
    Leg::BOTH.map(|leg| Action::Send(id, leg))
}

#[test]
fn a_write_is_answered_when_both_legs_have_it() {
    let mut rig = Rig::new(Policy::Preferred);
    assert_eq!(rig.write(0, 1, 0), sends(1));
    assert_eq!(rig.ok(0, 1, Leg::Local), []);
    assert_eq!(rig.ok(0, 1, Leg::Mirror), [Action::Answer(1, Ok(Leg::Local))]);
}

#[test]
fn a_silent_leg_is_left_after_the_limit_and_noted_first() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.write(0, 1, 0);
    rig.ok(5 * MS, 1, Leg::Local);
    assert_eq!(rig.tick(1999 * MS), []);
    let asked = rig.tick(2000 * MS);
    let [Action::Note(Leg::Local, mark)] = asked[..] else { panic!("{asked:?}") };
    assert_eq!((mark.state, mark.generation), (MarkState::Alone, 3));
    assert_eq!(rig.machine.state(), MirrorState::Leaving(Leg::Mirror));
    // Nothing is acknowledged before the note is durable.
    assert_eq!(rig.write(2001 * MS, 2, 512), [Action::Send(2, Leg::Local)]);
    assert_eq!(rig.ok(2002 * MS, 2, Leg::Local), []);
    rig.machine.noted(2003 * MS, Leg::Local, mark, Ok(()), &mut rig.out);
    let answers = [1, 2].map(|id| Action::Answer(id, Ok(Leg::Local)));
    assert_eq!(rig.take(), answers);
    // While the leg may still carry out what it was sent, it does not join.
    assert_eq!(rig.tick(60_000 * MS), []);
    assert_eq!(rig.ok(60_001 * MS, 1, Leg::Mirror), []);
    assert_eq!(rig.tick(60_002 * MS), [Action::Try(Leg::Mirror)]);
}

#[test]
fn a_note_that_fails_ends_the_volume() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.write(0, 1, 0);
    rig.ok(0, 1, Leg::Local);
    let asked = rig.fails(0, 1, Leg::Mirror, libc::EIO);
    let [Action::Note(Leg::Local, mark)] = asked[..] else { panic!("{asked:?}") };
    rig.machine.noted(0, Leg::Local, mark, Err(IoError::from_errno(libc::EIO, "y")), &mut rig.out);
    assert!(matches!(rig.take()[..], [Action::Answer(1, Err(_))]));
    assert_eq!(rig.machine.state(), MirrorState::Failed);
}

#[test]
fn neither_leg_is_left_while_neither_answers() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.write(0, 1, 0);
    assert_eq!(rig.tick(9000 * MS), []);
    assert_eq!(rig.ok(9001 * MS, 1, Leg::Mirror).len(), 1, "the local leg is left");
    assert_eq!(rig.machine.state(), MirrorState::Leaving(Leg::Local));
}

#[test]
fn a_fenced_leg_ends_the_volume_and_nothing_is_noted() {
    for leg in Leg::BOTH {
        let mut rig = Rig::new(Policy::Preferred);
        rig.write(0, 1, 0);
        rig.ok(0, 1, leg.other());
        let asked = rig.fails(0, 1, leg, libc::EBADE);
        assert!(matches!(&asked[..], [Action::Answer(1, Err(e))] if e.kind == IoKind::Fenced), "{asked:?}");
        assert!(matches!(rig.write(1, 2, 0)[..], [Action::Answer(2, Err(_))]));
    }
}

#[test]
fn a_required_mirror_that_is_gone_stops_writes() {
    let mut rig = Rig::new(Policy::Required);
    rig.write(0, 1, 0);
    rig.ok(0, 1, Leg::Local);
    assert!(matches!(rig.fails(0, 1, Leg::Mirror, libc::EIO)[..], [Action::Answer(1, Err(_))]));
    assert!(matches!(rig.write(1, 2, 0)[..], [Action::Answer(2, Err(_))]));
    rig.machine.start(2, 3, Access::Read, &mut rig.out);
    assert_eq!(rig.take(), [Action::Send(3, Leg::Local)]);
}

#[test]
fn a_read_that_the_local_leg_fails_comes_from_the_mirror() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.machine.start(0, 1, Access::Read, &mut rig.out);
    assert_eq!(rig.take(), [Action::Send(1, Leg::Local)]);
    assert_eq!(rig.fails(0, 1, Leg::Local, libc::EIO), [Action::Send(1, Leg::Mirror)]);
    assert_eq!(rig.ok(0, 1, Leg::Mirror), [Action::Answer(1, Ok(Leg::Mirror))]);
    assert_eq!(rig.machine.state(), MirrorState::InStep);
}

#[test]
fn a_leg_joins_region_by_region_with_writes_to_both() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.lose_mirror();
    // A write of the sound leg alone is under way when the copy begins.
    assert_eq!(rig.write(0, 2, 512), [Action::Send(2, Leg::Local)]);
    rig.rejoin();
    assert_eq!(rig.take(), [], "the write to the first region is awaited");
    assert_eq!(rig.write(0, 3, 0), [], "and a further one is held");
    assert_eq!(rig.write(0, 4, 2048), sends(4));
    let asked = rig.ok(0, 2, Leg::Local);
    assert_eq!(asked, [Action::Answer(2, Ok(Leg::Local)), Action::Copy(Leg::Local, 0..1024)]);
    rig.machine.copied(0, Leg::Mirror, 0..1024, Ok(()), &mut rig.out);
    let next = Action::Copy(Leg::Local, 1024..2048);
    assert_eq!(rig.take(), [sends(3).to_vec(), vec![next]].concat());
    assert_eq!(rig.machine.copied_bytes(), Some(1024));
    rig.machine.copied(0, Leg::Mirror, 1024..2048, Ok(()), &mut rig.out);
    assert_eq!(rig.take(), [], "write 4 is under way");
    rig.ok(0, 4, Leg::Local);
    assert_eq!(rig.ok(0, 4, Leg::Mirror).len(), 2);
    rig.machine.copied(0, Leg::Mirror, 2048..3072, Ok(()), &mut rig.out);
    rig.take();
    rig.machine.copied(0, Leg::Mirror, 3072..4096, Ok(()), &mut rig.out);
    let asked = rig.take();
    let [Action::Note(Leg::Local, mark)] = asked[..] else { panic!("{asked:?}") };
    rig.machine.noted(0, Leg::Local, mark, Ok(()), &mut rig.out);
    assert_eq!(rig.take(), [Action::Note(Leg::Mirror, mark)]);
    rig.machine.noted(0, Leg::Mirror, mark, Ok(()), &mut rig.out);
    assert_eq!((rig.machine.state(), mark.state), (MirrorState::InStep, MarkState::InStep { clean: false }));
}

#[test]
fn a_join_that_fails_leaves_the_sound_leg_alone() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.lose_mirror();
    rig.rejoin();
    assert_eq!(rig.take(), [Action::Copy(Leg::Local, 0..1024)]);
    assert_eq!(rig.write(5000 * MS, 2, 0), []);
    assert_eq!(rig.tick(7000 * MS), [Action::Send(2, Leg::Local)], "the copy takes too long");
    assert_eq!(rig.machine.state(), MirrorState::Alone(Leg::Local));
    rig.ok(7000 * MS, 2, Leg::Local);
    assert_eq!(rig.tick(60_000 * MS), [], "the copy may still land");
    let late = Err((Leg::Mirror, IoError::from_errno(libc::EIO, "z")));
    rig.machine.copied(60_000 * MS, Leg::Mirror, 0..1024, late, &mut rig.out);
    assert_eq!(rig.tick(60_001 * MS), [Action::Try(Leg::Mirror)]);
}

#[test]
fn a_clean_stop_makes_the_next_open_trust_both() {
    let mut rig = Rig::new(Policy::Preferred);
    let notes = rig.machine.close();
    let [(Leg::Local, a), (Leg::Mirror, b)] = notes[..] else { panic!("{notes:?}") };
    let opened = decide([Seen::Marked(a), Seen::Marked(b)], false, &Flaws::default());
    assert_eq!(opened, Ok(Opening::InStep(a)));
    let (_, notes) = Machine::open(settings(Policy::Preferred), Opening::InStep(a), (a.set, SIZE, 3));
    assert!(notes.iter().all(|(_, m)| m.generation == 4 && m.state == MarkState::InStep { clean: false }));
}

#[test]
fn a_required_mirror_is_awaited_after_a_crash() {
    let mark = Mark { state: MarkState::InStep { clean: false }, ..Mark::first([9; 16], 5, SIZE) };
    let on = Opening::On { leg: Leg::Local, mark, joins: true };
    let mut rig = Rig::opened(Policy::Required, on, 1);
    assert_eq!(rig.write(0, 1, 3072), [], "it is held");
    assert_eq!(rig.tick(0), [Action::Try(Leg::Mirror)]);
    rig.machine.tried(0, Leg::Mirror, Ok(()), &mut rig.out);
    let asked = rig.take();
    let [Action::Note(Leg::Mirror, mark)] = asked[..] else { panic!("{asked:?}") };
    rig.machine.noted(0, Leg::Mirror, mark, Ok(()), &mut rig.out);
    let copy = Action::Copy(Leg::Local, 0..1024);
    assert_eq!(rig.take(), [sends(1).to_vec(), vec![copy]].concat());
}

#[test]
fn an_error_is_no_answer_while_the_other_leg_may_write() {
    let mut rig = Rig::new(Policy::Preferred);
    rig.write(0, 1, 0);
    assert_eq!(rig.fails(0, 1, Leg::Local, libc::EIO), []);
    assert_eq!(rig.tick(9000 * MS), []);
    assert!(matches!(rig.fails(9000 * MS, 1, Leg::Mirror, libc::EIO)[..], [Action::Answer(1, Err(_))]));
}
