//! What the label of a core says of whether anything is on the cache alone: who has lost the cache goes by it.

use crate::site::{CORE, Site};
use loligo_tests::history::History;
use std::os::unix::fs::FileExt;

#[test]
fn a_label_says_that_the_core_has_everything_until_the_cache_may_get_ahead_of_it() {
    // Before the content, and in the place of its first block.
    for home in ["1m", "0"] {
        let site = Site::new(&[]);
        site.core("a");
        let section = site.section("a").replace("\"wb\"", "\"wt\"");
        site.configure(&format!("{section}home-offset = \"{home}\"\n"));
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
    history
}

#[test]
fn a_crash_between_note_and_label_of_an_attach_leaves_a_volume_that_starts() {
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
fn a_cache_that_a_crash_kept_from_being_attached_can_be_left_out() {
    let site = Site::new(&[]);
    let mut history = cut_off_in_an_attach(&site);
    let dir = site.dir.path().display();
    site.configure(&format!("[volume.a]\ncore = \"{dir}/a.core\"\nlisten = [\"unix:{dir}/a.nbd\"]\n"));
    let daemon = site.daemon();
    assert_eq!(site.status("a").0, "serving", "{:?}", site.status("a"));
    site.verified("a", &mut history, None);
    daemon.stop().expect("a clean stop");
}
