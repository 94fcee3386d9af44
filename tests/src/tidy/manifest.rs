//! The dependencies that crates may have.

use toml::{Table, Value};

/// For each crate of the house, the crates of the house that it may use. A crate that is not named here may
/// use none.
pub const MAY_USE: [(&str, &[&str]); 19] = [
    ("loligo-log", &[]),
    ("loligo-pair", &[]),
    ("loligo-agent", &["loligo-block", "loligo-ceph", "loligo-client", "loligo-lab", "loligo-pair"]),
    ("loligo-block", &[]),
    ("loligo-format", &["loligo-block"]),
    ("loligo-engine", &["loligo-block", "loligo-format"]),
    ("loligo-sim", &["loligo-block", "loligo-engine", "loligo-format", "loligo-pair"]),
    ("loligo-export", &["loligo-block"]),
    ("loligo-shard", &["loligo-block", "loligo-engine", "loligo-format", "loligo-export"]),
    ("loligo-client", &["loligo-block", "loligo-format", "loligo-log"]),
    (
        "loligo-volume",
        &[
            "loligo-block",
            "loligo-engine",
            "loligo-format",
            "loligo-ceph",
            "loligo-client",
            "loligo-log",
            "loligo-pair",
            "loligo-shard",
            "loligo-export",
        ],
    ),
    (
        "loligo-daemon",
        &[
            "loligo-agent",
            "loligo-block",
            "loligo-engine",
            "loligo-format",
            "loligo-client",
            "loligo-lab",
            "loligo-log",
            "loligo-pair",
            "loligo-export",
            "loligo-volume",
        ],
    ),
    (
        "loligo-doctor",
        &["loligo-block", "loligo-format", "loligo-ceph", "loligo-client", "loligo-daemon", "loligo-volume"],
    ),
    ("loligo-ceph", &["loligo-block"]),
    ("loligo-tune", &["loligo-block", "loligo-ceph", "loligo-client", "loligo-lab"]),
    ("loligo-lab", &["loligo-block", "loligo-pair"]),
    (
        "loligo-osd",
        &[
            "loligo-block",
            "loligo-engine",
            "loligo-format",
            "loligo-export",
            "loligo-lab",
            "loligo-log",
            "loligo-client",
            "loligo-volume",
        ],
    ),
    (
        "loligo-bench",
        &[
            "loligo-block",
            "loligo-engine",
            "loligo-format",
            "loligo-shard",
            "loligo-export",
            "loligo-agent",
            "loligo-ceph",
            "loligo-client",
            "loligo-pair",
            "loligo-lab",
            "loligo-log",
            "loligo-tune",
            "loligo-volume",
        ],
    ),
    (
        "loligo",
        &[
            "loligo-block",
            "loligo-engine",
            "loligo-format",
            "loligo-ceph",
            "loligo-doctor",
            "loligo-export",
            "loligo-lab",
            "loligo-log",
            "loligo-osd",
            "loligo-agent",
            "loligo-pair",
            "loligo-bench",
            "loligo-client",
            "loligo-daemon",
            "loligo-tune",
            "loligo-volume",
        ],
    ),
];

/// The crates that may run an async runtime.
const ASYNC_ROOMS: [&str; 5] = ["loligo-agent", "loligo-client", "loligo-daemon", "loligo", "loligo-tests"];
/// Parts of names that give an async runtime or what is built on one away.
const ASYNC: [&str; 7] = ["tokio", "axum", "hyper", "async-std", "smol", "futures", "reqwest"];

/// Dependencies by name, with what is said of them.
type Dependencies = Vec<(String, Value)>;

/// A Cargo.toml, as far as the rules ask.
#[derive(Debug, Clone, Default)]
struct Manifest {
    /// The package's name.
    name: String,
    /// Dependencies of the code itself and of its build script.
    uses: Dependencies,
    /// Dependencies of tests, examples and benchmarks only.
    dev: Dependencies,
}

fn parse(text: &str) -> Result<Manifest, toml::de::Error> {
    let all: Table = text.parse()?;
    let name = all.get("package").and_then(|p| p.get("name")?.as_str()).unwrap_or_default().to_owned();
    let mut m = Manifest { name, ..Manifest::default() };
    // Those of a platform stand in a table of its own.
    let platforms = all.get("target").and_then(Value::as_table);
    for table in platforms.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([&all]) {
        let of = |kind: &str| table.get(kind).and_then(Value::as_table).cloned().unwrap_or_default();
        m.uses.extend(of("dependencies").into_iter().chain(of("build-dependencies")));
        m.dev.extend(of("dev-dependencies"));
    }
    Ok(m)
}

/// The faults of one crate's manifest.
pub fn check(text: &str) -> Vec<String> {
    let m = match parse(text) {
        Ok(m) => m,
        Err(why) => return vec![why.to_string()],
    };
    let mut wrong = Vec::new();
    let rule = MAY_USE.iter().find(|(n, _)| *n == m.name);
    if rule.is_none() && m.name != "loligo-tests" {
        wrong.push(format!(
            "{} has no place in the order of the house: give it one in tests/src/tidy/manifest.rs",
            m.name
        ));
    }
    for (name, from) in &m.uses {
        let ours = name == "loligo" || name.starts_with("loligo-");
        if ours && rule.is_some_and(|(_, may)| !may.contains(&name.as_str())) {
            wrong
                .push(format!("{} may not depend on {name} (MAY_USE in tests/src/tidy/manifest.rs)", m.name));
        }
        if ASYNC.iter().any(|a| name == a || name.starts_with(&format!("{a}-")))
            && !ASYNC_ROOMS.contains(&m.name.as_str())
        {
            wrong.push(format!(
                "{} may not run an async runtime ({name}): that is for the control API and its clients",
                m.name
            ));
        }
        if from.get("workspace").and_then(Value::as_bool) != Some(true) {
            wrong.push(format!("{}: {name} must come from [workspace.dependencies]", m.name));
        }
    }
    for (name, _) in &m.dev {
        if name == "loligo" || (m.name == "loligo-block" && name.starts_with("loligo-")) {
            wrong.push(format!("{}: tests may not depend on {name}", m.name));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, dependency: &str) -> Vec<String> {
        check(&format!("[package]\nname = \"{name}\"\n\n[dependencies]\n{dependency}\n"))
    }

    #[test]
    fn a_room_that_reaches_up_is_found() {
        assert!(complaints("loligo-engine", "loligo-sim.workspace = true")[0].contains("may not depend"));
        assert!(
            complaints("loligo-block", "loligo-engine = { workspace = true }")[0].contains("may not depend")
        );
        assert!(complaints("loligo-sim", "loligo-shard.workspace = true")[0].contains("may not depend"));
        assert_eq!(complaints("loligo-engine", "loligo-block.workspace = true"), [""; 0]);
        let split = "[package]\nname = \"loligo-export\"\n[target.'cfg(unix)'.dependencies.loligo-engine]\nworkspace = true\n";
        assert!(check(split).iter().any(|w| w.contains("may not depend on loligo-engine")));
    }

    #[test]
    fn an_async_runtime_in_the_data_path_is_found() {
        for bad in ["tokio.workspace = true", "hyper-util.workspace = true", "axum.workspace = true"] {
            assert!(complaints("loligo-shard", bad)[0].contains("async"), "{bad}");
            assert_eq!(complaints("loligo-daemon", bad), [""; 0]);
        }
    }

    #[test]
    fn versions_beside_the_workspace_and_unknown_crates_are_found() {
        assert!(complaints("loligo-engine", "slab = \"0.4\"")[0].contains("workspace.dependencies"));
        assert!(complaints("loligo-new", "")[0].contains("no place"));
        assert!(complaints("loligo-engine", "slab = ")[0].contains("TOML"), "one that is none");
        let dev = "[package]\nname = \"loligo-block\"\n[dev-dependencies]\nloligo-engine.workspace = true\n";
        assert!(check(dev)[0].contains("tests may not"));
    }
}
