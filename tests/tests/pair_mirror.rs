//! Claims about volumes of pairs whose cache lies on two arrays: no array and no controller takes an acknowledged write with it.

#![allow(clippy::print_stdout)]

use loligo_tests::lab::{self, Lab, good, refused};
use loligo_tests::server::program;
use loligo_tests::skip;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The time that a change of owner, or a copy, may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// The longest that a client may wait for an array that is lost, milliseconds: 2 s as it is built, and what a busy machine adds.
const LONGEST: f64 = 5000.0;

/// A lab whose volumes' caches have mirrors on a second array; nothing where it cannot be.
fn mirrored_lab(name: &str) -> Option<Lab> {
    if !skip::pairs("mirrored volumes of pairs", &[]) {
        return None;
    }
    let lab = Lab::new(name);
    let volumes = ["--volumes", "64m", "--volume-cache", "64m", "--mirror"];
    good(lab.up(&[&["--pairs", "1", "--mons", "1"], &volumes[..]].concat()));
    Some(lab)
}

/// `loligo ARGS` on a host.
fn loligo(lab: &Lab, host: &str, args: &[&str]) -> Command {
    let program = program();
    let own = ["--host", host, "--", program.to_str().expect("a path")];
    lab.command("exec", &[&own, args].concat())
}

fn run(lab: &Lab, host: &str, args: &[&str]) -> Output {
    loligo(lab, host, args).output().expect("it runs")
}

fn json(out: Output) -> Value {
    serde_json::from_slice(&good(out).stdout).expect("JSON")
}

/// The agent of a controller of the only node: its answer.
fn pair(lab: &Lab, host: &str, what: &[&str]) -> Output {
    let (node, side) = host.split_at(2);
    let file = lab.dir.join(node).join("pair.toml");
    let own = ["--config", file.to_str().expect("a path"), "--as", side];
    run(lab, host, &[&["pair"], what, &own].concat())
}

fn status(lab: &Lab, host: &str) -> Value {
    serde_json::from_slice(&pair(lab, host, &["status", "--json"]).stdout).unwrap_or_default()
}

fn until(what: &str, done: impl FnMut() -> bool) {
    lab::until(what, LIMIT, done);
}

/// True if the mirror of the volume that `host` serves is in this state.
fn mirror_is(lab: &Lab, host: &str, state: &str) -> bool {
    let said = run(lab, host, &["stats", "vol-n0a", "--json"]).stdout;
    let stats: Value = serde_json::from_slice(&said).unwrap_or_default();
    stats["mirror"]["state"] == state
}

/// The client that checks what it reads, on the volume of n0a.
struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Client {
    fn drop(&mut self) {
        // One whose test has failed would wait for its volume.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    fn start(lab: &Lab, seed: &str) -> Client {
        let address = lab.status()["volumes"][0]["address"].as_str().expect("an address").to_owned();
        let args = ["bench", "pair-client", "--volume", &address, "--rate", "50", "--seed", seed];
        let mut command = loligo(lab, "client", &args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let client = Client { child, stdin, lines };
        assert_eq!(client.line(), "ready");
        std::thread::sleep(Duration::from_secs(1));
        client
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("the client says something")
    }

    /// Ends the load and reads every block back: nothing may be lost, stale or refused. The longest operation, milliseconds.
    fn has_lost_nothing(mut self) -> f64 {
        self.stdin.write_all(b"stop\n").expect("it listens");
        let report: Value = serde_json::from_str(&self.line()).expect("a report");
        self.child.wait().expect("it ends");
        let counts = &report["counts"][0];
        for key in ["errors", "stuck", "stale", "wrong", "lost"] {
            assert_eq!(counts[key], 0, "{key}: {counts} {}", report["errors"]);
        }
        assert_eq!(counts["read_back"], 1024);
        let ops = report["ops"].as_array().expect("operations");
        let longest = ops.iter().filter_map(|op| op["took_ms"].as_f64()).fold(0.0, f64::max);
        println!("{} operations, the longest took {longest:.0} ms", ops.len());
        longest
    }
}

#[test]
fn no_array_or_controller_takes_a_write_with_it() {
    let Some(lab) = mirrored_lab("mirrored") else { return };
    until("the volume is served in step", || mirror_is(&lab, "n0a", "in step"));
    for (seed, fault) in [("1", ["disk", "vol-n0a"]), ("2", ["freeze", "n0-mirror"])] {
        an_array_is_lost(&lab, seed, fault);
    }
    a_controller_is_lost(&lab);
    the_array_with_the_newest_is_lost(&lab);
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

/// The volume goes on with the other array, without a takeover, and is in step once the array is back.
fn an_array_is_lost(lab: &Lab, seed: &str, fault: [&str; 2]) {
    let client = Client::start(lab, seed);
    good(lab.run("fail", &fault));
    until("it goes on alone", || mirror_is(lab, "n0a", "alone"));
    std::thread::sleep(Duration::from_secs(2));
    good(lab.run("mend", &[fault[1]]));
    until("both are in step again", || mirror_is(lab, "n0a", "in step"));
    let longest = client.has_lost_nothing();
    assert!(longest < LONGEST, "a client waited for {longest} ms");
    assert_eq!([status(lab, "n0a"), status(lab, "n0b")].map(|s| s["role"].clone()), ["NORMAL", "NORMAL"]);
}

/// The partner serves the volume, copies one array to the other, and gives it back.
fn a_controller_is_lost(lab: &Lab) {
    let client = Client::start(lab, "3");
    good(lab.run("fail", &["controller", "n0a"]));
    until("the partner serves it in step", || mirror_is(lab, "n0b", "in step"));
    std::thread::sleep(Duration::from_secs(1));
    client.has_lost_nothing();
    good(lab.run("mend", &[]));
    until("its home is back", || {
        let partner = &status(lab, "n0b")["partner"];
        partner["role"] == "FENCED" && partner["stopped"] == true
    });
    until("units are given back", || pair(lab, "n0b", &["giveback"]).status.success());
    until("it is served at home in step", || mirror_is(lab, "n0a", "in step"));
    assert_eq!(status(lab, "n0a")["role"], "NORMAL");
}

/// The mirror misses writes. Then the array that has them is lost with its controller, and the mirror is back: it is not served.
fn the_array_with_the_newest_is_lost(lab: &Lab) {
    let client = Client::start(lab, "4");
    good(lab.run("fail", &["disk", "n0-mirror"]));
    until("it goes on alone", || mirror_is(lab, "n0a", "alone"));
    std::thread::sleep(Duration::from_secs(1));
    good(lab.run("fail", &["controller", "n0a"]));
    good(lab.run("fail", &["disk", "vol-n0a"]));
    good(lab.run("mend", &["n0-mirror"]));
    until("the partner has taken over", || status(lab, "n0b")["role"] == "DUAL");
    let stats = |word: &str| refused(&run(lab, "n0b", &["stats", "vol-n0a"])).contains(word);
    until("it is refused with the mend", || stats("Bring the other back; or start with --mirror-alone"));
    until("the agent says so", || {
        let history = json(pair(lab, "n0b", &["history", "--json"])).to_string();
        history.contains("the array fails volume vol-n0a") && history.contains("Bring the other back")
    });
    let units = status(lab, "n0b")["units"].clone();
    let is_away = |unit: &Value| unit["name"] == "volume vol-n0a" && unit["state"] == "away";
    assert!(units.as_array().is_some_and(|all| all.iter().any(is_away)), "{units}");
    good(lab.run("mend", &["vol-n0a"]));
    until("it is served, and the mirror is copied to", || mirror_is(lab, "n0b", "in step"));
    client.has_lost_nothing();
}
