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
fn a_block_device_reads_writes_zeroes_and_flushes_also_off_its_blocks() {
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
        drop(held);
        DeviceFile::open(path, &soon).unwrap();
    });
}
