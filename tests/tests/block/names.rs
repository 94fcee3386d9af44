//! The owners of a device and of its name.

use crate::{MIB, run, text};
use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::direct;
use loligo_tests::server::Server;
use loligo_tests::skip::skip;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_loop_device_of_others_with_our_number_is_left_alone() {
    if impossible("another's loop device") {
        return;
    }
    let rig = Device::new(16 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let kernel = rig.kernel_name();
    server.kill().expect("it ran");
    let node = format!("/dev/{kernel}");
    run("losetup", &["--detach", &node]);
    let theirs = rig.volume.dir.join("theirs");
    std::fs::File::create(&theirs).and_then(|f| f.set_len(MIB)).expect("a file");
    // Some other test may take the number meanwhile; then there is nothing to show.
    let taken = Command::new("losetup").args([&node, text(&theirs)]).status().expect("losetup runs");
    let server = rig.volume.serve().expect("a start");
    if taken.success() {
        let file =
            std::fs::read_to_string(format!("/sys/block/{kernel}/loop/backing_file")).expect("still bound");
        assert_eq!(file.trim(), text(&theirs), "it was not ours to detach");
        run("losetup", &["--detach", &node]);
    } else {
        skip("another's loop device of our number", "the number was taken at once");
    }
    server.stop().expect("a clean stop");
}

/// The owner of the node, and its mode.
fn access(node: &Path) -> (u32, u32, u32) {
    let meta = node.metadata().expect("a node");
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn a_device_given_away_is_its_users_and_its_node_nobodys_after() {
    if impossible("the owner of a block device") {
        return;
    }
    let mut rig = Device::new(16 * MIB, 32 * MIB);
    rig.volume.more.extend(["--dev-owner", "nobody:12"].map(str::to_owned));
    let server = rig.volume.serve().expect("a start");
    let node = rig.path().canonicalize().expect("the link leads somewhere");
    assert_eq!(access(&node), (65534, 12, 0o660));
    // Held open, so that the next start has another number.
    let held = direct::open(&rig.path(), 0).expect("it opens");
    server.kill().expect("it ran");
    let server = rig.volume.serve().expect("a start");
    let next = rig.path().canonicalize().expect("the link leads somewhere");
    assert_ne!(node, next);
    assert_eq!(access(&next), (65534, 12, 0o660));
    let (uid, _, _) = access(&node);
    assert_eq!(uid, 0, "the dead one's node is as it was before");
    drop(held);
    server.stop().expect("a clean stop");
    assert_eq!(access(&next).0, 0, "as it was before");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_device_bound_but_not_written_down_is_found_by_its_file() {
    if impossible("a kill in the middle of a start") {
        return;
    }
    let rig = Device::new(16 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    server.kill().expect("it ran");
    assert_eq!(rig.loops().len(), 1);
    // As it is between the kernel's answer and the line that notes it.
    let record = Path::new("/dev/loligo").join(format!(".{}.lock", rig.name));
    let text = std::fs::read_to_string(&record).expect("a record");
    let kept: Vec<&str> = text.lines().filter(|l| !l.starts_with("sequence")).collect();
    assert!(kept.len() + 1 == text.lines().count(), "{text}");
    std::fs::write(&record, kept.join("\n") + "\n").expect("a record");
    let server = rig.volume.serve().expect("a start");
    assert_eq!(rig.loops().len(), 1, "the old one is gone");
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}

/// A start with these further options that must be refused; what it said.
fn refused(rig: &Device, options: &[&str]) -> String {
    let other = rig.volume.dir.join("other");
    std::fs::create_dir_all(&other).expect("a folder");
    std::fs::File::create(other.join("core")).and_then(|f| f.set_len(16 * MIB)).expect("a core");
    let core = format!("file:{}", other.join("core").display());
    let mut args = vec!["--bare".to_owned(), "--core".to_owned(), core];
    args.extend(options.iter().map(|o| (*o).to_owned()));
    let mut server = Server::launch(&other, &args).expect("it runs");
    server.ready().expect_err("refused").to_string()
}

#[test]
fn of_two_services_only_one_has_a_name() {
    if impossible("two claimants") {
        return;
    }
    let mut rig = Device::new(64 * MIB, 32 * MIB);
    let further = format!("cas{}", rig.name);
    rig.volume.more.extend(["--dev-name".to_owned(), further.clone()]);
    let listen = format!("block:{}", rig.name);
    let server = rig.volume.serve().expect("a start");
    let link = Path::new("/dev").join(&further);
    assert_eq!(std::fs::read_link(&link).expect("a link"), rig.path());
    let said = refused(&rig, &["--listen", &listen]);
    let holder = format!("process {} (loligo)", server.id());
    assert!(said.contains("is in use") && said.contains(&holder), "{said}");
    let unused = format!("block:{}-b", rig.name);
    let said = refused(&rig, &["--listen", &unused, "--dev-name", &further]);
    assert!(said.contains(&format!("/dev/loligo/{}", rig.name)) && said.contains("--dev-name"), "{said}");
    direct::open(&rig.path(), 0).expect("the first one serves on");
    server.stop().expect("a clean stop");
    assert!(link.symlink_metadata().is_err(), "the further name went with it");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn what_is_not_loligos_is_never_replaced_and_a_leftover_link_is() {
    if impossible("something at the name") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let listen = format!("block:{}", rig.name);
    std::fs::create_dir_all("/dev/loligo").expect("the folder");
    std::fs::write(rig.path(), "precious").expect("a file");
    let said = refused(&rig, &["--listen", &listen]);
    assert!(said.contains("not a link of Loligo's") && said.contains("a file"), "{said}");
    assert_eq!(std::fs::read_to_string(rig.path()).expect("still there"), "precious");
    std::fs::remove_file(rig.path()).expect("it was a file");
    std::os::unix::fs::symlink("/dev/null", rig.path()).expect("a link");
    let said = refused(&rig, &["--listen", &listen]);
    assert!(said.contains("a link to /dev/null"), "{said}");
    let said = refused(&rig, &["--listen", &format!("block:{}-c", rig.name), "--dev-name", "null"]);
    assert!(said.contains("/dev/null is not a link of Loligo's: it is a device"), "{said}");
    for bad in ["a/b", "..", ".x"] {
        let said = refused(&rig, &["--listen", &format!("block:{bad}")]);
        assert!(said.contains("a device is named by 1 to 64 letters"), "{said}");
    }
    std::fs::remove_file(rig.path()).expect("a link");
    std::os::unix::fs::symlink("/dev/loop4000", rig.path()).expect("a link");
    let server = rig.volume.serve().expect("a leftover link is replaced");
    direct::open(&rig.path(), 0).expect("it leads to the device");
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}
