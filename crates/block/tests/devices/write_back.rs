//! Claims about writes that the page cache takes and the device does not. The device is a loop device over a file in a full
//! tmpfs. Needs root; says SKIP with the reason where there is none.

use crate::common::{Rig, pattern};
use loligo_block::{
    AnyDevice, CacheDevice, DevId, DeviceFile, Op, OpKind, OpenOptions, Ring, SyncFile, SyncIo,
};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const SECTOR: usize = 4096;

/// A device of 16 MiB that takes no write.
struct FullDevice {
    path: Option<PathBuf>,
    mount: tempfile::TempDir,
}

fn run(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !ran.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&ran.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

impl FullDevice {
    fn new() -> Result<FullDevice, String> {
        let mount = tempfile::tempdir().map_err(|e| e.to_string())?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(mount.path()))?;
        let mut full = FullDevice { path: None, mount };
        let at = |name| full.mount.path().join(name);
        File::create(at("disk")).and_then(|f| f.set_len(16 * MIB)).map_err(|e| e.to_string())?;
        let mut filler = File::create(at("filler")).map_err(|e| e.to_string())?;
        while filler.write_all(&[1; SECTOR]).is_ok() {}
        let sector = SECTOR.to_string();
        let mut losetup = Command::new("losetup");
        let made = run(losetup.args(["--find", "--show", "--sector-size", &sector]).arg(at("disk")))?;
        full.path = Some(made.into());
        Ok(full)
    }

    fn path(&self) -> &Path {
        self.path.as_deref().expect("it was made")
    }

    /// Says that the device has no volatile cache, so that nobody flushes it.
    fn without_cache(&self) {
        self.set_cache("write through").expect("root may");
    }

    /// The next user of the same device finds this setting.
    fn set_cache(&self, kind: &str) -> std::io::Result<()> {
        let name = self.path().file_name().expect("a name").to_string_lossy().into_owned();
        std::fs::write(format!("/sys/block/{name}/queue/write_cache"), kind)
    }

    fn open(&self, direct: bool) -> DeviceFile {
        let options =
            OpenOptions { direct, exclusive: Some(Duration::from_secs(60)), ..OpenOptions::default() };
        DeviceFile::open(self.path(), &options).expect("it opens")
    }
}

impl Drop for FullDevice {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = self.set_cache("write back");
            let _ = Command::new("losetup").arg("--detach").arg(path).status();
        }
        let _ = Command::new("umount").arg("--lazy").arg(self.mount.path()).status();
    }
}

fn with_full_device(claim: impl Fn(&FullDevice)) {
    match FullDevice::new() {
        Ok(device) => claim(&device),
        Err(why) => println!("SKIP: no loop device over a full tmpfs: {why}"),
    }
}

fn user(file: &DeviceFile, id: u16) -> Rig<AnyDevice> {
    let device = CacheDevice::from(file.clone()).on_ring(DevId(id)).expect("one more descriptor");
    Rig { dev: device, ring: Ring::new(8).expect("a ring") }
}

#[test]
fn a_failed_write_back_is_told_to_every_user_of_a_file() {
    with_full_device(|device| {
        let file = device.open(false);
        let mut users: Vec<_> = (0..4).map(|n| user(&file, n)).collect();
        for (n, user) in users.iter_mut().enumerate() {
            let data = pattern(1 << 16, n as u64);
            user.write(n as u64 * MIB, &data, false).expect("the page cache takes it");
        }
        for (n, user) in users.iter_mut().enumerate() {
            let flushed = user.one(0, OpKind::Flush).result;
            assert!(flushed.is_err(), "user {n} believes that its write is durable");
        }
    });
}

#[test]
fn of_two_flushes_at_once_none_hides_the_failure() {
    with_full_device(|device| {
        let mut user = user(&device.open(false), 0);
        user.write(0, &pattern(1 << 16, 1), false).expect("the page cache takes it");
        let flushes = [1, 2].map(|tag| Op { tag, offset: 0, kind: OpKind::Flush });
        for flush in user.all(flushes.into()) {
            assert!(flush.result.is_err(), "flush {} believes that the write is durable", flush.tag);
        }
    });
}

#[test]
fn a_fua_write_leaves_an_earlier_writes_error_to_the_flush() {
    with_full_device(|device| {
        let mut user = user(&device.open(false), 0);
        user.write(0, &pattern(1 << 16, 1), false).expect("the page cache takes it");
        // The kernel writes it back by itself.
        let to = format!("of={}", device.path().display());
        run(Command::new("dd").args(["if=/dev/null", &to, "conv=notrunc,fsync"])).expect_err("it is full");
        assert!(user.write(8 * MIB, &pattern(1 << 16, 2), true).is_err(), "the device takes no write");
        let flushed = user.one(0, OpKind::Flush).result;
        assert!(flushed.is_err(), "the plain write is said to be durable, and it is lost");
    });
}

#[test]
fn a_buffered_device_is_flushed_whatever_cache_it_has() {
    with_full_device(|device| {
        device.without_cache();
        assert!(device.open(false).geometry().volatile_cache);
        assert!(!device.open(true).geometry().volatile_cache);
    });
}

#[test]
fn off_its_blocks_a_device_without_cache_is_written_through() {
    with_full_device(|device| {
        device.without_cache();
        let file = device.open(true);
        assert!(!file.geometry().volatile_cache, "nobody flushes it");
        let data = pattern(512, 1);
        assert!(user(&file, 0).write(512, &data, false).is_err(), "the ring says it is written");
        assert!(SyncFile::new(file).write_at(MIB + 512, &data).is_err(), "it is said to be written");
    });
}
