//! Requests to the daemon.

pub(crate) mod caches;
mod pair;

use crate::control::answer::{self, Refused, blocking, document, unknown};
use crate::control::volume;
use crate::daemon::Daemon;
use crate::supervisor::Supervisor;
use crate::volume_set::Run;
use crate::volumes::NoVolume;
use axum::extract::{Path, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use loligo_client::api::daemon::{About, Attach, Create, Forgotten, Reloaded, Resize, ResizeCache, Stop};
use loligo_client::api::definition::Leave;
use loligo_client::api::listed::Listed;
use loligo_client::api::status::Status;
use loligo_client::api::volume::ChangeState;
use loligo_volume::options::ServeOptions;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) type Shared = State<Arc<Daemon>>;

/// The time that an answer waits by default for a volume to come or go, before it tells the progress.
const SETTLE: f64 = 2.0;
/// The longest that it does.
const LONGEST: f64 = 20.0;

/// The time that the answer waits.
#[derive(Debug, Deserialize, IntoParams)]
struct Waits {
    /// Seconds that the answer waits for the volume to come or go, 0 to 20; left out: 2. It comes or goes in any case.
    wait: Option<f64>,
}

/// The API's summary in its description.
const ABOUT: &str = "The control API of loligod, HTTP on /run/loligo/loligod.sock";

fn routes() -> OpenApiRouter<Arc<Daemon>> {
    OpenApiRouter::new()
        .routes(routes!(about))
        .routes(routes!(reload))
        .routes(routes!(list, create))
        .routes(routes!(show, delete))
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(end))
        .routes(routes!(restart))
        .routes(routes!(forget))
        .routes(routes!(attach))
        .routes(routes!(detach))
        .routes(routes!(resize))
        .routes(routes!(resize_cache))
        .routes(routes!(change, give_up))
        .merge(caches::routes())
        .merge(pair::routes())
}

/// The API of the daemon, below `/v1`; that of each volume is below `/v1/volumes/NAME`.
pub(crate) fn router(daemon: Arc<Daemon>) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .route("/v1/openapi.json", axum::routing::get(|| async { document(openapi(), ABOUT) }))
        .route("/v1/volumes/{name}/{what}", axum::routing::any(of_volume))
        .fallback(unknown)
        .with_state(daemon)
}

/// Its description, with what can be asked of each volume.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut api = routes().into_openapi();
    let of_volume = volume::openapi();
    for (path, item) in of_volume.paths.paths {
        let path = path.replacen("/v1/", "/v1/volumes/{name}/", 1);
        api.paths.paths.insert(path, item);
    }
    if let (Some(all), Some(more)) = (&mut api.components, of_volume.components) {
        all.schemas.extend(more.schemas);
    }
    api
}

pub(super) fn refused(why: anyhow::Error) -> Refused {
    match why.is::<NoVolume>() {
        true => Refused(StatusCode::NOT_FOUND, format!("{why:#}")),
        false => answer::refused(why),
    }
}

/// Describes the daemon.
#[utoipa::path(get, path = "/v1/daemon", responses((status = 200, body = About)))]
async fn about(State(daemon): Shared) -> Json<About> {
    Json(About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        config: daemon.config_path.display().to_string(),
        uptime_s: daemon.started.elapsed().as_secs_f64(),
        state_dir: daemon.state_dir.clone(),
    })
}

/// Reads the configuration again.
#[utoipa::path(post, path = "/v1/reload", responses((status = 200, body = Reloaded), (status = 409, description = "The file cannot be read as a whole: nothing is changed")))]
async fn reload(State(daemon): Shared) -> Result<Json<Reloaded>, Refused> {
    blocking(move || daemon.reload()).await.map(Json).map_err(refused)
}

/// Every volume.
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = Vec<Listed>)))]
async fn list(State(daemon): Shared) -> Json<Vec<Listed>> {
    Json(blocking(move || daemon.list()).await)
}

/// Makes a volume and starts it. It is remembered over restarts.
#[utoipa::path(post, path = "/v1/volumes", params(Waits), request_body = Create, responses((status = 200, body = Status), (status = 409, description = "It cannot be: the error says why")))]
async fn create(
    State(daemon): Shared,
    Query(waits): Query<Waits>,
    Json(wanted): Json<Create>,
) -> Result<Json<Status>, Refused> {
    // What no change of this host could make right is the request's own fault.
    if let Err(why) = ServeOptions::of(&wanted.definition, &wanted.name, Leave::default()) {
        return Err(Refused(StatusCode::BAD_REQUEST, format!("{why:#}")));
    }
    let made = blocking(move || daemon.create(&wanted.name, wanted.definition, wanted.allow)).await;
    settled(made, &waits).await
}

/// Waits a while for a volume to come or go.
async fn settled(
    supervisor: anyhow::Result<Arc<Supervisor>>,
    waits: &Waits,
) -> Result<Json<Status>, Refused> {
    let supervisor = supervisor.map_err(refused)?;
    let asked = waits.wait.filter(|s| s.is_finite()).unwrap_or(SETTLE);
    let limit = Duration::from_secs_f64(asked.clamp(0.0, LONGEST));
    Ok(Json(blocking(move || supervisor.settle(limit)).await))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{name}", responses((status = 200, body = Listed), (status = 404, description = "There is none")))]
async fn show(State(daemon): Shared, Path(name): Path<String>) -> Result<Json<Listed>, Refused> {
    let found = blocking(move || daemon.show(&name)).await;
    found.map(Json).map_err(refused)
}

/// The options of a delete.
#[derive(Debug, Deserialize, IntoParams)]
struct Delete {
    /// Also if its cache holds data that its core does not have.
    #[serde(default)]
    force: bool,
}

/// Forgets a stopped volume that was made by command. Cache and core stay as they are.
#[utoipa::path(delete, path = "/v1/volumes/{name}", params(Delete), responses((status = 200, body = Value), (status = 409, description = "It cannot be: the error says why")))]
async fn delete(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(how): Query<Delete>,
) -> Result<Json<Value>, Refused> {
    let done = blocking(move || daemon.delete(&name, how.force)).await;
    done.map(|()| Json(json!({}))).map_err(refused)
}

/// Forgets the cache that a stopped volume was served through. The name may be that of a volume that no
/// longer exists. The cache stays as it is.
#[utoipa::path(post, path = "/v1/volumes/{name}/forget", params(Delete), responses((status = 200, body = Forgotten), (status = 409, description = "It cannot be: the error says why")))]
async fn forget(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(how): Query<Delete>,
) -> Result<Json<Forgotten>, Refused> {
    blocking(move || daemon.forget(&name, how.force)).await.map(Json).map_err(refused)
}

/// Starts a volume; it stays started over restarts of the daemon.
#[utoipa::path(post, path = "/v1/volumes/{name}/start", params(Waits), request_body = Leave, responses((status = 200, body = Status), (status = 409, description = "It cannot be: the error says why")))]
async fn start(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(waits): Query<Waits>,
    Json(allow): Json<Leave>,
) -> Result<Json<Status>, Refused> {
    settled(blocking(move || daemon.set_running(&name, Run::Start(allow))).await, &waits).await
}

/// Stops a volume; it stays stopped over restarts of the daemon.
#[utoipa::path(post, path = "/v1/volumes/{name}/stop", params(Waits), request_body = Stop, responses((status = 200, body = Status), (status = 409, description = "It cannot be: the error says why")))]
async fn stop(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(waits): Query<Waits>,
    Json(how): Json<Stop>,
) -> Result<Json<Status>, Refused> {
    let Stop { flush, force } = how;
    settled(blocking(move || daemon.set_running(&name, Run::Stop { flush, force })).await, &waits).await
}

/// Ends a volume at once, as the death of the process would: nothing is written to its cache or core, nothing is sent to its
/// cluster, no device is waited for, clients are hung up on. Nothing is remembered either: the daemon's next start starts it.
#[utoipa::path(post, path = "/v1/volumes/{name}/end", params(Waits), responses((status = 200, body = Status), (status = 404, description = "There is none")))]
async fn end(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(waits): Query<Waits>,
) -> Result<Json<Status>, Refused> {
    settled(blocking(move || daemon.end(&name)).await, &waits).await
}

/// Stops a volume and starts it as it is defined now. Faults that can be seen while it is served are reported before it is stopped.
#[utoipa::path(post, path = "/v1/volumes/{name}/restart", params(Waits), responses((status = 200, body = Status), (status = 409, description = "It cannot be, and nothing is stopped: the error says why")))]
async fn restart(
    State(daemon): Shared,
    Path(name): Path<String>,
    Query(waits): Query<Waits>,
) -> Result<Json<Status>, Refused> {
    settled(blocking(move || daemon.restart(&name)).await, &waits).await
}

type Began = Result<Json<ChangeState>, Refused>;

/// Puts a new cache in front of a served volume that has none; its clients go on. The change holds over
/// restarts of the daemon.
#[utoipa::path(post, path = "/v1/volumes/{name}/attach", request_body = Attach, responses((status = 200, body = ChangeState), (status = 409, description = "It cannot be: the error says why")))]
async fn attach(State(daemon): Shared, Path(name): Path<String>, Json(what): Json<Attach>) -> Began {
    blocking(move || daemon.attach(&name, what.cache, what.force)).await.map(Json).map_err(refused)
}

/// Writes everything dirty to the core and takes the cache of a served volume away; its clients go on. The
/// change holds over restarts of the daemon.
#[utoipa::path(post, path = "/v1/volumes/{name}/detach", responses((status = 200, body = ChangeState), (status = 409, description = "It cannot be: the error says why")))]
async fn detach(State(daemon): Shared, Path(name): Path<String>) -> Began {
    blocking(move || daemon.detach(&name)).await.map(Json).map_err(refused)
}

/// Has a served volume take the size that its core has by now.
#[utoipa::path(post, path = "/v1/volumes/{name}/resize", request_body = Resize, responses((status = 200, body = ChangeState), (status = 409, description = "It cannot be: the error says why")))]
async fn resize(State(daemon): Shared, Path(name): Path<String>, Json(to): Json<Resize>) -> Began {
    blocking(move || daemon.resize(&name, to.bytes)).await.map(Json).map_err(refused)
}

/// Gives the share of a pool that a served volume's cache lies in another size.
#[utoipa::path(post, path = "/v1/volumes/{name}/resize-cache", request_body = ResizeCache, responses((status = 200, body = ChangeState), (status = 409, description = "It cannot be: the error says why")))]
async fn resize_cache(State(daemon): Shared, Path(name): Path<String>, Json(to): Json<ResizeCache>) -> Began {
    blocking(move || daemon.resize_share(&name, to.bytes)).await.map(Json).map_err(refused)
}

/// The progress of the last attach, detach or resize of a served volume.
#[utoipa::path(get, path = "/v1/volumes/{name}/change", responses((status = 200, body = ChangeState), (status = 409, description = "The volume is not served")))]
async fn change(State(daemon): Shared, Path(name): Path<String>) -> Began {
    daemon.last_change(&name).map(Json).map_err(refused)
}

/// Gives up a detach that is still writing to the core. Every other change is over before a request could
/// arrive.
#[utoipa::path(delete, path = "/v1/volumes/{name}/change", responses((status = 200, body = ChangeState), (status = 409, description = "The volume is not served")))]
async fn give_up(State(daemon): Shared, Path(name): Path<String>) -> Began {
    daemon.give_up_change(&name).map(Json).map_err(refused)
}

/// Hands a request on to the volume it is for.
async fn of_volume(
    State(daemon): Shared,
    Path((name, what)): Path<(String, String)>,
    mut request: Request,
) -> Result<Response, Refused> {
    let supervisor = daemon.supervisor(&name).map_err(refused)?;
    let Some(app) = supervisor.app() else {
        return Err(refused(supervisor.status().refuse(&name).into()));
    };
    let query = request.uri().query().map(|q| format!("?{q}")).unwrap_or_default();
    let uri = format!("/v1/{what}{query}").parse::<Uri>();
    *request.uri_mut() = uri.map_err(|e| Refused(StatusCode::BAD_REQUEST, e.to_string()))?;
    let Ok(answer) = volume::router(daemon.control.asked(app)).oneshot(request).await;
    Ok(answer.into_response())
}
