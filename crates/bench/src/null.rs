//! A volume that answers at once and keeps nothing, behind the same FUSE mount and loop device as a real one: what is left of
//! the time is the transport's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use loligo_block::{Answer, Buf, Reply, ReqKind, Request, Segments, Shared};
use loligo_export::blockdev::{BlockDevice, Claim, Released, Traits};
use loligo_export::fuse::{Counters, Mount, Mountpoint, Session};
use loligo_export::{Export, ExportSpec};

use crate::interrupt::Interrupt;

/// Bytes of the longest read of a FUSE mount.
const LONGEST: usize = 1 << 20;

/// Between two looks whether a mount is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Serves a mount with nothing, on a thread of its own.
fn answer_at_once(mut session: Session) {
    std::thread::spawn(move || {
        let zeros = Buf::zeroed(LONGEST).freeze();
        let mut requests = Vec::new();
        while !session.is_over() && session.wait(LOOK).is_ok() {
            session.receive(&mut requests);
            for request in requests.drain(..) {
                session.answer(Reply { id: request.id, result: Ok(answer(&request, &zeros)) });
            }
            session.follow_up(&mut requests);
        }
    });
}

/// Reads are zeros; all else is done.
fn answer(request: &Request, zeros: &Shared) -> Answer {
    match request.kind {
        ReqKind::Read => {
            let len = request.len.min(LONGEST as u64) as usize;
            Answer::Data(Segments::from_iter([zeros.slice(0..len)]))
        }
        _ => Answer::Done,
    }
}

/// Serves `size` bytes of it, as the file `null` in a mount or as a block device, prints `ready`, and ends with `stop`.
pub fn serve(spec: &ExportSpec, folder: &Path, size: u64, stop: &Interrupt) -> Result<()> {
    let export = Export::new("null", size);
    let counters = Arc::new(Counters::default());
    match spec {
        ExportSpec::Fuse(at) => {
            let _mount = Mount::new(&Mountpoint::claim(at)?, &export, counters, answer_at_once)?;
            wait(stop)
        }
        ExportSpec::Block(name) | ExportSpec::Loop(name) => {
            let claim = Claim::take(name, folder, &[])?;
            let traits = Traits { block: export.min_block, rotational: false, owner: None };
            let mut device = BlockDevice::new(claim, &export, counters, traits, answer_at_once)?;
            wait(stop)?;
            while device.release() == Released::Busy {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        }
        ExportSpec::Socket(_) | ExportSpec::Ublk(_) => {
            bail!("only fuse:MOUNTPOINT and loop:NAME have a target that answers at once")
        }
    }
}

fn wait(stop: &Interrupt) -> Result<()> {
    loligo_log::outln!("ready");
    loligo_log::flush_output();
    while stop.sleep(Duration::from_secs(1)).is_ok() {}
    Ok(())
}
