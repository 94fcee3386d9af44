//! Images as users name them.

use crate::CephError;
use std::path::{Path, PathBuf};

/// `POOL[/NAMESPACE]/IMAGE[?conf=FILE&id=CLIENT&keyring=FILE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpec {
    /// The pool.
    pub pool: String,
    /// The namespace in it; empty: the default one.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// Configuration file; nothing: `$CEPH_CONF`, or Ceph's usual places.
    pub conf: Option<PathBuf>,
    /// The client's name without `client.`; nothing: admin.
    pub id: Option<String>,
    /// The client's keyring; nothing: as the configuration says.
    pub keyring: Option<PathBuf>,
}

impl ImageSpec {
    /// A client of a cluster that has no image, named as Ceph does: `client.admin`.
    pub(crate) fn of_none(conf: &Path, name: &str, keyring: Option<&Path>) -> ImageSpec {
        ImageSpec {
            pool: String::new(),
            namespace: String::new(),
            image: String::new(),
            conf: Some(conf.to_owned()),
            id: Some(name.trim_start_matches("client.").to_owned()),
            keyring: keyring.map(Path::to_owned),
        }
    }
}

impl std::str::FromStr for ImageSpec {
    type Err = CephError;

    fn from_str(text: &str) -> Result<ImageSpec, CephError> {
        let bad = |why: &str| {
            CephError::named(format!(
                "'{text}' does not name an image: {why} (POOL[/NAMESPACE]/IMAGE[?conf=FILE&id=CLIENT&keyring=FILE])"
            ))
        };
        let (name, query) = text.split_once('?').unwrap_or((text, ""));
        let parts: Vec<&str> = name.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] => (pool, namespace, image),
            _ => return Err(bad("it needs a pool and an image")),
        };
        if pool.is_empty() || image.is_empty() || (parts.len() == 3 && namespace.is_empty()) {
            return Err(bad("a part of the name is empty"));
        }
        if name.contains(['@', '\0']) {
            return Err(bad("snapshots are read-only and cannot be written to"));
        }
        let mut spec = ImageSpec {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            conf: None,
            id: None,
            keyring: None,
        };
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some((_, "")) => return Err(bad(&format!("'{pair}' says nothing"))),
                Some(("conf", file)) => spec.conf = Some(file.into()),
                Some(("id", id)) => spec.id = Some(id.trim_start_matches("client.").to_owned()),
                Some(("keyring", file)) => spec.keyring = Some(file.into()),
                _ => return Err(bad(&format!("'{pair}' is not known"))),
            }
        }
        Ok(spec)
    }
}

impl std::fmt::Display for ImageSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{}/{}", self.pool, self.image),
            namespace => write!(f, "{}/{namespace}/{}", self.pool, self.image),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_named_with_pool_namespace_and_how_to_reach_them() {
        let s: ImageSpec = "rbd/vol?id=client.loligo&conf=/etc/c.conf".parse().unwrap();
        assert_eq!((s.to_string().as_str(), s.id.as_deref()), ("rbd/vol", Some("loligo")));
        assert_eq!(s.conf.unwrap().to_str(), Some("/etc/c.conf"));
        assert_eq!("p/n/i".parse::<ImageSpec>().unwrap().to_string(), "p/n/i");
        for bad in ["vol", "p/", "/i", "p//i", "a/b/c/d", "p/i?size=3", "p/i?id=", "p/i@snap"] {
            let said = bad.parse::<ImageSpec>().unwrap_err().to_string();
            assert!(said.contains("does not name an image"), "{bad}: {said}");
        }
    }
}
