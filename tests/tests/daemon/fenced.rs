//! A controller whose partner takes its array. What the array refuses is lost, and nothing else: nothing is written any more, to
//! whichever device, and the partner finds all that was acknowledged.

use crate::site::Site;
use loligo_pair::lease::LEASE;
use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::lab::until;
use loligo_tests::line::EIO;
use loligo_tests::load::{End, Mix};
use loligo_tests::nbd::Command;
use loligo_tests::shared_array::SharedArray;
use std::time::{Duration, Instant};

/// Bytes of a core.
const CORE: u64 = 16 << 20;
/// Longest that a request may take which nothing is to be waited for.
const AT_ONCE: Duration = Duration::from_secs(2);
/// The time in which a write that is still to come would come: the engine's own are due within it.
const LATER: Duration = Duration::from_secs(3);

/// The arrays that the partner takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Cache,
    Core,
    Both,
}

/// Cache and core of a volume, each on an array of its own, and the two controllers.
struct Pair {
    cache: SharedArray,
    core: SharedArray,
    owner: Site,
    partner: Site,
}

impl Pair {
    fn new(test: &str, mode: &str, more: &str) -> Option<Pair> {
        let (owner, partner) = (Site::new(&[]), Site::new(&[]));
        let cache = SharedArray::new(test, &owner.path("cache"), "24m")?;
        let core = SharedArray::new(test, &owner.path("core"), "16m")?;
        let pair = Pair { cache, core, owner, partner };
        for (site, path) in [(&pair.owner, "a"), (&pair.partner, "b")] {
            site.configure(&pair.section(site, path, mode, more));
        }
        Some(pair)
    }

    fn section(&self, site: &Site, path: &str, mode: &str, more: &str) -> String {
        let (core, cache) = (self.core.lun(path), self.cache.lun(path));
        format!(
            "[volume.v]\ncore = \"{}\"\ncache = \"{}\"\nmode = \"{mode}\"\nreservation = \"0x{path}\"\nlisten = [\"unix:{}\"]\n\
             {more}",
            core.display(),
            cache.display(),
            site.path("v.nbd").display(),
        )
    }

    /// The owner's volume as that of a program that does not ask the array.
    fn without_its_word(&self, mode: &str) -> String {
        self.section(&self.owner, "a", mode, "").replace("reservation = \"0xa\"\n", "")
    }

    fn take(&self, which: Taken) {
        if which != Taken::Core {
            self.cache.take();
        }
        if which != Taken::Cache {
            self.core.take();
        }
    }

    fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        (self.cache.bytes(), self.core.bytes())
    }

    /// A device that the partner has holds what it held when that was confirmed.
    fn is_untouched(&self, which: Taken, then: &(Vec<u8>, Vec<u8>)) {
        assert!(which == Taken::Core || self.cache.bytes() == then.0, "{which:?}: the cache was written");
        assert!(which == Taken::Cache || self.core.bytes() == then.1, "{which:?}: the core was written");
    }
}

/// The first sign counts: a write that was refused, or the array's word on its holder.
fn is_of_the_array(why: &str) {
    let refused = why.contains("the array refuses this controller's writes (EBADE)");
    assert!(refused || why.contains("by its array"), "{why}");
}

fn is_lost_alone(mode: &str, which: Taken) {
    let Some(pair) = Pair::new("fenced volumes", mode, "") else { return };
    // One that does not ask the array hears of it by what is refused.
    let asks = mode == "wb";
    if !asks {
        pair.owner.configure(&pair.without_its_word(mode));
    }
    let daemon = pair.owner.daemon();
    let mut history = History::new(CORE);
    let mut load = pair.owner.load("v");
    load.write(&mut history, 0..4096, false).expect("written");
    let begun = Instant::now();
    let mix = Mix { hot: CORE, ..Mix::default() };
    let then = std::thread::scope(|s| {
        let running = s.spawn(|| {
            let end =
                load.run(&mut history, &mut Rng::new(7), &mix, || begun.elapsed() > Duration::from_secs(30));
            assert_eq!(end.expect("right data"), End::Lost, "{which:?}: it is served on");
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(500));
        pair.take(which);
        let (taken, then) = (Instant::now(), pair.bytes());
        let lost = running.join().expect("the load").saturating_duration_since(taken);
        assert!(lost < AT_ONCE, "{which:?}: refused after {lost:?}");
        then
    });
    let why = pair.owner.wait_for("v", "lost");
    is_of_the_array(&why);
    pair.is_untouched(which, &then);
    let then = pair.bytes();
    std::thread::sleep(LATER);
    pair.is_untouched(Taken::Both, &then);
    for array in [&pair.cache, &pair.core] {
        assert_eq!(array.count("a", "landed"), 0);
    }
    // A flush may be the first that the array refuses, and counts as no write.
    assert!(asks || why.contains("EBADE"), "{which:?}: {why}");
    let said = daemon.log();
    assert!(!said.contains("void") && !said.contains("serves alone"), "{said}");
    // A restart remembers that it was lost, and touches nothing.
    daemon.stop().expect("a clean stop");
    let daemon = pair.owner.daemon();
    is_of_the_array(&pair.owner.wait_for("v", "lost"));
    pair.is_untouched(Taken::Both, &then);
    if which != Taken::Both {
        pair.take(if which == Taken::Cache { Taken::Core } else { Taken::Cache });
    }
    let partner = pair.partner.daemon();
    pair.partner.verified("v", &mut history, Some(Crash::Killed));
    partner.stop().expect("a clean stop");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_volume_whose_cache_is_fenced_is_lost_alone() {
    ["wb", "wt"].into_iter().for_each(|mode| is_lost_alone(mode, Taken::Cache));
}

#[test]
fn a_volume_whose_core_is_fenced_is_lost_alone() {
    is_lost_alone("wt", Taken::Core);
}

#[test]
fn a_volume_that_is_fenced_from_both_is_lost_alone() {
    ["wb", "wt"].into_iter().for_each(|mode| is_lost_alone(mode, Taken::Both));
}

#[test]
fn a_fence_is_seen_by_destaging_as_well() {
    let Some(pair) = Pair::new("fenced destaging", "wb", "[volume.v.params]\ndestage-low = 0\n") else {
        return;
    };
    let daemon = pair.owner.daemon();
    pair.owner.ok(&["param", "set", "v", "destage-rate", "5"]);
    let mut history = History::new(CORE);
    pair.owner.load("v").write(&mut history, 0..8192, false).expect("written");
    // No client asks for anything from here on.
    pair.core.take();
    is_of_the_array(&pair.owner.wait_for("v", "lost"));
    assert_eq!(pair.core.count("a", "landed"), 0);
    pair.cache.take();
    let partner = pair.partner.daemon();
    pair.partner.verified("v", &mut history, Some(Crash::Killed));
    partner.stop().expect("a clean stop");
    daemon.stop().expect("a clean stop");
}

/// The array refuses writes alone. Whoever only reads is told nothing by it, and its partner's clients may have written.
#[test]
fn reads_are_answered_for_a_second_after_a_fence_at_most() {
    let Some(pair) = Pair::new("reads after a fence", "wt", "") else { return };
    let daemon = pair.owner.daemon();
    let mut line = pair.owner.line("v");
    line.ask(0, &Command::Write { data: vec![7; 4096], fua: true }).expect("written");
    // What the engine has still to write would be refused, and tell.
    std::thread::sleep(LATER);
    let refused = |pair: &Pair| pair.cache.count("a", "rejected") + pair.core.count("a", "rejected");
    pair.take(Taken::Both);
    let taken = Instant::now();
    let end = loop {
        let begun = taken.elapsed();
        match line.try_ask(0, &Command::Read(4096)) {
            Ok(Ok(data)) => assert_eq!(data, vec![7; 4096]),
            // Hung up on, or refused.
            Ok(Err(_)) | Err(_) => break begun,
        }
        assert!(begun < 4 * LEASE, "it is answered {begun:?} after the fence");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(end < LEASE + AT_ONCE / 4, "answered for {end:?}");
    assert_eq!(refused(&pair), 0, "a write has told it: the test shows nothing");
    is_of_the_array(&pair.owner.wait_for("v", "lost"));
    daemon.stop().expect("a clean stop");
}

/// What only one host remembers of a cache its partner does not know, and would believe what the cache has: the core does not go on
/// alone.
#[test]
fn a_core_does_not_go_on_alone_by_the_memory_of_one_host() {
    /// Away from both ends, at which a core is compared with its cache.
    const AT: u64 = 6 << 20;
    let Some(pair) = Pair::new("a cache of which a path fails", "wt", "") else { return };
    let daemon = pair.owner.daemon();
    let mut line = pair.owner.line("v");
    let write = |byte| Command::Write { data: vec![byte; 4096], fua: true };
    // So much is clean that a start does not compare all of it.
    for mib in 0..12 {
        line.ask(mib << 20, &Command::Write { data: vec![1; 1 << 20], fua: true }).expect("written");
    }
    pair.cache.fault("a", r#"{"eio":true}"#);
    let begun = Instant::now();
    let mut last = 1;
    // The write during which the cache fails may be acknowledged once the core has it.
    while let Ok(Ok(_)) = line.try_ask(AT, &write(last + 1)) {
        last += 1;
        assert!(begun.elapsed() < LATER, "the core serves alone");
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.kill().expect("it lived");
    pair.cache.fault("a", "{}");
    pair.take(Taken::Both);
    let partner = pair.partner.daemon();
    pair.partner.wait_for("v", "serving");
    let found = pair.partner.line("v").ask(AT, &Command::Read(4096)).expect("read")[0];
    // One that was refused may have been carried out.
    assert!(found == last || found == last + 1, "{found} is found, and {last} was acknowledged");
    partner.stop().expect("a clean stop");
}

/// The cache on the array is the partner's word, and newer than what this host remembers of the one before.
#[test]
fn a_cache_that_the_partner_made_anew_is_believed() {
    let Some(pair) = Pair::new("a cache made anew by the partner", "wb", "") else { return };
    let daemon = pair.owner.daemon();
    let mut history = History::new(CORE);
    pair.owner.load("v").write(&mut history, 0..2048, false).expect("written");
    // It remembers that its cache has what the core lacks.
    daemon.kill().expect("it lived");
    pair.take(Taken::Both);
    let partner = pair.partner.daemon();
    pair.partner.verified("v", &mut history, Some(Crash::Killed));
    pair.partner.ok(&["volume", "stop", "v", "--flush"]);
    pair.partner.ok(&["volume", "start", "v", "--create", "--force"]);
    pair.partner.load("v").write(&mut history, 0..1024, false).expect("written");
    partner.stop().expect("a clean stop");
    [&pair.cache, &pair.core].into_iter().for_each(SharedArray::give_back);
    let daemon = pair.owner.daemon();
    let (state, why) = pair.owner.status("v");
    assert_eq!(state, "serving", "{why}");
    pair.owner.verified("v", &mut history, None);
    daemon.stop().expect("a clean stop");
}

/// A path that queues without end keeps writes of a volume that is ended. They would land once this controller may write again.
#[test]
fn an_ended_volume_is_ending_while_the_kernel_has_its_writes() {
    let Some(pair) = Pair::new("writes that a path queues", "wt", "") else { return };
    let daemon = pair.owner.daemon();
    let mut line = pair.owner.line("v");
    let write = Command::Write { data: vec![7; 4096], fua: true };
    line.ask(0, &write).expect("written");
    [&pair.cache, &pair.core].iter().for_each(|array| array.fault("a", r#"{"queues":true}"#));
    std::thread::scope(|s| {
        let waits = s.spawn(|| line.try_ask(0, &write));
        std::thread::sleep(Duration::from_millis(500));
        pair.take(Taken::Both);
        let then = pair.bytes();
        pair.owner.ok(&["volume", "end", "v"]);
        assert!(waits.join().expect("no panic").is_err(), "it is hung up on");
        let ending = || pair.owner.show("v")["ending"] == true;
        assert!(ending(), "{}", pair.owner.show("v"));
        std::thread::sleep(AT_ONCE);
        assert!(ending(), "{}", pair.owner.show("v"));
        [&pair.cache, &pair.core].iter().for_each(|array| array.fault("a", "{}"));
        until("what the kernel had is refused", LATER, || !ending());
        pair.is_untouched(Taken::Both, &then);
    });
    daemon.stop().expect("a clean stop");
}

/// Its clients find the volume on the other controller. An error would go to their users.
#[test]
fn an_ended_volume_hangs_up_and_says_no_error() {
    let Some(pair) = Pair::new("clients of a volume that is ended", "wt", "") else { return };
    let daemon = pair.owner.daemon();
    for round in 0..8 {
        let ends: Vec<_> = (0..4u64)
            .map(|n| {
                let mut line = pair.owner.line("v");
                std::thread::spawn(move || {
                    let write = Command::Write { data: vec![7; 4096], fua: true };
                    loop {
                        match line.try_ask(n << 20, &write) {
                            Ok(Ok(_)) => {}
                            Ok(Err(error)) => return Some(error),
                            Err(_) => return None,
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        pair.owner.ok(&["volume", "end", "v"]);
        let said: Vec<u32> = ends.into_iter().filter_map(|it| it.join().expect("no panic")).collect();
        assert!(said.is_empty(), "round {round}: errors {said:?}");
        pair.owner.ok(&["volume", "start", "v"]);
        pair.owner.wait_for("v", "serving");
    }
    daemon.stop().expect("a clean stop");
}

#[test]
fn what_the_partner_has_is_not_opened() {
    let Some(pair) = Pair::new("opening what the partner has", "wb", "") else { return };
    let then = pair.bytes();
    // Only registered: by the locks of its own host it would be alone.
    let partner = pair.partner.daemon();
    let (state, why) = pair.partner.status("v");
    assert_eq!(state, "refused", "{why}");
    assert!(
        why.contains("key 0xa holds it, and this controller's is 0xb") && why.contains("Take it over"),
        "{why}"
    );
    pair.is_untouched(Taken::Both, &then);
    let daemon = pair.owner.daemon();
    let mut history = History::new(CORE);
    pair.owner.load("v").write(&mut history, 0..2048, false).expect("written");
    daemon.kill().expect("it lived");
    pair.take(Taken::Both);
    let then = pair.bytes();
    let daemon = pair.owner.daemon();
    let (state, why) = pair.owner.status("v");
    assert_eq!(state, "refused", "{why}");
    assert!(why.contains("key 0xb holds it"), "{why}");
    pair.is_untouched(Taken::Both, &then);
    pair.partner.ok(&["volume", "start", "v"]);
    pair.partner.verified("v", &mut history, Some(Crash::Killed));
    partner.stop().expect("a clean stop");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_start_against_a_fence_writes_nothing_and_is_lost() {
    let Some(pair) = Pair::new("starts against a fence", "wb", "") else { return };
    // As one that looked before the partner took the array: it is not asked.
    pair.owner.configure(&pair.without_its_word("wb"));
    let daemon = pair.owner.daemon();
    let mut history = History::new(CORE);
    pair.owner.load("v").write(&mut history, 0..2048, false).expect("written");
    daemon.kill().expect("it lived");
    pair.take(Taken::Both);
    let then = pair.bytes();
    let daemon = pair.owner.daemon();
    assert!(pair.owner.wait_for("v", "lost").contains("EBADE"));
    pair.is_untouched(Taken::Both, &then);
    let why = pair.owner.refused(&["volume", "start", "v"]);
    assert!(why.contains("lost") && why.contains("EBADE"), "{why}");
    let partner = pair.partner.daemon();
    pair.partner.verified("v", &mut history, Some(Crash::Killed));
    partner.stop().expect("a clean stop");
    daemon.stop().expect("a clean stop");
}

#[test]
fn requests_of_every_kind_fail_at_once_on_a_fenced_volume() {
    let Some(pair) = Pair::new("requests after a fence", "wb", "") else { return };
    let _daemon = pair.owner.daemon();
    let mut history = History::new(CORE);
    pair.owner.load("v").write(&mut history, 0..2048, false).expect("written");
    let mut lines = [0; 4].map(|_| pair.owner.line("v"));
    pair.take(Taken::Both);
    let commands = [
        Command::Write { data: vec![1; 4096], fua: true },
        Command::Zeroes { len: 4096, fua: false },
        Command::Read(4096),
        Command::Flush,
    ];
    for (line, command) in lines.iter_mut().zip(&commands) {
        let begun = Instant::now();
        // The connection ends soon after the first refusal.
        let said = line.try_ask(0, command).unwrap_or(Err(EIO));
        assert_eq!(said, Err(EIO), "{command:?}");
        assert!(begun.elapsed() < AT_ONCE, "{command:?} took {:?}", begun.elapsed());
    }
}
