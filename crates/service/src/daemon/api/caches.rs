//! What can be asked of the daemon about the pools that its volumes are served from.

use super::{Shared, refused};
use crate::control::{Refused, blocking};
use crate::daemon::Daemon;
use crate::pool::{self, View};
use axum::Json;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Daemon>> {
    OpenApiRouter::new()
        .routes(routes!(pools))
        .routes(routes!(attach_core))
        .routes(routes!(detach_core))
        .routes(routes!(resize_core))
}

/// Which pools are asked for.
#[derive(Debug, Deserialize, IntoParams)]
struct Which {
    /// Only that on this device, by its whole path.
    #[param(value_type = Option<String>)]
    path: Option<PathBuf>,
}

/// Every pool that the daemon has open, which it has as long as a volume of it is served.
#[utoipa::path(get, path = "/v1/caches", params(Which), responses((status = 200, body = Vec<View>), (status = 409, description = "A device cannot be read")))]
async fn pools(State(daemon): Shared, Query(which): Query<Which>) -> Result<Json<Vec<View>>, Refused> {
    blocking(move || daemon.pools(which.path.as_deref())).await.map(Json).map_err(refused)
}

/// A core that is to have a share of a pool. Sizes are in bytes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number, 0 to 4095; left out: the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u16>,
    /// Its name.
    pub name: String,
    /// What nobody takes from it.
    pub min: u64,
    /// What it may have; left out: eight times the least, at most the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// What it gets of what several want.
    #[serde(default = "usual_weight")]
    pub weight: u32,
    /// Shards of its cache.
    #[serde(default = "one")]
    pub shards: u16,
}

fn usual_weight() -> u32 {
    100
}

fn one() -> u16 {
    1
}

/// A core that has a share.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CoreAttached {
    /// Its number.
    pub core: u16,
}

/// Ends what was begun for somebody who has gone.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gives a core a share of a pool whose other cores are served. Where they have grown into all of it, they give back what they have
/// beyond their promise first, which takes as long as their disks take; who hangs up gives it up.
#[utoipa::path(post, path = "/v1/caches/attach", request_body = AttachCore, responses((status = 200, body = CoreAttached), (status = 409, description = "It cannot be, or the pool is not open: the error says why")))]
async fn attach_core(
    State(daemon): Shared,
    Json(a): Json<AttachCore>,
) -> Result<Json<CoreAttached>, Refused> {
    let is_off = Arc::new(AtomicBool::new(false));
    let asker = Gone(is_off.clone());
    let wanted = pool::Attach {
        number: a.core,
        name: a.name,
        min: a.min,
        max: a.max,
        weight: a.weight,
        shards: a.shards,
    };
    let done =
        blocking(move || daemon.attach_core(&a.path, &wanted, &|| is_off.load(Ordering::Relaxed))).await;
    drop(asker);
    done.map(|core| Json(CoreAttached { core })).map_err(refused)
}

/// A core that is to have no share any more.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetachCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number or name.
    pub core: String,
    /// Also where its cache holds what the core does not have.
    #[serde(default)]
    pub force: bool,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CoreDetached {
    /// What its cache held, which is lost; in words, and only where it was ordered so.
    pub lost: Option<String>,
}

/// Takes the share of a core that is not served.
#[utoipa::path(post, path = "/v1/caches/detach", request_body = DetachCore, responses((status = 200, body = CoreDetached), (status = 409, description = "It cannot be, or the pool is not open: the error says why")))]
async fn detach_core(
    State(daemon): Shared,
    Json(d): Json<DetachCore>,
) -> Result<Json<CoreDetached>, Refused> {
    let done = blocking(move || daemon.detach_core(&d.path, &d.core, d.force)).await;
    done.map(|lost| Json(CoreDetached { lost })).map_err(refused)
}

/// What is to change of a core's share; what is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeCore {
    /// The pool's device, by its whole path.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Its number or name.
    pub core: String,
    /// Bytes that it has; only where it is not served. For one that is: `/v1/volumes/{name}/resize-cache`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes that nobody takes from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// What it gets of what several want.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Changes the share of a core. How much it has follows what it is promised in the seconds after.
#[utoipa::path(post, path = "/v1/caches/resize", request_body = ResizeCore, responses((status = 200, body = View), (status = 409, description = "It cannot be, or the pool is not open: the error says why")))]
async fn resize_core(State(daemon): Shared, Json(r): Json<ResizeCore>) -> Result<Json<View>, Refused> {
    let to = pool::Resize { size: r.size, min: r.min, weight: r.weight };
    blocking(move || daemon.resize_core(&r.path, &r.core, &to)).await.map(Json).map_err(refused)
}
