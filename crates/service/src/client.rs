//! How commands talk to a running volume: HTTP and JSON over its control socket.

pub use crate::app::FlushState;
pub use crate::control::Param;
use crate::names;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Between two looks at a flush.
const LOOK: Duration = Duration::from_millis(200);
/// How long a running volume may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running volume.
#[derive(Debug)]
pub struct Client {
    name: String,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// The volume `name`.
    ///
    /// # Errors
    /// Where the name cannot be one.
    pub fn new(name: &str) -> Result<Client> {
        names::check_name(name)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { name: name.to_owned(), runtime })
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Option<Value>) -> Result<T> {
        let answer = async { tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await };
        let (ok, text) = match self.runtime.block_on(answer) {
            Ok(answer) => answer?,
            Err(_) => bail!(
                "volume '{}' did not answer within {} s: is it starting?",
                self.name,
                PATIENCE.as_secs()
            ),
        };
        if ok {
            return serde_json::from_slice(&text)
                .context("the volume's answer is not understood: are the versions equal?");
        }
        let said: Value = serde_json::from_slice(&text).unwrap_or_default();
        match said["error"].as_str() {
            Some(why) => bail!("{why}"),
            None => bail!("the volume refused: {}", String::from_utf8_lossy(&text)),
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<Value>) -> Result<(bool, Bytes)> {
        let socket = names::socket_of(&self.name)?;
        let stream = tokio::net::UnixStream::connect(&socket).await.map_err(|e| {
            anyhow::anyhow!(
                "no volume '{}' is being served here ({}: {e}): check the name, and LOLIGO_RUNTIME_DIR",
                self.name,
                socket.display()
            )
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
        let ok = answer.status().is_success();
        Ok((ok, answer.into_body().collect().await?.to_bytes()))
    }

    /// `GET /v1/stats`.
    ///
    /// # Errors
    /// Where the volume is not served.
    pub fn stats(&self) -> Result<Value> {
        self.call(Method::GET, "/v1/stats", None)
    }

    /// `GET /v1/info`.
    ///
    /// # Errors
    /// Where the volume is not served.
    pub fn info(&self) -> Result<Value> {
        self.call(Method::GET, "/v1/info", None)
    }

    /// Destages everything dirty, with progress on stderr; returns when the core has it.
    ///
    /// # Errors
    /// Why it could not be: the address of damaged data among others.
    pub fn flush(&self) -> Result<()> {
        let begun: FlushState = self.call(Method::POST, "/v1/flush", None)?;
        self.wait_flush(&begun)
    }

    fn wait_flush(&self, begun: &FlushState) -> Result<()> {
        let mut progress = Progress::new(format!("flushing {} to its core", self.name));
        let path = format!("/v1/flush?number={}", begun.number);
        loop {
            let now: FlushState = self.call(Method::GET, &path, None)?;
            if now.number != begun.number {
                bail!("the service no longer knows how the flush ended: run it again");
            }
            if !now.running {
                return match now.error {
                    None => {
                        progress.end("done");
                        Ok(())
                    }
                    Some(why) => {
                        progress.end("failed");
                        bail!("{why}")
                    }
                };
            }
            progress.show(now.total_bytes.saturating_sub(now.remaining_bytes), now.total_bytes);
            std::thread::sleep(LOOK);
        }
    }

    /// Switches the mode for new requests; with `flush`, waits until nothing is dirty.
    ///
    /// # Errors
    /// Where it is no mode, or the flush fails.
    pub fn set_mode(&self, mode: &str, flush: bool) -> Result<()> {
        let said: Value =
            self.call(Method::POST, "/v1/mode", Some(json!({ "mode": mode, "flush": flush })))?;
        match serde_json::from_value::<Option<FlushState>>(said["flush"].clone())? {
            Some(begun) => self.wait_flush(&begun),
            None => Ok(()),
        }
    }

    /// Every tunable.
    ///
    /// # Errors
    /// Where the volume is not served, or has no cache.
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
