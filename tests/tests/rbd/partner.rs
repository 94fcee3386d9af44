//! Two controllers with a daemon each, over one cache on an array that both reach: what one had, the other takes over by the
//! array's word alone, whatever the first is doing.

use crate::cluster::{Cluster, shared};
use crate::site::Image;
use loligo_tests::cli::Cli;
use loligo_tests::history::{Crash, History};
use loligo_tests::load::{End, Load};
use loligo_tests::server::Server;
use loligo_tests::shared_array::SharedArray;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the image.
const SIZE: u64 = 16 << 20;
/// A state that a volume does not come to within this it does not come to.
const PATIENCE: Duration = Duration::from_secs(60);

/// A controller: its own folders for sockets and state, its own path to the array, its own name.
struct Controller {
    cli: Cli,
    dir: PathBuf,
}

impl Controller {
    fn new(dir: &Path, name: &str, array: &SharedArray, path: &str, image: &Image) -> Controller {
        let dir = dir.join(name);
        std::fs::create_dir(&dir).expect("a folder");
        let core = format!("rbd:{}?conf={}&id=loligo", image.spec, image.cluster.conf().display());
        let text = format!(
            "[daemon]\nstate-dir = \"{0}/state\"\nidentity = \"{name}\"\n[volume.v]\ncore = \"{core}\"\ncache = \"{1}\"\n\
             mode = \"wb\"\nreservation = \"0x{path}\"\nlisten = [\"unix:{0}/v.nbd\"]\nautostart = false\n",
            dir.display(),
            array.lun(path).display()
        );
        std::fs::write(dir.join("loligod.toml"), text).expect("a configuration");
        Controller { cli: Cli::new(&dir), dir }
    }

    fn daemon(&self) -> Server {
        self.cli.daemon(&self.dir.join("loligod.toml"))
    }

    fn load(&self) -> Load {
        Load::connect(&self.dir.join("v.nbd"), "v", 1).expect("a connection")
    }

    fn verified(&self, history: &mut History, after: Option<Crash>) {
        assert_eq!(self.load().verify(history, after).expect("right data"), End::Done);
    }

    fn status(&self) -> (String, String) {
        let shown = self.cli.ok(&["volume", "show", "v", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let text = |key: &str| shown["status"][key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("why"))
    }

    fn wait_for(&self, state: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (now, why) = self.status();
            if now == state {
                return why;
            }
            assert!(Instant::now() < deadline, "it is {now} and not {state}: {why}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn image(cluster: &'static Cluster, name: &str) -> Image {
    let spec = format!("rbd/{name}");
    cluster.rbd(&["create", "--size", &format!("{SIZE}B"), &spec]);
    Image::existing(cluster, &spec)
}

#[test]
fn a_partner_takes_over_what_a_silent_controller_had() {
    let Some((cluster, _shared)) = shared("a partner") else { return };
    let image = image(cluster, "partner");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(array) = SharedArray::new("a partner", &dir.path().join("array"), "24m") else { return };
    let owner = Controller::new(dir.path(), "node0a", &array, "a", &image);
    let partner = Controller::new(dir.path(), "node0b", &array, "b", &image);
    let (first, second) = (owner.daemon(), partner.daemon());
    owner.cli.ok(&["volume", "start", "v"]);
    let mut history = History::new(SIZE);
    owner.load().write(&mut history, 0..8192, false).expect("written");
    assert_eq!(image.mark().expect("a mark")["host"], "node0a");
    let locker = image.lock().expect("a lock");
    let why = partner.cli.refused(&["volume", "start", "v"]);
    assert!(why.contains("key 0xa holds it"), "{why}");

    first.signal(libc::SIGSTOP);
    array.take();
    let begun = Instant::now();
    partner.cli.ok(&["volume", "start", "v"]);
    println!("taken over in {:?}", begun.elapsed());
    partner.verified(&mut history, Some(Crash::Killed));
    partner.load().write(&mut history, 4096..12288, false).expect("written");
    assert_eq!(image.mark().expect("a mark")["host"], "node0b");
    assert_ne!(image.lock().expect("a lock"), locker);
    let refused = cluster.ceph(&["osd", "blocklist", "ls"]);
    assert!(refused.contains(&locker), "the dead client is not on the blocklist: {refused}");

    // It goes on where it stood still, with all that it had under way.
    let then = image.lock();
    first.signal(libc::SIGCONT);
    let why = owner.wait_for("lost");
    // The array says so to a late write or to the look at the reservation, whichever comes first.
    assert!(
        why.starts_with("fenced: ") && (why.contains("EBADE") || why.contains("another controller's")),
        "{why}"
    );
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(array.count("a", "landed"), 0);
    assert_eq!((image.lock(), image.mark().expect("a mark")["host"].clone()), (then, "node0b".into()));
    partner.verified(&mut history, None);
    partner.cli.ok(&["flush", "v"]);
    partner.cli.ok(&["volume", "stop", "v"]);
    image.is_free();
    first.stop().expect("a clean stop");
    second.stop().expect("a clean stop");
}

#[test]
fn an_end_at_once_leaves_the_image_to_the_partner() {
    let Some((cluster, _shared)) = shared("an end at once") else { return };
    let image = image(cluster, "endednow");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(array) = SharedArray::new("an end at once", &dir.path().join("array"), "24m") else { return };
    let owner = Controller::new(dir.path(), "node1a", &array, "a", &image);
    let partner = Controller::new(dir.path(), "node1b", &array, "b", &image);
    let (first, second) = (owner.daemon(), partner.daemon());
    owner.cli.ok(&["volume", "start", "v"]);
    let mut history = History::new(SIZE);
    owner.load().write(&mut history, 0..8192, false).expect("written");
    let locker = image.lock().expect("a lock");
    let (mark, then) = (image.mark(), array.bytes());
    let begun = Instant::now();
    owner.cli.ok(&["volume", "end", "v"]);
    assert!(begun.elapsed() < Duration::from_secs(3), "it took {:?}", begun.elapsed());
    assert_eq!(owner.status().0, "stopped");
    let then = if array.bytes() == then { then } else { array.bytes() };
    std::thread::sleep(Duration::from_secs(3));
    assert!(array.bytes() == then, "the cache was written after the end");
    assert_eq!(
        (image.lock().as_ref(), image.mark()),
        (Some(&locker), mark),
        "lock and mark stay as a dead client's"
    );
    // Its watch ends as that of a client that has died.
    let deadline = Instant::now() + PATIENCE;
    while cluster.rbd_json(&["status", &image.spec])["watchers"].as_array().is_none_or(|w| !w.is_empty()) {
        assert!(Instant::now() < deadline, "a client of what was ended watches the image still");
        std::thread::sleep(Duration::from_millis(500));
    }
    array.take();
    partner.cli.ok(&["volume", "start", "v"]);
    partner.verified(&mut history, Some(Crash::Killed));
    partner.cli.ok(&["flush", "v"]);
    partner.cli.ok(&["volume", "stop", "v"]);
    image.is_free();
    first.stop().expect("a clean stop");
    second.stop().expect("a clean stop");
}
