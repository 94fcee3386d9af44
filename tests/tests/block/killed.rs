//! The device's fate when its service is killed, or the power goes.

use crate::{BACK, MIB, Mount, rounds, run, seed, soon, text};
use anyhow::{Context, Result, ensure};
use loligo_sim::rng::Rng;
use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::history::{Crash, History};
use loligo_tests::{direct, lossy};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The device's service is killed under load and started again; returns how long the device was away, at most.
fn kills(rounds: u64, seed: u64) -> Result<Duration> {
    const CORE: u64 = 48 * MIB;
    let rig = Device::new(CORE, 40 * MIB);
    let mut rng = Rng::new(seed);
    let mut history = History::new(CORE);
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let mut killed: Option<Instant> = None;
    for round in 0..=rounds {
        let server = rig.volume.serve()?;
        // Whoever opens it first: that it can be read is what counts.
        let first = direct::open(&rig.path(), 0)?;
        first.read_exact_at(&mut loligo_block::Buf::alloc(4096), 0)?;
        drop(first);
        if let Some(at) = killed {
            longest = longest.max(at.elapsed());
        }
        let crash = (round > 0).then_some(Crash::Killed);
        direct::verify(&rig.path(), &mut history, crash).with_context(|| format!("after kill {round}"))?;
        ensure!(rig.loops().len() == 1, "one loop device, not {:?}", rig.loops());
        if round == rounds {
            server.stop()?;
            break;
        }
        let pid = server.id();
        let when = Duration::from_millis(rng.range(100..900));
        let done = std::thread::scope(|s| {
            s.spawn(move || {
                std::thread::sleep(when);
                // SAFETY: the child is not waited for before this thread has ended, so the number is still its own.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            });
            direct::run(&rig.path(), &mut history, &mut rng, (4, 512), || false)
        })?;
        killed = Some(Instant::now());
        ensure!(done.failed > 0, "every thread's last request fails");
        let words = server.words();
        let mut server = server;
        let ended = server.ended()?;
        ensure!(!ended.success(), "it was killed: {ended}, {words}");
        history.crashed(Crash::Killed);
        answered += done.answered;
    }
    ensure!(rig.left().is_empty(), "left: {:?}", rig.left());
    println!("{rounds} kills, {answered} requests answered before them, back within {longest:?}");
    Ok(longest)
}

#[test]
fn after_a_kill_under_load_the_name_has_all_acknowledged_writes() {
    if impossible("a killed block device") {
        return;
    }
    let seed = seed();
    let longest = kills(rounds(3), seed).unwrap_or_else(|e| panic!("LOLIGO_SEED={seed}: {e:?}"));
    assert!(longest < BACK, "back after {longest:?}");
}

#[test]
fn a_device_mounted_during_a_kill_goes_with_its_last_user() {
    if impossible("a killed block device under a file system") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    run("mkfs.ext4", &["-q", "-F", text(&rig.path())]);
    let fs = Mount::new(&rig);
    std::fs::write(fs.0.join("kept"), "flushed")
        .and_then(|()| std::fs::File::open(fs.0.join("kept"))?.sync_all())
        .expect("synced");
    let old = rig.kernel_name();
    server.kill().expect("it ran");
    assert_eq!(rig.loops(), std::slice::from_ref(&old), "nobody has cleared up");
    let server = rig.volume.serve().expect("a start beside the dead device");
    let new = rig.kernel_name();
    assert_ne!(old, new, "the old one is still mounted");
    let mut both = rig.loops();
    both.sort();
    let mut expected = [old.clone(), new.clone()];
    expected.sort();
    assert_eq!(both, expected);
    assert!(
        server.words().contains("is still open") && server.words().contains(text(&fs.0)),
        "{}",
        server.words()
    );
    // It can write nothing any more, and says so or not.
    let _ = Command::new("umount").arg(&fs.0).stderr(Stdio::null()).status();
    drop(fs);
    soon("the dead device goes with its mount", || rig.loops() == [new.clone()]);
    let fs = Mount::new(&rig);
    assert_eq!(std::fs::read_to_string(fs.0.join("kept")).expect("the file"), "flushed");
    fs.unmount();
    run("e2fsck", &["-f", "-n", text(&rig.path())]);
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}

/// One volume on a file system that loses what was not flushed, through `cuts` power cuts under load.
fn power(seed: u64, cuts: u64, lies: bool) -> Result<u64> {
    const CORE: u64 = 32 * MIB;
    let mut rng = Rng::new(seed);
    // Declared first, so that it goes last.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let fs = lossy::Mounted::new(dir.path(), rng.draw()).context("mounting the lossy file system")?;
    let mut rig = Device::new(MIB, 32 * MIB);
    rig.volume.core = fs.make("core", CORE);
    rig.volume.cache = dir.path().join("cache");
    if lies {
        fs.power().lie_about_flushes();
    }
    let mut history = History::new(CORE);
    for cut in 1..=cuts {
        let server = rig.volume.serve()?;
        direct::verify(&rig.path(), &mut history, (cut > 1).then_some(Crash::PowerLoss))
            .with_context(|| format!("after power cut {}: {}", cut - 1, server.words()))?;
        let survives = rng.draw();
        fs.power().power_cut_after(rng.range(200..4_000), survives);
        let late = Instant::now() + Duration::from_millis(rng.range(500..2_000));
        let switch = fs.power();
        let done = direct::run(&rig.path(), &mut history, &mut rng, (4, 512), || {
            if Instant::now() > late {
                switch.power_cut(survives);
            }
            !switch.is_on()
        })?;
        ensure!(done.failed == 0 || !switch.is_on(), "requests failed under power: {}", server.words());
        let words = server.words();
        server.kill().or_else(|e| if words.contains("panicked") { Err(e) } else { Ok(()) })?;
        history.crashed(Crash::PowerLoss);
        switch.power_on();
    }
    let server = rig.volume.serve()?;
    direct::verify(&rig.path(), &mut history, Some(Crash::PowerLoss)).with_context(|| server.words())?;
    server.stop()?;
    ensure!(rig.left().is_empty(), "left: {:?}", rig.left());
    Ok(history.stepped_back)
}

#[test]
fn every_synced_block_of_the_device_survives_a_power_cut() {
    if impossible("power loss under a block device") {
        return;
    }
    let seed = seed();
    let cuts = rounds(4);
    let lost = power(seed, cuts, false).unwrap_or_else(|e| panic!("LOLIGO_SEED={seed}: {e:?}"));
    println!("{cuts} power cuts, {lost} sectors seen without their newest write");
    assert!(lost > 0, "the power cuts took nothing: they show nothing");
}

#[test]
fn a_disk_below_the_device_that_lies_about_flushes_is_found_out() {
    if impossible("a lying disk under a block device") {
        return;
    }
    assert!((1..=6).any(|seed| power(seed, 3, true).is_err()), "flushes did nothing, and nothing was missed");
}
