//! The control API: HTTP and JSON on unix sockets, and `/metrics` on TCP, by one thread for all of them.

mod askers;
mod peer;
mod problems;
mod scrapes;
pub(crate) mod volume;

use crate::metrics::Scraped;
use anyhow::{Context, Result};
use askers::{Asked, Askers};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use loligo_client::outcome::Outcome;
use loligo_export::Listener;
use loligo_volume::memory::{ControlApi, ServedApi};
use loligo_volume::volume_state::VolumeState;
use peer::Peer;
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The volumes that a scrape tells of.
pub(crate) type Served = Arc<dyn Fn() -> Vec<Scraped> + Send + Sync>;

/// A request that cannot be carried out.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) StatusCode, pub(crate) String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(problem(self.0, &self.1))).into_response()
    }
}

/// `why` as the answer to a request.
pub(crate) fn refused(why: anyhow::Error) -> Refused {
    let status = match why.chain().find_map(Outcome::known) {
        Some(Outcome::Waiting) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Outcome::Failed) => StatusCode::INTERNAL_SERVER_ERROR,
        Some(Outcome::Refused | Outcome::Usage) | None => StatusCode::CONFLICT,
    };
    Refused(status, format!("{why:#}"))
}

/// The body of a refusal.
fn problem(status: StatusCode, why: &str) -> Value {
    json!({ "error": why, "outcome": Outcome::of_answer(status) })
}

/// Whoever asks the threads of a volume waits for them, which the control thread must not.
pub(crate) async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(ask).await.expect("asking the threads of a volume does not panic")
}

/// The thread that management is served by, until the process ends.
#[derive(Debug, Clone)]
pub(crate) struct ControlThread {
    runtime: Handle,
    askers: Askers,
}

/// Something that is served; dropping it ends that. The socket's file stands for the name as long.
#[derive(Debug)]
pub(crate) struct Api {
    task: JoinHandle<()>,
    _listener: Option<Listener>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ControlThread {
    /// Starts it.
    ///
    /// # Errors
    /// Where it cannot be had.
    pub(crate) fn start() -> Result<ControlThread> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the control thread")?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("control".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .context("the control thread")?;
        Ok(ControlThread { runtime: handle, askers: Askers::default() })
    }

    /// `volume` as it is asked, by whichever socket.
    pub(crate) fn asked(&self, volume: Arc<VolumeState>) -> Asked {
        self.askers.of(volume)
    }

    /// Serves `router` on a unix socket, to root and to the user that this process runs as.
    ///
    /// # Errors
    /// Where the socket cannot be used.
    pub(crate) fn serve(&self, socket: Listener, router: Router) -> Result<Api> {
        let fd = socket.as_fd().try_clone_to_owned().context("the control socket")?;
        let _inside = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(std::os::unix::net::UnixListener::from(fd))
            .context("the control socket")?;
        let service = router
            .layer(axum::middleware::from_fn(peer::check))
            .layer(axum::middleware::from_fn(problems::as_json));
        let task = self.runtime.spawn(async move {
            let service = service.into_make_service_with_connect_info::<Peer>();
            if let Err(e) = axum::serve(listener, service).await {
                tracing::error!(error = %e, "the control socket is gone");
            }
        });
        Ok(Api { task, _listener: Some(socket) })
    }

    /// Serves `/metrics` of whatever volumes are served.
    ///
    /// # Errors
    /// Where the socket cannot be used.
    pub(crate) fn serve_metrics(&self, socket: std::net::TcpListener, served: Served) -> Result<Api> {
        let _inside = self.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(socket).context("the socket for metrics")?;
        let task = self.runtime.spawn(scrapes::serve(listener, served));
        Ok(Api { task, _listener: None })
    }
}

impl ServedApi for Api {}

impl ControlApi for ControlThread {
    fn serve_volume(&self, socket: Listener, volume: Arc<VolumeState>) -> Result<Box<dyn ServedApi>> {
        Ok(Box::new(self.serve(socket, volume::router(self.asked(volume)))?))
    }
}

/// What `GET` of nothing known says.
pub(crate) async fn unknown() -> Refused {
    Refused(StatusCode::NOT_FOUND, "there is nothing here: /v1/openapi.json lists what there is".to_owned())
}

/// The description of an API as JSON: named after this program and not after a library, with each refusal's body, the name in
/// each path, and a word for each answer.
pub(crate) fn document(api: utoipa::openapi::OpenApi, about: &str) -> Json<Value> {
    let mut all = serde_json::to_value(api).unwrap_or_default();
    all["info"] = json!({
        "title": "Loligo",
        "description": about,
        "version": env!("CARGO_PKG_VERSION"),
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    all["components"]["schemas"]["Problem"] = json!({
        "description": "Why something cannot be.",
        "type": "object",
        "required": ["error", "outcome"],
        "properties": {
            "error": { "description": "The cause, and what mends it.", "type": "string" },
            "outcome": {
                "description": "refused (4xx): nothing was changed. waiting (503): the volume comes or goes by itself, ask again. failed: it was tried, and did not succeed.",
                "type": "string",
                "enum": ["refused", "waiting", "failed"],
            },
        },
    });
    let problem = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
    let name = json!({ "name": "name", "in": "path", "required": true, "description": "The volume", "schema": { "type": "string" } });
    let paths = all["paths"].as_object_mut().into_iter().flatten();
    for (path, way) in
        paths.flat_map(|(p, ways)| ways.as_object_mut().into_iter().flatten().map(move |(_, way)| (p, way)))
    {
        way["responses"]["default"] = json!({ "description": "It cannot be: the error says why" });
        for (status, answer) in way["responses"].as_object_mut().into_iter().flatten() {
            if answer["description"].is_null() {
                answer["description"] = json!("Done");
            }
            if !status.starts_with('2') && answer["content"].is_null() {
                answer["content"] = problem.clone();
            }
        }
        let has_name = |p: &Value| p["name"] == "name" && p["in"] == "path";
        let has_name = way["parameters"].as_array().is_some_and(|all| all.iter().any(has_name));
        if path.contains("{name}") && !has_name {
            match way["parameters"].as_array_mut() {
                Some(all) => all.push(name.clone()),
                None => way["parameters"] = json!([name]),
            }
        }
    }
    Json(all)
}
