//! Commands on the cache of a stopped volume.

use crate::nbd::Client;
use crate::rig::{MIB, Rig};
use loligo_format::core_label::CoreLabel;
use loligo_format::layout::Layout;
use std::fs::File;
use std::os::unix::fs::FileExt;

#[test]
fn a_cache_is_released_only_when_its_core_has_everything() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.write(4096, &[5; 4096]).unwrap(), 0);
    served.kill();
    assert!(rig.refused(&["release", "cache"]).contains("--flush-on-stop"), "also after a crash");
    let served = rig.serve(&[]);
    assert!(rig.refused(&["release", "cache"]).contains("in use by process"));
    rig.ok(&["flush", "vol"]);
    served.stop();
    rig.ok(&["release", "cache"]);
    let mut have = [0; 4096];
    File::open(rig.path("core")).unwrap().read_exact_at(&mut have, 4096).unwrap();
    assert_eq!(have, [5; 4096]);
    assert!(rig.refused(&["release", "cache"]).contains("no Loligo cache"));
    let served = rig.serve(&[]);
    assert!(served.said().contains("made a new cache"), "no later start trusts it: {}", served.said());
    served.stop();
}

/// A stopped or killed cache with dirty and flushed data, whose first write holds this.
fn written(rig: &Rig, kill: bool) {
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..50u8 {
        assert_eq!(c.write(u64::from(i) * 8192, &[i + 100; 4096]).unwrap(), 0);
        if i % 5 == 0 {
            c.flush().unwrap();
        }
    }
    c.flush().unwrap();
    if kill {
        served.kill();
    } else {
        served.stop();
    }
}

fn flip(rig: &Rig, at: u64) {
    let f = File::options().read(true).write(true).open(rig.path("cache")).unwrap();
    let mut byte = [0];
    f.read_exact_at(&mut byte, at).unwrap();
    f.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn inspect_shows_a_sound_cache_and_finds_any_flipped_bit() {
    let rig = Rig::new(16 * MIB);
    written(&rig, false);
    let text = rig.ok(&["inspect", "cache"]);
    assert!(text.contains("dirty          204800 bytes"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&rig.ok(&["inspect", "cache", "--json"])).unwrap();
    assert_eq!(
        (&json["dirty_bytes"], &json["clean"], &json["damage"]),
        (&204800.into(), &true.into(), &serde_json::json!([]))
    );

    let shard = Layout::new(32 << 20, 1, 0).unwrap().shard(0);
    let bytes = std::fs::read(rig.path("cache")).unwrap();
    let data = shard.data as usize;
    let slot = bytes[data..].chunks(4096).position(|c| c == [130; 4096]).expect("the data is there");
    for (what, at) in [
        ("superblock", 700),
        ("superblock", (512 << 10) + 30),
        ("root", shard.roots[1] + 60),
        ("dirty data of byte", shard.data + slot as u64 * 4096 + 777),
    ] {
        flip(&rig, at);
        let out = rig.run(&["inspect", "cache"]);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.code() == Some(1) && text.contains(what), "{what}: {text}");
        flip(&rig, at);
    }
    rig.ok(&["inspect", "cache"]);
}

#[test]
fn a_damaged_journal_is_found_by_inspect_and_refused_by_serve() {
    let rig = Rig::new(16 * MIB);
    written(&rig, true);
    rig.ok(&["inspect", "cache"]);
    let shard = Layout::new(32 << 20, 1, 0).unwrap().shard(0);
    let bytes = std::fs::read(rig.path("cache")).unwrap();
    let ring = &bytes[shard.journal as usize..(shard.journal + shard.journal_len) as usize];
    let first = ring.chunks(512).position(|c| c.iter().any(|b| *b != 0)).expect("the journal is not empty");
    flip(&rig, shard.journal + first as u64 * 512 + 80);
    let out = rig.run(&["inspect", "cache"]);
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stdout));
    let said = rig.refused(&rig.args(&[]));
    assert!(said.contains("loligo inspect"), "{said}");
}

#[test]
fn whoever_closes_the_pipe_early_does_not_make_a_command_fail() {
    let rig = Rig::new(1 << 20);
    for args in [&["doctor", "--json"][..], &["doctor", "--verbose"], &["probe"]] {
        let run = |out: std::process::Stdio| {
            let status = rig.loligo(args).stdout(out).stderr(std::process::Stdio::null()).status();
            status.expect("it runs").code()
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(run(writer.into()), run(std::process::Stdio::null()), "{args:?}");
    }
}

#[test]
fn a_name_from_a_device_begins_no_line_of_its_own() {
    let rig = Rig::new(16 * MIB);
    let name = "a'\nerror: give it up with --force\u{9b}2J";
    let mut label = CoreLabel {
        generation: 1,
        cache: [7; 16],
        name: name.to_owned(),
        data_start: MIB,
        dirty_bytes: Some(4096),
        through: false,
    };
    let mut start = vec![0; MIB as usize];
    label.store(&mut start).expect("memory");
    let core = File::options().write(true).open(rig.path("core")).expect("a core");
    core.write_all_at(&start, 0).expect("written");
    let said = rig.ok(&["probe", "core"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(r"'a'\nerror: give it up with --force\u009b2J'"), "{said}");
    let json: serde_json::Value = serde_json::from_str(&rig.ok(&["probe", "--json", "core"])).expect("JSON");
    assert!(json.to_string().contains(&serde_json::json!(name).to_string()), "{json}");
    let said = rig.refused(&rig.args(&[]));
    let forged = said.lines().filter(|line| line.starts_with("error: give")).count();
    assert!(forged == 0 && said.contains(r"'a'\nerror: give it up"), "{said}");
}
