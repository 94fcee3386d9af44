//! The label of a core tells whether anything is on the cache alone: who has lost the cache goes by it.

use crate::site::{CORE, Site};
use loligo_block::crc32c;
use loligo_tests::history::History;
use std::os::unix::fs::FileExt;

#[test]
fn a_label_says_the_core_has_all_until_the_cache_may_be_ahead() {
    // Before the content, and in the place of its first block.
    for home in ["1m", "0"] {
        let site = Site::new(&[]);
        site.core("a");
        let section = site.section("a").replace("\"wb\"", "\"wt\"");
        site.configure(&format!("{section}data-offset = \"{home}\"\n"));
        let core = site.path("a.core").display().to_string();
        let says = |everything: bool, when: &str| {
            let said = site.ok(&["probe", &core]);
            assert_eq!(said.contains("the core has everything"), everything, "{home}, {when}: {said}");
        };
        let mut history = History::new(CORE);
        // Not in the first block, which has room for a head that ends in zeros.
        let mut write = || site.load("a").write(&mut history, 64..128, true).expect("written");

        let daemon = site.daemon();
        write();
        says(true, "in wt");
        site.ok(&["mode", "a", "wa"]);
        write();
        daemon.kill().expect("it lived");
        says(true, "killed in wa");

        let daemon = site.daemon();
        site.ok(&["mode", "a", "wb"]);
        says(false, "in wb, before anything is written");
        site.ok(&["mode", "a", "wt", "--flush"]);
        says(false, "in wt again: a request of before may be under way");
        daemon.kill().expect("it lived");
        says(false, "killed then");

        let daemon = site.daemon();
        says(true, "started in wt with nothing dirty");
        site.ok(&["mode", "a", "wo"]);
        daemon.kill().expect("it lived");
        says(false, "killed in wo");
        let daemon = site.daemon();
        says(false, "started in wo");
        daemon.stop().expect("a clean stop");
    }
}

/// A volume whose label names no cache, beside the note of one that was being attached, as a crash between the two
/// leaves it.
fn cut_off_in_an_attach(site: &Site) -> History {
    site.core("a");
    let mut history = History::new(CORE - (1 << 20));
    site.configure(&format!("{}home-offset = \"1m\"\n", site.section("a")));
    let daemon = site.daemon();
    site.load("a").write(&mut history, 0..512, true).expect("written");
    site.ok(&["volume", "detach", "a"]);
    daemon.stop().expect("a clean stop");
    // Served bare, its label names none.
    let daemon = site.daemon();
    site.load("a").write(&mut history, 256..768, true).expect("written");
    let head = |core: &std::fs::File| {
        let mut head = vec![0; 1 << 20];
        core.read_exact_at(&mut head, 0).map(|()| head)
    };
    let core = std::fs::File::options().read(true).write(true).open(site.path("a.core")).expect("the core");
    let before = head(&core).expect("its label");
    let cache = site.path("b.cache").display().to_string();
    site.ok(&["volume", "attach", "a", "--cache", &cache, "--cache-size", "24m", "--mode", "wb"]);
    daemon.kill().expect("it lived");
    assert_ne!(before, head(&core).expect("its label"), "the label is what the attach writes last");
    core.write_all_at(&before, 0).and_then(|()| core.sync_all()).expect("written");
    note_attaching(site);
    history
}

/// Has the state say again that the one cache it knows is being attached.
fn note_attaching(site: &Site) {
    let path = site.path("state/state");
    let text = std::fs::read_to_string(&path).expect("the state");
    let (head, body) = text.split_once('\n').expect("a first line");
    let version = head.split(' ').nth(1).expect("a version");
    assert!(
        !body.contains("attaching") && body.contains("\"dirty_bytes\": null"),
        "it came to its end: {body}"
    );
    let body = body.replace("\"dirty_bytes\": null", "\"dirty_bytes\": null, \"attaching\": true");
    let sum = crc32c(body.as_bytes());
    let text = format!("loligo-state {version} {sum:08x} {}\n{body}", body.len());
    std::fs::write(&path, text).expect("written");
}

#[test]
fn a_crash_between_an_attachs_note_and_label_leaves_a_start() {
    let site = Site::new(&[]);
    let mut history = cut_off_in_an_attach(&site);
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving", "{:?}", site.status("a"));
    assert_eq!(site.show("a")["mode"], "wb", "with the cache that was attached");
    site.verified("a", &mut history, None);
    site.load("a").write(&mut history, 0..512, true).expect("written");
    daemon.kill().expect("it lived");
    let daemon = site.daemon();
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_cache_that_a_crash_kept_from_its_attach_can_be_left_out() {
    let site = Site::new(&[]);
    let mut history = cut_off_in_an_attach(&site);
    let dir = site.dir.path().display();
    site.configure(&format!("[volume.a]\ncore = \"{dir}/a.core\"\nlisten = [\"unix:{dir}/a.nbd\"]\n"));
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving", "{:?}", site.status("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

/// Volume 'a' without a label and made by command, killed after an attach with data that its core lacks.
fn killed_with_an_attached_cache(site: &Site, history: &mut History, first: std::ops::Range<u64>) {
    site.core("a");
    let dir = site.dir.path().display();
    let (core, listen) = (format!("{dir}/a.core"), format!("unix:{dir}/a.nbd"));
    let daemon = site.daemon();
    site.ok(&["volume", "create", "a", "--core", &core, "--listen", &listen]);
    site.load("a").write(history, first, true).expect("written");
    let cache = site.path("a.cache").display().to_string();
    let attach = ["volume", "attach", "a", "--cache", &cache, "--cache-size", "24m", "--mode", "wb"];
    site.ok(&[&attach[..], &["--param", "destage-low=90", "--param", "destage-age=0"]].concat());
    site.load("a").write(history, 4096..4608, true).expect("written");
    daemon.kill().expect("it lived");
}

/// The core of a volume with a label before its content. It is in the file no more, and its cache is dirty.
fn labelled(site: &Site, volume: &str) {
    site.core(volume);
    let dirty = "params = { destage-low = 90, destage-age = 0 }";
    site.configure(&format!("{}data-offset = \"1m\"\n{dirty}\n", site.section(volume)));
    let daemon = site.daemon();
    let mut history = History::new(CORE - (1 << 20));
    site.load(volume).write(&mut history, 0..8, true).expect("written");
    daemon.stop().expect("a clean stop");
    site.configure("");
}

#[test]
fn another_disks_label_does_not_say_that_nobody_was_served() {
    let site = Site::new(&[]);
    labelled(&site, "w");
    let mut history = History::new(CORE);
    killed_with_an_attached_cache(&site, &mut history, 0..8);
    let moved = |from: &str, to: &str| std::fs::rename(site.path(from), site.path(to)).expect("moved");
    moved("a.core", "own");
    moved("w.core", "a.core");
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("was last served as volume 'w'"), "{why}");
    daemon.stop().expect("a clean stop");
    moved("a.core", "w.core");
    moved("own", "a.core");
    moved("a.cache", "away");
    let daemon = site.daemon();
    let why = site.wait_for("a", "waiting");
    assert!(why.contains("was not stopped cleanly"), "{why}");
    let why = site.refused(&["volume", "delete", "a"]);
    assert!(why.contains("was not stopped cleanly"), "{why}");
    moved("away", "a.cache");
    site.wait_for("a", "serving");
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_clients_own_label_does_not_say_that_nobody_was_served() {
    let site = Site::new(&[]);
    labelled(&site, "w");
    let label = std::fs::read(site.path("w.core")).expect("a label");
    let mut history = History::new(CORE);
    killed_with_an_attached_cache(&site, &mut history, 1024..1032);
    // As a client of before the attach would have written it.
    let core = std::fs::File::options().write(true).open(site.path("a.core")).expect("the core");
    core.write_all_at(&label[..1 << 20], 0).and_then(|()| core.sync_all()).expect("written");
    std::fs::rename(site.path("a.cache"), site.path("away")).expect("moved");
    let daemon = site.daemon();
    let why = site.wait_for("a", "waiting");
    assert!(why.contains("was not stopped cleanly"), "{why}");
    std::fs::rename(site.path("away"), site.path("a.cache")).expect("moved");
    site.wait_for("a", "serving");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_bare_start_by_force_gives_up_what_the_label_speaks_of() {
    let site = Site::new(&[]);
    labelled(&site, "a");
    std::fs::remove_file(site.path("a.cache")).expect("lost");
    let dir = site.dir.path().display();
    site.configure(&format!("[volume.a]\ncore = \"{dir}/a.core\"\nlisten = [\"unix:{dir}/a.nbd\"]\n"));
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("--force, which gives that up"), "{why}");
    // Nothing but the label knows of the cache then.
    daemon.stop().expect("a clean stop");
    std::fs::remove_dir_all(site.path("state")).expect("forgotten");
    let daemon = site.daemon();
    let why = site.wait_for("a", "refused");
    assert!(why.contains("belongs to cache") && why.contains("--force gives that up"), "{why}");
    site.ok(&["volume", "start", "a", "--force"]);
    assert_eq!(site.status("a").0, "serving");
    site.ok(&["volume", "restart", "a"]);
    assert_eq!(site.status("a").0, "serving", "it is given up for good");
    daemon.stop().expect("a clean stop");
}
