//! Requests to the agent of a pair.

use crate::control::answer::{Refused, blocking};
use crate::daemon::Daemon;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use loligo_agent::handle::Handle;
use loligo_pair::machine::Order;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<Daemon>> {
    OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(history))
        .routes(routes!(takeover))
        .routes(routes!(giveback))
}

fn agent(daemon: &Daemon) -> Result<Handle, Refused> {
    let Some(agent) = &daemon.pair else {
        let why = "this loligod is no controller of a pair: give it a section [pair] with file and side, and restart it";
        return Err(Refused(StatusCode::NOT_FOUND, why.to_owned()));
    };
    agent.handle().map_err(is_silent)
}

fn is_silent(why: anyhow::Error) -> Refused {
    Refused(StatusCode::SERVICE_UNAVAILABLE, format!("{why:#}"))
}

/// The pair as this controller sees it: role, partner, units, LUNs.
#[utoipa::path(get, path = "/v1/pair", responses((status = 200, body = Value), (status = 404, description = "The daemon is no controller of a pair"), (status = 503, description = "The agent does not run or answer")))]
async fn status(State(daemon): State<Arc<Daemon>>) -> Result<Json<Value>, Refused> {
    let agent = agent(&daemon)?;
    blocking(move || agent.status()).await.map(|status| Json(json!(status))).map_err(is_silent)
}

/// Changes of role with their reasons, alarms and steps, the oldest first.
#[utoipa::path(get, path = "/v1/pair/history", responses((status = 200, body = Vec<Value>), (status = 404, description = "The daemon is no controller of a pair")))]
async fn history(State(daemon): State<Arc<Daemon>>) -> Result<Json<Value>, Refused> {
    Ok(Json(json!(agent(&daemon)?.history())))
}

/// Takes the partner's units over, although it may be well. The status says what comes of it.
#[utoipa::path(post, path = "/v1/pair/takeover", responses((status = 200, body = Value), (status = 409, description = "It is refused: the error says why"), (status = 404, description = "The daemon is no controller of a pair")))]
async fn takeover(State(daemon): State<Arc<Daemon>>) -> Result<Json<Value>, Refused> {
    order(daemon, Order::Takeover).await
}

/// Gives the partner's units back to it. The status says what comes of it.
#[utoipa::path(post, path = "/v1/pair/giveback", responses((status = 200, body = Value), (status = 409, description = "It is refused: the error says why"), (status = 404, description = "The daemon is no controller of a pair")))]
async fn giveback(State(daemon): State<Arc<Daemon>>) -> Result<Json<Value>, Refused> {
    order(daemon, Order::Giveback).await
}

async fn order(daemon: Arc<Daemon>, order: Order) -> Result<Json<Value>, Refused> {
    let agent = agent(&daemon)?;
    match blocking(move || agent.order(order)).await.map_err(is_silent)? {
        Ok(()) => Ok(Json(json!({ "ordered": order }))),
        Err(why) => Err(Refused(StatusCode::CONFLICT, why)),
    }
}
