//! The users that a stop of its service waits for.

use crate::{MIB, Mount, run, soon, text};
use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::direct;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn a_stop_waits_for_who_has_the_device_open_and_names_them() {
    if impossible("a stop while mounted") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    run("mkfs.ext4", &["-q", "-F", text(&rig.path())]);
    let fs = Mount::new(&rig);
    server.terminate();
    let mount = format!("the file system mounted at {}", fs.0.display());
    soon("it says who holds the device", || server.words().contains(&mount));
    std::fs::write(fs.0.join("late"), "written while it waits").expect("the volume is served");
    fs.unmount();
    let file = direct::open(&rig.path(), 0).expect("it may even be opened again");
    let own = format!("process {} ", std::process::id());
    soon("it says who holds it now", || server.words().contains(&own));
    drop(file);
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert_eq!(rig.left(), [""; 0]);
    let server = rig.volume.serve().expect("a start");
    let fs = Mount::new(&rig);
    assert_eq!(std::fs::read_to_string(fs.0.join("late")).expect("the file"), "written while it waits");
    fs.unmount();
    server.stop().expect("a clean stop");
}

/// A page of the device in this process's memory: it keeps the device open without a descriptor, so that no list shows it.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(path: &Path) -> Mapped {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open(path).expect("it opens");
        // SAFETY: a new mapping, at an address that the kernel chooses; nothing reads or writes through it.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "mapped");
        Mapped(at)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length and is used nowhere else.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

#[test]
fn a_stop_waits_also_for_unseen_users_and_leaves_the_device() {
    if impossible("a stop with a hidden user") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    let mapped = Mapped::new(&rig.path());
    server.terminate();
    soon("it says that somebody has it", || {
        server.words().contains("something that cannot be seen from here")
    });
    let autoclear = format!("/sys/block/{}/loop/autoclear", rig.kernel_name());
    soon("the device stays when others close it", || {
        std::fs::read_to_string(&autoclear).expect("still bound").trim() == "0"
    });
    // Who opens and closes it meanwhile is not the last user.
    for _ in 0..20 {
        let file = direct::open(&rig.path(), 0).expect("still served");
        file.read_exact_at(&mut loligo_block::Buf::alloc(4096), 0).expect("still served");
    }
    assert_eq!(rig.loops().len(), 1);
    drop(mapped);
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_second_signal_stops_it_under_its_users_and_keeps_flushes() {
    if impossible("a second signal") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    let file = direct::open(&rig.path(), 0).expect("it opens");
    let mut data = loligo_block::Buf::alloc(4096);
    data.fill(7);
    file.write_all_at(&data, 8192).and_then(|()| file.sync_all()).expect("durable");
    server.terminate();
    soon("it waits", || server.words().contains("waiting to stop"));
    server.terminate();
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert!(file.write_all_at(&data, 0).is_err(), "its user gets errors");
    drop(file);
    soon("the device goes with its user", || rig.left().is_empty());
    let out = rig.volume.loligo(&["inspect", text(&rig.volume.cache)]).expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let server = rig.volume.serve().expect("a start");
    let mut back = loligo_block::Buf::alloc(4096);
    direct::open(&rig.path(), 0).and_then(|f| f.read_exact_at(&mut back, 8192)).expect("it reads");
    assert!(back[..] == data[..]);
    server.stop().expect("a clean stop");
}
