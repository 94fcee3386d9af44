//! The image's metadata names the cache that holds its dirty data. Stock clients do not look at it: it is for `loligo` on
//! other hosts, and for people.

use crate::identity::ImageIdentity;
use serde::{Deserialize, Serialize};

/// The metadata's key.
pub const KEY: &str = "loligo.cache";
/// The version that is written and understood.
const VERSION: u32 = 1;

/// The mark. It stands from before the first acknowledged write until everything is in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachMarker {
    /// Of this structure.
    pub version: u32,
    /// The cluster.
    pub fsid: String,
    /// The image's id: clones and copies inherit metadata, and this tells them apart.
    pub image: String,
    /// The cache's UUID.
    pub cache: String,
    /// The number of times that the cache has been attached.
    pub generation: u64,
    /// The host that has it.
    pub host: String,
    /// The volume's name there.
    pub volume: String,
    /// The cache failed, and the image was changed without it and lacks nothing: the cache's content does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
}

impl AttachMarker {
    /// Of a cache; the image is filled in when it is known.
    pub fn new(cache: String, generation: u64, host: String, volume: String) -> AttachMarker {
        let (fsid, image) = (String::new(), String::new());
        AttachMarker { version: VERSION, fsid, image, cache, generation, host, volume, void: false }
    }

    pub(crate) fn of(mut self, identity: &ImageIdentity) -> AttachMarker {
        self.fsid.clone_from(&identity.fsid);
        self.image.clone_from(&identity.id);
        self
    }

    /// True if it speaks of this image.
    pub fn is_of(&self, identity: &ImageIdentity) -> bool {
        (&self.fsid, &self.image) == (&identity.fsid, &identity.id)
    }

    pub(crate) fn encode(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings")
    }

    /// Reads a value; nothing where it is none of ours.
    pub fn decode(value: &str) -> Option<AttachMarker> {
        serde_json::from_str(value).ok().filter(|m: &AttachMarker| m.version == VERSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_marker_is_told_apart_and_garbage_is_none() {
        let identity = |id: &str| ImageIdentity {
            fsid: "f".to_owned(),
            pool: 1,
            namespace: String::new(),
            id: id.to_owned(),
        };
        let mark = AttachMarker::new("c".into(), 3, "h".into(), "v".into()).of(&identity("abc"));
        assert_eq!(AttachMarker::decode(&mark.encode()), Some(mark.clone()));
        assert!(mark.is_of(&identity("abc")) && !mark.is_of(&identity("abd")));
        for bad in ["", "{}", "null", "{\"version\":2}"] {
            assert_eq!(AttachMarker::decode(bad), None);
        }
    }
}
