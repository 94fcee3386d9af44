//! Claims about devices that fail under the service: who is told what, what is kept, and what the next start finds.

use anyhow::{Context, Result, bail, ensure};
use loligo_sim::rng::Rng;
use loligo_tests::fixture::Content;
use loligo_tests::history::{Crash, History};
use loligo_tests::line::{EIO, Line};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::lossy::{Mounted, Part};
use loligo_tests::nbd::Command;
use loligo_tests::server::Volume;
use loligo_tests::skip;
use serde_json::Value;
use std::path::Path;
use std::process::Command as Program;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const CORE: u64 = 32 * MIB;

/// Cache and core of a volume in `at`, everything else in `dir`.
fn volume(dir: &Path, at: &Path, more: &[&str]) -> Volume {
    Volume {
        dir: dir.to_owned(),
        cache: at.join("cache"),
        cache_size: 24 * MIB,
        core: at.join("core"),
        mode: "wb",
        more: more.iter().map(|s| (*s).to_owned()).collect(),
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A file system of our own with a core on it, or the reason why not.
fn breakable(dir: &Path) -> Option<Mounted> {
    let at = dir.join("fs");
    let mounted = skip::fuse().and_then(|()| {
        std::fs::create_dir(&at).and_then(|()| Mounted::new(&at, 7)).map_err(|e| e.to_string())
    });
    match mounted {
        Ok(fs) => {
            fs.make("core", CORE);
            Some(fs)
        }
        Err(why) => {
            skip::skip("devices that fail", &why);
            None
        }
    }
}

fn stats(volume: &Volume) -> Result<Value> {
    let out = volume.loligo(&["stats", Volume::NAME, "--json"])?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn refused(line: &mut Line, offset: u64, command: &Command) -> Result<()> {
    let said = line.try_ask(offset, command)?;
    ensure!(said == Err(EIO), "{offset}: answered with {:?}", said.map(|d| d.len()));
    Ok(())
}

/// The cache stops acknowledging: everybody is told, and the stop says that it was no clean one.
fn poisoned(volume: &Volume, what: &str, fail: impl FnOnce(), mend: impl FnOnce()) -> Result<()> {
    let mut server = volume.serve()?;
    let mut line = Line::to(volume)?;
    let mut content = Content::new(line.size());
    line.writes(&mut content, 1, (0, 64 << 10, 80), 4096)?;
    line.flush()?;
    line.writes(&mut content, 100, (4096, 64 << 10, 40), 6144)?;
    let mut other = Line::to(volume)?;
    fail();
    // Refused or not, what it wrote may show or not.
    let late = Command::Write { data: vec![0xee; 4096], fua: true };
    let deadline = Instant::now() + Duration::from_secs(20);
    for at in (0..).map(|i| (24 << 10) + (i % 80) * (64 << 10)) {
        content.forget(at, 4096);
        match line.try_ask(at, &late)? {
            Err(EIO) => break,
            // A full file system still has room in what it gave out before.
            Ok(_) if what == "No space" => {}
            other => bail!("a write that cannot be durable was answered with {other:?}"),
        }
        ensure!(Instant::now() < deadline, "it never fails");
    }
    refused(&mut line, 0, &Command::Flush)?;
    refused(&mut other, MIB, &Command::Write { data: vec![1; 512], fua: false })?;
    refused(&mut other, MIB, &Command::Zeroes { len: 4096, fua: false })?;
    refused(&mut other, MIB, &Command::Trim(4096))?;
    // An OSD on it is to end at once, and not to live on half.
    refused(&mut line, 0, &Command::Read(4096))?;
    let told = stats(volume)?;
    let why = told["poisoned"].as_str().unwrap_or_default().to_owned();
    ensure!(why.contains("failed") && why.contains(what), "stats says '{why}'");
    ensure!(told["io_errors"].as_u64() > Some(0), "no I/O error was counted");
    let out = volume.loligo(&["flush", Volume::NAME])?;
    ensure!(out.status.code() == Some(1), "a poisoned cache cannot be flushed");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(said.contains("failed"), "flush says '{said}'");
    // The service itself says so within a second or so, without being asked.
    while !server.words().contains("no longer acknowledges") {
        ensure!(Instant::now() < deadline, "nothing on stderr: {}", server.words());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.terminate();
    let status = server.ended()?;
    let said = server.words();
    ensure!(status.code() == Some(1) && said.contains("mend the device"), "{status}: {said}");

    mend();
    let server = volume.serve()?;
    ensure!(server.words().contains("recovered in"), "{}", server.words());
    let mut line = Line::to(volume)?;
    line.check(&content).context("after the mend")?;
    line.writes(&mut content, 200, (8192, 128 << 10, 20), 4096)?;
    line.flush()?;
    line.check(&content)?;
    drop(line);
    server.stop()?;
    Ok(())
}

#[test]
fn a_cache_that_fails_writes_is_poisoned_says_why_and_recovers() {
    for (part, what) in [(Part::Writes, "cache"), (Part::Flushes, "flushing the cache")] {
        let dir = folder();
        let Some(fs) = breakable(dir.path()) else { return };
        let volume = volume(dir.path(), fs.dir(), &[]);
        poisoned(&volume, what, || fs.power().fail("cache", part), || fs.power().mend())
            .unwrap_or_else(|e| panic!("{part:?}: {e:?}"));
    }
}

#[test]
fn where_one_part_of_a_cache_fails_the_whole_volume_does() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &["--shards", "2"]);
    let server = volume.serve().expect("it serves");
    let mut line = Line::to(&volume).expect("a connection");
    let write = |byte| Command::Write { data: vec![byte; 4096], fua: true };
    // Neighbouring windows are two shards'.
    for at in [0, MIB] {
        line.ask(at, &write(1)).expect("written");
    }
    fs.power().fail("cache", Part::Writes);
    refused(&mut line, 0, &write(2)).expect("the cache does not take it");
    let deadline = Instant::now() + Duration::from_secs(10);
    while line.try_ask(MIB, &Command::Read(4096)).expect("an answer") != Err(EIO) {
        assert!(Instant::now() < deadline, "the other part still answers: {}", server.words());
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(server);
}

/// A file system in memory of so many bytes.
struct Memory(std::path::PathBuf);

impl Memory {
    fn mount(at: &Path, options: &str) -> Result<(), String> {
        let ran = Program::new("mount").args(["-t", "tmpfs", "-o", options, "loligo-test"]).arg(at).output();
        let ran = ran.map_err(|e| e.to_string())?;
        if ran.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned())
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Program::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_sparse_cache_on_a_full_file_system_recovers_with_room() {
    let dir = folder();
    let at = dir.path().join("memory");
    std::fs::create_dir(&at).expect("a folder");
    if let Err(why) = Memory::mount(&at, "size=3m") {
        return skip::skip("a cache on a full file system", &why);
    }
    let memory = Memory(at);
    let mut volume = volume(dir.path(), &memory.0, &["--sparse"]);
    volume.core = dir.path().join("core");
    std::fs::File::create(&volume.core).and_then(|f| f.set_len(CORE)).expect("a core");
    let fill = || {
        std::fs::write(memory.0.join("other"), vec![1; 8 << 20]).expect_err("full");
    };
    let room = || Memory::mount(&memory.0, "remount,size=40m").expect("more room");
    poisoned(&volume, "No space", fill, room).unwrap_or_else(|e| panic!("{e:?}"));
}

#[test]
fn a_core_failing_during_flush_on_stop_leaves_all_dirty() {
    for part in [Part::Writes, Part::Flushes] {
        let dir = folder();
        let Some(fs) = breakable(dir.path()) else { return };
        let volume = volume(dir.path(), fs.dir(), &["--flush-on-stop"]);
        let tried = || -> Result<()> {
            let mut server = volume.serve()?;
            let mut line = Line::to(&volume)?;
            let mut content = Content::new(line.size());
            // Nothing is destaged before the stop.
            fs.power().fail("core", part);
            line.writes(&mut content, 1, (0, 48 << 10, 200), 4096)?;
            line.check(&content)?;
            server.terminate();
            let status = server.ended()?;
            let said = server.words();
            ensure!(status.code() == Some(1), "{status}: {said}");
            ensure!(said.contains("flushing to the core: failed"), "{said}");
            ensure!(
                said.contains("safe on the cache") || said.contains("is on it"),
                "where the data is: {said}"
            );
            let out = volume.loligo(&["inspect", "--json", &volume.cache.display().to_string()])?;
            let found: Value = serde_json::from_slice(&out.stdout)?;
            // What is clean in a run that the core refused is dirty as well: its place may hold nothing good.
            let dirty = found["dirty_bytes"].as_u64();
            ensure!(out.status.success() && dirty >= Some(200 * 4096), "{found}: {said}");
            fs.power().mend();
            let server = volume.serve()?;
            Line::to(&volume)?.check(&content)?;
            server.stop()?;
            let core = std::fs::read(&volume.core)?;
            content.check(0, &core).context("on the core, at last")
        };
        tried().unwrap_or_else(|e| panic!("{part:?}: {e:?}"));
    }
}

#[test]
fn a_core_that_fails_for_a_while_loses_nothing_and_is_swept() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &[]);
    let tried = || -> Result<()> {
        let server = volume.serve()?;
        let mut line = Line::to(&volume)?;
        let mut content = Content::new(line.size());
        fs.power().fail("core", Part::Writes);
        line.writes(&mut content, 1, (0, 48 << 10, 200), 4096)?;
        let out = volume.loligo(&["flush", Volume::NAME])?;
        ensure!(out.status.code() == Some(1), "a flush whose writes fail");
        line.check(&content)?;
        line.writes(&mut content, 300, (0, 96 << 10, 50), 2048)?;
        fs.power().mend();
        let out = volume.loligo(&["flush", Volume::NAME])?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        ensure!(stats(&volume)?["dirty_bytes"] == 0, "everything is on the core");
        drop(line);
        server.stop()?;
        content.check(0, &std::fs::read(&volume.core)?)
    };
    tried().unwrap_or_else(|e| panic!("{e:?}"));
}

#[test]
fn without_direct_io_files_are_buffered_and_kills_lose_nothing() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    fs.power().refuse_direct_io();
    let volume = volume(dir.path(), fs.dir(), &[]);
    let mut history = History::new(CORE);
    let mut rng = Rng::new(9);
    let mut lives = || -> Result<()> {
        for life in 0..3 {
            let server = volume.serve()?;
            for of in ["cache", "core"] {
                let warned = server.words().lines().any(|l| {
                    l.contains(" warning: ") && l.contains(of) && l.contains("direct I/O is refused")
                });
                ensure!(warned, "no warning for the {of}: {}", server.words());
            }
            let mut load = Load::connect(&volume.socket(), Volume::NAME, 2)?;
            let after = (life > 0).then_some(Crash::Killed);
            ensure!(load.verify(&mut history, after)? == End::Done, "{}", server.words());
            let until = Instant::now() + Duration::from_millis(300);
            let mut server = Some(server);
            load.run(&mut history, &mut rng, &Mix::default(), || {
                if life < 2
                    && Instant::now() > until
                    && let Some(s) = server.take()
                {
                    s.kill().expect("it lived");
                }
                Instant::now() > until && life == 2
            })?;
            match server {
                None => history.crashed(Crash::Killed),
                Some(s) => drop(s.stop()?),
            }
        }
        Ok(())
    };
    lives().unwrap_or_else(|e| panic!("{e:?}"));
}

#[test]
fn refused_sectors_behind_a_label_are_named_as_on_the_disk() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &["--data-offset", "1M"]);
    let tried = || -> Result<()> {
        let server = volume.serve()?;
        let mut line = Line::to(&volume)?;
        ensure!(line.size() == CORE - MIB, "the label takes a MiB: {}", line.size());
        let mut content = Content::new(line.size());
        // A sector of the volume's block at 3 MiB, which is at 4 MiB of the disk.
        fs.power().fail_at("core", Part::Writes, 4 * MIB + 512..4 * MIB + 1024);
        line.writes(&mut content, 1, (0, 64 << 10, 200), 4096)?;
        let out = volume.loligo(&["flush", Volume::NAME])?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let named = format!("{} to {}", 4 * MIB / 512, 4 * MIB / 512 + 7);
        ensure!(out.status.code() == Some(1) && said.contains(&named), "flush: {said}");
        ensure!(stats(&volume)?["dirty_bytes"] == 4096, "all but that block is on the core");
        let told = volume.loligo(&["stats", Volume::NAME])?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure!(told.contains(&named), "stats: {told}");
        line.check(&content)?;
        fs.power().mend();
        let out = volume.loligo(&["flush", Volume::NAME])?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        drop(line);
        server.stop()?;
        content.check(0, &std::fs::read(&volume.core)?[MIB as usize..])
    };
    tried().unwrap_or_else(|e| panic!("{e:?}"));
}

/// A volume whose core has everything, stopped, and its content.
fn flushed(volume: &Volume) -> Result<Content> {
    let server = volume.serve()?;
    let mut line = Line::to(volume)?;
    let mut content = Content::new(line.size());
    line.writes(&mut content, 1, (0, 16 << 10, 200), 4096)?;
    ensure!(volume.loligo(&["flush", Volume::NAME])?.status.success(), "the core takes it all");
    drop(line);
    server.stop()?;
    Ok(content)
}

#[test]
fn a_start_says_what_it_could_not_compare_and_serves() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &[]);
    let tried = || -> Result<()> {
        let content = flushed(&volume)?;
        fs.power().fail_at("core", Part::Reads, MIB..2 * MIB);
        let server = volume.serve()?;
        let said = server.words();
        ensure!(said.contains("cannot be read from the core"), "{said}");
        ensure!(!said.contains("opened buffered"), "{said}");
        let mut line = Line::to(&volume)?;
        for at in (MIB..2 * MIB).step_by(16 << 10) {
            let read = line.ask(at, &Command::Read(4096)).context("from the cache")?;
            content.check(at, &read)?;
        }
        drop(line);
        server.stop()?;
        Ok(())
    };
    tried().unwrap_or_else(|e| panic!("{e:?}"));
}

#[test]
fn a_bad_sector_does_not_turn_direct_io_off() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &[]);
    fs.power().fail_at("core", Part::Reads, 512..1024);
    let told = volume.serve().expect_err("its first block cannot be read").to_string();
    assert!(told.contains("cannot be read") && !told.contains("opened buffered"), "{told}");
}

#[test]
fn a_core_changed_without_its_cache_is_seen_at_the_start() {
    let dir = folder();
    let Some(fs) = breakable(dir.path()) else { return };
    let volume = volume(dir.path(), fs.dir(), &[]);
    let tried = || -> Result<()> {
        let mut content = flushed(&volume)?;
        let core = std::fs::OpenOptions::new().write(true).open(&volume.core)?;
        std::os::unix::fs::FileExt::write_all_at(&core, &content.write(0, 4096, 9999), 0)?;
        drop(core);
        let server = volume.serve()?;
        let said = server.words();
        ensure!(said.contains("compared differ from the core"), "{said}");
        Line::to(&volume)?.check(&content).context("the core's content counts")?;
        server.stop()?;
        Ok(())
    };
    tried().unwrap_or_else(|e| panic!("{e:?}"));
}
