//! Claims about an image that `rbd-mirror` of a second cluster copies while its newest data is in a cache.

use crate::cluster::{Cluster, Second, shared, wait_until};
use crate::shadow::{BLOCK, Shadow};
use crate::site::{Image, SIZE};
use crate::writer::{End, Kept, Writer, fresh, look, read_all};
use loligo_tests::server::program;
use loligo_tests::skip::{at_length, installed, skip};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// The pool that is mirrored: of the same name in both clusters.
const POOL: &str = "twin";
const IMAGE: &str = "twin/copied";
const DAEMON: &str = "rbd-mirror.b";

/// `rbd-mirror` of the second cluster.
struct Daemon(Child);

impl Daemon {
    /// Has `second` copy what is mirrored of the pool in `first`.
    fn start(first: &Cluster, second: &Second) -> Daemon {
        for cluster in [first, second] {
            cluster.ceph(&["osd", "pool", "create", POOL, "8"]);
            cluster.admin_rbd(&["pool", "init", POOL]);
            cluster.admin_rbd(&["mirror", "pool", "enable", POOL, "image"]);
        }
        let token = second.dir.join("token");
        let made =
            first.admin_rbd(&["mirror", "pool", "peer", "bootstrap", "create", "--site-name", "a", POOL]);
        std::fs::write(&token, made.trim()).expect("a file");
        let token = token.display().to_string();
        let import = ["mirror", "pool", "peer", "bootstrap", "import", "--site-name", "b"];
        second.admin_rbd(&[&import[..], &["--direction", "rx-only", POOL, &token]].concat());
        let keyring = second.dir.join(format!("ceph.client.{DAEMON}.keyring")).display().to_string();
        let name = format!("client.{DAEMON}");
        let caps = ["mon", "profile rbd-mirror", "osd", "profile rbd"];
        second.ceph(&[&["auth", "get-or-create", &name], &caps[..], &["-o", &keyring]].concat());
        let log = std::fs::File::create(second.dir.join("log/rbd-mirror.out")).expect("a log");
        let mut command = Command::new("rbd-mirror");
        // Its connections read their configuration themselves.
        command.args(["-f", "--id", DAEMON]).env("CEPH_CONF", second.conf()).stdin(Stdio::null());
        command.env_remove("CEPH_ARGS");
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let daemon = Daemon(command.spawn().expect("rbd-mirror runs"));
        // Snapshots that are taken before are for nobody.
        wait_until("the daemon to have told of itself", || {
            first.admin_rbd(&["mirror", "pool", "info", POOL]).contains("Direction")
        });
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The image's `loligo rbd status`.
fn status(cluster: &Cluster) -> Value {
    let mut command = Command::new(program());
    command.args(["rbd", "status", IMAGE, "--id", "loligo", "--json", "--conf"]).arg(cluster.conf());
    serde_json::from_slice(&command.output().expect("the program runs").stdout).unwrap_or_default()
}

/// Addresses of the daemons that mirror the image.
fn mirrors(cluster: &Cluster) -> Vec<String> {
    let all = status(cluster)["watchers"].as_array().cloned().unwrap_or_default();
    let mirrors = all.iter().filter(|w| w["mirrors"] == true);
    mirrors.filter_map(|w| w["address"].as_str().map(str::to_owned)).collect()
}

/// Numbers of the snapshots for mirroring in the cluster that has the image, newest last.
fn taken(first: &Cluster) -> Vec<u64> {
    let all = first.rbd_json(&["snap", "ls", "--all", IMAGE]);
    let of_mirroring = |s: &&Value| s["namespace"]["type"] == "mirror";
    all.as_array().into_iter().flatten().filter(of_mirroring).filter_map(|s| s["id"].as_u64()).collect()
}

/// Waits until the second cluster has all of the newest snapshot.
fn wait_copied(first: &Cluster, second: &Second) {
    let newest = *taken(first).last().expect("a snapshot");
    wait_until("the newest snapshot to be copied", || {
        let out = second.try_rbd(&["snap", "ls", "--all", IMAGE, "--format", "json"]);
        let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        all.as_array().into_iter().flatten().any(|s| {
            let n = &s["namespace"];
            n["type"] == "mirror" && n["primary_snap_id"] == newest && n["complete"] == true
        })
    });
}

/// The content of the second cluster.
fn copy(second: &Second) -> Vec<u8> {
    let file = second.dir.join("copy");
    let _ = std::fs::remove_file(&file);
    second.rbd(&["export", "--no-progress", IMAGE, &file.display().to_string()]);
    std::fs::read(&file).expect("the export")
}

/// Takes a snapshot for mirroring under load, and checks that what is copied is the image of that moment.
fn copies_a_moment(first: &Cluster, second: &Second, writer: &Writer, shadow: &Kept) {
    writer.goes_on(1500);
    let before = look(shadow).clone();
    first.rbd(&["mirror", "image", "snapshot", IMAGE]);
    let after = look(shadow).clone();
    wait_copied(first, second);
    Shadow::check(&copy(second), &before, &after).unwrap_or_else(|e| panic!("the copy: {e}"));
}

#[test]
fn a_second_cluster_copies_moments_and_its_daemon_is_let_be() {
    let what = "an image mirrored to a second cluster";
    if !at_length(what) {
        return;
    }
    let Some((cluster, _shared)) = shared(what) else { return };
    if !installed("rbd-mirror") {
        return skip(what, "rbd-mirror is missing: apt-get install rbd-mirror");
    }
    let second = Second::up();
    let _daemon = Daemon::start(cluster, &second);
    cluster.rbd(&["create", "--size", &format!("{SIZE}B"), IMAGE]);
    cluster.rbd(&["mirror", "image", "enable", IMAGE, "snapshot"]);
    let image = Image::existing(cluster, IMAGE);
    wait_until("the daemon to be known for one", || mirrors(cluster).len() == 1);
    let daemon = mirrors(cluster).remove(0);

    // Attached while it watches, and copied under load.
    let (first, other) = (image.site("first"), image.site("other"));
    assert_eq!(status(cluster)["refused"], serde_json::json!([]), "{}", status(cluster));
    let shadow = fresh();
    let server = first.serve(&[]);
    assert!(!server.words().contains("fenced"), "{}", server.words());
    let writer = Writer::start(&first.socket(), &shadow, 1, SIZE as usize / BLOCK);
    copies_a_moment(cluster, &second, &writer, &shadow);
    copies_a_moment(cluster, &second, &writer, &shadow);

    // The owner dies, its image is stolen: it is fenced, and the daemon is not.
    let owner = image.lock().expect("a lock");
    server.kill().expect("it ran");
    assert!(matches!(writer.ended(), End::Broken), "the service was killed");
    let words = other.refused(&other.core(), &["--force-without-cache"]);
    assert!(words.contains(&owner) && !words.contains(&daemon), "{words}");
    let server = other.serve(&["--steal", "--force-without-cache"]);
    let fenced = cluster.ceph(&["osd", "blocklist", "ls"]);
    assert!(fenced.contains(&owner) && !fenced.contains(&daemon), "{fenced}");
    assert_eq!(mirrors(cluster), [daemon], "the daemon is not there any more");
    let versions = look(&shadow).holds_at_most(&read_all(&other.socket()));
    let shadow = fresh();
    look(&shadow).settle(versions);
    let writer = Writer::start(&other.socket(), &shadow, 2, SIZE as usize / BLOCK);
    copies_a_moment(cluster, &second, &writer, &shadow);
    assert_eq!(writer.stop(), End::Done, "{}", server.words());
    other.flush();
    server.stop().expect("a clean stop");
    image.is_whole_and_free(&look(&shadow));

    // Without a service the daemon may have the lock by now; it gives it up when asked.
    cluster.rbd(&["mirror", "image", "snapshot", IMAGE]);
    wait_copied(cluster, &second);
    let holder = image.lock();
    println!("the lock after a copy without a service: {holder:?}, mirrored by {:?}", mirrors(cluster));
    let server = other.serve(&[]);
    look(&shadow).holds(&read_all(&other.socket())).unwrap_or_else(|e| panic!("{e}"));
    server.stop().expect("a clean stop");

    // It moves to the other cluster with everything.
    cluster.rbd(&["mirror", "image", "demote", IMAGE]);
    let words = other.refused(&other.core(), &[]);
    assert!(words.contains("promote it first"), "{words}");
    wait_copied(cluster, &second);
    // Until its daemon has let go of the copy this is refused.
    wait_until("the copy to be promoted", || {
        second.try_rbd(&["mirror", "image", "promote", IMAGE]).status.success()
    });
    look(&shadow).holds(&copy(&second)).unwrap_or_else(|e| panic!("after the move: {e}"));
}
