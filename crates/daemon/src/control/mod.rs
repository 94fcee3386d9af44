//! The control API: HTTP and JSON on unix sockets, and `/metrics` on TCP, by one thread for all of them.

pub(crate) mod answer;
mod askers;
mod peer;
mod problems;
mod scrapes;
pub(crate) mod volume;

use crate::metrics::Served;
use anyhow::{Context, Result};
use askers::{Asked, Askers};
use axum::Router;
use loligo_export::Listener;
use loligo_volume::memory::{ControlApi, ServedApi};
use loligo_volume::volume_state::VolumeState;
use peer::Peer;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

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
    /// If it cannot be had.
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
    /// If the socket cannot be used.
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
    /// If the socket cannot be used.
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
