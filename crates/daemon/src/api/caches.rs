//! Requests to the daemon about the pools that its volumes are served from.

use super::{Shared, refused};
use crate::control::answer::{Refused, blocking};
use crate::daemon::Daemon;
use axum::Json;
use axum::extract::{Query, State};
use loligo_client::api::pool::{AttachCore, CoreAttached, CoreDetached, DetachCore, PoolView, ResizeCore};
use loligo_volume::pool;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Daemon>> {
    OpenApiRouter::new()
        .routes(routes!(pools))
        .routes(routes!(attach_core))
        .routes(routes!(detach_core))
        .routes(routes!(resize_core))
}

/// The pools that are asked for.
#[derive(Debug, Deserialize, IntoParams)]
struct Which {
    /// Only that on this device, by its whole path.
    #[param(value_type = Option<String>)]
    path: Option<PathBuf>,
}

/// Every pool that the daemon has open. It has a pool open as long as a volume of it is served.
#[utoipa::path(get, path = "/v1/caches", params(Which), responses((status = 200, body = Vec<PoolView>), (status = 409, description = "A device cannot be read")))]
async fn pools(State(daemon): Shared, Query(which): Query<Which>) -> Result<Json<Vec<PoolView>>, Refused> {
    blocking(move || daemon.pools(which.path.as_deref())).await.map(Json).map_err(refused)
}

/// Ends what was begun for somebody who has gone.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gives a core a share of a pool whose other cores are served. They may have grown into all of it. They then
/// give back what they have beyond their promise first, which takes as long as their disks take. A client
/// that hangs up gives it up.
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

/// Takes the share of a core that is not served.
#[utoipa::path(post, path = "/v1/caches/detach", request_body = DetachCore, responses((status = 200, body = CoreDetached), (status = 409, description = "It cannot be, or the pool is not open: the error says why")))]
async fn detach_core(
    State(daemon): Shared,
    Json(d): Json<DetachCore>,
) -> Result<Json<CoreDetached>, Refused> {
    let done = blocking(move || daemon.detach_core(&d.path, &d.core, d.force)).await;
    done.map(|lost| Json(CoreDetached { lost })).map_err(refused)
}

/// Changes the share of a core. Its size follows its promise in the seconds after.
#[utoipa::path(post, path = "/v1/caches/resize", request_body = ResizeCore, responses((status = 200, body = PoolView), (status = 409, description = "It cannot be, or the pool is not open: the error says why")))]
async fn resize_core(State(daemon): Shared, Json(r): Json<ResizeCore>) -> Result<Json<PoolView>, Refused> {
    let to = pool::Resize { size: r.size, min: r.min, weight: r.weight };
    blocking(move || daemon.resize_core(&r.path, &r.core, &to)).await.map(Json).map_err(refused)
}
