//! Claims about writes in flight, and why the owner holds its LUN.

use super::raw;
use super::side::{A, B, BLOCK, Side, Slow, figure, get_at, is_refused, measured, pair, put};
use super::target::{Delay, IfPartnerHolds, Target};
use anyhow::{Context, Result, ensure};
use loligo_pair::fence::{BlockFence, Confirmed, Fence, FenceError, KIND, Taking, confirm, race, take};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// The time that something which lands late has, beyond its delay.
fn slack(target: &Target<'_>) -> Duration {
    target.long / 4
}

/// The time that a call that does not wait may take. A waiting one takes half of [`Target::long`] or more.
fn at_once(target: &Target<'_>) -> Duration {
    target.long / 2
}

/// A write of the owner, of which the array has had a quarter of its time, and what became of it.
struct Late {
    write: Slow,
    begun: Instant,
}

/// The owner's write is in the array.
fn in_flight(target: &Target<'_>, a: &Side) -> Result<Late> {
    (target.set_delay)(Delay::Long);
    let write = a.slow_put(target)?;
    ensure!(!write.has_ended(), "the write is not slow, so nothing can be seen");
    Ok(Late { write, begun: Instant::now() })
}

impl Late {
    /// Whether the medium changed after now, until well past the end of the write; and how that ended.
    fn lands(self, target: &Target<'_>, b: &Side) -> Result<(bool, std::io::Result<()>)> {
        let (now, begun) = (b.get(Delay::Long)?, Instant::now());
        let (done, ended) = self.write.end();
        sleep((self.begun + target.long + slack(target)).saturating_duration_since(Instant::now()));
        let later = b.get(Delay::Long)?;
        if later != now {
            figure("landed after the answer", ended.saturating_duration_since(begun));
        }
        Ok((later != now, done))
    }
}

pub(super) fn fence_waits(target: &Target<'_>) -> Result<()> {
    let (a, mut b) = pair(target, Some(A))?;
    let late = in_flight(target, &a)?;
    let begun = Instant::now();
    let proof = measured("take, a write in the array", || take(&mut b.fence, B, A))?;
    ensure!(begun.elapsed() > at_once(target), "it did not wait: {:?}", begun.elapsed());
    ensure!(proof.is_drained(), "the victim held it");
    let (landed, done) = late.lands(target, &b)?;
    println!("figure the owner's write ended: {done:?}");
    ensure!(!landed, "the owner's write landed after the fence");
    ensure!(is_refused(&a.put(Delay::None, 2)), "the fenced side wrote");
    Ok(())
}

pub(super) fn writers_are_still(target: &Target<'_>) -> Result<()> {
    const WRITERS: u64 = 16;
    let (a, mut b) = pair(target, Some(A))?;
    let b_file = b.file.try_clone()?;
    (target.set_delay)(Delay::Short);
    let place = |n: u64| Delay::Short.place() + n * BLOCK as u64;
    let all = || (0..WRITERS).map(|n| get_at(&b_file, place(n))).collect::<std::io::Result<Vec<u8>>>();
    let before = all()?;
    let mut writers = Vec::new();
    for n in 0..WRITERS {
        let file = a.file.try_clone()?;
        writers.push(spawn(move || (1..=u8::MAX).cycle().try_for_each(|byte| put(&file, place(n), byte))));
    }
    sleep(target.short * 9 / 2);
    let proof = measured("take, 16 writers", || take(&mut b.fence, B, A))?;
    let now = all()?;
    ensure!(proof.is_drained(), "the victim held it");
    ensure!(now != before, "nobody had written");
    sleep(target.short * 3 + slack(target));
    ensure!(all()? == now, "a write landed after the fence");
    for writer in writers {
        let end = writer.join().expect("a writer does not panic");
        ensure!(is_refused(&end), "a writer ended otherwise: {end:?}");
    }
    Ok(())
}

pub(super) fn plain_preemption_is_no_fence(target: &Target<'_>) -> Result<()> {
    let (a, mut b) = pair(target, Some(A))?;
    let late = in_flight(target, &a)?;
    let begun = Instant::now();
    measured("plain preempt, a write in the array", || raw::preempt(&b.file, B.0, A.0, KIND as u32))?;
    ensure!(begun.elapsed() < at_once(target), "it waited: {:?}", begun.elapsed());
    let seen = b.fence.read()?;
    ensure!(
        seen.keys == [B] && seen.held == Some((B, KIND)),
        "keys and holder do not tell the difference: {seen:?}"
    );
    let (landed, _) = late.lands(target, &b)?;
    ensure!(landed, "nothing landed late, so a plain preemption would do");
    Ok(())
}

pub(super) fn partner_that_holds(target: &Target<'_>) -> Result<()> {
    let (a, mut b) = pair(target, Some(B))?;
    let late = in_flight(target, &a)?;
    let begun = Instant::now();
    let done = measured("take, the partner holds", || take(&mut b.fence, B, A));
    let waited = begun.elapsed() > at_once(target);
    let (landed, _) = late.lands(target, &b)?;
    match target.if_partner_holds {
        IfPartnerHolds::Nothing => {
            let why = done.err().context("it did nothing, and is confirmed")?;
            ensure!(why.to_string().contains("key 0xa is registered too"), "{why}");
            a.put(Delay::None, 2).context("it may write still")?;
        }
        IfPartnerHolds::Misses => {
            ensure!(!done?.is_drained() && landed && !waited, "landed {landed}, waited {waited}");
            ensure!(is_refused(&a.put(Delay::None, 2)), "its key is gone");
        }
        IfPartnerHolds::Waits => {
            ensure!(!done?.is_drained() && !landed && waited, "landed {landed}, waited {waited}");
        }
    }
    Ok(())
}

pub(super) fn race_does_not_drain(target: &Target<'_>) -> Result<()> {
    let (a, mut b) = pair(target, None)?;
    let late = in_flight(target, &a)?;
    let won = measured("race, a write in the array", || race(&mut b.fence, B, A))?;
    ensure!(!won.is_drained(), "nobody held it, so nothing is known of writes");
    let (landed, _) = late.lands(target, &b)?;
    println!("figure a write landed after the race: {landed}");
    ensure!(is_refused(&a.put(Delay::None, 2)), "the loser wrote");
    Ok(())
}

/// Keys change at the beginning of a preemption, and its answer comes when the writes have ended. Between the two a second call
/// sees the keys of a fence.
pub(super) fn keys_come_before_the_answer(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, Some(A))?;
    let late = in_flight(target, &a)?;
    let taking = Taking::start(BlockFence::open(&target.b)?, B, A)?;
    sleep(target.long / 8);
    let early: [(&str, Result<Confirmed, FenceError>); 3] = [
        ("confirm", confirm(&mut b.fence, B)),
        ("take", take(&mut b.fence, B, A)),
        ("race", race(&mut b.fence, B, A)),
    ];
    for (call, done) in early {
        ensure!(matches!(done, Err(FenceError::Pending { .. })), "{call} while a call waits: {done:?}");
    }
    let seen = measured("read by the other path, a call waits", || a.fence.read())?;
    ensure!(seen.keys == [B] && seen.held == Some((B, KIND)), "keys come with the answer: {seen:?}");
    let short = taking.wait(Duration::from_millis(1));
    ensure!(matches!(short, Err(FenceError::TimedOut { .. })), "it did not wait: {short:?}");
    let proof = taking.wait(target.long * 4)?;
    ensure!(proof.is_drained() && confirm(&mut b.fence, B).is_ok(), "it is answered, and no fence");
    let (landed, _) = late.lands(target, &b)?;
    ensure!(!landed, "the owner's write landed after the fence");
    Ok(())
}
