//! Listening sockets: addresses, modes of files, stale sockets, and what may be reached from outside.

use crate::peer::credentials;
use crate::socket_spec::SocketSpec;
use crate::tls::Guard;
use loligo_block::keys::{ANONYMOUS, TLS_CA, TLS_CERT, TLS_KEY, TLS_PSK};
use loligo_block::processes;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid, chmod, chownat, fchmod, flock, fstat, open,
};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::fmt;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Waiting connections that the kernel keeps.
const BACKLOG: i32 = 128;
/// Bytes asked for in each direction of a unix socket: a whole 1 MiB reply leaves in one call.
const UNIX_BUFFER: usize = 2 << 20;
/// The time that the socket of a process that has ended is waited for, and the time between two looks.
const ENDING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Addresses to listen on: `unix:PATH` or `tcp:ADDR:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddr {
    /// A path in the file system.
    Unix(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

impl FromStr for ListenAddr {
    type Err = ListenError;

    fn from_str(s: &str) -> Result<ListenAddr, ListenError> {
        let bad = |why: &str| ListenError::Address { given: s.to_owned(), why: why.to_owned() };
        if let Some(path) = s.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(bad("the path is empty")),
                1..=107 => Ok(ListenAddr::Unix(path.into())),
                _ => Err(bad("a socket's path has at most 107 bytes; choose a shorter one")),
            };
        }
        let Some(addr) = s.strip_prefix("tcp:") else {
            return Err(bad("it starts with none of unix:, tcp:, fuse:, block:, ublk: and loop:"));
        };
        let mut found = addr.to_socket_addrs().map_err(|e| bad(&e.to_string()))?;
        found.next().map(ListenAddr::Tcp).ok_or_else(|| bad("the name has no address"))
    }
}

impl ListenAddr {
    /// True if the client of `socket` came by a listener with this address.
    pub(crate) fn is_of(&self, socket: impl AsFd) -> bool {
        let Ok(local) = net::getsockname(socket) else { return false };
        match self {
            ListenAddr::Unix(path) => {
                let local = SocketAddrUnix::try_from(local);
                local.is_ok_and(|l| l.path_bytes() == Some(path.as_os_str().as_encoded_bytes()))
            }
            ListenAddr::Tcp(addr) => SocketAddr::try_from(local).is_ok_and(|l| {
                l.port() == addr.port()
                    && (addr.ip().is_unspecified() || l.ip().to_canonical() == addr.ip().to_canonical())
            }),
        }
    }

    /// Checks that it may be served behind `guard`: others than this host reach all but unix sockets and
    /// loopback.
    ///
    /// # Errors
    /// [`ListenError::Exposed`], [`ListenError::Anonymous`].
    pub fn check(&self, guard: Guard) -> Result<(), ListenError> {
        match (self, guard) {
            (ListenAddr::Tcp(a), Guard::Cleartext) if !a.ip().is_loopback() => Err(ListenError::Exposed(*a)),
            (ListenAddr::Tcp(a), Guard::Encrypted) if !a.ip().is_loopback() => {
                Err(ListenError::Anonymous(*a))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddr::Unix(p) => write!(f, "unix:{}", p.display()),
            ListenAddr::Tcp(a) => write!(f, "tcp:{a}"),
        }
    }
}

/// The reason why nobody listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not an address.
    #[error(
        "cannot listen on '{given}': {why}. Give unix:PATH or tcp:ADDR:PORT, for example tcp:127.0.0.1:10809, \
         fuse:MOUNTPOINT or block:NAME (ublk:NAME, loop:NAME: of this kind only)"
    )]
    Address {
        /// The given text.
        given: String,
        /// Its fault.
        why: String,
    },
    /// Reachable from outside without TLS.
    #[error(
        "refusing to serve {0} without TLS: anybody who reaches it could read and write the volume. \
         Listen on 127.0.0.1 or on a unix socket, or give {tls_cert}, {tls_key} and {tls_ca}, or {tls_psk}. In a network \
         of its own write ?cleartext behind the address", tls_ca = TLS_CA, tls_cert = TLS_CERT, tls_key = TLS_KEY, tls_psk = TLS_PSK
    )]
    Exposed(SocketAddr),
    /// Reachable from outside by anybody.
    #[error(
        "refusing to serve {0} to clients that nobody knows: with a certificate of the server alone, anybody who \
         reaches it could read and write the volume. Give {tls_ca}, so that clients must show a certificate, or \
         {tls_psk} instead, or say {anonymous}", anonymous = ANONYMOUS, tls_ca = TLS_CA, tls_psk = TLS_PSK
    )]
    Anonymous(SocketAddr),
    /// Another process serves this path.
    #[error("{} is in use: a process is listening there. Stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// Something else lies there.
    #[error("{} exists and is not a socket. Remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The file of the socket cannot be made what was asked for.
    #[error(
        "the socket {} cannot be given its owner or mode: {why}. Run the service as root, or leave owner and mode out",
        .path.display()
    )]
    Access {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        why: std::io::Error,
    },
    /// The kernel refused.
    #[error("cannot listen on {addr}: {why}. Choose another address, or make the folder it lies in")]
    Os {
        /// Its place.
        addr: ListenAddr,
        /// The kernel's reason.
        why: std::io::Error,
    },
}

impl ListenError {
    /// True if the address is none of this host's, which it may become: networks come up late.
    pub fn is_not_yet(&self) -> bool {
        let none = Some(Errno::ADDRNOTAVAIL.raw_os_error());
        matches!(self, ListenError::Os { why, .. } if why.raw_os_error() == none)
    }
}

/// A listening socket; a unix socket's file goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    spec: SocketSpec,
    /// Device and inode of the file, so that a successor's is not removed.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens on `addr`, whose clients have `guard` before them. A socket file that nobody listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// If the address may not be served so, is in use, or cannot be had.
    pub fn bind(addr: &ListenAddr, guard: Guard) -> Result<Listener, ListenError> {
        Listener::open(&SocketSpec::from(addr.clone()), guard)
    }

    /// The same with what else was said of the socket.
    ///
    /// # Errors
    /// As for [`Listener::bind`], and where its file cannot be made what was asked for.
    pub fn open(spec: &SocketSpec, guard: Guard) -> Result<Listener, ListenError> {
        let addr = &spec.addr;
        spec.check(guard)?;
        let os = |why: std::io::Error| ListenError::Os { addr: addr.clone(), why };
        match addr {
            ListenAddr::Unix(path) => bind_unix(path, spec),
            ListenAddr::Tcp(a) => {
                let l = TcpListener::bind(a).map_err(os)?;
                l.set_nonblocking(true).map_err(os)?;
                let addr = ListenAddr::Tcp(l.local_addr().map_err(os)?);
                Ok(Listener { fd: l.into(), spec: SocketSpec { addr, ..spec.clone() }, file: None })
            }
        }
    }

    /// Its address; the port is the real one where port 0 was asked for.
    pub fn addr(&self) -> &ListenAddr {
        &self.spec.addr
    }

    /// The same with what else was said of the socket.
    pub fn spec(&self) -> &SocketSpec {
        &self.spec
    }

    /// Ends it at once, also while somebody polls it: the address is free when this returns.
    pub fn close(self) {
        // One that nobody could connect to yet is over with the descriptor.
        let _ = net::shutdown(&self.fd, net::Shutdown::Both);
    }

    /// The next waiting client's socket, nonblocking; nothing if none waits.
    pub fn accept(&self) -> std::io::Result<Option<OwnedFd>> {
        loop {
            match net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    self.prepare(&fd);
                    return Ok(Some(fd));
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The client left while it waited.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Options of a client's socket. None of them is needed for correctness, so a refusal does not matter.
    fn prepare(&self, fd: &OwnedFd) {
        match self.spec.addr {
            ListenAddr::Unix(_) => {
                if sockopt::set_socket_send_buffer_size_force(fd, UNIX_BUFFER).is_err() {
                    let _ = sockopt::set_socket_send_buffer_size(fd, UNIX_BUFFER);
                }
                let _ = sockopt::set_socket_recv_buffer_size(fd, UNIX_BUFFER);
            }
            ListenAddr::Tcp(_) => {
                let _ = sockopt::set_tcp_nodelay(fd, true);
                // Finds out about clients that vanished without a word.
                let _ = sockopt::set_socket_keepalive(fd, true);
                let _ = sockopt::set_tcp_keepidle(fd, Duration::from_secs(60));
                let _ = sockopt::set_tcp_keepintvl(fd, Duration::from_secs(10));
                let _ = sockopt::set_tcp_keepcnt(fd, 6);
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let ListenAddr::Unix(path) = &self.spec.addr
            && identity(path) == self.file
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Held while looking, removing and binding: two starters could otherwise remove each other's socket. Others may lock
/// folders for reasons of their own, so after two seconds the start goes on without it.
fn lock(dir: &Path) -> Option<OwnedFd> {
    let dir = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    for _ in 0..100 {
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(dir),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    None
}

/// True if the process that listens at the other end of `probe` is dead, reaped or not.
fn has_ended(probe: &OwnedFd) -> bool {
    // Of one in another pid namespace nothing can be said.
    let Some((pid, _)) = credentials(probe).ok().filter(|(pid, _)| *pid != 0) else { return false };
    processes::has_ended(pid)
}

fn bind_unix(path: &Path, spec: &SocketSpec) -> Result<Listener, ListenError> {
    let os = |why: std::io::Error| ListenError::Os { addr: spec.addr.clone(), why };
    let sys = |e: Errno| os(e.into());
    let parent = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let _lock = lock(parent);
    let name = SocketAddrUnix::new(path).map_err(sys)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        let deadline = Instant::now() + ENDING;
        loop {
            let probe =
                net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(sys)?;
            match net::connect(&probe, &name) {
                Err(Errno::CONNREFUSED) => break std::fs::remove_file(path).map_err(os)?,
                // The socket of a killed process listens on until its last I/O has ended.
                Ok(()) if has_ended(&probe) && Instant::now() < deadline => std::thread::sleep(PAUSE),
                // Somebody answered, or would but for a full backlog.
                Ok(()) | Err(Errno::AGAIN) => return Err(ListenError::InUse(path.to_owned())),
                Err(e) => return Err(sys(e)),
            }
        }
    }
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(sys)?;
    // Linux gives the file the mode of the socket less the umask: it is private from its first moment.
    fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(sys)?;
    net::bind(&fd, &name).map_err(sys)?;
    let listener = Listener { fd, spec: spec.clone(), file: identity(path) };
    hand_over(path, spec).map_err(|why| ListenError::Access { path: path.to_owned(), why })?;
    net::listen(&listener.fd, BACKLOG).map_err(sys)?;
    Ok(listener)
}

/// Gives the file of a socket that nobody can connect to yet the owner and mode that were asked for. The folder may be another
/// user's, who could put a link there: the file is opened once, looked at, and changed by its descriptor.
fn hand_over(path: &Path, spec: &SocketSpec) -> std::io::Result<()> {
    if spec.owner.is_none() && spec.mode.is_none() {
        return Ok(());
    }
    let file = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&file)?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || !ours {
        return Err(std::io::Error::other("somebody has put another file in its place"));
    }
    if let Some(owner) = spec.owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        chownat(&file, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = spec.mode {
        chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), Mode::from_raw_mode(mode))?;
    }
    Ok(())
}
