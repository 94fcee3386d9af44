//! TLS as users switch it on: certificates, certificates of clients, pre-shared keys; and who is kept out.

use crate::rig::{MIB, Rig, Served, client, have};
use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509NameBuilder};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

type Pair = (X509, PKey<Private>);

/// A certificate for `name`, signed by `issuer` or by itself.
fn certificate(name: &str, serial: u32, issuer: Option<&Pair>) -> Pair {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut subject = X509NameBuilder::new().unwrap();
    subject.append_entry_by_text("CN", name).unwrap();
    let subject = subject.build();
    let mut b = X509Builder::new().unwrap();
    b.set_version(2).unwrap();
    b.set_serial_number(&BigNum::from_u32(serial).unwrap().to_asn1_integer().unwrap()).unwrap();
    b.set_subject_name(&subject).unwrap();
    b.set_issuer_name(issuer.map_or(&subject, |i| i.0.subject_name())).unwrap();
    b.set_pubkey(&key).unwrap();
    b.set_not_before(&Asn1Time::from_unix(1_600_000_000).unwrap()).unwrap();
    b.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
    let extension = if issuer.is_none() {
        BasicConstraints::new().critical().ca().build().unwrap()
    } else {
        let mut names = SubjectAlternativeName::new();
        names.dns("localhost").ip("127.0.0.1").build(&b.x509v3_context(None, None)).unwrap()
    };
    b.append_extension(extension).unwrap();
    b.sign(issuer.map_or(&key, |i| &i.1), MessageDigest::sha256()).unwrap();
    (b.build(), key)
}

/// In the folder `pki`, with libnbd's names: the authority, the server, a client of it; and in `stranger` and `other`
/// what a client has that shows no certificate, or one of another authority.
fn certificates(rig: &Rig) {
    for folder in ["pki", "stranger", "other"] {
        fs::create_dir(rig.path(folder)).unwrap();
    }
    let save = |at: &str, name: &str, pair: &Pair| {
        fs::write(rig.path(at).join(format!("{name}-cert.pem")), pair.0.to_pem().unwrap()).unwrap();
        fs::write(rig.path(at).join(format!("{name}-key.pem")), pair.1.private_key_to_pem_pkcs8().unwrap())
            .unwrap();
    };
    let (ca, other) = (certificate("our CA", 1, None), certificate("another CA", 1, None));
    for at in ["pki", "stranger", "other"] {
        save(at, "ca", &ca);
    }
    save("pki", "server", &certificate("localhost", 2, Some(&ca)));
    save("pki", "client", &certificate("client", 3, Some(&ca)));
    save("other", "client", &certificate("client", 4, Some(&other)));
}

fn nbdinfo(rig: &Rig, uri: &str) -> Output {
    Command::new("nbdinfo").arg(uri).current_dir(rig.dir.path()).output().unwrap()
}

/// nbdinfo may not come in by `uri`.
fn kept_out(rig: &Rig, uri: &str) {
    let out = nbdinfo(rig, uri);
    assert!(!out.status.success(), "{uri} came in: {}", String::from_utf8_lossy(&out.stdout));
}

/// Writes and reads an image through `uri`.
fn copies(rig: &Rig, uri: &str) {
    let image: Vec<u8> = (0..4u32 << 20).map(|i| (i.wrapping_mul(7919) >> 9) as u8).collect();
    fs::write(rig.path("in"), &image).unwrap();
    client(rig.dir.path(), "nbdcopy", &["--flush", "in", uri]);
    client(rig.dir.path(), "nbdcopy", &[uri, "out"]);
    assert!(fs::read(rig.path("out")).unwrap()[..image.len()] == image);
}

/// After whatever was tried the volume is served as before, and stops cleanly. Its words on stderr.
fn unhurt(rig: &Rig, served: Served, uri: &str) -> String {
    assert!(nbdinfo(rig, uri).status.success());
    assert!(rig.stats()["poisoned"].is_null());
    served.stop()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_volume_with_a_certificate_serves_those_who_trust_it_alone() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    let rig = Rig::new(16 * MIB);
    certificates(&rig);
    let port = free_port();
    let listen = format!("tcp:127.0.0.1:{port}");
    let keys = ["--tls-cert", "pki/server-cert.pem", "--tls-key", "pki/server-key.pem"];
    let served = rig.serve(&[&["--listen", &listen][..], &keys].concat());
    let socket = rig.path("sock").display().to_string();
    let pki = |of: &str| rig.path(of).display().to_string();
    let over_tcp = format!("nbds://localhost:{port}/vol?tls-certificates={}", pki("pki"));
    let over_unix = format!(
        "nbds+unix:///vol?socket={socket}&tls-certificates={}&tls-hostname=localhost",
        pki("stranger")
    );
    for uri in [&over_tcp, &over_unix] {
        let out = nbdinfo(&rig, uri);
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("with TLS"), "{uri}: {text}");
        copies(&rig, uri);
    }
    for uri in [format!("nbd://127.0.0.1:{port}/vol"), rig.uri(), format!("nbd+unix:///?socket={socket}")] {
        kept_out(&rig, &uri);
        if have("qemu-img") {
            let out = Command::new("qemu-img").args(["info", &uri]).output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(!out.status.success() && said.contains("TLS clients only"), "{uri}: {said}");
        }
    }
    let list = Command::new("nbdinfo").args(["--list", &rig.uri()]).output().unwrap();
    assert!(!list.status.success(), "not even the list is told in the clear");
    unhurt(&rig, served, &over_tcp);
}

#[test]
fn with_an_authority_for_clients_only_its_certificates_enter() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    let rig = Rig::new(16 * MIB);
    certificates(&rig);
    let keys = [
        "--tls-cert",
        "pki/server-cert.pem",
        "--tls-key",
        "pki/server-key.pem",
        "--tls-ca",
        "pki/ca-cert.pem",
    ];
    let served = rig.serve(&keys);
    let uri = |of: &str| {
        let socket = rig.path("sock").display().to_string();
        let folder = rig.path(of).display().to_string();
        format!("nbds+unix:///vol?socket={socket}&tls-certificates={folder}&tls-hostname=localhost")
    };
    copies(&rig, &uri("pki"));
    for of in ["stranger", "other"] {
        kept_out(&rig, &uri(of));
    }
    kept_out(&rig, &rig.uri());
    unhurt(&rig, served, &uri("pki"));
}

#[test]
fn a_reload_has_a_running_daemon_show_new_certificates() {
    if !have("nbdinfo") {
        return;
    }
    let rig = Rig::new(16 * MIB);
    certificates(&rig);
    let at = |name: &str| rig.path(name).display().to_string();
    // Over TCP: on unix sockets libnbd does not look at the server's certificate.
    let port = free_port();
    let config = format!(
        "[daemon]\nstate-dir = \"{}\"\n[volume.vol]\ncore = \"{}\"\nlisten = [\"tcp:127.0.0.1:{port}\"]\n\
         tls = {{ cert = \"{}\", key = \"{}\" }}\n",
        at("state"),
        at("core"),
        at("pki/server-cert.pem"),
        at("pki/server-key.pem")
    );
    fs::write(rig.path("loligod.toml"), config).unwrap();
    let served = rig.serve_args(&["daemon", "--config", "loligod.toml"]);
    let uri = |of: &str| format!("nbds://localhost:{port}/vol?tls-certificates={}", at(of));
    // The next certificate, of another authority, which the clients of 'next' trust.
    fs::create_dir(rig.path("next")).unwrap();
    let ca = certificate("the next CA", 9, None);
    fs::write(rig.path("next/ca-cert.pem"), ca.0.to_pem().unwrap()).unwrap();
    let (cert, key) = certificate("localhost", 10, Some(&ca));
    let comes_in = |of: &str| nbdinfo(&rig, &uri(of)).status.success();
    assert!(comes_in("pki") && !comes_in("next"));

    fs::write(rig.path("pki/server-cert.pem"), cert.to_pem().unwrap()).unwrap();
    let said = rig.refused(&["config", "reload"]);
    assert!(said.contains("vol: its TLS goes on with what it had"), "the key is another's: {said}");
    assert!(said.contains("pki/server-key.pem"), "{said}");
    assert!(comes_in("pki") && !comes_in("next"), "a reload of half a pair changes nothing");

    fs::write(rig.path("pki/server-key.pem"), key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    let said = rig.ok(&["config", "reload"]);
    assert!(said.contains("vol: its files for TLS are read again"), "{said}");
    assert!(comes_in("next") && !comes_in("pki"), "from the next client on");
    served.stop();
}

#[test]
fn a_pre_shared_key_lets_its_user_in_and_nobody_else() {
    if !have("nbdinfo") || !have("nbdcopy") {
        return;
    }
    let rig = Rig::new(16 * MIB);
    let (alice, bob) = ("a1".repeat(32), "b2".repeat(32));
    fs::write(rig.path("keys"), format!("alice:{alice}\nbob:{bob}\n")).unwrap();
    fs::set_permissions(rig.path("keys"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(rig.path("wrong"), format!("alice:{bob}\nmallory:{alice}\n")).unwrap();
    let port = free_port();
    let listen = format!("tcp:127.0.0.1:{port}");
    let served = rig.serve(&["--listen", &listen, "--tls-psk", "keys"]);
    let uri = |user: &str, file: &str| {
        format!("nbds://{user}@127.0.0.1:{port}/vol?tls-psk-file={}", rig.path(file).display())
    };
    copies(&rig, &uri("alice", "keys"));
    copies(&rig, &uri("bob", "keys"));
    for (user, file) in [("alice", "wrong"), ("mallory", "wrong"), ("mallory", "keys")] {
        kept_out(&rig, &uri(user, file));
    }
    kept_out(&rig, &format!("nbd://127.0.0.1:{port}/vol"));
    let log = unhurt(&rig, served, &uri("alice", "keys"));
    assert!(log.contains("failed to log in") && log.contains("from=127.0.0.1:"), "{log}");
}

#[test]
fn beyond_loopback_tcp_has_tls_and_unfit_files_are_refused() {
    let rig = Rig::new(16 * MIB);
    certificates(&rig);
    for address in ["tcp:0.0.0.0:0", "tcp:[::]:0"] {
        let said = rig.refused(&rig.args(&["--listen", address]));
        assert!(said.contains("without TLS") && said.contains("--tls-cert"), "{said}");
    }
    let keys = ["--tls-cert", "pki/server-cert.pem", "--tls-key", "pki/server-key.pem"];
    let said = rig.refused(&rig.args(&[&["--listen", "tcp:0.0.0.0:0"][..], &keys].concat()));
    assert!(said.contains("--tls-ca") && said.contains("--anonymous"), "{said}");
    let keys = ["--tls-cert", "pki/server-cert.pem", "--tls-key", "pki/client-key.pem"];
    let said = rig.refused(&rig.args(&keys));
    assert!(said.contains("client-key.pem") && said.contains("server-cert.pem"), "{said}");
    assert!(!rig.path("cache").exists(), "nothing was made");
    let port = free_port();
    let listen = format!("tcp:0.0.0.0:{port}");
    let keys = [
        "--listen",
        &listen,
        "--tls-cert",
        "pki/server-cert.pem",
        "--tls-key",
        "pki/server-key.pem",
        "--anonymous",
    ];
    let served = rig.serve(&keys);
    if have("nbdinfo") {
        let folder = rig.path("pki").display().to_string();
        unhurt(&rig, served, &format!("nbds://localhost:{port}/vol?tls-certificates={folder}"));
    }
}
