//! Listening sockets.

use loligo_export::{Guard, ListenAddr, ListenError, Listener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

fn addr(s: &str) -> ListenAddr {
    s.parse().unwrap()
}

#[test]
fn addresses_are_read_as_they_are_documented() {
    assert_eq!(addr("unix:/run/x.sock"), ListenAddr::Unix("/run/x.sock".into()));
    assert_eq!(addr("tcp:127.0.0.1:10809").to_string(), "tcp:127.0.0.1:10809");
    assert_eq!(addr("tcp:[::1]:10809").to_string(), "tcp:[::1]:10809");
    for bad in ["", "unix:", "/run/x", "tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:99999"] {
        let e = bad.parse::<ListenAddr>().unwrap_err().to_string();
        assert!(e.contains("unix:PATH or tcp:ADDR:PORT"), "{e}");
    }
    let long = format!("unix:/{}", "x".repeat(107)).parse::<ListenAddr>().unwrap_err();
    assert!(long.to_string().contains("107 bytes"));
}

#[test]
fn a_unix_socket_is_private_and_goes_with_its_listener() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let l = Listener::bind(&ListenAddr::Unix(path.clone()), Guard::Cleartext).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    let _client = UnixStream::connect(&path).unwrap();
    assert!(l.accept().unwrap().is_some() && l.accept().unwrap().is_none());
    drop(l);
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_refused() {
    let dir = tempfile::tempdir().unwrap();
    let a = ListenAddr::Unix(dir.path().join("s"));
    let ListenAddr::Unix(path) = &a else { unreachable!() };
    drop(UnixListener::bind(path).unwrap());
    assert!(path.exists(), "std leaves the file behind");
    let live = Listener::bind(&a, Guard::Cleartext).unwrap();
    let refused = Listener::bind(&a, Guard::Cleartext).unwrap_err();
    assert!(matches!(refused, ListenError::InUse(_)) && refused.to_string().contains("Stop it"));
    assert!(UnixStream::connect(path).is_ok(), "the refusal did not hurt the live one");
    drop(live);
    std::fs::write(path, "mine").unwrap();
    assert!(matches!(Listener::bind(&a, Guard::Cleartext).unwrap_err(), ListenError::NotASocket(_)));
    assert_eq!(std::fs::read(path).unwrap(), b"mine");
}

#[test]
fn a_listener_leaves_its_successors_socket_alone() {
    let dir = tempfile::tempdir().unwrap();
    let a = ListenAddr::Unix(dir.path().join("s"));
    let ListenAddr::Unix(path) = &a else { unreachable!() };
    let old = Listener::bind(&a, Guard::Cleartext).unwrap();
    std::fs::remove_file(path).unwrap();
    let _new = Listener::bind(&a, Guard::Cleartext).unwrap();
    drop(old);
    assert!(UnixStream::connect(path).is_ok());
}

#[test]
fn only_loopback_is_served_without_tls() {
    let e = Listener::bind(&addr("tcp:0.0.0.0:0"), Guard::Cleartext).unwrap_err();
    assert!(matches!(e, ListenError::Exposed(_)) && e.to_string().contains("--tls-cert"), "{e}");
    let e = Listener::bind(&addr("tcp:0.0.0.0:0"), Guard::Encrypted).unwrap_err();
    assert!(matches!(e, ListenError::Anonymous(_)) && e.to_string().contains("--anonymous"), "{e}");
    assert!(Listener::bind(&addr("tcp:0.0.0.0:0"), Guard::Decided).is_ok());
    assert!(Listener::bind(&addr("tcp:127.0.0.1:0"), Guard::Encrypted).is_ok());
    let l = Listener::bind(&addr("tcp:127.0.0.1:0"), Guard::Cleartext).unwrap();
    let ListenAddr::Tcp(real) = l.addr() else { unreachable!() };
    assert_ne!(real.port(), 0);
}
