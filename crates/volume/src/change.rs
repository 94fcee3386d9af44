//! Changes to a served volume: asked for by management, done by the thread that looks after the volume, one at a time.

use crate::options::ServeOptions;
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::volume::ChangeState;
use loligo_client::outcome::{Ended, Outcome};
use parking_lot::{Mutex, MutexGuard};

/// The change that is wanted.
#[derive(Debug)]
pub enum Wanted {
    /// A cache in front of a core that is served bare: the options of a start with it, and what is to be remembered.
    Attach(Box<ServeOptions>, CacheConfig),
    /// Everything dirty to the core, which is served bare from then on.
    Detach,
    /// The size that the core has by now, or these bytes for a core in a file.
    Resize(Option<u64>),
    /// So many bytes for the share of a pool.
    Share(u64),
}

impl Wanted {
    fn word(&self) -> &'static str {
        match self {
            Wanted::Attach(..) => "attach",
            Wanted::Detach => DETACH,
            Wanted::Resize(_) => "resize",
            Wanted::Share(_) => "resize of the cache",
        }
    }
}

const DETACH: &str = "detach";

#[derive(Debug, Default)]
struct Inner {
    last: ChangeState,
    waiting: Option<Wanted>,
    given_up: bool,
    /// Nobody does anything any more.
    over: bool,
}

/// The changes of a volume.
#[derive(Debug, Default)]
pub struct Changes(Mutex<Inner>);

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Has `wanted` done next.
    ///
    /// # Errors
    /// If another is under way.
    pub fn ask(&self, wanted: Wanted) -> Result<ChangeState, String> {
        let mut inner = self.lock();
        if inner.over {
            return Err("the volume is being stopped".to_owned());
        }
        if inner.last.running {
            return Err(format!(
                "the {} of this volume is under way: wait until it is over",
                inner.last.what
            ));
        }
        let number = inner.last.number + 1;
        inner.last =
            ChangeState { number, what: wanted.word().to_owned(), running: true, ..Default::default() };
        (inner.waiting, inner.given_up) = (Some(wanted), false);
        Ok(inner.last.clone())
    }

    /// The last that was asked for.
    pub fn last(&self) -> ChangeState {
        self.lock().last.clone()
    }

    /// True if a cache is being taken away.
    pub(crate) fn detaches(&self) -> bool {
        let inner = self.lock();
        inner.last.running && inner.last.what == DETACH
    }

    /// Has it given up, where it still can be.
    pub fn give_up(&self) -> ChangeState {
        let mut inner = self.lock();
        inner.given_up = inner.last.running;
        inner.last.clone()
    }

    /// For the thread that does it: what is to be done.
    pub fn take(&self) -> Option<Wanted> {
        self.lock().waiting.take()
    }

    /// True if somebody has given it up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// Notes how far it is.
    pub(crate) fn progress(&self, total: u64, remaining: u64) {
        let mut inner = self.lock();
        (inner.last.total_bytes, inner.last.remaining_bytes) = (total, remaining.min(total));
    }

    /// The time that requests were held.
    pub(crate) fn held(&self, ms: f64) {
        self.lock().last.held_ms = ms;
    }

    /// Notes how it ended.
    pub(crate) fn ended(&self, result: anyhow::Result<String>) {
        let mut inner = self.lock();
        inner.last.running = false;
        match result {
            Ok(done) => (inner.last.done, inner.last.remaining_bytes) = (done, 0),
            Err(why) => {
                inner.last.refused = Outcome::of(&why) == Outcome::Refused;
                inner.last.error = Some(format!("{why:#}"));
            }
        }
    }

    /// Refuses what still waits, and whatever comes.
    pub fn end(&self) {
        let waiting = {
            let mut inner = self.lock();
            inner.over = true;
            inner.waiting.take()
        };
        if waiting.is_some() {
            self.ended(Err(Ended::refused("the volume is being stopped").into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_run_one_by_one_and_those_that_nobody_will_do_end() {
        let changes = Changes::default();
        assert_eq!(changes.last().number, 0);
        assert_eq!(changes.ask(Wanted::Resize(None)).unwrap().number, 1);
        assert!(changes.ask(Wanted::Detach).unwrap_err().contains("resize of this volume is under way"));
        assert!(changes.take().is_some() && changes.take().is_none() && !changes.detaches());
        changes.ended(Err(anyhow::anyhow!("no")));
        assert_eq!((changes.last().error.as_deref(), changes.last().running), (Some("no"), false));
        assert_eq!(changes.ask(Wanted::Detach).unwrap().error, None);
        assert!(changes.detaches() && changes.give_up().running && changes.is_given_up());
        changes.end();
        assert!(!changes.last().running && changes.last().error.is_some());
        assert!(changes.ask(Wanted::Detach).unwrap_err().contains("stopped"));
    }
}
