//! The cluster under test: a lab of its own, a lab that runs, or one that somebody names; and images on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use loligo_lab::config::LabConfig;
use loligo_lab::layout::Layout;
use loligo_lab::state::State;
use loligo_lab::up::{CLIENT, UpOptions};
use loligo_lab::{ceph, process, up};

use crate::bed::{Bed, Place};
use crate::child::Child;
use crate::fio::{Job, Rw, Target};
use crate::folder::OwnLab;
use crate::interrupt::Interrupt;

/// The longest that one of Ceph's tools may take: removing an image of a slow lab is the longest.
const TOOL_LIMIT: Duration = Duration::from_secs(300);

/// The source of the cluster.
#[derive(Debug, Clone)]
pub enum Source {
    /// A lab that is made for the run and removed after it.
    Lab(Box<LabConfig>),
    /// A lab that runs, by its folder.
    Running(PathBuf),
    /// Any cluster, reached by a client that may make images in a pool.
    Given {
        /// Its configuration file.
        conf: PathBuf,
        /// The client without `client.`.
        id: String,
        /// The client's keyring, where the configuration does not say.
        keyring: Option<PathBuf>,
        /// The pool.
        pool: String,
    },
}

/// True if librbd in fio's process caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Librbd {
    /// `rbd_cache=false`: an answer means committed on the OSDs.
    Uncached,
    /// As it is shipped: an answer may come from the client's memory.
    Shipped,
}

/// A cluster and the images that this run made on it, which go with it. Declare it after the bed.
pub(crate) struct Cluster {
    conf: PathBuf,
    id: String,
    keyring: Option<PathBuf>,
    pool: String,
    /// Configurations of native clients: without and with a cache.
    clients: [PathBuf; 2],
    images: Vec<String>,
    stop: Interrupt,
    /// Its description.
    pub(crate) facts: Vec<(String, String)>,
    own: Option<OwnLab>,
}

impl Cluster {
    /// Brings it up, in the folder `lab` of the bed, or finds it.
    pub(crate) fn new(
        bed: &Bed,
        place: &Place,
        lab: &str,
        source: &Source,
        say: &dyn Fn(&str),
    ) -> Result<Cluster> {
        let (conf, id, keyring, pool, facts, own) = match source {
            Source::Lab(config) => {
                let dir = bed.path(lab);
                let options = UpOptions {
                    dir: dir.clone(),
                    config: (**config).clone(),
                    program: place.binary.clone(),
                    force: false,
                };
                let came = up::up(&options, bed.stop(), &mut |step: &str| say(&format!("{lab}: {step}")));
                // Also where it did not come up: after an interrupt alone nothing is left of it.
                let own = Layout::at(&dir)?.state().exists().then_some(OwnLab(dir.clone()));
                let state = came?;
                let (conf, facts) = (Layout::at(&dir)?.conf(), facts_of(&state));
                (conf, CLIENT.to_owned(), None, config.pool.clone(), facts, own)
            }
            Source::Running(dir) => {
                let at = Layout::at(dir)?;
                let state = State::of(&at)?;
                let facts = facts_of(&state);
                (at.conf(), CLIENT.to_owned(), None, state.config.pool, facts, None)
            }
            Source::Given { conf, id, keyring, pool } => {
                let facts = vec![("Cluster".to_owned(), format!("pool {pool} by {}", conf.display()))];
                (conf.clone(), id.clone(), keyring.clone(), pool.clone(), facts, None)
            }
        };
        let text = fs::read_to_string(&conf).with_context(|| format!("reading {}", conf.display()))?;
        let client = |name: &str, more: &str| -> Result<PathBuf> {
            let path = bed.path(&format!("{lab}-{name}"));
            let key = keyring.as_ref().map_or(String::new(), |k| format!("keyring = {}\n", k.display()));
            // Several clients of one name would fight over one admin socket.
            fs::write(&path, format!("{text}\n[client.{id}]\n{key}{more}admin_socket =\n"))?;
            Ok(path)
        };
        let clients = [client("uncached.conf", "rbd_cache = false\n")?, client("shipped.conf", "")?];
        let (images, stop) = (Vec::new(), bed.stop().clone());
        Ok(Cluster { conf, id, keyring, pool, clients, images, stop, facts, own })
    }

    /// An image of `size` bytes with the default features, written whole, so that its objects exist.
    pub(crate) fn image(&mut self, bed: &Bed, what: &str, size: u64) -> Result<String> {
        let name = image_name(what, std::process::id());
        let spec = self.named(&name);
        self.images.push(name.clone());
        self.rbd(&["create", "--size", &format!("{size}B"), &spec])?;
        bed.run(&Job::new(self.native(&name, Librbd::Uncached), Rw::Write, 4 << 20, 8))?;
        Ok(name)
    }

    fn named(&self, image: &str) -> String {
        format!("{}/{image}", self.pool)
    }

    /// The image as a native client has it.
    pub(crate) fn native(&self, image: &str, librbd: Librbd) -> Target {
        let [uncached, shipped] = &self.clients;
        let conf = if librbd == Librbd::Uncached { uncached } else { shipped };
        Target::Rbd {
            conf: conf.clone(),
            id: self.id.clone(),
            pool: self.pool.clone(),
            image: image.to_owned(),
        }
    }

    /// The image as `--core` takes it.
    pub(crate) fn core(&self, image: &str) -> String {
        let key = self.keyring.as_ref().map_or(String::new(), |k| format!("&keyring={}", k.display()));
        format!("rbd:{}?conf={}&id={}{key}", self.named(image), self.conf.display(), self.id)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("rbd");
        ceph::own_environment(&mut command, &self.clients[1]);
        command.args(["--id", &self.id, "--no-progress"]).args(args);
        command
    }

    /// Runs `rbd ARGS` as another client.
    pub(crate) fn rbd(&self, args: &[&str]) -> Result<String> {
        process::run(&mut self.command(args), TOOL_LIMIT, &self.stop)
            .with_context(|| format!("rbd {}", args.join(" ")))
    }

    /// Begins to take a snapshot as another client.
    pub(crate) fn snapshot(&self, image: &str, snapshot: &str, words: &Path) -> Result<Child> {
        let mut command = self.command(&["snap", "create", &format!("{}@{snapshot}", self.named(image))]);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(fs::File::create(words)?);
        Child::spawn(&mut command).context("starting rbd")
    }

    /// Removes a snapshot.
    pub(crate) fn forget(&self, image: &str, snapshot: &str) -> Result<()> {
        self.rbd(&["snap", "rm", &format!("{}@{snapshot}", self.named(image))]).map(drop)
    }
}

impl Cluster {
    /// Leaves its images, for a cluster that does not answer: to remove them would wait for it.
    pub(crate) fn leave(&mut self) {
        for image in std::mem::take(&mut self.images) {
            loligo_log::say!(
                "image {0} stays: the cluster does not answer. 'rbd rm {0}' removes it once it does",
                self.named(&image)
            );
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own.is_some() {
            return;
        }
        for image in &self.images {
            // After an interrupt too.
            let removed = process::run(
                &mut self.command(&["rm", &self.named(image)]),
                TOOL_LIMIT,
                &Interrupt::default(),
            );
            if let Err(error) = removed {
                loligo_log::say!("image {} stays: {error:#}", self.named(image));
            }
        }
    }
}

/// The name of an image that the process of this number makes.
pub(crate) fn image_name(what: &str, process: impl std::fmt::Display) -> String {
    format!("loligo-{what}-{process}")
}

fn facts_of(state: &State) -> Vec<(String, String)> {
    let c = &state.config;
    let data = match &c.data {
        loligo_lab::config::Data::Kind(loligo_lab::config::Kind::Hdd) => {
            format!("modelled {} rpm disks", c.rpm)
        }
        loligo_lab::config::Data::Kind(loligo_lab::config::Kind::File) => "files".to_owned(),
        loligo_lab::config::Data::Devices(list) => format!("{} devices", list.len()),
    };
    let cache = c.set.get("osd.bluestore_cache_size").cloned();
    let cache = cache.unwrap_or_else(|| crate::units::bytes(loligo_lab::conf::OSD_CACHE as f64));
    let cluster = format!(
        "{} OSDs on {data}, {} copies, {} placement groups, BlueStore's cache {cache} an OSD",
        state.osds.len(),
        c.copies(),
        c.pgs()
    );
    vec![("Cluster".to_owned(), cluster)]
}
