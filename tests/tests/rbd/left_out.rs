//! Claims about the steps of the grouped destage: what each is for shows when it is left out, on an image that is driven here.

use crate::cluster::{Cluster, shared, wait_until};
use crate::shadow::content;
use crate::site::{Image, SIZE};
use loligo_block::{Buf, Device, Op, OpKind, Ring, Submit};
use loligo_ceph::bug::{Step, leave_out};
use loligo_ceph::keeper::{Clients, Doing, Keeper};
use loligo_ceph::lease::Poller;
use loligo_ceph::take::{self, Destage, Taken, Wish};
use loligo_ceph::{Attached, RbdDevice};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Bytes of an object.
const OBJECT: u64 = 4 << 20;

/// A cache that is always empty.
struct Empty;

impl Clients for Empty {
    fn freeze(&self) -> Receiver<Result<(), String>> {
        let (send, answer) = channel();
        send.send(Ok(())).expect("it is here");
        answer
    }

    fn thaw(&self) {}

    fn lose(&self, why: &str) {
        panic!("lost: {why}");
    }

    fn snapshots_changed(&self, _seq: u64) {}

    fn resized(&self, _bytes: u64) {}
}

/// An image that is taken by this process.
struct Driven {
    attached: Arc<Attached>,
    keeper: Keeper,
    poller: Poller,
    device: RbdDevice,
    ring: Ring,
}

impl Driven {
    fn new(cluster: &Cluster, image: &Image) -> Driven {
        let spec = format!("{}?conf={}&id=loligo", image.spec, cluster.conf().display());
        let wish = Wish {
            spec: &spec.parse().expect("an image"),
            cache: None,
            steal: false,
            without_cache: false,
            lease: Duration::from_secs(20),
            destage: Destage::Grouped,
            quiesce_attempts: 4,
            remember: &mut |_| Ok(()),
        };
        let Taken { image: attached, notices, .. } = take::take(wish).expect("the image");
        let keeper = Keeper::start(attached.clone(), notices, Box::new(Empty), 4).expect("a thread");
        let poller = Poller::start(attached.clone()).expect("a thread");
        let device = RbdDevice::new(attached.clone());
        Driven { attached, keeper, poller, device, ring: Ring::new(8).expect("a ring") }
    }

    fn does(&mut self, offset: u64, kind: OpKind) -> Option<Buf> {
        let mut done = Vec::new();
        match self.device.submit(&mut self.ring, 0, Op { tag: 1, offset, kind }) {
            Submit::Finished(c) => done.push(c),
            Submit::Taken => {}
            Submit::Busy(_) => panic!("an image is never busy"),
        }
        let until = Instant::now() + Duration::from_secs(30);
        while done.is_empty() {
            assert!(Instant::now() < until, "an operation that never ends");
            std::thread::sleep(Duration::from_millis(1));
            self.device.poll(&mut self.ring, 0, &mut done);
        }
        let done = done.remove(0);
        done.result.expect("it succeeds");
        done.buf
    }

    /// Writes two blocks of each of these objects, as groups.
    fn write(&mut self, objects: &[u64], version: u32) {
        for object in objects {
            let piece = |at: u64| {
                let at = object * OBJECT + at;
                (at, Buf::copy_of(&content((at / 4096) as usize, version)).freeze())
            };
            let pieces = vec![piece(0), piece(64 << 10)];
            self.does(object * OBJECT, OpKind::WriteMany(pieces));
        }
    }

    fn end(self) {
        drop((self.device, self.ring, self.poller));
        self.keeper.stop();
        self.attached.detach(true).expect("a clean end");
    }
}

/// What a stock client finds.
struct Found {
    /// What was written before the snapshot is in it, and nothing later.
    snapshot_right: bool,
    /// The newest data is in the image.
    head_right: bool,
    /// The owner of the image reads it too.
    owner_right: bool,
    /// Fast-diff lists every object written since the snapshot.
    diff_right: bool,
    /// Operations that came back to go through librbd.
    turned_back: u64,
}

/// Writes, a snapshot by a stock client, a discard, and writes again, with `steps` left out after the snapshot began.
fn run(cluster: &'static Cluster, name: &str, steps: &[Step]) -> Found {
    let image = Image::new(cluster, name);
    let mut driven = Driven::new(cluster, &image);
    let (written, dropped) = ([0, 1, 2, 3], 4);
    driven.write(&written, 1);
    driven.write(&[dropped], 1);
    leave_out(steps);
    cluster.rbd(&["snap", "create", "--no-progress", &image.at("s")]);
    wait_until("the snapshot to be over", || driven.keeper.report().doing == Doing::Running);
    driven.does(dropped * OBJECT, OpKind::Discard { len: OBJECT });
    driven.write(&written, 2);
    driven.write(&[dropped], 2);
    let turned_back = driven.attached.counters.turned_back.load(std::sync::atomic::Ordering::Relaxed);
    let at = dropped * OBJECT;
    let read = driven.does(at, OpKind::Read(Buf::zeroed(4096))).expect("its buffer");
    let owner_right = read[..] == content((at / 4096) as usize, 2)[..];
    driven.end();
    leave_out(&[]);
    let expected = |version: u32| {
        let mut all = vec![0; SIZE as usize];
        for at in [0, 1, 2, 3, 4].iter().flat_map(|o| [o * OBJECT, o * OBJECT + (64 << 10)]) {
            all[at as usize..at as usize + 4096].copy_from_slice(&content((at / 4096) as usize, version));
        }
        all
    };
    let changed = cluster.rbd_json(&["diff", "--whole-object", "--from-snap", "s", &image.spec]);
    let listed: BTreeSet<u64> = changed
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e["offset"].as_u64()? / OBJECT))
        .collect();
    Found {
        snapshot_right: image.export(&image.at("s")) == expected(1),
        head_right: image.export(&image.spec) == expected(2),
        owner_right,
        diff_right: written.iter().chain([&dropped]).all(|o| listed.contains(o)),
        turned_back,
    }
}

#[test]
fn each_step_of_the_grouped_destage_that_is_left_out_breaks_what_it_is_for() {
    let Some((cluster, _shared)) = shared("steps left out") else { return };
    let all = run(cluster, "all-steps", &[]);
    assert!(all.snapshot_right && all.head_right && all.owner_right && all.diff_right, "with every step");
    assert_eq!(all.turned_back, 0, "with every step nothing comes back");

    // The guard alone finds what was not primed since the snapshot.
    let guarded = run(cluster, "no-primer", &[Step::Primer]);
    assert!(guarded.snapshot_right && guarded.head_right && guarded.diff_right, "the guard did not help");
    assert_eq!(guarded.turned_back, 5, "the guard is not there");

    let unprimed = run(cluster, "no-primer-no-guard", &[Step::Primer, Step::Guard]);
    assert!(unprimed.snapshot_right && unprimed.head_right, "the context is right");
    assert!(!unprimed.diff_right, "without primers fast-diff finds everything all the same");

    let stale = run(cluster, "no-refresh", &[Step::Primer, Step::Refresh]);
    assert!(!stale.snapshot_right, "with an old context the snapshot is right all the same");
    assert!(stale.head_right);

    let blind = run(cluster, "no-exists", &[Step::Primer, Step::Guard, Step::Exists]);
    assert!(!blind.owner_right, "the owner finds the data of an object that was discarded all the same");
}
