//! The identity of an image.

/// The identity of an image, however it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIdentity {
    /// The cluster.
    pub fsid: String,
    /// The pool's number.
    pub pool: i64,
    /// The pool's namespace.
    pub namespace: String,
    /// The image's id.
    pub id: String,
}

impl std::fmt::Display for ImageIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rbd:{}/{}/{}/{}", self.fsid, self.pool, self.namespace, self.id)
    }
}
