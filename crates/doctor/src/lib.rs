//! Checks for what of this host stands in the way of a volume, and the mend. Checks are pure: they see what the kernel and the administrator
//! wrote under a root folder (`host`), what only a try can tell (`facts`), and the configuration.

mod clock;
mod config;
mod devices;
mod facts;
#[cfg(test)]
mod fake;
mod files;
mod folders;
mod kernel;
mod libraries;
mod limits;
mod lvm;
mod memory;
mod modules;
mod service;

use facts::Facts;
use loligo_block::host_files::HostFiles;
use loligo_daemon::config::Config;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The end of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be, or of no matter here.
    Ok,
    /// It cannot be told from here.
    Unknown,
    /// It works, and could be better or safer.
    Warn,
    /// It does not work, or data is in danger.
    Bad,
}

impl Verdict {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

/// The finding of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Names the check, for scripts: `kernel.io_uring`.
    pub check: String,
    /// The end of the check.
    pub verdict: Verdict,
    /// The observation.
    pub seen: String,
    /// The reason why it matters.
    pub why: &'static str,
    /// The mend.
    pub mend: Option<String>,
}

/// A check under way: its name, and why it matters.
#[derive(Debug, Clone)]
struct Check {
    name: String,
    why: &'static str,
}

impl Check {
    fn new(name: impl Into<String>, why: &'static str) -> Check {
        Check { name: name.into(), why }
    }

    fn end(&self, verdict: Verdict, seen: String, mend: Option<String>) -> Finding {
        Finding { check: self.name.clone(), verdict, seen, why: self.why, mend }
    }

    fn ok(&self, seen: impl Into<String>) -> Finding {
        self.end(Verdict::Ok, seen.into(), None)
    }

    fn unknown(&self, seen: impl Into<String>) -> Finding {
        self.end(Verdict::Unknown, seen.into(), None)
    }

    fn warn(&self, seen: impl Into<String>, mend: impl Into<String>) -> Finding {
        self.end(Verdict::Warn, seen.into(), Some(mend.into()))
    }

    fn bad(&self, seen: impl Into<String>, mend: impl Into<String>) -> Finding {
        self.end(Verdict::Bad, seen.into(), Some(mend.into()))
    }
}

/// The subject of checks.
struct Case<'a> {
    host: &'a HostFiles,
    facts: &'a Facts,
    config: &'a Config,
}

/// A cache or core of the configuration that is a path on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part<'a> {
    volume: &'a str,
    is_cache: bool,
    path: PathBuf,
}

impl Part<'_> {
    /// As findings name it.
    fn name(&self) -> String {
        format!(
            "{} of {} ({})",
            if self.is_cache { "cache" } else { "core" },
            self.volume,
            self.path.display()
        )
    }

    /// A name for a check of it.
    fn check(&self, group: &str, what: &str) -> String {
        format!("{group}.{}.{}.{what}", self.volume, if self.is_cache { "cache" } else { "core" })
    }
}

impl Case<'_> {
    /// Every cache and core.
    fn parts(&self) -> Vec<Part<'_>> {
        parts(self.config)
    }

    /// True if a volume is to be a block device of any kind.
    fn makes_devices(&self) -> bool {
        ["block:", "ublk:", "loop:"].iter().any(|way| self.listens(way))
    }

    /// True if one is to be a loop device over a mount, also because the kernel has no ublk.
    fn makes_loops(&self) -> bool {
        self.listens("loop:") || self.listens("block:") && !self.host.has("/dev/ublk-control")
    }

    /// True if a volume is to be a file, and so on.
    fn listens(&self, way: &str) -> bool {
        self.config.volumes.values().any(|v| v.listen.iter().any(|l| l.starts_with(way)))
    }
}

fn parts(config: &Config) -> Vec<Part<'_>> {
    let mut all = Vec::new();
    for (volume, v) in &config.volumes {
        let core = v.core.parse::<loligo_volume::core::CoreSpec>().ok();
        if let Some(path) = core.as_ref().and_then(loligo_volume::core::CoreSpec::path) {
            all.push(Part { volume, is_cache: false, path: path.to_owned() });
        }
        if let Some(path) = &v.cache {
            all.push(Part { volume, is_cache: true, path: path.clone() });
        }
    }
    all
}

/// Looks at this host; `config` is the daemon's file where it is not in its usual place.
pub fn examine(config: Option<&Path>) -> Vec<Finding> {
    let host = HostFiles::new(Path::new("/"));
    let (config, mut found) = config::check(&host, config);
    let facts = Facts::gather(&host, &config);
    found.splice(0..0, all(&Case { host: &host, facts: &facts, config: &config }));
    found
}

fn all(case: &Case<'_>) -> Vec<Finding> {
    let checks = [
        kernel::check,
        modules::check,
        memory::check,
        limits::check,
        clock::check,
        folders::check,
        service::check,
        libraries::check,
        lvm::check,
        files::check,
        devices::check,
    ];
    checks.iter().flat_map(|check| check(case)).collect()
}
