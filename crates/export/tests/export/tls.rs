//! TLS with real clients, and what happens to those who come with the wrong credentials or none.

use crate::common::volume::Volume;
use crate::common::{Running, SIZE, client, installed};
use loligo_export::{Credentials, Limits, TlsContext};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use std::path::Path;

type Pair = (X509, PKey<Private>);

/// A certificate for `name` (and 127.0.0.1), signed by `issuer` or by itself.
fn certificate(name: &str, serial: u32, issuer: Option<&Pair>) -> Pair {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
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
    })
    .unwrap()
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
fn a_client_without_certificate_is_refused_where_one_is_asked_for_and_cleartext_always() {
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
    std::fs::write(&keys, format!("alice:{alice}\nbob:{}\n", "b2".repeat(16))).unwrap();
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
    std::fs::write(&keys, format!("qemu:{}\n", "0f".repeat(32))).unwrap();
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
    let x =
        |cert: &str, key: &str| Credentials::X509 { cert: d.join(cert), key: d.join(key), client_ca: None };
    let error = |c: &Credentials| TlsContext::load(c).unwrap_err().to_string();
    assert!(error(&x("none.pem", "server-key.pem")).contains("none.pem"));
    let mixed = error(&x("server-cert.pem", "client-key.pem"));
    assert!(mixed.contains("client-key.pem") && mixed.contains("server-cert.pem"), "{mixed}");
    for bad in ["", "alice", "alice:xyz", "alice:00", ":00112233445566778899"] {
        std::fs::write(d.join("k"), bad).unwrap();
        let e = error(&Credentials::Psk { file: d.join("k") });
        assert!(e.contains("user:hexkey"), "{bad}: {e}");
    }
}
