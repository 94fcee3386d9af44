//! Claims about a cache on two arrays, with real files behind the model of an array: the loss of either, at once or in silence,
//! loses nothing that was acknowledged, and what is stale is never replayed.

#![allow(clippy::print_stdout)]

use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load, Mix};
use loligo_tests::server::{Server, Volume};
use loligo_tests::shared_array::SharedArray;
use loligo_tests::skip::skip;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Bytes of the core.
const CORE: u64 = 16 << 20;
/// Bytes of the cache: a leg has one MiB more, for its label.
const CACHE: u64 = 32 << 20;
/// A copy of the whole cache takes less.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two arrays, a core, and a volume over them.
struct Rig {
    local: SharedArray,
    mirror: SharedArray,
    volume: Volume,
    history: History,
    rng: Rng,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new(test: &str, more: &[&str]) -> Option<Rig> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let local = SharedArray::new(test, &dir.path().join("local"), "33m")?;
        let mirror = SharedArray::new(test, &dir.path().join("mirror"), "33m")?;
        let core = dir.path().join("core");
        std::fs::File::create(&core).and_then(|f| f.set_len(CORE)).expect("a core");
        let mut args = vec!["--journal-mirror".to_owned(), mirror.lun("a").display().to_string()];
        args.extend(more.iter().map(|s| (*s).to_owned()));
        let volume = Volume {
            dir: dir.path().to_owned(),
            cache: local.lun("a"),
            cache_size: CACHE,
            core,
            mode: "wb",
            more: args,
        };
        let history = History::new(CORE);
        Some(Rig { local, mirror, volume, history, rng: Rng::new(11), _dir: dir })
    }

    fn serve(&self) -> Server {
        self.volume.serve().expect("it is served")
    }

    fn load(&self) -> Load {
        Load::connect(&self.volume.socket(), Volume::NAME, 2).expect("connections")
    }

    /// Mixed requests for a while, none of which may fail; the longest time between two answers.
    fn run(&mut self, load: &mut Load, lasts: Duration) -> Duration {
        let (until, mut last, mut longest) = (Instant::now() + lasts, Instant::now(), Duration::ZERO);
        let mix = Mix { hot: CORE, ..Mix::default() };
        let end = load.run(&mut self.history, &mut self.rng, &mix, || {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            Instant::now() > until
        });
        assert_eq!(end.expect("right data"), End::Done, "requests failed");
        longest.max(last.elapsed())
    }

    /// One write and a flush.
    fn write(&mut self, load: &mut Load) {
        load.write(&mut self.history, 0..8, false).expect("written");
        load.flush(&mut self.history).expect("flushed");
    }

    /// Everything that was acknowledged is read.
    fn verify(&mut self, load: &mut Load, after: Option<Crash>) {
        assert_eq!(load.verify(&mut self.history, after).expect("right data"), End::Done);
    }

    fn kill(&mut self, server: Server) {
        server.kill().expect("it ran");
        self.history.crashed(Crash::Killed);
    }

    /// Starts it, which is refused with these words.
    fn is_refused(&self, why: &str) {
        let said = format!("{:?}", self.volume.serve().expect_err("it is refused"));
        assert!(said.contains(why), "{said}");
    }
}

/// Has a claim about a new rig checked. A host that stands still for 2 s is what a silent leg is: it shows nothing.
fn claim(test: &str, more: &[&str], body: impl FnOnce(&mut Rig)) {
    let Some(mut rig) = Rig::new(test, more) else { return };
    if let Err(why) = catch_unwind(AssertUnwindSafe(|| body(&mut rig))) {
        let log = std::fs::read_to_string(rig.volume.dir.join("serve.log")).unwrap_or_default();
        if log.contains("it has answered nothing for") {
            return skip(test, "this host stood still for 2 s");
        }
        resume_unwind(why);
    }
}

/// Waits until the service has said this so often.
fn says(server: &Server, what: &str, times: usize) {
    let begun = Instant::now();
    while server.log().matches(what).count() < times {
        assert!(begun.elapsed() < PATIENCE, "it never says '{what}': {}", server.words());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_silent_mirror_holds_answers_for_two_seconds_alone() {
    let Some(mut rig) = Rig::new("a silent mirror", &[]) else { return };
    let server = rig.serve();
    let mut load = rig.load();
    rig.run(&mut load, Duration::from_millis(500));
    rig.mirror.fault("a", "{\"delay_ms\":6000}");
    let longest = rig.run(&mut load, Duration::from_secs(4));
    println!("longest without an answer: {longest:?}");
    assert!(longest > Duration::from_millis(1500) && longest < Duration::from_secs(3), "{longest:?}");
    says(&server, "holds the cache alone", 1);
    rig.mirror.fault("a", "{}");
    rig.run(&mut load, Duration::from_secs(1));
    says(&server, "is in step again", 1);
    rig.verify(&mut load, None);
    // From now on the mirror has everything.
    rig.local.fault("a", "{\"eio\":true}");
    rig.run(&mut load, Duration::from_millis(500));
    rig.verify(&mut load, None);
    assert!(server.log().contains("the local leg of the mirrored cache"), "{}", server.words());
    rig.kill(server);
    let server = rig.serve();
    let mut load = rig.load();
    rig.verify(&mut load, Some(Crash::Killed));
    server.stop().expect("a clean stop");
}

#[test]
fn the_mirror_serves_all_once_the_local_leg_is_lost() {
    claim("a lost local leg", &["--shards", "2"], |rig| {
        let server = rig.serve();
        let mut load = rig.load();
        rig.run(&mut load, Duration::from_millis(700));
        rig.local.fault("a", "{\"eio\":true}");
        let longest = rig.run(&mut load, Duration::from_secs(1));
        assert!(longest < Duration::from_secs(2), "errors are no silence: {longest:?}");
        rig.verify(&mut load, None);
        rig.kill(server);
        // The local leg cannot be reached: the mirror's label says that it may be believed.
        let server = rig.serve();
        assert!(server.log().contains("is opened on"), "{}", server.words());
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        rig.run(&mut load, Duration::from_millis(300));
        rig.kill(server);
        // It is back with what it held: that is stale, and is not replayed.
        rig.local.fault("a", "{}");
        let server = rig.serve();
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        says(&server, "is in step again", 1);
        rig.run(&mut load, Duration::from_millis(300));
        rig.mirror.fault("a", "{\"eio\":true}");
        rig.run(&mut load, Duration::from_millis(300));
        rig.verify(&mut load, None);
        server.stop().expect("a clean stop");
    });
}

#[test]
fn a_stale_mirror_is_refused_without_the_local_leg() {
    claim("a stale mirror", &[], |rig| {
        let server = rig.serve();
        let mut load = rig.load();
        rig.run(&mut load, Duration::from_millis(300));
        rig.mirror.fault("a", "{\"eio\":true}");
        rig.run(&mut load, Duration::from_millis(300));
        rig.kill(server);
        rig.mirror.fault("a", "{}");
        rig.local.fault("a", "{\"eio\":true}");
        rig.is_refused("may have gone on without it since");
        rig.local.fault("a", "{}");
        let server = rig.serve();
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        says(&server, "is in step again", 1);
        rig.kill(server);
        // Nobody went on alone this time: an operator may say so.
        rig.local.fault("a", "{\"eio\":true}");
        rig.is_refused("--mirror-alone");
        rig.volume.more.push("--mirror-alone".to_owned());
        let server = rig.serve();
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        server.stop().expect("a clean stop");
    });
}

#[test]
fn two_legs_that_went_on_alone_are_refused() {
    claim("split brain", &[], |rig| {
        let server = rig.serve();
        let mut load = rig.load();
        rig.mirror.fault("a", "{\"eio\":true}");
        rig.run(&mut load, Duration::from_millis(300));
        server.stop().expect("a clean stop");
        rig.mirror.fault("a", "{}");
        rig.local.fault("a", "{\"eio\":true}");
        rig.volume.more.push("--mirror-alone".to_owned());
        // An operator is wrong.
        rig.serve().stop().expect("a clean stop");
        rig.volume.more.pop();
        rig.local.fault("a", "{}");
        rig.is_refused("each gone on without the other");
    });
}

#[test]
fn a_required_mirror_that_is_gone_stops_writes() {
    claim("a required mirror", &["--mirror", "required"], |rig| {
        let server = rig.serve();
        let mut load = rig.load();
        rig.write(&mut load);
        rig.mirror.fault("a", "{\"eio\":true}");
        let begun = Instant::now();
        let mix = Mix { hot: CORE, ..Mix::default() };
        let end = load
            .run(&mut rig.history, &mut rig.rng, &mix, || begun.elapsed() > Duration::from_secs(10))
            .expect("right data");
        assert_eq!(end, End::Lost, "it writes on: {}", server.words());
        says(&server, "no writes are taken", 1);
        rig.kill(server);
        rig.is_refused("is required");
        rig.mirror.fault("a", "{}");
        let server = rig.serve();
        says(&server, "is in step again", 1);
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        rig.write(&mut load);
        server.stop().expect("a clean stop");
    });
}

#[test]
fn a_clean_stop_leaves_both_legs_alike() {
    claim("a clean stop", &[], |rig| {
        for _ in 0..2 {
            let server = rig.serve();
            let mut load = rig.load();
            rig.run(&mut load, Duration::from_millis(300));
            rig.verify(&mut load, None);
            server.stop().expect("a clean stop");
        }
        let log = rig.serve().log();
        assert!(!log.contains("is copied to"), "{log}");
        let (a, b) = (rig.local.bytes(), rig.mirror.bytes());
        assert!(a[1 << 20..] == b[1 << 20..], "the legs differ");
    });
}

#[test]
fn kills_amid_a_copy_lose_nothing() {
    claim("kills amid a copy", &[], |rig| {
        let mut joined = 0;
        for n in 0..6 {
            let server = rig.serve();
            let mut load = rig.load();
            rig.verify(&mut load, (n > 0).then_some(Crash::Killed));
            let lost = if n % 2 == 0 { &rig.mirror } else { &rig.local };
            if n % 3 == 2 {
                says(&server, "is in step again", joined + 1);
                lost.fault("a", "{\"eio\":true}");
            }
            rig.run(&mut load, Duration::from_millis(100 + 70 * n));
            joined = server.log().matches("is in step again").count();
            rig.kill(server);
            rig.local.fault("a", "{}");
            rig.mirror.fault("a", "{}");
        }
        let server = rig.serve();
        let mut load = rig.load();
        rig.verify(&mut load, Some(Crash::Killed));
        server.stop().expect("a clean stop");
    });
}

#[test]
fn a_fenced_leg_is_never_left() {
    for takes_mirror in [false, true] {
        let Some(mut rig) = Rig::new("a fenced leg", &[]) else { return };
        let server = rig.serve();
        let mut load = rig.load();
        rig.run(&mut load, Duration::from_millis(300));
        let (taken, other) = if takes_mirror { (&rig.mirror, &rig.local) } else { (&rig.local, &rig.mirror) };
        taken.take();
        let then = taken.bytes();
        let begun = Instant::now();
        let mix = Mix { hot: CORE, ..Mix::default() };
        let end = load
            .run(&mut rig.history, &mut rig.rng, &mix, || begun.elapsed() > Duration::from_secs(10))
            .expect("right data");
        assert_eq!(end, End::Lost, "it writes on: {}", server.words());
        let label = other.bytes()[..1 << 20].to_vec();
        std::thread::sleep(Duration::from_secs(3));
        assert!(!server.log().contains("holds the cache alone"), "{}", server.words());
        assert!(taken.bytes() == then, "what the partner has was written");
        assert!(other.bytes()[..1 << 20] == label, "the other leg's label was written");
    }
}

#[test]
fn a_device_with_data_is_no_leg_and_a_leg_is_no_cache() {
    let Some(mut rig) = Rig::new("foreign data", &[]) else { return };
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"XFSB");
    std::os::unix::fs::FileExt::write_all_at(
        &std::fs::File::options().write(true).open(rig.mirror.lun("a")).expect("it opens"),
        &bytes,
        0,
    )
    .expect("written");
    rig.is_refused("holds XFS");
    rig.volume.more.push("--force".to_owned());
    rig.serve().stop().expect("a clean stop");
    rig.volume.more.clear();
    rig.is_refused("a leg of a mirrored cache");
}
