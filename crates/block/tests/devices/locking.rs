//! Claims about two users of one device.

use loligo_block::{DeviceFile, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HOLD: &str = "LOLIGO_TEST_HOLD";

fn within(ms: u64) -> OpenOptions {
    OpenOptions { exclusive: Some(Duration::from_millis(ms)), ..OpenOptions::default() }
}

/// Not a claim: the body of the child process of the others, which holds the file until it is killed.
#[test]
fn holder_child() {
    let Ok(path) = std::env::var(HOLD) else { return };
    let _held = DeviceFile::open(path, &within(0)).unwrap();
    println!("\nheld");
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn a_second_opener_is_refused_by_name_until_the_first_is_killed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    drop(DeviceFile::create(&path, 1 << 20, &OpenOptions::default()).unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locking::holder_child", "--nocapture"])
        .env(HOLD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "held"));

    let start = Instant::now();
    let refused = DeviceFile::open(&path, &within(100)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(refused.errno, 16, "EBUSY: {refused}");
    let name = format!("process {} (", child.id());
    assert!(refused.to_string().contains(&name), "{refused} names {name}");
    let reader = OpenOptions { read_only: true, ..within(0) };
    assert!(DeviceFile::open(&path, &reader).is_err());

    child.kill().unwrap();
    child.wait().unwrap();
    DeviceFile::open(&path, &within(5_000)).unwrap();
}

#[test]
fn a_lock_of_the_whole_file_by_another_program_is_respected() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    let held = DeviceFile::create(&path, 1 << 20, &OpenOptions::default()).unwrap();
    let refused = DeviceFile::open(&path, &within(0)).unwrap_err();
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    drop(held);
    let reader = OpenOptions { read_only: true, ..within(0) };
    let _one = DeviceFile::open(&path, &reader).unwrap();
    let _two = DeviceFile::open(&path, &reader).unwrap();
    assert!(DeviceFile::open(&path, &within(0)).is_err(), "a writer does not share with readers");
}

#[test]
fn what_cannot_be_a_device_is_refused_with_the_reason() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let said = |path: &std::path::Path| DeviceFile::open(path, &within(0)).unwrap_err().to_string();
    assert!(said(dir.path()).contains("neither a file nor a block device"));
    assert!(said(&dir.path().join("nothing")).contains("No such file"));
    let empty = dir.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    assert!(said(&empty).contains("truncate"), "{}", said(&empty));
    let odd = dir.path().join("odd");
    std::fs::write(&odd, [1; 1000]).unwrap();
    let opened = DeviceFile::open(&odd, &within(0)).unwrap();
    assert_eq!(opened.geometry().size, 512);
    assert!(opened.warnings()[0].contains("not a multiple of 512"));
}

#[test]
fn a_file_whose_holder_cannot_be_seen_is_waited_for_anyway() {
    // A lock lives as long as its descriptor, and one that is on its way through a socket is in no process's table.
    let script = "import fcntl,os,socket,struct,sys,time\n\
        fd=os.open(sys.argv[1],os.O_RDWR)\n\
        fcntl.fcntl(fd,37,struct.pack('hhqqi4x',fcntl.F_WRLCK,0,0,0,0))\n\
        a,b=socket.socketpair();socket.send_fds(a,[b'x'],[fd]);os.close(fd)\n\
        print('held',flush=True);time.sleep(1)";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    drop(DeviceFile::create(&path, 1 << 20, &OpenOptions::default()).unwrap());
    let mut child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "held"));
    let start = Instant::now();
    DeviceFile::open(&path, &within(0)).expect("it comes free");
    assert!(start.elapsed() > Duration::from_millis(300), "it was free all the time");
    child.wait().unwrap();
}
