//! The time that a cache device is waited for that answers nothing at all, neither with data nor with an
//! error.
//!
//! Requests of clients wait for it as long as it takes: it may come back. Somebody who takes the cache away or stops the volume
//! is told after a while, and the volume does without it where nothing is lost by that.

use loligo_block::{CacheDevice, SyncIo};
use loligo_log::say;
use loligo_shard::{Command, Handle};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// So long nothing is thought of it, and so long is waited for one read then.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at what is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Bytes that are read of it.
const PROBE: usize = 4096;

/// True if the device answers one read, be it with an error. It is read by a thread that is left behind where it does not.
pub(crate) fn answers(cache: &CacheDevice) -> bool {
    let (says, said) = channel();
    let cache = cache.clone();
    let probe = move || {
        // An error is an answer, too.
        let _ = cache.sync_io().read_at(0, &mut [0; PROBE]);
        let _ = says.send(());
    };
    // Without a thread nothing can be said against it.
    std::thread::Builder::new().name("probe".into()).spawn(probe).is_err() || said.recv_timeout(LIMIT).is_ok()
}

/// The message that the device did not answer.
pub(crate) fn silence(cache: &CacheDevice) -> String {
    format!("the cache device {} has answered nothing for {} s", cache.path().display(), LIMIT.as_secs())
}

/// For how long something has stood still. As long as what is left of a flush gets less, the device answers.
#[derive(Debug)]
pub struct Standstill {
    since: Instant,
    /// Work that was left when it was last seen to go on.
    left: u64,
}

impl Standstill {
    /// A pulse that begins now.
    pub fn begins() -> Standstill {
        Standstill { since: Instant::now(), left: u64::MAX }
    }

    /// So much is left now.
    pub fn goes_on(&mut self, left: u64) {
        if left != self.left {
            *self = Standstill { since: Instant::now(), left };
        }
    }

    /// True if it has lasted so long that the device is to be asked; it begins anew then.
    pub fn is_long(&mut self) -> bool {
        let long = self.since.elapsed() > LIMIT;
        if long {
            self.since = Instant::now();
        }
        long
    }
}

/// The patience of a stop.
#[derive(Debug)]
pub(crate) struct HungDevice<'a> {
    cache: Option<&'a CacheDevice>,
    handle: Handle,
    still: Standstill,
}

impl<'a> HungDevice<'a> {
    /// With `cache`, where there is one that may be waited for.
    pub(crate) fn new(cache: Option<&'a CacheDevice>, handle: &Handle) -> HungDevice<'a> {
        HungDevice { cache, handle: handle.clone(), still: Standstill::begins() }
    }

    /// The same during a flush that has `left` bytes before it.
    pub(crate) fn goes_on(&mut self, left: u64) {
        self.still.goes_on(left);
        self.try_on();
    }

    /// To be called while something is waited for. Once that has taken long, and the device does not answer, whatever waits for it
    /// fails.
    pub(crate) fn try_on(&mut self) {
        let Some(cache) = self.cache else { return };
        if !self.still.is_long() || answers(cache) {
            return;
        }
        self.cache = None;
        let why = silence(cache);
        let safe = match self.handle.snapshots().iter().map(|s| s.stats.dirty_bytes).sum::<u64>() {
            0 => "the core has everything that was acknowledged".to_owned(),
            n => format!(
                "everything that was acknowledged is safe, {n} dirty bytes of it on that device alone"
            ),
        };
        say!(
            "error: {why}, and is not waited for any longer: {safe}. The next start recovers, once it answers again"
        );
        // A thread that has ended is found out elsewhere.
        let _ = self.handle.wait_all(self.handle.send_all(|| Command::Abandon(why.clone())));
    }
}
