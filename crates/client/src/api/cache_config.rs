//! The part of a definition that concerns a volume's cache.

use crate::api::definition::{Bytes, VolumeConfig, Word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use utoipa::ToSchema;

/// The part of a definition that concerns a volume's cache; nothing of it: the core is served bare.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CacheConfig {
    /// The cache: a file or block device, or pool:PATH#CORE.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cache: Option<PathBuf>,
    /// Bytes of it; default: the whole device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cache_size: Option<Bytes>,
    /// A device on the partner's array that holds the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub journal_mirror: Option<PathBuf>,
    /// Once that or the cache is gone: preferred or required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// Do not write a new cache file whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sparse: bool,
    /// A named set of tunables; values given beside it win.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// wt, wb, wa, wi, wo or pt; needed, unless a profile says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Cache line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub line_size: Option<Bytes>,
    /// As many as the volume has threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// Percent of the core that is not exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_reserve: Option<u8>,
    /// Bytes of a new core that are kept for a label.
    #[serde(alias = "home-offset", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub data_offset: Option<Bytes>,
    /// Tunables with values of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub params: BTreeMap<String, Word>,
}

impl CacheConfig {
    /// The part of `volume` that concerns its cache.
    pub fn of(volume: &VolumeConfig) -> CacheConfig {
        let v = volume.clone();
        CacheConfig {
            cache: v.cache,
            cache_size: v.cache_size,
            journal_mirror: v.journal_mirror,
            mirror: v.mirror,
            sparse: v.sparse,
            profile: v.profile,
            mode: v.mode,
            line_size: v.line_size,
            shards: v.shards,
            core_reserve: v.core_reserve,
            data_offset: v.data_offset,
            params: v.params,
        }
    }

    /// This one as `defined`, unless it says itself how it is to be.
    pub fn like(self, defined: CacheConfig) -> CacheConfig {
        if self.mode.is_some() || self.profile.is_some() {
            return self;
        }
        let mut params = defined.params;
        params.extend(self.params);
        CacheConfig {
            mode: defined.mode,
            profile: defined.profile,
            line_size: self.line_size.or(defined.line_size),
            params,
            ..self
        }
    }

    /// `volume` with this cache instead of its own.
    pub fn put(&self, volume: &VolumeConfig) -> VolumeConfig {
        let own = self.clone();
        VolumeConfig {
            cache: own.cache,
            cache_size: own.cache_size,
            journal_mirror: own.journal_mirror,
            mirror: own.mirror,
            sparse: own.sparse,
            profile: own.profile,
            mode: own.mode,
            line_size: own.line_size,
            shards: own.shards,
            core_reserve: own.core_reserve,
            data_offset: own.data_offset,
            params: own.params,
            ..volume.clone()
        }
    }
}
