//! TLS with real clients, and what happens to those who come with the wrong credentials or none.

use crate::common::client::{info, option};
use crate::common::volume::Volume;
use crate::common::{Running, SIZE, client, installed};
use loligo_export::{ConnId, Credentials, Export, Limits, Peer, Server, TlsContext};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::ssl::{
    HandshakeError, Ssl, SslContext, SslFiletype, SslMethod, SslRef, SslSession, SslStream, SslVersion,
};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

type Pair = (X509, PKey<Private>);

/// A certificate for `name` (and 127.0.0.1), signed by `issuer` or by itself.
fn certificate(name: &str, serial: u32, issuer: Option<&Pair>) -> Pair {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    certificate_of(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap(), name, serial, issuer)
}

fn certificate_of(key: PKey<Private>, name: &str, serial: u32, issuer: Option<&Pair>) -> Pair {
    let mut n = X509NameBuilder::new().unwrap();
    n.append_entry_by_text("CN", name).unwrap();
    let n = n.build();
    let mut b = X509Builder::new().unwrap();
    b.set_version(2).unwrap();
    b.set_serial_number(&BigNum::from_u32(serial).unwrap().to_asn1_integer().unwrap()).unwrap();
    b.set_subject_name(&n).unwrap();
    b.set_issuer_name(issuer.map_or(&n, |i| i.0.subject_name())).unwrap();
    b.set_pubkey(&key).unwrap();
    b.set_not_before(&Asn1Time::from_unix(1_600_000_000).unwrap()).unwrap();
    b.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
    if issuer.is_none() {
        b.append_extension(BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    } else {
        let mut san = SubjectAlternativeName::new();
        let san = san.dns("localhost").ip("127.0.0.1").build(&b.x509v3_context(None, None)).unwrap();
        b.append_extension(san).unwrap();
    }
    b.sign(issuer.map_or(&key, |i| &i.1), MessageDigest::sha256()).unwrap();
    (b.build(), key)
}

fn save(dir: &Path, name: &str, pair: &Pair) {
    std::fs::write(dir.join(format!("{name}-cert.pem")), pair.0.to_pem().unwrap()).unwrap();
    std::fs::write(dir.join(format!("{name}-key.pem")), pair.1.private_key_to_pem_pkcs8().unwrap()).unwrap();
}

/// A folder as libnbd and qemu want it: ca-cert.pem, client-*.pem; and server-*.pem for us.
fn pki() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let ca = certificate("test CA", 1, None);
    save(dir.path(), "ca", &ca);
    save(dir.path(), "server", &certificate("localhost", 2, Some(&ca)));
    save(dir.path(), "client", &certificate("client", 3, Some(&ca)));
    dir
}

fn x509(dir: &Path, client_ca: bool) -> TlsContext {
    TlsContext::load(&Credentials::X509 {
        cert: dir.join("server-cert.pem"),
        key: dir.join("server-key.pem"),
        client_ca: client_ca.then(|| dir.join("ca-cert.pem")),
        anonymous: false,
    })
    .unwrap()
}

/// Writes what only its owner may read.
fn secret(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn tcp(tls: TlsContext) -> (Running, u16) {
    let s = Running::start("tcp:127.0.0.1:0", Volume::ram(SIZE), Limits::default(), Some(tls));
    let loligo_export::ListenAddr::Tcp(a) = s.addr else { unreachable!() };
    (s, a.port())
}

#[test]
fn nbdinfo_and_nbdcopy_come_in_by_certificate() {
    if !installed("nbdinfo") || !installed("nbdcopy") {
        return;
    }
    let dir = pki();
    let d = dir.path().display();
    for client_ca in [false, true] {
        let (_s, port) = tcp(x509(dir.path(), client_ca));
        let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={d}");
        let (ok, text) = client("nbdinfo", &[&uri]);
        assert!(ok && text.contains("with TLS") && text.contains("base:allocation"), "{text}");
        let image = dir.path().join("image");
        let bytes: Vec<u8> = (0..8u32 << 20).map(|i| (i.wrapping_mul(7919) >> 7) as u8).collect();
        std::fs::write(&image, &bytes).unwrap();
        let (ok, text) = client("nbdcopy", &[image.to_str().unwrap(), &uri]);
        assert!(ok, "{text}");
        let back = dir.path().join("back");
        let (ok, text) = client("nbdcopy", &[&uri, back.to_str().unwrap()]);
        assert!(ok, "{text}");
        assert!(std::fs::read(&back).unwrap()[..bytes.len()] == bytes);
    }
}

#[test]
fn qemu_comes_in_by_certificate() {
    if !installed("qemu-io") {
        return;
    }
    let dir = pki();
    let (_s, port) = tcp(x509(dir.path(), true));
    let creds = format!("tls-creds-x509,id=t,dir={},endpoint=client", dir.path().display());
    let image = format!("driver=nbd,host=127.0.0.1,port={port},tls-creds=t");
    let args = ["--object", &creds, "--image-opts", &image, "-c", "write -P 5 0 4M", "-c", "read -P 5 0 4M"];
    let (ok, text) = client("qemu-io", &args);
    assert!(ok && !text.contains("failed"), "{text}");
}

#[test]
fn clients_without_certificate_or_in_the_clear_are_refused() {
    if !installed("nbdinfo") {
        return;
    }
    let dir = pki();
    let (_s, port) = tcp(x509(dir.path(), true));
    let stranger = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join("ca-cert.pem"), stranger.path().join("ca-cert.pem")).unwrap();
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={}", stranger.path().display());
    assert!(!client("nbdinfo", &[&uri]).0);
    let (ok, text) = client("nbdinfo", &[&format!("nbd://127.0.0.1:{port}")]);
    assert!(!ok && text.to_lowercase().contains("tls"), "{text}");
    let uri = format!("nbds://127.0.0.1:{port}/?tls-certificates={}", dir.path().display());
    assert!(client("nbdinfo", &[&uri]).0, "the right one still gets in");
}

#[test]
fn a_pre_shared_key_opens_the_door_and_a_wrong_one_does_not() {
    if !installed("nbdinfo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.psk");
    let alice = "a1".repeat(32);
    secret(&keys, &format!("alice:{alice}\nbob:{}\n", "b2".repeat(16)));
    let (_s, port) = tcp(TlsContext::load(&Credentials::Psk { file: keys }).unwrap());
    let wrong = dir.path().join("wrong.psk");
    std::fs::write(&wrong, format!("alice:{}\nmallory:{alice}\n", "c3".repeat(32))).unwrap();
    let uri = |user: &str, file: &str| {
        format!("nbds://{user}@127.0.0.1:{port}/?tls-psk-file={}/{file}", dir.path().display())
    };
    for (user, file, may) in [
        ("alice", "keys.psk", true),
        ("bob", "keys.psk", true),
        ("alice", "wrong.psk", false),
        ("mallory", "wrong.psk", false),
    ] {
        let (ok, text) = client("nbdinfo", &[&uri(user, file)]);
        assert_eq!(ok, may, "{user} with {file}: {text}");
    }
}

#[test]
fn qemu_comes_in_by_pre_shared_key() {
    if !installed("qemu-io") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys.psk");
    secret(&keys, &format!("qemu:{}\n", "0f".repeat(32)));
    let (_s, port) = tcp(TlsContext::load(&Credentials::Psk { file: keys }).unwrap());
    let creds = format!("tls-creds-psk,id=t,dir={},endpoint=client,username=qemu", dir.path().display());
    let image = format!("driver=nbd,host=127.0.0.1,port={port},tls-creds=t");
    let args = ["--object", &creds, "--image-opts", &image, "-c", "write -P 5 0 4M", "-c", "read -P 5 0 4M"];
    let (ok, text) = client("qemu-io", &args);
    assert!(ok && !text.contains("failed"), "{text}");
}

#[test]
fn unusable_files_are_refused_with_their_name_and_the_mend() {
    let dir = pki();
    let d = dir.path();
    let x = |cert: &str, key: &str| Credentials::X509 {
        cert: d.join(cert),
        key: d.join(key),
        client_ca: None,
        anonymous: false,
    };
    let error = |c: &Credentials| TlsContext::load(c).unwrap_err().to_string();
    assert!(error(&x("none.pem", "server-key.pem")).contains("none.pem"));
    let mixed = error(&x("server-cert.pem", "client-key.pem"));
    assert!(mixed.contains("client-key.pem") && mixed.contains("server-cert.pem"), "{mixed}");
    let short = format!("alice:{}", "00".repeat(15));
    for bad in ["", "alice", "alice:xyz", &short, ":00112233445566778899aabbccddeeff"] {
        secret(&d.join("k"), bad);
        let e = error(&Credentials::Psk { file: d.join("k") });
        assert!(e.contains("user:hexkey"), "{bad}: {e}");
    }
}

#[test]
fn keys_that_everybody_may_read_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys.psk");
    let credentials = Credentials::Psk { file: file.clone() };
    secret(&file, &format!("alice:{}", "a1".repeat(16)));
    assert!(TlsContext::load(&credentials).is_ok());
    std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    assert!(TlsContext::load(&credentials).is_ok(), "a group may be let in");
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let e = TlsContext::load(&credentials).unwrap_err().to_string();
    assert!(e.contains("chmod o= "), "{e}");
}

/// A client of OpenSSL's own, as `prepare` makes it, up to the end of the handshake.
fn handshake(port: u16, context: &SslContext, prepare: impl FnOnce(&mut SslRef)) -> Result<Secured, String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.read_exact(&mut [0; 18]).unwrap();
    socket.write_all(&[&[0, 0, 0, 3][..], &option(5, &[])].concat()).unwrap();
    socket.read_exact(&mut [0; 20]).unwrap();
    let mut ssl = Ssl::new(context).unwrap();
    prepare(&mut ssl);
    let mut stream = ssl.connect(socket).map_err(|e| e.to_string())?;
    // A server that does not like the client says so when the handshake is over for the client.
    stream.write_all(&crate::common::client::option(3, &[])).map_err(|e| e.to_string())?;
    stream.read_exact(&mut [0; 20]).map_err(|e| e.to_string())?;
    Ok(stream)
}

type Secured = SslStream<TcpStream>;

/// A client with its certificate, of TLS up to `version`.
fn openssl_client(dir: &Path, version: SslVersion, ciphers: &str) -> SslContext {
    let mut c = SslContext::builder(SslMethod::tls_client()).unwrap();
    c.set_max_proto_version(Some(version)).unwrap();
    c.set_cipher_list(ciphers).unwrap();
    c.set_certificate_file(dir.join("client-cert.pem"), SslFiletype::PEM).unwrap();
    c.set_private_key_file(dir.join("client-key.pem"), SslFiletype::PEM).unwrap();
    c.build()
}

#[test]
fn a_session_of_tls_1_2_is_not_resumed_and_its_client_returns() {
    let dir = pki();
    let (_s, port) = tcp(x509(dir.path(), true));
    let context = openssl_client(dir.path(), SslVersion::TLS1_2, "DEFAULT");
    let mut session: Option<SslSession> = None;
    for round in 0..3 {
        let stream = handshake(port, &context, |ssl| {
            if let Some(s) = &session {
                // SAFETY: the session is one of the same context.
                unsafe { ssl.set_session(s) }.unwrap();
            }
        });
        let stream = stream.unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(!stream.ssl().session_reused());
        session = stream.ssl().session().map(|s| s.to_owned());
    }
}

#[test]
fn only_ciphers_with_forward_secrecy_and_aead_are_taken() {
    let dir = pki();
    let (_s, port) = tcp(x509(dir.path(), true));
    for (ciphers, may) in [
        ("ECDHE-ECDSA-AES256-GCM-SHA384", true),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", true),
        ("ECDHE-ECDSA-AES256-SHA384", false),
        ("ECDHE-ECDSA-AES128-SHA", false),
    ] {
        let context = openssl_client(dir.path(), SslVersion::TLS1_2, ciphers);
        assert_eq!(handshake(port, &context, |_| {}).is_ok(), may, "{ciphers}");
    }
}

#[test]
fn certificates_that_are_read_again_hold_for_new_clients() {
    let dir = pki();
    let tls = x509(dir.path(), true);
    let (_s, port) = tcp(tls.clone());
    let context = openssl_client(dir.path(), SslVersion::TLS1_3, "DEFAULT");
    let serial = || {
        let stream = handshake(port, &context, |_| {}).unwrap();
        let shown = stream.ssl().peer_certificate().unwrap();
        shown.serial_number().to_bn().unwrap().to_string()
    };
    assert_eq!(serial(), "2");
    let ca = certificate("test CA", 1, None);
    save(dir.path(), "server", &certificate("localhost", 22, Some(&ca)));
    assert_eq!(serial(), "2", "nobody has said so yet");
    tls.renew().unwrap();
    assert_eq!(serial(), "22");
    std::fs::write(dir.path().join("server-key.pem"), "no key").unwrap();
    assert!(tls.renew().is_err());
    assert_eq!(serial(), "22", "what cannot be used changes nothing");
}

/// The first message of a client, as whoever has seen one can send it again.
fn canned_hello() -> Vec<u8> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let context = SslContext::builder(SslMethod::tls_client()).unwrap().build();
    let stopped = Ssl::new(&context).unwrap().connect(ours);
    assert!(stopped.is_err(), "nobody has answered");
    drop(stopped);
    let mut hello = Vec::new();
    theirs.read_to_end(&mut hello).unwrap();
    // What ends it is an alert of the client's that gives up, if there is one.
    let len = 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]]));
    hello.truncate(len);
    hello
}

/// Clients of a server that is driven by hand, with a key that is slow to sign by.
struct Flood {
    server: Server,
    now: Instant,
    hello: Vec<u8>,
}

impl Flood {
    fn new(dir: &Path, connections: usize) -> Flood {
        let key = PKey::from_rsa(Rsa::generate(4096).unwrap()).unwrap();
        save(dir, "server", &certificate_of(key, "localhost", 2, Some(&certificate("test CA", 1, None))));
        let limits = Limits { connections, ..Limits::default() };
        let server = Server::new(Export::new("disk", SIZE as u64), limits, Some(x509(dir, false)));
        Flood { server, now: Instant::now(), hello: canned_hello() }
    }

    fn flush(&mut self) {
        self.server.flush(self.now, &mut Vec::new());
    }

    /// A client of this host, up to its first message of TLS.
    fn come(&mut self, host: u8) -> UnixStream {
        let (id, mut theirs) = self.begin(Peer::Host(Ipv4Addr::new(192, 0, 2, host).into()));
        theirs.write_all(&self.hello).unwrap();
        self.hear(id);
        theirs
    }

    /// The server takes what this client has sent.
    fn hear(&mut self, id: ConnId) {
        self.server.on_readable(id, self.now, &mut Vec::new());
        self.flush();
    }

    /// A client of this peer that may begin TLS now.
    fn begin(&mut self, peer: Peer) -> (ConnId, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let id = self.server.add(ours.into(), peer, self.now).unwrap();
        self.flush();
        theirs.write_all(&[&[0, 0, 0, 3][..], &option(5, &[])].concat()).unwrap();
        self.hear(id);
        theirs.read_exact(&mut [0; 18 + 20]).unwrap();
        theirs.set_nonblocking(true).unwrap();
        (id, theirs)
    }
}

fn is_answered(mut client: &UnixStream) -> bool {
    client.read(&mut [0; 16 << 10]).is_ok_and(|n| n > 0)
}

#[test]
fn a_flood_of_handshakes_has_a_part_of_the_time_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut flood = Flood::new(dir.path(), 1000);
    let strangers: Vec<_> = (0..300).map(|_| flood.come(1)).collect();
    let answered = strangers.iter().filter(|c| is_answered(c)).count();
    assert!((1..150).contains(&answered), "{answered} signatures in no time at all");
    let client = flood.come(2);
    assert!(!is_answered(&client), "there is no credit left");
    let due = flood.server.next_deadline(flood.now).unwrap();
    flood.now = due;
    flood.server.tick(due, &mut Vec::new());
    assert!(is_answered(&client), "another host waits behind the queue of the first");
    let debt = due + Duration::from_secs(5);
    flood.now = debt;
    for _ in 0..strangers.len() {
        flood.server.tick(flood.now, &mut Vec::new());
        flood.now += Duration::from_millis(15);
    }
    let more = strangers.iter().filter(|c| is_answered(c)).count();
    assert!(more > 0, "those who waited go on when there is time");
}

#[test]
fn always_new_peers_of_a_site_end_no_begun_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let mut flood = Flood::new(dir.path(), 64);
    let (id, socket) = flood.begin(Peer::Host(Ipv4Addr::new(192, 0, 2, 1).into()));
    let context = SslContext::builder(SslMethod::tls_client()).unwrap().build();
    let begun = Ssl::new(&context).unwrap().connect(socket);
    let Err(HandshakeError::WouldBlock(begun)) = begun else { panic!("nobody has answered: {begun:?}") };
    flood.hear(id);
    let mut client = begun.handshake().expect("the answer to its first message");

    let mut newcomers = Vec::new();
    for n in 0..300 {
        let peer = Peer::Host(Ipv6Addr::new(0x2001, 0xdb8, 1, n, 0, 0, 0, 0).into());
        let (id, mut socket) = flood.begin(peer);
        socket.write_all(&flood.hello).unwrap();
        flood.hear(id);
        newcomers.push(socket);
    }
    client.write_all(&option(7, &info("", &[]))).unwrap();
    flood.hear(id);
    flood.now = flood.server.next_deadline(flood.now).unwrap();
    flood.server.tick(flood.now, &mut Vec::new());
    let mut answer = [0; 4];
    client.read_exact(&mut answer).expect("it has come in");
    assert_eq!(answer, 0x0003_e889_u32.to_be_bytes(), "the answer to an option");
}
