//! What the label of a core says of whether anything is on the cache alone: who has lost the cache goes by it.

use crate::site::{CORE, Site};
use loligo_tests::history::History;

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
