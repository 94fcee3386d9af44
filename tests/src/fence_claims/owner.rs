//! Claims about races, owners and givebacks.

use super::side::{A, B, Side, fresh, is_refused, measured, pair};
use super::target::{Delay, Target};
use anyhow::{Context, Result, ensure};
use loligo_pair::fence::{Confirmed, Fence, FenceError, KIND, Shown, confirm, confirm_held, race, take};
use loligo_pair::reservation::Key;
use std::os::unix::fs::FileTypeExt;
use std::sync::Barrier;

pub(super) fn race_has_one_winner(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, None)?;
    a.put(Delay::None, 1)?;
    b.put(Delay::None, 2)?;
    let won = measured("race", || race(&mut b.fence, B, A))?;
    let lost = race(&mut a.fence, A, B);
    ensure!(is_loss(&lost), "two winners: {lost:?}");
    ensure!(is_refused(&a.put(Delay::None, 3)) && b.put(Delay::None, 4).is_ok(), "the loser writes");
    let again = race(&mut b.fence, B, A)?;
    ensure!(again.lun() == won.lun() && confirm(&mut b.fence, B).is_ok(), "said again, it is undone");
    Ok(())
}

pub(super) fn races_at_once(target: &Target<'_>) -> Result<()> {
    const ROUNDS: usize = 10;
    let mut wins = [0; 2];
    for round in 0..ROUNDS {
        let (mut a, mut b) = pair(target, None)?;
        let start = Barrier::new(2);
        let run = |side: &mut Side, mine: Key, partner: Key| {
            start.wait();
            race(&mut side.fence, mine, partner)
        };
        let (by_a, by_b) = std::thread::scope(|threads| {
            let by_a = threads.spawn(|| run(&mut a, A, B));
            let by_b = run(&mut b, B, A);
            (by_a.join().expect("a race does not panic"), by_b)
        });
        let (winner, loser, lost) = match (by_a, by_b) {
            (Ok(_), lost) => (&a, &b, lost),
            (lost, Ok(_)) => (&b, &a, lost),
            (lost_a, lost_b) => anyhow::bail!("round {round}: nobody won: {lost_a:?}, {lost_b:?}"),
        };
        ensure!(is_loss(&lost), "round {round}: the loser heard {lost:?}");
        winner.put(Delay::None, 1).context("the winner writes")?;
        ensure!(is_refused(&loser.put(Delay::None, 2)), "round {round}: the loser writes");
        wins[usize::from(std::ptr::eq(winner, &b))] += 1;
    }
    println!("figure races at once, won by a and by b: {wins:?}");
    Ok(())
}

fn is_loss(done: &Result<Confirmed, FenceError>) -> bool {
    done.as_ref().is_err_and(FenceError::is_lost)
}

/// Nobody holds the LUN, as when its owner died at its start.
pub(super) fn take_without_holder(target: &Target<'_>) -> Result<()> {
    let (a, mut b) = pair(target, None)?;
    let done = take(&mut b.fence, B, A);
    ensure!(matches!(done, Err(FenceError::NotConfirmed { .. })), "nobody holds it: {done:?}");
    a.put(Delay::None, 1).context("without a holder everybody writes")?;
    race(&mut b.fence, B, A)?;
    ensure!(is_refused(&a.put(Delay::None, 2)), "the fenced side writes");
    Ok(())
}

pub(super) fn normal_times(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, Some(A))?;
    let mine = measured("confirm_held", || confirm_held(&mut a.fence, A, B))?;
    ensure!(mine.has_partner(), "the partner is registered");
    a.put(Delay::None, 1)?;
    b.put(Delay::None, 2)
        .context("a registrant may write: nothing but its own program keeps it from that")?;
    a.fence.reserve(A).context("a second reservation changes nothing")?;
    for (whose, done) in
        [("partner", confirm_held(&mut b.fence, B, A)), ("stranger", confirm_held(&mut a.fence, A, Key(0xc)))]
    {
        ensure!(matches!(done, Err(FenceError::NotConfirmed { .. })), "{whose}: {done:?}");
    }
    ensure!(
        matches!(confirm(&mut a.fence, A), Err(FenceError::NotConfirmed { .. })),
        "the owner is not alone"
    );
    take(&mut b.fence, B, A)?;
    let gone = confirm_held(&mut a.fence, A, B);
    ensure!(matches!(gone, Err(FenceError::KeyGone { key: A, .. })), "{gone:?}");
    ensure!(!confirm_held(&mut b.fence, B, A)?.has_partner(), "the partner is fenced");
    Ok(())
}

/// After a takeover the partner gives the LUN back: it releases and unregisters, and only then the owner registers.
pub(super) fn giveback(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, Some(A))?;
    take(&mut b.fence, B, A)?;
    measured("release", || b.fence.release(B))?;
    measured("unregister", || b.fence.register(B, Key::NONE))?;
    let none = b.fence.read()?;
    ensure!(none.keys.is_empty() && none.held.is_none(), "a key is left: {none:?}");
    ensure!(matches!(confirm(&mut b.fence, B), Err(FenceError::NoKeys { .. })), "nobody is registered");
    a.fence.register(Key::NONE, A)?;
    a.fence.reserve(A)?;
    ensure!(is_refused(&b.put(Delay::None, 1)), "who gave it back writes");
    confirm(&mut a.fence, A)?;
    b.fence.register(Key::NONE, B)?;
    ensure!(confirm_held(&mut a.fence, A, B)?.has_partner(), "as before the takeover");
    let wrong = b.fence.register(A, Key(0xd));
    ensure!(matches!(wrong, Err(FenceError::Conflict { .. })), "registered by another's key: {wrong:?}");
    Ok(())
}

/// A change of the registrations by one of the sides.
type Step = fn(&mut Side, &mut Side) -> Result<(), FenceError>;

/// A block device has its own command beside the kernel's calls, which old kernels do not have. A model has neither.
pub(super) fn readings_agree(target: &Target<'_>) -> Result<()> {
    let is_device = std::fs::metadata(&target.a)?.file_type().is_block_device();
    let (mut a, mut b) = fresh(target)?;
    let steps: [(&str, Step, Shown); 4] = [
        ("nobody", |_, _| Ok(()), shown(&[], None)),
        ("one key", |a, _| a.fence.register(Key::NONE, A), shown(&[A], None)),
        ("held", |a, _| a.fence.reserve(A), shown(&[A], Some(A))),
        ("two keys", |_, b| b.fence.register(Key::NONE, B), shown(&[A, B], Some(A))),
    ];
    for (what, step, expected) in steps {
        step(&mut a, &mut b)?;
        for side in [&mut a, &mut b] {
            let mut seen = measured("read", || side.fence.read())?;
            seen.keys.sort_unstable();
            ensure!(seen.keys == expected.keys && seen.held == expected.held, "{what}: {seen:?}");
            if is_device {
                let mut passed =
                    measured("read by the device's command", || side.fence.read_passed_through())?;
                passed.keys.sort_unstable();
                ensure!(passed == seen, "{what}: {passed:?}, and the kernel says {seen:?}");
            }
        }
    }
    Ok(())
}

fn shown(keys: &[Key], holder: Option<Key>) -> Shown {
    Shown { generation: 0, keys: keys.to_vec(), held: holder.map(|key| (key, KIND)) }
}
