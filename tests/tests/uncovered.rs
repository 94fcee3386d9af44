//! Claims about a core that was used on its own disk again, its first block put back and no label left: its cache is not believed.

use loligo_tests::fixture::Content;
use loligo_tests::line::Line;
use loligo_tests::server::Volume;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;
const CORE: u64 = 64 * MIB;
const HEAD: usize = 4096;

fn volume(dir: &Path, mode: &'static str, more: &[&str]) -> Volume {
    let more = [&["--data-offset", "0"], more].concat();
    Volume {
        dir: dir.to_owned(),
        cache: dir.join("cache"),
        cache_size: 32 * MIB,
        core: dir.join("core"),
        mode,
        more: more.into_iter().map(str::to_owned).collect(),
    }
}

/// A core with a first block as a store has it, and that block.
fn core(dir: &Path) -> (File, [u8; HEAD]) {
    let mut head = [0; HEAD];
    head[..22].copy_from_slice(b"bluestore block device");
    let core = File::options().read(true).write(true).create_new(true).open(dir.join("core"));
    let core = core.expect("a core");
    core.set_len(CORE).and_then(|()| core.write_all_at(&head, 0)).expect("written");
    (core, head)
}

fn refused(volume: &Volume) -> String {
    let mut server = volume.launch().expect("it runs");
    format!("{:#}", server.ready().expect_err("its cache is older than its core"))
}

#[test]
fn clean_blocks_are_read_from_a_core_used_without_its_label() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (raw, head) = core(dir.path());
    let volume = volume(dir.path(), "wt", &[]);
    let mut content = Content::new(CORE);
    content.forget(0, HEAD);
    let server = volume.serve().expect("it starts");
    let mut line = Line::to(&volume).expect("a client");
    // Far more than the start compares with the core.
    line.writes(&mut content, 1, (4 * MIB, 65536, 256), 65536).expect("written");
    drop(line);
    server.stop().expect("a clean stop");
    raw.write_all_at(&head, 0).expect("written");
    let at = 9 * MIB + 37 * 4096;
    raw.write_all_at(&content.write(at, 4096, 1000), at).expect("written");
    let server = volume.serve().expect("it starts");
    Line::to(&volume).and_then(|mut line| line.check(&content)).expect("what the core has");
    server.stop().expect("a clean stop");
}

#[test]
fn dirty_blocks_never_overwrite_a_core_used_without_its_label() {
    for killed in [false, true] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let (raw, head) = core(dir.path());
        let wb = volume(dir.path(), "wb", &["--param", "destage-rate=1"]);
        let mut content = Content::new(CORE);
        content.forget(0, HEAD);
        let server = wb.serve().expect("it starts");
        let mut line = Line::to(&wb).expect("a client");
        line.writes(&mut content, 1, (4 * MIB, 65536, 32), 65536)
            .and_then(|()| line.flush())
            .expect("written");
        drop(line);
        match killed {
            true => server.kill().expect("it lived"),
            false => drop(server.stop().expect("a clean stop")),
        }
        raw.write_all_at(&head, 0).expect("written");
        let forced = volume(dir.path(), "wb", &["--force"]);
        for volume in [&wb, &forced] {
            let why = refused(volume);
            assert!(why.contains("older than the core") && why.contains("--create --force"), "{why}");
        }
        let mut now = [0; HEAD];
        raw.read_exact_at(&mut now, 0).expect("read");
        assert_eq!(now, head, "nothing was written by the starts that were refused");
        let anew = volume(dir.path(), "wb", &["--create", "--force"]);
        let server = anew.serve().expect("it starts");
        let mut line = Line::to(&anew).expect("a client");
        let seen = line.ask(4 * MIB, &loligo_tests::nbd::Command::Read(4096)).expect("read");
        let mut there = vec![0; 4096];
        raw.read_exact_at(&mut there, 4 * MIB).expect("read");
        assert_eq!(seen, there, "the core counts");
        drop(line);
        server.stop().expect("a clean stop");
    }
}
