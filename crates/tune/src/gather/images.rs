//! Facts of images, of a bounded number: each one is opened, and read.

use super::asked::Asked;
use crate::facts::{Image, Pool, Unseen};
use loligo_ceph::SurveyedImage;
use loligo_ceph::image::Source;

/// Images of all pools that are looked at.
const IMAGES: usize = 64;

pub(super) fn look(asked: &mut Asked<'_>, pools: &[Pool]) -> Vec<Image> {
    let mut all = Vec::new();
    for pool in pools.iter().filter(|pool| pool.applications.iter().any(|it| it == "rbd")) {
        let left = IMAGES - all.len();
        match asked.client.images(&pool.name, left) {
            Ok((found, count)) => {
                if count > left {
                    let why = format!("{count} are there, and {IMAGES} of all pools are looked at");
                    asked.unseen.push(Unseen { what: format!("images of the pool {}", pool.name), why });
                }
                all.extend(found.into_iter().map(|it| image(&pool.name, it)));
            }
            Err(why) => {
                let what = format!("images of the pool {}", pool.name);
                asked.unseen.push(Unseen { what, why: why.to_string() });
            }
        }
    }
    all
}

fn image(pool: &str, found: SurveyedImage) -> Image {
    let is_limit = |name: &str, value: &str| {
        let is_on = value.parse::<u64>().is_ok_and(|it| it > 0);
        is_on && name.starts_with("rbd_qos_") && name.ends_with("_limit")
    };
    Image {
        pool: pool.to_owned(),
        name: found.name,
        features: found.features,
        order: i64::from(found.object.max(1).ilog2()),
        stripe_unit: found.stripe.0 as i64,
        stripe_count: found.stripe.1 as i64,
        qos: found.overrides.iter().any(|(name, value, _)| is_limit(name, value)),
        overrides: found
            .overrides
            .iter()
            .map(|(name, value, source)| {
                let source = if *source == Source::Pool { "pool" } else { "image" };
                format!("{name}={value} ({source})")
            })
            .collect(),
        persistent_cache: found.persistent_cache,
        parent: found.is_clone,
        mirrored: found.is_mirrored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_above_zero_is_qos_and_overrides_name_their_source() {
        let with = |value: &str| {
            let option = ("rbd_qos_iops_limit".to_owned(), value.to_owned(), Source::Image);
            let found = SurveyedImage {
                name: "a".into(),
                features: vec!["layering".into()],
                object: 4 << 20,
                stripe: (4 << 20, 1),
                overrides: vec![option],
                persistent_cache: false,
                is_clone: true,
                is_mirrored: false,
            };
            image("rbd", found)
        };
        let seen = with("100");
        assert_eq!((seen.qos, seen.order, seen.parent), (true, 22, true));
        assert_eq!(seen.overrides, ["rbd_qos_iops_limit=100 (image)"]);
        assert!(!with("0").qos);
    }
}
