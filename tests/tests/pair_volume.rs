//! Claims about volumes of pairs: they follow their array, with all that was acknowledged and set, at one address.

#![allow(clippy::print_stdout)]

use loligo_block::processes::has_ended;
use loligo_tests::lab::{self, Lab, good};
use loligo_tests::server::program;
use loligo_tests::skip;
use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The time that a change of owner may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// A lab with a volume for each controller; nothing where it cannot be.
fn lab_with_volumes(name: &str) -> Option<Lab> {
    if !skip::pairs("volumes of pairs", &["qemu-io"]) {
        return None;
    }
    let lab = Lab::new(name);
    good(lab.up(&["--pairs", "2", "--mons", "1", "--volumes", "256m"]));
    Some(lab)
}

fn on(lab: &Lab, host: &str, args: &[&str]) -> Output {
    let mut all = vec!["--host", host, "--"];
    all.extend(args);
    lab.run("exec", &all)
}

/// `loligo ARGS` on a controller.
fn loligo(lab: &Lab, host: &str, args: &[&str]) -> Output {
    let program = program();
    let program = program.to_string_lossy();
    let dir = lab.dir.join(host);
    let run = |what: &str| {
        format!("{what}={}", dir.join(if what.contains("RUN") { "run" } else { "state" }).display())
    };
    let (runtime, state) = (run("LOLIGO_RUNTIME_DIR"), run("LOLIGO_STATE_DIR"));
    let mut all = vec!["env", &runtime, &state, &program];
    all.extend(args);
    on(lab, host, &all)
}

fn json(out: Output) -> Value {
    serde_json::from_slice(&good(out).stdout).expect("JSON")
}

/// The agent's word on the pair of `host`, by its own side.
fn pair(lab: &Lab, host: &str, what: &str, more: &[&str]) -> Output {
    let (node, side) = host.split_at(2);
    let file = lab.dir.join(node).join("pair.toml");
    let mut args = vec!["pair", what, "--config", file.to_str().expect("a path"), "--as", side];
    args.extend(more);
    loligo(lab, host, &args)
}

fn until(what: &str, done: impl FnMut() -> bool) -> Duration {
    lab::until(what, LIMIT, done)
}

fn has_role(lab: &Lab, host: &str, role: &str) -> bool {
    let out = pair(lab, host, "status", &["--json"]);
    let Ok(status) = serde_json::from_slice::<Value>(&out.stdout) else { return false };
    let wanted = |unit: &Value| {
        let here = role == "DUAL" || unit["home"] == status["side"];
        unit["state"] == if here { "running" } else { "away" }
    };
    status["role"] == role && status["units"].as_array().is_some_and(|units| units.iter().all(wanted))
}

/// True if an agent's status says that its partner is fenced and runs nothing.
fn is_partner_stopped(status: &Output) -> bool {
    let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
    status["partner"]["role"] == "FENCED" && status["partner"]["stopped"] == true
}

fn address(lab: &Lab, name: &str) -> String {
    let status = lab.status();
    let all = status["volumes"].as_array().expect("volumes");
    let one = all.iter().find(|volume| volume["name"] == name).expect("the volume");
    one["address"].as_str().expect("an address").to_owned()
}

/// One command of qemu-io on the volume, from `host`.
fn client_on(lab: &Lab, host: &str, at: &str, command: &str) -> Output {
    let target = format!("nbd://{at}/");
    on(lab, host, &["timeout", "20", "qemu-io", "-f", "raw", "-t", "none", "-c", command, &target])
}

/// The same from the client's host.
fn client(lab: &Lab, at: &str, command: &str) -> Output {
    client_on(lab, "client", at, command)
}

fn reads(out: &Output) -> bool {
    out.status.success() && !String::from_utf8_lossy(&out.stdout).contains("verification failed")
}

fn holds(lab: &Lab, at: &str, pattern: u8) -> bool {
    reads(&client(lab, at, &format!("read -P {pattern} 1M 64k")))
}

/// The process of a lab's daemon.
fn pid_of(lab: &Lab, name: &str) -> String {
    let status = lab.status();
    let daemons = status["daemons"].as_array().expect("daemons");
    let one = daemons.iter().find(|daemon| daemon["name"] == name);
    one.unwrap_or_else(|| panic!("no {name} in {daemons:?}"))["pid"].to_string()
}

#[test]
fn a_volume_follows_its_array_with_data_and_settings() {
    let Some(lab) = lab_with_volumes("vols") else { return };
    let at = address(&lab, "vol-n0a");
    until("the volume is served", || holds(&lab, &at, 0));
    assert!(client(&lab, &at, "write -P 165 1M 64k").status.success(), "the volume takes writes");
    good(loligo(&lab, "n0a", &["param", "set", "vol-n0a", "destage-low", "7"]));
    good(lab.run("fail", &["controller", "n0a"]));
    let took = until("the partner serves it", || holds(&lab, &at, 165));
    println!("a killed controller's volume was served {:.1} s later", took.as_secs_f64());
    let params = json(loligo(&lab, "n0b", &["param", "get", "vol-n0a", "--json"]));
    assert!(
        params.to_string().contains("\"7\"") || params.to_string().contains(":7"),
        "the value was set: {params}"
    );
    assert!(client(&lab, &at, "write -P 90 1M 64k").status.success(), "the partner takes writes");
    good(lab.run("mend", &[]));
    until("the dead controller is back", || is_partner_stopped(&pair(&lab, "n0b", "status", &["--json"])));
    // It has to reach a monitor first.
    until("units are given back", || pair(&lab, "n0b", "giveback", &[]).status.success());
    until("it is at home", || has_role(&lab, "n0a", "NORMAL"));
    until("it is served at home", || holds(&lab, &at, 90));

    // Its daemon dies alone, and is back: nobody takes anything over, and the address is served again.
    good(lab.run("fail", &["daemon", "n0a"]));
    std::thread::sleep(Duration::from_millis(500));
    good(lab.run("mend", &[]));
    until("it is served by the new daemon", || holds(&lab, &at, 90));
    assert!(has_role(&lab, "n0b", "NORMAL"), "a daemon alone is no reason for a takeover");

    an_address_that_somebody_took_comes_back(&lab, &at);
    a_daemon_without_the_array_answers_nothing_old(&lab, &at);
    a_volume_whose_array_failed_serves_again(&lab, &at);
    a_takeover_that_fails_says_so_each_time(&lab);
    a_side_whose_kernel_has_writes_has_not_stopped(&lab, &at);
    drills(&lab);
    in_the_daemon(&lab, &at);
    good(lab.run("down", &[]));
    lab.leaves_nothing();
}

fn an_address_that_somebody_took_comes_back(lab: &Lab, at: &str) {
    let address = at.split(':').next().expect("an address");
    let take = format!("read -r _ i _ a _ < <(ip -o addr show to {address}) && ip addr del $a dev $i");
    good(on(lab, "n0a", &["bash", "-c", &take]));
    until("the address is back", || holds(lab, at, 90));
}

/// Its clients hear of errors while the array fails, and of none once that is over.
fn a_volume_whose_array_failed_serves_again(lab: &Lab, at: &str) {
    set_fault(lab, "n0/a/vol-n0a", r#"{"eio":true}"#);
    assert!(!client(lab, at, "write -P 55 2M 64k").status.success(), "the array fails");
    set_fault(lab, "n0/a/vol-n0a", "{}");
    until("it takes writes again", || client(lab, at, "write -P 56 2M 64k").status.success());
    assert!(holds(lab, at, 90), "what was acknowledged is there");
}

/// An alarm is told once a minute, and whoever gave the second order waits.
fn a_takeover_that_fails_says_so_each_time(lab: &Lab) {
    until("both are well", || has_role(lab, "n0a", "NORMAL") && has_role(lab, "n0b", "NORMAL"));
    let fault = |is: &str| set_fault(lab, "n0/b/quorum", &format!("{{\"lost\":{is}}}"));
    fault("true");
    for _ in 0..2 {
        let begun = Instant::now();
        let out = pair(lab, "n0b", "takeover", &[]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("not fenced"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(15), "after {:?}: {said}", begun.elapsed());
        println!("refused after {:?}: {said}", begun.elapsed());
    }
    fault("false");
}

fn set_fault(lab: &Lab, path: &str, fault: &str) {
    let path = lab.dir.join(path);
    setxattr(path, "user.loligo.fault", fault.as_bytes(), XattrFlags::empty()).expect("it is taken");
}

/// A path that queues without end keeps what an ended volume wrote: it would land once this side may write again.
fn a_side_whose_kernel_has_writes_has_not_stopped(lab: &Lab, at: &str) {
    until("both are well", || has_role(lab, "n0a", "NORMAL") && has_role(lab, "n0b", "NORMAL"));
    let fault = |is: &str| set_fault(lab, "n0/a/vol-n0a", &format!("{{\"queues\":{is}}}"));
    fault("true");
    let target = format!("nbd://{at}/");
    let write = ["timeout", "20", "qemu-io", "-f", "raw", "-t", "none", "-c", "write -P 17 1M 64k", &target];
    let mut waits = lab.command("exec", &["--host", "client", "--"]);
    let mut waits = waits.args(write).stdout(Stdio::null()).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    good(pair(lab, "n0b", "takeover", &[]));
    until("the partner serves it", || holds(lab, at, 90));
    let is_stopped = || is_partner_stopped(&pair(lab, "n0b", "status", &["--json"]));
    let waits_for_it = || {
        for _ in 0..20 {
            assert!(!is_stopped(), "its kernel has a write");
            assert!(!pair(lab, "n0b", "giveback", &[]).status.success(), "it would land after a giveback");
            std::thread::sleep(Duration::from_millis(150));
        }
    };
    waits_for_it();
    // The write outlives the process that sent it.
    good(lab.run("fail", &["daemon", "n0a"]));
    waits_for_it();
    good(lab.run("mend", &[]));
    fault("false");
    until("its kernel has nothing", is_stopped);
    until("units are given back", || pair(lab, "n0b", "giveback", &[]).status.success());
    until("it is at home", || has_role(lab, "n0a", "NORMAL"));
    until("the write that was never acknowledged has not landed", || holds(lab, at, 90));
    assert!(!waits.wait().expect("it ends").success(), "the write was acknowledged");
}

/// The agent stands still, and its daemon lives on with clients that reach it: those of the partner write meanwhile.
fn a_daemon_without_the_array_answers_nothing_old(lab: &Lab, at: &str) {
    until("both are well", || has_role(lab, "n0a", "NORMAL") && has_role(lab, "n0b", "NORMAL"));
    let agent = pid_of(lab, "agent.n0a");
    // Its host has the address, and leads to its own daemon.
    let old = || reads(&client_on(lab, "n0a", at, "read -P 90 1M 64k"));
    good(on(lab, "n0a", &["kill", "-STOP", &agent]));
    assert!(old(), "the daemon answers while it holds the array");
    good(pair(lab, "n0b", "takeover", &[]));
    until("the partner takes writes", || client(lab, at, "write -P 60 1M 64k").status.success());
    for _ in 0..10 {
        assert!(!old(), "the old daemon has answered with what was written over");
        std::thread::sleep(Duration::from_millis(100));
    }
    good(on(lab, "n0a", &["kill", "-CONT", &agent]));
    until("units are given back", || pair(lab, "n0b", "giveback", &[]).status.success());
    until("it is at home", || has_role(lab, "n0a", "NORMAL"));
    assert!(client(lab, at, "write -P 90 1M 64k").status.success(), "it takes writes at home");
}

/// Each kind of drill on the pair, with nothing lost.
fn drills(lab: &Lab) {
    until("both are well", || has_role(lab, "n0a", "NORMAL") && has_role(lab, "n0b", "NORMAL"));
    for kind in ["volume", "osd", "takeover"] {
        let mut out = None;
        // The cluster may not be clean yet.
        until("the drill is let in", || {
            let drilled = pair(lab, "n0a", "drill", &["--kind", kind, "--pool", "r2", "--json"]);
            let is_refused = String::from_utf8_lossy(&drilled.stderr).contains("no drill while");
            out = Some(drilled);
            !is_refused
        });
        let outcome = json(out.expect("it ran"));
        println!("drill {kind}: {outcome}");
        for what in ["errors", "stuck", "stale", "wrong", "lost"] {
            assert_eq!(outcome["counts"][what], 0, "{kind}: {what}");
        }
        assert!(outcome["counts"]["read_back"].as_u64().is_some_and(|n| n > 500), "{kind}: {outcome}");
        assert_eq!(outcome["given_back"].is_number(), kind == "takeover", "{kind}");
    }
    let images = good(lab.sh("rbd ls r2")).stdout;
    assert!(!String::from_utf8_lossy(&images).contains("drill"), "an image is left");
}

/// The agent of n0a as a part of loligod: the commands, the API and the metrics ask it.
fn in_the_daemon(lab: &Lab, at: &str) {
    for name in ["agent.n0a", "loligod.n0a"] {
        let pid = pid_of(lab, name);
        good(on(lab, "n0a", &["kill", "-9", &pid]));
        // One that is about to end has its socket still.
        until("it has ended", || has_ended(&pid));
    }
    let folder = lab.dir.join("n0a");
    let file = folder.join("with-pair.toml");
    let text = format!(
        "[daemon]\nidentity = \"n0a\"\nmetrics = \"127.0.0.1:9283\"\n[pair]\nfile = \"{}\"\nside = \"a\"\n",
        lab.dir.join("n0/pair.toml").display()
    );
    std::fs::write(&file, text).expect("a file");
    let mut daemon = begin(lab, &["daemon", "--config", file.to_str().expect("a path")]);
    let status = |what: &[&str]| loligo(lab, "n0a", &[&["pair"], what].concat());
    until("the agent in the daemon is normal", || {
        let said: Value = serde_json::from_slice(&status(&["status", "--json"]).stdout).unwrap_or_default();
        said["role"] == "NORMAL"
            && said["units"]
                .as_array()
                .is_some_and(|all| all.iter().filter(|u| u["state"] == "running").count() == 2)
    });
    until("the volume is served by it", || holds(lab, at, 90));
    assert!(has_role(lab, "n0b", "NORMAL"), "a restart of both is no reason for a takeover: the OSD speaks");
    assert!(json(status(&["history", "--json"]))["entries"].as_array().is_some_and(|all| all.len() > 2));
    let scraped = on(
        lab,
        "n0a",
        &[
            "bash",
            "-c",
            "exec 3<>/dev/tcp/127.0.0.1/9283; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
        ],
    );
    let scraped = String::from_utf8_lossy(&good(scraped).stdout).into_owned();
    for row in [
        "loligo_pair_role{pair=\"n0\",side=\"a\",role=\"NORMAL\"} 1",
        "loligo_pair_partner_heard{pair=\"n0\",side=\"a\"} 1",
        "loligo_pair_unit_running{pair=\"n0\",side=\"a\",unit=\"volume vol-n0a\"} 1",
    ] {
        assert!(scraped.contains(row), "no '{row}' in {scraped}");
    }
    good(status(&["takeover"]));
    until("the partner's volume is served here", || {
        let all = json(loligo(lab, "n0a", &["volume", "list", "--json"])).to_string();
        all.contains("vol-n0a") && all.contains("vol-n0b")
    });
    until("its units can be given back", || is_partner_stopped(&status(&["status", "--json"])));
    until("units are given back", || status(&["giveback"]).status.success());
    until("all is at home", || has_role(lab, "n0b", "NORMAL"));
    daemon.kill().expect("it runs");
    daemon.wait().expect("it ends");
}

/// `loligo ARGS` on n0a, which goes on.
fn begin(lab: &Lab, args: &[&str]) -> Child {
    let dir = lab.dir.join("n0a");
    let mut command: Command = lab.command("exec", &["--host", "n0a", "--", "env"]);
    command.arg(format!("LOLIGO_RUNTIME_DIR={}", dir.join("run").display()));
    command.arg(format!("LOLIGO_STATE_DIR={}", dir.join("state").display()));
    command.arg(program()).args(args).stdin(Stdio::null()).spawn().expect("it starts")
}
