//! Claims about raw block devices, on a loop device with 4,096-byte sectors. Needs root and loop devices; says SKIP
//! with the reason where there are none.

use crate::common::{Rig, pattern};
use loligo_block::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

struct Loop {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Loop {
    fn new(size: u64, sector: u32) -> Result<Loop, String> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        let file = dir.path().join("backing");
        std::fs::File::create(&file).and_then(|f| f.set_len(size)).map_err(|e| e.to_string())?;
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&file)
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        Ok(Loop { path: PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()), _dir: dir })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn with_loop(sector: u32, claim: impl Fn(&Path)) {
    match Loop::new(16 * MIB, sector) {
        Ok(device) => claim(&device.path),
        Err(why) => println!("SKIP: no loop device with {sector}-byte sectors: {why}"),
    }
}

#[test]
fn a_block_device_works_also_off_its_blocks() {
    for sector in [512, 4096] {
        with_loop(sector, |path| {
            let mut rig = Rig::open(path, &OpenOptions::default());
            let geometry = rig.dev.geometry();
            assert_eq!((geometry.size, geometry.logical_block), (16 * MIB, sector));
            println!("{path:?}: {geometry:?} {:?} {}", rig.dev.file().dio(), rig.dev.file().identity());
            assert_eq!(rig.dev.file().dio().map(|d| d.offset), Some(sector), "direct I/O on whole sectors");
            let mut want = pattern(16 * MIB as usize, 1);
            rig.write(0, &want, false).unwrap();
            for (offset, len) in [(512u64, 512usize), (4096 * 9 + 1024, 20_480 + 512), (16 * MIB - 512, 512)]
            {
                let data = pattern(len, offset);
                rig.write(offset, &data, true).unwrap();
                want[offset as usize..][..len].copy_from_slice(&data);
            }
            for (offset, len, unmap) in [(MIB, MIB, true), (3 * MIB, MIB, false), (5 * MIB + 512, 9216, true)]
            {
                rig.one(offset, OpKind::WriteZeroes { len, unmap }).result.unwrap();
                want[offset as usize..][..len as usize].fill(0);
            }
            rig.one(0, OpKind::Flush).result.unwrap();
            assert!(rig.read(0, want.len()) == want);
            rig.one(8 * MIB + 512, OpKind::Discard { len: MIB }).result.unwrap();
            assert_eq!(rig.read(8 * MIB, 512), want[8 * MIB as usize..][..512]);
            assert!(rig.dev.file().extents(0, MIB, 8).unwrap()[0].allocated);
        });
    }
}

#[test]
fn a_block_device_that_is_in_use_is_refused_with_its_user() {
    with_loop(512, |path| {
        let soon = OpenOptions { exclusive: Some(Duration::from_millis(50)), ..OpenOptions::default() };
        let held = DeviceFile::open(path, &soon).unwrap();
        let said = DeviceFile::open(path, &soon).unwrap_err().to_string();
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
        assert!(is_in_use(path).unwrap());
        drop(held);
        assert!(!is_in_use(path).unwrap());
        DeviceFile::open(path, &soon).unwrap();
    });
}

/// A file system on 4,096-byte sectors demands that alignment of direct I/O on its files.
#[test]
fn a_file_on_4096_byte_sectors_has_a_usable_tail_of_512() {
    match Loop::new(64 * MIB, 4096).and_then(Mounted::new) {
        Err(why) => println!("SKIP: no file system on 4096-byte sectors: {why}"),
        Ok(mounted) => {
            let path = mounted.at.path().join("disk");
            let size = 4 * MIB + 3 * 512;
            let mut rig = Rig {
                dev: UringFile::new(
                    DeviceFile::create(&path, size, &OpenOptions::default()).unwrap(),
                    DevId(0),
                ),
                ring: Ring::new(8).unwrap(),
            };
            assert_eq!(rig.dev.file().dio().map(|d| d.offset), Some(4096));
            assert_eq!((rig.dev.geometry().logical_block, rig.dev.geometry().size), (4096, size));
            let mut want = pattern(size as usize, 9);
            rig.write(0, &want, false).unwrap();
            for (offset, len) in
                [(4 * MIB, 512), (4 * MIB - 512, 2048), (size - 512, 512), (4096 + 512, 8192)]
            {
                let data = pattern(len, offset);
                rig.write(offset, &data, true).unwrap();
                want[offset as usize..][..len].copy_from_slice(&data);
            }
            rig.one(size - 1024, OpKind::WriteZeroes { len: 1024, unmap: false }).result.unwrap();
            want[size as usize - 1024..].fill(0);
            rig.one(0, OpKind::Flush).result.unwrap();
            assert!(rig.read(0, size as usize) == want);
            let mut whole = vec![1; size as usize];
            SyncFile::new(rig.dev.file().clone()).read_at(0, &mut whole).unwrap();
            assert!(whole == want);
            assert!(std::fs::read(&path).unwrap() == want);
        }
    }
}

struct Mounted {
    at: tempfile::TempDir,
    _device: Loop,
}

impl Mounted {
    fn new(device: Loop) -> Result<Mounted, String> {
        let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        for command in [
            Command::new("mkfs.ext4").arg("-q").arg(&device.path),
            Command::new("mount").arg(&device.path).arg(at.path()),
        ] {
            let ran = command.output().map_err(|e| format!("{command:?}: {e}"))?;
            if !ran.status.success() {
                return Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned());
            }
        }
        let refused = DeviceFile::open(
            &device.path,
            &OpenOptions { exclusive: Some(Duration::ZERO), ..OpenOptions::default() },
        );
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(&format!("mounted at {}", at.path().display())), "{said}");
        Ok(Mounted { at, _device: device })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at.path()).status();
    }
}
