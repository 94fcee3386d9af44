//! Taking an image as a core: who has it, whether it is fit, what was left of an earlier attach, and the lock.

use crate::attach_marker::{AttachMarker, KEY};
use crate::attached_image::{AttachedImage, ImageIdentity, Notice, Parts};
use crate::bug::{Step, is_left_out, nobody_has_it};
use crate::cancel::{CancelFlag, is_given_up, leaves_client};
use crate::cluster::{Cluster, Purpose, WATCH};
use crate::foreign_use::{check_record, is_stamped};
use crate::header_watch::HeaderWatch;
use crate::image::{Image, LockHolder, Source, UNMAP, WatcherInfo};
use crate::lock_record::LockRecord;
use crate::snapc::SnapContext;
use crate::spec::ImageSpec;
use crate::{CephError, lock_stamp, mirror, pools, status};
use loligo_block::Mailbox;
use loligo_block::lease::{Lease, boottime};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Seconds for which OSDs must remember a client: once a second it is asked whether the image is still ours.
const SHORTEST: u64 = 8;
/// The shortest lease: room for one question that is not answered, and for a connection that is made anew.
const LEAST: Duration = Duration::from_secs(4);

/// How dirty data goes to the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Destage {
    /// By object where the image allows it, else through librbd.
    #[default]
    Auto,
    /// By object, or not at all.
    Grouped,
    /// Through librbd, extent by extent.
    Librbd,
}

impl FromStr for Destage {
    type Err = String;

    fn from_str(text: &str) -> Result<Destage, String> {
        match text {
            "auto" => Ok(Destage::Auto),
            "grouped" => Ok(Destage::Grouped),
            "librbd" => Ok(Destage::Librbd),
            _ => Err(format!("'{text}' is no way to destage: use auto, grouped or librbd")),
        }
    }
}

/// The cache that comes with an attach.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Its UUID; empty where it is yet to be made.
    pub cache: String,
    /// The volume's name.
    pub volume: String,
    /// The core it was made for, as [`ImageIdentity`] is written; nothing: it is yet to be made.
    pub core: Option<String>,
    /// It may hold data newer than the image's.
    pub dirty: bool,
    /// How much, bytes; nothing: it was not stopped and does not say.
    pub dirty_bytes: Option<u64>,
    /// Its last hold on the image.
    pub record: Option<LockRecord>,
    /// Use it although somebody else had the image.
    pub force: bool,
}

/// What is asked for.
pub struct AttachRequest<'a> {
    /// Which image.
    pub spec: &'a ImageSpec,
    /// The cache; without one the image is served bare.
    pub cache: Option<Cache>,
    /// Take the image away from who has it.
    pub steal: bool,
    /// Open an image whose dirty data another cache holds.
    pub without_cache: bool,
    /// How dirty data goes out.
    pub destage: Destage,
    /// Attempts of 5 s that a client waits before its snapshot.
    pub quiesce_attempts: u32,
    /// How long a word that the image is ours is good for.
    pub lease: Duration,
    /// Writes down in the cache who holds, or is about to hold, the image.
    pub remember: &'a mut dyn FnMut(&LockRecord) -> Result<(), String>,
}

impl std::fmt::Debug for AttachRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AttachRequest({}, {:?})", self.spec, self.cache)
    }
}

/// An image that was taken, and what its quiescer is to hear.
#[derive(Debug)]
pub struct Attachment {
    /// The image.
    pub image: Arc<AttachedImage>,
    /// What happens to it.
    pub notices: Receiver<Notice>,
    /// Others may have written to the image since the cache was attached: what is clean in it is not the image's any more.
    pub changed: bool,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// A daemon that has just begun to mirror an image is not known for one yet.
const MAY_MIRROR: &str =
    ". The image is mirrored: a mirror daemon is known as one half a minute after its start";

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T, CephError> {
    Err(CephError::Named(why.into()))
}

/// Takes it.
///
/// # Errors
/// Where Ceph cannot be reached, the image is not fit, or somebody has it; nothing was changed then, except that a holder that
/// was to be fenced may be.
pub fn attach(request: AttachRequest<'_>) -> Result<Attachment, CephError> {
    attach_unless(request, &CancelFlag::default())
}

/// The same, unless it is given up.
pub(crate) fn attach_unless(
    mut request: AttachRequest<'_>,
    cut: &CancelFlag,
) -> Result<Attachment, CephError> {
    let spec = request.spec;
    let mut warnings = Vec::new();
    let identity = {
        // What would be refused, and a cluster that does not answer, is found out without disturbing anybody.
        let cluster = Arc::new(Cluster::connect(spec, Purpose::Look)?);
        let seen = ImageView::at(&cluster, spec)?;
        seen.check(&cluster, &request, 0, &mut Vec::new())?;
        refuse_overridden(spec, &seen.look)?;
        let header = format!("rbd_header.{}", seen.identity.id);
        cluster.pool(&spec.pool, &spec.namespace)?.takes_writes(&header)?;
        if let Some(record) = request.cache.as_mut().and_then(|c| c.record.as_mut()) {
            let header = cluster.pool(&spec.pool, &spec.namespace)?;
            // In this order: whoever changes the header between the two takes the stamp away.
            let (_, version) = SnapContext::read_with_version(&header, &seen.identity.id)?;
            if record.free_at != Some(version) && is_stamped(&header, &seen.identity, record)? {
                // Watching it, which comes next, takes the stamp away too.
                record.free_at = Some(version);
                (request.remember)(record).map_err(CephError::Named)?;
            }
        }
        seen.identity
    };
    let cluster =
        Arc::new(Cluster::connect(spec, Purpose::Own { quiesce_attempts: request.quiesce_attempts })?);
    cut.own(&cluster)?;
    let image = Image::open(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
    let options = refuse_overridden(spec, &image)?;
    let layout = image.layout()?;
    let mut why_librbd = status::ungrouped(layout, &options);
    let data_id = image.data_pool();
    why_librbd.extend(pools::ungrouped(&cluster, data_id)?);
    if request.destage == Destage::Librbd {
        why_librbd = vec!["as --destage says".to_owned()];
    }
    if request.destage == Destage::Grouped && !why_librbd.is_empty() {
        return refuse(format!(
            "--destage grouped: image {spec} does not allow it: {}",
            why_librbd.join("; ")
        ));
    }
    let size = image.size()?;
    if !size.is_multiple_of(loligo_block::SECTOR) {
        return refuse(format!(
            "image {spec} has {size} bytes, which is no multiple of 512: 'rbd resize' it first"
        ));
    }
    warnings.extend(status::warnings(image.flags()?));
    let watch = cluster.watch_timeout();
    let lease = lease_within(request.lease, watch)?;
    if lease < request.lease {
        warnings.push(format!(
            "the lease is {:.1} s: OSDs of this cluster forget a client after {watch} s (osd_client_watch_timeout)",
            lease.as_secs_f64()
        ));
    }
    let header = cluster.pool(&spec.pool, &spec.namespace)?;
    let data = if is_left_out(Step::Instance) {
        let other = Cluster::connect(spec, Purpose::Own { quiesce_attempts: request.quiesce_attempts })?;
        Arc::new(other).pool_number(data_id, &spec.namespace)?
    } else {
        cluster.pool_number(data_id, &spec.namespace)?
    };
    let prefix = image.prefix()?;
    let inbox = Mailbox::new().map_err(|e| CephError::Named(e.to_string()))?;
    let (send, notices) = std::sync::mpsc::channel();

    // From here on somebody who comes asks us for the lock, and is told no once we have it.
    let me = cluster.instance();
    let (_, mut free_at) = SnapContext::read_with_version(&header, &identity.id)?;
    let seen = ImageView::at(&cluster, spec)?;
    if seen.identity != identity {
        return refuse(format!("image {spec} was replaced by another meanwhile: try again"));
    }
    let mut changed = seen.check(&cluster, &request, me, &mut warnings)?;
    let mirrors = seen.watchers.iter().filter(|w| w.mirrors).map(|w| w.client).collect();
    let ear = HeaderWatch::open(&cluster, cluster.pool(&spec.pool, &spec.namespace)?, &identity.id, mirrors)?;
    let dirty = request.cache.as_ref().is_some_and(|c| c.dirty);
    let record = request.cache.as_ref().and_then(|c| c.record.clone());
    let stamp = record.as_ref().and_then(|w| w.broken).unwrap_or_else(lock_stamp::draw);
    let mine = seen.watchers.iter().find(|w| w.client == me);
    let mut tried = record.zip(mine).map(|(w, mine)| {
        let holder = seen.owner().cloned().unwrap_or_else(|| w.holder.clone());
        let (tried, broken) = (Some(format!("client.{}", mine.client)), Some(stamp));
        LockRecord { holder, tried, broken, rests_at: None, suspect: changed, ..w }
    });
    if let Some(tried) = &tried {
        // Ended between here and the lock, this client must be known for one of this cache's at the next start.
        (request.remember)(tried).map_err(CephError::Named)?;
    }
    seen.fence(&cluster, me)?;
    if let Some(holder) = seen.owner() {
        match lock_stamp::break_lock(&header, &identity.id, holder, stamp) {
            Ok(version) => {
                if is_left_out(Step::Noting) {
                    // As a crash right here: what librbd holds goes with the process.
                    std::mem::forget((image, ear));
                    return refuse("left out: noting that the lock is free");
                }
                free_at = version;
                if let Some(tried) = &mut tried {
                    tried.free_at = Some(version);
                    (request.remember)(tried).map_err(CephError::Named)?;
                }
            }
            // It was let go meanwhile, which the dead do not do: that is seen next.
            Err(CephError::Call { errno: libc::ENOENT, .. }) => {}
            Err(e) => return Err(e),
        }
    }
    // Whoever writes to the image takes its lock first, which moves the version.
    let moved = SnapContext::read_with_version(&header, &identity.id)?.1 != free_at;
    if moved || seen.others_came(&cluster, spec, me)? {
        if dirty {
            return refuse(came_meanwhile(spec));
        }
        changed = true;
    }
    nobody_has_it();
    if is_left_out(Step::Taking) {
        std::mem::forget((image, ear));
        return refuse("left out: taking the lock");
    }
    let asked = boottime();
    let holder = match hold(&image, &cluster, spec) {
        Ok(holder) => holder,
        Err(e) => {
            if dirty {
                // Closing would give the lock back, which is the only record that nobody else had the image.
                cluster.silence();
                leaves_client();
                // Ending the watch would wait for an answer.
                std::mem::forget((image, ear));
            }
            return Err(e);
        }
    };
    // One who came after that look may have had the lock, and be gone again or have handed it over when asked.
    if ear.somebody_came() || seen.others_came(&cluster, spec, me)? {
        if dirty {
            // The lock goes back: kept, it would say at the next start that nobody else was there.
            return refuse(came_meanwhile(spec));
        }
        changed = true;
    }
    drop(ear);
    let attached = Arc::new(AttachedImage::new(Parts {
        spec: spec.clone(),
        identity,
        size,
        layout,
        holder,
        prefix,
        image,
        header,
        data,
        why_librbd: (!why_librbd.is_empty()).then(|| why_librbd.join("; ")),
        notices: send,
        inbox,
        lease: Lease::since(lease, asked),
    }));
    let settled = attached.watch().and_then(|()| {
        attached.refresh()?;
        attached.drop_inherited_mark()?;
        attached.gate.new_epoch();
        attached.gate.open();
        let record = LockRecord { suspect: changed, ..attached.record() };
        (request.remember)(&record).map_err(CephError::Named)
    });
    match settled {
        Ok(()) => Ok(Attachment { image: attached, notices, changed, warnings }),
        Err(e) => {
            if dirty {
                attached.retire();
            } else {
                // The first error is the one to be told.
                let _ = attached.detach(false);
            }
            Err(e)
        }
    }
}

/// The options of an image, where they are what a core needs.
fn refuse_overridden(spec: &ImageSpec, image: &Image) -> Result<Vec<(String, String, Source)>, CephError> {
    let options = image.options()?;
    let overridden = status::overridden(spec, &options);
    // Left out, our own client is told not to fence.
    if overridden.is_empty() || is_left_out(Step::Fence) {
        return Ok(options);
    }
    refuse(format!("image {spec} cannot be a core: {}", overridden.join("; ")))
}

/// The lease where OSDs forget a client after `watch` seconds: two thirds of that at most. The client is heard once a second, so
/// that a host that is cut off answers nothing any more by the time its watch ends.
fn lease_within(request: Duration, watch: u64) -> Result<Duration, CephError> {
    if watch < SHORTEST {
        return refuse(format!(
            "OSDs of this cluster forget a client after {watch} s, too soon to be sure of an image: 'ceph config set osd \
             osd_client_watch_timeout {WATCH}' (a core needs {SHORTEST} s at least)"
        ));
    }
    if request < LEAST {
        return refuse(format!(
            "a lease of {} s is too short to be renewed in time: use --lease {} or more",
            request.as_secs_f64(),
            LEAST.as_secs()
        ));
    }
    Ok(request.min(Duration::from_secs(2 * watch) / 3))
}

fn came_meanwhile(spec: &ImageSpec) -> String {
    format!(
        "somebody came to image {spec} while this cache was about to take it: see who uses it ('rbd status {}'), end that client, and \
         start again, which says what is to be decided if the image was written to",
        spec.image
    )
}

/// Takes the lock, and says as what it is held.
fn hold(image: &Image, cluster: &Arc<Cluster>, spec: &ImageSpec) -> Result<LockHolder, CephError> {
    image.lock()?;
    // An open image knows of its lock what it was when it was opened.
    let look = Image::look(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
    match look.lock_holder()? {
        // Somebody may have stolen it right away: theirs must not be kept for ours.
        Some(holder) if holder.client == format!("client.{}", cluster.instance()) => Ok(holder),
        Some(_) | None => {
            refuse(format!("the lock of image {spec} was taken away at once: who else uses it?"))
        }
    }
}

/// What is seen of an image and of who has it.
struct ImageView {
    look: Image,
    identity: ImageIdentity,
    holder: Option<LockHolder>,
    watchers: Vec<WatcherInfo>,
    /// It is mirrored to another cluster.
    mirrored: bool,
}

impl ImageView {
    fn at(cluster: &Arc<Cluster>, spec: &ImageSpec) -> Result<ImageView, CephError> {
        let pool = cluster.pool(&spec.pool, &spec.namespace)?;
        let number = pool.id();
        let look = Image::look(pool, &spec.image)?;
        let unusable = status::unusable(&spec.to_string(), look.features()?, look.is_old()?);
        if !unusable.is_empty() {
            return refuse(format!("image {spec} cannot be a core: {}", unusable.join("; ")));
        }
        let identity = ImageIdentity {
            fsid: cluster.fsid()?,
            pool: number,
            namespace: spec.namespace.clone(),
            id: look.id()?,
        };
        let (holder, mut watchers) = (look.lock_holder()?, look.watchers()?);
        let pool = cluster.pool(&spec.pool, &spec.namespace)?;
        let mirrored = mirror::find(&pool, &identity.id, &mut watchers);
        Ok(ImageView { look, identity, holder, watchers, mirrored })
    }

    /// Who has the lock and is to lose it. A daemon that mirrors the image gives it up when asked, and goes on.
    fn owner(&self) -> Option<&LockHolder> {
        self.holder.as_ref().filter(|h| !h.mirrors(&self.watchers))
    }

    /// Whether the image may be taken; `me` is not somebody else. True: others may have written to it.
    fn check(
        &self,
        cluster: &Arc<Cluster>,
        request: &AttachRequest<'_>,
        me: i64,
        warnings: &mut Vec<String>,
    ) -> Result<bool, CephError> {
        // Before anything is changed: neither the image's lock nor what the cache knows of its own image may be lost to a slip.
        let theirs = request.cache.as_ref().and_then(|c| c.core.as_ref());
        if let Some(core) = theirs.filter(|c| **c != self.identity.to_string()) {
            return refuse(format!(
                "the cache belongs to another core ({core}); image {} is {}: give the right --core or the right --cache",
                request.spec, self.identity
            ));
        }
        check_mark(&self.look, &self.identity, request, warnings)?;
        let holder = self.holder.as_ref();
        let changed = check_record(cluster, &self.look, &self.identity, holder, request, warnings)?;
        let ours = request.cache.as_ref().and_then(|c| c.record.as_ref());
        for watcher in self.watchers.iter().filter(|w| w.client != me && !w.mirrors) {
            // This cache is locked by this process: whoever had it before is dead.
            if ours.is_some_and(|o| o.knows_watcher(watcher)) {
                continue;
            }
            // An attach of this process that was given up: fenced like any other, and nobody who uses the image.
            if is_given_up(&self.identity.fsid, watcher.client) {
                continue;
            }
            let WatcherInfo { address, client, kernel, .. } = watcher;
            if !request.steal && *kernel {
                return refuse(format!(
                    "image {} is in use by client.{client} at {address}: {UNMAP}",
                    request.spec
                ));
            }
            if !request.steal {
                let mirror = if self.mirrored { MAY_MIRROR } else { "" };
                return refuse(format!(
                    "image {} is in use by client.{client} at {address}: end that client first (one that died lets go after \
                     30 s), or take the image away from it with --steal{mirror}",
                    request.spec
                ));
            }
            let device =
                if *kernel { ": the kernel there has it mapped, 'rbd unmap -o force' it" } else { "" };
            warnings.push(format!("client.{client} at {address} was fenced, as --steal ordered{device}"));
        }
        self.check_holder(request, warnings)?;
        Ok(changed)
    }

    /// Refuses an image whose lock a stranger has who does not watch it: dead, or cut off. Whoever gave up what others may have in
    /// their caches has decided that already.
    fn check_holder(&self, request: &AttachRequest<'_>, warnings: &mut Vec<String>) -> Result<(), CephError> {
        let Some(h) = self.holder.as_ref().filter(|h| !h.is_among(&self.watchers)) else { return Ok(()) };
        let cache = request.cache.as_ref();
        if cache.and_then(|c| c.record.as_ref()).is_some_and(|w| w.knows(h)) {
            return Ok(());
        }
        let number = h.client.strip_prefix("client.").and_then(|n| n.parse().ok());
        if number.is_some_and(|n| is_given_up(&self.identity.fsid, n)) {
            return Ok(());
        }
        let taken = request.steal || request.without_cache || cache.is_some_and(|c| c.force);
        if !taken && h.is_kernel() {
            return refuse(format!(
                "{} at {} holds the exclusive lock of image {} and does not answer for it: {UNMAP}",
                h.client, h.address, request.spec
            ));
        }
        if !taken {
            return refuse(format!(
                "{} at {} holds the exclusive lock of image {} and does not answer for it: it died, or is cut off. See that it is gone, and \
                 take the image away from it with --steal",
                h.client, h.address, request.spec
            ));
        }
        warnings.push(format!("{} at {}, which held the image's lock, was fenced", h.client, h.address));
        Ok(())
    }

    /// Whether somebody watches the image now who did not when this was seen.
    fn others_came(&self, cluster: &Arc<Cluster>, spec: &ImageSpec, me: i64) -> Result<bool, CephError> {
        let now = Image::look(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?.watchers()?;
        Ok(now.iter().any(|n| n.client != me && !self.watchers.iter().any(|w| w.client == n.client)))
    }

    /// Fences whoever has the image and is not `me`. Whoever holds the lock and does not watch the image is dead, as librbd sees
    /// it too. Daemons that mirror it do not write to it.
    fn fence(&self, cluster: &Cluster, me: i64) -> Result<(), CephError> {
        let others = self.watchers.iter().filter(|w| w.client != me && !w.mirrors);
        let mut all: Vec<String> = others.map(|w| w.address.clone()).collect();
        all.extend(self.owner().map(|h| h.address.clone()));
        all.sort_unstable();
        all.dedup();
        all.iter().try_for_each(|address| cluster.fence(address))
    }
}

/// Another cache may hold what this image lacks.
fn check_mark(
    look: &Image,
    identity: &ImageIdentity,
    request: &AttachRequest<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), CephError> {
    let Some(value) = look.metadata(KEY)? else { return Ok(()) };
    let Some(mark) = AttachMarker::decode(&value) else {
        if request.without_cache {
            warnings.push("what the image's mark of another release speaks of was given up".to_owned());
            return Ok(());
        }
        return refuse(format!(
            "image {0} may lack what a cache holds: its metadata has a mark that this release does not understand ('rbd image-meta get {0} \
             {KEY}'). Use the release that made it; --force-without-cache uses the image as it is and loses what only that cache has",
            request.spec
        ));
    };
    // A clone or copy inherits its origin's metadata; that says nothing of it.
    if !mark.is_of(identity) {
        return Ok(());
    }
    if mark.void {
        // It lacks nothing; only the cache that was in front of it is not to be had again as it is.
        let kept = request.cache.as_ref().is_some_and(|c| c.cache == mark.cache && c.core.is_some());
        return match kept {
            true => refuse(format!(
                "cache {} of volume '{}' failed, and image {} was changed without it: what the cache holds is void. --create --force makes \
                 it anew",
                mark.cache, mark.volume, request.spec
            )),
            false => Ok(()),
        };
    }
    if request.cache.as_ref().is_some_and(|c| c.cache == mark.cache) {
        return Ok(());
    }
    if request.without_cache {
        warnings.push(format!(
            "what only cache {} of volume '{}' on host {} has was given up, as --force-without-cache ordered",
            mark.cache, mark.volume, mark.host
        ));
        return Ok(());
    }
    refuse(format!(
        "image {} may lack what another cache holds: cache {} of volume '{}' on host {} was attached to it and has not been \
         stopped with everything flushed since. Do that first ('loligo flush {}', then a stop; start it if it does not run); \
         --force-without-cache uses the image as it is and loses what only that cache has",
        request.spec, mark.cache, mark.volume, mark.host, mark.volume
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_the_watch_and_lasts_for_its_questions() {
        let lease = |request, watch| lease_within(Duration::from_secs(request), watch);
        assert_eq!(lease(60, 30), Ok(Duration::from_secs(20)));
        assert_eq!(lease(60, 90), Ok(Duration::from_secs(60)));
        assert_eq!(lease(4, 30), Ok(Duration::from_secs(4)));
        assert!(lease(3, 30).unwrap_err().to_string().contains("--lease 4"));
    }

    #[test]
    fn the_lease_is_shorter_where_osds_forget_sooner() {
        let lease = |watch| lease_within(Duration::from_secs(20), watch);
        assert_eq!(lease(30), Ok(Duration::from_secs(20)));
        assert_eq!(lease(600), Ok(Duration::from_secs(20)));
        assert_eq!(lease(12), Ok(Duration::from_secs(8)));
        assert!(lease(8).is_ok_and(|l| l >= LEAST));
        assert!(lease(7).unwrap_err().to_string().contains("osd_client_watch_timeout"));
    }
}
