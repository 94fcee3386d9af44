//! Start, stop, and start again.

use crate::nbd::Client;
use crate::rig::{MIB, Rig};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

fn pattern(i: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|b| (i * 131 + b / 512 + 1) as u8).collect()
}

#[test]
fn acknowledged_data_survives_a_stop_and_the_core_gets_it_asked() {
    for shards in ["1", "3"] {
        let rig = Rig::new(64 * MIB + 512);
        let served = rig.serve(&["--shards", shards]);
        let mut c = Client::connect(&rig.path("sock"), "").unwrap();
        assert_eq!(c.size, 64 * MIB + 512);
        for i in 0..300 {
            assert_eq!(c.write(i * 200 * 1024, &pattern(i, 4096)).unwrap(), 0);
        }
        assert_eq!(c.write(64 * MIB, &pattern(7, 512)).unwrap(), 0, "the last half block");
        let said = served.stop();
        assert!(said.contains("dirty bytes are safe on the cache"), "{said}");
        assert!(
            !rig.path("sock").exists() && !rig.path("run/vol.sock").exists(),
            "sockets go with the service"
        );

        let served = rig.serve(&["--flush-on-stop", "--mode", "wt"]);
        let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
        for i in 0..300 {
            assert_eq!(c.read(i * 200 * 1024, 4096).unwrap(), pattern(i, 4096), "{i}");
        }
        assert_eq!(rig.stats()["mode"], "wt", "the command line's mode counts");
        assert_ne!(rig.stats()["dirty_bytes"], 0);
        let said = served.stop();
        assert!(
            said.contains("flushing to the core: done") && said.contains("the core has everything"),
            "{said}"
        );
        let core = fs::File::open(rig.path("core")).unwrap();
        for i in 0..300 {
            let mut have = vec![0; 4096];
            core.read_exact_at(&mut have, i * 200 * 1024).unwrap();
            assert_eq!(have, pattern(i, 4096), "{i} with {shards} shards");
        }
    }
}

#[test]
fn a_socket_has_the_owner_and_mode_that_were_said() {
    let rig = Rig::new(16 * MIB);
    // Root gives it away, as to libvirt's user; others can name themselves only.
    let (uid, gid) = match rustix::process::geteuid().is_root() {
        true => (65_534, 12_345),
        false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let listen = format!("unix:given?owner={uid}:{gid}&mode=0660");
    let served = rig.serve(&["--listen", &listen]);
    let meta = fs::metadata(rig.path("given")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.permissions().mode() & 0o777), (uid, gid, 0o660));
    assert_eq!(fs::metadata(rig.path("sock")).unwrap().permissions().mode() & 0o777, 0o600);
    served.stop();
    assert!(!rig.path("given").exists(), "it goes with the service");
}

#[test]
fn a_read_only_listener_beside_another_takes_no_writes() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&["--shards", "2", "--listen", "unix:look?read-only"]);
    let mut writer = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(writer.write(0, &pattern(1, 4096)).unwrap(), 0);
    // The threads take clients in turn.
    for _ in 0..4 {
        let mut reader = Client::connect(&rig.path("look"), "vol").unwrap();
        assert_eq!(reader.read(0, 4096).unwrap(), pattern(1, 4096));
        assert_eq!(reader.write(0, &pattern(2, 4096)).unwrap(), 1, "EPERM");
    }
    assert_eq!(writer.read(0, 4096).unwrap(), pattern(1, 4096));
    served.stop();
    let out = rig.run(&rig.args(&["--listen", "fuse:mnt?read-only"]));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("served for reading and writing"), "{said}");
    let said = rig.refused(&rig.args(&["--listen", "unix:sock?read-only"]));
    assert!(said.contains("twice"), "one place is one way, whatever is said of it: {said}");
}

#[test]
fn systemd_hears_when_serve_is_ready_and_when_it_stops() {
    let rig = Rig::new(16 * MIB);
    let manager = std::os::unix::net::UnixDatagram::bind(rig.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hears = |wanted: &str| {
        let mut word = [0; 4096];
        loop {
            let n = manager.recv(&mut word).unwrap_or_else(|e| panic!("no {wanted}: {e}"));
            if String::from_utf8_lossy(&word[..n]).lines().any(|line| line == wanted) {
                return;
            }
        }
    };
    let socket = rig.path("notify");
    let served = rig.serve_with(&rig.args(&[]), &[("NOTIFY_SOCKET", socket.to_str().unwrap())]);
    hears("READY=1");
    hears("WATCHDOG=1");
    served.stop();
    hears("STOPPING=1");
}

#[test]
fn a_stop_does_not_wait_for_clients_and_sockets_are_private() {
    let rig = Rig::new(16 * MIB);
    let mut served = rig.serve(&[]);
    for socket in ["sock", "run/vol.sock"] {
        let mode = fs::metadata(rig.path(socket)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{socket}");
    }
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.write(0, &[1; 512]).unwrap(), 0);
    served.signal(Signal::INT);
    let refused = (0..).find_map(|_| match c.write(0, &[2; 512]) {
        Ok(0) => None,
        other => Some(other),
    });
    assert_eq!(refused.unwrap().expect("an answer, not a closed connection"), 108, "ESHUTDOWN");
    served.ended(0);
}

#[test]
fn a_signal_during_the_start_ends_it_and_the_next_is_anew() {
    let rig = Rig::new(16 * MIB);
    let args = rig.args(&["--cache-size", "1g"]);
    let mut starting = rig.loligo(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while !rig.path("cache").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&starting), Signal::TERM).unwrap();
    let signalled = Instant::now();
    let out = starting.wait().unwrap();
    assert!(out.success() && signalled.elapsed() < Duration::from_secs(5), "{out}");
    for left in ["cache", "sock", "run/vol.sock"] {
        assert!(!rig.path(left).exists(), "{left} is left behind");
    }
    let mut said = String::new();
    starting.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it never was ready");
    rig.serve(&[]).stop();
}

#[test]
fn a_flush_during_another_covers_what_was_written_between() {
    let rig = Rig::new(256 * MIB);
    let mut args = rig.args(&["--cache-size", "64m"]);
    let core = args.iter().position(|a| *a == "file:core").unwrap();
    args[core] = "hdd:core?rpm=7200";
    let served = rig.serve_args(&args);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..1000 {
        assert_eq!(c.write(i * 200 * 1024, &pattern(i, 4096)).unwrap(), 0);
    }
    let mut first = rig.loligo(&["flush", "vol"]).stderr(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(first.try_wait().unwrap().is_none(), "it takes seconds on such a disk");
    // At the start of the core, where the first has been already or will be: it need not have this.
    assert_eq!(c.write(0, &pattern(77, 4096)).unwrap(), 0);
    rig.ok(&["flush", "vol"]);
    let mut have = vec![0; 4096];
    fs::File::open(rig.path("core")).unwrap().read_exact_at(&mut have, 0).unwrap();
    assert_eq!(have, pattern(77, 4096), "the second flush has it on the core");
    assert!(first.wait().unwrap().success());
    served.stop();
}

#[test]
fn stale_sockets_are_replaced_and_a_later_start_recovers() {
    let rig = Rig::new(16 * MIB);
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.write(MIB, &pattern(3, 8192)).unwrap(), 0);
    served.kill();
    assert!(rig.path("sock").exists() && rig.path("run/vol.sock").exists());
    let served = rig.serve(&[]);
    assert!(served.said().contains("recovered in"), "{}", served.said());
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.read(MIB, 8192).unwrap(), pattern(3, 8192));
    served.stop();
}

#[test]
fn a_format_that_was_cut_off_counts_as_blank() {
    let rig = Rig::new(16 * MIB);
    rig.serve(&[]).stop();
    let cache = fs::File::options().write(true).open(rig.path("cache")).unwrap();
    // As it is before the superblocks are written: all the rest is there.
    cache.write_all_at(&[0; 4096], 0).unwrap();
    cache.write_all_at(&[0; 4096], 512 << 10).unwrap();
    let served = rig.serve(&["--cache-size", "32m"]);
    assert!(served.said().contains("made a new cache"), "{}", served.said());
    served.stop();
}

#[test]
fn a_new_cache_file_is_written_whole_unless_sparse() {
    use std::os::unix::fs::MetadataExt;
    for (more, whole) in [(&[][..], true), (&["--sparse"][..], false)] {
        let rig = Rig::new(16 * MIB);
        let served = rig.serve(more);
        let blocks = fs::metadata(rig.path("cache")).unwrap().blocks() * 512;
        assert_eq!(blocks >= 32 * MIB, whole, "{blocks} with {more:?}");
        served.stop();
    }
}

#[test]
fn a_grown_core_is_accepted_and_one_changed_behind_is_noticed() {
    let rig = Rig::new(16 * MIB);
    let core = fs::File::options().write(true).open(rig.path("core")).unwrap();
    let served = rig.serve(&[]);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..400 {
        assert_eq!(c.write(i * 4096, &pattern(i, 4096)).unwrap(), 0);
    }
    rig.ok(&["flush", "vol"]);
    served.stop();
    core.set_len(20 * MIB).unwrap();
    let served = rig.serve(&["--mode", "wt"]);
    assert!(served.said().contains("the core grew"), "{}", served.said());
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.size, 20 * MIB);
    assert_eq!(c.write(19 * MIB, &pattern(1, 4096)).unwrap(), 0);
    assert_eq!(c.read(4096, 4096).unwrap(), pattern(1, 4096));
    served.stop();

    core.write_all_at(&pattern(99, 4096), 8192).unwrap();
    let served = rig.serve(&["--mode", "wt"]);
    assert!(served.said().contains("clean blocks were dropped"), "{}", served.said());
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    assert_eq!(c.read(8192, 4096).unwrap(), pattern(99, 4096), "the core's content counts");
    served.stop();
}

#[test]
fn a_second_signal_gives_up_flushing_and_leaves_the_rest_dirty() {
    let rig = Rig::new(256 * MIB);
    let mut args = rig.args(&["--flush-on-stop", "--cache-size", "64m"]);
    // A disk that needs seconds for what follows.
    let core = args.iter().position(|a| *a == "file:core").unwrap();
    args[core] = "hdd:core?rpm=7200";
    let mut served = rig.serve_args(&args);
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in 0..2000 {
        assert_eq!(c.write(i * 128 * 1024, &pattern(i, 4096)).unwrap(), 0);
    }
    served.signal(Signal::TERM);
    let begun = Instant::now();
    while !served.said().contains("flushing to the core: ") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", served.said());
        std::thread::sleep(Duration::from_millis(5));
    }
    served.signal(Signal::TERM);
    let again = Instant::now();
    let said = served.ended(0);
    assert!(again.elapsed() < Duration::from_secs(5), "it does not finish the flush first");
    assert!(said.contains("given up on a second signal"), "{said}");
    assert!(said.contains("dirty bytes are safe on the cache"), "{said}");
    args.retain(|a| *a != "--flush-on-stop");
    let served = rig.serve_args(&args);
    assert!(rig.stats()["dirty_bytes"].as_u64() > Some(0));
    let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
    for i in (0..2000).step_by(37) {
        assert_eq!(c.read(i * 128 * 1024, 4096).unwrap(), pattern(i, 4096), "{i}");
    }
    served.stop();
}
