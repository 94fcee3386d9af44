//! Claims about a volume of two threads of which one is late with an exchange of engines, or ends.

use loligo_block::{
    Answer, Buf, CacheDevice, DeviceFile, DeviceSpec, OpenOptions as FileOptions, ReqError, ReqKind, Request,
    SyncFile, SyncIo,
};
use loligo_engine::Engine;
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_export::{Export, Limits, Volume};
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};
use loligo_shard::{Backend, Command, CoreSource, Handle, Leases, Plan, Running, start};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CORE: u64 = 64 * MIB;
const LONG: Duration = Duration::from_secs(20);

fn file(path: &Path, size: u64) -> DeviceFile {
    let _ = std::fs::remove_file(path);
    DeviceFile::create(path, size, &FileOptions::default()).expect("a file")
}

fn engines(cache: &DeviceFile, core: &DeviceFile) -> Vec<Engine> {
    let (mut c, mut d) = (SyncFile::new(cache.clone()), SyncFile::new(core.clone()));
    let format = FormatOptions {
        uuid: [7; 16],
        name: "t".into(),
        cache_size: 64 * MIB,
        core: CoreIdentity { size: CORE, id: String::new() },
        line_size: 4096,
        shards: 2,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    };
    open::format(&mut c, &format).expect("format");
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let sb = Superblock::load(&mut c).expect("superblock");
    let devices = Devices { cache_volatile: true, core_volatile: true, ..Devices::PLAIN };
    open::open(&mut c, &mut d, sb, &options).expect("open").into_engines(Mode::Wb, &options, &devices).1
}

fn backend(cache: &DeviceFile, core: &DeviceFile) -> Backend {
    Backend::Cached { cache: CacheDevice::from(cache.clone()), engines: engines(cache, core), data_start: 0 }
}

fn running(core: CoreSource, backend: Backend) -> Running {
    let plan = Plan {
        export: Export::new("vol", CORE),
        limits: Limits::default(),
        tls: None,
        listeners: Vec::new(),
        core,
        leases: Leases::default(),
        backend,
    };
    start(plan).expect("threads")
}

fn ask(handle: &Handle, thread: usize, kind: ReqKind, offset: u64) -> Result<Option<u8>, ReqError> {
    let (send, answer) = channel();
    let request = Request { id: 0, kind, offset, len: 4096, fua: false };
    handle.local(thread).ask(
        request,
        Box::new(move |result: Result<Answer, ReqError>| {
            let _ = send.send(result.map(|a| match a {
                Answer::Data(pieces) => Some(pieces[0][0]),
                _ => None,
            }));
        }),
    );
    answer.recv_timeout(LONG).expect("an answer")
}

fn bytes(byte: u8) -> ReqKind {
    ReqKind::Write(Buf::copy_of(&[byte; 4096]).freeze())
}

#[test]
fn after_an_exchange_that_broke_off_nobody_is_served() {
    let dir = std::env::temp_dir().join(format!("loligo-exchange-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let (cache, core) = (file(&dir.join("cache"), 64 * MIB), file(&dir.join("core"), CORE));
    let spec: DeviceSpec = dir.join("core").to_str().expect("text").parse().expect("a path");
    let source = || CoreSource::File(spec.clone(), core.clone().into());
    let backend = || backend(&cache, &core);
    let running = running(source(), backend());
    let handle = running.handle().clone();
    // To two bare threads, as a detach does.
    let mut pause = handle.pause(LONG).expect("nothing is under way");
    pause.exchange(source(), Backend::Uncached, (CORE, 512), LONG).expect("bare");
    drop(pause);
    assert_eq!(ask(&handle, 0, bytes(1), 0), Ok(None));
    assert_eq!(ask(&handle, 1, ReqKind::Read, 0), Ok(Some(1)));
    // And back, as an attach does; one thread has something else to do for longer than the limit.
    let mut pause = handle.pause(LONG).expect("nothing is under way");
    let backend = backend();
    for _ in 0..20_000 {
        drop(handle.send(1, Command::Snapshot));
    }
    let broken = pause.exchange(source(), backend, (CORE, 512), Duration::ZERO);
    assert!(broken.is_err(), "{broken:?}");
    drop(pause);
    for thread in [0, 1] {
        assert_eq!(ask(&handle, thread, bytes(2), 0), Err(ReqError::Io), "a write by thread {thread}");
        assert_eq!(ask(&handle, thread, ReqKind::Read, 0), Err(ReqError::Io), "a read by thread {thread}");
    }
    running.join().expect("a clean end");
    let mut first = [0; 4096];
    SyncFile::new(core.clone()).read_at(0, &mut first).expect("readable");
    assert_eq!(first, [1; 4096], "nothing refused is written");
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_thread_that_ends_holds_up_no_request_and_no_drain() {
    let dir = std::env::temp_dir().join(format!("loligo-ended-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let (cache, core) = (file(&dir.join("cache"), 64 * MIB), file(&dir.join("core"), CORE));
    let spec: DeviceSpec = dir.join("core").to_str().expect("text").parse().expect("a path");
    let running = running(CoreSource::File(spec, core.clone().into()), backend(&cache, &core));
    let handle = running.handle().clone();
    let (send, answers) = channel();
    // Each has parts for both threads.
    let write = || {
        let (len, send) = (4 * MIB, send.clone());
        let kind = ReqKind::Write(Buf::zeroed(len as usize).freeze());
        let answered = move |result: Result<Answer, ReqError>| {
            let _ = send.send(result.map(|_| ()));
        };
        let request = Request { id: 0, kind, offset: 0, len, fua: false };
        handle.local(0).ask(request, Box::new(answered));
    };
    // Some are under way when it ends, others come later.
    (0..8).for_each(|_| write());
    let ended = handle.send(1, Command::End);
    (0..8).for_each(|_| write());
    ended.recv_timeout(LONG).expect("it ends");
    let answer = || answers.recv_timeout(LONG).expect("a request waits for the thread");
    for _ in 0..16 {
        let _ = answer();
    }
    while !running.has_failed() {
        std::thread::sleep(Duration::from_millis(1));
    }
    write();
    assert_eq!(answer(), Err(ReqError::Shutdown));
    let drained = handle.send(0, Command::Drain).recv_timeout(LONG);
    let _ = std::fs::remove_dir_all(&dir);
    assert!(drained.is_ok(), "the stop waits for it");
    assert_eq!(ask(&handle, 0, ReqKind::Read, 0), Err(ReqError::Shutdown), "all are turned away");
    running.join().expect("a clean end");
}
