//! A device that several cores share, as `loligo cache` and `loligo serve` have it.

use crate::nbd::Client;
use crate::rig::{MIB, Rig, Served};
use serde_json::Value;
use std::fs::File;

/// A pool of 200 MiB with `osd0` and `osd1`, and cores for both.
fn pool() -> Rig {
    let rig = Rig::new(64 * MIB);
    File::create(rig.path("core1")).unwrap().set_len(48 * MIB).unwrap();
    rig.ok(&["cache", "create", "pool", "--size", "200m", "--sparse"]);
    assert_eq!(
        rig.ok(&["cache", "attach", "pool", "--name", "osd0", "--min", "32m", "--max", "128m"]),
        "0\n"
    );
    assert_eq!(rig.ok(&["cache", "attach", "pool", "--core", "7", "--name", "osd1", "--min", "32m"]), "7\n");
    rig
}

fn args<'a>(cache: &'a str, core: &'a str) -> Vec<&'a str> {
    vec!["serve", "--name", "vol", "--cache", cache, "--core", core, "--listen", "unix:sock", "--mode", "wb"]
}

fn serve(rig: &Rig, cache: &str, core: &str) -> (Served, Client) {
    let served = rig.serve_args(&args(cache, core));
    (served, Client::connect(&rig.path("sock"), "vol").unwrap())
}

fn shown(rig: &Rig) -> Value {
    serde_json::from_str(&rig.ok(&["cache", "show", "pool", "--json"])).unwrap()
}

fn core(shown: &Value, number: u64) -> &Value {
    shown["cores"].as_array().unwrap().iter().find(|c| c["core"] == number).unwrap()
}

#[test]
fn each_core_of_a_pool_finds_its_data_after_stops_and_kills() {
    let rig = pool();
    for (cache, core, byte) in [("pool:pool#0", "file:core", 1u8), ("pool:pool#osd1", "file:core1", 2)] {
        let (served, mut c) = serve(&rig, cache, core);
        assert!(served.said().contains("made a new cache"), "{}", served.said());
        for i in 0..200u64 {
            assert_eq!(c.write(i * 8192, &[byte; 4096]).unwrap(), 0);
        }
        c.flush().unwrap();
        if byte == 1 { served.kill() } else { drop(served.stop()) }
    }
    for (cache, core, byte) in [("pool:pool#osd0", "file:core", 1u8), ("pool:pool#7", "file:core1", 2)] {
        let (served, mut c) = serve(&rig, cache, core);
        for i in 0..200u64 {
            assert_eq!(c.read(i * 8192, 4096).unwrap(), [byte; 4096]);
        }
        served.stop();
    }
    let shown = shown(&rig);
    assert_eq!(core(&shown, 0)["clean"], true);
    assert!(core(&shown, 7)["dirty_bytes"].as_u64().unwrap() > 0);
    assert_eq!(core(&shown, 0)["min"], 32 * MIB);
    let json: Value = serde_json::from_str(&rig.ok(&["inspect", "pool:pool#7", "--json"])).unwrap();
    assert!(json["dirty_bytes"].as_u64().unwrap() > 0 && json["damage"] == serde_json::json!([]));
    assert!(rig.refused(&["release", "pool:pool#7"]).contains("--flush-on-stop"));
}

#[test]
fn a_pool_belongs_to_one_process_and_a_cache_to_one_core() {
    let rig = pool();
    let (served, _c) = serve(&rig, "pool:pool#0", "file:core");
    let said = rig.refused(&["cache", "show", "pool"]);
    assert!(said.contains("in use by process"), "{said}");
    let mut other = args("pool:pool#7", "file:core1");
    (other[2], other[8]) = ("other", "unix:other");
    let said = rig.refused(&other);
    assert!(said.contains("in use by process"), "{said}");
    served.stop();
    let said = rig.refused(&args("pool:pool#0", "file:core1"));
    assert!(said.contains("it shrank, or it is another one"), "{said}");
    for (spec, word) in [
        ("pool:pool", "pool:PATH#CORE"),
        ("pool:pool#3", "has no core 3"),
        ("pool:pool#osd9", "no core named 'osd9'"),
        ("pool:core#0", "no Loligo pool"),
        ("pool:nothing#0", "loligo cache create"),
        ("pool", "a Loligo pool"),
    ] {
        let said = rig.refused(&args(spec, "file:core1"));
        assert!(said.contains(word), "{spec}: {said}");
    }
    let mut sized = args("pool:pool#0", "file:core");
    sized.extend(["--cache-size", "32m"]);
    assert!(rig.refused(&sized).contains("the pool says"));
    let said = rig.refused(&args("pool:pool#0", "file:pool"));
    assert!(said.contains("same device"), "{said}");
}

#[test]
fn a_pool_is_made_over_content_by_force_and_ends_with_no_member() {
    let rig = pool();
    assert!(rig.refused(&["cache", "create", "pool"]).contains("holds the pool"));
    assert!(rig.refused(&["cache", "create", "small", "--size", "63m"]).contains("64 MiB"));
    assert!(!rig.path("small").exists());
    assert!(rig.refused(&["cache", "create", "nothing"]).contains("--size"));
    rig.serve(&["--cache-size", "64m"]).stop();
    assert!(rig.refused(&["cache", "create", "cache"]).contains("the cache of volume 'vol'"));
    std::fs::write(rig.path("foreign"), vec![7; 64 << 20]).unwrap();
    assert!(rig.refused(&["cache", "create", "foreign"]).contains("unknown data"));
    rig.ok(&["cache", "create", "foreign", "--force"]);
    assert!(rig.refused(&["cache", "dissolve", "pool"]).contains("detach them first"));
    rig.ok(&["cache", "detach", "pool", "0"]);
    rig.ok(&["cache", "detach", "pool", "osd1"]);
    rig.ok(&["cache", "dissolve", "pool"]);
    assert!(rig.refused(&["cache", "show", "pool"]).contains("no Loligo pool"));
}

#[test]
fn a_core_is_attached_once_and_detached_when_its_cache_is_clean() {
    let rig = pool();
    let attach = |more: &[&str]| {
        let mut all = vec!["cache", "attach", "pool", "--min", "32m"];
        all.extend(more);
        rig.refused(&all)
    };
    assert!(attach(&["--core", "7", "--name", "x"]).contains("attached already, as 'osd1'"));
    assert!(attach(&["--name", "osd1"]).contains("has the name"));
    assert!(attach(&["--core", "5000", "--name", "x"]).contains("0 to 4095"));
    assert!(attach(&["--name", "x", "--min", "1m"]).contains("--min"));
    let (served, mut c) = serve(&rig, "pool:pool#0", "file:core");
    assert_eq!(c.write(0, &[9; 4096]).unwrap(), 0);
    served.kill();
    let said = rig.refused(&["cache", "detach", "pool", "0"]);
    assert!(
        said.contains("4096 bytes that its core does not have") && said.contains("--flush-on-stop"),
        "{said}"
    );
    let (served, _) = serve(&rig, "pool:pool#0", "file:core");
    rig.ok(&["flush", "vol"]);
    served.stop();
    rig.ok(&["cache", "detach", "pool", "0"]);
    // The next one with that number finds nothing of the one before.
    rig.ok(&["cache", "attach", "pool", "--core", "0", "--name", "osd2", "--min", "32m"]);
    let (served, _) = serve(&rig, "pool:pool#0", "file:core1");
    assert!(served.said().contains("made a new cache"), "{}", served.said());
    served.stop();
}

#[test]
fn a_stopped_share_grows_and_shrinks_and_keeps_what_is_dirty() {
    let rig = pool();
    let before = core(&shown(&rig), 0)["cache_bytes"].as_u64().unwrap();
    rig.ok(&["cache", "resize", "pool", "0", "--size", "96m"]);
    let grown = core(&shown(&rig), 0)["cache_bytes"].as_u64().unwrap();
    assert!(grown > before + 60 * MIB && grown < 96 * MIB, "{before}, {grown}");
    let (served, mut c) = serve(&rig, "pool:pool#0", "file:core");
    assert_eq!(rig.stats()["cache_bytes"], grown);
    // Clean data far up, and dirty data behind it.
    for i in 0..40u64 {
        assert_eq!(c.write(i * MIB, &[i as u8 + 1; MIB as usize]).unwrap(), 0);
    }
    rig.ok(&["flush", "vol"]);
    for i in 0..300u64 {
        assert_eq!(c.write(i * 65_536, &[i as u8; 4096]).unwrap(), 0);
    }
    served.stop();
    rig.ok(&["cache", "resize", "pool", "0", "--size", "32m"]);
    let shown = shown(&rig);
    assert_eq!(core(&shown, 0)["cache_bytes"], before);
    assert!(core(&shown, 0)["clean"] == true && core(&shown, 0)["dirty_bytes"] == 300 * 4096);
    let (served, mut c) = serve(&rig, "pool:pool#0", "file:core");
    for i in 0..300u64 {
        assert_eq!(c.read(i * 65_536, 4096).unwrap(), [i as u8; 4096]);
        assert_eq!(c.read(i * 65_536 + 4096, 4096).unwrap(), [(i * 65_536 / MIB) as u8 + 1; 4096]);
    }
    served.stop();
    assert!(
        rig.refused(&["cache", "resize", "pool", "0", "--size", "500m"])
            .contains("fixed when it is attached")
    );
    assert!(rig.refused(&["cache", "resize", "pool", "0", "--size", "8m"]).contains("--min"));
    assert!(rig.refused(&["cache", "resize", "pool", "0"]).contains("nothing to change"));
    assert!(rig.refused(&["cache", "resize", "pool"]).contains("has not grown"));
    File::options().write(true).open(rig.path("pool")).unwrap().set_len(300 * MIB).unwrap();
    rig.ok(&["cache", "resize", "pool"]);
    assert!(self::shown(&rig)["free_bytes"].as_u64().unwrap() > 200 * MIB);
}

#[test]
fn a_full_served_share_grows_into_free_room_and_loses_nothing() {
    let rig = pool();
    let before = core(&shown(&rig), 0)["cache_bytes"].as_u64().unwrap();
    let (served, mut c) = serve(&rig, "pool:pool#0", "file:core");
    let begun = std::time::Instant::now();
    // More than it has, again and again, at places that make no stream.
    let place = |i: u64| i * 37 % 480 * 131_072;
    let grown = loop {
        for i in 0..480u64 {
            assert_eq!(c.write(place(i), &[i as u8; 65_536]).unwrap(), 0);
        }
        let now = rig.stats()["cache_bytes"].as_u64().unwrap();
        if now > before + 4 * MIB {
            break now;
        }
        assert!(begun.elapsed().as_secs() < 40, "it has {now}, and had {before}");
    };
    served.kill();
    let kept = core(&shown(&rig), 0)["cache_bytes"].as_u64().unwrap();
    assert!(kept >= grown, "what it has stands in the pool: {kept}, {grown}");
    let (served, mut c) = serve(&rig, "pool:pool#0", "file:core");
    for i in 0..480u64 {
        assert_eq!(c.read(place(i), 65_536).unwrap(), [i as u8; 65_536]);
    }
    served.stop();
}
