//! Claims about labs of pairs: two controllers that share an array, and the faults that can be made there.

#![allow(clippy::print_stdout)]

use loligo_pair::fence::{BlockFence, Fence, take};
use loligo_pair::reservation::Key;
use loligo_tests::lab::{Lab, good, refused};
use loligo_tests::skip;
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const A: Key = Key(0xa);
const B: Key = Key(0xb);

/// A lab of one pair, whose OSDs the lab starts; nothing where it cannot be.
fn one_pair(name: &str) -> Option<Lab> {
    if !skip::pairs("lab of pairs", &[]) {
        return None;
    }
    let lab = Lab::new(name);
    good(lab.up(&["--pairs", "1", "--agents", "off"]));
    Some(lab)
}

fn on(lab: &Lab, host: &str, script: &str) -> Output {
    lab.run("exec", &["--host", host, "--", "sh", "-ec", script])
}

fn json(out: Output) -> Value {
    serde_json::from_slice(&good(out).stdout).expect("JSON")
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("{:.1} s: {what}", begun.elapsed().as_secs_f64());
}

fn fence(lab: &Lab, side: &str, lun: &str) -> BlockFence {
    BlockFence::open(&lab.dir.join("n0").join(side).join(lun)).expect("it opens")
}

/// The counter of the writes of path `a` to LUN `osd0`.
fn counted(lab: &Lab, what: &str) -> u64 {
    let mut raw = vec![0; 4096];
    let read = rustix::fs::getxattr(lab.dir.join("n0/b/osd0"), "user.loligo.counters", &mut raw[..]);
    let all: Value = serde_json::from_slice(&raw[..read.expect("counters")]).expect("JSON");
    all["a"][what].as_u64().expect("a counter")
}

/// What each of the controllers says by `key`, as `lab status` shows them.
fn controllers(lab: &Lab, key: &str) -> [Value; 2] {
    let status = lab.status();
    [0, 1].map(|n| status["controllers"][n][key].clone())
}

#[test]
fn a_pair_shares_an_array_and_its_faults_are_mended() {
    let Some(lab) = one_pair("pair") else { return };
    a_fenced_osd_writes_no_more(&lab);
    power_and_links_go_and_come_back(&lab);
    disks_and_arrays_fail_and_come_back(&lab);
    let fsid = lab.status()["fsid"].as_str().expect("text")[..8].to_owned();
    // As a crash of everything that watches would leave it.
    good(lab.run("fail", &["freeze", "n0b"]));
    good(lab.run("down", &[]));
    lab.leaves_nothing();
    let [links, names] =
        [&["-br", "link"][..], &["netns"]].map(|args| Command::new("ip").args(args).output());
    let all = [links.expect("ip").stdout, names.expect("ip").stdout].concat();
    assert!(!String::from_utf8_lossy(&all).contains(&fsid), "a namespace or a link is left");
}

/// OSD 0 is cut off, fenced by hand, and connected again: what it writes then is refused, and it ends.
fn a_fenced_osd_writes_no_more(lab: &Lab) {
    let put = "rbd --id loligo create --size 64M rbd/i; printf kept | rados --id loligo -p r2 put thing -";
    good(on(lab, "client", put));
    let tree = String::from_utf8(good(lab.sh("ceph osd tree")).stdout).expect("text");
    assert!(["chassis n0", "host n0a", "host n0b"].iter().all(|bucket| tree.contains(bucket)), "{tree}");
    let (mut a, mut b) = (fence(lab, "a", "osd0"), fence(lab, "b", "osd0"));
    a.register(Key::NONE, A).expect("a registers");
    b.register(Key::NONE, B).expect("b registers");
    a.reserve(A).expect("the owner holds it");

    let cut = json(lab.run("fail", &["nic", "n0a", "--json"]));
    assert_eq!(
        (&cut["kind"], &cut["target"], &cut["outcome"]),
        (&"nic".into(), &"n0a".into(), &"done".into())
    );
    let status = lab.status();
    let shown = &status["controllers"][0];
    assert_eq!((&shown["public_link"], &shown["private_link"]), (&false.into(), &false.into()));
    assert_eq!((&shown["power"], &shown["osds"]), (&"on".into(), &serde_json::json!([0])), "it lives on");
    assert!(!on(lab, "n0a", "timeout 3 ceph status").status.success(), "it is cut off");
    assert!(refused(&lab.run("fail", &["nic", "n0a"])).contains("in force already"));

    assert_eq!((counted(lab, "rejected"), counted(lab, "landed")), (0, 0));
    take(&mut b, B, A).expect("a fence");
    let written = counted(lab, "written");
    assert_eq!(String::from_utf8_lossy(&good(lab.run("mend", &["n0a"])).stdout), "nic n0a\n");
    // It writes down the new map at the latest.
    good(lab.sh("ceph osd set noout"));
    until("it writes on", || counted(lab, "rejected") > 0);
    until("it ends", || controllers(lab, "osds")[0] == serde_json::json!([]));
    assert_eq!((counted(lab, "written"), counted(lab, "landed")), (written, 0));
    let shown = &lab.status()["arrays"][0]["luns"][1];
    assert_eq!((&shown["lun"], &shown["reservation"]["keys"]), (&"osd0".into(), &serde_json::json!([B.0])));
    assert_eq!(
        (&shown["counters"]["a"]["landed"], &shown["counters"]["a"]["written"]),
        (&0.into(), &written.into())
    );
    b.release(B).expect("given back");
    b.register(B, Key::NONE).expect("and left");
}

/// What is switched off says nothing, and starts again with all that belongs to it.
fn power_and_links_go_and_come_back(lab: &Lab) {
    let power = |what: &str| lab.run(&format!("power {what}"), &["n0a"]);
    let status = || String::from_utf8(good(power("status")).stdout).expect("text");
    assert_eq!(status(), "on\n");
    good(power("off"));
    good(power("off"));
    assert_eq!(status(), "off\n");
    assert!(refused(&on(lab, "n0a", "true")).contains("'loligo lab mend n0a'"));
    assert_eq!(controllers(lab, "processes")[0], 0);
    good(power("on"));
    assert_eq!(status(), "on\n");
    until("osd.0 is up again", || lab.status()["osds_up"] == 2);
    let got = good(on(lab, "client", "timeout 60 rados -p r2 get thing -")).stdout;
    assert_eq!(String::from_utf8_lossy(&got), "kept");

    assert_eq!(json(lab.run("fail", &["power", "n0", "--json"]))["target"], "n0");
    assert_eq!(controllers(lab, "power"), ["off", "off"]);
    // One of two that went at once.
    good(lab.run("mend", &["n0b"]));
    assert_eq!(controllers(lab, "power"), ["off", "on"]);
    good(lab.run("mend", &[]));
    assert_eq!(lab.status()["faults"], serde_json::json!([]));
    let link = json(lab.run("fail", &["link", "n0", "--for", "1", "--json"]));
    let lasted = link["mended_ms"].as_u64().zip(link["at_ms"].as_u64()).map(|(to, from)| to - from);
    assert!(lasted.is_some_and(|ms| (1000..10_000).contains(&ms)), "{link}");
    let mut cut = lab.command("fail", &["link", "n0", "--for", "60"]).spawn().expect("it runs");
    until("the link is cut", || controllers(lab, "private_link")[0] == false);
    rustix::process::kill_process(rustix::process::Pid::from_child(&cut), rustix::process::Signal::INT)
        .expect("it runs");
    assert_eq!(cut.wait().expect("it ends").code(), Some(130));
    assert_eq!(controllers(lab, "private_link"), [true, true]);
    for (kind, target, has) in [
        ("controller", "n1a", "it has: n0a, n0b"),
        ("osd", "2", "it has: 0, 1"),
        ("disk", "osd2", "it has: osd0, osd1"),
        ("array-cycle", "n1", "it has: n0"),
    ] {
        assert!(refused(&lab.run("fail", &[kind, target])).contains(has), "{kind} {target}");
    }
}

/// Errors end an OSD; with the array they go, and it starts again.
fn disks_and_arrays_fail_and_come_back(lab: &Lab) {
    until("both are up", || lab.status()["osds_up"] == 2);
    good(lab.run("fail", &["disk", "osd1"]));
    good(on(lab, "client", "timeout 4 rados -p r2 bench 3 write -b 4096 -t 8 --no-cleanup || true"));
    until("osd.1 ends", || controllers(lab, "osds")[1] == serde_json::json!([]));
    good(lab.run("mend", &["osd1"]));
    until("osd.1 is up again", || lab.status()["osds_up"] == 2);
    let mut a = fence(lab, "a", "quorum");
    a.register(Key::NONE, A).expect("a registers");
    json(lab.run("fail", &["array-cycle", "n0", "--json"]));
    assert_eq!(a.read().expect("keys").keys, [A], "registrations outlive the power");
    good(on(lab, "client", "timeout 60 rados -p r2 get thing - >/dev/null"));
}
