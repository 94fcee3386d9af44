//! Proofs of who has a LUN, and the calls that alone make them.

use super::path::{Fence, FenceError, KIND};
use super::shown::Shown;
use crate::reservation::Key;
use std::time::Duration;

/// The time that a partner has to end a race that it is about to win.
const SETTLE: Duration = Duration::from_millis(250);

/// The proof that a LUN is this controller's alone. Only [`take`], [`race`] and [`confirm`] give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    lun: String,
    generation: u32,
    is_drained: bool,
}

impl Confirmed {
    /// The path to the LUN.
    pub fn lun(&self) -> &str {
        &self.lun
    }

    /// The generation of its registrations when it was read back.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// True if this very call took the LUN from a victim that held it, and was answered: none of its writes can land any more.
    /// Otherwise a write that the array had taken before may still land, for as long as it stays in the array.
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }
}

/// The proof that this controller held a LUN, by [`confirm_held`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    lun: String,
    generation: u32,
    has_partner: bool,
}

impl Ownership {
    /// The path to the LUN.
    pub fn lun(&self) -> &str {
        &self.lun
    }

    /// The generation of its registrations when it was read.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// True if the partner is registered too, so that it could take the LUN.
    pub fn has_partner(&self) -> bool {
        self.has_partner
    }
}

/// Takes the LUN from `victim`, and reads back whether that is so. It may be said again after a failure.
///
/// Keys and holder are read before, and nothing is changed if they are not a pair's. The victim is to hold the LUN: only then
/// arrays end its writes that they had taken ([`Confirmed::is_drained`]).
///
/// # Errors
/// If it is not confirmed, whatever the reason: then the LUN is not fenced. [`FenceError::KeyGone`] if the victim was faster.
pub fn take(lun: &mut impl Fence, mine: Key, victim: Key) -> Result<Confirmed, FenceError> {
    let before = read(lun)?;
    let held = look(lun, &before, mine, victim)?;
    let done = lun.preempt_and_abort(mine, victim);
    after(lun, done, mine, held == Some(victim))
}

/// Takes a LUN that both register with and nobody holds in normal times. Of two that race one wins. It may be said again after
/// a failure, by the loser not before the partner is known to be dead or silent.
///
/// Each reserves, which one of them is refused; only the other preempts. Two preemptions at the same moment would be as safe,
/// and LIO does not survive them: either waits for the other for ever, in the target's kernel. If `partner` holds the LUN, it
/// has some time to win; then the LUN is taken from it.
///
/// It decides who may go on. Only a LUN that `partner` held is drained of its writes by it.
///
/// # Errors
/// If it is not confirmed. [`FenceError::is_lost`] says whether the partner has won.
pub fn race(lun: &mut impl Fence, mine: Key, partner: Key) -> Result<Confirmed, FenceError> {
    race_while(lun, mine, partner, || true)
}

/// The same, and nothing is begun unless it still `may` be: evidence against the partner gets old while this host stands still.
///
/// # Errors
/// As [`race`] has them, or if it may not be begun any more.
pub fn race_while(
    lun: &mut impl Fence,
    mine: Key,
    partner: Key,
    may: impl Fn() -> bool,
) -> Result<Confirmed, FenceError> {
    let mut shown = read(lun)?;
    if look(lun, &shown, mine, partner)? == Some(partner) {
        std::thread::sleep(SETTLE);
        shown = read(lun)?;
    }
    let held = look(lun, &shown, mine, partner)?;
    // One that was begun is ended: the partner has heard of it.
    if held != Some(mine) && !may() {
        let why = "this host stood still, and the race is not begun".to_owned();
        return Err(FenceError::NotConfirmed { lun: lun.name(), why });
    }
    if held.is_none() {
        match lun.reserve(mine) {
            Ok(()) => {}
            Err(FenceError::Conflict { lun: name }) => return Err(beaten(lun, name, mine, partner)),
            Err(why) => return Err(lost(lun, mine, why)),
        }
    }
    if !shown.keys.contains(&partner) {
        return confirm(lun, mine);
    }
    let mut done = lun.preempt_and_abort(mine, partner);
    if done.is_ok() && read(lun)?.keys.contains(&partner) {
        // nvmet does nothing if the holder preempts.
        lun.release(mine).map_err(|why| lost(lun, mine, why))?;
        done = lun.preempt_and_abort(mine, partner);
        lun.reserve(mine).map_err(|why| lost(lun, mine, why))?;
    }
    after(lun, done, mine, held == Some(partner))
}

/// Reads back that the LUN is this controller's alone: its key is the only one, and holds the reservation.
///
/// It says nothing of writes that the array has taken ([`Confirmed::is_drained`] is false).
///
/// # Errors
/// If it is not so, cannot be read, or a call to take the LUN is not answered yet.
pub fn confirm(lun: &mut impl Fence, mine: Key) -> Result<Confirmed, FenceError> {
    let shown = read(lun)?;
    alone(lun, &shown, mine, false)
}

/// Reads that this controller holds the LUN and that nobody but itself and `partner` is registered: the state in which an
/// owner runs.
///
/// # Errors
/// If it is not so, or cannot be read. [`FenceError::KeyGone`] if the partner has taken it.
pub fn confirm_held(lun: &mut impl Fence, mine: Key, partner: Key) -> Result<Ownership, FenceError> {
    let shown = read(lun)?;
    look(lun, &shown, mine, partner)?;
    held_by(lun, &shown, mine)?;
    let has_partner = shown.keys.contains(&partner);
    Ok(Ownership { lun: lun.name(), generation: shown.generation, has_partner })
}

/// Keys and holder, at a moment when they mean something.
fn read(lun: &mut impl Fence) -> Result<Shown, FenceError> {
    if lun.is_pending() {
        return Err(FenceError::Pending { lun: lun.name() });
    }
    lun.read()
}

/// The proof after a preemption that ended as `done`. `held`: the victim held the LUN before it.
fn after(
    lun: &mut impl Fence,
    done: Result<(), FenceError>,
    mine: Key,
    held: bool,
) -> Result<Confirmed, FenceError> {
    let is_answered = match done {
        Ok(()) => true,
        // Nobody has the victim's key: it may have been taken already, which the keys say.
        Err(FenceError::Conflict { .. }) => false,
        Err(why) => return Err(lost(lun, mine, why)),
    };
    let shown = read(lun)?;
    alone(lun, &shown, mine, held && is_answered)
}

/// The error of a reservation of the LUN `name` that was refused: the key is gone, or `partner` was faster. It may have released
/// meanwhile, to preempt.
fn beaten(lun: &mut impl Fence, name: String, mine: Key, partner: Key) -> FenceError {
    let seen = lun.read().and_then(|shown| registered(lun, &shown, mine));
    seen.err().unwrap_or(FenceError::RaceLost { lun: name, partner })
}

/// The error of a call that failed by `why`. The partner's preemption may have cut it off, which the keys say.
fn lost(lun: &mut impl Fence, mine: Key, why: FenceError) -> FenceError {
    let seen = lun.read().map(|shown| registered(lun, &shown, mine));
    match seen {
        Ok(Err(gone @ FenceError::KeyGone { .. })) => gone,
        _ => why,
    }
}

/// The holder's key, if `mine` is registered and nobody is beside it but `partner`.
fn look(lun: &impl Fence, shown: &Shown, mine: Key, partner: Key) -> Result<Option<Key>, FenceError> {
    registered(lun, shown, mine)?;
    match shown.keys.iter().find(|key| **key != mine && **key != partner) {
        Some(other) => {
            Err(not(lun, format!("key {:#x} is registered, which is none of the pair's", other.0)))
        }
        None => Ok(shown.held.map(|(key, _)| key)),
    }
}

fn alone(lun: &impl Fence, shown: &Shown, mine: Key, is_drained: bool) -> Result<Confirmed, FenceError> {
    registered(lun, shown, mine)?;
    if let Some(other) = shown.keys.iter().find(|key| **key != mine) {
        return Err(not(lun, format!("key {:#x} is registered too", other.0)));
    }
    held_by(lun, shown, mine)?;
    Ok(Confirmed { lun: lun.name(), generation: shown.generation, is_drained })
}

fn registered(lun: &impl Fence, shown: &Shown, mine: Key) -> Result<(), FenceError> {
    match shown.keys.contains(&mine) {
        true => Ok(()),
        false if shown.keys.is_empty() => Err(FenceError::NoKeys { lun: lun.name() }),
        false => Err(FenceError::KeyGone { lun: lun.name(), key: mine }),
    }
}

fn held_by(lun: &impl Fence, shown: &Shown, mine: Key) -> Result<(), FenceError> {
    match shown.held {
        Some((key, kind)) if key == mine && kind == KIND => Ok(()),
        Some((key, kind)) => Err(not(lun, format!("key {:#x} holds it, as {kind:?}", key.0))),
        None => Err(not(lun, "nobody holds it".to_owned())),
    }
}

fn not(lun: &impl Fence, why: String) -> FenceError {
    FenceError::NotConfirmed { lun: lun.name(), why }
}
