//! The API: its description, who may use it, and what nonsense does to it.

use crate::site::{PATIENCE, Site};
use loligo_tests::fuzz::{Dice, budget};
use loligo_tests::skip::{installed, root, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SOCKET: &str = "loligod.sock";

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The description of the API in the documentation.
fn description() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json")
}

/// Status and body of an answer.
fn parts(answer: &[u8]) -> (u16, String) {
    let text = String::from_utf8_lossy(answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

#[test]
fn the_description_of_the_api_is_the_documented_one_and_answers() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let (status, body) = parts(&site.ask(SOCKET, &request("GET", "/v1/openapi.json", "")));
    assert_eq!(status, 200);
    let now: Value = serde_json::from_str(&body).expect("JSON");
    let kept = description();
    if std::env::var_os("LOLIGO_UPDATE").is_some() {
        std::fs::write(&kept, serde_json::to_string_pretty(&now).expect("JSON") + "\n").expect("written");
    }
    let before: Value =
        serde_json::from_slice(&std::fs::read(&kept).expect("docs/openapi.json")).expect("JSON");
    assert_eq!(now, before, "run this test with LOLIGO_UPDATE=1");
    let paths = now["paths"].as_object().expect("paths");
    for (path, ways) in paths {
        if ways.get("get").is_some() {
            let path = path.replace("{name}", "a");
            let (status, body) = parts(&site.ask(SOCKET, &request("GET", &path, "")));
            // This daemon is no controller of a pair.
            let wanted = if path.starts_with("/v1/pair") { 404 } else { 200 };
            assert_eq!(status, wanted, "{path}: {body}");
        }
    }
    assert!(paths.len() >= 10, "{paths:?}");
    let (status, body) = parts(&site.ask(SOCKET, &request("GET", "/v1/volumes/none/stats", "")));
    assert_eq!((status, body.contains("no volume 'none'")), (404, true), "{body}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_validator_of_openapi_accepts_the_description() {
    if !installed("python3") {
        return skip("the description of the API", "python3 is not installed (apt-get install python3)");
    }
    let has =
        Command::new("python3").args(["-c", "import openapi_spec_validator"]).output().expect("it runs");
    if !has.status.success() {
        return skip(
            "the description of the API",
            "there is no validator (pip install openapi-spec-validator)",
        );
    }
    let validator =
        Command::new("python3").args(["-m", "openapi_spec_validator"]).arg(description()).output();
    let out = validator.expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let all: Value = serde_json::from_slice(&std::fs::read(description()).expect("read")).expect("JSON");
    assert_eq!((all["info"]["title"].as_str(), all["info"]["contact"].is_null()), (Some("Loligo"), true));
}

#[test]
fn refusals_are_json_and_have_the_status_that_fits() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    for (method, path, body, wanted) in [
        ("GET", "/v1/nothing", "", 404),
        ("GET", "/v1/volumes/none", "", 404),
        ("POST", "/v1/volumes/none/start", "{}", 404),
        ("PATCH", "/v1/volumes", "", 405),
        ("POST", "/v1/volumes", "{", 400),
        ("POST", "/v1/volumes", "{\"nme\":1}", 422),
        ("POST", "/v1/volumes", "{\"name\":\"x\",\"definition\":{\"core\":\"x\",\"listen\":[]}}", 400),
        ("POST", "/v1/volumes/a/mode", "{\"mode\":\"none\"}", 400),
        ("DELETE", "/v1/volumes/a", "", 409),
    ] {
        let (status, text) = parts(&site.ask(SOCKET, &request(method, path, body)));
        assert_eq!(status, wanted, "{method} {path} {body}: {text}");
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(told["error"].as_str().is_some_and(|e| !e.is_empty()), "{method} {path} {body}: {text}");
    }
    daemon.stop().expect("a clean stop");
}

#[test]
fn only_root_and_the_daemons_own_user_may_ask() {
    if !root() {
        return skip("peer credentials", "needs root, to become another user");
    }
    if !installed("python3") {
        return skip("peer credentials", "python3 is not installed (apt-get install python3)");
    }
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    // As open as an administrator could make it by mistake.
    let open = Command::new("chmod").args(["-R", "a+rwX"]).arg(site.dir.path()).status().expect("chmod");
    assert!(open.success());
    let ask = |uid: &str, socket: &str| {
        let script = "import socket,sys,os\nos.setuid(int(sys.argv[1]))\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[2])\n\
                      s.sendall(b'GET /v1/openapi.json HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n')\n\
                      sys.stdout.write(s.recv(4096).decode())";
        // The folder may lie where only root may look: the socket is named from inside it.
        let out = Command::new("python3")
            .args(["-c", script, uid, socket])
            .current_dir(site.dir.path())
            .output()
            .expect("python3");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        parts(&out.stdout)
    };
    for socket in [SOCKET, "a.sock"] {
        assert_eq!(ask("0", socket).0, 200, "{socket}");
        let (status, body) = ask("65534", socket);
        assert_eq!((status, body.contains("only root")), (403, true), "{socket}: {body}");
    }
    daemon.stop().expect("a clean stop");
}

/// The paths of the API.
fn paths() -> Vec<String> {
    let all: Value =
        serde_json::from_slice(&std::fs::read(description()).expect("docs/openapi.json")).expect("JSON");
    all["paths"].as_object().expect("paths").keys().cloned().collect()
}

/// Something that looks a little like a request to one of `paths`, and whether it is a whole one.
fn nonsense(dice: &mut Dice, paths: &[String]) -> (Vec<u8>, bool) {
    let names =
        ["a", "a", "b", "..", "%2e%2e", "a%00b", "", "é", "x".repeat(300).as_str()].map(str::to_owned);
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "\0", "get"];
    let ends = ["", "", "", "/", "/../x", "/x/y/z", "?wait=x&flush"];
    let bodies = [
        "",
        "{}",
        "null",
        "[]",
        "{\"mode\":\"wt\"}",
        "{\"mode\":7}",
        "{\"key\":\"seq-threshold\",\"value\":\"-1\"}",
        "{\"flush\":",
        "{\"bytes\":1}",
        "{\"path\":\"/dev/null\",\"core\":\"-1\",\"min\":0,\"weight\":0}",
        "{\"path\":\"\",\"name\":\"\",\"min\":18446744073709551615}",
        "{\"cache\":{\"cache\":\"/dev/null\",\"mode\":\"wb\"}}",
        "{\"name\":\"../x\",\"definition\":{\"core\":\"x\",\"listen\":[]}}",
        "{\"name\":\"z\",\"definition\":{\"core\":\"rbd:\",\"listen\":[\"udp:1\"]}}",
    ];
    let name = &names[dice.below(names.len())];
    let path = paths[dice.below(paths.len())].replace("{name}", name) + ends[dice.below(ends.len())];
    let mut raw = request(methods[dice.below(methods.len())], &path, bodies[dice.below(bodies.len())]);
    let damage = dice.below(4);
    for _ in 0..damage {
        let at = dice.below(raw.len());
        match dice.below(3) {
            0 => raw[at] = dice.draw() as u8,
            1 => raw.truncate(at.max(1)),
            _ => raw.insert(at, dice.draw() as u8),
        }
    }
    (raw, damage == 0)
}

#[test]
fn nonsense_is_answered_with_a_refusal_and_the_daemon_serves_on() {
    let site = Site::new(&["a"]);
    let daemon = site.daemon();
    let (mut dice, paths) = (Dice::from_env("requests"), paths());
    let until = Instant::now() + budget() / 2;
    let (mut asked, mut whole) = (0, 0);
    while Instant::now() < until {
        let (raw, is_whole) = nonsense(&mut dice, &paths);
        // Who has said all that he has to say gets an answer; a hang-up is what a panic looks like from outside.
        let patience = if is_whole { PATIENCE } else { Duration::from_millis(100) };
        let (status, body) = parts(&site.mutter(SOCKET, &raw, patience));
        let sent = String::from_utf8_lossy(&raw);
        assert!(status != 500 && (status != 0 || !is_whole), "{status} to {sent}: {body}");
        asked += 1;
        whole += u32::from(is_whole);
    }
    assert!(asked > 20 && whole > 5, "{asked} requests, {whole} of them whole");
    let said = daemon.log();
    assert!(!said.contains("panicked"), "{said}");
    // It may have been stopped by a request that made sense.
    site.ok(&["volume", "start", "a"]);
    assert!(site.ok(&["volume", "list"]).contains("serving"));
    let names: Value = serde_json::from_str(&site.ok(&["volume", "list", "--json"])).expect("JSON");
    assert_eq!(names.as_array().map(Vec::len), Some(1), "nothing was made: {names}");
    daemon.stop().expect("a clean stop");
}

#[test]
fn a_configuration_of_garbage_is_refused_with_a_sentence() {
    let site = Site::new(&["a"]);
    let whole = std::fs::read(site.path("loligod.toml")).expect("it was written");
    let mut dice = Dice::from_env("configurations");
    let config = site.path("loligod.toml").display().to_string();
    for _ in 0..60 {
        let mut raw = whole.clone();
        for _ in 0..=dice.draw() % 6 {
            let at = (dice.draw() % raw.len() as u64) as usize;
            raw[at] = dice.draw() as u8;
        }
        std::fs::write(&config, &raw).expect("written");
        let out = site.loligo(&["config", "check", "--config", &config]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(matches!(out.status.code(), Some(0 | 3)), "{:?}: {said}", out.status);
        assert!(out.status.success() || said.starts_with("error: "), "{said}");
    }
}
