//! A conversation with a connection in memory, and a server on a thread with real sockets.

pub mod client;
#[path = "../../../examples/memserver/serve.rs"]
pub mod serve;
#[path = "../../../examples/memserver/volume.rs"]
pub mod volume;

use client::{info, option};
use loligo_block::Request;
use loligo_export::nbd::{Budget, Conn, MAX_SLICES, PeerUse};
use loligo_export::{Export, Guard, Limits, ListenAddr, Listener, Server, TlsContext};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use volume::Volume;

/// Bytes of the volume behind [`Talk`] and most servers.
pub const SIZE: usize = 64 << 20;

/// A client and its connection, without a socket, over a volume in RAM.
pub struct Talk {
    pub conn: Conn,
    pub volume: Volume,
    pub now: Instant,
    /// Requests that the volume has not answered; only filled by [`Talk::hand_in`].
    pub requests: Vec<Request>,
}

impl Talk {
    /// Before any byte of the client; the greeting is taken.
    pub fn new(export: Export, limits: Limits, tls: bool) -> Talk {
        let now = Instant::now();
        let share = Budget::new(&limits).share(&PeerUse::default());
        let mut t = Talk {
            conn: Conn::new(
                Arc::new(export),
                Arc::new(limits),
                share,
                tls,
                loligo_export::ConnId::from_u64(1 << 16).expect("a generation"),
                now,
            ),
            volume: Volume::ram(SIZE),
            now,
            requests: Vec::new(),
        };
        assert_eq!(t.take_output()[..16], *b"NBDMAGICIHAVEOPT");
        t
    }

    /// In transmission; `structured`: with structured replies.
    pub fn transmission(export: Export, limits: Limits, structured: bool) -> Talk {
        let mut t = Talk::new(export, limits, false);
        t.say(&[0, 0, 0, 3]);
        if structured {
            t.say(&option(8, &[]));
        }
        t.say(&option(7, &info("", &[])));
        t
    }

    /// Hands `bytes` over as far as the connection takes them; returns how many that were.
    pub fn hand_in(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let Some(target) = self.conn.recv_target() else { break };
            let n = target.len().min(bytes.len() - used);
            target[..n].copy_from_slice(&bytes[used..used + n]);
            used += n;
            self.conn.received(n, self.now, &mut self.requests);
        }
        used
    }

    /// Lets the volume answer everything that is open.
    pub fn answer_all(&mut self) {
        for r in std::mem::take(&mut self.requests) {
            let reply = self.volume.answer(r);
            self.conn.answer(reply.id, reply.result);
        }
    }

    /// Takes what the connection sends now.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.conn.wants_write() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let used = self.conn.gather(&mut slices);
            let before = all.len();
            slices[..used].iter().for_each(|s| all.extend_from_slice(s));
            self.conn.sent(all.len() - before, self.now);
        }
        all
    }

    /// Says `bytes` and returns what comes back once the volume has answered.
    pub fn say(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut back = Vec::new();
        loop {
            bytes = &bytes[self.hand_in(bytes)..];
            self.answer_all();
            back.extend(self.take_output());
            self.conn.resume(self.now, &mut self.requests);
            if self.requests.is_empty() && (bytes.is_empty() || !self.conn.wants_read()) {
                return back;
            }
        }
    }
}

/// A server on a thread of its own, until it is dropped.
pub struct Running {
    pub addr: ListenAddr,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves `volume` on `addr`.
    pub fn start(addr: &str, mut volume: Volume, limits: Limits, tls: Option<TlsContext>) -> Running {
        let listener = Listener::bind(&addr.parse().unwrap(), Guard::Cleartext).unwrap();
        let addr = listener.addr().clone();
        let (wait, stop) = rustix::pipe::pipe().unwrap();
        let export = Export::new("disk", volume.size());
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(export, limits, tls);
            serve::serve(&[listener], &mut server, &mut volume, wait.as_fd());
        });
        Running { addr, stop: Some(stop), thread: Some(thread) }
    }

    /// A server in RAM on a unix socket in `dir`.
    pub fn ram(dir: &Path) -> Running {
        let addr = format!("unix:{}", dir.join("s").display());
        Running::start(&addr, Volume::ram(SIZE), Limits::default(), None)
    }

    /// The address as NBD clients take it.
    pub fn uri(&self) -> String {
        match &self.addr {
            ListenAddr::Unix(p) => format!("nbd+unix:///?socket={}", p.display()),
            ListenAddr::Tcp(a) => format!("nbd://{a}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().map(|t| t.join());
        if !std::thread::panicking() {
            assert!(ended.is_some_and(|e| e.is_ok()), "the server panicked");
        }
    }
}

/// True if `program` is installed; says that the test is skipped where it is not.
pub fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(program).is_file()));
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

/// Runs a client for at most 60 s; whether it succeeded, and all it said.
pub fn client(program: &str, args: &[&str]) -> (bool, String) {
    let out = Command::new("timeout").arg("60").arg(program).args(args).output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).into_owned())
}
