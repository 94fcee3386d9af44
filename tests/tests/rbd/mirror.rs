//! Claims about snapshot-based mirroring of an image whose newest data is in a cache. One cluster is enough: what is mirrored are
//! the snapshots.

use crate::cluster::{Cluster, shared};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE};
use crate::writer::{End, Writer, fresh, look};

/// Stock tools read snapshots of mirroring by their number only, which their command line does not take.
const READ: &str = "
import rados, rbd, sys
conf, id, image, snapshot, to = sys.argv[1:]
with rados.Rados(conffile=conf, rados_id=id) as cluster, cluster.open_ioctx('rbd') as pool:
    with rbd.Image(pool, image, read_only=True) as i:
        i.set_snap_by_id(int(snapshot))
        with open(to, 'wb') as f:
            for at in range(0, i.size(), 4 << 20):
                f.write(i.read(at, min(4 << 20, i.size() - at)))
";

/// The numbers of all snapshots for mirroring.
fn mirrored(cluster: &Cluster, image: &Image) -> Vec<u64> {
    let all = cluster.rbd_json(&["snap", "ls", "--all", &image.spec]);
    let of_mirroring = |s: &&serde_json::Value| s["namespace"]["type"] == "mirror";
    let list = all.as_array().into_iter().flatten().filter(of_mirroring);
    list.filter_map(|s| s["id"].as_u64()).collect()
}

#[test]
fn each_mirror_snapshot_holds_every_acknowledged_write() {
    let Some((cluster, _shared)) = shared("snapshot-based mirroring") else { return };
    let image = Image::new(cluster, "mirrored");
    let site = image.site("a");
    let shadow = fresh();
    let server = site.serve(&[]);
    let writer = Writer::start(&site.socket(), &shadow, 1, SIZE as usize / BLOCK);
    writer.goes_on(1000);
    cluster.admin_rbd(&["mirror", "pool", "enable", "rbd", "image"]);
    // Without a peer each snapshot takes the one before away.
    cluster.admin_rbd(&["mirror", "pool", "peer", "add", "rbd", "client.nobody@elsewhere"]);
    let mut taken = Vec::new();
    for what in ["enable", "snapshot", "snapshot"] {
        writer.goes_on(1500);
        let before = look(&shadow).clone();
        let more = if what == "enable" { &["snapshot"][..] } else { &[] };
        cluster.rbd(&[&["mirror", "image", what, image.spec.as_str()], more].concat());
        taken.push((before, look(&shadow).clone()));
    }
    let numbers = mirrored(cluster, &image);
    assert_eq!(numbers.len(), taken.len(), "{numbers:?}");
    let snapshots = site.stats()["rbd"]["snapshots"].clone();
    assert_eq!(snapshots["quiesced"], taken.len(), "{snapshots}");
    for what in [
        &["mirror", "image", "demote", image.spec.as_str()][..],
        &["feature", "enable", &image.spec, "journaling"],
        &["mirror", "image", "enable", &image.spec, "journal"],
    ] {
        let out = cluster.try_rbd(what);
        println!("{what:?}: {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
        assert!(!out.status.success(), "{what:?} was let through");
        writer.goes_on(500);
    }
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    site.flush();
    let stats = site.stats();
    assert!(stats["rbd"]["librbd"].is_null(), "{}", stats["rbd"]);
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));
    for (number, (before, after)) in numbers.iter().zip(&taken) {
        let file = site.dir.join("snapshot");
        let mut python = std::process::Command::new("/usr/bin/python3");
        python.args(["-c", READ]).arg(cluster.conf()).args(["loligo", "mirrored", &number.to_string()]);
        let out = python.arg(&file).output().expect("python3-rbd comes with ceph-mgr");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let content = std::fs::read(&file).expect("a file");
        Shadow::check(&content, before, after).unwrap_or_else(|e| panic!("snapshot {number}: {e}"));
    }
    // One that follows another cluster's image may not be written to.
    cluster.rbd(&["mirror", "image", "demote", &image.spec]);
    let words = site.refused(&site.core(), &[]);
    assert!(words.contains("promote it first"), "{words}");
    cluster.rbd(&["mirror", "image", "promote", &image.spec]);
    cluster.rbd(&["mirror", "image", "disable", &image.spec]);
}
