//! The harness itself must be able to fail: a plain pass-through volume is never faulted, and every way to break it is.

use loligo_block::{
    Answer, Buf, Extent, IoError, IoKind, Op, OpKind, Reply, ReqError, ReqKind, Request, SyncIo,
};
use loligo_engine::api::{Control, Dev, Effect, Event, Hint, Nanos};
use loligo_engine::refusal::{Failure, Step};
use loligo_engine::relay::ShardMessage;
use loligo_sim::config::Config;
use loligo_sim::life::run;
use loligo_sim::subject::{Parts, Refusal, Subject};
use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;

/// The flaw of a pass-through volume.
trait Flaw {
    const ACK_BEFORE_WRITING: bool = false;
    const FLUSH_DOES_NOTHING: bool = false;
    const FUA_IGNORED: bool = false;
    const WRITES_ONE_SECTOR_SHORT: bool = false;
    const DISCARD_KEEPS_GOING: bool = false;
}

#[derive(Debug)]
struct Sound;
impl Flaw for Sound {}

#[derive(Debug)]
struct AcksEarly;
impl Flaw for AcksEarly {
    const ACK_BEFORE_WRITING: bool = true;
}

#[derive(Debug)]
struct NoFlush;
impl Flaw for NoFlush {
    const FLUSH_DOES_NOTHING: bool = true;
}

#[derive(Debug)]
struct NoFua;
impl Flaw for NoFua {
    const FUA_IGNORED: bool = true;
}

#[derive(Debug)]
struct ShortWrite;
impl Flaw for ShortWrite {
    const WRITES_ONE_SECTOR_SHORT: bool = true;
}

#[derive(Debug)]
struct GreedyDiscard;
impl Flaw for GreedyDiscard {
    const DISCARD_KEEPS_GOING: bool = true;
}

/// Every request straight to the core.
#[derive(Debug)]
struct PassThrough<F> {
    size: u64,
    under_way: BTreeMap<u64, (Request, u32)>,
    /// Tags of flushes, in order; the first one is under way. Of two at once, one alone would be told of a failure.
    flushes: VecDeque<u64>,
    /// The error of a failed flush: what it lost is told once, so none succeeds after it.
    failed: Option<IoError>,
    /// The word that the devices are another controller's: nothing is asked of them, and nothing succeeds.
    expelled: Option<IoError>,
    flaw: PhantomData<F>,
}

impl<F: Flaw> PassThrough<F> {
    fn flush(&mut self, tag: u64, fx: &mut Vec<Effect>) {
        self.flushes.push_back(tag);
        if self.flushes.len() == 1 {
            self.send_flush(fx);
        }
    }

    fn send_flush(&mut self, fx: &mut Vec<Effect>) {
        let Some(&tag) = self.flushes.front() else { return };
        match self.expelled.clone().or_else(|| self.failed.clone()) {
            None => fx.push(Effect::Io(Dev::Core, Op { tag, offset: 0, kind: OpKind::Flush })),
            Some(e) => self.done(tag, None, Err(e), fx),
        }
    }

    fn done(&mut self, tag: u64, buf: Option<Buf>, result: Result<(), IoError>, fx: &mut Vec<Effect>) {
        if self.flushes.front() == Some(&tag) {
            self.flushes.pop_front();
            self.failed = result.as_ref().err().cloned();
            self.send_flush(fx);
        }
        self.end(tag, buf, result, fx);
    }

    fn end(&mut self, tag: u64, buf: Option<Buf>, result: Result<(), IoError>, fx: &mut Vec<Effect>) {
        let Some((req, after)) = self.under_way.remove(&tag) else { return };
        let result = self.expelled.clone().map_or(result, Err);
        if after > 0 && result.is_ok() {
            self.under_way.insert(tag, (req, 0));
            self.flush(tag, fx);
        } else if req.offset == u64::MAX {
            fx.push(Effect::Controlled(
                req.id,
                result.map_err(|e| Failure::device(Step::CoreFlush, e).into()),
            ));
        } else if req.id != u64::MAX {
            let answer = match (&req.kind, buf) {
                (ReqKind::Read, Some(b)) => Answer::Data([b.freeze()].into_iter().collect()),
                (ReqKind::Status, _) => {
                    Answer::Extents(vec![Extent { len: req.len, allocated: true, zero: false }])
                }
                _ => Answer::Done,
            };
            let result = result.map(|()| answer).map_err(|_| ReqError::Io);
            fx.push(Effect::Answer(Reply { id: req.id, result }));
        }
    }

    fn submit(&mut self, mut req: Request, fx: &mut Vec<Effect>) {
        if self.expelled.is_some() {
            fx.push(Effect::Answer(Reply { id: req.id, result: Err(ReqError::Io) }));
            return;
        }
        let tag = req.id;
        let mut op = |offset, kind| fx.push(Effect::Io(Dev::Core, Op { tag, offset, kind }));
        let offset = req.offset;
        let mut after = false;
        match &req.kind {
            ReqKind::Read | ReqKind::Status => op(offset, OpKind::Read(Buf::alloc(req.len as usize))),
            ReqKind::Write(data) => {
                let short = if F::WRITES_ONE_SECTOR_SHORT && data.len() > 8192 { 512 } else { 0 };
                let data = data.slice(0..data.len() - short);
                op(offset, OpKind::Write { data, fua: req.fua && !F::FUA_IGNORED });
            }
            ReqKind::WriteZeroes { unmap } => {
                op(offset, OpKind::WriteZeroes { len: req.len, unmap: *unmap });
                after = req.fua;
            }
            ReqKind::Discard => {
                let more = if F::DISCARD_KEEPS_GOING && offset + req.len < self.size { 512 } else { 0 };
                op(offset, OpKind::Discard { len: req.len + more });
                after = req.fua;
            }
            ReqKind::Flush => {}
        }
        let early = (F::ACK_BEFORE_WRITING && matches!(req.kind, ReqKind::Write(_)))
            || (F::FLUSH_DOES_NOTHING && matches!(req.kind, ReqKind::Flush));
        if early {
            fx.push(Effect::Answer(Reply { id: req.id, result: Ok(Answer::Done) }));
            req.id = u64::MAX;
        }
        let flush = matches!(req.kind, ReqKind::Flush);
        self.under_way.insert(tag, (req, u32::from(after && !F::FUA_IGNORED)));
        if flush {
            self.flush(tag, fx);
        }
    }
}

impl<F: Flaw> Subject for PassThrough<F> {
    fn format(_: &Config, _: &mut dyn SyncIo, _: &mut dyn SyncIo) -> Result<(), String> {
        Ok(())
    }

    fn open(_: &Config, _: &mut dyn SyncIo, core: &mut dyn SyncIo) -> Result<Self, Refusal> {
        Ok(PassThrough {
            size: core.size(),
            under_way: BTreeMap::new(),
            flushes: VecDeque::new(),
            failed: None,
            expelled: None,
            flaw: PhantomData,
        })
    }

    fn close(self, _: &Config, _: &mut dyn SyncIo) -> Result<(), String> {
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn shards(&self) -> usize {
        1
    }

    fn route(&mut self, _: usize, req: Request, parts: &mut Vec<(usize, Request, Hint)>) -> Option<Reply> {
        parts.push((0, req, Hint::default()));
        None
    }

    fn shard_message(&mut self, _: usize, message: ShardMessage) -> Option<Reply> {
        match message {
            ShardMessage::Answered(reply) => Some(reply),
            ShardMessage::Part(..) | ShardMessage::Missed(_) => None,
        }
    }

    fn step(&mut self, _: usize, _: Nanos, event: Event, fx: &mut Vec<Effect>) {
        match event {
            Event::Submit(req, _) => self.submit(req, fx),
            Event::Control(id, Control::Expel(why)) => {
                self.expelled = Some(IoError::new(IoKind::Fenced, why));
                fx.push(Effect::Controlled(id, Ok(())));
            }
            Event::Control(id, _) => {
                // Management waits for a flush of the core, so that "destaged" and "stopped" hold.
                let req = Request { id, kind: ReqKind::Flush, offset: u64::MAX, len: 0, fua: false };
                self.under_way.insert(id, (req, 0));
                self.flush(id, fx);
            }
            Event::Done { tag, buf, result } => {
                if let Err(e) = &result
                    && e.kind == IoKind::Fenced
                {
                    self.expelled = Some(e.clone());
                }
                self.done(tag, buf, result, fx);
            }
            Event::Tick => {}
        }
    }

    fn settle(&mut self, _: usize, _: Nanos, _: &mut Vec<Effect>) {}

    fn next_deadline(&self, _: usize, _: Nanos) -> Option<Nanos> {
        None
    }

    fn parts(_: &Config) -> Parts {
        Parts {
            data: std::iter::once(0..4096).collect(),
            doubled: std::iter::once(0..512).collect(),
            image: std::iter::once(0..512).collect(),
            journals: vec![],
        }
    }
}

const SEEDS: u64 = 60;

fn caught<F: Flaw>() -> usize {
    (0..SEEDS).filter(|seed| run::<PassThrough<F>>(*seed, None).is_err()).count()
}

#[test]
fn a_sound_volume_is_never_faulted() {
    for seed in loligo_sim::seeds::seeds(SEEDS) {
        if let Err(e) = run::<PassThrough<Sound>>(seed, None) {
            panic!("{e}");
        }
    }
}

#[test]
fn a_volume_that_acknowledges_before_writing_is_caught() {
    assert!(caught::<AcksEarly>() > SEEDS as usize / 4);
}

#[test]
fn a_volume_whose_flush_does_nothing_is_caught() {
    assert!(caught::<NoFlush>() > 0);
}

#[test]
fn a_volume_that_ignores_fua_is_caught() {
    assert!(caught::<NoFua>() > 0);
}

#[test]
fn a_volume_that_loses_the_end_of_long_writes_is_caught() {
    assert!(caught::<ShortWrite>() > SEEDS as usize / 4);
}

#[test]
fn a_volume_that_discards_a_sector_too_many_is_caught() {
    assert!(caught::<GreedyDiscard>() > SEEDS as usize / 10);
}
