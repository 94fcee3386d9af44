//! Another host, over ssh.

use super::site::Site;
use loligo_tests::lab::{good, refused};
use loligo_tests::server::program;
use loligo_tests::skip::skip;
use loligo_tests::ssh::Host;

/// A host with files of its own: its program is given another root.
fn host() -> Host {
    Host::new("127.0.0.1", |dir| {
        let root = dir.join("root");
        let files = [
            ("proc/sys/kernel/hostname", "node2\n"),
            ("proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 67108864 kB\nSwapTotal: 0 kB\n"),
            ("sys/block/rbd0/queue/nr_requests", "128\n"),
            ("sys/block/rbd0/queue/read_ahead_kb", "4096\n"),
            ("sys/block/rbd1/queue/nr_requests", "128\n"),
            ("sys/block/rbd1/queue/read_ahead_kb", "2048\n"),
        ];
        for (path, text) in files {
            std::fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("folders");
            std::fs::write(root.join(path), text).expect("a file");
        }
        format!("exec {} \"$@\" --root {}", program().display(), root.display())
    })
}

#[test]
fn another_host_is_changed_over_ssh_and_put_back() {
    if let Some(why) = Host::missing() {
        return skip("another host over ssh", why);
    }
    let Some(site) = Site::new("tune-ssh") else { return };
    let host = host();
    let file = |path: &str| {
        let text = std::fs::read_to_string(host.at("root").join(path)).unwrap_or_default();
        text.trim().to_owned()
    };
    let more = host.args();
    let with = |args: &[&str]| {
        let all: Vec<&str> = args.iter().copied().chain(more.iter().map(String::as_str)).collect();
        site.tune(&all)
    };
    good(with(&["apply", "--yes", "--rule", "BLK-03"]));
    let ahead = |disk: &str| file(&format!("sys/block/{disk}/queue/read_ahead_kb"));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("128", "128"));
    let kept = file("etc/tmpfiles.d/zz-loligo-tune.conf");
    assert!(kept.is_empty(), "a disk has another name after a boot: {kept}");
    let again = good(with(&["apply", "--yes", "--rule", "BLK-03"]));
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    let place = "node2 /sys/block/rbd1/queue/read_ahead_kb is 128 (the kernel's)";
    assert!(again.contains("BLK-03 is so already") && again.contains(place), "{again}");

    // Without the way there nothing of it is taken back, and it says which way is missing.
    let out = site.tune(&["rollback"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("--host node2"), "{said}");
    good(with(&["rollback"]));
    assert_eq!((ahead("rbd0").as_str(), ahead("rbd1").as_str()), ("4096", "2048"));
    assert!(file("etc/tmpfiles.d/zz-loligo-tune.conf").is_empty());

    // A host that does not answer is named among what was not seen, and its rules propose nothing.
    let dead = ["--host", "root@127.0.0.1", "--ssh-option", "Port=1", "--rule", "BLK-03"];
    let said = refused(&site.tune(&[&["apply", "--yes"], &dead[..]].concat()));
    assert!(said.contains("BLK-03 proposes nothing here"), "{said}");
    let facts = site.json(&["facts", "--host", "root@127.0.0.1", "--ssh-option", "Port=1"]);
    assert!(facts["unseen"].to_string().contains("ssh does not reach it"), "{}", facts["unseen"]);
}
