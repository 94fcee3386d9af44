//! A volume that answers at once and keeps nothing, behind the same FUSE mount and loop device as a real one: what is left of
//! the time is the transport's.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use loligo_block::{Answer, Buf, ReqKind, Request, Segments, Shared};
use loligo_export::blockdev::{BlockDevice, Claim, Released, Traits};
use loligo_export::fuse::{Counters, Mount, Mountpoint};
use loligo_export::{Answered, Export, Volume, Way};

use crate::interrupt::Interrupt;

/// Bytes of the longest read of a FUSE mount.
const LONGEST: usize = 1 << 20;

/// Reads are zeros; all else is done.
struct Null {
    zeros: Shared,
}

impl Volume for Null {
    fn ask(&self, request: Request, answered: Answered) {
        match request.kind {
            ReqKind::Read => {
                let len = request.len.min(LONGEST as u64) as usize;
                answered(Ok(Answer::Data(Segments::from_iter([self.zeros.slice(0..len)]))));
            }
            _ => answered(Ok(Answer::Done)),
        }
    }
}

/// Serves `size` bytes of it, as the file `null` in a mount or as a block device, prints `ready`, and ends with `stop`.
pub fn serve(way: &Way, folder: &Path, size: u64, stop: &Interrupt) -> Result<()> {
    let export = Export::new("null", size);
    let volume = Arc::new(Null { zeros: Buf::zeroed(LONGEST).freeze() });
    let counters = Arc::new(Counters::default());
    match way {
        Way::Fuse(at) => {
            let _mount = Mount::new(&Mountpoint::claim(at)?, &export, volume, counters)?;
            wait(stop)
        }
        Way::Block(name) | Way::Loop(name) => {
            let claim = Claim::take(name, folder, &[])?;
            let traits = Traits { block: export.min_block, rotational: false, owner: None };
            let mut device = BlockDevice::new(claim, &export, volume, counters, traits)?;
            wait(stop)?;
            while device.release() == Released::Busy {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        }
        Way::Socket(_) | Way::Ublk(_) => {
            bail!("only fuse:MOUNTPOINT and loop:NAME have a target that answers at once")
        }
    }
}

fn wait(stop: &Interrupt) -> Result<()> {
    println!("ready");
    std::io::stdout().flush()?;
    while stop.sleep(Duration::from_secs(1)).is_ok() {}
    Ok(())
}
