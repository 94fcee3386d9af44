//! Claims about SIGKILL: the process dies under load, the kernel lives, and every acknowledged write is there.
//!
//! `LOLIGO_SEED=n` repeats the plan of a run, `LOLIGO_KILLS=n` sets the number of kills.

#![allow(clippy::print_stdout)]

use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::server::Volume;
use std::time::{Duration, Instant};

const CORE: u64 = 64 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is no number")))
}

fn volume(dir: &std::path::Path, rng: &mut Rng) -> Volume {
    let core = dir.join("core");
    std::fs::File::create(&core).and_then(|f| f.set_len(CORE)).expect("a core");
    Volume {
        dir: dir.to_owned(),
        cache: dir.join("cache"),
        cache_size: rng.range(24..65) << 20,
        core,
        mode: "wb",
        more: vec![
            "--line-size".into(),
            rng.pick(&["4k", "16k", "64k"]).into(),
            "--shards".into(),
            rng.pick(&["1", "2"]).into(),
        ],
    }
}

#[test]
fn a_kill_under_load_loses_no_acknowledged_write() {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
    let seed = number("LOLIGO_SEED").unwrap_or_else(clock);
    let kills = number("LOLIGO_KILLS").unwrap_or(20);
    println!("LOLIGO_SEED={seed} LOLIGO_KILLS={kills}");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut volume = volume(dir.path(), &mut rng);
    let mut history = History::new(CORE);
    let mut answered = 0;
    for kill in 1..=kills {
        volume.mode = rng.pick(&["wb", "wb", "wb", "wt", "wo", "wa", "wi", "pt"]);
        let context = |words: String| format!("LOLIGO_SEED={seed}, kill {kill}, {volume:?}: {words}");
        let server = volume.serve().unwrap_or_else(|e| panic!("{}", context(format!("{e:?}"))));
        let mut load = Load::connect(&volume.socket(), Volume::NAME, 2).expect("connections");
        let after = (kill > 1).then_some(Crash::Killed);
        let end =
            load.verify(&mut history, after).unwrap_or_else(|e| panic!("{}", context(format!("{e:?}"))));
        assert_eq!(end, End::Done, "{}", context(server.words()));
        let until = Instant::now() + Duration::from_millis(rng.range(50..700));
        let mut server = Some(server);
        let mut loads = rng.fork();
        let end = load.run(&mut history, &mut loads, &Mix::default(), || {
            // With requests in flight, whose answers may or may not come.
            if Instant::now() > until
                && let Some(s) = server.take()
            {
                s.kill().unwrap_or_else(|e| panic!("{}", context(format!("{e:?}"))));
            }
            false
        });
        let end = end.unwrap_or_else(|e| panic!("{}", context(format!("{e:?}"))));
        let words = server.as_ref().map(loligo_tests::server::Server::words).unwrap_or_default();
        assert!(end == End::Lost && server.is_none(), "requests failed while it lived: {}", context(words));
        history.crashed(Crash::Killed);
        answered += load.answered;
    }
    let server = volume.serve().expect("a last start");
    let mut load = Load::connect(&volume.socket(), Volume::NAME, 1).expect("a connection");
    assert_eq!(
        load.verify(&mut history, Some(Crash::Killed)).expect("right data"),
        End::Done,
        "{}",
        server.words()
    );
    server.stop().expect("a clean stop");
    println!("{kills} kills, {answered} requests answered before them");
}
