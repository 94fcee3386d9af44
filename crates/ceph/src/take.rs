//! Taking an image as a core: who has it, whether it is fit, what was left of an earlier attach, and the lock.

use crate::attached::{Attached, ImageIdentity, Notice, Parts};
use crate::cluster::{Cluster, Purpose};
use crate::image::{Image, LockHolder, WatcherInfo};
use crate::mark::{KEY, Mark};
use crate::snapc::SnapContext;
use crate::spec::ImageSpec;
use crate::{CephError, pools, status};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

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

/// The hold on the image of an earlier attach. The lock that still carries these names shows that nobody had the image since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Who held the lock.
    #[serde(flatten)]
    pub holder: LockHolder,
    /// The newest snapshot sequence then known.
    pub seq: u64,
    /// The address of a client that was about to take the lock over from that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<String>,
    /// The version of the image's header when the lock was let go after everything had been flushed.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "v")]
    pub left_at: Option<u64>,
    /// Others may have written to the image, and the cache has not been told yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", rename = "x")]
    pub suspect: bool,
}

impl Witness {
    /// Whether that hold is of this cache.
    fn knows(&self, holder: &LockHolder) -> bool {
        *holder == self.holder || self.knows_address(&holder.address)
    }

    fn knows_address(&self, address: &str) -> bool {
        address == self.holder.address || self.tried.as_deref() == Some(address)
    }
}

/// The cache that comes with an attach.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Its UUID; empty where it is yet to be made.
    pub cache: String,
    /// The volume's name.
    pub volume: String,
    /// It may hold data newer than the image's.
    pub dirty: bool,
    /// Its last hold on the image.
    pub witness: Option<Witness>,
    /// Use it although somebody else had the image.
    pub force: bool,
}

/// What is asked for.
pub struct Wish<'a> {
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
    /// Writes down in the cache who holds, or is about to hold, the image.
    pub remember: &'a mut dyn FnMut(&Witness) -> Result<(), String>,
}

impl std::fmt::Debug for Wish<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wish({}, {:?})", self.spec, self.cache)
    }
}

/// An image that was taken, and what its keeper is to hear.
#[derive(Debug)]
pub struct Taken {
    /// The image.
    pub image: Arc<Attached>,
    /// What happens to it.
    pub notices: Receiver<Notice>,
    /// Others may have written to the image since the cache was attached: what is clean in it is not the image's any more.
    pub changed: bool,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, CephError> {
    Err(CephError::Named(why.into()))
}

/// Takes it.
///
/// # Errors
/// Where Ceph cannot be reached, the image is not fit, or somebody has it; nothing was changed then, except that a holder that
/// was to be fenced may be.
pub fn take(wish: Wish<'_>) -> Result<Taken, CephError> {
    let spec = wish.spec;
    let mut warnings = Vec::new();
    let (identity, changed, left) = {
        // A cluster that does not answer is found out here, and not waited for.
        let cluster = Arc::new(Cluster::connect(spec, Purpose::Look)?);
        let look = Image::look(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
        let unusable = status::unusable(&spec.to_string(), look.features()?, look.is_old()?);
        if !unusable.is_empty() {
            return refuse(format!("image {spec} cannot be a core: {}", unusable.join("; ")));
        }
        let pool = cluster.pool(&spec.pool, &spec.namespace)?;
        let identity = ImageIdentity {
            fsid: cluster.fsid()?,
            pool: pool.id(),
            namespace: spec.namespace.clone(),
            id: look.id()?,
        };
        check_mark(&look, &identity, &wish)?;
        let holder = look.lock_holder()?;
        let changed = check_witness(&cluster, spec, &identity, holder.as_ref(), &wish, &mut warnings)?;
        (identity, changed, (holder, look.watchers()?))
    };
    let cluster = Arc::new(Cluster::connect(spec, Purpose::Own { quiesce_attempts: wish.quiesce_attempts })?);
    let image = Image::open(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
    let options = image.options()?;
    let overridden = status::overridden(&options);
    if !overridden.is_empty() {
        return refuse(format!("image {spec} cannot be a core: {}", overridden.join("; ")));
    }
    let (holder, watchers) = left;
    let witness = wish.cache.as_ref().and_then(|c| c.witness.clone());
    let me = cluster.instance();
    // Ended between here and the lock, this client must be known for one of this cache's at the next start.
    if let (Some(w), Some(address)) =
        (&witness, image.watchers()?.iter().find(|w| w.client == me).map(|w| &w.address))
    {
        (wish.remember)(&Witness { tried: Some(address.clone()), ..w.clone() }).map_err(CephError::Named)?;
    }
    fence(&cluster, spec, witness.as_ref(), holder.as_ref(), &watchers, wish.steal, &mut warnings)?;
    if let Some(holder) = holder {
        match image.break_lock(&holder) {
            // It was let go meanwhile.
            Ok(()) | Err(CephError::Call { errno: libc::ENOENT, .. }) => {}
            Err(e) => return Err(e),
        }
    }
    image.lock()?;
    // An open image knows of its lock what it was when it was opened.
    let Some(holder) = Image::look(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?.lock_holder()?
    else {
        return refuse(format!("the lock of image {spec} was taken away at once: who else uses it?"));
    };
    let (unit, count) = image.striping()?;
    let mut why_librbd = status::ungrouped(unit, count, &options);
    let data_id = image.data_pool();
    why_librbd.extend(pools::ungrouped(&cluster, data_id)?);
    if wish.destage == Destage::Librbd {
        why_librbd = vec!["as --destage says".to_owned()];
    }
    if wish.destage == Destage::Grouped && !why_librbd.is_empty() {
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
    let (send, notices) = std::sync::mpsc::channel();
    let header = cluster.pool(&spec.pool, &spec.namespace)?;
    let data = cluster.pool_number(data_id, &spec.namespace)?;
    let attached = Arc::new(Attached::new(Parts {
        name: spec.to_string(),
        identity,
        size,
        object_size: unit,
        holder,
        prefix: image.prefix()?,
        image,
        header,
        data,
        why_librbd: (!why_librbd.is_empty()).then(|| why_librbd.join("; ")),
        notices: send,
        inbox: loligo_block::Letterbox::new().map_err(|e| CephError::Named(e.to_string()))?,
    }));
    attached.watch()?;
    attached.refresh()?;
    attached.gate.new_epoch();
    attached.gate.open();
    (wish.remember)(&Witness { suspect: changed, ..attached.witness() }).map_err(CephError::Named)?;
    Ok(Taken { image: attached, notices, changed, warnings })
}

/// Another cache may hold what this image lacks.
fn check_mark(look: &Image, identity: &ImageIdentity, wish: &Wish<'_>) -> Result<(), CephError> {
    // A clone or copy inherits its origin's metadata; that says nothing of it.
    let Some(mark) = look.metadata(KEY)?.and_then(|m| Mark::decode(&m)).filter(|m| m.is_of(identity)) else {
        return Ok(());
    };
    let mine = wish.cache.as_ref().is_some_and(|c| c.cache == mark.cache);
    if mine || wish.without_cache {
        return Ok(());
    }
    refuse(format!(
        "image {} may lack what another cache holds: cache {} of volume '{}' on host {} was attached to it and has not been \
         flushed. Start that volume and flush it; --force-without-cache uses the image as it is and loses what only that cache \
         has",
        wish.spec, mark.cache, mark.volume, mark.host
    ))
}

/// Refuses dirty data where somebody else has had the image since the cache was attached. True: somebody may have written to it.
fn check_witness(
    cluster: &Arc<Cluster>,
    spec: &ImageSpec,
    identity: &ImageIdentity,
    holder: Option<&LockHolder>,
    wish: &Wish<'_>,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let Some(cache) = &wish.cache else { return Ok(false) };
    let Some(witness) = &cache.witness else { return Ok(false) };
    let header = cluster.pool(&spec.pool, &spec.namespace)?;
    let (SnapContext { seq, .. }, version) = SnapContext::read_with_version(&header, &identity.id)?;
    if !cache.dirty {
        return Ok(witness.suspect || witness.left_at != Some(version));
    }
    if holder.is_some_and(|h| witness.knows(h)) {
        return Ok(witness.suspect);
    }
    let now = holder.map_or("nobody".to_owned(), |h| format!("{} at {}", h.client, h.address));
    let snapshots =
        if seq > witness.seq { " Snapshots were taken meanwhile, without the dirty data." } else { "" };
    let said = format!(
        "somebody else had image {spec} since this cache was attached: its lock was {} at {}'s and is {now}'s now.{snapshots}",
        witness.holder.client, witness.holder.address
    );
    if cache.force {
        warnings.push(format!(
            "{said} Its dirty data goes over whatever was written meanwhile, as --force ordered"
        ));
        return Ok(true);
    }
    refuse(format!(
        "{said} The cache holds dirty data that may be older than what was written to the image since: --force writes it all the \
         same; or make a new cache (--create --force) and lose it"
    ))
}

/// Fences what is left of this cache's last attach, and whoever else has the image if that is ordered.
fn fence(
    cluster: &Cluster,
    spec: &ImageSpec,
    ours: Option<&Witness>,
    holder: Option<&LockHolder>,
    watchers: &[WatcherInfo],
    steal: bool,
    warnings: &mut Vec<String>,
) -> Result<(), CephError> {
    // This cache is locked by this process: whoever had it before is dead.
    let is_ours = |address: &str| ours.is_some_and(|o| o.knows_address(address));
    for WatcherInfo { address, client } in watchers.iter().filter(|w| !is_ours(&w.address)) {
        if !steal {
            return refuse(format!(
                "image {spec} is in use by client.{client} at {address}: end that client first (one that died lets go after \
                 30 s), or take the image away from it with --steal"
            ));
        }
        warnings.push(format!("client.{client} at {address} was fenced, as --steal ordered"));
    }
    // Whoever holds the lock and does not watch the image is dead, as librbd sees it too.
    let mut all: Vec<&str> = watchers.iter().map(|w| w.address.as_str()).collect();
    all.extend(holder.map(|h| h.address.as_str()).filter(|a| watchers.iter().all(|w| w.address != *a)));
    all.into_iter().try_for_each(|address| cluster.fence(address))
}
