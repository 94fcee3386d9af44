//! Claims about labels of cores that a client wrote at the start of its own disk: they are its content.

use loligo_tests::line::Line;
use loligo_tests::nbd::Command;
use loligo_tests::server::{Server, Volume};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A block of somebody that has eight bytes of ours at `at`.
fn block(magic: &[u8; 8], at: usize) -> Vec<u8> {
    let mut block = vec![0xa5; 4096];
    block[at..at + 8].copy_from_slice(magic);
    block
}

fn volume(dir: &Path) -> Volume {
    std::fs::File::create_new(dir.join("core")).and_then(|core| core.set_len(64 * MIB)).expect("a core");
    Volume {
        dir: dir.to_owned(),
        cache: dir.join("cache"),
        cache_size: 32 * MIB,
        core: dir.join("core"),
        mode: "wt",
        more: Vec::new(),
    }
}

fn first_block(volume: &Volume) -> Vec<u8> {
    let mut line = Line::to(volume).expect("a client");
    assert_eq!(line.size(), 64 * MIB);
    line.ask(0, &Command::Read(4096)).expect("read")
}

#[test]
fn a_volume_starts_whatever_a_client_wrote_at_its_start() {
    for (magic, at) in [(b"LOLIGOHM", 8), (b"LOLIGOHM", 0), (b"LOLIGOVL", 8), (b"LOLIGOVL", 0)] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let volume = volume(dir.path());
        let is = block(magic, at);
        let server = volume.serve().expect("it starts");
        let mut line = Line::to(&volume).expect("a client");
        line.ask(0, &Command::Write { data: is.clone(), fua: false }).expect("written");
        line.flush().expect("flushed");
        drop(line);
        server.stop().expect("a clean stop");
        assert_eq!(std::fs::read(&volume.core).expect("a core")[..4096], is, "the core has it");

        let server = volume.serve().expect("it starts again");
        assert_eq!(first_block(&volume), is);
        server.stop().expect("a clean stop");

        // Without the cache nobody knows but the operator.
        let bare = |more: &[&str]| {
            let listen = format!("unix:{}", volume.socket().display());
            let core = volume.core.display().to_string();
            let args = [&["--bare", "--core", &core, "--listen", &listen][..], more].concat();
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            let mut server = Server::launch(dir.path(), &args).expect("it runs");
            server.ready().map(|()| server)
        };
        let why = format!("{:#}", bare(&["--force"]).expect_err("it may be a damaged label"));
        assert!(why.contains("--bare --data-offset 0"), "{why}");
        let server = bare(&["--data-offset", "0"]).expect("the operator says so");
        assert_eq!(first_block(&volume), is);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_core_behind_a_label_of_its_own_is_known_again_by_its_cache() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut volume = volume(dir.path());
    let is = [&[7; 1000][..], &[0; 3096]].concat();
    std::fs::write(&volume.core, [&is[..], &vec![0; (64 * MIB) as usize - 4096]].concat()).expect("written");
    for more in [&["--data-offset", "0"][..], &[], &["--force"]] {
        volume.more = more.iter().map(|word| (*word).to_owned()).collect();
        let server = volume.serve().expect("it starts");
        assert_eq!(first_block(&volume), is, "{more:?}");
        server.stop().expect("a clean stop");
        let raw = std::fs::read(&volume.core).expect("a core");
        assert_eq!(&raw[8..16], b"LOLIGOVL", "{more:?}");
    }
}
