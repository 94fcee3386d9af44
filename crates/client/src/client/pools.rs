//! Requests of commands to the daemon about pools.

use super::DaemonClient;
use crate::api::pool::{AttachCore, CoreAttached, CoreDetached, DetachCore, PoolView, ResizeCore};
use anyhow::Result;
use hyper::Method;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// Cores that make room for another write to their disks, which takes as long as it takes: who asked ends it by Ctrl-C.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(30 * 24 * 3600);

/// `path` as a value in a query.
fn quoted(path: &str) -> String {
    let as_it_is = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/".contains(&b);
    path.bytes().map(|b| if as_it_is(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl DaemonClient {
    /// The pool at `path`, a whole one, where the daemon has it open.
    ///
    /// # Errors
    /// If none runs, or the pool cannot be read.
    pub fn pool(&self, path: &Path) -> Result<Option<PoolView>> {
        let Some(path) = path.to_str() else { return Ok(None) };
        let found: Vec<PoolView> =
            self.0.call(Method::GET, &format!("/v1/caches?path={}", quoted(path)), None)?;
        Ok(found.into_iter().next())
    }

    /// Gives a core a share of a pool that the daemon has open; its number.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn attach_core(self, a: &AttachCore) -> Result<u16> {
        let patient = self.within(AS_LONG_AS_IT_TAKES);
        let done: CoreAttached = patient.0.call(Method::POST, "/v1/caches/attach", Some(json!(a)))?;
        Ok(done.core)
    }

    /// Takes the share of a core away; what was lost by that, if it was ordered.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn detach_core(&self, d: &DetachCore) -> Result<Option<String>> {
        let done: CoreDetached = self.0.call(Method::POST, "/v1/caches/detach", Some(json!(d)))?;
        Ok(done.lost)
    }

    /// Changes the share of a core; the pool as it is then.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn resize_core(&self, r: &ResizeCore) -> Result<PoolView> {
        self.0.call(Method::POST, "/v1/caches/resize", Some(json!(r)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_at_the_other_end_of_a_query() {
        assert_eq!(quoted("/dev/nvme0n1p3"), "/dev/nvme0n1p3");
        assert_eq!(quoted("/a b/é+&=?#%"), "/a%20b/%C3%A9%2B%26%3D%3F%23%25");
    }
}
