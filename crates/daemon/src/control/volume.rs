//! Requests to one volume.

use super::answer::{Refused, blocking, document, refused, unknown};
use super::askers::Asked;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Json, Router};
use loligo_client::api::volume::{Bound, FlushState, Info, Param, WhichSocket};
use loligo_client::outcome::{Ended, Outcome};
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use loligo_volume::stats;
use loligo_volume::volume_state::{VolumeState, stopping};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

type Shared = State<Asked>;

/// The time that a volume's threads are waited for.
const ANSWER: Duration = Duration::from_secs(10);
/// The time that a change is waited for, which may have to be remembered in a folder that is slow.
const CHANGE: Duration = Duration::from_secs(60);

/// Asks the threads of a volume. One that does not answer holds up those who ask it, and few threads of the control's.
async fn asks<T: Send + 'static>(
    app: Asked,
    limit: Duration,
    what: impl FnOnce(&VolumeState) -> T + Send + 'static,
) -> Result<T, Refused> {
    let silent = |_| {
        let why = format!(
            "the volume has not answered for {} s: 'loligo volume list' says how it is",
            limit.as_secs()
        );
        Refused(StatusCode::SERVICE_UNAVAILABLE, why)
    };
    let asked = async {
        let turn = app.turns.clone().acquire_owned().await.expect("it is never closed");
        // The turn is over with the answer, whoever waits for that.
        blocking(move || {
            let _turn = turn;
            what(&app.volume)
        })
        .await
    };
    tokio::time::timeout(limit, asked).await.map_err(silent)
}

/// Every way to ask a volume.
fn routes() -> OpenApiRouter<Asked> {
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(numbers))
        .routes(routes!(latencies))
        .routes(routes!(flush_progress, flush))
        .routes(routes!(mode))
        .routes(routes!(params, set_param))
        .routes(routes!(bind))
        .routes(routes!(unbind))
}

/// The API of one volume, below `/v1`.
pub(crate) fn router(app: Asked) -> Router {
    let (router, api) = routes().split_for_parts();
    router
        .route(
            "/v1/openapi.json",
            axum::routing::get(|| async {
                document(api, "The control API of one volume, HTTP on its own socket")
            }),
        )
        .fallback(unknown)
        .with_state(app)
}

/// Its description.
pub(crate) fn openapi() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// Describes the volume.
#[utoipa::path(get, path = "/v1/info", responses((status = 200, body = Info)))]
async fn info(State(app): Shared) -> Json<Info> {
    Json(app.volume.info())
}

/// Its numbers.
#[utoipa::path(get, path = "/v1/stats", responses((status = 200, body = Value)))]
async fn numbers(State(app): Shared) -> Result<Json<Value>, Refused> {
    asks(app, ANSWER, stats::json).await.map(Json)
}

/// The number of requests by the nanoseconds that they took, by kind, since the start.
#[utoipa::path(get, path = "/v1/latencies", responses((status = 200, body = Value, description = "read, write and flush: pairs of nanoseconds and requests")))]
async fn latencies(State(app): Shared) -> Result<Json<Value>, Refused> {
    asks(app, ANSWER, stats::latencies).await.map(Json)
}

fn refuse_bare(app: &VolumeState) -> Result<(), Refused> {
    match app.info().cache {
        Some(_) => Ok(()),
        None => Err(Refused(StatusCode::CONFLICT, "this volume is served bare: it has no cache".into())),
    }
}

/// Starts to write everything dirty to the core.
#[utoipa::path(post, path = "/v1/flush", responses((status = 200, body = FlushState), (status = 409, description = "The volume has no cache")))]
async fn flush(State(app): Shared) -> Result<Json<FlushState>, Refused> {
    refuse_bare(&app.volume)?;
    let app_of = app.volume.clone();
    asks(app, ANSWER, move |_| app_of.start_flush()).await.map(Json)
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
struct WhichFlush {
    /// The number of the flush; left out: the last.
    number: Option<u64>,
}

/// The progress of a flush, or of the last one.
#[utoipa::path(get, path = "/v1/flush", params(WhichFlush), responses((status = 200, body = FlushState)))]
async fn flush_progress(
    State(app): Shared,
    Query(which): Query<WhichFlush>,
) -> Result<Json<FlushState>, Refused> {
    asks(app, ANSWER, move |app| app.flush_progress(which.number)).await.map(Json)
}

/// A mode to be switched to.
#[derive(Debug, Deserialize, ToSchema)]
struct SetMode {
    /// wt, wb, wa, wi, wo or pt.
    mode: String,
    /// Write everything dirty to the core as well.
    #[serde(default)]
    flush: bool,
}

/// Switches the mode for new requests.
#[utoipa::path(post, path = "/v1/mode", request_body = SetMode, responses((status = 200, body = Value), (status = 400, description = "It is no mode"), (status = 409, description = "The volume has no cache")))]
async fn mode(State(app): Shared, Json(wanted): Json<SetMode>) -> Result<Json<Value>, Refused> {
    refuse_bare(&app.volume)?;
    let mode: Mode = wanted.mode.parse().map_err(|e| Refused(StatusCode::BAD_REQUEST, e))?;
    let app_of = app.volume.clone();
    let done = asks(app, CHANGE, move |app| {
        app.set_mode(mode)?;
        Ok(wanted.flush.then(|| app_of.start_flush()))
    });
    let flush = done.await?.map_err(|why: Ended| refused(why.into()))?;
    Ok(Json(json!({ "mode": mode.name(), "flush": flush })))
}

fn rows(params: &Params) -> Vec<Param> {
    let own = |s: &str| s.to_owned();
    let row = |r: loligo_engine::params::ParamRow| Param {
        key: own(r.key),
        value: r.value,
        range: own(r.range),
        default: r.default,
    };
    params.rows().into_iter().map(row).collect()
}

/// Every tunable.
#[utoipa::path(get, path = "/v1/params", responses((status = 200, body = Vec<Param>), (status = 409, description = "The volume has no cache")))]
async fn params(State(app): Shared) -> Result<Json<Vec<Param>>, Refused> {
    refuse_bare(&app.volume)?;
    let now = asks(app, ANSWER, VolumeState::params).await?;
    now.map(|p| Json(rows(&p))).ok_or_else(|| refused(stopping().into()))
}

/// A tunable to be set.
#[derive(Debug, Deserialize, ToSchema)]
struct SetParam {
    key: String,
    value: String,
}

/// Sets one tunable; answers all.
#[utoipa::path(put, path = "/v1/params", request_body = SetParam, responses((status = 200, body = Vec<Param>), (status = 400, description = "It is none, or the value is out of range: the error says what is possible")))]
async fn set_param(State(app): Shared, Json(wanted): Json<SetParam>) -> Result<Json<Vec<Param>>, Refused> {
    refuse_bare(&app.volume)?;
    match asks(app, CHANGE, move |app| app.set_param(&wanted.key, &wanted.value)).await? {
        Ok(params) => Ok(Json(rows(&params))),
        Err(why) if why.outcome == Outcome::Refused => Err(Refused(StatusCode::BAD_REQUEST, why.to_string())),
        Err(why) => Err(refused(why.into())),
    }
}

/// Listens on a socket of the definition that waits to be told.
#[utoipa::path(post, path = "/v1/bind", request_body = WhichSocket, responses((status = 200, body = Bound), (status = 409, description = "It cannot be: the error says why")))]
async fn bind(State(app): Shared, Json(which): Json<WhichSocket>) -> Result<Json<Bound>, Refused> {
    let done = asks(app, CHANGE, move |app| app.bind(which.listen.as_deref())).await?;
    done.map(|listen| Json(Bound { listen })).map_err(|why| refused(why.into()))
}

/// Lets go of a socket, and hangs up on the clients that came by it.
#[utoipa::path(post, path = "/v1/unbind", request_body = WhichSocket, responses((status = 200, body = Bound), (status = 409, description = "It cannot be: the error says why")))]
async fn unbind(State(app): Shared, Json(which): Json<WhichSocket>) -> Result<Json<Bound>, Refused> {
    let done = asks(app, CHANGE, move |app| app.unbind(which.listen.as_deref())).await?;
    done.map(|listen| Json(Bound { listen })).map_err(|why| refused(why.into()))
}
