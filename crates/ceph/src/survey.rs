//! Images of a pool as an inspection sees them: nobody is disturbed, and nothing is written.

use crate::CephError;
use crate::cluster::{Cluster, Pool};
use crate::error::check;
use crate::ffi::{ListedImage, MirrorInfo};
use crate::image::{Image, Source};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;

/// Names of features by their bits, as `rbd info` has them.
const FEATURES: [(u64, &str); 9] = [
    (1 << 0, "layering"),
    (1 << 1, "striping"),
    (1 << 2, "exclusive-lock"),
    (1 << 3, "object-map"),
    (1 << 4, "fast-diff"),
    (1 << 5, "deep-flatten"),
    (1 << 6, "journaling"),
    (1 << 7, "data-pool"),
    (1 << 8, "operations"),
];
/// `RBD_MIRROR_IMAGE_ENABLED`.
const MIRRORED: i32 = 1;

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurveyedImage {
    /// Its name.
    pub name: String,
    /// Names of its features.
    pub features: Vec<String>,
    /// Bytes of its objects.
    pub object: u64,
    /// Bytes in turn, and objects that take turns.
    pub stripe: (u64, u64),
    /// Options that the image or its pool overrides, with the source of each.
    pub overrides: Vec<(String, String, Source)>,
    /// The persistent cache of librbd is on for whoever opens it here.
    pub persistent_cache: bool,
    /// It is a clone.
    pub is_clone: bool,
    /// It is mirrored to another cluster.
    pub is_mirrored: bool,
}

/// Looks at the first `limit` images of a pool, outside namespaces; the number of all is beside them. One that is removed meanwhile is left
/// out.
///
/// # Errors
/// If the client may not list them.
pub(crate) fn images(
    cluster: &Arc<Cluster>,
    pool: &str,
    limit: usize,
) -> Result<(Vec<SurveyedImage>, usize), CephError> {
    let names = names(&cluster.pool(pool, "")?)?;
    let look = |name: &String| look(cluster.pool(pool, "").ok()?, name).ok();
    let looked = names.iter().take(limit).filter_map(look);
    Ok((looked.collect(), names.len()))
}

fn names(pool: &Pool) -> Result<Vec<String>, CephError> {
    let lib = pool.cluster.lib;
    let none = ListedImage { id: null_mut(), name: null_mut() };
    let mut list = vec![none; 64];
    loop {
        let mut count = list.len();
        // SAFETY: the pool's handle is live; as many are written as `count` says there is room for.
        let code = unsafe { (lib.rbd_list2)(pool.io, list.as_mut_ptr(), &raw mut count) };
        if code == -libc::ERANGE {
            list.resize(count.max(list.len() * 2), none);
            continue;
        }
        check(|| "listing the images of a pool".to_owned(), code)?;
        // SAFETY: librbd wrote C strings, which live until the cleanup below.
        let name = |image: &ListedImage| unsafe { CStr::from_ptr(image.name) }.to_string_lossy().into_owned();
        let mut names: Vec<String> = list[..count].iter().map(name).collect();
        // SAFETY: what librbd wrote is given back, once.
        unsafe { (lib.rbd_image_spec_list_cleanup)(list.as_mut_ptr(), count) };
        names.sort();
        return Ok(names);
    }
}

fn look(pool: Pool, name: &str) -> Result<SurveyedImage, CephError> {
    let image = Image::look(pool, name)?;
    let (features, layout, options) = (image.features()?, image.layout()?, image.options()?);
    let cache = options.iter().find(|(name, ..)| name == "rbd_persistent_cache_mode");
    Ok(SurveyedImage {
        name: name.to_owned(),
        features: names_of(features),
        object: layout.object.bytes(),
        stripe: (layout.unit.bytes(), layout.count),
        persistent_cache: cache.is_some_and(|(_, value, _)| value != "disabled"),
        is_clone: is_clone(&image),
        is_mirrored: is_mirrored(&image),
        overrides: options.into_iter().filter(|(.., source)| *source != Source::Config).collect(),
    })
}

/// The value of an option of librbd that an image is opened with; nothing: it is none of librbd's.
///
/// # Errors
/// If the image cannot be opened.
pub(crate) fn option(pool: Pool, image: &str, option: &str) -> Result<Option<String>, CephError> {
    let options = Image::look(pool, image)?.options()?;
    Ok(options.into_iter().find(|(name, ..)| name == option).map(|(_, value, _)| value))
}

fn names_of(features: u64) -> Vec<String> {
    FEATURES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

fn is_clone(image: &Image) -> bool {
    // SAFETY: the handle is live; librbd writes no name where there is no room for one.
    let code =
        unsafe { (image.lib.rbd_get_parent_info)(image.handle, null_mut(), 0, null_mut(), 0, null_mut(), 0) };
    code == 0
}

fn is_mirrored(image: &Image) -> bool {
    let mut info = MirrorInfo { global_id: null_mut(), state: 0, primary: false };
    // SAFETY: the handle is live, and librbd writes one structure of the size that it is told.
    let code = unsafe {
        (image.lib.rbd_mirror_image_get_info)(image.handle, &raw mut info, size_of::<MirrorInfo>())
    };
    if code != 0 {
        return false;
    }
    let state = info.state;
    // SAFETY: what librbd wrote is given back, once.
    unsafe { (image.lib.rbd_mirror_image_get_info_cleanup)(&raw mut info) };
    state == MIRRORED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_names_of_rbd() {
        assert_eq!(names_of(61), ["layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten"]);
        assert_eq!(names_of(0), [""; 0]);
    }
}
