//! The superblock of a cache in use, shared by whoever writes it down.
//!
//! A device that answers nothing holds up nobody who only looks, and a writer for a while: each write is a
//! thread's, which is left behind then, and has the pen until its device answers. No older state so comes
//! over a newer one.

use crate::daemon::pen::Pen;
use crate::patience::LIMIT;
use loligo_block::{CacheDevice, SyncIo};
use loligo_cache::superblock::Superblock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The superblock; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct SharedSuperblock(Arc<Record>);

#[derive(Debug)]
struct Record {
    /// It never changes.
    uuid: String,
    /// As it was last stored. Held for a look, never while a device is waited for.
    now: Mutex<Superblock>,
    /// In hand while the next one is made and stored.
    pen: Pen,
}

impl SharedSuperblock {
    pub(crate) fn new(sb: Superblock) -> SharedSuperblock {
        SharedSuperblock(Arc::new(Record { uuid: sb.uuid_text(), now: Mutex::new(sb), pen: Pen::default() }))
    }

    /// The cache's name for good.
    pub(crate) fn uuid(&self) -> String {
        self.0.uuid.clone()
    }

    /// Looks at it.
    pub(crate) fn look(&self) -> MutexGuard<'_, Superblock> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `write` change and store a copy on `file`, which is the superblock from then on.
    ///
    /// # Errors
    /// What `write` says, or that the device answers nothing: what it is told all the same counts once it
    /// answers.
    pub(crate) fn write(
        &self,
        file: &CacheDevice,
        write: impl FnOnce(&mut Superblock, &mut dyn SyncIo) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let file = file.clone();
        self.write_within(LIMIT, move |sb| write(sb, &mut file.sync_io()))
    }

    fn write_within(
        &self,
        limit: Duration,
        write: impl FnOnce(&mut Superblock) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let silent = || format!("the cache device has answered nothing for {} s", limit.as_secs());
        let until = Instant::now() + limit;
        let pen = self.0.pen.take(until).ok_or_else(silent)?;
        let (shared, (says, said)) = (self.clone(), channel());
        let work = move || {
            let mut next = shared.look().clone();
            let written = write(&mut next);
            if written.is_ok() {
                *shared.look() = next;
            }
            // Before anybody is told, who may go on to the next.
            drop(pen);
            // Nobody may be waiting any more.
            let _ = says.send(written);
        };
        let thread = std::thread::Builder::new().name("superblock".to_owned()).spawn(work);
        thread.map_err(|e| format!("no thread can be had: {e}"))?;
        match said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(written) => written,
            Err(RecvTimeoutError::Timeout) => Err(silent()),
            Err(RecvTimeoutError::Disconnected) => Err("the thread that writes it has ended".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_cache::layout::Layout;
    use loligo_cache::mode::Mode;
    use loligo_cache::superblock::{CoreIdentity, region_size};

    fn superblock() -> Superblock {
        Superblock {
            generation: 3,
            uuid: *b"0123456789abcdef",
            name: "vol".into(),
            core: CoreIdentity { size: 1 << 30, id: "wwn".into() },
            home_start: 0,
            home_length: 1 << 30,
            line_size: 4096,
            mode: Mode::Wb,
            core_reserve: 0,
            layout: Layout::new(64 << 20, 2, 0).unwrap(),
            stripe: 5,
            clean: false,
            finals: vec![5, 6],
            dirty_blocks: 9,
            region: region_size(1 << 30),
            witness: String::new(),
            cut: None,
        }
    }

    #[test]
    fn a_write_that_hangs_holds_nobody_up_and_is_not_passed() {
        let shared = SharedSuperblock::new(superblock());
        let named = |name: &'static str| {
            move |sb: &mut Superblock| {
                name.clone_into(&mut sb.name);
                Ok(())
            }
        };
        let (answers, answer) = channel::<()>();
        let short = Duration::from_millis(50);
        let hangs = shared.write_within(short, move |sb| {
            // The device answers.
            let _ = answer.recv();
            named("first")(sb)
        });
        assert!(hangs.is_err_and(|why| why.contains("answered nothing")));
        assert_eq!(shared.look().name, "vol", "it is looked at meanwhile");
        assert_eq!(shared.uuid(), superblock().uuid_text());
        let next = shared.write_within(short, named("second"));
        assert!(next.is_err_and(|why| why.contains("answered nothing")), "the first may come after it");
        answers.send(()).unwrap();
        shared.write_within(Duration::from_secs(60), named("third")).unwrap();
        assert_eq!(shared.look().name, "third");
        let refused = shared.write_within(short, |sb| {
            "never".clone_into(&mut sb.name);
            Err("no".to_owned())
        });
        assert_eq!((refused, shared.look().name.as_str()), (Err("no".to_owned()), "third"));
    }
}
