//! Claims about clients of a pair's volume: real qemu and libnbd, while the volume moves between controllers.

#![allow(clippy::print_stdout)]

use loligo_tests::lab::{self, Lab, good};
use loligo_tests::skip;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time that a request may take across a takeover or a giveback, on a machine that has other work.
const ACROSS: Duration = Duration::from_secs(50);
/// The time that roles have to change.
const ROLES: Duration = Duration::from_secs(120);
const PIECE: u64 = 64 << 10;

fn on(lab: &Lab, host: &str, script: &str) -> Output {
    lab.run("exec", &["--host", host, "--", "sh", "-ec", script])
}

fn until(what: &str, done: impl FnMut() -> bool) {
    lab::until(what, ROLES, done);
}

fn pair(lab: &Lab, controller: &str, what: &str) -> Output {
    let file = lab.dir.join("n0/pair.toml").display().to_string();
    let side = &controller[controller.len() - 1..];
    let json = if what == "status" { " --json" } else { "" };
    let program = loligo_tests::server::program().display();
    let script = format!("{program} pair {what} --config {file} --as {side}{json}");
    on(lab, controller, &script)
}

/// The agent's word on itself; nothing if it gives none.
fn status_of(lab: &Lab, controller: &str) -> Value {
    serde_json::from_slice(&pair(lab, controller, "status").stdout).unwrap_or_default()
}

/// True if the volume runs on a controller, whose role is `role`.
fn is_on(lab: &Lab, controller: &str, role: &str) -> bool {
    let status = status_of(lab, controller);
    let units = status["units"].as_array().cloned().unwrap_or_default();
    let runs = units.iter().any(|unit| unit["name"] == "volume vol-n0a" && unit["state"] == "running");
    status["role"] == role && runs
}

/// True if all runs on `controller` that is at home there.
fn is_settled(lab: &Lab, controller: &str) -> bool {
    let status = status_of(lab, controller);
    let units = status["units"].as_array().cloned().unwrap_or_default();
    let own: Vec<_> = units.iter().filter(|unit| unit["home"] == status["side"]).collect();
    !own.is_empty() && own.iter().all(|unit| unit["state"] == "running")
}

/// A qemu that has the volume open.
struct Qemu {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Qemu {
    fn open(lab: &Lab, address: &str) -> Qemu {
        let image = format!(
            "driver=nbd,server.type=inet,server.host={address},server.port=10809,export=vol-n0a,reconnect-delay=120"
        );
        let words = ["--host", "client", "--", "stdbuf", "-oL", "qemu-io", "--image-opts", &image];
        let mut command = lab.command("exec", &words);
        let out = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = out.spawn().expect("qemu-io runs");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Qemu { child, stdin, lines }
    }

    fn ask(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").expect("qemu-io listens");
    }

    /// Waits until what was asked is done.
    fn is_done(&self, what: &str) {
        let begun = Instant::now();
        let all = format!("{PIECE}/{PIECE} bytes");
        loop {
            let line = self.lines.recv_timeout(ACROSS.saturating_sub(begun.elapsed()));
            let line = line.unwrap_or_else(|_| panic!("{what}: no answer in {} s", ACROSS.as_secs()));
            assert!(!line.contains("failed") && !line.contains("rror"), "{what}: {line}");
            if line.contains(&all) {
                break;
            }
        }
        println!("{:.2} s: {what}", begun.elapsed().as_secs_f64());
    }

    fn write(&mut self, piece: u64, pattern: u8) {
        self.ask(&format!("write -P {pattern:#x} {} {PIECE}", piece * PIECE));
    }

    fn reads(&mut self, piece: u64, pattern: u8) {
        self.ask(&format!("read -P {pattern:#x} {} {PIECE}", piece * PIECE));
        self.is_done(&format!("piece {piece} reads as {pattern:#x}"));
    }
}

/// The volume's first pieces, as libnbd copies them.
fn copied(lab: &Lab, address: &str) -> Vec<u8> {
    let file = lab.dir.join("copied");
    let copy = format!("timeout 60 nbdcopy --flush nbd://{address}/vol-n0a {}", file.display());
    good(on(lab, "client", &copy));
    let bytes = std::fs::read(&file).expect("a copy");
    std::fs::remove_file(&file).expect("a copy");
    [0, 1, 2, 3].map(|piece| bytes[(piece * PIECE) as usize]).to_vec()
}

/// Without a power switch the reservation alone holds, and the frozen side can be thawed.
fn forget_power(lab: &Lab) {
    let path = lab.dir.join("n0/pair.toml");
    let text = std::fs::read_to_string(&path).expect("a pair's file");
    let mut file: toml::Table = text.parse().expect("TOML");
    for side in ["a", "b"] {
        let controller = file["controller"][side].as_table_mut().expect("a controller");
        controller.remove("power-off");
        controller.remove("power-status");
    }
    std::fs::write(&path, toml::to_string(&file).expect("TOML")).expect("it is written");
}

#[test]
fn qemu_and_libnbd_follow_a_volume_between_controllers() {
    if !skip::pairs("clients of a pair's volume", &["qemu-io", "qemu-img", "nbdcopy", "stdbuf"]) {
        return;
    }
    let lab = Lab::new("pair-clients");
    let up = ["--pairs", "1", "--volumes", "64m", "--volume-cache", "64m"];
    good(lab.up(&up));
    // One that dies while its image is taken for the first time leaves a lock that nobody knows.
    until("the volume is served once", || ["n0a", "n0b"].iter().all(|c| is_settled(&lab, c)));
    good(lab.run("down", &["--keep"]));
    forget_power(&lab);
    good(lab.up(&[]));
    until("the volume is served at home", || is_on(&lab, "n0a", "NORMAL"));
    let file = std::fs::read_to_string(lab.dir.join("n0/pair.toml")).expect("a pair's file");
    let file: toml::Table = file.parse().expect("TOML");
    let address =
        file["volume"][0]["address"].as_str().and_then(|a| a.split('/').next()).expect("an address");

    let mut qemu = Qemu::open(&lab, address);
    qemu.write(0, 0x11);
    qemu.is_done("a write at home");
    qemu.write(1, 0x12);
    qemu.is_done("another one");
    // Peers are noted once a second.
    std::thread::sleep(Duration::from_secs(2));
    good(lab.run("fail", &["freeze", "n0a"]));
    // The old server has it in its socket, and goes on with it when it is thawed.
    qemu.write(1, 0x22);
    qemu.is_done("a write across a takeover");
    until("the partner serves it", || is_on(&lab, "n0b", "DUAL"));
    qemu.write(1, 0x23);
    qemu.is_done("a write after it");
    assert_eq!(copied(&lab, address)[..2], [0x11, 0x23], "libnbd finds it there");

    good(lab.run("mend", &["n0a"]));
    until("the thawed side is fenced", || status_of(&lab, "n0a")["role"] == "FENCED");
    qemu.reads(0, 0x11);
    qemu.reads(1, 0x23);
    qemu.write(2, 0x31);
    qemu.is_done("a write beside the thawed side");

    until("it is given back", || {
        pair(&lab, "n0b", "giveback").status.success()
            && serde_json::from_slice::<Value>(&pair(&lab, "n0b", "status").stdout)
                .is_ok_and(|status| status["role"] != "DUAL")
    });
    qemu.write(3, 0x41);
    qemu.is_done("a write across a giveback");
    until("it is served at home again", || is_on(&lab, "n0a", "NORMAL"));
    for (piece, pattern) in [(0, 0x11), (1, 0x23), (2, 0x31), (3, 0x41)] {
        qemu.reads(piece, pattern);
    }
    drop(qemu);
    assert_eq!(copied(&lab, address), [0x11, 0x23, 0x31, 0x41]);
    let compare = format!(
        "timeout 60 qemu-img compare --image-opts driver=nbd,host={address},port=10809,export=vol-n0a \
         driver=nbd,host={address},port=10809,export=vol-n0a"
    );
    good(on(&lab, "client", &compare));
}
