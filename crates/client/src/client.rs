//! The way commands talk to a running volume: HTTP and JSON over its control socket.

mod daemon;
mod pools;

pub use self::daemon::DaemonClient;
pub use crate::api::daemon::{About, Attach, Create, Resize, ResizeCache, Stop};
pub use crate::api::pool::{AttachCore, DetachCore, ResizeCore};
pub use crate::api::volume::{ChangeState, FlushState, Param};
use crate::names::{self, SOCKET};
use crate::outcome::{Ended, NobodyThere, Outcome};
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a flush.
const LOOK: Duration = Duration::from_millis(200);
/// The time that a running volume may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time that the daemon waits at most for a volume to come or go before it answers.
const SETTLE: Duration = Duration::from_secs(2);

/// The least that is waited for an answer.
const MOMENT: Duration = Duration::from_secs(1);

/// The time that the daemon may take to tell the state of a volume that does not answer.
const BRIEFLY: Duration = Duration::from_secs(5);

/// The time that a command waits for what it has begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Until {
    /// Not at all.
    Begun,
    /// Until nothing more comes of it by itself.
    #[default]
    Over,
    /// The same, and for a device that is not there until it is.
    Served,
}

/// A running volume, or the daemon.
#[derive(Debug)]
pub struct Client {
    name: String,
    socket: PathBuf,
    patience: Duration,
    until: Until,
    /// Nothing is waited for after this.
    deadline: Option<Instant>,
    /// Something was changed or begun by it.
    has_begun: AtomicBool,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// The volume `name`.
    ///
    /// # Errors
    /// If the name cannot be one.
    pub fn new(name: &str) -> Result<Client> {
        names::check_name(name)?;
        Client::by(name, names::socket_of(name)?)
    }

    /// The volume `name` of a service whose sockets lie in `runtime_dir`.
    ///
    /// # Errors
    /// If the name cannot be one.
    pub fn at(runtime_dir: &Path, name: &str) -> Result<Client> {
        names::check_name(name)?;
        Client::by(name, runtime_dir.join(format!("{name}.sock")))
    }

    /// Whatever answers at `socket`, as people call it.
    ///
    /// # Errors
    /// If there can be no client.
    pub fn over(name: &str, socket: &Path) -> Result<Client> {
        Client::by(name, socket.to_owned())
    }

    /// Asks for what is at `path`.
    ///
    /// # Errors
    /// If nobody answers, or with a refusal.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None)
    }

    /// Gives the order at `path`.
    ///
    /// # Errors
    /// If nobody answers, or with a refusal.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::POST, path, None)
    }

    /// Gives the order at `path`, with `body`.
    ///
    /// # Errors
    /// If nobody answers, or with a refusal.
    pub fn tell<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T> {
        self.call(Method::POST, path, Some(body))
    }

    fn by(name: &str, socket: PathBuf) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (name, until) = (name.to_owned(), Until::default());
        let has_begun = AtomicBool::new(false);
        Ok(Client { name, socket, patience: PATIENCE, until, deadline: None, has_begun, runtime })
    }

    /// The same, which gives up on an answer after `patience`.
    #[must_use]
    pub fn within(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// The same, which waits so for what it begins, and no longer than `limit`. The work goes on all the
    /// same.
    #[must_use]
    pub fn waiting(self, until: Until, limit: Option<Duration>) -> Client {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Client { until, deadline, ..self }
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn is_late(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    /// Seconds for which the daemon is to wait for a volume before it answers.
    fn settle(&self) -> f64 {
        match self.until {
            Until::Begun => 0.0,
            Until::Over | Until::Served => self.left().map_or(SETTLE, |left| left.min(SETTLE)).as_secs_f64(),
        }
    }

    fn is_daemon(&self) -> bool {
        self.name == SOCKET
    }

    fn who(&self) -> String {
        if self.is_daemon() { "the daemon".to_owned() } else { format!("volume '{}'", self.name) }
    }

    /// The outcome of a command that finds nobody: refused, unless something was begun before.
    fn unserved(&self, outcome: Outcome) -> Outcome {
        match self.has_begun.load(Ordering::Relaxed) {
            true if outcome == Outcome::Refused => Outcome::Failed,
            _ => outcome,
        }
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Value>) -> Result<T> {
        let changes = method != Method::GET;
        // One that answers at all does so in this time, however little is left.
        let patience = self.left().map_or(self.patience, |left| left.max(MOMENT).min(self.patience));
        let answer = async { tokio::time::timeout(patience, self.exchange(method, path, body)).await };
        let (status, text) = match self.runtime.block_on(answer) {
            Ok(answer) => answer.map_err(|why| self.or_how_it_is(why))?,
            Err(_) => bail!(Ended::waiting(format!(
                "{} did not answer within {} s: it may be starting. Try again",
                self.who(),
                patience.as_secs()
            ))),
        };
        if status.is_success() {
            self.has_begun.fetch_or(changes, Ordering::Relaxed);
            return serde_json::from_slice(&text).with_context(|| {
                format!(
                    "the answer of {} is not understood: use a 'loligo' of the service's version",
                    self.who()
                )
            });
        }
        let said: Value = serde_json::from_slice(&text).unwrap_or_default();
        let why = match said["error"].as_str() {
            Some(why) => why.to_owned(),
            None => format!("{} refused: {}", self.who(), String::from_utf8_lossy(&text)),
        };
        Err(Ended::with(Outcome::of_answer(status), why).into())
    }

    /// `why`, or how the volume is, where nobody listens and a daemon knows it: its user has named a volume, and no socket.
    fn or_how_it_is(&self, why: anyhow::Error) -> anyhow::Error {
        if self.is_daemon() || !why.is::<NobodyThere>() {
            return why;
        }
        let daemon = Client::by(SOCKET, self.socket.with_file_name(format!("{SOCKET}.sock")));
        let asked =
            daemon.and_then(|d| DaemonClient(d).within(self.patience.min(BRIEFLY)).volume(&self.name));
        asked.map_or(why, |known| {
            let mut refused = known.status.refuse(&self.name);
            refused.outcome = self.unserved(refused.outcome);
            refused.into()
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<Value>) -> Result<(StatusCode, Bytes)> {
        let socket = &self.socket;
        let stream = tokio::net::UnixStream::connect(socket).await.map_err(|e| {
            use ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
            if !matches!(e.kind(), NotFound | ConnectionRefused | PermissionDenied) {
                // Somebody listens and takes nobody: a process that stands still, with a full backlog.
                return anyhow::Error::from(e).context(format!("{} takes no connection", socket.display()));
            }
            let who = match self.is_daemon() {
                true => "no loligod runs here".to_owned(),
                false => format!("no volume '{}' is being served here", self.name),
            };
            let words = format!("{who} ({}: {e}): check the name, and LOLIGO_RUNTIME_DIR", socket.display());
            NobodyThere { words, outcome: self.unserved(Outcome::Refused) }.into()
        })?;
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let body = body.map(|b| b.to_string()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "loligo")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let answer = send.send_request(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }

    /// `GET /v1/stats`.
    ///
    /// # Errors
    /// If the volume is not served.
    pub fn stats(&self) -> Result<Value> {
        self.call(Method::GET, "/v1/stats", None)
    }

    /// `GET /v1/latencies`.
    ///
    /// # Errors
    /// If the volume is not served.
    pub fn latencies(&self) -> Result<BTreeMap<String, Vec<(u64, u64)>>> {
        self.call(Method::GET, "/v1/latencies", None)
    }

    /// Destages everything dirty, with progress on stderr; returns when the core has it.
    ///
    /// # Errors
    /// If it could not be. The error names the address of damaged data, among others.
    pub fn flush(&self) -> Result<FlushState> {
        let begun: FlushState = self.call(Method::POST, "/v1/flush", None)?;
        self.wait_flush(begun)
    }

    fn wait_flush(&self, begun: FlushState) -> Result<FlushState> {
        if self.until == Until::Begun {
            return Ok(begun);
        }
        let mut progress = Progress::new(format!("flushing {} to its core", self.name));
        let path = format!("/v1/flush?number={}", begun.number);
        loop {
            let now: FlushState = self.call(Method::GET, &path, None)?;
            if now.number != begun.number {
                bail!("the service no longer knows how the flush ended: run the flush again");
            }
            if !now.running {
                return match now.error {
                    None => {
                        progress.end("done");
                        Ok(now)
                    }
                    Some(why) => {
                        progress.end("failed");
                        bail!("{why}")
                    }
                };
            }
            progress.show(now.total_bytes.saturating_sub(now.remaining_bytes), now.total_bytes);
            if self.is_late() {
                bail!(Ended::waiting(format!(
                    "{} is still being flushed: about {} of {} bytes are left, and it goes on",
                    self.who(),
                    now.remaining_bytes,
                    now.total_bytes
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Switches the mode for new requests; with `flush`, waits until nothing is dirty.
    ///
    /// # Errors
    /// If it is no mode, or the flush fails.
    pub fn set_mode(&self, mode: &str, flush: bool) -> Result<Option<FlushState>> {
        let said: Value =
            self.call(Method::POST, "/v1/mode", Some(json!({ "mode": mode, "flush": flush })))?;
        match serde_json::from_value::<Option<FlushState>>(said["flush"].clone())? {
            Some(begun) => self.wait_flush(begun).map(Some),
            None => Ok(None),
        }
    }

    /// Every tunable.
    ///
    /// # Errors
    /// If the volume is not served, or has no cache.
    pub fn params(&self) -> Result<Vec<Param>> {
        self.call(Method::GET, "/v1/params", None)
    }

    /// Sets one tunable; returns all.
    ///
    /// # Errors
    /// Keys or range, where it is not one of them.
    pub fn set_param(&self, key: &str, value: &str) -> Result<Vec<Param>> {
        self.call(Method::PUT, "/v1/params", Some(json!({ "key": key, "value": value })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// A process that stands still takes nobody. Whoever took it for gone started its work elsewhere, beside it.
    #[test]
    fn a_full_backlog_is_somebody() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        let dir = tempfile::tempdir().unwrap();
        let at = SocketAddrUnix::new(dir.path().join("v.sock")).unwrap();
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
        };
        let listener = socket();
        rustix::net::bind(&listener, &at).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            if rustix::net::connect(&client, &at).is_err() {
                break;
            }
            waiting.push(client);
        }
        let why = Client::at(dir.path(), "v").unwrap().stats().expect_err("nobody answers");
        assert!(!why.is::<NobodyThere>(), "{why:#}");
    }

    #[test]
    fn nobody_there_is_a_refusal_until_something_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let outcome = || Outcome::of(&Client::at(dir.path(), "v").unwrap().flush().expect_err("nobody"));
        assert_eq!(outcome(), Outcome::Refused);
        // One that begins a flush, and is gone.
        let socket = dir.path().join("v.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let begins = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            drop((listener, std::fs::remove_file(socket)));
            let _ = client.read(&mut [0; 4096]).unwrap();
            let body = json!(FlushState { number: 1, running: true, ..FlushState::default() }).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            client.write_all((head + &body).as_bytes()).unwrap();
        });
        assert_eq!(outcome(), Outcome::Failed);
        begins.join().unwrap();
    }
}
