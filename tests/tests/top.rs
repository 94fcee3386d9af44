//! Claims about `loligo top`, `stats` and `doctor` on the real program.

use loligo_tests::line::Line;
use loligo_tests::nbd::Command as Ask;
use loligo_tests::server::{Server, Volume, program};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn volume(dir: &Path, more: &[&str]) -> Volume {
    std::fs::File::create(dir.join("core")).and_then(|f| f.set_len(64 * MIB)).expect("a core");
    Volume {
        dir: dir.to_owned(),
        cache: dir.join("cache"),
        cache_size: 32 * MIB,
        core: dir.join("core"),
        mode: "wb",
        more: more.iter().map(|s| (*s).to_owned()).collect(),
    }
}

/// Writes and reads 4 KiB for `time`; how many of each.
fn drive(volume: &Volume, time: Duration) -> u64 {
    let mut line = Line::to(volume).expect("a client");
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let at = count % 256 * 4096;
        line.ask(at, &Ask::Write { data: vec![count as u8; 4096], fua: false }).expect("written");
        line.ask(at, &Ask::Read(4096)).expect("read");
        count += 1;
    }
    count
}

fn lines(out: std::process::Output) -> Vec<Value> {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    text.lines().map(|l| serde_json::from_str(l).expect("a line is JSON")).collect()
}

#[test]
fn what_top_shows_of_a_volume_is_what_was_done_to_it() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let volume = volume(dir.path(), &["--param", "destage-rate=1"]);
    let server = volume.serve().expect("it starts");
    let top = volume
        .command(&["top", "--json", "-n", "3", "--interval", "0.5"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let done = drive(&volume, Duration::from_secs(2));
    let looks = lines(top.wait_with_output().expect("it ends"));
    assert_eq!(looks.len(), 3);
    // The first may have begun before the load.
    let row = &looks[1]["volumes"][0];
    let passed = looks[1]["interval_s"].as_f64().expect("a time");
    assert!((0.4..2.0).contains(&passed), "{passed}");
    assert_eq!((&row["name"], &row["state"], &row["mode"]), (&"vol".into(), &"serving".into(), &"wb".into()));
    let number = |v: &Value| v.as_f64().unwrap_or_else(|| panic!("no number in {row}"));
    let rates = &row["rates"];
    let iops = number(&rates["write_iops"]);
    let overall = done as f64 / 2.0;
    assert!(iops > overall / 5.0 && iops < overall * 5.0, "{iops} a second, and {done} in 2 s");
    let reads = number(&rates["read_iops"]);
    assert!((reads - iops).abs() <= iops * 0.1 + 5.0, "as many reads as writes: {rates}");
    let ratio = number(&rates["write_bytes_s"]) / 4096.0 / iops;
    assert!((0.9..1.1).contains(&ratio), "4 KiB each: {rates}");
    assert_eq!(number(&rates["read_hit_percent"]), 100.0, "what was just written is read: {rates}");
    let (p50, p99) = (number(&rates["latency"]["p50_us"]), number(&rates["latency"]["p99_us"]));
    assert!(p50 >= 1.0 && p50 <= p99 && p99 < 5e6, "{rates}");
    // One client, one request at a time.
    assert!(p50 * 1e-6 * (iops + reads) < 1.5, "{p50} µs at {iops} and {reads}");
    assert!(number(&row["dirty_bytes"]) >= 256.0 * 4096.0 && number(&row["dirty_percent"]) > 1.0, "{row}");
    server.stop().expect("a clean stop");
    let after = lines(volume.loligo(&["top", "--once", "--json", "--interval", "0.1"]).expect("it runs"));
    assert_eq!(after[0]["volumes"], serde_json::json!([]), "a stopped volume is no longer there");
}

#[test]
fn volumes_of_daemon_and_serve_stand_side_by_side_in_text() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let volume = volume(dir.path(), &[]);
    let server = volume.serve().expect("it starts");
    let at = dir.path().display();
    let config = format!(
        "[daemon]\nstate-dir = \"{at}/state\"\n[volume.gone]\ncore = \"{at}/nothing\"\nlisten = [\"unix:{at}/gone.nbd\"]\n"
    );
    std::fs::write(dir.path().join("loligod.toml"), config).expect("written");
    let mut daemon = Server::daemon(dir.path(), &dir.path().join("loligod.toml")).expect("it runs");
    daemon.ready().expect("it is");
    // Left by a service that was killed.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("dead.sock")).expect("a socket"));
    // NBD, in the same folder.
    assert!(volume.socket().extension().is_some_and(|e| e == "sock"));
    let out = volume.loligo(&["top", "--once", "--interval", "0.2"]).expect("it runs");
    let text = String::from_utf8(out.stdout).expect("text");
    let line =
        |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("vol").contains("ok") && line("vol").contains("wb"), "{text}");
    assert!(line("gone").contains("wait") && text.contains("gone: "), "{text}");
    assert_eq!((line("dead"), line("nbd")), (String::new(), String::new()), "{text}");
    daemon.stop().expect("a clean stop");
    server.stop().expect("a clean stop");
}

#[test]
fn the_doctor_sees_this_host_and_a_bad_configuration() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let doctor = |config: &str| {
        let file = dir.path().join("loligod.toml");
        std::fs::write(&file, config).expect("written");
        let out = Command::new(program())
            .args(["doctor", "--json", "--config"])
            .arg(&file)
            .env("LOLIGO_RUNTIME_DIR", dir.path())
            .env("LOLIGO_STATE_DIR", dir.path())
            .output()
            .expect("it runs");
        let all: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        (all["findings"].as_array().expect("findings").clone(), out.status.code())
    };
    let verdict = |all: &[Value], check: &str| {
        let found =
            all.iter().find(|f| f["check"] == check).unwrap_or_else(|| panic!("no {check} in {all:#?}"));
        found["verdict"].as_str().expect("a word").to_owned()
    };
    let (all, _) = doctor("");
    // Whoever runs these tests has served volumes by io_uring on this kernel.
    assert_eq!(
        (verdict(&all, "kernel.release"), verdict(&all, "kernel.io_uring")),
        ("ok".into(), "ok".into())
    );
    assert!(
        all.len() > 15 && all.iter().all(|f| f["why"].as_str().is_some_and(|w| w.len() > 20)),
        "{all:#?}"
    );
    let unmended =
        all.iter().filter(|f| matches!(f["verdict"].as_str(), Some("warn" | "bad")) && f["mend"].is_null());
    assert_eq!(unmended.count(), 0, "{all:#?}");
    let (all, status) = doctor(
        "[volume.a]\ncore = \"/dev/disk/by-id/none\"\ncache = \"/dev/null\"\nmode = \"wb\"\nlisten = [\"unix:/z\"]\n",
    );
    assert_eq!(status, Some(1));
    assert_eq!(verdict(&all, "devices.a.core.there"), "bad");
    assert_eq!(verdict(&all, "devices.a.cache.kind"), "bad");
    let (all, status) = doctor("[volume.a]\ncore = 7\n");
    assert_eq!((verdict(&all, "config"), status), ("bad".into(), Some(1)));
}

/// `loligo top` on a terminal of 80 columns and 24 lines; `end` is handed its standard input and the number
/// of its process. The result is what the terminal was sent, and how it was left.
fn on_a_terminal(
    volume: &Volume,
    end: impl FnOnce(&mut std::process::ChildStdin, i32),
) -> (String, Option<i32>) {
    use std::io::Read;
    let note = volume.dir.join("pid");
    let words = format!(
        "stty rows 24 cols 80; before=$(stty -g); sh -c 'echo $$ >{1}; exec {0} top --interval 0.2'; status=$?; \
         [ \"$(stty -g)\" = \"$before\" ] || exit 99; exit $status",
        program().display(),
        note.display()
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &words, "/dev/null"])
        .env("LOLIGO_RUNTIME_DIR", &volume.dir)
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut out = script.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = out.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    });
    std::thread::sleep(Duration::from_millis(1500));
    let pid = std::fs::read_to_string(&note).expect("it runs").trim().parse().expect("a number");
    end(script.stdin.as_mut().expect("piped"), pid);
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = script.try_wait().expect("it is ours") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = script.kill();
            panic!("it does not end: {}", reader.join().expect("read"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (reader.join().expect("read"), status.code())
}

#[test]
fn the_terminal_is_left_as_it_was_by_keys_and_signals() {
    use std::io::Write;
    if !loligo_tests::skip::installed("script") {
        return loligo_tests::skip::skip("top on a terminal", "script is not installed (bsdutils)");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let volume = volume(dir.path(), &[]);
    let server = volume.serve().expect("it starts");
    type End = fn(&mut std::process::ChildStdin, i32);
    let ends: [(&str, End); 3] = [
        ("q", |keys, _| keys.write_all(b"jds-q").expect("typed")),
        ("Ctrl-C", |keys, _| keys.write_all(b"\x03").expect("typed")),
        // SAFETY: takes two numbers; the process was started here and has not been waited for.
        ("SIGTERM", |_, pid| assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0)),
    ];
    for (name, end) in ends {
        let (seen, status) = on_a_terminal(&volume, end);
        assert_eq!(status, Some(0), "{name}: {seen:?}");
        assert!(seen.contains("VOLUME") && seen.contains("vol"), "{name}: {seen:?}");
        let left =
            seen.rfind("\x1b[?1049l").unwrap_or_else(|| panic!("{name}: the other screen is kept: {seen:?}"));
        assert!(left > seen.rfind("\x1b[?1049h").expect("it was taken"), "{name}: {seen:?}");
        assert!(seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "{name}: the cursor is hidden: {seen:?}");
    }
    server.stop().expect("a clean stop");
}
