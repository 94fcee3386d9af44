//! Loading the index image: every current page, read ahead in long stretches, into index and policy.
//!
//! Two threads share the work of a large cache's millions of entries: the caller's reads, and fills the index; a helper
//! checks and decodes pages, and fills the policy. Chunks go to and fro in order, so that the result does not depend on
//! who was faster.

use super::{Plan, RecoverError, Replay, Report};
use crate::bug::{Bug, planted};
use crate::index::{Index, Meta};
use crate::policy::Replacement;
use loligo_block::{Buf, SyncIo};
use loligo_format::page::{Directory, Entry, PAGE, PER_PAGE, PageError, Root, decode_page};
use loligo_format::units::BLOCK;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Bytes of the image in a chunk.
const CHUNK: usize = 2 << 20;
/// Chunks on their way to the helper and back.
const AHEAD: usize = 3;

/// Pages that lie in one stretch of the device, of both places.
#[derive(Default)]
struct Chunk {
    pages: Range<u32>,
    /// By place: what lies from its first current page to its last, and that first page.
    starts: [u32; 2],
    raw: [Option<Buf>; 2],
    /// The findings of the helper: the shard's own number of each block, and its version.
    entries: Vec<(u32, Meta)>,
    /// Pages that cannot be used, and why.
    lost: Vec<(u32, PageError)>,
}

/// The helpers to read and to decode.
struct Loader<'a> {
    plan: &'a Plan,
    directory: &'a Directory,
}

impl Loader<'_> {
    fn per_chunk() -> u32 {
        (CHUNK / PAGE) as u32
    }

    /// The first page of every chunk.
    fn firsts(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.plan.layout.page_count).step_by(Self::per_chunk() as usize)
    }

    fn pages_of(&self, first: u32) -> Range<u32> {
        first..self.plan.layout.page_count.min(first + Self::per_chunk())
    }

    /// The stretch that holds every current page of a chunk and place: its first page, and its bytes in the chunk.
    fn stretch(&self, first: u32, which: u8) -> Option<(u32, Range<usize>)> {
        let wanted = |p: &u32| self.directory.current(*p) == Some(which);
        let (a, b) = (self.pages_of(first).find(wanted)?, self.pages_of(first).rev().find(wanted)?);
        Some((a, (a - first) as usize * PAGE..((b - first) as usize + 1) * PAGE))
    }

    /// Every read that [`Loader::read`] will do, in order.
    fn reads(&self) -> Vec<(u64, usize)> {
        let both = self.firsts().flat_map(|first| [0u8, 1].map(|which| (which, self.stretch(first, which))));
        both.filter_map(|(w, s)| s.map(|(a, bytes)| (self.plan.layout.page(a, w), bytes.len()))).collect()
    }

    fn read(&self, dev: &mut dyn SyncIo, first: u32, chunk: &mut Chunk) -> Result<(), RecoverError> {
        chunk.pages = self.pages_of(first);
        for which in 0..2u8 {
            let raw = &mut chunk.raw[usize::from(which)];
            if let Some((a, bytes)) = self.stretch(first, which) {
                *raw = Some(match dev.read_owned(self.plan.layout.page(a, which), bytes.len(), raw.take()) {
                    Err(e) if !e.is_final() => self.read_current(dev, a, which, bytes.len())?,
                    read => read?,
                });
                chunk.starts[usize::from(which)] = a;
            }
        }
        Ok(())
    }

    /// The current pages among those from `a` on, one by one: a sector that cannot be read is no loss of others, and none at all where
    /// it belongs to no current page. A page that cannot be read stays zeros, which are none.
    fn read_current(&self, dev: &mut dyn SyncIo, a: u32, which: u8, len: usize) -> Result<Buf, RecoverError> {
        let mut buf = Buf::zeroed(len);
        for (page, raw) in (a..).zip(buf.chunks_exact_mut(PAGE)) {
            if self.directory.current(page) != Some(which) {
                continue;
            }
            match dev.read_at(self.plan.layout.page(page, which), raw) {
                Ok(()) => {}
                Err(e) if e.is_final() => return Err(e.into()),
                Err(_) => raw.fill(0),
            }
        }
        Ok(buf)
    }

    /// Checks and decodes a chunk, and makes its slots known to the policy.
    fn decode(&self, chunk: &mut Chunk, policy: &mut Replacement, page_entries: &mut Vec<Entry>) {
        chunk.entries.clear();
        chunk.lost.clear();
        for page in chunk.pages.clone() {
            let Some(which) = self.directory.current(page) else { continue };
            let place = usize::from(which);
            let at = (page - chunk.starts[place]) as usize * PAGE;
            let stretch = chunk.raw[place].as_ref().expect("every current page is read");
            let raw = &stretch[at..at + PAGE];
            let (plan, crc) = (self.plan, self.directory.crc[page as usize]);
            page_entries.clear();
            let decoded = decode_page(raw, plan.id, page, plan.layout.limit, crc, |e| page_entries.push(e));
            if let Err(e) = decoded {
                chunk.lost.push((page, e));
                continue;
            }
            for e in page_entries.iter().filter(|e| e.block * BLOCK < plan.data_length) {
                policy.restore(e.meta.slot, e.policy);
                chunk.entries.push((plan.stripe.local(e.block), e.meta));
            }
        }
    }

    fn help(&self, policy: &mut Replacement, from: &Receiver<Chunk>, to: &Sender<Chunk>) {
        let mut page_entries = Vec::with_capacity(PER_PAGE);
        while let Ok(mut chunk) = from.recv() {
            self.decode(&mut chunk, policy, &mut page_entries);
            if to.send(chunk).is_err() {
                return;
            }
        }
    }

    /// Reads, has decoded and indexes everything; returns the slots whose version a newer one replaced.
    fn load(
        &self,
        dev: &mut dyn SyncIo,
        index: &mut Index,
        touched: &mut BTreeSet<u32>,
        report: &mut Report,
        (send, decoded): (SyncSender<Chunk>, Receiver<Chunk>),
    ) -> Result<Vec<u32>, RecoverError> {
        let mut replaced = Vec::new();
        let mut spare: Vec<Chunk> = Vec::new();
        let mut out = 0;
        let mut firsts = self.firsts().peekable();
        while firsts.peek().is_some() || out > 0 {
            while out < AHEAD
                && let Some(first) = firsts.next()
            {
                let mut chunk = spare.pop().unwrap_or_default();
                self.read(dev, first, &mut chunk)?;
                send.send(chunk).expect("the helper takes chunks until there are no more");
                out += 1;
            }
            let chunk = decoded.recv().expect("the helper gives every chunk back");
            out -= 1;
            for (page, why) in &chunk.lost {
                if !self.plan.force {
                    return Err(why.clone().into());
                }
                report.pages_lost += 1;
                touched.insert(*page);
            }
            fill(index, &chunk.entries, &mut replaced);
            spare.push(chunk);
        }
        Ok(replaced)
    }
}

/// Entries whose bucket is brought near ahead of the one at hand.
const NEAR: usize = 16;

fn fill(index: &mut Index, entries: &[(u32, Meta)], replaced: &mut Vec<u32>) {
    for (i, (block, meta)) in entries.iter().enumerate() {
        if let Some((later, _)) = entries.get(i + NEAR) {
            index.prefetch(*later);
        }
        replaced.extend(index.replay(*block, *meta));
    }
}

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
    let loader = Loader { plan, directory: &directory };
    dev.read_next(loader.reads());
    let Replay { index, policy, touched, .. } = r;
    let [map, lines] = index.regions();
    let [ours, others] = map.halves();
    let replaced = std::thread::scope(|s| {
        let (send, todo) = sync_channel(AHEAD);
        let (done, decoded) = channel();
        let (loader, policy) = (&loader, &mut *policy);
        s.spawn(move || loader.help(policy, &todo, &done));
        // Memory is cleared by the kernel when it is first touched, which takes as long as filling it.
        s.spawn(move || {
            others.populate();
            lines.populate();
        });
        ours.populate();
        loader.load(dev, index, touched, report, (send, decoded))
    })?;
    // The image is fuzzy: a block may stand in two slots. The record that moved it will be replayed; but the page that
    // still names the older slot must be written again, or a later start takes it for the newest.
    for slot in replaced {
        r.policy.remove(slot);
        report.older_entries += 1;
        if !planted(plan.bug, Bug::OlderEntryKept) {
            r.touch(slot);
        }
    }
    Ok(directory)
}
