//! Claims about the exchange of engines: who asks meanwhile waits and is answered by the new one, and what cannot be changes nothing.

use loligo_block::{
    Answer, Completion, Device, DeviceFile, Geometry, Op, OpenOptions, RamDevice, ReqError, ReqKind, Request,
    Ring, Submit, SyncIo,
};
use loligo_export::{Export, Limits, Volume};
use loligo_shard::{Backend, Command, CommandError, CoreSource, Leases, Plan, Running, start};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const MOMENT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

/// Memory that completes nothing while the flag is set.
struct Stuck(RamDevice, Arc<AtomicBool>);

impl Device for Stuck {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        if self.1.load(Ordering::Relaxed) {
            return Submit::Busy(op);
        }
        self.0.submit(ring, now, op)
    }
    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        self.0.poll(ring, now, out);
    }
    fn next_deadline(&self) -> Option<u64> {
        // Looks again every millisecond or so.
        self.1.load(Ordering::Relaxed).then_some(1)
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

fn ram(fill: u8) -> RamDevice {
    let mut device = RamDevice::new(SIZE).expect("memory");
    device.write_at(0, &[fill; 4096]).expect("written");
    device
}

fn bare(device: Box<dyn Device + Send>) -> Running {
    let plan = Plan {
        export: Export::new("vol", SIZE),
        limits: Limits::default(),
        tls: None,
        listeners: Vec::new(),
        core: CoreSource::Device(device),
        leases: Leases::default(),
        backend: Backend::Uncached,
    };
    start(plan).expect("a thread")
}

/// Asks for the first block; what arrives is its first byte.
fn ask(running: &Running) -> Receiver<Result<u8, ReqError>> {
    let (send, answer) = channel();
    let request = Request { id: 0, kind: ReqKind::Read, offset: 0, len: 4096, fua: false };
    let first = |answer| match answer {
        Answer::Data(pieces) => pieces[0][0],
        _ => panic!("no data"),
    };
    let answered = move |result: Result<Answer, ReqError>| {
        // Whoever asked may have failed already.
        let _ = send.send(result.map(first));
    };
    running.handle().local(0).ask(request, Box::new(answered));
    answer
}

#[test]
fn a_request_during_a_pause_is_answered_by_the_new_engine() {
    let running = bare(Box::new(ram(1)));
    let handle = running.handle().clone();
    assert_eq!(ask(&running).recv_timeout(LONG), Ok(Ok(1)));
    let mut pause = handle.pause(LONG).expect("nothing is under way");
    let (first, second) = (ask(&running), ask(&running));
    assert!(first.recv_timeout(MOMENT).is_err(), "it waits");
    pause
        .exchange(CoreSource::Device(Box::new(ram(2))), Backend::Uncached, (SIZE, 512), LONG)
        .expect("another engine");
    drop(pause);
    assert_eq!((first.recv_timeout(LONG), second.recv_timeout(LONG)), (Ok(Ok(2)), Ok(Ok(2))));
    assert_eq!(ask(&running).recv_timeout(LONG), Ok(Ok(2)));
    running.join().expect("a clean end");
}

#[test]
fn a_pause_that_a_device_holds_up_is_given_up_without_loss() {
    let stuck = Arc::new(AtomicBool::new(true));
    let running = bare(Box::new(Stuck(ram(3), stuck.clone())));
    let handle = running.handle().clone();
    let before = ask(&running);
    assert!(before.recv_timeout(MOMENT).is_err(), "it is under way");
    let why = handle.pause(MOMENT).expect_err("a request is under way");
    assert_eq!(why, CommandError::Slow(MOMENT));
    let after = ask(&running);
    stuck.store(false, Ordering::Relaxed);
    assert_eq!((before.recv_timeout(LONG), after.recv_timeout(LONG)), (Ok(Ok(3)), Ok(Ok(3))));
    running.join().expect("a clean end");
}

#[test]
fn a_stop_during_a_pause_answers_who_was_held() {
    let running = bare(Box::new(ram(4)));
    let handle = running.handle().clone();
    let _pause = handle.pause(LONG).expect("nothing is under way");
    let held = ask(&running);
    assert!(held.recv_timeout(MOMENT).is_err());
    handle.wait_all(handle.send_all(|| Command::Drain)).expect("drained");
    assert_eq!(held.recv_timeout(LONG), Ok(Ok(4)));
    running.join().expect("a clean end");
}

#[test]
fn engines_for_other_thread_counts_are_refused_none_exchanged() {
    let running = bare(Box::new(ram(5)));
    let handle = running.handle().clone();
    let mut pause = handle.pause(LONG).expect("nothing is under way");
    let read = OpenOptions { read_only: true, exclusive: None, direct: false };
    let own = std::env::current_exe().expect("this program has a path");
    let cache = DeviceFile::open(own, &read).expect("it is a file").into();
    let none = Backend::Cached { cache, engines: Vec::new(), data_start: 0 };
    let refused = pause.exchange(CoreSource::Device(Box::new(ram(6))), none, (SIZE, 512), LONG);
    let why = refused.expect_err("it is for no thread");
    assert!(matches!(&why, CommandError::Device(e) if e.to_string().contains("number of shards")), "{why}");
    drop(pause);
    assert_eq!(ask(&running).recv_timeout(LONG), Ok(Ok(5)));
    running.join().expect("a clean end");
}
