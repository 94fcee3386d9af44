//! `loligo serve`: one volume in the foreground.

use crate::control::ControlThread;
use crate::metrics::{self, Scrape, Scraped, Served};
use crate::{descriptors, systemd};
use anyhow::{Context, Result};
use loligo_client::api::status::Status;
use loligo_volume::block;
use loligo_volume::options::ServeOptions;
use loligo_volume::signals::StopSignals;
use loligo_volume::volume::{GLANCE, LOOK, Volume};
use sd_notify::NotifyState;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Every refusal, with cause and mend.
pub fn run(options: ServeOptions) -> Result<ExitCode> {
    // The thread of the log carries no request out: it need not inherit what follows.
    loligo_log::begin_service().context("starting the thread of the log")?;
    descriptors::raise();
    // Before any other thread, for they inherit it.
    block::prepare(&options);
    let signals = StopSignals::catch()?;
    let metrics = options.metrics.map(metrics::bind).transpose()?;
    let control = ControlThread::start()?;
    let mut volume = Volume::start(options, &signals, &control, &|_| Ok(()))?;
    let app = volume.app.clone();
    let served: Served = Arc::new(move || {
        let volume = Scraped { name: app.name.clone(), state: Status::Serving, app: Some(app.clone()) };
        Scrape { volumes: vec![volume], ..Scrape::default() }
    });
    let _scrapes = metrics.map(|m| control.serve_metrics(m, served)).transpose()?;
    // The reader may have closed the pipe; the volume is served all the same.
    systemd::notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    loligo_log::outln!("ready");
    loligo_log::flush_output();
    let mut next = Instant::now() + LOOK;
    let mut failed = Ok(());
    while failed.is_ok() && !signals.within(GLANCE) && !volume.has_failed() {
        if let Some(cause) = volume.silent() {
            volume.end();
            anyhow::bail!("{cause}");
        }
        if Instant::now() >= next {
            next += LOOK;
            volume.look(None);
            systemd::notify(&[NotifyState::Watchdog]);
        }
        failed = volume.glance();
    }
    systemd::notify(&[
        NotifyState::Stopping,
        NotifyState::Status("stopping: what was promised is made durable"),
    ]);
    volume.stop(&signals)?;
    failed.map(|()| ExitCode::SUCCESS)
}
