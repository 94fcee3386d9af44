//! The subject that the world drives: the seam between the simulated runtime and an engine.

use crate::config::Config;
use loligo_block::{Reply, Request, SyncIo};
use loligo_engine::FallbackState;
use loligo_engine::api::{Effect, Event, Hint, Nanos};
use loligo_engine::relay::ShardMessage;
use std::ops::Range;

/// The reason why an engine did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// True if it says that something on a device is damaged (against: a device failed, or a bug).
    pub damage: bool,
    /// Its words.
    pub text: String,
}

/// The counters of an engine, for the marks.
pub type Counters = Vec<(&'static str, u64)>;

/// The places of things on the cache device, for faults that must hit one kind of them.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Data.
    pub data: Vec<Range<u64>>,
    /// Journals.
    pub journals: Vec<Range<u64>>,
    /// Structures of which there are two copies; any one may be lost.
    pub doubled: Vec<Range<u64>>,
    /// Other metadata.
    pub image: Vec<Range<u64>>,
}

/// The destination of an answer.
#[derive(Debug)]
pub enum Sent {
    /// To the client.
    Client(Reply),
    /// To the thread that asked for the part.
    Thread(usize, ShardMessage),
}

/// An engine of one or more shards.
pub trait Subject: Sized {
    /// Makes a new cache.
    ///
    /// # Errors
    /// If a device failed.
    fn format(cfg: &Config, cache: &mut dyn SyncIo, core: &mut dyn SyncIo) -> Result<(), String>;

    /// Opens what [`Subject::format`] made, or what an earlier life left.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open(cfg: &Config, cache: &mut dyn SyncIo, core: &mut dyn SyncIo) -> Result<Self, Refusal>;

    /// After every shard has answered a stop: marks the cache as cleanly closed.
    ///
    /// # Errors
    /// If a device failed.
    fn close(self, cfg: &Config, cache: &mut dyn SyncIo) -> Result<(), String>;

    /// Bytes exported, from the core's first byte on.
    fn size(&self) -> u64;

    /// Shards.
    fn shards(&self) -> usize;

    /// Threads: one for each shard, or one for all.
    fn threads(&self) -> usize {
        self.shards()
    }

    /// Splits a request that came to thread `home` into parts for shards.
    fn route(&mut self, home: usize, req: Request, parts: &mut Vec<(usize, Request, Hint)>) -> Option<Reply>;

    /// The destination of a shard's answer.
    fn reply(&self, _shard: usize, reply: Reply) -> Sent {
        Sent::Thread(0, ShardMessage::Answered(reply))
    }

    /// A message has come to thread `home`; the client's answer once the last part of a request is answered.
    fn shard_message(&mut self, home: usize, message: ShardMessage) -> Option<Reply>;

    /// One event for one shard.
    fn step(&mut self, shard: usize, now: Nanos, event: Event, fx: &mut Vec<Effect>);

    /// The end of a batch of events.
    fn settle(&mut self, shard: usize, now: Nanos, fx: &mut Vec<Effect>);

    /// The time at which the shard wants to be called again if nothing happens.
    fn next_deadline(&self, shard: usize, now: Nanos) -> Option<Nanos>;

    /// True if it found that the last life ended with a clean stop, if it can tell.
    fn after_clean_stop(&self) -> Option<bool> {
        None
    }

    /// True if it has stopped acknowledging.
    fn poisoned(&self) -> bool {
        false
    }

    /// True if it knows that `shard` of its core is somebody else's.
    fn is_fenced(&self, _shard: usize) -> bool {
        false
    }

    /// The way `shard` serves without its cache; nothing while it has one.
    fn alone(&self, _shard: usize) -> Option<FallbackState> {
        None
    }

    /// True if [`Control::Freeze`](loligo_engine::api::Control::Freeze) means anything to it.
    fn freezes(&self) -> bool {
        false
    }

    /// True if the cache by itself has this sector of the volume for a read.
    fn has_sector(&self, _sector: u32) -> bool {
        false
    }

    /// True if it has waited long enough for a core that takes nothing: who needs room of it is answered without.
    fn gives_up(&self, _now: Nanos) -> bool {
        false
    }

    /// Starts without a cache.
    ///
    /// # Errors
    /// [`Refusal`]; also where it knows no such start.
    fn open_bare(_cfg: &Config, _core: &mut dyn SyncIo) -> Result<Self, Refusal> {
        Err(Refusal { damage: false, text: "it has no bare engine".into() })
    }

    /// True if the cache device holds no cache.
    fn is_blank(_cache: &mut dyn SyncIo) -> bool {
        false
    }

    /// True if every thread serves without a cache.
    fn is_bare(&self) -> bool {
        false
    }

    /// Requests of the clients of thread `home` that are not answered.
    fn in_flight(&self, _home: usize) -> usize {
        0
    }

    /// Makes ready what is to take the place of the engines: bare ones, or those of the cache on the device.
    ///
    /// # Errors
    /// [`Refusal`].
    fn prepare(
        &mut self,
        _cfg: &Config,
        _devices: Option<(&mut dyn SyncIo, &mut dyn SyncIo)>,
    ) -> Result<(), Refusal> {
        Ok(())
    }

    /// Gives thread `home` the engine that was made ready.
    fn exchange(&mut self, _home: usize) {}

    /// Blocks that only the cache has.
    fn dirty_blocks(&self) -> u64 {
        0
    }

    /// Makes the cache void, or takes that back.
    ///
    /// # Errors
    /// If a device failed.
    fn wipe(&mut self, _cache: &mut dyn SyncIo, _back: bool) -> Result<(), String> {
        Ok(())
    }

    /// Counts anew what `shard` counts.
    ///
    /// # Errors
    /// The first count that is not right.
    fn audit(&self, _shard: usize) -> Result<(), String> {
        Ok(())
    }

    /// Its counters, summed over shards.
    fn counters(&self) -> Counters {
        Vec::new()
    }

    /// The places of things on the cache device.
    fn parts(cfg: &Config) -> Parts;

    /// The ranges of the cache device that do not exist if each shard has `limit` slots.
    fn beyond(_cfg: &Config, _limit: u32) -> Vec<Range<u64>> {
        Vec::new()
    }
}
