//! Claims about destaging that need every completion to come when the test says so.

use loligo_block::{Answer, Buf, IoError, IoKind, Op, OpKind, ReqError, ReqKind, Request, SyncIo};
use loligo_cache::Core;
use loligo_cache::api::{Dev, Effect, Event, Hint};
use loligo_cache::mode::Mode;
use loligo_cache::open::{self, Devices, FormatOptions, OpenOptions, PAGE_WRITES};
use loligo_cache::params::Params;
use loligo_cache::superblock::{CoreIdentity, Superblock};

const MIB: u64 = 1 << 20;
const CORE: u64 = 64 * MIB;
const SECOND: u64 = 1_000_000_000;

/// One shard whose devices do nothing by themselves.
struct Hand {
    shard: Core,
    cache: Vec<u8>,
    disk: Vec<u8>,
    now: u64,
    asked: u64,
    pending: Vec<(Dev, Op)>,
    answers: Vec<(u64, Result<Answer, ReqError>)>,
}

impl Hand {
    /// Write-back, 32 MiB, over a core without a cache of its own.
    fn new() -> Hand {
        let (mut cache, mut disk) = (vec![0; 32 << 20], vec![0; CORE as usize]);
        let format = FormatOptions {
            uuid: [7; 16],
            name: "t".into(),
            cache_size: 32 << 20,
            core: CoreIdentity { size: CORE, id: String::new() },
            line_size: 4096,
            shards: 1,
            mode: Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        open::format(&mut cache, &format).unwrap();
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let sb = Superblock::load(&mut cache).unwrap();
        let opened = open::open(&mut cache, &mut disk, sb, &options).unwrap();
        let devices = Devices {
            journal_unit: 512,
            cache_volatile: true,
            core_volatile: false,
            core_unmaps: false,
            page_writes: PAGE_WRITES,
        };
        let shard = opened.into_cores(Mode::Wb, &options, &devices).1.remove(0);
        Hand { shard, cache, disk, now: 1, asked: 0, pending: Vec::new(), answers: Vec::new() }
    }

    fn event(&mut self, event: Event) {
        let mut fx = Vec::new();
        self.shard.step(self.now, event, &mut fx);
        self.shard.settle(self.now, &mut fx);
        for effect in fx {
            match effect {
                Effect::Io(dev, op) => self.pending.push((dev, op)),
                Effect::Answer(reply) => self.answers.push((reply.id, reply.result)),
                Effect::Missed(_) | Effect::Controlled(..) => {}
            }
        }
    }

    fn submit(&mut self, kind: ReqKind, offset: u64, len: u64) -> u64 {
        self.asked += 1;
        let request = Request { id: self.asked, kind, offset, len, fua: false };
        self.event(Event::Submit(request, Hint::default()));
        self.asked
    }

    fn write(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(ReqKind::Write(Buf::zeroed(len as usize).freeze()), offset, len)
    }

    /// Carries out the pending operation at `index` and says so; core writes fail where `broken`.
    fn complete(&mut self, index: usize, broken: bool) {
        let (dev, op) = self.pending.remove(index);
        let device = if dev == Dev::Cache { &mut self.cache } else { &mut self.disk };
        let (mut buf, mut result) = (None, Ok(()));
        match op.kind {
            OpKind::Read(mut b) => {
                device.read_at(op.offset, &mut b).unwrap();
                buf = Some(b);
            }
            OpKind::Write { .. } if broken && dev == Dev::Core => {
                result = Err(IoError::new(IoKind::Gone, "the core is gone"));
            }
            OpKind::Write { data, .. } => device.write_at(op.offset, &data).unwrap(),
            OpKind::Flush | OpKind::Discard { .. } | OpKind::WriteZeroes { .. } => {}
        }
        self.event(Event::Done { tag: op.tag, buf, result });
    }

    /// Completes everything that is pending and everything that follows.
    fn quiet(&mut self, broken: bool) {
        while !self.pending.is_empty() {
            self.now += 1000;
            self.complete(0, broken);
        }
    }

    fn tick(&mut self, nanos: u64) {
        self.now += nanos;
        self.event(Event::Tick);
    }

    fn answer(&self, id: u64) -> Option<Result<(), ReqError>> {
        self.answers.iter().find(|a| a.0 == id).map(|a| a.1.as_ref().map(drop).map_err(|e| *e))
    }

    /// Places among the pending operations of reads of the cache.
    fn slot_reads(&self) -> Vec<usize> {
        let is = |p: &(Dev, Op)| p.0 == Dev::Cache && matches!(p.1.kind, OpKind::Read(_));
        (0..self.pending.len()).filter(|i| is(&self.pending[*i])).collect()
    }
}

#[test]
fn a_job_that_ends_while_fewer_slot_reads_are_allowed_than_are_under_way_is_forgotten() {
    let mut h = Hand::new();
    for window in 0..40 {
        h.write(window * MIB, 4096);
    }
    h.submit(ReqKind::Flush, 0, 0);
    h.quiet(false);
    // Nobody there: the sweep begins, a block a window, with as many reads as it may.
    h.tick(SECOND);
    let reads = h.slot_reads();
    assert_eq!(reads.len(), 32);
    let last = h.pending[reads[31]].1.tag;
    // Clients come back: a read that stays at the core, and a new version of the block that is read last.
    h.submit(ReqKind::Read, 60 * MIB, 4096);
    h.write(31 * MIB, 4096);
    while let Some(i) =
        h.pending.iter().position(|p| matches!(p.1.kind, OpKind::Write { .. }) && p.0 == Dev::Cache)
    {
        h.complete(i, false);
    }
    let at = h.pending.iter().position(|p| p.1.tag == last).expect("it is still being read");
    h.complete(at, false);
    for _ in 0..5 {
        h.quiet(false);
        h.tick(SECOND);
    }
    assert_eq!(h.shard.dirty_blocks(), 0, "all of it was destaged");
}

/// Writes fresh blocks until one has to wait, with a core that takes nothing; its id.
fn fill(h: &mut Hand) -> u64 {
    for at in (0..CORE).step_by(64 << 10) {
        let id = h.write(at, 64 << 10);
        h.quiet(true);
        for _ in 0..50 {
            if h.answer(id).is_some() {
                break;
            }
            // The pacer may hold it back for a moment; a full cache does so for good.
            h.tick(SECOND / 50);
            h.quiet(true);
        }
        if h.answer(id).is_none() {
            return id;
        }
    }
    panic!("a cache of 32 MiB took {CORE} bytes");
}

#[test]
fn a_write_that_needs_room_behind_a_core_that_only_fails_fails_after_a_minute_and_overwrites_go_on() {
    let mut h = Hand::new();
    let waits = fill(&mut h);
    let others: Vec<u64> = (0..300).map(|i| h.write(63 * MIB + i % 2 * 4096, 4096)).collect();
    let begun = h.now;
    while h.answer(waits).is_none() {
        h.tick(SECOND);
        h.quiet(true);
        assert!(h.now - begun < 100 * SECOND, "it waits for ever");
    }
    assert_eq!(h.answer(waits), Some(Err(ReqError::Io)));
    for id in others {
        assert_eq!(
            h.answer(id),
            Some(Err(ReqError::Io)),
            "those behind it, and those that wait for its blocks"
        );
    }
    let over = h.write(0, 4096);
    h.quiet(true);
    assert_eq!(h.answer(over), Some(Ok(())), "an overwrite needs nothing of the core");
    // The core is mended: the sweep finds out by itself, and there is room again.
    for _ in 0..10 {
        h.tick(SECOND);
        h.quiet(false);
    }
    let again = h.write(63 * MIB, 4096);
    h.quiet(false);
    assert_eq!(h.answer(again), Some(Ok(())));
}
