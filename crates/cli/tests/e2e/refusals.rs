//! Every refusal: an exit status that says so, nothing on stdout, cause and mend on stderr.

use crate::nbd::Client;
use crate::rig::{MIB, Rig};
use std::fs;
use std::os::unix::fs::FileExt;

/// Runs `loligo serve` with these; it must be refused, naming all of `words`.
fn refuses(rig: &Rig, args: &[&str], words: &[&str]) {
    let said = rig.refused(args);
    for word in words {
        assert!(said.contains(word), "{args:?}: no '{word}' in: {said}");
    }
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is() {
    let rig = Rig::new(16 * MIB);
    let bare = [
        "serve",
        "--name",
        "vol",
        "--cache",
        "cache",
        "--core",
        "file:core",
        "--listen",
        "unix:sock",
        "--mode",
        "wb",
    ];
    refuses(&rig, &bare, &["does not exist", "--cache-size"]);
    refuses(&rig, &rig.args(&["--cache-size", "23m"]), &["24 MiB"]);
    refuses(&rig, &rig.args(&["--shards", "65"]), &["--shards", "64"]);
    refuses(&rig, &rig.args(&["--core-reserve", "51"]), &["--core-reserve", "50"]);
    refuses(&rig, &rig.args(&["--listen", "tcp:0.0.0.0:0"]), &["without TLS", "--tls-cert"]);
    refuses(&rig, &rig.args(&["--metrics", "192.0.2.1:9"]), &["--metrics", "an address of this host"]);
    refuses(&rig, &rig.args(&["--tls-psk", "missing"]), &["missing"]);
    refuses(&rig, &rig.args(&["--stats-json", "missing/s.json"]), &["missing/s.json", "--stats-json"]);
    refuses(&rig, &rig.args(&["--listen", "unix:sock"]), &["unix:sock", "twice"]);
    let mut args = rig.args(&["--shards", "2"]);
    args[6] = "hdd:core?rpm=7200";
    refuses(&rig, &args, &["one set of heads"]);
    // Known only once the core and the new cache are open.
    let fits_no_page = rig.args(&["--core-reserve", "50", "--cache-size", "24m", "--shards", "60"]);
    refuses(&rig, &fits_no_page, &["--shards"]);
    assert!(!rig.path("cache").exists(), "nothing was made");
    let mut args = rig.args(&[]);
    args[2] = "../vol";
    refuses(&rig, &args, &["'../vol'", "letters"]);
    let mut args = rig.args(&[]);
    args[6] = "file:nothing";
    refuses(&rig, &args, &["nothing", "--core"]);
    let mut args = rig.args(&[]);
    args[4] = "core";
    refuses(&rig, &args, &["same device"]);
}

#[test]
fn what_the_command_line_cannot_mean_is_said_by_its_parser() {
    let rig = Rig::new(16 * MIB);
    for (more, word) in [
        (&["--line-size", "5k"][..], "64k"),
        (&["--cache-size", "1x"], "not a size"),
        (&["--mode", "wx"], "wt, wb, wa"),
        (&["--bare"], "--bare"),
        (&["--tls-cert", "a"], "--tls-key"),
        (&["--tls-cert", "a", "--tls-key", "b", "--tls-psk", "c"], "--tls-psk"),
        (&["--listen", "udp:1"], "unix:"),
    ] {
        let out = rig.run(&rig.args(more));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            out.status.code() == Some(2) && out.stdout.is_empty() && said.contains(word),
            "{more:?}: {said}"
        );
    }
}

#[test]
fn foreign_data_is_overwritten_only_when_that_is_said() {
    let rig = Rig::new(16 * MIB);
    let mut foreign = vec![0; 32 << 20];
    foreign[..4].copy_from_slice(b"XFSB");
    fs::write(rig.path("cache"), &foreign).unwrap();
    refuses(&rig, &rig.args(&[]), &["XFS", "--force"]);
    assert!(fs::read(rig.path("cache")).unwrap() == foreign, "and nothing was touched");
    refuses(&rig, &rig.args(&["--force", "--cache-size", "64m"]), &["--cache-size"]);
    refuses(&rig, &rig.args(&["--force", "--shards", "60"]), &["--shards"]);
    assert!(
        fs::read(rig.path("cache")).unwrap() == foreign,
        "what is refused all the same is not wiped first"
    );
    for range in [2 << 20..16 << 20, (32 << 20) - 5000..(32 << 20) - 4000] {
        foreign.fill(0);
        foreign[range].fill(0x5a);
        fs::write(rig.path("cache"), &foreign).unwrap();
        refuses(&rig, &rig.args(&[]), &["somebody else's", "--force"]);
        assert!(fs::read(rig.path("cache")).unwrap() == foreign);
    }
    rig.serve(&["--force"]).stop();
    rig.serve(&[]).stop();
}

#[test]
fn an_existing_cache_keeps_its_geometry_and_goes_by_force_only() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&["--line-size", "8k"]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.write(0, &[7; 4096]).unwrap(), 0);
    served.stop();
    refuses(&rig, &rig.args(&["--line-size", "4k"]), &["--line-size 8192", "4096"]);
    refuses(&rig, &rig.args(&["--shards", "2"]), &["--shards 1"]);
    refuses(&rig, &rig.args(&["--core-reserve", "1"]), &["--core-reserve 0"]);
    refuses(&rig, &rig.args(&["--cache-size", "48m"]), &["--cache-size"]);
    refuses(&rig, &rig.args(&["--create"]), &["--create", "--force"]);
    rig.serve(&["--line-size", "8k", "--shards", "1", "--core-reserve", "0", "--cache-size", "32m"]).stop();
    let served = rig.serve(&["--create", "--force"]);
    assert!(served.said().contains("4096 bytes of dirty data"), "it says what is lost: {}", served.said());
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.read(0, 4096).unwrap(), [0; 4096]);
    served.stop();
}

#[test]
fn a_name_a_socket_and_devices_in_use_are_refused() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&[]);
    refuses(&rig, &rig.args(&[]), &["'vol' is being served", "--name"]);
    let mut args = rig.args(&[]);
    args[2] = "other";
    refuses(&rig, &args, &["sock is in use"]);
    args[8] = "unix:sock2";
    refuses(&rig, &args, &["in use by process", "loligo"]);
    served.stop();
}

#[test]
fn another_core_a_shrunken_one_and_replaced_content_are_refused() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..300u64 {
        assert_eq!(c.write(i * 4096, &[(i % 250) as u8 + 1; 4096]).unwrap(), 0);
    }
    rig.ok(&["flush", "vol"]);
    assert_eq!(c.write(8 * MIB, &[1; 4096]).unwrap(), 0);
    served.stop();
    let core = fs::File::options().write(true).open(rig.path("core")).unwrap();
    core.set_len(15 * MIB).unwrap();
    refuses(&rig, &rig.args(&[]), &["shrank"]);
    core.set_len(16 * MIB).unwrap();
    let right = fs::read(rig.path("core")).unwrap();
    core.write_all_at(&vec![0xaa; 2 << 20], 0).unwrap();
    refuses(&rig, &rig.args(&[]), &["another core", "--force"]);
    let clean = || rig.ok(&["inspect", "cache", "--json"]).contains("\"clean\": true");
    assert!(clean(), "it is still known that nothing happened since the clean stop");
    // One that is larger must not make the right one look as if it had shrunk.
    core.set_len(24 * MIB).unwrap();
    refuses(&rig, &rig.args(&[]), &["another core", "--force"]);
    assert!(clean());
    core.set_len(16 * MIB).unwrap();
    core.write_all_at(&right, 0).unwrap();
    let served = rig.serve(&[]);
    assert!(!served.said().contains("recovered"), "{}", served.said());
    served.stop();
    core.write_all_at(&vec![0xaa; 2 << 20], 0).unwrap();
    let served = rig.serve(&["--force"]);
    assert!(served.said().contains("4096 dirty bytes are kept"), "{}", served.said());
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.read(8 * MIB, 4096).unwrap(), [1; 4096]);
    assert_eq!(c.read(0, 4096).unwrap(), [0xaa; 4096]);
    served.stop();
}

#[test]
fn commands_say_that_a_volume_is_not_served() {
    let rig = Rig::new(16 * MIB);
    for args in [&["stats", "vol"][..], &["flush", "vol"], &["mode", "vol", "wt"], &["param", "get", "vol"]] {
        refuses(&rig, args, &["no volume 'vol' is being served", "LOLIGO_RUNTIME_DIR"]);
    }
}

#[test]
fn a_damaged_superblock_beside_a_wiped_one_is_damage() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.write(0, &[7; 4096]).unwrap(), 0);
    served.stop();
    let cache = fs::File::options().read(true).write(true).open(rig.path("cache")).unwrap();
    let mut sb = [0; 4096];
    cache.read_exact_at(&mut sb, 512 << 10).unwrap();
    sb[100] ^= 1;
    cache.write_all_at(&sb, 512 << 10).unwrap();
    cache.write_all_at(&[0; 4096], 0).unwrap();
    refuses(&rig, &rig.args(&[]), &["both superblocks are damaged", "--create --force"]);
}
