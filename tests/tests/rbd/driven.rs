//! An image that this process takes by itself: what a cache would do with it, the test does.

use crate::cluster::wait_until;
use crate::shadow::content;
use crate::site::{Image, SIZE, attach_request};
use loligo_block::lease::boottime;
use loligo_block::{Buf, Completion, Device, Op, OpKind, Ring, Submit};
use loligo_ceph::attach::{self, AttachRequest, Attachment, Destage};
use loligo_ceph::bug::{Step, leave_out};
use loligo_ceph::lease::Poller;
use loligo_ceph::quiesce::{Clients, QuiesceState, Quiescer};
use loligo_ceph::{AttachedImage, RbdDevice};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes of an object.
pub(crate) const OBJECT: u64 = 4 << 20;
/// Offsets in an object at which blocks are written.
const PLACES: [u64; 2] = [0, 64 << 10];
/// The time that one that hears nothing believes that the image is its.
const DEAF: Duration = Duration::from_secs(600);

/// No word of a snapshot is expected after one and this long without another.
const QUIET: Duration = Duration::from_secs(3);

/// Steps are left out for the whole process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// While it is there these steps are left out.
#[derive(Debug)]
pub(crate) struct LeftOut {
    _one: MutexGuard<'static, ()>,
}

impl LeftOut {
    /// Nothing yet.
    pub(crate) fn nothing() -> LeftOut {
        LeftOut { _one: ONE.lock() }
    }

    /// From now on these, and no others.
    pub(crate) fn now(&self, steps: &[Step]) {
        leave_out(steps);
    }
}

impl Drop for LeftOut {
    fn drop(&mut self) {
        leave_out(&[]);
    }
}

/// The way back to who wants to know whether the image is ready.
pub(crate) type Reply = Sender<Result<(), String>>;

/// A cache whose dirty data the test has.
pub(crate) struct Behind(pub(crate) Sender<Reply>);

impl Clients for Behind {
    fn freeze(&self) -> Receiver<Result<(), String>> {
        let (reply, answer) = channel();
        // Without a test that listens any more nobody answers, and the snapshot is refused.
        let _ = self.0.send(reply);
        answer
    }

    fn thaw(&self) {}

    fn lose(&self, why: &str) {
        panic!("lost: {why}");
    }

    fn lock_record_changed(&self) {}

    fn cut(&self, _bytes: u64) -> Result<(), String> {
        Ok(())
    }

    fn resized(&self, _bytes: u64) {}
}

/// Takes an image, without a cache and without a quiescer yet.
pub(crate) fn taken(image: &Image, steal: bool, lease: Duration) -> Attachment {
    taken_by(image, steal, lease, Destage::Grouped)
}

fn taken_by(image: &Image, steal: bool, lease: Duration, destage: Destage) -> Attachment {
    let spec = format!("{}?conf={}&id=loligo", image.spec, image.cluster.conf().display());
    let spec = spec.parse().expect("an image");
    attach::attach(AttachRequest { steal, lease, destage, ..attach_request(&spec, &mut |_| Ok(())) })
        .expect("the image")
}

/// An image that is taken by this process.
pub(crate) struct Driven<'a> {
    image: &'a Image,
    attached: Arc<AttachedImage>,
    /// None: it hears nothing.
    ears: Option<(Quiescer, Poller)>,
    asked: Receiver<Reply>,
    device: RbdDevice,
    ring: Ring,
}

impl<'a> Driven<'a> {
    /// Takes an image that nobody has.
    pub(crate) fn new(image: &'a Image) -> Driven<'a> {
        Driven::take(image, false, true, Destage::Grouped)
    }

    /// The same of an image that may not allow groups.
    pub(crate) fn by_any_way(image: &'a Image) -> Driven<'a> {
        Driven::take(image, false, true, Destage::Auto)
    }

    /// Takes it from who has it.
    pub(crate) fn taking_over(image: &'a Image) -> Driven<'a> {
        Driven::take(image, true, true, Destage::Grouped)
    }

    /// Takes an image that nobody has, and hears nothing more of it: as a host that stood still for a while, before it has asked
    /// anybody anything.
    pub(crate) fn deaf(image: &'a Image) -> Driven<'a> {
        Driven::take(image, false, false, Destage::Grouped)
    }

    fn take(image: &'a Image, steal: bool, hears: bool, destage: Destage) -> Driven<'a> {
        let Attachment { image: attached, notices, .. } =
            taken_by(image, steal, Duration::from_secs(20), destage);
        if !hears {
            attached.lease.renew(boottime() + DEAF.as_nanos() as u64);
        }
        let (ask, asked) = channel();
        let ears = hears.then(|| {
            let quiescer =
                Quiescer::start(attached.clone(), notices, Box::new(Behind(ask)), 4).expect("a thread");
            (quiescer, Poller::start(attached.clone()).expect("a thread"))
        });
        let device = RbdDevice::new(attached.clone());
        let driven = Driven { image, attached, ears, asked, device, ring: Ring::new(8).expect("a ring") };
        if hears {
            wait_until("the quiescer to have looked for itself", || driven.refreshes() > 0);
        }
        driven
    }

    fn start(&mut self, offset: u64, kind: OpKind) -> Option<Completion> {
        match self.device.submit(&mut self.ring, 0, Op { tag: 1, offset, kind }) {
            Submit::Finished(c) => Some(c),
            Submit::Taken => None,
            Submit::Busy(_) => panic!("an image is never busy"),
        }
    }

    fn finish(&mut self) -> Completion {
        let mut done = Vec::new();
        let until = Instant::now() + Duration::from_secs(30);
        while done.is_empty() {
            assert!(Instant::now() < until, "an operation that never ends");
            std::thread::sleep(Duration::from_millis(1));
            self.device.poll(&mut self.ring, 0, &mut done);
        }
        done.remove(0)
    }

    fn tries(&mut self, offset: u64, kind: OpKind) -> Completion {
        match self.start(offset, kind) {
            Some(refused) => refused,
            None => self.finish(),
        }
    }

    /// An operation that must succeed; what it read.
    pub(crate) fn does(&mut self, offset: u64, kind: OpKind) -> Option<Buf> {
        let done = self.tries(offset, kind);
        done.result.expect("it succeeds");
        done.buf
    }

    /// Writes two blocks of each of these objects, as groups.
    pub(crate) fn write(&mut self, objects: &[u64], version: u32) {
        for object in objects {
            self.does(object * OBJECT, pieces(*object, &PLACES, version));
        }
    }

    /// The same; how many of the objects were refused.
    pub(crate) fn refused(&mut self, objects: &[u64], version: u32) -> usize {
        let tried = objects.iter().map(|o| self.tries(o * OBJECT, pieces(*o, &PLACES, version)));
        tried.filter(|done| done.result.is_err()).count()
    }

    /// Sends the first block of an object and does not look at what becomes of it.
    pub(crate) fn send(&mut self, object: u64, version: u32) {
        let refused = self.start(object * OBJECT, pieces(object, &PLACES[..1], version));
        assert!(refused.is_none(), "{refused:?}");
    }

    /// Looks at what became of what was sent.
    pub(crate) fn look(&mut self) {
        self.finish().result.expect("it succeeds");
    }

    /// Gives an object up.
    pub(crate) fn discard(&mut self, object: u64) {
        self.does(object * OBJECT, OpKind::Discard { len: OBJECT });
    }

    /// True if all blocks of these objects read as `version`.
    pub(crate) fn reads(&mut self, objects: &[u64], version: u32) -> bool {
        let places = objects.iter().flat_map(|o| PLACES.map(|p| o * OBJECT + p));
        places.collect::<Vec<_>>().into_iter().all(|at| {
            let read = self.does(at, OpKind::Read(Buf::zeroed(4096))).expect("its buffer");
            read[..] == content((at / 4096) as usize, version)[..]
        })
    }

    /// Has a stock client take a snapshot. Who is asked before gets `ready` done first. True if anybody was asked.
    pub(crate) fn snapshot(&mut self, name: &str, mut ready: impl FnMut(&mut Driven<'a>)) -> bool {
        let (image, mut asked) = (self.image, false);
        let before = self.refreshes();
        std::thread::scope(|s| {
            let at = image.at(name);
            let client = s.spawn(move || image.cluster.rbd(&["snap", "create", "--no-progress", &at]));
            while !client.is_finished() {
                if let Ok(reply) = self.asked.recv_timeout(Duration::from_millis(5)) {
                    asked = true;
                    ready(self);
                    reply.send(Ok(())).expect("the quiescer waits");
                }
            }
            client.join().expect("a snapshot");
        });
        let (quiescer, _) = self.ears.as_ref().expect("one that hears");
        wait_until("the snapshot to be over", || quiescer.report().state == QuiesceState::Running);
        if asked {
            self.is_told(before);
        }
        asked
    }

    /// Waits until the quiescer has acted on both words about a snapshot: that it is over, and that the header changed. Each begins an
    /// epoch. The second may have been said before the first was heard, and is not missed then.
    fn is_told(&self, before: u64) {
        let mut last = (self.refreshes(), Instant::now());
        wait_until("the quiescer to be done with it", || {
            let now = self.refreshes();
            if now != last.0 {
                last = (now, Instant::now());
            }
            now >= before + 2 || (now > before && last.1.elapsed() >= QUIET)
        });
    }

    /// Has a stock client make the image smaller, and waits until its quiescer has gone along.
    pub(crate) fn shrinks_to(&self, bytes: u64) {
        let (before, size) = (self.refreshes(), format!("{bytes}B"));
        let shrink = ["resize", "--no-progress", "--allow-shrink", "--size", &size, &self.image.spec];
        self.image.cluster.rbd(&shrink);
        wait_until("the quiescer to go along", || self.refreshes() > before);
    }

    fn refreshes(&self) -> u64 {
        self.attached.counters.refreshes.load(Relaxed)
    }

    /// Waits until the quiescer has heard of a snapshot that it was not asked about.
    pub(crate) fn hears_of(&self, snapshots: usize) {
        wait_until("the quiescer to hear of it", || self.attached.context().ids.len() == snapshots);
    }

    /// Operations that came back to go through librbd.
    pub(crate) fn turned_back(&self) -> u64 {
        self.attached.counters.turned_back.load(Relaxed)
    }

    /// The reason why nothing goes by object any more, if so.
    pub(crate) fn why_librbd(&self) -> Option<String> {
        self.attached.why_librbd()
    }

    /// Lets the image go.
    pub(crate) fn end(self) {
        let Driven { attached, ears, device, ring, .. } = self;
        drop((device, ring));
        if let Some((quiescer, poller)) = ears {
            drop(poller);
            quiescer.stop();
        }
        attached.detach(true).expect("a clean end");
    }

    /// Ends where the image is another's by now. Nothing of Ceph may be left running when the process ends.
    pub(crate) fn give_up(self) {
        let Driven { attached, device, ring, .. } = self;
        drop((device, ring));
        // It cannot be told any more.
        let _ = attached.detach(false);
    }
}

fn pieces(object: u64, places: &[u64], version: u32) -> OpKind {
    let piece = |at: &u64| {
        let at = object * OBJECT + at;
        (at, Buf::copy_of(&content((at / 4096) as usize, version)).freeze())
    };
    OpKind::WriteMany(places.iter().map(piece).collect())
}

/// An image in which these objects have been written in these versions.
pub(crate) fn holding(written: &[(&[u64], u32)]) -> Vec<u8> {
    let mut all = vec![0; SIZE as usize];
    for (objects, version) in written {
        for at in objects.iter().flat_map(|o| PLACES.map(|p| o * OBJECT + p)) {
            all[at as usize..at as usize + 4096].copy_from_slice(&content((at / 4096) as usize, *version));
        }
    }
    all
}
