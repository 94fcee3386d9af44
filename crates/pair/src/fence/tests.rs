//! Claims about what counts as a fence, over the model without any device.

use super::*;
use crate::lun::{Command, Defects, Lun, Reply};
use crate::reservation::{Port, Refusal, Reservations};
use std::cell::RefCell;
use std::rc::Rc;

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

#[test]
fn a_fence_is_confirmed_by_keys_and_holder() {
    let (mut owner, mut partner) = pair(Defects::default());
    let proof = take(&mut partner, B, A).unwrap();
    assert_eq!(proof.lun(), "lun");
    assert!(
        matches!(take(&mut owner, A, B), Err(FenceError::NotConfirmed { .. })),
        "the victim strikes back"
    );
}

#[test]
fn a_fence_that_is_said_again_is_confirmed_again() {
    let (_, mut partner) = pair(Defects::default());
    let first = take(&mut partner, B, A).unwrap();
    assert_eq!(take(&mut partner, B, A).unwrap(), first);
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
fn an_owner_whose_key_is_gone_confirms_nothing() {
    let (mut owner, mut partner) = pair(Defects::default());
    assert!(
        matches!(confirm(&mut owner, A), Err(FenceError::NotConfirmed { .. })),
        "the partner is registered"
    );
    partner.preempt_and_abort(B, A).unwrap();
    let why = confirm(&mut owner, A).unwrap_err().to_string();
    assert!(why.contains("0xa is not registered"), "{why}");
}

#[test]
fn after_a_loss_of_registrations_nothing_is_confirmed() {
    let (_, mut partner) = pair(Defects { forgets_at_power_cycle: true, ..Defects::default() });
    partner.lun.borrow_mut().power_cycle();
    assert!(matches!(take(&mut partner, B, A), Err(FenceError::NotConfirmed { .. })));
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
            Ok(Shown { generation: 1, keys: vec![B], held: Some((B, KIND)) })
        }
    }
    let done = take_within(Silent, B, A, Duration::from_millis(50));
    assert!(matches!(done, Err(FenceError::TimedOut { .. })));
}
