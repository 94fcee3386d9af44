//! Claims about an image that another client takes, and about caches that are not where the image's dirty data is.

use crate::cluster::{Frozen, is_long, shared, wait_until};
use crate::shadow::BLOCK;
use crate::site::{ESHUTDOWN, Image, SIZE};
use crate::writer::{End, Writer, fresh, look, read_all};
use std::time::{Duration, Instant};

const BLOCKS: usize = SIZE as usize / BLOCK;

#[test]
fn a_client_that_steals_the_image_fences_the_first() {
    let Some((cluster, _shared)) = shared("an image stolen") else { return };
    for round in 0..if is_long() { 20 } else { 2 } {
        let image = Image::new(cluster, &format!("stolen{round}"));
        let (first, second) = (image.site("first"), image.site("second"));
        let old = fresh();
        let server = first.serve(&[]);
        let writer = Writer::start(&first.socket(), &old, round, BLOCKS);
        writer.goes_on(3000);
        let holder = image.lock().expect("a lock");

        let words = second.refused(&second.core(), &["--force-without-cache"]);
        assert!(words.contains("is in use by") && words.contains(&holder), "{words}");
        assert!(words.contains("--steal"), "{words}");
        writer.goes_on(500);
        let words = second.refused(&second.core(), &["--steal"]);
        assert!(words.contains("another cache holds") && words.contains("--force-without-cache"), "{words}");
        writer.goes_on(500);

        // Every other time what the first has under way leaves it only after the takeover.
        let frozen = (round % 2 == 1).then(|| Frozen::service(&server));
        let taker = second.serve(&["--steal", "--force-without-cache"]);
        // Nothing that arrives from now on may be the first one's.
        let found = read_all(&second.socket());
        let versions = look(&old).holds_at_most(&found);
        drop(frozen);
        let stolen = Instant::now();
        assert_eq!(writer.ended(), End::Refused(ESHUTDOWN), "{}", server.words());
        assert!(stolen.elapsed() < Duration::from_secs(15), "noticed after {:?}", stolen.elapsed());
        first.is_lost(&server);

        let new = fresh();
        look(&new).settle(versions);
        let writer = Writer::start(&second.socket(), &new, round + 100, BLOCKS);
        writer.goes_on(2000);
        assert_eq!(writer.stop(), End::Done, "{}", taker.words());
        // Its data is kept, and it says that the image was another's when it comes back.
        server.stop().expect("a lost service stops");
        let words = first.refused(&first.core(), &[]);
        assert!(words.contains("somebody else had") || words.contains("another cache"), "{words}");
        second.flush();
        taker.stop().expect("a clean stop");
        image.is_whole_and_free(&look(&new));
        let words = first.refused(&first.core(), &[]);
        assert!(words.contains("somebody else had image"), "{words}");
    }
}

/// A stock client that writes to an image until it is refused.
struct Stock(std::process::Child);

impl Stock {
    fn new(image: &Image) -> Stock {
        let load = ["bench", "--io-type", "write", "--io-size", "4096", "--io-threads", "1"];
        let long = ["--io-total", "100G", "--io-pattern", "rand", &image.spec];
        let mut bench = image.cluster.stock_client("admin", &[&load[..], &long[..]].concat());
        bench.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = bench.spawn().expect("rbd runs");
        wait_until("a stock client to have the image", || image.lock().is_some());
        Stock(child)
    }

    fn is_there(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_image_that_a_stock_client_has_is_taken_only_when_told() {
    let Some((cluster, _shared)) = shared("an image that a stock client has") else { return };
    let image = Image::new(cluster, "used");
    let site = image.site("a");
    let mut stock = Stock::new(&image);
    let holder = image.lock().expect("a lock");
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("is in use by client.") && words.contains(&holder), "{words}");
    assert!(words.contains("--steal") && stock.is_there(), "{words}");
    let server = site.serve(&["--steal"]);
    assert!(server.words().contains("was fenced"), "{}", server.words());
    wait_until("the stock client to be refused", || !stock.is_there());
    server.stop().expect("a clean stop");
    image.is_free();

    // One that cannot be reached: its lock stays, and nobody answers for it.
    let _stock = Stock::new(&image);
    let holder = image.lock().expect("a lock");
    cluster.ceph(&["osd", "blocklist", "add", &holder]);
    let watchers = || cluster.rbd_json(&["status", &image.spec])["watchers"].as_array().map_or(0, Vec::len);
    wait_until("its watch to end", || watchers() == 0);
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("does not answer for it") && words.contains(&holder), "{words}");
    let server = site.serve(&["--steal"]);
    assert!(server.words().contains("was fenced"), "{}", server.words());
    server.stop().expect("a clean stop");
    image.is_free();
}

#[test]
fn an_image_with_another_caches_dirty_data_is_refused() {
    let Some((cluster, _shared)) = shared("an image without its cache") else { return };
    let image = Image::new(cluster, "marked");
    let (first, second) = (image.site("first"), image.site("second"));
    let shadow = fresh();
    let server = first.serve(&[]);
    let writer = Writer::start(&first.socket(), &shadow, 21, BLOCKS);
    writer.goes_on(2000);
    assert_eq!(writer.stop(), End::Done);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    let at_snapshot = look(&shadow).clone();
    let mark = image.mark().expect("the image says who has its data");
    server.kill().expect("it ran");

    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let words = second.refused(&second.core(), &[]);
    let cache = mark["cache"].as_str().expect("text");
    assert!(
        words.contains(&host) && words.contains(cache) && words.contains("--force-without-cache"),
        "{words}"
    );

    // A clone has inherited the mark; it says nothing of the clone.
    cluster.rbd(&["snap", "protect", &image.at("s")]);
    cluster.rbd(&["clone", &image.at("s"), "rbd/heir"]);
    let heir = Image::existing(cluster, "rbd/heir");
    assert_eq!(heir.mark(), Some(mark.clone()), "this clone did not inherit");
    let site = heir.site("a");
    let server = site.serve(&[]);
    let own = heir.mark().expect("a mark");
    assert!(own["cache"] != mark["cache"] && own["image"] != mark["image"], "{own}");
    at_snapshot.holds(&read_all(&site.socket())).unwrap_or_else(|e| panic!("{e}"));
    server.stop().expect("a clean stop");
    heir.is_whole_and_free(&at_snapshot);

    // The image's own cache still has everything.
    let server = first.serve(&["--flush-on-stop"]);
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    let server = second.serve(&[]);
    look(&shadow).holds(&read_all(&second.socket())).unwrap_or_else(|e| panic!("{e}"));
    server.stop().expect("a clean stop");
}
