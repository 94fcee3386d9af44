//! Commands against a running volume.

use crate::nbd::Client;
use crate::rig::{MIB, Rig};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const KEYS: [&str; 17] = [
    "name",
    "mode",
    "uptime_s",
    "cache_bytes",
    "occupied_bytes",
    "dirty_bytes",
    "read_hits",
    "read_misses",
    "write_hits",
    "write_misses",
    "crc_errors",
    "crc_repaired",
    "io_errors",
    "cache_read_bytes",
    "cache_write_bytes",
    "core_read_bytes",
    "core_write_bytes",
];

#[test]
fn numbers_flush_mode_and_tunables_of_a_running_volume() {
    let rig = Rig::new(64 * MIB);
    let served = rig.serve(&["--stats-json", "numbers.json", "--metrics", "127.0.0.1:0"]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..100 {
        assert_eq!(c.write(i * 8192, &[i as u8; 4096]).unwrap(), 0);
    }
    c.read(0, 4096).unwrap();
    let s = rig.stats();
    for key in KEYS {
        assert!(!s[key].is_null(), "{key}");
    }
    assert_eq!((&s["write_misses"], &s["read_hits"], &s["mode"]), (&100.into(), &1.into(), &"wb".into()));
    assert_eq!((&s["write_bytes"], &s["read_bytes"]), (&(100 * 4096).into(), &4096.into()));
    assert_eq!(s["histograms"]["write"]["count"], 100);
    assert!(s["histograms"]["read"]["p999_us"].is_number() && s["bypass"]["sequential"].is_number());
    let text = rig.ok(&["stats", "vol"]);
    assert!(text.contains("latencies\n") && text.contains("longest") && text.contains("MB/s"), "{text}");

    rig.ok(&["flush", "vol"]);
    assert_eq!(rig.stats()["dirty_bytes"], 0);
    rig.ok(&["mode", "vol", "wt"]);
    assert_eq!(c.write(MIB * 9, &[9; 4096]).unwrap(), 0);
    assert_eq!((&rig.stats()["dirty_bytes"], &rig.stats()["mode"]), (&0.into(), &"wt".into()));
    rig.ok(&["mode", "vol", "wb"]);
    assert_eq!(c.write(MIB * 9, &[8; 4096]).unwrap(), 0);
    rig.ok(&["mode", "vol", "pt", "--flush"]);
    assert_eq!(rig.stats()["dirty_bytes"], 0);
    assert_eq!(c.read(MIB * 9, 4096).unwrap(), [8; 4096]);

    let table = rig.ok(&["param", "get", "vol"]);
    for key in [
        "ack",
        "large-writes",
        "seq-cutoff",
        "seq-threshold",
        "seq-promotion",
        "replacement",
        "admission",
        "promote-run",
        "destage-low",
        "destage-rate",
        "destage-age",
        "snapshot-deadline",
    ] {
        assert!(table.contains(key), "{table}");
    }
    assert_eq!(rig.ok(&["param", "get", "vol", "seq-threshold"]).trim(), "1048576");
    rig.ok(&["param", "set", "vol", "replacement", "lru"]);
    assert_eq!(rig.ok(&["param", "get", "vol", "replacement"]).trim(), "lru");
    assert!(rig.refused(&["param", "set", "vol", "destage-low", "91"]).contains("0 to 90"));
    assert!(rig.refused(&["param", "set", "vol", "destage", "1"]).contains("destage-low"));

    std::thread::sleep(Duration::from_millis(1100));
    let file: serde_json::Value =
        serde_json::from_slice(&std::fs::read(rig.path("numbers.json")).unwrap()).unwrap();
    assert_eq!(file["mode"], "pt", "rewritten every second");
    served.stop();
}

#[test]
fn prometheus_text_is_served_on_loopback() {
    let rig = Rig::new(16 * MIB);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let addr = format!("127.0.0.1:{port}");
    let served = rig.serve(&["--metrics", &addr]);
    let mut silent: Vec<_> = (0..100).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    let mut s = TcpStream::connect(&addr).unwrap();
    s.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    s.read_to_string(&mut text).unwrap();
    for s in silent.iter_mut().step_by(33) {
        // Half a head, and then nothing: the server does not wait for ever. The oldest may have been cut off by now.
        s.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = s.write_all(b"GET /met");
        let ended = s.read_to_end(&mut Vec::new());
        assert!(
            ended.as_ref().map_or_else(|e| e.kind() == ErrorKind::ConnectionReset, |_| true),
            "{ended:?}"
        );
    }
    for line in [
        "# HELP loligo_read_hits read hits",
        "# TYPE loligo_read_hits counter",
        "loligo_read_hits_total{volume=\"vol\"} 0",
        "loligo_dirty_bytes{volume=\"vol\"} 0",
        "loligo_bypass_total{volume=\"vol\",reason=\"mode\"} 0",
        "# TYPE loligo_latency_seconds histogram",
        "loligo_latency_seconds_bucket{le=\"0.001\",volume=\"vol\",op=\"write\"} 0",
        "loligo_latency_seconds_bucket{le=\"+Inf\",volume=\"vol\",op=\"write\"} 0",
        "# EOF",
        "loligo_latency_seconds_count{volume=\"vol\",op=\"write\"} 0",
        "loligo_volume_state{volume=\"vol\",state=\"serving\"} 1",
    ] {
        assert!(text.contains(line), "no '{line}' in {text}");
    }
    served.stop();
}
