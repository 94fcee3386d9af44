//! A core and its cache belong together, whatever paths and names they are given under.

use crate::site::{CORE, Site};
use loligo_tests::history::{Crash, History};
use loligo_tests::loops::Loop;
use loligo_tests::skip;

/// A volume without a cache.
fn bare(site: &Site, volume: &str, core: &str) -> String {
    let dir = site.dir.path().display();
    format!("[volume.{volume}]\ncore = \"{dir}/{core}\"\nlisten = [\"unix:{dir}/{volume}.nbd\"]\n")
}

/// Volume 'a' with dirty data, stopped with its daemon.
fn with_dirty_data(site: &Site) -> History {
    let mut history = History::new(CORE);
    let daemon = site.daemon();
    site.load("a").write(&mut history, 0..16, true).expect("written");
    daemon.stop().expect("a clean stop");
    history
}

#[test]
fn a_core_is_not_served_past_its_cache_by_another_path() {
    let site = Site::new(&["a"]);
    let mut history = with_dirty_data(&site);
    std::os::unix::fs::symlink("a.core", site.path("link")).expect("a link");
    std::fs::hard_link(site.path("a.core"), site.path("hard")).expect("a link");
    site.configure(&(bare(&site, "b", "link") + &bare(&site, "c", "hard")));
    let daemon = site.daemon();
    for volume in ["b", "c"] {
        let why = site.wait_for(volume, "refused");
        assert!(why.contains("was last served as volume 'a'"), "{why}");
    }
    daemon.stop().expect("a clean stop");
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn clean_data_is_void_once_another_path_changed_the_core() {
    let site = Site::new(&["a"]);
    let mut history = History::new(CORE);
    let daemon = site.daemon();
    site.load("a").write(&mut history, 0..4096, true).expect("written");
    site.ok(&["flush", "a"]);
    daemon.stop().expect("a clean stop");
    std::os::unix::fs::symlink("a.core", site.path("link")).expect("a link");
    site.configure(&bare(&site, "b", "link"));
    let daemon = site.daemon();
    site.load("b").write(&mut history, 2000..2001, true).expect("written");
    daemon.stop().expect("a clean stop");
    site.configure(&site.section("a"));
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_new_name_does_not_give_up_what_a_cache_holds() {
    let site = Site::new(&["a"]);
    let mut history = with_dirty_data(&site);
    std::fs::rename(site.path("a.cache"), site.path("away")).expect("moved");
    let renamed = site.section("a").replace("[volume.a]", "[volume.b]");
    site.configure(&renamed);
    let daemon = site.daemon();
    let why = site.wait_for("b", "waiting");
    assert!(why.contains("bytes that core") && why.contains("is not there"), "{why}");
    daemon.stop().expect("a clean stop");
    assert!(!site.path("a.cache").exists(), "nothing was made in its place");
    std::fs::rename(site.path("away"), site.path("a.cache")).expect("moved back");
    let daemon = site.daemon();
    site.wait_for("b", "serving");
    std::fs::rename(site.path("a.nbd"), site.path("b.nbd")).expect("the socket by its new name");
    site.verified("b", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_of_another_core_is_not_taken_for_the_own() {
    let site = Site::new(&["a", "c"]);
    let (mut a, mut c) = (History::new(CORE), History::new(CORE));
    let daemon = site.daemon();
    site.load("a").write(&mut a, 0..16, true).expect("written");
    site.ok(&["volume", "stop", "a", "--flush"]);
    site.load("c").write(&mut c, 0..16, true).expect("written");
    daemon.stop().expect("a clean stop");
    let swap = || {
        let moves = [("a.cache", "third"), ("c.cache", "a.cache"), ("third", "c.cache")];
        moves.iter().for_each(|(from, to)| std::fs::rename(site.path(from), site.path(to)).expect("moved"));
    };
    swap();
    let daemon = site.daemon();
    site.loligo(&["volume", "start", "a"]);
    let why = site.wait_for("a", "refused");
    assert!(why.contains("of volume 'c'"), "{why}");
    let why = site.wait_for("c", "refused");
    assert!(why.contains("of volume 'a'"), "{why}");
    daemon.stop().expect("a clean stop");
    swap();
    let daemon = site.daemon();
    site.loligo(&["volume", "start", "a"]);
    site.wait_for("a", "serving");
    site.verified("a", &mut a, None);
    site.verified("c", &mut c, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_dirty_cache_does_not_go_to_another_file_at_its_path() {
    let site = Site::new(&["a"]);
    let mut history = with_dirty_data(&site);
    let (core, kept) = (site.path("a.core"), site.path("kept"));
    std::fs::rename(&core, &kept).expect("moved");
    let another = vec![0x5a; CORE as usize];
    std::fs::write(&core, &another).expect("written");
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("is another file") && why.contains("--force"), "{why}");
    daemon.stop().expect("a clean stop");
    assert!(std::fs::read(&core).expect("read") == another, "nothing went to it");
    std::fs::rename(&kept, &core).expect("moved");
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_label_does_not_go_over_data_without_a_signature() {
    let site = Site::new(&["a"]);
    let mut content = vec![0; 256 << 10];
    content.resize(CORE as usize, 0x5a);
    std::fs::write(site.path("a.core"), &content).expect("a core");
    site.configure(&(site.section("a") + "data-offset = \"1m\"\n"));
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("are not all zero") && why.contains("--force"), "{why}");
    daemon.stop().expect("a clean stop");
    assert!(std::fs::read(site.path("a.core")).expect("a core") == content, "nothing was written");
}

#[test]
fn a_section_does_not_take_the_core_of_a_volume_made_by_command() {
    let site = Site::new(&[]);
    site.core("m");
    let dir = site.dir.path().display().to_string();
    let (core, cache, listen) =
        (format!("{dir}/m.core"), format!("{dir}/m.cache"), format!("unix:{dir}/m.nbd"));
    let mut history = History::new(CORE);
    let daemon = site.daemon();
    let make = ["volume", "create", "m", "--core", &core, "--listen", &listen, "--cache", &cache];
    site.ok(&[&make[..], &["--cache-size", "24m", "--mode", "wb"]].concat());
    site.load("m").write(&mut history, 0..16, true).expect("written");
    site.ok(&["volume", "stop", "m"]);
    std::os::unix::fs::symlink("m.core", site.path("link")).expect("a link");
    for (core, how) in [("m.core", "is volume 'm' already"), ("link", "by whatever name")] {
        site.configure(&bare(&site, "f", core));
        site.loligo(&["config", "reload"]);
        let why = site.wait_for("f", "refused");
        assert!(why.contains("volume 'm' already") && why.contains(how), "{why}");
    }
    daemon.stop().expect("a clean stop");
    site.configure(&bare(&site, "f", "m.core"));
    let daemon = site.daemon();
    let why = site.wait_for("f", "refused");
    assert!(why.contains("is volume 'm' already"), "{why}");
    site.ok(&["volume", "start", "m"]);
    site.verified("m", &mut history, None);
    daemon.stop().expect("a clean stop");
}

/// Volume 'a', whose cache has nothing but dirty data, and 'c', whose core has a label and everything. They were killed.
fn dirty_beside_a_labelled_one(site: &Site) -> [History; 2] {
    let dirty = "params = { destage-low = 90, destage-age = 0 }\n";
    site.configure(&(site.section("a") + dirty + &site.section("c") + "data-offset = \"1m\"\n"));
    let (mut a, mut c) = (History::new(CORE), History::new(CORE - (1 << 20)));
    let daemon = site.daemon();
    site.load("a").write(&mut a, 0..512, true).expect("written");
    site.load("c").write(&mut c, 0..512, true).expect("written");
    site.ok(&["volume", "stop", "c", "--flush"]);
    daemon.kill().expect("it lived");
    [a, c]
}

/// Has the names of both cores lead to the other one.
fn exchange(site: &Site) {
    let moves = [("a.core", "third"), ("c.core", "a.core"), ("third", "c.core")];
    moves.iter().for_each(|(from, to)| std::fs::rename(site.path(from), site.path(to)).expect("moved"));
}

/// Volume 'a' is refused for `why` by the disk of 'c', which stays as it is, and both are served by their own again. A copy of
/// its own is taken by order.
fn keeps_to_its_disk(site: &Site, [mut a, mut c]: [History; 2], why: &str, copied: bool) {
    let disk = std::fs::read(site.path("a.core")).expect("the disk of 'c'");
    let daemon = site.daemon();
    let said = site.wait_for("a", "refused");
    assert!(said.contains(why) && said.contains("of volume 'c'") && said.contains("--force"), "{said}");
    daemon.stop().expect("a clean stop");
    assert!(std::fs::read(site.path("a.core")).expect("the disk of 'c'") == disk, "nothing was written");
    exchange(site);
    let daemon = site.daemon();
    site.ok(&["volume", "start", "c"]);
    if copied {
        let said = site.wait_for("a", "refused");
        assert!(said.contains("as for a copy of the right one"), "{said}");
        site.ok(&["volume", "start", "a", "--force"]);
    }
    site.wait_for("a", "serving");
    site.verified("a", &mut a, Some(Crash::Killed));
    site.verified("c", &mut c, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_dirty_cache_does_not_go_to_the_disk_that_its_path_leads_to() {
    let site = Site::new(&["a", "c"]);
    let histories = dirty_beside_a_labelled_one(&site);
    exchange(&site);
    keeps_to_its_disk(&site, histories, "is the core", false);
}

#[test]
fn a_dirty_cache_does_not_go_to_another_loop_device() {
    let site = Site::new(&[]);
    let made = |name: &str| Loop::new(&site.path(&format!("{name}.disk")), CORE, 512);
    let (a, c) = match made("a").and_then(|a| Ok((a, made("c")?))) {
        Ok(both) => both,
        Err(why) => return skip::skip("cores on loop devices that are numbered anew", &why),
    };
    for (device, link) in [(&a, "a.core"), (&c, "c.core")] {
        std::os::unix::fs::symlink(device.path(), site.path(link)).expect("a link");
    }
    let histories = dirty_beside_a_labelled_one(&site);
    exchange(&site);
    keeps_to_its_disk(&site, histories, "is the core", false);
}

#[test]
fn a_dirty_cache_does_not_go_over_the_label_of_another() {
    let site = Site::new(&["a", "c"]);
    let histories = dirty_beside_a_labelled_one(&site);
    // Copies have other numbers.
    for name in ["a.core", "c.core"] {
        std::fs::copy(site.path(name), site.path("copy")).expect("copied");
        std::fs::rename(site.path("copy"), site.path(name)).expect("moved");
    }
    exchange(&site);
    keeps_to_its_disk(&site, histories, "the label at its start", true);
}
