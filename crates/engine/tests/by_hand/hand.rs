//! One shard whose every completion comes when the test says so.

use loligo_block::{Answer, Buf, IoError, IoKind, Op, OpKind, ReqError, ReqKind, Request, SyncIo};
use loligo_engine::Engine;
use loligo_engine::api::{Control, Dev, Effect, Event, Hint};
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};
use std::ops::Range;

pub const MIB: u64 = 1 << 20;
pub const CORE: u64 = 64 * MIB;
pub const SECOND: u64 = 1_000_000_000;

fn overlap(bad: &Range<u64>, offset: u64, len: usize) -> bool {
    offset < bad.end && bad.start < offset + len as u64
}

/// One shard whose devices do nothing by themselves.
pub struct Hand {
    pub shard: Engine,
    pub cache: Vec<u8>,
    pub disk: Vec<u8>,
    pub now: u64,
    pub asked: u64,
    pub pending: Vec<(Dev, Op)>,
    pub answers: Vec<(u64, Result<Answer, ReqError>)>,
    /// The results of management requests.
    pub controlled: Vec<(u64, Result<(), String>)>,
    /// Bytes of the core that cannot be read.
    pub bad: Range<u64>,
    /// Bytes of the core that it takes nothing for.
    pub refused: Range<u64>,
}

impl Hand {
    /// Write-back, 32 MiB, over a core without a cache of its own.
    pub fn new() -> Hand {
        Hand::with(Hand::DEVICES)
    }

    /// The devices as [`Hand::new`] describes them.
    pub const DEVICES: Devices = Devices { cache_volatile: true, ..Devices::PLAIN };

    /// The same, with devices of the caller's choice.
    pub fn with(devices: Devices) -> Hand {
        let (mut cache, mut disk) = (vec![0; 32 << 20], vec![0; CORE as usize]);
        let format = FormatOptions {
            uuid: [7; 16],
            name: "t".into(),
            cache_size: 32 << 20,
            core: CoreIdentity { size: CORE, id: String::new() },
            line_size: 4096,
            shards: 1,
            stripe: 0,
            mode: Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        open::format(&mut cache, &format).unwrap();
        let shard = Hand::open(&mut cache, &mut disk, devices);
        Hand {
            shard,
            cache,
            disk,
            now: 1,
            asked: 0,
            pending: Vec::new(),
            answers: Vec::new(),
            controlled: Vec::new(),
            bad: 0..0,
            refused: 0..0,
        }
    }

    /// The process ends here, the machine does not: a new one, on the same devices.
    pub fn again(mut self, devices: Devices) -> Hand {
        let shard = Hand::open(&mut self.cache, &mut self.disk, devices);
        Hand { shard, pending: Vec::new(), answers: Vec::new(), controlled: Vec::new(), ..self }
    }

    fn open(cache: &mut Vec<u8>, disk: &mut Vec<u8>, devices: Devices) -> Engine {
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let sb = Superblock::load(cache).unwrap();
        let opened = open::open(cache, disk, sb, &options).unwrap();
        opened.into_engines(Mode::Wb, &options, &devices).1.remove(0)
    }

    /// The answer to a read of 4 KiB: its first byte.
    pub fn read(&mut self, offset: u64) -> Result<u8, ReqError> {
        let id = self.submit(ReqKind::Read, offset, 4096);
        self.quiet(false);
        let at = self.answers.iter().position(|a| a.0 == id).expect("reads wait for nothing");
        match self.answers.remove(at).1? {
            Answer::Data(segments) => Ok(segments[0][0]),
            other => panic!("{other:?}"),
        }
    }

    pub fn event(&mut self, event: Event) {
        let mut fx = Vec::new();
        self.shard.step(self.now, event, &mut fx);
        self.shard.settle(self.now, &mut fx);
        self.shard.audit().unwrap();
        for effect in fx {
            match effect {
                Effect::Io(dev, op) => self.pending.push((dev, op)),
                Effect::Answer(reply) => {
                    assert!(reply.id <= self.asked, "nobody asked {}", reply.id);
                    self.answers.push((reply.id, reply.result));
                }
                Effect::Controlled(id, result) => {
                    self.controlled.push((id, result.map_err(|why| why.to_string())));
                }
                Effect::Missed(id) => assert!(id <= self.asked, "nobody asked {id}"),
            }
        }
    }

    pub fn submit(&mut self, kind: ReqKind, offset: u64, len: u64) -> u64 {
        self.asked += 1;
        let request = Request { id: self.asked, kind, offset, len, fua: false };
        self.event(Event::Submit(request, Hint::default()));
        self.asked
    }

    pub fn write(&mut self, offset: u64, len: u64) -> u64 {
        self.submit(ReqKind::Write(Buf::zeroed(len as usize).freeze()), offset, len)
    }

    /// A write of whole blocks that all hold `byte`.
    pub fn fill(&mut self, offset: u64, len: u64, byte: u8) -> u64 {
        self.submit(ReqKind::Write(Buf::copy_of(&vec![byte; len as usize]).freeze()), offset, len)
    }

    /// The same, as part of a long sequential stream.
    pub fn stream(&mut self, offset: u64, len: u64, byte: u8) -> u64 {
        self.asked += 1;
        let kind = ReqKind::Write(Buf::copy_of(&vec![byte; len as usize]).freeze());
        let request = Request { id: self.asked, kind, offset, len, fua: false };
        self.event(Event::Submit(request, Hint { stream_bytes: 8 * MIB, ..Hint::default() }));
        self.asked
    }

    /// A management request.
    pub fn control(&mut self, control: Control) -> u64 {
        self.asked += 1;
        self.event(Event::Control(self.asked, control));
        self.asked
    }

    /// The result of a management request, if it is over.
    pub fn outcome(&self, id: u64) -> Option<&Result<(), String>> {
        self.controlled.iter().find(|c| c.0 == id).map(|c| &c.1)
    }

    /// Carries out the pending operation at `index` and says so; core writes fail where `broken`.
    pub fn complete(&mut self, index: usize, broken: bool) {
        let (dev, op) = self.pending.remove(index);
        let broken = broken || (op.changes_data() && op.touches(&self.refused));
        let device = if dev == Dev::Cache { &mut self.cache } else { &mut self.disk };
        let (mut buf, mut result) = (None, Ok(()));
        match op.kind {
            OpKind::Read(b) if dev == Dev::Core && overlap(&self.bad, op.offset, b.len()) => {
                buf = Some(b);
                result = Err(IoError::new(IoKind::Io, "a bad sector"));
            }
            OpKind::Read(mut b) => {
                device.read_at(op.offset, &mut b).unwrap();
                buf = Some(b);
            }
            OpKind::Write { .. } | OpKind::WriteMany(_) if broken && dev == Dev::Core => {
                result = Err(IoError::new(IoKind::Gone, "the core is gone"));
            }
            OpKind::Write { data, .. } => device.write_at(op.offset, &data).unwrap(),
            OpKind::WriteMany(pieces) => {
                pieces.iter().for_each(|(at, data)| device.write_at(*at, data).unwrap());
            }
            OpKind::WriteZeroes { len, .. } => device.write_at(op.offset, &vec![0; len as usize]).unwrap(),
            OpKind::Flush | OpKind::Discard { .. } => {}
        }
        self.event(Event::Done { tag: op.tag, buf, result });
    }

    /// Completes everything that is pending and everything that follows.
    pub fn quiet(&mut self, broken: bool) {
        while !self.pending.is_empty() {
            self.now += 1000;
            self.complete(0, broken);
        }
    }

    /// Lets time go on, and completes everything.
    pub fn pass(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while self.now < end {
            self.quiet(false);
            let next = self.shard.next_deadline(self.now).unwrap_or(end);
            self.tick(next.clamp(self.now + 1, end.max(self.now + 1)) - self.now);
        }
        self.quiet(false);
    }

    /// Everything dirty is brought to the core.
    pub fn flush_dirty(&mut self) -> Option<&Result<(), String>> {
        let flush = self.control(Control::FlushDirty);
        self.pass(5 * SECOND);
        self.outcome(flush)
    }

    pub fn tick(&mut self, nanos: u64) {
        self.now += nanos;
        self.event(Event::Tick);
    }

    pub fn answer(&self, id: u64) -> Option<Result<(), ReqError>> {
        self.answers.iter().find(|a| a.0 == id).map(|a| a.1.as_ref().map(drop).map_err(|e| *e))
    }

    /// True if nothing is asked of the core, reads apart.
    pub fn leaves_core(&self) -> bool {
        !self
            .pending
            .iter()
            .any(|p| p.0 == Dev::Core && (p.1.changes_data() || matches!(p.1.kind, OpKind::Flush)))
    }

    /// Places among the pending operations of reads of the cache.
    pub fn slot_reads(&self) -> Vec<usize> {
        let is = |p: &(Dev, Op)| p.0 == Dev::Cache && matches!(p.1.kind, OpKind::Read(_));
        (0..self.pending.len()).filter(|i| is(&self.pending[*i])).collect()
    }
}
