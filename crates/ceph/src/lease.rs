//! Whether the image is still ours. Answers leave only while the last positive word of an OSD is younger than the lease, which
//! is shorter than the time after which somebody else may take the image over unasked.

use crate::CephError;
use crate::attached::Attached;
use loligo_block::lease::{Hold, boottime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two questions.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks at a watch that seems to be gone.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Asks once a second, until the volume stops.
#[derive(Debug)]
pub struct Poller {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Poller {
    /// Starts to ask for `image`.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn start(image: Arc<Attached>) -> std::io::Result<Poller> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("rbd-lease".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let asked = boottime();
                match ask(&image) {
                    Ok(()) => {
                        let had_expired = image.lease.now() == Hold::Expired;
                        image.lease.renew(asked);
                        if had_expired {
                            image.ring();
                        }
                    }
                    Err(Some(why)) => {
                        image.lose(why);
                        return;
                    }
                    // Nobody could say: the lease runs.
                    Err(None) => {}
                }
                std::thread::park_timeout(EVERY);
            }
        })?;
        Ok(Poller { stop, thread: Some(thread) })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A question that no OSD answers would hold the stop up for as long; the thread then goes with the process.
            let until = std::time::Instant::now() + EVERY;
            while !thread.is_finished() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Whether it is ours; an error without a reason: nobody could say.
fn ask(image: &Attached) -> Result<(), Option<String>> {
    match image.image().is_owner() {
        Ok(true) => {}
        Ok(false) => return Err(Some("its exclusive lock is another client's".to_owned())),
        Err(e) if e.errno() == Some(libc::ESHUTDOWN) => return Err(Some(e.to_string())),
        Err(_) => return Err(None),
    }
    if watched(image)? {
        return Ok(());
    }
    std::thread::sleep(LOOK_AGAIN);
    if watched(image)? {
        return Ok(());
    }
    // Whoever takes a snapshot now would not tell us before.
    Err(Some("the cluster has dropped our watch of it".to_owned()))
}

fn watched(image: &Attached) -> Result<bool, Option<String>> {
    let fenced = |e: &CephError| e.errno() == Some(libc::ESHUTDOWN);
    let watchers = image.image().watchers().map_err(|e| fenced(&e).then(|| e.to_string()))?;
    Ok(image.holder.is_among(&watchers))
}
