//! Claims about who may write.

use super::raw;
use super::side::{A, B, BLOCK, Side, fresh, is_refused, measured, pair};
use super::target::{Delay, Target};
use anyhow::{Result, ensure};
use loligo_pair::fence::{Fence, FenceError, confirm, take};
use loligo_pair::reservation::Key;
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};

pub(super) fn writes_no_more(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, Some(A))?;
    a.put(Delay::None, 1)?;
    let proof = measured("take, idle", || take(&mut b.fence, B, A))?;
    ensure!(proof.is_drained(), "the victim held it");
    ensure!(is_refused(&measured("refused write", || a.put(Delay::None, 2))), "the fenced side wrote");
    b.put(Delay::None, 3)?;
    ensure!(is_refused(&a.put(Delay::None, 4)) && b.get(Delay::None)? == 3, "the fenced side wrote later");
    ensure!(matches!(a.fence.reserve(A), Err(FenceError::Conflict { .. })), "the victim reserved");
    let back = take(&mut a.fence, A, B);
    ensure!(matches!(back, Err(FenceError::KeyGone { key: A, .. })), "the victim strikes back: {back:?}");
    ensure!(matches!(confirm(&mut a.fence, A), Err(FenceError::KeyGone { .. })), "its key is there");
    let again = take(&mut b.fence, B, A)?;
    ensure!(!again.is_drained(), "the second call waited for nothing");
    Ok(())
}

pub(super) fn registers_again(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = pair(target, Some(A))?;
    take(&mut b.fence, B, A)?;
    ensure!(is_refused(&a.put(Delay::None, 1)), "the fenced side wrote");
    a.fence.register(Key::NONE, A)?;
    // So nothing of ours may register by itself.
    a.put(Delay::None, 2)?;
    let seen = confirm(&mut b.fence, B);
    ensure!(matches!(seen, Err(FenceError::NotConfirmed { .. })), "the partner does not see it: {seen:?}");
    Ok(())
}

pub(super) fn unregistered_path(target: &Target<'_>) -> Result<()> {
    let (mut a, mut b) = fresh(target)?;
    a.fence.register(Key::NONE, A)?;
    a.put(Delay::None, 1)?;
    b.put(Delay::None, 2)?;
    a.fence.reserve(A)?;
    a.put(Delay::None, 3)?;
    ensure!(is_refused(&b.put(Delay::None, 4)), "a path without registration wrote");
    ensure!(b.get(Delay::None)? == 3, "a path without registration reads");
    let took = take(&mut b.fence, B, A);
    ensure!(matches!(took, Err(FenceError::KeyGone { key: B, .. })), "it took the LUN: {took:?}");
    ensure!(matches!(b.fence.preempt_and_abort(B, A), Err(FenceError::Conflict { .. })), "it preempted");
    a.put(Delay::None, 5)?;
    Ok(())
}

/// A fenced side may go on in its page cache. Only the first fsync says so, and reads show what was never written.
pub(super) fn page_cache(target: &Target<'_>) -> Result<()> {
    // A model's file writes through the page cache: its write fails.
    if !std::fs::metadata(&target.a)?.file_type().is_block_device() {
        return Ok(());
    }
    let (a, mut b) = pair(target, Some(A))?;
    a.put(Delay::None, 1)?;
    let cached = File::options().read(true).write(true).open(&target.a)?;
    take(&mut b.fence, B, A)?;
    cached.write_all_at(&[2; BLOCK], Delay::None.place())?;
    ensure!(cached.sync_data().is_err(), "the fenced side's fsync succeeded");
    let mut block = [0; BLOCK];
    let again = cached.sync_data();
    cached.read_exact_at(&mut block, Delay::None.place())?;
    println!("figure a second fsync: {again:?}; the page cache has the lost bytes: {}", block[0] == 2);
    ensure!(b.get(Delay::None)? == 1, "the fenced side's bytes are on the medium");
    Ok(())
}

/// Type 6 of SCSI (4 of `<linux/pr.h>`): a fenced side cannot read either, so that a controller that comes back could not even
/// look at labels. The pair uses type 5.
pub(super) fn exclusive_access(target: &Target<'_>) -> Result<()> {
    const EXCLUSIVE_ACCESS_REGISTRANTS: u32 = 4;
    let (a, mut b) = fresh(target)?;
    b.fence.register(Key::NONE, B)?;
    raw::reserve(&b.file, B.0, EXCLUSIVE_ACCESS_REGISTRANTS)?;
    let reads = |side: &Side| side.get(Delay::None);
    ensure!(is_refused(&reads(&a)) && reads(&b).is_ok(), "a stranger reads");
    let seen = confirm(&mut b.fence, B);
    ensure!(
        matches!(seen, Err(FenceError::NotConfirmed { .. })),
        "another type than the pair's counts: {seen:?}"
    );
    raw::clear(&b.file)?;
    Ok(())
}
