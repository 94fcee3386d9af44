//! An image while it is somebody's core: what the thread that does its I/O, the quiescer and librbd's callbacks share.

mod leave;

use crate::CephError;
use crate::attach_marker::{AttachMarker, KEY};
use crate::bug::{Step, is_left_out};
use crate::cluster::{Pool, text};
use crate::device::Landed;
use crate::error::check;
use crate::identity::ImageIdentity;
use crate::image::{Image, LockHolder};
use crate::layout::Layout;
use crate::lock_record::LockRecord;
use crate::loss::Loss;
use crate::size_watcher::SizeWatcher;
use crate::snapc::SnapContext;
use crate::spec::ImageSpec;
use crate::waits::Cancellable;
use crate::write_gate::WriteGate;
use loligo_block::Mailbox;
use loligo_block::lease::{Hold, Lease};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// A message to the quiescer of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Somebody is about to take a snapshot and waits for the image to be what it should hold.
    Quiesce,
    /// The snapshot is over, one way or the other.
    Unquiesce,
    /// Something about the image has changed.
    Update,
    /// An OSD refused what the present snapshot context says.
    Stale,
    /// The lock is still ours and calls itself otherwise.
    Held,
    /// The volume is about to stop.
    Stop,
    /// It has.
    End,
}

/// Counts of what went to the image and how.
#[derive(Debug, Default)]
pub struct Counters {
    /// Atomic operations on one object.
    pub groups: AtomicU64,
    /// Extents in them.
    pub extents: AtomicU64,
    /// Bytes in them.
    pub group_bytes: AtomicU64,
    /// Writes through librbd that came before the first group of an object.
    pub primers: AtomicU64,
    /// Groups that found no object, or an object not written since a snapshot: sent again through librbd.
    pub turned_back: AtomicU64,
    /// Times the header was read again and gone along with.
    pub refreshes: AtomicU64,
    /// Objects that are written at a time now; 0: nothing was yet.
    pub depth: AtomicU64,
}

/// An image that is ours.
#[derive(Debug)]
pub struct AttachedImage {
    /// As the user called it.
    pub name: String,
    pub(crate) spec: ImageSpec,
    /// Its identity.
    pub identity: ImageIdentity,
    /// The layout of its bytes in its objects.
    pub layout: Layout,
    /// Our name to the cluster, and our lock's name for itself.
    holder: Mutex<LockHolder>,
    pub(crate) loss: Loss,
    /// The part that is gone of those that make the image ours, while somebody answers.
    lacks: Mutex<Option<&'static str>>,
    /// Counts of operations on the image.
    pub counters: Counters,
    pub(crate) image: Image,
    /// Declared after the image: closed after it. Its header is here, and its data there.
    pub(crate) header: Pool,
    pub(crate) data: Pool,
    prefix: String,
    pub(crate) gate: WriteGate,
    /// The most bytes it had in this attach.
    reach: AtomicU64,
    /// Bytes that are still the image's: one that shrank under the cache does not grow again before the next attach.
    limit: AtomicU64,
    /// The smallest size that was seen since the quiescer last looked.
    lowest: Mutex<u64>,
    size_watcher: Mutex<Option<SizeWatcher>>,
    /// A thread, which nobody may be waiting for, cuts off what lies behind the end.
    cutting: AtomicBool,
    /// No groups any more.
    librbd_only: AtomicBool,
    why_librbd: Mutex<Option<String>>,
    context: Mutex<SnapContext>,
    /// The newest version of the header that was read.
    version: AtomicU64,
    watches: Mutex<Watches>,
    notices: Mutex<Sender<Notice>>,
    /// Operations that have landed for the device.
    pub(crate) inbox: Mailbox<Landed>,
    /// The lease, which says whether the image is still ours.
    pub lease: Arc<Lease>,
    /// Snapshots that wait for our word.
    asked: AtomicU32,
}

/// Numbers of what librbd tells us.
#[derive(Debug, Default)]
struct Watches {
    quiesce: Option<u64>,
    update: Option<u64>,
}

/// Nanoseconds for which a client sends after its lease: what it has taken on goes out meanwhile.
const SEND_AFTER: u64 = 2_000_000_000;

/// Tells the quiescer of the image behind `arg`; runs on a thread of librbd's and must not wait.
///
/// # Safety
/// `arg` is the image that was given to the watch, and still there.
unsafe fn tell(arg: *mut c_void, notice: Notice) {
    // SAFETY: the caller's word.
    unsafe { &*arg.cast::<AttachedImage>() }.tell(notice);
}

unsafe extern "C" fn on_quiesce(arg: *mut c_void) {
    // SAFETY: librbd gives back what it was given; unwatching comes before the end of the image.
    unsafe {
        (*arg.cast::<AttachedImage>()).asked.fetch_add(1, Ordering::AcqRel);
        tell(arg, Notice::Quiesce);
    }
}

unsafe extern "C" fn on_unquiesce(arg: *mut c_void) {
    // SAFETY: as above.
    unsafe { tell(arg, Notice::Unquiesce) }
}

unsafe extern "C" fn on_update(arg: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        (*arg.cast::<AttachedImage>()).look_at_size();
        tell(arg, Notice::Update);
    }
}

/// The parts of an [`AttachedImage`].
pub(crate) struct Parts {
    pub(crate) spec: ImageSpec,
    pub(crate) identity: ImageIdentity,
    pub(crate) size: u64,
    pub(crate) layout: Layout,
    pub(crate) holder: LockHolder,
    pub(crate) image: Image,
    pub(crate) header: Pool,
    pub(crate) data: Pool,
    pub(crate) prefix: String,
    pub(crate) why_librbd: Option<String>,
    pub(crate) notices: Sender<Notice>,
    pub(crate) inbox: Mailbox<Landed>,
    pub(crate) lease: Arc<Lease>,
}

impl AttachedImage {
    pub(crate) fn new(p: Parts) -> AttachedImage {
        AttachedImage {
            name: p.spec.to_string(),
            spec: p.spec,
            identity: p.identity,
            layout: p.layout,
            holder: Mutex::new(p.holder),
            loss: Loss::default(),
            lacks: Mutex::new(None),
            counters: Counters::default(),
            image: p.image,
            header: p.header,
            data: p.data,
            prefix: p.prefix,
            gate: WriteGate::new(p.lease.clone()),
            reach: AtomicU64::new(p.size),
            limit: AtomicU64::new(p.size),
            lowest: Mutex::new(u64::MAX),
            size_watcher: Mutex::new(None),
            cutting: AtomicBool::new(false),
            librbd_only: AtomicBool::new(p.why_librbd.is_some()),
            why_librbd: Mutex::new(p.why_librbd),
            context: Mutex::new(SnapContext::default()),
            version: AtomicU64::new(0),
            watches: Mutex::default(),
            notices: Mutex::new(p.notices),
            inbox: p.inbox,
            lease: p.lease,
            asked: AtomicU32::new(0),
        }
    }

    /// Has librbd tell the quiescer of snapshots to be taken, and of changes.
    ///
    /// # Errors
    /// If the image cannot be watched.
    pub(crate) fn watch(self: &Arc<AttachedImage>) -> Result<(), CephError> {
        let (lib, handle) = (self.image.lib, self.image.handle);
        let size_watcher = SizeWatcher::start(self).map_err(|e| CephError::named(e.to_string()))?;
        *self.size_watcher.lock() = Some(size_watcher);
        // Whoever ends the attach unwatches before the image goes, so that the callbacks find it.
        let arg = Arc::as_ptr(self).cast_mut().cast::<c_void>();
        let mut watches = self.watches.lock();
        if !is_left_out(Step::Quiesce) {
            let mut number = 0;
            // SAFETY: the handle is live, and the argument outlives the watch.
            let code =
                unsafe { (lib.rbd_quiesce_watch)(handle, on_quiesce, on_unquiesce, arg, &raw mut number) };
            check(|| "watching for snapshots".to_owned(), code)?;
            watches.quiesce = Some(number);
        }
        let mut number = 0;
        // SAFETY: as above.
        let code = unsafe { (lib.rbd_update_watch)(handle, &raw mut number, on_update, arg) };
        check(|| "watching for changes of the image".to_owned(), code)?;
        watches.update = Some(number);
        Ok(())
    }

    fn unwatch(&self) {
        // Librbd does not end a watch whose owner still owes an answer.
        while self.asked.load(Ordering::Acquire) > 0 {
            self.quiesced(false);
        }
        let watches = std::mem::take(&mut *self.watches.lock());
        let (lib, handle) = (self.image.lib, self.image.handle);
        // SAFETY: the handle is live and each watch is ended once; where that fails the image is closed all the same.
        unsafe {
            if let Some(number) = watches.quiesce {
                (lib.rbd_quiesce_unwatch)(handle, number);
            }
            if let Some(number) = watches.update {
                (lib.rbd_update_unwatch)(handle, number);
            }
        }
        let size_watcher = self.size_watcher.lock().take();
        if let Some(size_watcher) = size_watcher {
            size_watcher.stop();
        }
    }

    /// Something has changed, which may be the size.
    fn look_at_size(&self) {
        if let Some(size_watcher) = &*self.size_watcher.lock() {
            size_watcher.ring();
        }
    }

    fn lowest(&self) -> MutexGuard<'_, u64> {
        self.lowest.lock()
    }

    /// The image had so many bytes at some time while it reached to `reach`: what was seen before it grew is no shrinking.
    pub(crate) fn saw_size(&self, size: u64, reach: u64) {
        let mut lowest = self.lowest();
        if reach == self.reach() {
            *lowest = size.min(*lowest);
        }
    }

    /// The fewest bytes that were seen since this was last asked.
    pub(crate) fn take_lowest(&self) -> u64 {
        std::mem::replace(&mut *self.lowest(), u64::MAX)
    }

    /// Answers whoever waits for the image to be ready for a snapshot: it is, or it will not be.
    pub(crate) fn quiesced(&self, ready: bool) {
        let watch = self.watches.lock().quiesce;
        let waiting = self.asked.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        if waiting.is_err() {
            return;
        }
        if let Some(number) = watch {
            let code = if ready { 0 } else { -libc::EBUSY };
            // SAFETY: the handle is live and the watch is this image's.
            unsafe { (self.image.lib.rbd_quiesce_complete)(self.image.handle, number, code) };
        }
    }

    /// Our name to the cluster, and our lock's name for itself.
    pub fn holder(&self) -> LockHolder {
        self.holder.lock().clone()
    }

    /// Librbd calls the lock otherwise once it has watched the image anew.
    pub(crate) fn held_as(&self, cookie: String) {
        self.holder.lock().cookie = cookie;
        self.tell(Notice::Held);
    }

    /// The part that answers wait for: `watch`, `lock`, or `network`.
    pub fn lacks(&self) -> Option<&'static str> {
        let lacks = *self.lacks.lock();
        (self.lease.now() == Hold::Expired).then(|| lacks.unwrap_or("network"))
    }

    pub(crate) fn set_lacks(&self, what: Option<&'static str>) {
        *self.lacks.lock() = what;
    }

    /// Somebody who knows has said at some time after `asked` that the image is ours: answers leave, and writes go out.
    pub(crate) fn renew(&self, asked: u64) {
        let had_expired = self.lease.now() == Hold::Expired;
        self.lease.renew(asked);
        self.header.cluster.may_send_until(self.lease.until() + SEND_AFTER);
        if had_expired {
            self.ring();
        }
    }

    /// From now on somebody asks. The time in which nobody did ends, whether or not an answer comes: the client may send for as long
    /// as its lock vouches for it.
    pub(crate) fn is_asked_about(&self) {
        self.header.cluster.may_send_until(self.lease.until() + SEND_AFTER);
    }

    /// Another client has said at some time after `asked` that the lock names us: this one may send again.
    /// Nothing is answered by that. A client that finds a lock whose holder does not watch the image takes it
    /// at once.
    pub(crate) fn vouched(&self, asked: u64) {
        let length = self.lease.length().as_nanos() as u64;
        self.header.cluster.may_send_until(asked + length + SEND_AFTER);
    }

    /// True if this client may send: nothing leaves it once nobody has said for a while that the image is ours.
    pub fn may_send(&self) -> bool {
        self.header.cluster.may_send()
    }

    /// True if the image is another's.
    pub fn is_lost(&self) -> bool {
        self.lease.now() == Hold::Lost
    }

    /// The reason why the image is another's, once that is so.
    pub fn why_lost(&self) -> Option<String> {
        self.loss.why()
    }

    /// Tells the quiescer. Once it has ended nobody listens, and nothing is left to tell.
    pub fn tell(&self, notice: Notice) {
        let _ = self.notices.lock().send(notice);
    }

    /// The record that shows later whether anybody else had the image since now.
    pub fn record(&self) -> LockRecord {
        LockRecord {
            holder: self.holder(),
            seq: self.context().seq,
            tried: None,
            broken: None,
            free_at: None,
            left_at: None,
            version: Some(self.version.load(Ordering::Acquire)),
            rests_at: None,
            suspect: false,
            lost: None,
        }
    }

    /// Says in the image's metadata whose cache it has.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn set_mark(&self, mark: AttachMarker) -> Result<(), CephError> {
        self.image.set_metadata(KEY, &mark.of(&self.identity).encode())
    }

    /// Takes away a mark that came with a clone or a copy: it speaks of the image that this one was made from.
    ///
    /// # Errors
    /// If the metadata cannot be read or written.
    pub(crate) fn drop_inherited_mark(&self) -> Result<(), CephError> {
        let mark = self.image.metadata(KEY)?.and_then(|m| AttachMarker::decode(&m));
        if mark.is_some_and(|m| !m.is_of(&self.identity)) { self.image.remove_metadata(KEY) } else { Ok(()) }
    }

    /// Wakes the device: what waited for the gate may go.
    pub(crate) fn ring(&self) {
        self.inbox.ring();
    }

    /// Blocking access, for what comes before and after service.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The value of an option of this client of Ceph.
    ///
    /// # Errors
    /// If Ceph does not know it.
    pub fn option(&self, option: &str) -> Result<String, CephError> {
        self.header.cluster.option(option)
    }

    /// The snapshot context in use.
    pub fn context(&self) -> SnapContext {
        self.context.lock().clone()
    }

    /// The reason why dirty data goes through librbd block by block; nothing: it goes by object.
    pub fn why_librbd(&self) -> Option<String> {
        self.why_librbd.lock().clone()
    }

    /// True if groups may be sent at all.
    pub(crate) fn groups_allowed(&self) -> bool {
        !self.librbd_only.load(Ordering::Relaxed)
    }

    /// No groups from now on.
    pub(crate) fn fall_back(&self, why: String) {
        self.librbd_only.store(true, Ordering::Relaxed);
        let mut said = self.why_librbd.lock();
        if said.is_none() {
            tracing::warn!(image = self.name, why, "dirty data goes through librbd from now on");
            *said = Some(why);
        }
    }

    /// Reads the snapshot context from the header and uses it from now on. The gate is closed and nothing is under way.
    ///
    /// # Errors
    /// If the header cannot be read.
    pub(crate) fn refresh(&self) -> Result<(), CephError> {
        let (now, version) = SnapContext::read_with_version(&self.header, &self.identity.id)?;
        self.version.store(version, Ordering::Release);
        if is_left_out(Step::Refresh) {
            return Ok(());
        }
        let mut known = self.context.lock();
        now.set(&self.data)?;
        *known = now;
        Ok(())
    }

    /// The least that an object's newest snapshot must be for a group to be written to it. Librbd writes without a context once no
    /// snapshot is left, so that its primer does not take the object there.
    pub(crate) fn guard_seq(&self) -> u64 {
        let context = self.context.lock();
        if context.ids.is_empty() { 0 } else { context.seq }
    }

    /// Bytes of the image's objects.
    pub(crate) fn object_size(&self) -> u64 {
        self.layout.object.bytes()
    }

    /// The RADOS name of an object of the image.
    pub(crate) fn object_name(&self, object: u64) -> Result<CString, CephError> {
        text(&format!("{}.{object:016x}", self.prefix))
    }

    /// Bytes that operations may name: those behind the image's end do nothing.
    pub fn reach(&self) -> u64 {
        self.reach.load(Ordering::Acquire)
    }

    /// Nothing goes behind `size` any more.
    pub(crate) fn end_at(&self, size: u64) {
        self.limit.fetch_min(size, Ordering::AcqRel);
    }

    /// Somebody has made the image larger.
    pub(crate) fn grow(&self, size: u64) {
        let mut lowest = self.lowest();
        *lowest = u64::MAX;
        self.reach.fetch_max(size, Ordering::AcqRel);
        self.limit.store(size, Ordering::Release);
    }

    /// The end of the image by now.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Cuts off the bytes that groups have put behind `size` into the last object of an image that shrank, so that nobody finds them there
    /// when the image grows again. Only while nothing is under way, and where nobody else has written since.
    ///
    /// OSDs that do not answer are waited for by a thread: who gives it up must not let the image go while it
    /// [is being cut](AttachedImage::is_being_cut), because others would have their data cut off.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn cut_boundary(
        self: &Arc<AttachedImage>,
        size: u64,
    ) -> Result<Cancellable<Result<(), CephError>>, CephError> {
        let image = self.clone();
        self.cutting.store(true, Ordering::Release);
        let begun = Cancellable::begin(move || {
            let cut = image.cut_off_behind(size);
            image.cutting.store(false, Ordering::Release);
            cut
        });
        begun.inspect_err(|_| self.cutting.store(false, Ordering::Release))
    }

    /// True if OSDs may still cut off what lies behind its end.
    pub fn is_being_cut(&self) -> bool {
        self.cutting.load(Ordering::Acquire)
    }

    fn cut_off_behind(&self, size: u64) -> Result<(), CephError> {
        let (object, end) = (size / self.object_size(), size % self.object_size());
        // Of an image in stripes nothing was put there by groups, and its last object is another one.
        if end > 0 && self.layout.is_linear() {
            let oid = self.object_name(object)?;
            let lib = self.image.lib;
            // SAFETY: the operation is made, carried out and given back here; the pool's handle is live.
            let code = unsafe {
                let op = (lib.rados_create_write_op)();
                (lib.rados_write_op_assert_exists)(op);
                (lib.rados_write_op_truncate)(op, end);
                let code = (lib.rados_write_op_operate)(op, self.data.io, oid.as_ptr(), null_mut(), 0);
                (lib.rados_release_write_op)(op);
                code
            };
            if code != -libc::ENOENT {
                check(|| "cutting off what lies behind the image's new end".to_owned(), code)?;
            }
        }
        Ok(())
    }

    /// Its volume is ended at once: nothing of this client is sent any more, what waits for it fails, and its lock and its watch
    /// are those of a client that has died.
    pub fn end(&self) {
        self.loss.forget();
        self.lease.lose();
        self.header.cluster.silence();
        self.ring();
    }

    /// Somebody else has the image: nothing is written any more.
    pub(crate) fn lose(&self, why: String) {
        self.lease.lose();
        self.header.cluster.silence();
        self.ring();
        self.loss.found(why);
    }
}
