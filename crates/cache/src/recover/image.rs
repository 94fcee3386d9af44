//! Loading the index image: every current page, read ahead in long stretches, into index and policy.

use super::{CHUNK, Plan, RecoverError, Replay, Report};
use crate::page::{Directory, Entry, PAGE, PER_PAGE, Root, decode_page};
use crate::units::BLOCK;
use loligo_block::SyncIo;

/// Fills `r` from the image that `root` names; returns its directory.
pub(super) fn load_image(
    dev: &mut dyn SyncIo,
    plan: &Plan,
    root: &Root,
    r: &mut Replay,
    report: &mut Report,
) -> Result<Directory, RecoverError> {
    let l = &plan.layout;
    let mut raw = vec![0; l.dir_len as usize];
    dev.read_at(l.dirs[usize::from(root.dir)], &mut raw)?;
    let directory = Directory::decode(&raw, plan.id, l.page_count, root.dir_crc)?;
    let per_chunk = (CHUNK / PAGE) as u32;
    let pages_of = |first: u32| first..l.page_count.min(first + per_chunk);
    // Of each chunk and place, the stretch that holds every current page: its first page, and its bytes in the chunk.
    let stretch = |first: u32, which: u8| {
        let wanted = |p: &u32| directory.current(*p) == Some(which);
        let (a, b) = (pages_of(first).find(wanted)?, pages_of(first).rev().find(wanted)?);
        Some((a, (a - first) as usize * PAGE..((b - first) as usize + 1) * PAGE))
    };
    let firsts = || (0..l.page_count).step_by(per_chunk as usize);
    let reads = firsts().flat_map(|first| [0u8, 1].map(|which| (which, stretch(first, which))));
    dev.read_next(reads.filter_map(|(w, s)| s.map(|(a, bytes)| (l.page(a, w), bytes.len()))).collect());
    let mut chunk = [vec![0u8; CHUNK], vec![0u8; CHUNK]];
    let mut entries: Vec<Entry> = Vec::with_capacity(PER_PAGE);
    for first in firsts() {
        let pages = pages_of(first);
        for which in 0..2u8 {
            if let Some((a, bytes)) = stretch(first, which) {
                dev.read_at(l.page(a, which), &mut chunk[usize::from(which)][bytes])?;
            }
        }
        for page in pages {
            let Some(which) = directory.current(page) else { continue };
            let at = ((page - first) as usize) * PAGE;
            entries.clear();
            let raw = &chunk[usize::from(which)][at..at + PAGE];
            let crc = directory.crc[page as usize];
            if let Err(e) = decode_page(raw, plan.id, page, l.slots, crc, |e| entries.push(e)) {
                if !plan.force {
                    return Err(e.into());
                }
                report.pages_lost += 1;
                r.touched.insert(page);
                continue;
            }
            entries.retain(|e| e.block * BLOCK < plan.home_length);
            for e in &entries {
                r.index.prefetch(plan.stripe.local(e.block));
            }
            for e in &entries {
                // The image is fuzzy: a block may stand in two slots. The record that moved it will be replayed; but the page
                // that still names the older slot must be written again, or a later start takes it for the newest.
                if let Some(old) = r.index.replay(plan.stripe.local(e.block), e.meta) {
                    r.policy.remove(old);
                    r.touch(old);
                }
                r.policy.restore(e.meta.slot, e.policy);
            }
        }
    }
    Ok(directory)
}
