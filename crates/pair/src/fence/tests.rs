//! Claims about what counts as a fence, over the model without any device.

use super::*;
use crate::lun::{Command, Defects, Lun, Reply};
use crate::reservation::{Key, Port, Refusal, Reservations};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const A: Key = Key(0xa);
const B: Key = Key(0xb);

/// One path to a LUN of the model.
struct Path {
    lun: Rc<RefCell<Lun>>,
    port: Port,
}

impl Path {
    fn ask(&mut self, command: Command) -> Result<(), FenceError> {
        loop {
            match self.lun.borrow_mut().command(self.port, command) {
                Reply::Now(Err(Refusal::Attention(_))) => {}
                Reply::Now(Ok(())) | Reply::After(_) => return Ok(()),
                Reply::Now(Err(_)) => return Err(FenceError::Conflict { lun: self.name() }),
            }
        }
    }
}

impl Fence for Path {
    fn name(&self) -> String {
        "lun".to_owned()
    }

    fn register(&mut self, old: Key, new: Key) -> Result<(), FenceError> {
        self.ask(Command::Register { old, new, ignore: false, persistent: true })
    }

    fn reserve(&mut self, key: Key) -> Result<(), FenceError> {
        self.ask(Command::Reserve { key, kind: KIND })
    }

    fn release(&mut self, key: Key) -> Result<(), FenceError> {
        self.ask(Command::Release { key, kind: KIND })
    }

    fn preempt_and_abort(&mut self, key: Key, victim: Key) -> Result<(), FenceError> {
        self.ask(Command::Preempt { key, victim, kind: KIND, abort: true })
    }

    fn read(&mut self) -> Result<Shown, FenceError> {
        Ok(Shown::of(self.lun.borrow().reservations()))
    }
}

/// The owner holds, and the partner is registered.
fn pair(defects: Defects) -> (Path, Path) {
    let lun = Rc::new(RefCell::new(Lun::new(Reservations::default(), defects)));
    let path = |port| Path { lun: lun.clone(), port: Port(port) };
    let (mut owner, mut partner) = (path(1), path(2));
    owner.register(Key::NONE, A).unwrap();
    partner.register(Key::NONE, B).unwrap();
    owner.reserve(A).unwrap();
    (owner, partner)
}

/// Both are registered, and nobody holds it: the quorum LUN in normal times.
fn quorum() -> (Path, Path) {
    let (mut owner, partner) = pair(Defects::default());
    owner.release(A).unwrap();
    (owner, partner)
}

#[test]
fn a_fence_is_confirmed_by_keys_and_holder() {
    let (mut owner, mut partner) = pair(Defects::default());
    let proof = take(&mut partner, B, A).unwrap();
    assert_eq!((proof.lun(), proof.is_drained()), ("lun", true));
    let back = take(&mut owner, A, B);
    assert!(matches!(back, Err(FenceError::KeyGone { key: A, .. })), "the victim strikes back: {back:?}");
}

#[test]
fn a_fence_that_is_said_again_says_nothing_of_old_writes() {
    let (_, mut partner) = pair(Defects::default());
    let first = take(&mut partner, B, A).unwrap();
    let again = take(&mut partner, B, A).unwrap();
    assert_eq!(again.generation(), first.generation());
    assert!(!again.is_drained() && !confirm(&mut partner, B).unwrap().is_drained());
}

#[test]
fn a_victim_that_did_not_hold_is_not_drained() {
    let (mut owner, mut partner) = pair(Defects::default());
    owner.release(A).unwrap();
    partner.reserve(B).unwrap();
    assert!(!take(&mut partner, B, A).unwrap().is_drained());
}

#[test]
fn success_without_effect_is_no_fence() {
    let (mut owner, mut partner) = pair(Defects { preempts_without_effect: true, ..Defects::default() });
    // nvmet does so where the partner holds.
    owner.release(A).unwrap();
    partner.reserve(B).unwrap();
    let why = take(&mut partner, B, A).unwrap_err().to_string();
    assert!(why.contains("0xa is registered too"), "{why}");
}

#[test]
fn an_owner_holds_with_its_partner_registered() {
    let (mut owner, mut partner) = pair(Defects::default());
    let mine = confirm_held(&mut owner, A, B).unwrap();
    assert_eq!((mine.lun(), mine.has_partner()), ("lun", true));
    let theirs = confirm_held(&mut partner, B, A).unwrap_err().to_string();
    assert!(theirs.contains("0xa holds it"), "{theirs}");
    assert!(matches!(confirm(&mut owner, A), Err(FenceError::NotConfirmed { .. })), "it is not alone");
    partner.register(B, Key::NONE).unwrap();
    assert!(!confirm_held(&mut owner, A, B).unwrap().has_partner());
}

#[test]
fn an_owner_whose_key_is_gone_is_told_so() {
    let (mut owner, mut partner) = pair(Defects::default());
    partner.preempt_and_abort(B, A).unwrap();
    for why in [confirm(&mut owner, A).unwrap_err(), confirm_held(&mut owner, A, B).unwrap_err()] {
        assert!(matches!(why, FenceError::KeyGone { key: A, .. }), "{why}");
    }
}

#[test]
fn of_two_that_race_one_wins_and_the_other_is_told() {
    let (mut owner, mut partner) = quorum();
    let won = race(&mut partner, B, A).unwrap();
    assert!(!won.is_drained(), "nobody held it");
    let lost = race(&mut owner, A, B).unwrap_err();
    assert!(matches!(lost, FenceError::KeyGone { key: A, .. }) && lost.is_lost());
    assert_eq!(race(&mut partner, B, A).unwrap(), won, "the winner may say it again");
}

#[test]
fn a_race_is_won_where_a_holders_preemption_does_nothing() {
    let (mut owner, mut partner) = pair(Defects { preempts_without_effect: true, ..Defects::default() });
    owner.release(A).unwrap();
    assert!(race(&mut partner, B, A).is_ok());
    assert!(race(&mut owner, A, B).unwrap_err().is_lost());
}

/// A path by which a rival is faster, between the look at the keys and the reservation.
struct Slower {
    path: Path,
    rival: Path,
    /// The rival has also taken the key by then.
    wins: bool,
    /// The reservation fails as on a lost path.
    fails: bool,
}

impl Fence for Slower {
    fn name(&self) -> String {
        self.path.name()
    }
    fn register(&mut self, old: Key, new: Key) -> Result<(), FenceError> {
        self.path.register(old, new)
    }
    fn reserve(&mut self, mine: Key) -> Result<(), FenceError> {
        self.rival.reserve(B)?;
        if self.wins {
            self.rival.preempt_and_abort(B, A)?;
        }
        if self.fails {
            return Err(FenceError::Io { lun: self.name(), why: std::io::Error::other("cut off") });
        }
        self.path.reserve(mine)
    }
    fn release(&mut self, mine: Key) -> Result<(), FenceError> {
        self.path.release(mine)
    }
    fn preempt_and_abort(&mut self, mine: Key, victim: Key) -> Result<(), FenceError> {
        panic!("{mine:?} preempts {victim:?}, and so might the rival at the same moment")
    }
    fn read(&mut self) -> Result<Shown, FenceError> {
        self.path.read()
    }
}

#[test]
fn who_reserves_too_late_preempts_nobody() {
    let (owner, partner) = quorum();
    let mut slower = Slower { path: owner, rival: partner, wins: false, fails: false };
    let lost = race(&mut slower, A, B).unwrap_err();
    assert!(matches!(lost, FenceError::RaceLost { partner: B, .. }) && lost.is_lost(), "{lost}");
}

#[test]
fn a_call_that_fails_is_a_lost_race_only_if_the_key_is_gone() {
    let told = |wins, fails| {
        let (owner, partner) = quorum();
        race(&mut Slower { path: owner, rival: partner, wins, fails }, A, B).unwrap_err()
    };
    assert!(matches!(told(true, false), FenceError::KeyGone { key: A, .. }));
    // A preemption cuts the victim's own call off.
    assert!(matches!(told(true, true), FenceError::KeyGone { key: A, .. }));
    assert!(matches!(told(false, true), FenceError::Io { .. }));
}

#[test]
fn a_race_that_broke_off_goes_on() {
    let (mut owner, mut partner) = quorum();
    partner.reserve(B).unwrap();
    assert!(
        matches!(confirm(&mut partner, B), Err(FenceError::NotConfirmed { .. })),
        "the owner is registered"
    );
    assert!(race(&mut partner, B, A).is_ok());
    assert!(race(&mut owner, A, B).unwrap_err().is_lost());
}

#[test]
fn a_partner_that_died_in_a_race_is_beaten() {
    let (mut owner, mut partner) = quorum();
    partner.reserve(B).unwrap();
    assert!(race(&mut owner, A, B).unwrap().is_drained(), "it held the LUN");
    assert!(race(&mut partner, B, A).unwrap_err().is_lost());
}

#[test]
fn without_a_holder_a_take_alone_is_no_fence() {
    let (_, mut partner) = quorum();
    assert!(matches!(take(&mut partner, B, A), Err(FenceError::NotConfirmed { .. })));
    assert!(race(&mut partner, B, A).is_ok(), "a race reserves");
}

#[test]
fn a_stranger_on_a_lun_is_refused_before_anything_changes() {
    let (mut owner, mut partner) = pair(Defects::default());
    let mut stranger = Path { lun: owner.lun.clone(), port: Port(3) };
    stranger.register(Key::NONE, Key(0xc)).unwrap();
    let before = owner.read().unwrap();
    for done in [take(&mut partner, B, A), race(&mut partner, B, A)] {
        let why = done.unwrap_err().to_string();
        assert!(why.contains("0xc is registered, which is none of the pair's"), "{why}");
    }
    assert!(matches!(confirm_held(&mut owner, A, B), Err(FenceError::NotConfirmed { .. })));
    assert_eq!(owner.read().unwrap(), before);
}

#[test]
fn after_a_loss_of_registrations_nothing_is_confirmed() {
    let (mut owner, mut partner) = pair(Defects { forgets_at_power_cycle: true, ..Defects::default() });
    partner.lun.borrow_mut().power_cycle();
    for done in [take(&mut partner, B, A), race(&mut owner, A, B), confirm(&mut owner, A)] {
        assert!(matches!(done, Err(FenceError::NoKeys { .. })), "{done:?}");
    }
}

#[test]
fn keys_prove_nothing_while_a_call_is_not_answered() {
    struct Waiting(Path);
    impl Fence for Waiting {
        fn name(&self) -> String {
            self.0.name()
        }
        fn register(&mut self, old: Key, new: Key) -> Result<(), FenceError> {
            self.0.register(old, new)
        }
        fn reserve(&mut self, mine: Key) -> Result<(), FenceError> {
            self.0.reserve(mine)
        }
        fn release(&mut self, mine: Key) -> Result<(), FenceError> {
            self.0.release(mine)
        }
        fn preempt_and_abort(&mut self, mine: Key, victim: Key) -> Result<(), FenceError> {
            self.0.preempt_and_abort(mine, victim)
        }
        fn read(&mut self) -> Result<Shown, FenceError> {
            self.0.read()
        }
        fn is_pending(&self) -> bool {
            true
        }
    }
    let (_, mut partner) = pair(Defects::default());
    partner.preempt_and_abort(B, A).unwrap();
    let mut waiting = Waiting(partner);
    for done in [take(&mut waiting, B, A), race(&mut waiting, B, A), confirm(&mut waiting, B)] {
        assert!(matches!(done, Err(FenceError::Pending { .. })), "{done:?}");
    }
}

#[test]
fn a_call_that_does_not_come_back_is_no_fence() {
    struct Silent;
    impl Fence for Silent {
        fn name(&self) -> String {
            "silent".to_owned()
        }
        fn register(&mut self, _: Key, _: Key) -> Result<(), FenceError> {
            Ok(())
        }
        fn reserve(&mut self, _: Key) -> Result<(), FenceError> {
            Ok(())
        }
        fn release(&mut self, _: Key) -> Result<(), FenceError> {
            Ok(())
        }
        fn preempt_and_abort(&mut self, _: Key, _: Key) -> Result<(), FenceError> {
            std::thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        fn read(&mut self) -> Result<Shown, FenceError> {
            Ok(Shown { generation: 1, keys: vec![A, B], held: Some((A, KIND)) })
        }
    }
    let done = take_within(Silent, B, A, Duration::from_millis(50));
    assert!(matches!(done, Err(FenceError::TimedOut { .. })));
}
