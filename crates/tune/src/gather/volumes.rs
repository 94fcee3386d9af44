//! Volumes of Loligo that processes of this host serve, by their own word.

use super::pids;
use crate::facts::Unseen;
use loligo_block::host_files::HostFiles;
use loligo_client::client::Client;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Programs that serve volumes.
const PROGRAMS: [&str; 2] = ["loligo", "loligod"];
/// The time that a volume may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A volume as it describes itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Volume {
    /// Its name.
    pub(super) name: String,
    /// The core, as it was given.
    pub(super) core: String,
    /// The cache, as it was given; nothing: it has none.
    pub(super) cache: Option<String>,
    /// Its cache line, bytes.
    pub(super) line_size: Option<i64>,
    /// Its exports.
    pub(super) listen: Vec<String>,
    /// Its numbers.
    pub(super) stats: Value,
    /// Its tunables, by their keys.
    pub(super) params: Vec<(String, String)>,
}

impl Volume {
    /// The volume of these answers to `/v1/info` and `/v1/stats`.
    pub(super) fn new(info: &Value, stats: Value, params: Vec<(String, String)>) -> Option<Volume> {
        let text = |key: &str| info[key].as_str().map(str::to_owned);
        let listen = info["listen"].as_array().into_iter().flatten();
        Some(Volume {
            name: text("name")?,
            core: text("core")?,
            cache: text("cache"),
            line_size: info["line_size"].as_i64(),
            listen: listen.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
            stats,
            params,
        })
    }

    /// The value of a tunable.
    pub(super) fn param(&self, key: &str) -> Option<&str> {
        self.params.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// True if it is the file of its name in a folder that is mounted at `mount`.
    pub(super) fn is_in(&self, mount: &Path) -> bool {
        self.listen.iter().filter_map(|it| it.strip_prefix("fuse:")).any(|it| Path::new(it) == mount)
    }

    /// True if it is the block device that is called `name` below `/dev/loligo`.
    pub(super) fn is_device(&self, name: &str) -> bool {
        let kinds = ["block:", "ublk:", "loop:"];
        self.listen.iter().any(|way| kinds.iter().any(|kind| way.strip_prefix(kind) == Some(name)))
    }
}

/// All volumes that are served here. A recorded tree has none that could be asked.
pub(super) fn look(files: &HostFiles, unseen: &mut Vec<Unseen>) -> Vec<Volume> {
    if !files.are_live() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for folder in folders(files) {
        for name in names(files, &folder) {
            match ask(&folder, &name) {
                Ok(volume) => all.extend(volume),
                Err(why) => unseen.push(Unseen { what: format!("volume {name}"), why: format!("{why:#}") }),
            }
        }
    }
    all
}

/// Folders of control sockets, by the processes that have them.
fn folders(files: &HostFiles) -> BTreeSet<PathBuf> {
    let servers = pids::of(files, &PROGRAMS).into_iter();
    servers.filter_map(|pid| folder(&files.read(format!("/proc/{pid}/environ"))?)).collect()
}

/// The folder that a process with this environment has its sockets in, as `loligo_client::names::runtime_dir` says.
fn folder(environment: &str) -> Option<PathBuf> {
    let of = |key: &str| {
        let entries = environment.split('\0').filter_map(|entry| entry.split_once('='));
        entries.into_iter().find(|(name, value)| *name == key && !value.is_empty()).map(|(_, value)| value)
    };
    let own = of("LOLIGO_RUNTIME_DIR").map(PathBuf::from);
    Some(own.unwrap_or_else(|| match of("XDG_RUNTIME_DIR") {
        Some(folder) if of("USER").is_some_and(|user| user != "root") => Path::new(folder).join("loligo"),
        _ => PathBuf::from("/run/loligo"),
    }))
}

/// Names of the volumes that have a socket in `folder`.
fn names(files: &HostFiles, folder: &Path) -> Vec<String> {
    let sockets = files.names(folder).into_iter();
    let names = sockets.filter_map(|name| Some(name.strip_suffix(".sock")?.to_owned()));
    names.filter(|name| loligo_client::names::check_name(name).is_ok()).collect()
}

/// Asks one; nothing where its socket is left over.
fn ask(folder: &Path, name: &str) -> anyhow::Result<Option<Volume>> {
    let client = Client::at(folder, name)?.within(PATIENCE);
    let info: Value = match client.get("/v1/info") {
        Ok(info) => info,
        Err(why) if why.downcast_ref::<loligo_client::outcome::NobodyThere>().is_some() => return Ok(None),
        Err(why) => return Err(why),
    };
    let (stats, mut params) = (client.stats()?, Vec::new());
    if info["cache"].is_string() {
        params = client.params()?.into_iter().map(|it| (it.key, it.value)).collect();
    }
    Ok(Volume::new(&info, stats, params))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_knows_its_mount_and_its_device() {
        let info = json!({
            "name": "osd3", "core": "/dev/sdb", "cache": "/dev/nvme0n1p4", "line_size": 4096,
            "listen": ["block:osd3", "fuse:/run/x"]
        });
        let volume = Volume::new(&info, Value::Null, Vec::new()).expect("a volume");
        assert!(volume.is_in(Path::new("/run/x")) && !volume.is_in(Path::new("/run")));
        assert!(volume.is_device("osd3") && !volume.is_device("osd33"));
    }

    #[test]
    fn the_folder_of_sockets_is_that_of_the_process() {
        let of = |text: &str| folder(&text.replace(' ', "\0")).expect("a folder");
        assert_eq!(of("HOME=/ LOLIGO_RUNTIME_DIR=/lab/run"), Path::new("/lab/run"));
        assert_eq!(of("USER=u XDG_RUNTIME_DIR=/run/user/7"), Path::new("/run/user/7/loligo"));
        assert_eq!(of("USER=root"), Path::new("/run/loligo"));
    }
}
