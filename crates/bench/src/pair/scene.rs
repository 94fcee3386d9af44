//! The lab of a row: faults, agents, and its state between runs.

use super::client_process;
use super::map;
use super::rows::{Plan, Target, VOLUME};
use crate::bed::Place;
use anyhow::{Context, Result, bail, ensure};
use loligo_agent::client::AgentClient;
use loligo_agent::config::PairConfig;
use loligo_agent::status::{HistoryEntry, Status};
use loligo_ceph::monitors::Monitors;
use loligo_client::client::Client;
use loligo_lab::ceph::Ceph;
use loligo_lab::config::LabConfig;
use loligo_lab::fail::{self, Meant};
use loligo_lab::layout::Layout;
use loligo_lab::pairs::place::{Controller, Node, cache_lun, osd_lun};
use loligo_lab::pairs::store::Served;
use loligo_lab::up::{self, UpOptions};
use loligo_lab::{down, status};
use loligo_pair::lun::Counters;
use loligo_pair::machine::{Order, RoleName};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of each image.
const IMAGE: &str = "1G";
/// The name of the image in each pool.
pub(crate) const NAME: &str = "verified";
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// The time that the check of a store may take.
const FSCK: Duration = Duration::from_secs(600);

/// A lab.
pub(crate) struct Scene<'a> {
    place: &'a Place,
    dir: PathBuf,
    config: LabConfig,
    is_up: bool,
    keep: bool,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        let done = match self.is_up || !self.keep {
            true => down::down(&self.dir, self.keep, &mut |_: &str| ()),
            false => Ok(()),
        };
        if let Err(error) = done {
            loligo_log::say!("the lab could not be taken down: {error:#}");
        }
    }
}

impl<'a> Scene<'a> {
    /// Brings a lab up in `dir`.
    pub(crate) fn new(place: &'a Place, dir: PathBuf, config: LabConfig, keep: bool) -> Result<Scene<'a>> {
        // It goes whatever becomes of what follows.
        let mut scene = Scene { place, dir, config, is_up: true, keep };
        if let Err(error) = scene.begin() {
            let has_begun = scene.at()?.state().exists();
            if !has_begun {
                scene.is_up = false;
                scene.keep = true;
            }
            return Err(error);
        }
        for pool in scene.pools() {
            let name = format!("{pool}/{NAME}");
            scene.ceph()?.tool("rbd", &["create", "--size", IMAGE, &name])?;
        }
        Ok(scene)
    }

    fn at(&self) -> Result<Layout> {
        Layout::at(&self.dir)
    }

    fn ceph(&self) -> Result<Ceph> {
        Ok(Ceph::of(&self.at()?, &self.place.stop))
    }

    /// The pools that are written to: one of three copies and one of two, where there are enough nodes.
    pub(crate) fn pools(&self) -> Vec<&'static str> {
        if self.config.pairs > 2 { vec!["r3", "r2"] } else { vec!["r2"] }
    }

    /// All that is written to: the pools, and the victim's volume last.
    pub(crate) fn targets(&self) -> Vec<&'static str> {
        let volume = self.config.volumes.as_ref().map(|_| VOLUME);
        self.pools().into_iter().chain(volume).collect()
    }

    fn begin(&mut self) -> Result<()> {
        let options = UpOptions {
            dir: self.dir.clone(),
            config: self.config.clone(),
            program: self.place.binary.clone(),
            force: false,
        };
        up::up(&options, &self.place.stop, &mut |_: &str| ())?;
        self.is_up = true;
        Ok(())
    }

    /// Starts it again, if it was stopped.
    pub(crate) fn ensure_up(&mut self) -> Result<()> {
        if self.is_up { Ok(()) } else { self.begin() }
    }

    /// Stops it, with its data.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if self.is_up {
            down::down(&self.dir, true, &mut |_: &str| ())?;
            self.is_up = false;
        }
        Ok(())
    }

    /// Lets agents cut their partner's power, or not. The lab is stopped where that changes something.
    pub(crate) fn set_power(&mut self, power: bool) -> Result<()> {
        let at = self.at()?;
        for node in Node::all(self.config.pairs) {
            let path = node.pair_file(&at);
            let full = path.with_extension("power");
            if !full.exists() {
                std::fs::copy(&path, &full).context("keeping the description of a pair")?;
            }
            let mut pair = PairConfig::read(&full)?;
            if !power {
                for controller in pair.controller.values_mut() {
                    controller.power_off.clear();
                    controller.power_status.clear();
                }
            }
            let has = !PairConfig::read(&path)?.controller.values().all(|c| c.power_off.is_empty());
            if has != power {
                self.stop()?;
                std::fs::write(&path, toml::to_string(&pair)?)
                    .context("writing the description of a pair")?;
            }
        }
        Ok(())
    }

    /// The controller of a run: another from run to run, of both sides and of nodes with and without a monitor.
    pub(crate) fn victim(&self, run: u32) -> Controller {
        let pairs = self.config.pairs;
        let node = Node(run % pairs);
        node.controllers()[((run + run / pairs) % 2) as usize]
    }

    /// The object of a fault, by its name, and its OSDs.
    pub(crate) fn target(&self, plan: &Plan, victim: Controller) -> (String, Vec<u32>) {
        match plan.target {
            Target::Controller => (victim.to_string(), vec![victim.osd()]),
            Target::Node => (victim.node.to_string(), victim.node.osds().to_vec()),
            Target::Volume => (victim.volume(), Vec::new()),
            Target::Mirrors => (victim.node.mirrors().to_string(), Vec::new()),
            Target::Osd => (osd_lun(victim.osd()), vec![victim.osd()]),
        }
    }

    /// Waits until both legs of the cache of the victim's volume hold the same.
    ///
    /// # Errors
    /// If they do not in time.
    pub(crate) fn wait_in_step(&self, victim: Controller, limit: Duration) -> Result<()> {
        let (begun, volume) = (Instant::now(), Client::at(&victim.run(&self.at()?), &victim.volume())?);
        loop {
            let said = volume.stats().map(|stats| stats["mirror"]["state"].clone());
            match said {
                Ok(state) if state == "in step" => return Ok(()),
                said => ensure!(begun.elapsed() < limit, "the mirror is not in step: {said:?}"),
            }
            self.place.stop.sleep(LOOK)?;
        }
    }

    /// Makes the plan's fault: when it began, milliseconds since 1970.
    pub(crate) fn fail(&self, plan: &Plan, victim: Controller) -> Result<u64> {
        let (target, _) = self.target(plan, victim);
        match plan.fault {
            Some(kind) => Ok(fail::fail(&self.dir, kind, &target, false)?.at_ms),
            None => {
                let at = fail::now_ms();
                let partner = partner(victim).context("a node has two controllers")?;
                self.agent(partner)?.order(Order::Takeover)?;
                Ok(at)
            }
        }
    }

    /// Mends all faults.
    pub(crate) fn mend(&self) -> Result<()> {
        fail::mend(&self.dir, Meant::All, &self.place.binary).map(drop)
    }

    fn controllers(&self) -> Vec<Controller> {
        Controller::all(self.config.pairs).collect()
    }

    fn agent(&self, controller: Controller) -> Result<AgentClient> {
        AgentClient::at(&controller.run(&self.at()?).join("pair.sock"))
    }

    /// The agents' words about themselves; nothing: one does not answer.
    fn statuses(&self) -> Vec<(Controller, Option<Status>)> {
        let status = |c: Controller| self.agent(c).and_then(|agent| agent.status()).ok();
        self.controllers().into_iter().map(|c| (c, status(c))).collect()
    }

    /// True if the victim's partner runs all units. The victim is not asked: one that stands still does not answer for long.
    pub(crate) fn has_taken_over(&self, victim: Controller) -> bool {
        let status = partner(victim).and_then(|c| self.agent(c).ok()?.status().ok());
        status.is_some_and(|status| status.is_settled_as(RoleName::Dual))
    }

    /// Every agent that is not NORMAL with its own units, or the pair's OSDs; empty: all is as installed.
    fn unsettled(&self) -> Vec<String> {
        if !self.config.agents {
            return Vec::new();
        }
        let word = |(controller, status): (Controller, Option<Status>)| {
            let Some(status) = status else { return Some(format!("{controller} does not answer")) };
            match (status.role, status.stray(RoleName::Normal)) {
                (RoleName::Normal, None) => None,
                (RoleName::Normal, Some(unit)) => {
                    Some(format!("{} on {controller} is {}", unit.name, unit.state))
                }
                (role, _) => Some(format!("{controller} is {role} ({})", status.why)),
            }
        };
        self.statuses().into_iter().filter_map(word).collect()
    }

    /// Gives back wherever a partner is ready for it: when the first such order was given, milliseconds since 1970.
    fn give_back(&self) -> Result<Option<u64>> {
        let mut first = None;
        for (controller, status) in self.statuses() {
            let Some(status) = status else { continue };
            if status.may_give_back {
                let at = fail::now_ms();
                // One that is refused is given again at the next look; what is not settled is told in the end.
                if self.agent(controller)?.try_order(Order::Giveback)? {
                    first = first.or(Some(at));
                }
            }
        }
        Ok(first)
    }

    /// Gives back, and waits until all agents are NORMAL and every placement group is active and clean: when the first order to
    /// give back was given, milliseconds since 1970.
    ///
    /// # Errors
    /// If it is not so within `limit`.
    pub(crate) fn settle(&self, monitors: &Monitors, limit: Duration) -> Result<Option<u64>> {
        let begun = Instant::now();
        let mut given_back = None;
        loop {
            self.place.stop.check()?;
            if self.config.agents
                && let Some(at) = self.give_back()?
            {
                given_back = given_back.or(Some(at));
            }
            let wrong = match self.unsettled() {
                wrong if wrong.is_empty() => map::unclean(monitors),
                wrong => Some(wrong.join("; ")),
            };
            let Some(wrong) = wrong else { return Ok(given_back) };
            if begun.elapsed() > limit {
                bail!("after {} s the pairs are not as before: {wrong}", limit.as_secs());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A connection to the monitors.
    pub(crate) fn monitors(&self) -> Result<Monitors> {
        Ok(Monitors::connect(&self.at()?.conf(), "client.admin", None)?)
    }

    /// The histories of all agents, by controller.
    pub(crate) fn history(&self) -> Result<Vec<(String, Vec<HistoryEntry>)>> {
        if !self.config.agents {
            return Ok(Vec::new());
        }
        let of = |c: Controller| Ok((c.to_string(), self.agent(c)?.history()?));
        self.controllers().into_iter().map(of).collect()
    }

    /// Writes that the LUNs of a node rejected, and that landed late, by all paths.
    pub(crate) fn counters(&self, node: Node) -> Result<Counters> {
        let status = status::status(&self.dir)?;
        let array = status.arrays.iter().find(|array| array.node == node.to_string());
        let luns = array
            .and_then(|array| array.luns.as_ref())
            .with_context(|| format!("the array of {node} is silent"))?;
        let mut sum = Counters::default();
        for counters in luns.iter().flat_map(|lun| lun.counters.values()) {
            sum.written += counters.written;
            sum.rejected += counters.rejected;
            sum.landed += counters.landed;
        }
        Ok(sum)
    }

    /// Writes by the victim's path to each of its LUNs what is there: true if the array refuses that, as it must after a takeover. The
    /// victim's own processes may have nothing to write when the fence falls.
    ///
    /// # Errors
    /// If the path fails otherwise.
    pub(crate) fn refuses_late_write(&self, victim: Controller) -> Result<bool> {
        let luns = std::iter::once(osd_lun(victim.osd()))
            .chain(self.config.volumes.as_ref().map(|_| victim.volume()));
        for lun in luns {
            if !refuses_write(&victim.lun(&self.at()?, &lun))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes OSDs in that were marked out: an operator's work, once the array is mended.
    pub(crate) fn take_in(&self, monitors: &Monitors, osd: u32) -> Result<()> {
        let command = serde_json::json!({"prefix": "osd in", "ids": [osd.to_string()]});
        monitors.ask(&command.to_string()).map(drop).map_err(Into::into)
    }

    /// A program on the client's host.
    pub(crate) fn client(&self, args: &[String]) -> Result<std::process::Command> {
        status::command(&self.dir, Some("client"), &self.place.binary.display().to_string(), args)
    }

    /// Starts the client, and waits until its images and the victim's volume are written and its load runs.
    pub(crate) fn verify(&self, victim: Controller, rate: u32, seed: u64) -> Result<client_process::Client> {
        let mut args = vec!["bench".to_owned(), "pair-client".to_owned()];
        for pool in self.pools() {
            args.extend(["--image".to_owned(), self.image(pool)]);
        }
        if let Some(volume) = self.volume(victim)? {
            args.extend(["--volume".to_owned(), volume]);
        }
        args.extend(["--rate".to_owned(), rate.to_string(), "--seed".to_owned(), seed.to_string()]);
        client_process::Client::start(self.client(&args)?, &self.dir.join("client.out"))
    }

    /// The image in a pool, as the client names it.
    pub(crate) fn image(&self, pool: &str) -> String {
        format!("{pool}/{NAME}?conf={}&id={}", self.dir.join("ceph.conf").display(), up::CLIENT)
    }

    /// The volume that is at home on a controller, as the client names it; nothing: there are none.
    ///
    /// # Errors
    /// If the pair's file does not say where it is.
    pub(crate) fn volume(&self, home: Controller) -> Result<Option<String>> {
        if self.config.volumes.is_none() {
            return Ok(None);
        }
        let pair = PairConfig::read(&home.node.pair_file(&self.at()?))?;
        let name = home.volume();
        let unit = pair.volume.iter().find(|unit| unit.name == name);
        let socket = unit.and_then(|unit| unit.sockets().first().copied());
        let socket = socket.with_context(|| format!("the address of {name}"))?;
        Ok(Some(format!("{socket}/{name}")))
    }

    /// Checks the store of an OSD while the lab is stopped: `success`, or what is wrong.
    pub(crate) fn fsck(&self, osd: u32) -> Result<String> {
        ensure!(!self.is_up, "the lab runs: a store in use cannot be checked");
        let at = self.at()?;
        let folder = tempfile::tempdir().context("a folder for the check of a store")?;
        let node = Controller::home(osd).node;
        let [lun, cache] = [osd_lun(osd), cache_lun(osd)].map(|lun| node.backing(&at, &lun));
        if self.config.cache.is_none() {
            return self.fsck_of(osd, &lun, folder.path());
        }
        let mount = folder.path().join("volume");
        let served = Served { id: osd, core: &lun, cache: &cache, mount: &mount };
        served.with(&at, &self.config, &self.place.binary, || {
            self.fsck_of(osd, &mount.join(osd_lun(osd)), folder.path())
        })
    }

    /// Checks the store of an OSD at `data`, with a folder of its own.
    fn fsck_of(&self, osd: u32, data: &Path, folder: &Path) -> Result<String> {
        let at = self.at()?;
        std::os::unix::fs::symlink(data, folder.join("block"))?;
        let home = Controller::home(osd).osd_dir(&at, osd);
        for file in ["fsid", "type"] {
            std::fs::copy(home.join(file), folder.join(file))
                .with_context(|| format!("{file} of osd.{osd}"))?;
        }
        let path = folder.display().to_string();
        let ceph = self.ceph()?.within(FSCK);
        match ceph.tool("ceph-bluestore-tool", &["fsck", "--deep", "1", "--path", &path]) {
            Ok(said) => Ok(said.lines().last().unwrap_or_default().trim().to_owned()),
            Err(why) => Ok(format!("{why:#}")),
        }
    }
}

/// Writes the first block of a LUN as it is there: true if the array refuses it.
fn refuses_write(path: &Path) -> Result<bool> {
    #[repr(align(4096))]
    struct Aligned([u8; 4096]);
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::DSYNC | OFlags::CLOEXEC;
    let mut label = Aligned([0; 4096]);
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        // The file of a model may have no page cache to go around.
        Err(Errno::INVAL) => rustix::fs::open(path, flags - OFlags::DIRECT, Mode::empty())?,
        opened => opened?,
    };
    // A write that lands is harm, whether or not the owner has changed the label since.
    rustix::io::pread(&file, &mut label.0, 0)?;
    match rustix::io::pwrite(&file, &label.0, 0) {
        Ok(_) => Ok(false),
        Err(Errno::BADE) => Ok(true),
        Err(why) => Err(why).with_context(|| format!("a late write to {}", path.display())),
    }
}

fn partner(of: Controller) -> Option<Controller> {
    of.node.controllers().into_iter().find(|controller| *controller != of)
}

/// The present epoch of the map of OSDs, however long the monitors take.
pub(crate) fn epoch(monitors: &Monitors, limit: Duration) -> Result<u64> {
    let begun = Instant::now();
    loop {
        match map::epoch(monitors) {
            Err(_) if begun.elapsed() < limit => std::thread::sleep(LOOK),
            done => return done,
        }
    }
}
