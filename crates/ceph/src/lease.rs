//! The lease, which says whether the image is still ours. Answers leave only while the last positive word of
//! an OSD is younger than the lease, which is shorter than the time after which somebody else may take the
//! image over unasked; soon after it nothing is sent any more (`fence`).
//!
//! Two threads ask. One asks through the client that has the image. It is not heard while that client may not send: then the
//! other connects as a client of its own, once the cluster answers, and reads who holds the lock. While that is this client nobody
//! else has written to the image, and it may send again. Answers wait until it has heard for itself that lock and watch are there: a
//! lock without a watch is taken by others at once.

use crate::CephError;
use crate::attached_image::{AttachedImage, Notice};
use crate::cluster::{Cluster, Pool, Purpose};
use crate::fence::sockets;
use crate::header_lock::HeaderLock;
use loligo_block::lease::boottime;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
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
    threads: Vec<JoinHandle<()>>,
}

impl Poller {
    /// Starts to ask for `image`.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(image: Arc<AttachedImage>) -> std::io::Result<Poller> {
        // Not with the first answer: OSDs that stand still by then may never give one.
        image.is_asked_about();
        let stop = Arc::new(AtomicBool::new(false));
        let mut poller = Poller { stop: stop.clone(), threads: Vec::new() };
        let (stopped, seen) = (stop.clone(), Arc::downgrade(&image));
        let vouch = move || vouch_until(&stopped, &seen);
        poller.threads.push(std::thread::Builder::new().name("rbd-vouch".to_owned()).spawn(vouch)?);
        let ask = move || ask_until(&stop, &image);
        poller.threads.push(std::thread::Builder::new().name("rbd-lease".to_owned()).spawn(ask)?);
        Ok(poller)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.threads.iter().for_each(|t| t.thread().unpark());
        // A question that no OSD answers would hold the stop up for as long; the thread then goes with the process.
        let until = std::time::Instant::now() + EVERY;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// The reason why the image is not known to be ours.
enum Doubt {
    /// It is not.
    Lost(String),
    /// This is gone, and may come back by itself.
    Lacks(&'static str),
    /// Nobody answers.
    Silence,
}

impl From<CephError> for Doubt {
    fn from(e: CephError) -> Doubt {
        if e.errno() == Some(libc::ESHUTDOWN) { Doubt::Lost(e.to_string()) } else { Doubt::Silence }
    }
}

/// Asks through the image's own client.
fn ask_until(stop: &AtomicBool, image: &AttachedImage) {
    let (mut header, mut unwatched) = (None, false);
    while !stop.load(Ordering::Acquire) {
        let asked = boottime();
        // Its watch may have ended meanwhile, and have come back unseen.
        unwatched |= !image.may_send();
        match ask(image, &mut header) {
            Ok(()) => {
                image.set_lacks(None);
                if std::mem::take(&mut unwatched) {
                    // Whatever was changed meanwhile was not told.
                    image.tell(Notice::Update);
                }
                image.renew(asked);
            }
            // A lock that was given back looks like one that was taken away, and is given back only once this is to stop.
            Err(Doubt::Lost(_)) if stop.load(Ordering::Acquire) => return,
            Err(Doubt::Lost(why)) => return image.lose(why),
            Err(Doubt::Lacks(what)) => {
                image.set_lacks(Some(what));
                unwatched = true;
            }
            // The lease runs.
            Err(Doubt::Silence) => {}
        }
        std::thread::park_timeout(EVERY);
    }
}

fn ask(image: &AttachedImage, header: &mut Option<Pool>) -> Result<(), Doubt> {
    let owner = image.image().is_owner()?;
    // A handle of this thread's own: what others read with theirs has a version that must stay.
    let header = match header {
        Some(pool) => pool,
        None => header.insert(open_header(&image.header.cluster, image)?),
    };
    let cookie = held(HeaderLock::read(header, &image.identity.id)?, image)?;
    if cookie != image.holder().cookie {
        image.held_as(cookie);
    }
    if !owner {
        return Err(Doubt::Lacks("lock"));
    }
    if watched(image)? {
        return Ok(());
    }
    std::thread::sleep(LOOK_AGAIN);
    // Librbd watches it anew by itself. Whoever takes a snapshot before that breaks the lock, as of a dead client.
    if watched(image)? { Ok(()) } else { Err(Doubt::Lacks("watch")) }
}

fn open_header(cluster: &Arc<Cluster>, image: &AttachedImage) -> Result<Pool, CephError> {
    cluster.pool_number(image.identity.pool, &image.identity.namespace)
}

/// The cookie of our lock, where it is ours.
fn held(lock: Option<HeaderLock>, image: &AttachedImage) -> Result<String, Doubt> {
    match lock {
        Some(lock) if lock.client == image.holder().client => Ok(lock.cookie),
        Some(other) => Err(Doubt::Lost(format!("its exclusive lock is {}'s", other.client))),
        None => Err(Doubt::Lost("its exclusive lock was taken away, and nobody holds it now".to_owned())),
    }
}

fn watched(image: &AttachedImage) -> Result<bool, Doubt> {
    Ok(image.holder().is_among(&image.image().watchers()?))
}

/// Bounds what the kernel still sends for this client, and looks as another client whether the image is ours while this one may
/// not ask.
fn vouch_until(stop: &AtomicBool, image: &Weak<AttachedImage>) {
    let mut silent = false;
    while !stop.load(Ordering::Acquire) {
        let Some(seen) = image.upgrade() else { return };
        sockets::bound(seen.lease.length() / 2);
        let (open, lost) = (seen.may_send(), seen.is_lost());
        if lost {
            return;
        }
        if open == silent {
            silent = !open;
            let name = &seen.name;
            if silent {
                let lacks = seen.lacks().unwrap_or("network");
                tracing::warn!(
                    image = name,
                    lacks,
                    "nobody says that the image is ours: nothing is sent to it"
                );
            } else {
                tracing::warn!(image = name, "the image is still ours: what waited goes on");
            }
        }
        let spec = seen.spec.clone();
        drop(seen);
        if !open {
            // The stop does not wait for the connection, and the image is not kept by it.
            match Cluster::connect(&spec, Purpose::Look) {
                Ok(cluster) => match image.upgrade() {
                    Some(seen) => vouch(&Arc::new(cluster), &seen, stop),
                    None => return,
                },
                Err(error) => tracing::debug!(%error, "the cluster does not answer"),
            }
        }
        std::thread::park_timeout(EVERY);
    }
}

fn vouch(cluster: &Arc<Cluster>, image: &AttachedImage, stop: &AtomicBool) {
    let asked = boottime();
    let lock = open_header(cluster, image).and_then(|pool| HeaderLock::read(&pool, &image.identity.id));
    match lock.map_err(Doubt::from).and_then(|lock| held(lock, image)) {
        Ok(_) => image.vouched(asked),
        Err(Doubt::Lost(why)) if !stop.load(Ordering::Acquire) => image.lose(why),
        Err(_) => {}
    }
}
