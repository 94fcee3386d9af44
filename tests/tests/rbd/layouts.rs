//! Claims about how the bytes of an image lie in its objects: whatever a stock client makes of sizes, stripes, pools and
//! namespaces, it reads afterwards what was written.

use crate::cluster::{Cluster, is_long, shared};
use crate::driven::{Driven, LeftOut};
use crate::shadow::content;
use crate::site::Image;
use loligo_block::{Buf, OpKind};
use loligo_sim::rng::Rng;
use std::sync::atomic::{AtomicUsize, Ordering};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Bytes that one operation of the cache writes within at most.
const WINDOW: u64 = MIB;
/// Cases that are tried at a time: most of their time goes to waiting for the cluster.
const BESIDE: usize = 10;

/// The pool of an image's data.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Data {
    /// In the pool of its header.
    Same,
    /// In a replicated pool of its own.
    Apart,
    /// In an erasure-coded pool.
    Coded,
}

/// Object size, stripe unit (0: none is given), stripe count, data pool, and whether it is in a namespace.
type Case = (u64, u64, u64, Data, bool);

const MANY: [Case; 20] = {
    use Data::{Apart, Coded, Same};
    [
        (8 * MIB, 4 * MIB, 1, Same, false),
        (4 * MIB, 64 * KIB, 1, Same, true),
        (4 * MIB, 0, 0, Same, false),
        (4 * KIB, 0, 0, Apart, true),
        (64 * KIB, 0, 0, Coded, false),
        (MIB, 0, 0, Apart, true),
        (8 * MIB, 0, 0, Coded, true),
        (32 * MIB, 0, 0, Apart, false),
        (64 * KIB, 4 * KIB, 1, Apart, false),
        (MIB, 64 * KIB, 1, Coded, true),
        (8 * MIB, 64 * KIB, 1, Apart, true),
        (32 * MIB, 4 * MIB, 1, Same, true),
        (64 * KIB, 64 * KIB, 5, Same, true),
        (MIB, MIB, 3, Apart, false),
        (4 * MIB, 4 * MIB, 2, Coded, false),
        (8 * MIB, 8 * MIB, 2, Same, false),
        (64 * KIB, 4 * KIB, 16, Same, false),
        (MIB, 64 * KIB, 3, Apart, true),
        (4 * MIB, 64 * KIB, 5, Same, false),
        (8 * MIB, 4 * MIB, 2, Coded, true),
    ]
};

/// Every combination that a stock client makes.
fn all() -> Vec<Case> {
    let mut out = Vec::new();
    for object in [4 * KIB, 64 * KIB, MIB, 4 * MIB, 8 * MIB, 32 * MIB] {
        for unit in [0, 4 * KIB, 64 * KIB, 4 * MIB, object] {
            let counts: &[u64] = if unit == 0 { &[0] } else { &[1, 2, 5] };
            for count in counts.iter().filter(|_| unit <= object) {
                for data in [Data::Same, Data::Apart, Data::Coded] {
                    out.extend([false, true].map(|space| (object, unit, *count, data, space)));
                }
            }
        }
    }
    out.dedup();
    out
}

fn make(cluster: &'static Cluster, name: &str, bytes: u64, case: Case) -> Image {
    let (object, unit, count, data, space) = case;
    let spec = format!("rbd/{}{name}", if space { "layouts/" } else { "" });
    let mut args: Vec<String> = ["create", "--size"].map(str::to_owned).to_vec();
    args.extend([format!("{bytes}B"), "--object-size".to_owned(), format!("{object}B")]);
    if unit > 0 {
        args.extend(["--stripe-unit".to_owned(), format!("{unit}B")]);
        args.extend(["--stripe-count".to_owned(), count.to_string()]);
    }
    let pool = match data {
        Data::Same => None,
        Data::Apart => Some("layouts-apart"),
        Data::Coded => Some("layouts-coded"),
    };
    args.extend(pool.into_iter().flat_map(|p| ["--data-pool".to_owned(), p.to_owned()]));
    args.push(spec.clone());
    cluster.rbd(&args.iter().map(String::as_str).collect::<Vec<_>>());
    Image::existing(cluster, &spec)
}

/// Writes blocks as a cache does, gives some up, and cuts the end off: what a stock client reads then is what it must.
fn holds(cluster: &'static Cluster, number: usize, case: Case) {
    let (object, unit, count, ..) = case;
    let bytes = (2 * object * count.max(1) + object / 2 + 3 * BLOCK).clamp(3 * MIB + 3 * BLOCK, 40 * MIB);
    let image = make(cluster, &format!("layout-{number}"), bytes, case);
    let mut driven = Driven::by_any_way(&image);
    let in_stripes = count > 1 && unit != object;
    let why = driven.why_librbd().unwrap_or_default();
    assert_eq!(why.contains("striped"), in_stripes, "{case:?}: {why}");
    let mut rng = Rng::new(number as u64);
    let mut model = vec![0; bytes as usize];
    let put = |model: &mut Vec<u8>, at: u64, data: &[u8]| {
        model[at as usize..at as usize + data.len()].copy_from_slice(data);
    };
    // The first write of an object takes another way than those after it.
    for version in 1..=3 {
        for window in (0..bytes / WINDOW).filter(|n| n % 2 == 0 || version == 2) {
            let mut blocks: Vec<u64> = (0..WINDOW / BLOCK).filter(|_| rng.chance(1, 24)).collect();
            blocks.push(WINDOW / BLOCK - 1);
            blocks.dedup();
            let piece = |n: &u64| {
                let at = window * WINDOW + n * BLOCK;
                (at, Buf::copy_of(&content((at / BLOCK) as usize, version)).freeze())
            };
            let pieces: Vec<_> = blocks.iter().map(piece).collect();
            pieces.iter().for_each(|(at, data)| put(&mut model, *at, data));
            driven.does(pieces[0].0, OpKind::WriteMany(pieces));
        }
    }
    let across = object.min(bytes / 2) / BLOCK * BLOCK - BLOCK.min(object);
    let data: Vec<u8> = (0..16).flat_map(|n| content((across / BLOCK) as usize + n, 9)).collect();
    put(&mut model, across, &data);
    driven.does(across, OpKind::Write { data: Buf::copy_of(&data).freeze(), fua: false });
    let (from, len) = (WINDOW, WINDOW + 3 * BLOCK);
    put(&mut model, from, &vec![0; len as usize]);
    driven.does(from, OpKind::WriteZeroes { len, unmap: true });
    if in_stripes || is_long() {
        let end = bytes - bytes % MIB - 5 * BLOCK - 512;
        driven.shrinks_to(end);
        model.truncate(end as usize);
    }
    driven.end();
    let found = image.export(&image.spec);
    assert_eq!(found.len(), model.len(), "{case:?}");
    let wrong = found.chunks(4096).zip(model.chunks(4096)).filter(|(f, m)| f != m).count();
    assert!(wrong == 0, "{case:?}: {wrong} of {} blocks are wrong", model.len() / 4096);
}

#[test]
fn a_stock_client_reads_what_was_written_in_every_layout() {
    let Some((cluster, _shared)) = shared("layouts of images") else { return };
    let _whole = LeftOut::nothing();
    let profile = "layouts";
    cluster.ceph(&["osd", "erasure-code-profile", "set", profile, "k=2", "m=1", "crush-failure-domain=osd"]);
    cluster.ceph(&["osd", "pool", "create", "layouts-coded", "8", "8", "erasure", profile]);
    cluster.ceph(&["osd", "pool", "set", "layouts-coded", "allow_ec_overwrites", "true"]);
    cluster.ceph(&["osd", "pool", "create", "layouts-apart", "8"]);
    for pool in ["layouts-coded", "layouts-apart"] {
        cluster.ceph(&["osd", "pool", "application", "enable", pool, "rbd"]);
    }
    cluster.wait_clean();
    cluster.rbd(&["namespace", "create", "--pool", "rbd", "--namespace", "layouts"]);
    let cases = if is_long() { all() } else { MANY.to_vec() };
    let next = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..BESIDE {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(n) else { return };
                    holds(cluster, n, *case);
                }
            });
        }
    });
}
