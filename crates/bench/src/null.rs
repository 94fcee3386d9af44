//! A volume that answers at once and keeps nothing, behind the same FUSE mount, loop or ublk device as a real one: what is left of
//! the time is the transport's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use loligo_block::{Answer, Buf, Reply, ReqKind, Request, Ring, Segments, Shared};
use loligo_export::blockdev::{BlockDevice, Claim, Name, Released, Traits};
use loligo_export::fuse::{Counters, Mount, Mountpoint, Session};
use loligo_export::{Export, ExportSpec, ublk};

use crate::interrupt::Interrupt;

/// Bytes of the longest read.
const LONGEST: usize = 1 << 20;

/// Between two looks whether a mount is still there.
const LOOK: Duration = Duration::from_secs(1);

/// In the user data of a ublk queue's entries.
const MARK: u64 = 1 << 56;
const RING_ENTRIES: u32 = 256;
/// The time in which the thread of a ublk queue notices that it is to end, nanoseconds.
const LOOK_NS: u64 = 50_000_000;

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

/// Serves a ublk queue with nothing, until `stop`. `ready` hears that its ring is there.
fn answer_queue(mut queue: ublk::Queue, stop: &AtomicBool, ready: &Sender<()>) {
    let Ok(mut ring) = Ring::new(RING_ENTRIES) else { return };
    let _ = ready.send(());
    let zeros = Buf::zeroed(LONGEST).freeze();
    let mut fired = Vec::new();
    queue.fetch(&mut ring, 0, MARK);
    while !stop.load(Ordering::Acquire) && ring.submit_and_wait(1, Some(LOOK_NS)).is_ok() {
        ring.reap(|event| fired.push(event));
        for event in fired.drain(..) {
            let Some(request) = queue.fired(event) else { continue };
            queue.answer(Reply { id: request.id, result: Ok(answer(&request, &zeros)) });
        }
        queue.flush(&mut ring, MARK);
    }
}

/// A ublk device of one queue, until `stop`.
fn serve_ublk(name: &str, mut export: Export, stop: &Interrupt) -> Result<()> {
    export.rotational = false;
    let traits = ublk::Traits::new(&export, 4096, false);
    let mut device = ublk::Device::claim(name, Name::for_ublk(name, &[])?, &traits, 1)?;
    let queue = device.queues()?.pop().context("a device has a queue")?;
    let over = AtomicBool::new(false);
    let (send, ready) = channel();
    std::thread::scope(|scope| {
        let (over, send) = (&over, &send);
        let thread = scope.spawn(move || answer_queue(queue, over, send));
        let served = ready
            .recv_timeout(LOOK)
            .map_err(|_| anyhow!("the null target has no io_uring"))
            .and_then(|()| Ok(device.go_live(|| thread.is_finished())?))
            .and_then(|()| wait(stop));
        device.let_go();
        over.store(true, Ordering::Release);
        served
    })?;
    device.end();
    Ok(())
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

/// Serves `size` bytes of it, as the file `null` in a mount or as a block device of `spec`'s name, prints `ready`, and ends with `stop`.
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
        ExportSpec::Ublk(name) => serve_ublk(name, export, stop),
        ExportSpec::Socket(_) => {
            bail!("only fuse:MOUNTPOINT, loop:NAME and ublk:NAME have a target that answers at once")
        }
    }
}

fn wait(stop: &Interrupt) -> Result<()> {
    loligo_log::outln!("ready");
    loligo_log::flush_output();
    while stop.sleep(Duration::from_secs(1)).is_ok() {}
    Ok(())
}
