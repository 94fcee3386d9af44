//! The control API: HTTP and JSON on the volume's own socket, and `/metrics` on TCP, by one thread.

use crate::app::App;
use crate::{metrics, stats};
use anyhow::{Context, Result};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use loligo_cache::api::Control;
use loligo_cache::mode::Mode;
use loligo_cache::params::Params;
use loligo_export::Listener;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};

type Shared = State<Arc<App>>;

/// One tunable as the API shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Param {
    /// As typed.
    pub key: String,
    /// Now.
    pub value: String,
    /// What it accepts.
    pub range: String,
    /// Without being set.
    pub default: String,
}

/// A request that cannot be carried out.
#[derive(Debug)]
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// Serves both until the process ends. The socket's file stands for the name as long as the listener that is given back.
///
/// # Errors
/// Where the thread cannot start.
pub(crate) fn start(
    app: Arc<App>,
    control: Listener,
    metrics: Option<std::net::TcpListener>,
) -> Result<Listener> {
    let fd = control.as_fd().try_clone_to_owned().context("the control socket")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("the control thread")?;
    let body = async move {
        let api = Router::new()
            .route("/v1/info", get(info))
            .route("/v1/stats", get(numbers))
            .route("/v1/flush", get(flush_progress).post(flush))
            .route("/v1/mode", axum::routing::post(mode))
            .route("/v1/params", get(params).put(set_param))
            .with_state(app.clone());
        if let Some(listener) = metrics {
            let scrape = Router::new().route("/metrics", get(scrape)).with_state(app);
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::spawn(async move { axum::serve(listener, scrape).await });
        }
        let listener = tokio::net::UnixListener::from_std(std::os::unix::net::UnixListener::from(fd))?;
        axum::serve(listener, api).await
    };
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            if let Err(e) = runtime.block_on(body) {
                tracing::error!(error = %e, "the control socket is gone");
            }
        })
        .context("the control thread")?;
    Ok(control)
}

/// Asking the volume's threads blocks, which the control thread must not.
async fn blocking<T: Send + 'static>(app: Arc<App>, f: impl FnOnce(&Arc<App>) -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(move || f(&app)).await.expect("asking the threads of a volume does not panic")
}

async fn info(State(app): Shared) -> Json<Value> {
    Json(json!(app.info))
}

async fn numbers(State(app): Shared) -> Json<Value> {
    Json(blocking(app, |app| stats::json(app)).await)
}

async fn scrape(State(app): Shared) -> Response {
    let text = blocking(app, |app| metrics::text(app)).await;
    ([("content-type", "text/plain; version=0.0.4")], text).into_response()
}

fn refuse_bare(app: &App) -> Result<(), Refused> {
    match app.info.cache {
        Some(_) => Ok(()),
        None => Err(Refused(StatusCode::CONFLICT, "this volume is served bare: it has no cache".into())),
    }
}

async fn flush(State(app): Shared) -> Result<Json<Value>, Refused> {
    refuse_bare(&app)?;
    Ok(Json(json!(blocking(app, |app| app.start_flush()).await)))
}

#[derive(Debug, Deserialize)]
struct WhichFlush {
    number: Option<u64>,
}

async fn flush_progress(State(app): Shared, Query(which): Query<WhichFlush>) -> Json<Value> {
    Json(json!(blocking(app, move |app| app.flush_progress(which.number)).await))
}

#[derive(Debug, Deserialize)]
struct SetMode {
    mode: String,
    #[serde(default)]
    flush: bool,
}

async fn mode(State(app): Shared, Json(wanted): Json<SetMode>) -> Result<Json<Value>, Refused> {
    refuse_bare(&app)?;
    let mode: Mode = wanted.mode.parse().map_err(|e| Refused(StatusCode::BAD_REQUEST, e))?;
    let done = blocking(app, move |app| {
        app.handle.control(&Control::SetMode(mode))?;
        Ok(wanted.flush.then(|| app.start_flush()))
    });
    let flush = done.await.map_err(|e: String| Refused(StatusCode::INTERNAL_SERVER_ERROR, e))?;
    Ok(Json(json!({ "mode": mode.name(), "flush": flush })))
}

fn current(app: &App) -> Result<Params, Refused> {
    let first = app.handle.snapshots().into_iter().next();
    first
        .map(|s| s.params)
        .ok_or_else(|| Refused(StatusCode::SERVICE_UNAVAILABLE, "the volume is stopping".into()))
}

fn rows(params: &Params) -> Vec<Param> {
    let own = |s: &str| s.to_owned();
    let row = |r: loligo_cache::params::ParamRow| Param {
        key: own(r.key),
        value: r.value,
        range: own(r.range),
        default: r.default,
    };
    params.rows().into_iter().map(row).collect()
}

async fn params(State(app): Shared) -> Result<Json<Vec<Param>>, Refused> {
    refuse_bare(&app)?;
    blocking(app, |app| current(app).map(|p| Json(rows(&p)))).await
}

#[derive(Debug, Deserialize)]
struct SetParam {
    key: String,
    value: String,
}

async fn set_param(State(app): Shared, Json(wanted): Json<SetParam>) -> Result<Json<Vec<Param>>, Refused> {
    refuse_bare(&app)?;
    let set = move |app: &Arc<App>| {
        let _alone = app.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut params = current(app)?;
        params.set(&wanted.key, &wanted.value).map_err(|e| Refused(StatusCode::BAD_REQUEST, e))?;
        if let Some(kept) = &*app.rbd.lock().unwrap_or_else(PoisonError::into_inner)
            && let Some(why) = kept.refuse_deadline(params.snapshot_deadline)
        {
            return Err(Refused(StatusCode::BAD_REQUEST, why));
        }
        let done = app.handle.control(&Control::SetParams(params));
        done.map_err(|e| Refused(StatusCode::INTERNAL_SERVER_ERROR, e))?;
        Ok(Json(rows(&params)))
    };
    blocking(app, set).await
}
