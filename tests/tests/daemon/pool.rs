//! A pool whose cores are served: others come and go beside them.

use crate::site::{CORE, Site};
use loligo_sim::rng::Rng;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Mix};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A site whose volume `a` is defined on core 1 of a pool.
struct Pool {
    site: Site,
    path: String,
}

impl Pool {
    fn new(size: &str, max: &str) -> Pool {
        let site = Site::new(&[]);
        let path = site.path("pool").display().to_string();
        let pool = Pool { site, path };
        pool.site.ok(&["cache", "create", &pool.path, "--size", size]);
        pool.cache("attach", &["--core", "1", "--name", "a", "--min", "48m", "--max", max]);
        pool.site.core("a");
        let own = pool.site.section("a").replace("cache-size = \"24m\"\n", "");
        let cache = format!("{}/a.cache", pool.site.dir.path().display());
        pool.site.configure(&own.replace(&cache, &format!("pool:{}#1", pool.path)));
        pool
    }

    fn args<'a>(&'a self, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["cache", verb, self.path.as_str()][..], more].concat()
    }

    fn cache(&self, verb: &str, more: &[&str]) -> String {
        self.site.ok(&self.args(verb, more))
    }

    fn refused(&self, verb: &str, more: &[&str]) -> String {
        self.site.refused(&self.args(verb, more))
    }

    /// Makes the volume `name` on the core of that name.
    fn create(&self, name: &str) {
        self.site.core(name);
        let text = |file: String| self.site.path(&file).display().to_string();
        let (core, share) = (text(format!("{name}.core")), format!("pool:{}#{name}", self.path));
        let listen = format!("unix:{}", text(format!("{name}.nbd")));
        let args = ["volume", "create", name, "--core", &core, "--cache", &share, "--mode", "wb"];
        self.site.ok(&[&args[..], &["--listen", &listen]].concat());
    }

    /// A core as the pool shows it.
    fn core(&self, name: &str) -> Option<Value> {
        let shown: Value = serde_json::from_str(&self.cache("show", &["--json"])).expect("JSON");
        shown["cores"].as_array().expect("cores").iter().find(|c| c["name"] == name).cloned()
    }

    fn bytes(&self, name: &str, of: &str) -> u64 {
        self.core(name).and_then(|c| c[of].as_u64()).unwrap_or_else(|| panic!("{of} of {name}"))
    }
}

/// Something under way on volume `a`, until `meanwhile` is over; what may be read of it then.
fn under_load(pool: &Pool, mix: &Mix, meanwhile: impl FnOnce(&AtomicU64)) -> History {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut history, mut rng) = (History::new(CORE), Rng::new(11));
            let mut load = pool.site.load("a");
            let stop = || {
                answered.fetch_add(1, Ordering::Relaxed);
                over.load(Ordering::Relaxed)
            };
            assert_eq!(load.run(&mut history, &mut rng, mix, stop).expect("right data"), End::Done);
            history
        });
        // Whatever it panics with, the client ends.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| meanwhile(&answered)));
        over.store(true, Ordering::Relaxed);
        let history = client.join().expect("no request fails");
        done.unwrap_or_else(|why| std::panic::resume_unwind(why));
        history
    })
}

#[test]
fn cores_come_to_a_pool_and_go_while_others_of_it_are_served() {
    let pool = Pool::new("256m", "96m");
    let site = &pool.site;
    let daemon = site.daemon();
    let history = under_load(&pool, &Mix::default(), |answered| {
        let holder = pool.refused("dissolve", &[]);
        assert!(holder.contains(&daemon.id().to_string()), "the pool is the daemon's: {holder}");
        assert_eq!(pool.cache("attach", &["--name", "b", "--min", "48m", "--max", "96m"]).trim(), "0");
        pool.create("b");
        assert_eq!(site.status("b").0, "serving");
        let mut of_b = History::new(CORE);
        site.load("b").write(&mut of_b, 0..2048, true).expect("written");
        site.verified("b", &mut of_b, None);
        for name in ["a", "b"] {
            assert_eq!(pool.core(name).expect("it is shown")["state"], "in use", "{name}");
        }
        let lines = pool.cache("show", &[]);
        assert!(lines.lines().filter(|l| l.ends_with("in use")).count() == 2, "{lines}");

        for core in ["1", "a"] {
            let why = pool.refused("detach", &[core, "--force"]);
            assert!(why.contains("volume 'a' is served from it") && why.contains("volume stop a"), "{why}");
        }
        assert!(pool.refused("attach", &["--name", "b", "--min", "48m"]).contains("already"));
        assert!(pool.refused("attach", &["--name", "c", "--min", "200m"]).contains("promised to nobody"));
        assert!(pool.refused("detach", &["c"]).contains("no core named 'c'"));

        pool.cache("resize", &["b", "--min", "56m", "--weight", "300"]);
        let b = pool.core("b").expect("it is shown");
        assert_eq!((b["min"].as_u64(), b["weight"].as_u64()), (Some(56 * MIB), Some(300)));
        pool.cache("resize", &["b", "--size", "64m"]);
        assert!(
            pool.refused("resize", &["0", "--size", "48m"]).contains("58720256 to"),
            "by number, and as it is promised now"
        );

        site.ok(&["param", "set", "b", "destage-rate", "1"]);
        site.load("b").write(&mut of_b, 4096..8192, true).expect("written");
        site.ok(&["volume", "stop", "b"]);
        let why = pool.refused("detach", &["b"]);
        assert!(why.contains("bytes that its core does not have") && why.contains("--force"), "{why}");
        site.ok(&["volume", "start", "b"]);
        site.verified("b", &mut of_b, None);
        site.ok(&["volume", "stop", "b", "--flush"]);
        pool.cache("resize", &["b", "--min", "48m", "--size", "48m"]);
        site.ok(&["volume", "delete", "b"]);
        let before = answered.load(Ordering::Relaxed);
        pool.cache("detach", &["b"]);
        assert!(pool.core("b").is_none() && pool.core("a").is_some());
        let deadline = Instant::now() + Duration::from_secs(20);
        while answered.load(Ordering::Relaxed) <= before {
            assert!(Instant::now() < deadline, "core 1 is served no more");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    // What was answered is on the device.
    pool.cache("attach", &["--core", "7", "--name", "d", "--min", "48m"]);
    daemon.kill().expect("it lived");
    assert_eq!(pool.core("d").expect("it is shown")["state"], "never served");
    assert_eq!(pool.core("a").expect("it is shown")["state"], "not stopped cleanly");
    assert!(pool.core("b").is_none());
    let daemon = site.daemon();
    let mut history = history;
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_core_grown_into_a_whole_pool_gives_back_what_is_promised() {
    let pool = Pool::new("160m", "160m");
    let site = &pool.site;
    let daemon = site.daemon();
    pool.cache("resize", &["a", "--size", "144m"]);
    let free = || -> u64 {
        let shown: Value = serde_json::from_str(&pool.cache("show", &["--json"])).expect("JSON");
        shown["free_bytes"].as_u64().expect("bytes")
    };
    assert!(free() < 48 * MIB, "{} bytes are free", free());
    let (had, mix) = (pool.bytes("a", "size"), Mix { hot: CORE, ..Mix::default() });
    let mut history = under_load(&pool, &mix, |_| {
        assert!(pool.refused("attach", &["--name", "b", "--min", "120m"]).contains("promised to nobody"));
        assert_eq!(pool.bytes("a", "size"), had, "it gives nothing for what cannot be");
        pool.cache("attach", &["--name", "b", "--min", "48m", "--max", "48m"]);
        pool.create("b");
        assert!(pool.bytes("b", "size") > 40 * MIB && pool.bytes("a", "size") < had);
        let mut of_b = History::new(CORE);
        site.load("b").write(&mut of_b, 0..2048, true).expect("written");
        site.verified("b", &mut of_b, None);
    });
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    site.verified("a", &mut history, Some(Crash::Killed));
    daemon.stop().expect("a clean stop");
}
