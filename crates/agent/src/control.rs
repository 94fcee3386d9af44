//! The agent's socket: HTTP and JSON, for root and the user that it runs as.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/pair` | a [`Status`] |
//! | `GET /v1/pair/history` | a list of [`HistoryEntry`](crate::status::HistoryEntry) |
//! | `POST /v1/pair/keep` | the daemon tells a value of a volume that was set by command: it is on the quorum LUN |
//! | `POST /v1/pair/takeover`, `POST /v1/pair/giveback` | the order is taken; the status says what comes of it. 409: it is refused, and why |

use crate::handle::Handle;
use crate::keeper::Keeper;
use crate::status::Status;
use anyhow::{Context, Result};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use loligo_client::api::volume::Keep;
use loligo_pair::machine::Order;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // It may have been taken away by hand.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Debug, Clone)]
struct Asked {
    agent: Handle,
    keeper: Keeper,
}

type Refused = (StatusCode, Json<Value>);

fn refused(why: &str) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": why })))
}

/// Serves the socket at `path` until the process ends.
///
/// # Errors
/// If it cannot be had.
pub(crate) fn serve(path: &Path, agent: Handle, keeper: Keeper) -> Result<Socket> {
    // The folder's lock says that nobody listens there.
    let _ = std::fs::remove_file(path);
    let listener = std::os::unix::net::UnixListener::bind(path)
        .with_context(|| format!("the socket {} cannot be had", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    let router = Router::new()
        .route("/v1/pair", get(status))
        .route("/v1/pair/history", get(entries))
        .route("/v1/pair/keep", post(keep))
        .route("/v1/pair/takeover", post(takeover))
        .route("/v1/pair/giveback", post(giveback))
        .with_state(Asked { agent, keeper });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::UnixListener::from_std(listener)?
    };
    let serve = move || {
        runtime.block_on(async move {
            if let Err(why) = axum::serve(listener, router).await {
                tracing::error!(error = %why, "the agent's socket is gone");
            }
        });
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
    Ok(Socket(path.to_owned()))
}

async fn status(State(asked): State<Asked>) -> Result<Json<Status>, Refused> {
    let wait = tokio::task::spawn_blocking(move || asked.agent.status());
    match wait.await {
        Ok(Ok(status)) => Ok(Json(status)),
        Ok(Err(why)) => Err(refused(&format!("{why:#}"))),
        Err(_) => Err(refused("the agent does not answer: its log says why")),
    }
}

async fn entries(State(asked): State<Asked>) -> Json<Value> {
    Json(json!(asked.agent.history()))
}

async fn keep(State(asked): State<Asked>, Json(keep): Json<Keep>) -> Result<Json<Value>, Refused> {
    let kept = tokio::task::spawn_blocking(move || asked.keeper.keep(&keep));
    match kept.await {
        Ok(Ok(())) => Ok(Json(json!({ "kept": true }))),
        Ok(Err(why)) => {
            Err((StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": format!("{why:#}") }))))
        }
        Err(_) => Err(refused("the agent does not answer: its log says why")),
    }
}

async fn takeover(State(asked): State<Asked>) -> Result<Json<Value>, Refused> {
    order(asked, Order::Takeover).await
}

async fn giveback(State(asked): State<Asked>) -> Result<Json<Value>, Refused> {
    order(asked, Order::Giveback).await
}

async fn order(asked: Asked, order: Order) -> Result<Json<Value>, Refused> {
    match tokio::task::spawn_blocking(move || asked.agent.order(order)).await {
        Ok(Ok(Ok(()))) => Ok(Json(json!({ "ordered": order }))),
        Ok(Ok(Err(why))) => Err((StatusCode::CONFLICT, Json(json!({ "error": why })))),
        Ok(Err(why)) => Err(refused(&format!("{why:#}"))),
        Err(_) => Err(refused("the agent does not answer: its log says why")),
    }
}
