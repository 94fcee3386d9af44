//! TLS without a socket: ciphertext in, ciphertext out, by the system's OpenSSL.

use crate::nbd::{Closed, Conn, MAX_SLICES, Watch};
use loligo_block::Request;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, SslContext, SslContextBuilder, SslFiletype, SslMethod, SslMode, SslOptions,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ciphertext that may wait to be sent, in bytes; cleartext is not enciphered beyond it.
const OUTBOUND: usize = 256 << 10;
/// Ciphertext fetched from the socket at a time, in bytes.
const INBOUND: usize = 64 << 10;
/// Shortest pre-shared key that is taken, and the longest that OpenSSL takes, in bytes.
const MIN_KEY: usize = 16;
const MAX_KEY: usize = 256;
/// Of TLS 1.2: a new key for each connection, and ciphers that authenticate what they hide.
const CIPHERS: &str = "ECDHE+AESGCM:ECDHE+CHACHA20";

/// The means by which the two sides prove who they are.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Certificates in PEM files.
    X509 {
        /// The server's chain.
        cert: PathBuf,
        /// Its private key.
        key: PathBuf,
        /// Clients must show a certificate signed by one of these.
        client_ca: Option<PathBuf>,
        /// Without `client_ca`, clients that nobody knows are served beyond loopback all the same.
        anonymous: bool,
    },
    /// Pre-shared keys: lines `user:hexkey`, as GnuTLS's psktool writes them.
    Psk {
        /// The file.
        file: PathBuf,
    },
}

impl Credentials {
    /// The guard between a stranger and the volume.
    pub fn guard(credentials: Option<&Credentials>) -> Guard {
        match credentials {
            None => Guard::Cleartext,
            Some(Credentials::X509 { client_ca: None, anonymous: false, .. }) => Guard::Encrypted,
            Some(_) => Guard::Decided,
        }
    }
}

/// The guard between a stranger and the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Nothing.
    Cleartext,
    /// TLS, by which clients know the server, and the server knows nobody.
    Encrypted,
    /// Clients prove who they are, or it was said that they need not.
    Decided,
}

/// The reason why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be used.
    #[error("cannot use {} for TLS: {why}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Its fault.
        why: String,
    },
    /// The library failed.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] ErrorStack),
}

/// The context of all TLS connections of a volume; clones share it too.
#[derive(Clone)]
pub struct TlsContext {
    context: Arc<RwLock<SslContext>>,
    credentials: Arc<Credentials>,
}

impl fmt::Debug for TlsContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsContext")
    }
}

impl TlsContext {
    /// Reads the files. TLS 1.3 with pre-shared keys, 1.2 or 1.3 with certificates.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn load(credentials: &Credentials) -> Result<TlsContext, TlsError> {
        let context = Arc::new(RwLock::new(TlsContext::build(credentials)?));
        Ok(TlsContext { context, credentials: Arc::new(credentials.clone()) })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// If a file cannot be used; then everything stays as it is.
    pub fn renew(&self) -> Result<(), TlsError> {
        let context = TlsContext::build(&self.credentials)?;
        *self.context.write() = context;
        Ok(())
    }

    fn current(&self) -> SslContext {
        self.context.read().clone()
    }

    fn build(credentials: &Credentials) -> Result<SslContext, TlsError> {
        let mut b = SslContextBuilder::new(SslMethod::tls_server())?;
        b.set_mode(
            SslMode::ENABLE_PARTIAL_WRITE | SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::RELEASE_BUFFERS,
        );
        b.set_options(
            SslOptions::NO_COMPRESSION | SslOptions::NO_RENEGOTIATION | SslOptions::CIPHER_SERVER_PREFERENCE,
        );
        // Connections last for days: resuming one is not worth the state, and a resumed one asks nobody for a certificate.
        b.set_num_tickets(0)?;
        b.set_options(SslOptions::NO_TICKET);
        b.set_session_cache_mode(SslSessionCacheMode::OFF);
        b.set_cipher_list(CIPHERS)?;
        match credentials {
            Credentials::X509 { cert, key, client_ca, .. } => {
                let file = |file: &Path| {
                    let file = file.to_owned();
                    move |e: ErrorStack| TlsError::File { file, why: reason(&e) }
                };
                b.set_min_proto_version(Some(SslVersion::TLS1_2))?;
                b.set_certificate_chain_file(cert).map_err(file(cert))?;
                b.set_private_key_file(key, SslFiletype::PEM).map_err(|e| TlsError::File {
                    file: key.clone(),
                    why: format!(
                        "{} (it must be the key of the certificate in {})",
                        reason(&e),
                        cert.display()
                    ),
                })?;
                if let Some(ca) = client_ca {
                    b.set_ca_file(ca).map_err(file(ca))?;
                    b.set_verify(SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT);
                }
            }
            Credentials::Psk { file } => {
                let keys = read_keys(file)?;
                b.set_min_proto_version(Some(SslVersion::TLS1_3))?;
                // OpenSSL ties a key given by this callback to SHA-256; a suite with another hash would drop it.
                b.set_ciphersuites("TLS_AES_128_GCM_SHA256")?;
                b.set_psk_server_callback(move |_, user, into| {
                    let key = user.and_then(|u| keys.get(u)).filter(|k| k.len() <= into.len());
                    let Some(key) = key else { return Ok(0) };
                    into[..key.len()].copy_from_slice(key);
                    Ok(key.len())
                });
            }
        }
        Ok(b.build())
    }
}

fn reason(e: &ErrorStack) -> String {
    e.errors().first().and_then(|e| e.reason()).unwrap_or("it cannot be read").to_owned()
}

fn read_keys(file: &Path) -> Result<HashMap<Vec<u8>, Vec<u8>>, TlsError> {
    let bad = |why: String| TlsError::File { file: file.to_owned(), why };
    let mode = std::fs::metadata(file).map_err(|e| bad(e.to_string()))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(bad(format!(
            "everybody on this host may use it (mode {:o}). Run 'chmod o= {}', and have new keys made",
            mode & 0o777,
            file.display()
        )));
    }
    let text = std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))?;
    let mut keys = HashMap::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.rsplit_once(':').and_then(|(user, hex)| Some((user, unhex(hex)?)));
        match entry {
            Some((user, key)) if !user.is_empty() && (MIN_KEY..=MAX_KEY).contains(&key.len()) => {
                keys.insert(user.as_bytes().to_vec(), key);
            }
            _ => {
                return Err(bad(format!(
                    "line {} is not 'user:hexkey' with 32 to 512 hexadecimal digits (psktool makes such files)",
                    n + 1
                )));
            }
        }
    }
    if keys.is_empty() {
        return Err(bad("it holds no key; add a line 'user:hexkey'".to_owned()));
    }
    Ok(keys)
}

fn unhex(s: &str) -> Option<Vec<u8>> {
    if !s.is_ascii() || !s.len().is_multiple_of(2) {
        return None;
    }
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).ok()).collect()
}

/// Ciphertext on its way, both directions.
#[derive(Debug, Default)]
struct Pipe {
    inbound: Vec<u8>,
    taken: usize,
    /// Filled part of `inbound`.
    filled: usize,
    outbound: Vec<u8>,
    sent: usize,
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = into.len().min(self.filled - self.taken);
        if n == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        into[..n].copy_from_slice(&self.inbound[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

impl Write for Pipe {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.outbound.extend_from_slice(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The TLS layer of one connection.
#[derive(Debug)]
pub struct TlsSession {
    stream: SslStream<Pipe>,
    ready: bool,
    /// Of the handshake.
    steps: u32,
    closing: bool,
    sending: Watch,
    /// The reason why the handshake failed.
    failure: Option<String>,
}

impl TlsSession {
    /// Starts TLS on `conn`, which has just agreed to it: what it still has to send goes out in the clear first.
    pub fn start(context: &TlsContext, conn: &mut Conn, now: Instant) -> Result<TlsSession, ErrorStack> {
        let mut pipe = Pipe::default();
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let used = conn.gather(&mut slices);
        slices[..used].iter().for_each(|s| pipe.outbound.extend_from_slice(s));
        let n = pipe.outbound.len();
        conn.sent(n, now);
        let stream = SslStream::new(openssl::ssl::Ssl::new(&context.current())?, pipe)?;
        let sending = Watch::default();
        Ok(TlsSession { stream, ready: false, steps: 0, closing: false, sending, failure: None })
    }

    /// The place of received ciphertext.
    pub fn recv_target(&mut self) -> &mut [u8] {
        let p = self.stream.get_mut();
        if p.taken > 0 {
            p.inbound.copy_within(p.taken..p.filled, 0);
            p.filled -= p.taken;
            p.taken = 0;
        }
        p.inbound.resize(p.filled + INBOUND, 0);
        &mut p.inbound[p.filled..]
    }

    /// Takes `n` bytes that were put into [`TlsSession::recv_target`].
    pub fn received(&mut self, n: usize) {
        self.stream.get_mut().filled += n;
    }

    /// True if ciphertext is taken: the connection wants input, and what came before is deciphered.
    pub fn wants_read(&self, conn: &Conn) -> bool {
        let p = self.stream.get_ref();
        conn.finished().is_none() && (!self.ready || conn.wants_read()) && p.filled - p.taken < INBOUND
    }

    /// True if something has come that a step of the handshake needs.
    pub fn wants_step(&self) -> bool {
        let p = self.stream.get_ref();
        !self.ready && p.filled > p.taken
    }

    /// Steps of the handshake that were taken.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Goes on with the handshake. This is what costs: a signature or the proof of a certificate.
    pub fn step(&mut self, conn: &mut Conn) {
        if self.ready {
            return;
        }
        self.steps = self.steps.saturating_add(1);
        match self.stream.accept() {
            Ok(()) => self.ready = true,
            Err(e) if matches!(e.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE) => {}
            Err(e) => {
                self.failure = Some(e.to_string());
                conn.close(Closed::Tls);
            }
        }
    }

    /// Moves what can be moved in both directions, once the handshake is over.
    pub fn pump(&mut self, conn: &mut Conn, now: Instant, requests: &mut Vec<Request>) {
        if !self.ready {
            return;
        }
        while let Some(target) = conn.recv_target() {
            match self.stream.ssl_read(target) {
                Ok(n) => conn.received(n, now, requests),
                Err(e) if matches!(e.code(), ErrorCode::WANT_READ | ErrorCode::WANT_WRITE) => break,
                Err(e) if e.code() == ErrorCode::ZERO_RETURN => conn.end_of_input(),
                Err(_) => return conn.close(Closed::Tls),
            }
        }
        self.encipher(conn, now);
    }

    fn encipher(&mut self, conn: &mut Conn, now: Instant) {
        while conn.wants_write() && self.unsent() < OUTBOUND {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = conn.gather(&mut slices);
            let mut n = 0;
            for s in &slices[..used] {
                let mut rest: &[u8] = s;
                while !rest.is_empty() && self.unsent() < OUTBOUND {
                    match self.stream.ssl_write(rest) {
                        Ok(w) => {
                            rest = &rest[w..];
                            n += w;
                        }
                        Err(_) => return conn.close(Closed::Tls),
                    }
                }
                if !rest.is_empty() {
                    break;
                }
            }
            conn.sent(n, now);
        }
    }

    /// The reason why the handshake failed, if it did; asking forgets it.
    pub fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// Appends the farewell of TLS to the output, once.
    pub fn farewell(&mut self) {
        if self.ready && !self.closing {
            self.closing = true;
            // A client that is gone does not miss it.
            let _ = self.stream.shutdown();
        }
    }

    /// Ciphertext to send.
    pub fn output(&self) -> &[u8] {
        let p = self.stream.get_ref();
        &p.outbound[p.sent..]
    }

    /// Bytes of ciphertext to send.
    pub fn unsent(&self) -> usize {
        self.output().len()
    }

    /// The time at which a client that takes no ciphertext counts as stalled.
    pub fn deadline(&self) -> Option<Instant> {
        self.sending.deadline()
    }

    /// Notes that `n` bytes of ciphertext are sent (0: the client takes none now).
    pub fn sent(&mut self, n: usize, now: Instant, stall: Duration) {
        let p = self.stream.get_mut();
        p.sent += n;
        if p.sent == p.outbound.len() {
            p.outbound.clear();
            p.sent = 0;
            self.sending.rest();
        } else {
            self.sending.moved(n as u64, now, stall);
        }
    }
}
