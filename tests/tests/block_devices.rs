//! Claims about raw block devices as cache and core, on loop devices with sectors of 512 and 4,096 bytes. Needs root;
//! says SKIP with the reason where there are no such devices.

use anyhow::{Context, Result, ensure};
use loligo_sim::rng::Rng;
use loligo_tests::fixture::Content;
use loligo_tests::history::{Crash, History};
use loligo_tests::line::Line;
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::loops::Loop;
use loligo_tests::server::Volume;
use loligo_tests::skip;
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const CACHE: u64 = 24 * MIB;
const CORE: u64 = 32 * MIB;

fn volume(dir: &Path, cache: &Path, core: &Path) -> Volume {
    Volume {
        dir: dir.to_owned(),
        cache: cache.to_owned(),
        cache_size: CACHE,
        core: core.to_owned(),
        mode: "wb",
        more: Vec::new(),
    }
}

/// A cache and a core with sectors of these sizes, in a folder; `None` where there are no loop devices.
fn devices(cache: u32, core: u32) -> Option<(Volume, Loop, Loop, tempfile::TempDir)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let made = Loop::new(&dir.path().join("a"), CACHE, cache)
        .and_then(|a| Ok((a, Loop::new(&dir.path().join("b"), CORE, core)?)));
    match made {
        Ok((a, b)) => Some((volume(dir.path(), a.path(), b.path()), a, b, dir)),
        Err(why) => {
            skip::skip(&format!("block devices with sectors of {cache} and {core} bytes"), &why);
            None
        }
    }
}

/// Three lives under a verifying load, the first two ended by SIGKILL, the last one cleanly.
fn lives(volume: &Volume, unit: u64, seed: u64) -> Result<()> {
    let mut history = History::new(CORE);
    let mut rng = Rng::new(seed);
    let mix = Mix { unit, ..Mix::default() };
    for life in 0..3 {
        let server = volume.serve()?;
        ensure!(!server.words().contains("direct I/O is refused"), "{}", server.words());
        let mut load = Load::connect(&volume.socket(), Volume::NAME, 2)?;
        ensure!(load.size() == CORE, "{} bytes", load.size());
        let end = load.verify(&mut history, (life > 0).then_some(Crash::Killed))?;
        ensure!(end == End::Done, "{}", server.words());
        let until = Instant::now() + Duration::from_millis(400);
        let mut server = Some(server);
        load.run(&mut history, &mut rng, &mix, || {
            if life < 2
                && Instant::now() > until
                && let Some(s) = server.take()
            {
                s.kill().expect("it lived");
            }
            Instant::now() > until && life == 2
        })?;
        ensure!(load.answered > 50, "only {} requests were answered", load.answered);
        let Some(server) = server else {
            history.crashed(Crash::Killed);
            continue;
        };
        let out = volume.loligo(&["flush", Volume::NAME])?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let end = load.verify(&mut history, None)?;
        ensure!(end == End::Done, "{}", server.words());
        drop(load);
        server.stop()?;
        let out = volume.loligo(&["inspect", &volume.cache.display().to_string()])?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        let core = std::fs::read(&volume.core)?;
        history.check(0, &core, None).map_err(anyhow::Error::msg).context("on the core")?;
    }
    Ok(())
}

#[test]
fn caches_and_cores_of_either_sector_size_survive_kills() {
    for (cache, core) in [(512, 512), (4096, 512), (4096, 4096)] {
        let Some((volume, _a, _b, _dir)) = devices(cache, core) else { return };
        lives(&volume, u64::from(core), 7).unwrap_or_else(|e| panic!("sectors of {cache} and {core}: {e:?}"));
    }
}

#[test]
fn a_served_block_device_is_refused_with_its_holders_name() {
    let Some((volume, cache, core, dir)) = devices(512, 512) else { return };
    let server = volume.serve().expect("it starts");
    let spare = dir.path().join("spare");
    std::fs::File::create(&spare).and_then(|f| f.set_len(CORE)).expect("a core");
    let text = |p: &Path| p.display().to_string();
    let refused = |name: &str, cache: &Path, core: &Path| {
        let listen = format!("unix:{}", dir.path().join(name).with_extension("nbd").display());
        let (cache, core) = (text(cache), text(core));
        let args = ["serve", "--name", name, "--mode", "wb", "--listen", &listen, "--cache-size", "24m"];
        let out =
            volume.loligo(&[&args[..], &["--cache", &cache, "--core", &core]].concat()).expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("in use by process") && said.contains("(loligo)"), "{said}");
    };
    // Both wait, in case the holder is on its way out.
    std::thread::scope(|s| {
        s.spawn(|| refused("one", &dir.path().join("fresh"), core.path()));
        s.spawn(|| refused("two", cache.path(), &spare));
    });
    let out = volume.loligo(&["inspect", &text(cache.path())]).expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(3) && said.contains("in use by process"), "{said}");
    server.stop().expect("a clean stop");
}

#[test]
fn a_core_device_may_grow_with_its_volume_but_not_shrink() {
    let Some((volume, _cache, core, _dir)) = devices(512, 512) else { return };
    let grown = CORE + 3 * MIB + 1536;
    let lives = || -> Result<()> {
        let mut content = Content::new(CORE);
        let server = volume.serve()?;
        Line::to(&volume)?.writes(&mut content, 1, (0, 96 << 10, 300), 4096)?;
        server.stop()?;
        core.resize(CORE - MIB).map_err(anyhow::Error::msg)?;
        let said = format!("{:?}", volume.serve().err().context("a core that shrank was taken")?);
        ensure!(said.contains("shrank"), "{said}");
        core.resize(grown).map_err(anyhow::Error::msg)?;
        let server = volume.serve()?;
        ensure!(server.words().contains("the core grew"), "{}", server.words());
        let mut line = Line::to(&volume)?;
        let mut content = content.grown(grown);
        line.check(&content)?;
        line.writes(&mut content, 500, (CORE, 512, 3 * MIB / 512 + 3), 512)?;
        line.check(&content)?;
        drop(line);
        server.kill()?;
        let server = volume.serve()?;
        Line::to(&volume)?.check(&content)?;
        server.stop()?;
        Ok(())
    };
    lives().unwrap_or_else(|e| panic!("{e:?}"));
}

/// A file core and a loop device are both known by their size, so that images can be moved between them.
#[test]
fn a_cache_moves_between_sectors_of_512_and_4096_bytes() {
    let Some((there, _cache, _core, dir)) = devices(4096, 512) else { return };
    let here = volume(dir.path(), &dir.path().join("cache"), &dir.path().join("core"));
    std::fs::File::create(&here.core).and_then(|f| f.set_len(CORE)).expect("a core");
    let moves = || -> Result<()> {
        let mut content = Content::new(CORE);
        let places = [&here, &there, &here, &there];
        for (i, volume) in places.into_iter().enumerate() {
            let server = volume.serve()?;
            let mut line = Line::to(volume)?;
            line.check(&content).with_context(|| format!("move {i}"))?;
            // More frames than the journal ring holds.
            for round in 0..10 {
                let stamp = 1 + i as u64 * 10_000 + round * 1_000;
                line.writes(&mut content, stamp, (512 * i as u64, 40 << 10, 200), 1536)?;
            }
            line.flush()?;
            line.check(&content)?;
            drop(line);
            server.kill()?;
            let out = volume.loligo(&["inspect", &volume.cache.display().to_string()])?;
            ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
            if let Some(next) = places.get(i + 1) {
                for (from, to) in [(&volume.cache, &next.cache), (&volume.core, &next.core)] {
                    std::fs::write(to, std::fs::read(from)?)?;
                }
            }
        }
        Ok(())
    };
    moves().unwrap_or_else(|e| panic!("{e:?}"));
}
