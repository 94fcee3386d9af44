//! Requests of commands to the daemon.

use super::{Client, LOOK, Until};
use crate::api::daemon::{About, Attach, Create, Forgotten, Reloaded, Resize, ResizeCache, Stop};
use crate::api::definition::Leave;
use crate::api::listed::Listed;
use crate::api::status::Status;
use crate::api::volume::{Bound, ChangeState, WhichSocket};
use crate::names::{self, SOCKET};
use crate::outcome::{Ended, NobodyThere};
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The running daemon.
#[derive(Debug)]
pub struct DaemonClient(pub(super) Client);

impl DaemonClient {
    /// The daemon of this host.
    ///
    /// # Errors
    /// If this process can ask nobody.
    pub fn new() -> Result<DaemonClient> {
        Client::by(SOCKET, names::socket_of(SOCKET)?).map(DaemonClient)
    }

    /// The daemon whose sockets lie in `runtime_dir`.
    ///
    /// # Errors
    /// If this process can ask nobody.
    pub fn at(runtime_dir: &Path) -> Result<DaemonClient> {
        Client::by(SOCKET, runtime_dir.join(format!("{SOCKET}.sock"))).map(DaemonClient)
    }

    /// The same, which gives up on an answer after `patience`.
    #[must_use]
    pub fn within(self, patience: Duration) -> DaemonClient {
        DaemonClient(self.0.within(patience))
    }

    /// The same, which waits so for what it begins, and no longer than `limit`. The work goes on all the
    /// same.
    #[must_use]
    pub fn waiting(self, until: Until, limit: Option<Duration>) -> DaemonClient {
        DaemonClient(self.0.waiting(until, limit))
    }

    /// Describes the daemon.
    ///
    /// # Errors
    /// If none runs.
    pub fn about(&self) -> Result<About> {
        self.0.call(Method::GET, "/v1/daemon", None)
    }

    /// The same; nothing where none runs.
    ///
    /// # Errors
    /// If one runs, and does not answer.
    pub fn about_if_there(&self) -> Result<Option<About>> {
        match self.about() {
            Err(why) if why.is::<NobodyThere>() => Ok(None),
            known => known.map(Some),
        }
    }

    /// Has it read its file again; what was done, in lines.
    ///
    /// # Errors
    /// An error says what is wrong with the file.
    pub fn reload(&self) -> Result<Reloaded> {
        self.0.call(Method::POST, "/v1/reload", None)
    }

    /// Every volume.
    ///
    /// # Errors
    /// If none runs.
    pub fn volumes(&self) -> Result<Vec<Listed>> {
        self.0.call(Method::GET, "/v1/volumes", None)
    }

    /// One volume.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn volume(&self, name: &str) -> Result<Listed> {
        names::check_name(name)?;
        self.0.call(Method::GET, &format!("/v1/volumes/{name}"), None)
    }

    /// Makes a volume and starts it; how it is then.
    ///
    /// # Errors
    /// An error says what is wrong with it.
    pub fn create(&self, wanted: &Create) -> Result<Status> {
        let path = format!("/v1/volumes?wait={}", self.0.settle());
        let begun: Status = self.0.call(Method::POST, &path, Some(json!(wanted)))?;
        self.settled(&wanted.name, begun)
    }

    /// Forgets a stopped volume that was made by command.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn delete(&self, name: &str, force: bool) -> Result<()> {
        names::check_name(name)?;
        self.0.call::<Value>(Method::DELETE, &format!("/v1/volumes/{name}?force={force}"), None).map(drop)
    }

    /// Forgets which cache a stopped volume was served through; which that was.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn forget(&self, name: &str, force: bool) -> Result<Forgotten> {
        names::check_name(name)?;
        self.0.call(Method::POST, &format!("/v1/volumes/{name}/forget?force={force}"), None)
    }

    /// Starts a volume; how it is then.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn start(&self, name: &str, allow: Leave) -> Result<Status> {
        names::check_name(name)?;
        self.run(name, "start", json!(allow))
    }

    /// Stops a volume; how it is then.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn stop(&self, name: &str, how: &Stop) -> Result<Status> {
        names::check_name(name)?;
        self.run(name, "stop", json!(how))
    }

    /// Ends a volume at once; how it is then.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn end(&self, name: &str) -> Result<Status> {
        names::check_name(name)?;
        self.run(name, "end", json!({}))
    }

    /// Has a served volume listen on sockets of its definition; its exports then.
    ///
    /// # Errors
    /// If one cannot be bound, or the volume is not served.
    pub fn bind(&self, name: &str, which: &WhichSocket) -> Result<Bound> {
        names::check_name(name)?;
        self.0.call(Method::POST, &format!("/v1/volumes/{name}/bind"), Some(json!(which)))
    }

    /// Has a served volume let go of such sockets; its exports then.
    ///
    /// # Errors
    /// As [`DaemonClient::bind`].
    pub fn unbind(&self, name: &str, which: &WhichSocket) -> Result<Bound> {
        names::check_name(name)?;
        self.0.call(Method::POST, &format!("/v1/volumes/{name}/unbind"), Some(json!(which)))
    }

    /// Stops a volume and starts it as it is defined now; how it is then.
    ///
    /// # Errors
    /// If it could not start again, as far as that is seen while it is served; then it is not stopped.
    pub fn restart(&self, name: &str) -> Result<Status> {
        names::check_name(name)?;
        self.run(name, "restart", json!({}))
    }

    fn run(&self, name: &str, what: &str, how: Value) -> Result<Status> {
        let path = format!("/v1/volumes/{name}/{what}?wait={}", self.0.settle());
        let begun = self.0.call(Method::POST, &path, Some(how))?;
        self.settled(name, begun)
    }

    /// Puts a cache in front of a served volume; how that ended.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn attach(&self, name: &str, what: &Attach) -> Result<ChangeState> {
        self.change(name, "attach", Some(json!(what)))
    }

    /// Takes the cache of a served volume away; how that ended. An interrupt gives it up.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn detach(&self, name: &str) -> Result<ChangeState> {
        self.change(name, "detach", None)
    }

    /// Has a served volume take the size of its core; how that ended.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn resize(&self, name: &str, to: &Resize) -> Result<ChangeState> {
        self.change(name, "resize", Some(json!(to)))
    }

    /// Gives the share that a served volume's cache lies in another size; how that ended.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn resize_cache(&self, name: &str, bytes: u64) -> Result<ChangeState> {
        self.change(name, "resize-cache", Some(json!(ResizeCache { bytes })))
    }

    /// Has something changed about a served volume, with progress on stderr, until that is over.
    fn change(&self, name: &str, what: &str, body: Option<Value>) -> Result<ChangeState> {
        names::check_name(name)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let caught = signal_hook::flag::register(SIGINT, interrupted.clone()).context("catching SIGINT")?;
        let begun: ChangeState = self.0.call(Method::POST, &format!("/v1/volumes/{name}/{what}"), body)?;
        if self.0.until == Until::Begun {
            signal_hook::low_level::unregister(caught);
            return Ok(begun);
        }
        let path = format!("/v1/volumes/{name}/change");
        let (mut progress, since) = (None, Instant::now());
        let ended = loop {
            std::thread::sleep(if progress.is_none() { LOOK / 4 } else { LOOK });
            let now: ChangeState = self.0.call(Method::GET, &path, None)?;
            if now.number != begun.number {
                bail!(
                    "the service no longer knows how that ended: 'loligo volume show {name}' shows \
                    the volume"
                );
            }
            if !now.running {
                break now;
            }
            let progress = progress.get_or_insert_with(|| Progress::new(format!("{what} of {name}")));
            if now.total_bytes > 0 {
                progress.show(now.total_bytes.saturating_sub(now.remaining_bytes), now.total_bytes);
            } else {
                progress.say(&format!("under way for {} s", since.elapsed().as_secs()));
            }
            if interrupted.swap(false, Ordering::Relaxed) {
                self.0.call::<ChangeState>(Method::DELETE, &path, None)?;
            }
            if self.0.is_late() {
                signal_hook::low_level::unregister(caught);
                bail!(Ended::waiting(format!(
                    "the {what} of volume '{name}' is still under way, and goes on"
                )));
            }
        };
        signal_hook::low_level::unregister(caught);
        if let Some(progress) = progress {
            progress.end(if ended.error.is_none() { "done" } else { "came to nothing" });
        }
        match ended.error {
            None => Ok(ended),
            Some(why) if ended.refused => bail!(Ended::refused(why)),
            Some(why) => bail!("{why}"),
        }
    }

    /// Waits until a volume neither starts nor stops any more, as long as that is wanted.
    fn settled(&self, name: &str, begun: Status) -> Result<Status> {
        let (mut now, begun_at) = (begun, Instant::now());
        let mut progress = None;
        let goes_on = |now: &Status| match now {
            Status::Starting | Status::Stopping => self.0.until != Until::Begun,
            Status::Waiting(_) => self.0.until == Until::Served,
            _ => false,
        };
        while goes_on(&now) && !self.0.is_late() {
            let since = begun_at.elapsed().as_secs();
            let listed = self.volume(name)?;
            let says = listed.says.map(|says| format!(": {says}")).unwrap_or_default();
            progress
                .get_or_insert_with(|| Progress::new(format!("volume {name}")))
                .say(&format!("{} for {since} s{says}", now.word()));
            std::thread::sleep(LOOK);
            now = listed.status;
        }
        if let Some(progress) = progress {
            progress.end(now.word());
        }
        Ok(now)
    }
}
