//! `/metrics` on TCP. Whoever reaches the port may ask, so that nobody is given much: some connections, and some seconds.

use super::{Served, blocking};
use crate::metrics;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Connections at a time. The oldest ends where another comes, so that silent ones keep nobody out.
const CONNECTIONS: usize = 16;
/// For the head of a request, and between two of one connection.
const HEAD: Duration = Duration::from_secs(5);
/// For all that a connection does. Prometheus comes again with a new one.
const WHOLE: Duration = Duration::from_secs(300);
/// After the kernel had no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers scrapers, for ever.
pub(super) async fn serve(listener: TcpListener, served: Served) {
    let router = Router::new().route("/metrics", get(scrape)).with_state(served);
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept scrapers for a moment");
                sleep(PAUSE).await;
                continue;
            }
        };
        open.retain(|task| !task.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let service = TowerToHyperService::new(router.clone());
        let task = tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that breaks off has nobody to tell why.
            let _ = timeout(WHOLE, connection).await;
        });
        open.push_back(task.abort_handle());
    }
}

async fn scrape(State(served): State<Served>) -> Response {
    let text = blocking(move || metrics::text(&served())).await;
    ([("content-type", metrics::CONTENT_TYPE)], text).into_response()
}
