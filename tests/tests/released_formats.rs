//! Caches that released versions left behind, in many states, open here and hold what they held.
//!
//! `LOLIGO_FIXTURES=NAME cargo test -p loligo-tests --test released_formats -- --ignored` makes the folder of another
//! release, `fixtures/released/NAME`, with the program as it is. Folders that exist are never made again.

#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, ensure};
use loligo_block::{DeviceFile, OpenOptions, SyncFile};
use loligo_engine::open;
use loligo_engine::params::Params;
use loligo_format::superblock::Superblock;
use loligo_tests::fixture::{Content, folder, pack, unpack};
use loligo_tests::line::Line;
use loligo_tests::nbd::Command;
use loligo_tests::server::{Server, Volume};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn inspection(volume: &Volume) -> Result<Value> {
    let out = volume.loligo(&["inspect", "--json", &volume.cache.display().to_string()])?;
    ensure!(out.status.success(), "inspect finds damage: {}", String::from_utf8_lossy(&out.stdout));
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// Recovery of copies of cache and core: frames replayed, clean blocks dropped.
fn recovery(dir: &Path, volume: &Volume) -> Result<(u64, u64)> {
    let copy = |of: &Path, name: &str| -> Result<SyncFile> {
        let path = dir.join(name);
        std::fs::copy(of, &path)?;
        Ok(SyncFile::new(DeviceFile::open(&path, &OpenOptions::default())?))
    };
    let (mut cache, mut core) = (copy(&volume.cache, "cache.copy")?, copy(&volume.core, "core.copy")?);
    let superblock = Superblock::load(&mut cache)?;
    let options = open::OpenOptions { force: false, params: Params::default(), bug: None };
    let opened = open::open(&mut cache, &mut core, superblock, &options)?;
    Ok((opened.report.frames, opened.report.clean_dropped))
}

/// Opens one state with everything that opens caches.
fn opens(archive: &Path) -> Result<()> {
    let told: Value = serde_json::from_slice(&std::fs::read(archive.with_extension("json"))?)?;
    let number = |key: &str| told[key].as_u64().with_context(|| format!("no number '{key}'"));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let volume = Volume {
        dir: dir.path().to_owned(),
        cache: dir.path().join("cache"),
        cache_size: number("cache_size")?,
        core: dir.path().join("core"),
        mode: "wb",
        more: Vec::new(),
    };
    unpack(archive, &[&volume.cache, &volume.core])?;
    let found = inspection(&volume)?;
    for (key, value) in told["inspect"].as_object().context("no object 'inspect'")? {
        ensure!(found[key] == *value, "inspect says {key} {}, it was {value}", found[key]);
    }
    let (frames, dropped) = recovery(dir.path(), &volume)?;
    ensure!(frames == number("frames")?, "{frames} frames replayed");
    // Under an open intent clean blocks are not to be trusted.
    ensure!((dropped > 0) == (number("clean_dropped")? > 0), "{dropped} clean blocks dropped");

    let content = Content::from_json(number("size")?, &told["content"])?;
    let server = volume.serve()?;
    Line::to(&volume)?.check(&content).with_context(|| server.words())?;
    // Every dirty block finds its place on the core, too.
    let out = volume.loligo(&["flush", Volume::NAME])?;
    ensure!(out.status.success(), "flush: {}", String::from_utf8_lossy(&out.stderr));
    Line::to(&volume)?.check(&content)?;
    server.stop()?;
    let core = std::fs::read(&volume.core)?;
    content.check(0, &core[..content.size() as usize]).context("on the core, after a flush")
}

#[test]
fn every_released_state_opens_and_holds_what_it_held() {
    let mut states = 0;
    for release in std::fs::read_dir(folder()).expect("releases") {
        let release = release.expect("an entry").path();
        let mut archives: Vec<_> =
            std::fs::read_dir(&release).expect("states").map(|e| e.expect("an entry").path()).collect();
        archives.retain(|p| p.extension().is_some_and(|e| e == "gz"));
        archives.sort();
        for archive in archives {
            opens(&archive).unwrap_or_else(|e| panic!("{}: {e:?}", archive.display()));
            states += 1;
        }
    }
    println!("{states} states");
    assert!(states >= 6, "only {states} found");
}

/// A state in the making: a volume that is served, and what it holds by now.
struct Making {
    volume: Volume,
    server: Server,
    line: Line,
    content: Content,
    stamp: u64,
}

impl Making {
    fn new(dir: &Path, core: u64, more: &[&str]) -> Result<Making> {
        let volume = Volume {
            dir: dir.to_owned(),
            cache: dir.join("cache"),
            cache_size: 24 * MIB,
            core: dir.join("core"),
            mode: "wb",
            more: ["--sparse"].iter().chain(more).map(|s| (*s).to_owned()).collect(),
        };
        std::fs::File::create(&volume.core)?.set_len(core)?;
        let server = volume.serve()?;
        let line = Line::to(&volume)?;
        let content = Content::new(line.size());
        let mut made = Making { volume, server, line, content, stamp: 0 };
        // Destaging waits for a command.
        made.set("destage-rate", "1")?;
        made.set("admission", "always")?;
        Ok(made)
    }

    fn run(&mut self, args: &[&str]) -> Result<()> {
        let out = self.volume.loligo(args)?;
        ensure!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.run(&["param", "set", Volume::NAME, key, value])
    }

    /// Everything dirty to the core, and time for the record of it to be written.
    fn flush(&mut self) -> Result<()> {
        self.set("destage-rate", "0")?;
        self.run(&["flush", Volume::NAME])?;
        self.set("destage-rate", "1")?;
        std::thread::sleep(Duration::from_millis(1_500));
        self.line.flush()
    }

    /// `n` writes of `len` bytes, `step` apart.
    fn writes(&mut self, first: u64, step: u64, n: u64, len: usize) -> Result<()> {
        self.line.writes(&mut self.content, self.stamp + 1, (first, step, n), len)?;
        self.stamp += n;
        Ok(())
    }

    fn zeroes(&mut self, at: u64, len: usize) -> Result<()> {
        self.content.write(at, len, 0);
        self.line.ask(at, &Command::Zeroes { len: len as u32, fua: false }).map(drop)
    }

    fn read(&mut self, at: u64, len: u32) -> Result<()> {
        self.line.ask(at, &Command::Read(len)).map(drop)
    }

    /// Ends it, by SIGKILL or cleanly, and keeps what is there as `name`.
    fn keep(self, to: &Path, name: &str, what: &str, kill: bool) -> Result<Value> {
        let Making { volume, server, line, content, .. } = self;
        drop(line);
        if kill {
            server.kill()?;
        } else {
            server.stop()?;
        }
        let found = inspection(&volume)?;
        let told = |key: &str| (key.to_owned(), found[key].clone());
        let inspect: serde_json::Map<String, Value> = [
            "name",
            "uuid",
            "clean",
            "core_size",
            "data_length",
            "line_size",
            "shards",
            "core_reserve",
            "occupied_bytes",
            "dirty_bytes",
            "damage",
        ]
        .map(told)
        .into_iter()
        .collect();
        pack(&[&volume.cache, &volume.core], &to.join(name).with_extension("gz"))?;
        let (frames, dropped) = recovery(&volume.dir, &volume)?;
        let told = json!({
            "what": what,
            "made_by": env!("CARGO_PKG_VERSION"),
            "cache_size": volume.cache_size,
            "size": content.size(),
            "inspect": inspect,
            "frames": frames,
            "clean_dropped": dropped,
            "content": content.to_json(),
        });
        std::fs::write(to.join(name).with_extension("json"), format!("{told}\n"))?;
        Ok(told)
    }
}

fn dirty(told: &Value) -> u64 {
    told["inspect"]["dirty_bytes"].as_u64().unwrap_or(0)
}

/// Makes every state in `to`.
fn make(to: &Path) -> Result<()> {
    let dir = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));

    let d = dir()?;
    let mut m = Making::new(d.path(), 32 * MIB + 1536, &[])?;
    m.writes(0, 40 << 10, 60, 4096)?;
    m.flush()?;
    m.read(8 * MIB, 64 << 10)?;
    m.writes(20 << 10, 80 << 10, 20, 8192)?;
    m.writes(32 * MIB, 512, 3, 512)?;
    m.zeroes(40 << 10, 12 << 10)?;
    let told = m.keep(
        to,
        "stopped",
        "stopped cleanly with clean and dirty blocks; the core ends amid a block",
        false,
    )?;
    ensure!(dirty(&told) > 0 && told["frames"] == 0, "{told}");

    let d = dir()?;
    let mut m = Making::new(d.path(), 32 * MIB, &[])?;
    m.writes(MIB, 36 << 10, 60, 4096)?;
    m.line.flush()?;
    m.writes(MIB + 512, 72 << 10, 30, 1024)?;
    m.zeroes(2 * MIB, 64 << 10)?;
    m.writes(2 * MIB + (30 << 10), 512, 5, 512)?;
    let told = m.keep(to, "killed", "killed with dirty blocks that only the journal knows", true)?;
    ensure!(dirty(&told) > 0 && told["frames"].as_u64() > Some(20), "{told}");

    let d = dir()?;
    let mut m =
        Making::new(d.path(), 40 * MIB, &["--shards", "2", "--line-size", "16k", "--core-reserve", "10"])?;
    m.writes(0, 700 << 10, 50, 4096)?;
    m.flush()?;
    m.writes(MIB - 8192, MIB, 30, 16 << 10)?;
    let told = m.keep(to, "two-shards", "two shards, a tenth of the core set aside; killed", true)?;
    ensure!(dirty(&told) > 0 && told["inspect"]["shards"] == 2, "{told}");

    let d = dir()?;
    let mut m = Making::new(d.path(), 32 * MIB, &["--line-size", "64k"])?;
    m.writes(0, 48 << 10, 40, 512)?;
    m.flush()?;
    m.writes(0, 96 << 10, 20, 4096)?;
    m.writes(5 * MIB + 512, 200 << 10, 6, 70 << 10)?;
    let told = m.keep(to, "long-lines", "lines of 64 KiB, blocks present in part; stopped cleanly", false)?;
    ensure!(dirty(&told) > 0 && told["inspect"]["line_size"] == 65536, "{told}");

    let d = dir()?;
    let mut m = Making::new(d.path(), 32 * MIB, &[])?;
    m.writes(0, 16 << 10, 60, 4096)?;
    m.flush()?;
    m.writes(24 * MIB, 16 << 10, 10, 4096)?;
    m.run(&["mode", Volume::NAME, "wt"])?;
    m.writes(16 << 10, 64 << 10, 8, 2048)?;
    let told = m.keep(to, "intents", "killed with intents open: writes to the core were under way", true)?;
    ensure!(dirty(&told) > 0 && told["clean_dropped"].as_u64() > Some(0), "{told}");

    let d = dir()?;
    let mut m = Making::new(d.path(), 32 * MIB, &[])?;
    for _ in 0..14 {
        m.writes(4096, 28 << 10, 150, 512)?;
    }
    let told =
        m.keep(to, "wrapped", "a journal ring gone round, with checkpoints in between; killed", true)?;
    ensure!(dirty(&told) > 0 && told["frames"].as_u64() < Some(2_000), "{told}");
    Ok(())
}

#[test]
#[ignore = "makes the states of another release"]
fn the_states_of_this_release_are_made() {
    let name = std::env::var("LOLIGO_FIXTURES").expect("LOLIGO_FIXTURES names the release");
    let to = folder().join(name);
    std::fs::create_dir_all(folder()).expect("a place");
    std::fs::create_dir(&to).expect("a folder that does not exist yet");
    make(&to).unwrap_or_else(|e| panic!("{e:?}"));
}
