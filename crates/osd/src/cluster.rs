//! The cluster's own commands, and what they say of one OSD.

use anyhow::{Context, Result, ensure};
use loligo_lab::interrupt::Interrupt;
use loligo_lab::{ceph, process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long one command may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long the cluster is looked for.
const CONNECT: &str = "20";
/// The configuration that Ceph's packages read.
pub const DEFAULT_CONF: &str = "/etc/ceph/ceph.conf";

/// Programs without which there is no OSD, and the packages of Debian and Ubuntu that hold them.
const PROGRAMS: [(&str, &str); 3] =
    [("ceph", "ceph-common"), ("ceph-authtool", "ceph-common"), ("ceph-osd", "ceph-osd")];

/// Which cluster, and as whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Its configuration.
    pub conf: PathBuf,
    /// The client, as `client.admin`.
    pub name: String,
    /// The file of that client's key, if not the one that the configuration names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
}

impl Access {
    /// The configuration that Ceph's own tools would take, without one given.
    pub fn default_conf() -> PathBuf {
        match std::env::var_os("CEPH_CONF").filter(|v| !v.is_empty()) {
            Some(conf) => conf.into(),
            None => DEFAULT_CONF.into(),
        }
    }

    /// One of Ceph's programs, told of this cluster by its environment: for those whose first word must be what they are to do.
    pub(crate) fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        ceph::own_environment(&mut command, &self.conf);
        command
    }
}

/// A cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    access: Access,
    stop: Interrupt,
}

/// One OSD, as the map of OSDs has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// The OSD's own id, not its number.
    pub uuid: String,
    /// It is up.
    pub up: bool,
    /// It is in.
    pub r#in: bool,
    /// The epoch in which it came up last.
    pub up_from: u64,
}

impl Cluster {
    /// The cluster behind `access`. Commands are given up once `stop` is set.
    pub fn new(access: &Access, stop: &Interrupt) -> Cluster {
        Cluster { access: access.clone(), stop: stop.clone() }
    }

    /// The same, for what has to be done after an interrupt.
    pub fn past_interrupts(&self) -> Cluster {
        Cluster { access: self.access.clone(), stop: Interrupt::default() }
    }

    /// How it is reached.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The interrupt that its commands look at.
    pub fn interrupt(&self) -> &Interrupt {
        &self.stop
    }

    /// A command line of one of Ceph's programs, for this cluster and no other.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.access.tool(program);
        command.arg("--conf").arg(&self.access.conf);
        command
    }

    fn ceph(&self) -> Command {
        let mut command = self.command("ceph");
        command.args(["--name", &self.access.name, "--connect-timeout", CONNECT]);
        if let Some(keyring) = &self.access.keyring {
            command.arg("--keyring").arg(keyring);
        }
        command
    }

    /// Has one `ceph` do all of `commands`, each its words, none with a blank in it: starting the program takes longer than what it does. What became
    /// of each it does not tell: look, and [`Cluster::run`] what was not done.
    ///
    /// # Errors
    /// Where it was interrupted.
    pub fn run_all(&self, commands: &[Vec<&str>]) -> Result<()> {
        let lines: String = commands.iter().map(|words| words.join(" ") + "\n").collect();
        let _ = process::feed(&mut self.ceph(), lines, LIMIT, &self.stop);
        Ok(self.stop.check()?)
    }

    /// Runs `ceph ARGS` and gives what it says.
    ///
    /// # Errors
    /// With what it said of its failure.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<String> {
        ceph::ask(self.ceph(), args, LIMIT, &self.stop)
    }

    /// Runs `ceph ARGS` and reads its JSON.
    ///
    /// # Errors
    /// Where it fails, or says something else.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Value> {
        ceph::json(args, |all| self.run(all))
    }

    /// Ceph is installed and the cluster answers; its id.
    ///
    /// # Errors
    /// With the mend.
    pub fn answers(&self) -> Result<String> {
        ceph::installed(&PROGRAMS)?;
        let conf = self.access.conf.display();
        ensure!(
            self.access.conf.is_file(),
            "{conf} is not there: name the cluster's configuration with --conf"
        );
        let said = self.run(&["fsid"]).with_context(|| {
            format!(
                "the cluster of {conf} does not answer {}: check --conf, --name and --keyring",
                self.access.name
            )
        })?;
        Ok(said.trim().to_owned())
    }

    /// A new key.
    ///
    /// # Errors
    /// What the program that makes it says.
    pub fn key(&self) -> Result<String> {
        let mut command = Command::new("ceph-authtool");
        let said = process::run(command.arg("--gen-print-key"), LIMIT, &self.stop)?;
        Ok(said.trim().to_owned())
    }

    /// The map of OSDs.
    ///
    /// # Errors
    /// Where the cluster does not answer.
    pub fn map(&self) -> Result<Map> {
        self.json(&["osd", "dump"]).map(Map)
    }
}

/// The map of OSDs.
#[derive(Debug, Clone)]
pub struct Map(Value);

impl From<Value> for Map {
    fn from(said: Value) -> Map {
        Map(said)
    }
}

impl Map {
    fn osds(&self) -> impl Iterator<Item = &Value> {
        self.0["osds"].as_array().into_iter().flatten()
    }

    /// Its entry of `id`; nothing where there is no such OSD.
    pub fn osd(&self, id: u32) -> Option<Mapped> {
        let found = self.osds().find(|o| o["osd"] == id)?;
        let yes = |key: &str| found[key].as_u64() == Some(1);
        Some(Mapped {
            uuid: found["uuid"].as_str().unwrap_or_default().to_owned(),
            up: yes("up"),
            r#in: yes("in"),
            up_from: found["up_from"].as_u64().unwrap_or(0),
        })
    }

    /// Whether its data are declared gone for good, so that its number may be used again.
    pub fn destroyed(&self, id: u32) -> bool {
        self.osds()
            .find(|o| o["osd"] == id)
            .and_then(|o| o["state"].as_array())
            .is_some_and(|states| states.iter().any(|s| s == "destroyed"))
    }

    /// The least number that no OSD has.
    pub fn free(&self) -> u32 {
        let mut taken: Vec<u64> = self.osds().filter_map(|o| o["osd"].as_u64()).collect();
        taken.sort_unstable();
        taken.iter().enumerate().find(|(i, n)| *i as u64 != **n).map_or(taken.len(), |(i, _)| i) as u32
    }

    /// The number of the OSD with this id of its own.
    pub fn number_of(&self, uuid: &str) -> Option<u64> {
        self.osds().find(|o| o["uuid"] == uuid).and_then(|o| o["osd"].as_u64())
    }
}

/// The folder in which `ceph-osd@ID` of the system's packages looks for an OSD.
pub fn default_dir(id: u32) -> PathBuf {
    Path::new("/var/lib/ceph/osd").join(format!("ceph-{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_map_tells_osds_apart_and_knows_the_first_free_number() {
        let map = Map(json!({ "osds": [
            { "osd": 0, "uuid": "a", "up": 1, "in": 1, "up_from": 7, "state": ["exists", "up"] },
            { "osd": 2, "uuid": "b", "up": 0, "in": 1, "up_from": 3, "state": ["destroyed", "exists"] },
        ]}));
        assert_eq!(map.free(), 1);
        assert_eq!(map.number_of("b"), Some(2));
        assert!(map.destroyed(2) && !map.destroyed(0) && !map.destroyed(1));
        let zero = map.osd(0).expect("there is one");
        assert!(zero.up && zero.r#in && zero.up_from == 7);
        assert_eq!(map.osd(1), None);
        assert_eq!(Map(json!({})).free(), 0);
    }
}
