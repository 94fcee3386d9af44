//! The reasons against an image as a core, and the ways of destaging that it allows.

use crate::CephError;
use crate::attach_marker::{AttachMarker, KEY};
use crate::cluster::{Cluster, Purpose};
use crate::image::{Image, LockHolder, Source, WatcherInfo, feature, unmap};
use crate::layout::Layout;
use crate::mirror;
use crate::release::Release;
use crate::spec::ImageSpec;
use loligo_block::keyed;
use loligo_block::keys::{FORCE_WITHOUT_CACHE, STEAL};
use serde::Serialize;
use std::sync::Arc;

/// Options of librbd that must be as stated for a write to mean what a cache takes it for, with the reason. An image or pool
/// may override what the client sets, so they are looked up after opening.
const BINDING: [(&str, &str, &str); 6] = [
    ("rbd_cache", "false", "librbd would answer from memory before the OSDs have the write"),
    ("rbd_persistent_cache_mode", "disabled", "librbd's own persistent cache would hold writes back"),
    ("rbd_quiesce_notification_attempts", "", "a snapshot must wait until dirty data is in the image"),
    ("rbd_default_snapshot_quiesce_mode", "required", "a snapshot must not be taken without dirty data"),
    ("rbd_blocklist_on_break_lock", "true", "whoever takes the image must have its owner refused"),
    ("rbd_parent_cache_enabled", "false", "reads of a clone's parent would come from another daemon's cache"),
];

/// An image as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImageStatus {
    /// Pool, namespace and name.
    pub image: String,
    /// The cluster's id.
    pub fsid: String,
    /// The image's id, which a rename does not change.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// Feature bits as librbd numbers them.
    pub features: u64,
    /// The holder of the exclusive lock.
    pub lock: Option<LockHolder>,
    /// The clients that have it open for writing.
    pub watchers: Vec<WatcherInfo>,
    /// The cache that may hold what it lacks.
    pub cache: Option<AttachMarker>,
    /// The reason why it cannot be a core at all; empty: it can.
    pub refused: Vec<String>,
    /// The reason why dirty data goes out through librbd, block by block; empty: by object, grouped.
    pub ungrouped: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Looks at an image without disturbing anybody.
///
/// # Errors
/// If the libraries, the cluster, the pool or the image cannot be reached.
pub fn status(spec: &ImageSpec) -> Result<ImageStatus, CephError> {
    let cluster = Arc::new(Cluster::connect(spec, Purpose::Look)?);
    let fsid = cluster.fsid()?;
    let image = Image::look(cluster.pool(&spec.pool, &spec.namespace)?, &spec.image)?;
    let features = image.features()?;
    let lock = image.lock_holder()?;
    // An image opened to be read does not watch, so that all of these are others.
    let mut watchers = image.watchers()?;
    let old = image.is_old()?;
    let id = if old { String::new() } else { image.id()? };
    mirror::find(&cluster.pool(&spec.pool, &spec.namespace)?, &id, &mut watchers);
    // Clones and copies inherit metadata: a mark that names another image says nothing of this one.
    let cache = image
        .metadata(KEY)?
        .and_then(|m| AttachMarker::decode(&m))
        .filter(|m| m.fsid == fsid && m.image == id);
    let mut refused = unusable(&spec.to_string(), features, old);
    refused.extend(taken(lock.as_ref(), &watchers, cache.as_ref()));
    let options = image.options()?;
    refused.extend(overridden(spec, &options));
    let layout = image.layout()?;
    let flags = image.flags()?;
    Ok(ImageStatus {
        image: spec.to_string(),
        fsid,
        id,
        size: image.size()?,
        features,
        lock,
        watchers,
        cache,
        refused,
        ungrouped: ungrouped(layout, &options),
        warnings: warnings(flags),
    })
}

/// The holders that stand in the way: a client that has it, and a cache that holds what it may lack.
fn taken(lock: Option<&LockHolder>, watchers: &[WatcherInfo], cache: Option<&AttachMarker>) -> Vec<String> {
    let mut why = Vec::new();
    // Whoever holds the lock of an image with a mark is that cache, dead or alive, unless others came between.
    let by = cache.map_or(String::new(), |m| format!(" (volume '{}' on {} has marked it)", m.volume, m.host));
    let end = |kernel| match kernel {
        true => unmap().to_string(),
        false => "end that client first (one that died is forgotten after 30 s)".to_owned(),
    };
    if let Some(h) = lock.filter(|h| !h.mirrors(watchers)) {
        let state = match (h.is_among(watchers), cache) {
            (true, _) => end(h.is_kernel()),
            (false, Some(_)) => "it was stopped or died: start it again with its cache".to_owned(),
            (false, None) => {
                keyed!("it does not answer for it: see that it is gone, then take the image with {STEAL}")
                    .to_string()
            }
        };
        why.push(format!("{} at {} holds its exclusive lock{by}: {state}", h.client, h.address));
    } else if let Some(w) = watchers.iter().find(|w| !w.mirrors) {
        why.push(format!("client.{} at {} has it open{by}: {}", w.client, w.address, end(w.kernel)));
    }
    if let Some(m) = cache {
        why.push(keyed!(
            "cache {} of volume '{}' on {} may hold what it lacks: only with that cache, until it is stopped with everything \
             flushed ('loligo flush {}', then a stop); {FORCE_WITHOUT_CACHE} gives up what it holds",
            m.cache, m.volume, m.host, m.volume
        ).to_string());
    }
    why
}

/// Reasons that rule an image out.
pub(crate) fn unusable(name: &str, features: u64, old: bool) -> Vec<String> {
    if old {
        return vec![format!(
            "it is of format 1, which has no lock: 'rbd deep cp {name} NEW' makes one that has"
        )];
    }
    let has = |bit| features & bit != 0;
    let cases = [
        (
            !has(feature::EXCLUSIVE_LOCK),
            "it has no exclusive lock: 'rbd feature enable IMAGE exclusive-lock'",
        ),
        (
            has(feature::JOURNALING),
            "journaling would write everything twice: 'rbd feature disable IMAGE journaling'",
        ),
        (has(feature::MIGRATING), "it is being migrated: finish with 'rbd migration commit'"),
        (
            has(feature::NON_PRIMARY),
            "it mirrors another cluster's image: promote it first, or use the primary",
        ),
        (
            has(feature::DIRTY_CACHE),
            "a client's persistent cache holds newer data: let that client write it back",
        ),
    ];
    cases.into_iter().filter(|(is, _)| *is).map(|(_, why)| why.replace("IMAGE", name)).collect()
}

/// Options that the image or its pool set against what a core needs.
pub(crate) fn overridden(spec: &ImageSpec, options: &[(String, String, Source)]) -> Vec<String> {
    let set = |name: &str| options.iter().find(|(n, ..)| n == name);
    BINDING
        .iter()
        .filter_map(|(name, wanted, why)| {
            let (_, value, source) = set(name)?;
            let (place, which) = match source {
                // A number of our own, or what other clients go by too: for those it does not help what this one sets.
                Source::Config if wanted.is_empty() || value == wanted => return None,
                Source::Config => {
                    return Some(format!(
                        "the cluster's configuration, or a file, sets {name} to {value} for this client ({why}): 'ceph config rm client \
                         {name}'"
                    ));
                }
                Source::Pool => ("pool", spec.pool.clone()),
                Source::Image => ("image", spec.to_string()),
            };
            (value != wanted).then(|| {
                format!(
                    "its {place} sets {name} to {value} ({why}): 'rbd config {place} remove {which} {name}'"
                )
            })
        })
        .collect()
}

/// Reasons against one atomic operation for each object.
pub(crate) fn ungrouped(layout: Layout, options: &[(String, String, Source)]) -> Vec<String> {
    let mut why = Vec::from_iter(layout.ungrouped());
    let limited =
        |o: &&(String, String, Source)| o.0.starts_with("rbd_qos_") && o.0.ends_with("_limit") && o.1 != "0";
    if let Some((name, value, _)) = options.iter().find(limited) {
        why.push(format!("{name} is {value}, which only librbd heeds"));
    }
    why
}

pub(crate) fn warnings(flags: u64) -> Vec<String> {
    let cases = [(1, "its object map is invalid"), (2, "its fast-diff is invalid")];
    (cases.into_iter().filter(|(bit, _)| flags & bit != 0))
        .map(|(_, what)| format!("{what}: 'rbd object-map rebuild' mends it"))
        .chain(Release::notice())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ObjectSize, StripeUnit};

    #[test]
    fn each_feature_that_rules_an_image_out_is_named_with_its_mend() {
        assert!(
            unusable("p/i", feature::EXCLUSIVE_LOCK | feature::OBJECT_MAP | feature::FAST_DIFF, false)
                .is_empty()
        );
        let lock = feature::EXCLUSIVE_LOCK;
        for (features, says) in [
            (0, "exclusive-lock"),
            (lock | feature::JOURNALING, "journaling"),
            (lock | feature::MIGRATING, "migration commit"),
            (lock | feature::NON_PRIMARY, "promote"),
            (lock | feature::DIRTY_CACHE, "persistent cache"),
        ] {
            let why = unusable("p/i", features, false);
            assert!(why.len() == 1 && why[0].contains(says), "{why:?}");
        }
        assert!(unusable("p/i", 0, true)[0].contains("format 1"));
    }

    #[test]
    fn a_marked_image_is_not_free_though_nobody_locks_it() {
        assert!(taken(None, &[], None).is_empty());
        let mark = AttachMarker::new("c".into(), 3, "h".into(), "vm1".into());
        let why = taken(None, &[], Some(&mark));
        assert!(
            why.len() == 1 && why[0].contains("'vm1' on h") && why[0].contains("--force-without-cache"),
            "{why:?}"
        );
    }

    #[test]
    fn a_daemon_that_mirrors_an_image_does_not_stand_in_the_way() {
        let watcher = |client, mirrors| WatcherInfo {
            address: format!("10.0.0.1:0/{client}"),
            client,
            kernel: false,
            mirrors,
        };
        let lock = |client| LockHolder {
            client: format!("client.{client}"),
            cookie: "auto 3".to_owned(),
            address: format!("10.0.0.1:0/{client}"),
        };
        let both = [watcher(7, true), watcher(8, false)];
        assert!(taken(None, &both[..1], None).is_empty());
        assert!(taken(Some(&lock(7)), &both[..1], None).is_empty(), "it lets the lock go");
        assert!(taken(Some(&lock(7)), &both, None)[0].contains("client.8"));
        assert!(taken(Some(&lock(8)), &both, None)[0].contains("client.8"));
        // One that has the lock and is gone is dead.
        assert!(taken(Some(&lock(9)), &both[..1], None)[0].contains("client.9"));
    }

    #[test]
    fn overridden_options_are_refused_and_limits_leave_librbd_alone() {
        let option = |name: &str, value: &str, source| (name.to_owned(), value.to_owned(), source);
        let spec: ImageSpec = "rbd:volumes/one".parse().expect("an image");
        let mode = "rbd_default_snapshot_quiesce_mode";
        assert!(overridden(&spec, &[option(mode, "required", Source::Config)]).is_empty());
        assert!(
            overridden(&spec, &[option("rbd_quiesce_notification_attempts", "4", Source::Config)]).is_empty()
        );
        let why = overridden(&spec, &[option(mode, "skip", Source::Config)]);
        assert!(why[0].contains(&format!("'ceph config rm client {mode}'")), "{why:?}");
        assert!(overridden(&spec, &[option("rbd_cache", "false", Source::Image)]).is_empty());
        let why = overridden(&spec, &[option("rbd_cache", "true", Source::Pool)]);
        assert!(why[0].contains("its pool sets rbd_cache to true"), "{why:?}");
        let none = [option("rbd_qos_iops_limit", "0", Source::Config)];
        let whole = Layout { object: ObjectSize::new(4 << 20), unit: StripeUnit::new(4 << 20), count: 1 };
        assert!(ungrouped(whole, &none).is_empty());
        assert!(ungrouped(whole, &[option("rbd_qos_iops_limit", "500", Source::Image)])[0].contains("500"));
        let stripes = Layout { unit: StripeUnit::new(65536), count: 16, ..whole };
        assert!(ungrouped(stripes, &none)[0].contains("striped over 16"));
    }
}
