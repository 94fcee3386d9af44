//! `/metrics` on TCP. Every client that reaches the port may ask, so that nobody is given much: some
//! connections, and some seconds.

use super::answer::blocking;
use crate::metrics::{self, Served};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Connections at a time. If another comes, the oldest that has asked for nothing ends, or else the oldest.
const CONNECTIONS: usize = 16;
/// For the head of a request, and between two of one connection.
const HEAD: Duration = Duration::from_secs(5);
/// For all that a connection does. Prometheus comes again with a new one.
const WHOLE: Duration = Duration::from_secs(300);
/// After the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers scrapers, for ever.
pub(super) async fn serve(listener: TcpListener, served: Served) {
    let scraped = Scraped { served, turn: Arc::new(Semaphore::new(1)) };
    let router = Router::new().route("/metrics", get(scrape)).with_state(scraped);
    let mut open: Vec<Open> = Vec::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept scrapers for a moment");
                sleep(PAUSE).await;
                continue;
            }
        };
        open.retain(|o| !o.task.is_finished());
        if open.len() >= CONNECTIONS {
            let silent = open.iter().position(|o| !o.has_asked.load(Ordering::Relaxed));
            open.remove(silent.unwrap_or(0)).task.abort();
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let service = TowerToHyperService::new(router.clone().layer(Extension(Asked(has_asked.clone()))));
        let task = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that breaks off has nobody to tell why.
            let _ = timeout(WHOLE, connection).await;
        });
        open.push(Open { task: task.abort_handle(), has_asked });
    }
}

/// A connection.
struct Open {
    task: AbortHandle,
    has_asked: Arc<AtomicBool>,
}

/// Set by the first request of a connection.
#[derive(Clone)]
struct Asked(Arc<AtomicBool>);

#[derive(Clone)]
struct Scraped {
    served: Served,
    /// One text is made at a time. Scrapers that ask and go leave no work behind that another would wait for.
    turn: Arc<Semaphore>,
}

async fn scrape(
    State(Scraped { served, turn }): State<Scraped>,
    Extension(Asked(asked)): Extension<Asked>,
) -> Response {
    asked.store(true, Ordering::Relaxed);
    let Ok(turn) = turn.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let text = blocking(move || {
        let text = metrics::text(&served());
        // Held to here also where the scraper has gone meanwhile: what was begun is finished before the next begins.
        drop(turn);
        text
    });
    ([("content-type", metrics::CONTENT_TYPE)], text.await).into_response()
}
