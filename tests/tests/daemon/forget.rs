//! A name and the cache that it was served through part by command only.

use crate::site::{CORE, Site};
use loligo_tests::history::History;

/// The settings that keep everything dirty on the cache.
const DIRTY: &str = "params = { destage-low = 90, destage-age = 0 }\n";

/// A volume of the core and the cache of others.
fn section(site: &Site, name: &str, core: &str, cache: Option<&str>) -> String {
    let dir = site.dir.path().display();
    let mut text =
        format!("[volume.{name}]\ncore = \"{dir}/{core}\"\nlisten = [\"unix:{dir}/{name}.nbd\"]\n");
    if let Some(cache) = cache {
        text += &format!("cache = \"{dir}/{cache}\"\ncache-size = \"24m\"\nmode = \"wb\"\n{DIRTY}");
    }
    text
}

/// Serves the one volume once, and writes some.
fn written(site: &Site, name: &str) -> History {
    let daemon = site.daemon();
    let mut history = History::new(CORE);
    site.load(name).write(&mut history, 0..512, true).expect("written");
    daemon.stop().expect("a clean stop");
    history
}

#[test]
fn a_name_gets_another_core_once_its_cache_is_forgotten() {
    let site = Site::new(&["a"]);
    site.core("other");
    site.configure(&section(&site, "a", "a.core", Some("a.cache")));
    let mut history = written(&site, "a");
    site.configure(&section(&site, "a", "other.core", Some("other.cache")));
    std::fs::File::create(site.path("other.cache")).and_then(|f| f.set_len(24 << 20)).expect("a cache");
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("bytes that core") && why.contains("'loligo volume forget' it"), "{why}");
    let refused = site.loligo(&["volume", "forget", "a"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && why.contains("262144 bytes"), "{why}");
    let told = site.ok(&["volume", "forget", "a", "--force", "--json"]);
    assert!(told.contains("262144 bytes") && told.contains("\"outcome\": \"done\""), "{told}");
    site.ok(&["volume", "start", "a"]);
    assert!(site.refused(&["volume", "forget", "a"]).contains("stop it first"));
    site.load("a").write(&mut History::new(CORE), 0..8, true).expect("written");
    site.ok(&["flush", "a"]);
    daemon.stop().expect("a clean stop");
    // What was forgotten is as it was.
    site.configure(&section(&site, "a", "a.core", Some("a.cache")));
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}
