//! A volume of this controller's daemon: started with what the array keeps of it, and reached at an address that moves with it.

use crate::address::Floating;
use crate::cancel::Cancel;
use crate::config::{PairConfig, VolumeUnit};
use crate::kept::Kept;
use crate::luns::read_first_block;
use crate::peers::{PeerNote, Secretary};
use crate::tickle::tickle;
use crate::values::Values;
use anyhow::{Result, bail, ensure};
use loligo_client::api::daemon::{Create, Stop};
use loligo_client::api::definition::{Leave, VolumeConfig, Word};
use loligo_client::api::listed::Listed;
use loligo_client::api::status::Status;
use loligo_client::api::volume::WhichSocket;
use loligo_client::client::{DaemonClient, Until};
use loligo_client::outcome::NobodyThere;
use loligo_pair::machine::{Answer, Cause, Failure};
use loligo_pair::plan::Side;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks at a volume that is served.
const WATCH: Duration = Duration::from_millis(250);
/// The time that the daemon has for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time that a volume may take to be served.
const START: Duration = Duration::from_secs(100);
/// The time that one may take to end.
const END: Duration = Duration::from_secs(20);

/// A stop in peace: what was acknowledged stays on the cache, for the partner to go on from.
const STOP: Stop = Stop { flush: false, force: true };

/// A volume of the pair, on one side.
#[derive(Debug)]
pub struct Volume {
    name: String,
    /// As the file has it, for this side.
    definition: VolumeConfig,
    values: Values,
    daemon: PathBuf,
    floating: Option<Floating>,
    note: PeerNote,
    /// Of a volume with an address.
    secretary: Option<Secretary>,
    devices: Vec<PathBuf>,
    /// The other leg of its cache.
    mirror: Option<PathBuf>,
    /// It is not started anew while it is served: an OSD stands on it.
    carries_osd: bool,
    looked: Option<Instant>,
    /// The last look found it served, and its sockets were not asked about since.
    was_served: bool,
}

/// The daemon's word on the volume.
#[derive(Debug)]
enum Found {
    /// No daemon runs.
    NoDaemon,
    /// The daemon has no such volume.
    Nothing,
    /// It is so.
    Is(Status),
    /// It is served, and acknowledges nothing since its cache failed.
    Stuck,
    /// It was ended and is so, and the kernel may still write for it.
    Ending(Status),
    /// The daemon does not answer in time.
    Unknown(anyhow::Error),
}

impl Volume {
    /// The volume as `side` has it.
    ///
    /// # Errors
    /// If its definition makes no sense.
    pub fn new(pair: &PairConfig, unit: &VolumeUnit, side: Side) -> Result<Volume> {
        let own = &pair.controller[&side];
        let interface = unit.interface.get(&side);
        let floating = unit
            .floating()?
            .zip(interface)
            .map(|((address, prefix), interface)| Floating::new(address, prefix, interface));
        let note = PeerNote::new(&own.quorum, unit.id);
        let secretary = floating.as_ref().map(|f| Secretary::start(note.clone(), f.address()));
        let devices = std::iter::once(&unit.cache).chain(&unit.core).filter_map(|paths| paths.get(&side));
        Ok(Volume {
            name: unit.name.clone(),
            definition: VolumeConfig { keeper: Some(pair.socket(side)), ..unit.of_side(side, &own.key)? },
            values: Values::new(pair, unit, side),
            daemon: own.daemon.clone(),
            floating,
            note,
            secretary,
            devices: devices.cloned().collect(),
            mirror: unit.journal_mirror.as_ref().and_then(|paths| paths.get(&side)).cloned(),
            carries_osd: false,
            looked: None,
            was_served: false,
        })
    }

    /// The same below an OSD.
    pub(crate) fn below_osd(self) -> Volume {
        Volume { carries_osd: true, ..self }
    }

    /// Its name, as threads and messages have it.
    pub fn name(&self) -> String {
        format!("volume {}", self.name)
    }

    fn daemon(&self) -> Result<DaemonClient> {
        let client = DaemonClient::at(&self.daemon)?;
        Ok(client.within(PATIENCE).waiting(Until::Begun, None))
    }

    /// The volume as the daemon lists it, if it has it.
    fn listed(&self) -> Result<Option<Listed>> {
        let all = self.daemon()?.volumes()?;
        Ok(all.into_iter().find(|listed| listed.name == self.name))
    }

    fn look(&self) -> Found {
        match self.listed() {
            Ok(Some(listed)) if listed.ending => Found::Ending(listed.status),
            Ok(Some(listed)) if listed.stuck => Found::Stuck,
            Ok(Some(listed)) => Found::Is(listed.status),
            Ok(None) => Found::Nothing,
            Err(why) if why.is::<NobodyThere>() => Found::NoDaemon,
            Err(why) => Found::Unknown(why),
        }
    }

    /// True if the daemon serves it, or is about to; also if it may write yet: one that does not answer goes on with what it had.
    pub fn is_here(&self) -> bool {
        let found = self.look();
        self.noted(&found) || matches!(found, Found::Unknown(_) | Found::Ending(_))
    }

    fn is_served(&self) -> bool {
        self.noted(&self.look())
    }

    /// Has clients noted if it is served; whether it is.
    fn noted(&self, found: &Found) -> bool {
        let is_served =
            matches!(found, Found::Stuck | Found::Is(Status::Starting | Status::Serving | Status::Stopping));
        self.note_clients(is_served);
        is_served
    }

    /// Takes away the address that a daemon or an agent before this one has left. Nobody is answered there.
    pub fn clear(&self) {
        if let Err(why) = self.close_doors() {
            tracing::warn!(volume = self.name, "its address is left on this host: {why:#}");
        }
    }

    /// Starts it, and has clients come, not before `open_at`; one that is served already is taken on.
    pub fn start(&mut self, cancel: &Cancel, open_at: Option<Instant>) -> Answer {
        match self.try_start(cancel, open_at) {
            Ok(()) => Answer::Done,
            Err(why) => Answer::Failed(self.blame(&why)),
        }
    }

    /// The same, with the reason.
    ///
    /// # Errors
    /// If it is refused, does not come in time, or is cancelled.
    pub(crate) fn try_start(&self, cancel: &Cancel, open_at: Option<Instant>) -> Result<()> {
        let definition = self.effective()?;
        if self.floating.is_none() || definition.listen.iter().any(|listen| !listen.contains("when-told")) {
            // Clients can come as soon as it is served.
            wait_for(open_at, cancel)?;
        }
        let daemon = self.daemon()?;
        let begun = Instant::now();
        let mut was_made = false;
        loop {
            cancel.check()?;
            match self.look() {
                Found::Is(Status::Serving) => {
                    let listed = self.is_the_pairs()?;
                    // They may have been set by command since.
                    let definition = self.effective()?;
                    // A daemon that started it by itself remembers older values than the array.
                    let has_values = listed.is_none_or(|listed| has_values(&listed, &definition));
                    if was_made || self.carries_osd || has_values {
                        break;
                    }
                    tracing::info!(
                        volume = self.name,
                        "served with other values than the array keeps: it is started anew"
                    );
                    self.hang_up(&daemon);
                    daemon.stop(&self.name, &STOP).map(drop)?;
                }
                Found::Stuck if was_made => bail!("it acknowledges nothing: its cache fails again"),
                Found::Stuck => {
                    self.hang_up(&daemon);
                    daemon.stop(&self.name, &STOP).map(drop)?;
                }
                // It may be started with its host, a little later than this agent.
                Found::NoDaemon => {}
                Found::Ending(_) | Found::Is(Status::Starting | Status::Stopping) => {}
                // Waiting for a cluster or a device, or another try after a failure.
                Found::Is(Status::Waiting(_) | Status::Failed(_)) if was_made => {}
                Found::Is(Status::Lost(why)) if was_made => bail!(Fenced(why)),
                Found::Is(Status::Refused(why)) if was_made => bail!("it is refused: {why}"),
                Found::Is(Status::Stopped) if was_made => {
                    bail!("it was stopped while it started")
                }
                // One that is tried again, or was lost to the partner before, counts as wanted: it is not deleted as it is.
                Found::Is(Status::Failed(_) | Status::Lost(_)) => daemon.stop(&self.name, &STOP).map(drop)?,
                // Values that this controller's daemon remembers are older than what the array has.
                Found::Is(..) => daemon.delete(&self.name, true)?,
                Found::Nothing => {
                    ensure!(!was_made, "it was deleted while it started");
                    was_made = true;
                    let (name, definition) = (self.name.clone(), self.effective()?);
                    daemon.create(&Create { name, definition, allow: Leave::default() })?;
                    continue;
                }
                Found::Unknown(why) => return Err(why),
            }
            ensure!(
                begun.elapsed() < START,
                "it is not served after {} s: {}",
                START.as_secs(),
                self.state()
            );
            std::thread::sleep(LOOK);
        }
        wait_for(open_at, cancel)?;
        self.open_doors(&daemon)
    }

    /// Refuses one of the same name that is served without the pair's key, or from other devices: nothing fences it.
    fn is_the_pairs(&self) -> Result<Option<Listed>> {
        let Some(listed) = self.listed()? else { return Ok(None) };
        let of = |d: &VolumeConfig| {
            let devices = (d.core.clone(), d.cache.clone(), d.journal_mirror.clone());
            (d.reservation.clone(), devices, d.keeper.clone())
        };
        ensure!(
            of(&listed.definition) == of(&self.definition),
            "a volume of this name is served by another definition: 'loligo volume stop {}', and take it out of loligod.toml",
            self.name
        );
        Ok(Some(listed))
    }

    fn state(&self) -> String {
        match self.look() {
            Found::Is(status) => {
                format!("{} {}", status.word(), status.why().unwrap_or_default()).trim().to_owned()
            }
            Found::Stuck => "it acknowledges nothing".to_owned(),
            Found::Ending(_) => "the kernel has writes of it".to_owned(),
            Found::NoDaemon => "no daemon runs".to_owned(),
            Found::Nothing => "nobody has it".to_owned(),
            Found::Unknown(why) => format!("{why:#}"),
        }
    }

    /// The address comes first: a socket cannot be bound without it.
    fn open_doors(&self, daemon: &DaemonClient) -> Result<()> {
        let Some(floating) = &self.floating else { return Ok(()) };
        let address = floating.address();
        // A hint alone: without it clients come later.
        let left = self.note.read().unwrap_or_default();
        floating.put().map_err(|why| anyhow::anyhow!("{address} cannot be had: {why}"))?;
        daemon.bind(&self.name, &WhichSocket::default())?;
        if let Err(why) = floating.announce() {
            tracing::warn!(volume = self.name, "{why}: clients may be slow to find it");
        }
        if let Err(why) = tickle(left) {
            tracing::warn!(volume = self.name, "clients are not told: {why}. They may be slow to find it");
        }
        self.note_clients(true);
        Ok(())
    }

    /// Clients are noted as long as the volume is served here.
    fn note_clients(&self, serves: bool) {
        if let Some(secretary) = &self.secretary {
            secretary.serve(serves);
        }
    }

    /// The definition with what was set by command, on either side.
    fn effective(&self) -> Result<VolumeConfig> {
        let values = self.values.read()?;
        Ok(values.map_or_else(|| self.definition.clone(), |kept| with(&self.definition, &kept)))
    }

    /// The reason why it could not be started: the array's doing, or not.
    pub(crate) fn blame(&self, why: &anyhow::Error) -> Failure {
        if let Some(Fenced(why)) = why.downcast_ref() {
            return Failure::NotMine(why.clone());
        }
        match self.array_error() {
            Some(error) => Failure::Array(format!("{error}: {why:#}")),
            None => Failure::Other(format!("{why:#}")),
        }
    }

    /// The error of the first of its devices that cannot be read.
    pub(crate) fn array_error(&self) -> Option<String> {
        let failed = |path: &PathBuf| Some(format!("{}: {}", path.display(), read_first_block(path).err()?));
        self.devices.iter().find_map(failed)
    }

    /// True if it is time for another look.
    fn is_due(&mut self) -> bool {
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= WATCH);
        if is_due {
            self.looked = Some(Instant::now());
        }
        is_due
    }

    /// True if the daemon serves it, without having been told by this agent.
    pub fn has_come(&mut self) -> bool {
        self.is_due() && self.is_served()
    }

    /// Looks whether it has ended by itself, and why. A daemon that does not answer says nothing.
    pub fn has_ended(&mut self) -> Option<Cause> {
        if !self.is_due() {
            return None;
        }
        let found = self.look();
        self.was_served = matches!(found, Found::Is(Status::Serving));
        match found {
            Found::Is(Status::Starting | Status::Serving | Status::Stopping) | Found::Unknown(_) => None,
            // Its clients hear of the error as long as the array fails. Below an OSD that ends by itself.
            Found::Stuck if self.carries_osd || self.array_error().is_some() => None,
            Found::Stuck => Some(Cause::Other),
            Found::Is(Status::Lost(_)) | Found::Ending(Status::Lost(_)) => Some(Cause::Fenced),
            Found::Is(..) | Found::Ending(..) | Found::Nothing | Found::NoDaemon => {
                Some(if self.array_error().is_some() { Cause::Array } else { Cause::Other })
            }
        }
    }

    /// True if the last look found it served and clients cannot come: it was started by another hand, which knows nothing of the
    /// address, or somebody took that away. Each look counts once.
    pub fn is_shut(&mut self) -> bool {
        let was_served = std::mem::take(&mut self.was_served);
        let is_unbound =
            || self.daemon().is_ok_and(|it| it.bind(&self.name, &WhichSocket::default()).is_err());
        let is_shut = |floating: &Floating| !floating.is_there() || is_unbound();
        was_served && self.floating.as_ref().is_some_and(is_shut)
    }

    /// Has clients come. This side must hold its LUNs.
    pub fn open(&self) {
        if let Err(why) = self.daemon().and_then(|daemon| self.open_doors(&daemon)) {
            tracing::warn!(volume = self.name, "clients cannot come: {why:#}");
        }
    }

    /// Ends it at once, writing nothing, and takes its address away.
    pub fn kill(&mut self) -> Answer {
        let ended = self.end(|daemon| {
            daemon.end(&self.name)?;
            // What the kernel has of it may take long, and the partner's clients are not to come here meanwhile.
            self.clear();
            Ok(())
        });
        // A daemon that hangs is no reason to keep the address from the partner.
        let closed = self.close_doors();
        self.over(ended.and(closed))
    }

    /// Stops it in peace: what was acknowledged is on its cache, and the partner goes on from there.
    pub fn stop(&mut self) -> Answer {
        let ended = self.end(|daemon| {
            self.hang_up(daemon);
            daemon.stop(&self.name, &STOP).map(drop)
        });
        let closed = self.close_doors();
        self.over(ended.and(closed))
    }

    /// Closes the connections of clients, which connect again and find the partner. A volume that stops would answer their requests
    /// with errors.
    fn hang_up(&self, daemon: &DaemonClient) {
        if self.floating.is_some()
            && let Err(why) = daemon.unbind(&self.name, &WhichSocket::default())
        {
            tracing::warn!(volume = self.name, "clients are not hung up on before the stop: {why:#}");
        }
    }

    fn over(&self, ended: Result<()>) -> Answer {
        match ended {
            Ok(()) => Answer::Done,
            Err(why) => {
                tracing::warn!(volume = self.name, "not ended: {why:#}");
                Answer::Failed(Failure::TimedOut)
            }
        }
    }

    /// Has it ended by `how`, and returns once nothing of it runs, in the kernel neither.
    fn end(&self, how: impl Fn(&DaemonClient) -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        let mut was_told = false;
        loop {
            let is_over = match self.look() {
                Found::Nothing | Found::NoDaemon => true,
                Found::Is(Status::Stopped | Status::Lost(_) | Status::Refused(_)) => true,
                Found::Is(..) | Found::Stuck if !was_told => {
                    how(&self.daemon()?)?;
                    was_told = true;
                    false
                }
                Found::Is(..) | Found::Stuck | Found::Ending(_) => false,
                Found::Unknown(why) => return Err(why),
            };
            let used = self.in_use();
            if is_over && used.is_none() {
                return Ok(());
            }
            let state = || used.map_or_else(|| self.state(), |path| format!("{path} is in use"));
            ensure!(begun.elapsed() < END, "it has not ended after {} s: {}", END.as_secs(), state());
            std::thread::sleep(LOOK);
        }
    }

    /// The first of its devices of which a write may be in flight: the lock on it goes with the last one, whatever has become of the
    /// daemon that had it.
    fn in_use(&self) -> Option<String> {
        let is_used = |path: &&PathBuf| match loligo_block::is_in_use(path) {
            Ok(is_used) => is_used,
            // What is not there takes no write.
            Err(why) => !matches!(
                why.raw_os_error(),
                Some(libc::ENOENT | libc::ENXIO | libc::ENODEV | libc::ENOTCONN)
            ),
        };
        self.devices.iter().chain(&self.mirror).find(is_used).map(|path| path.display().to_string())
    }

    fn close_doors(&self) -> Result<()> {
        self.note_clients(false);
        match &self.floating {
            Some(floating) => floating.take_away().map_err(anyhow::Error::msg),
            None => Ok(()),
        }
    }
}

fn wait_for(at: Option<Instant>, cancel: &Cancel) -> Result<()> {
    while at.is_some_and(|at| Instant::now() < at) {
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The array has given the volume's devices to the partner.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Fenced(String);

/// True if it is served with the mode and the tunables of `wanted`.
fn has_values(listed: &Listed, wanted: &VolumeConfig) -> bool {
    let of = |d: &VolumeConfig| (d.mode.clone(), d.params.clone());
    of(&listed.definition) == of(wanted)
}

fn with(definition: &VolumeConfig, kept: &Kept) -> VolumeConfig {
    let mut definition = definition.clone();
    if let Some(mode) = &kept.mode {
        definition.mode = Some(mode.clone());
    }
    let params = kept.params.iter().map(|(key, value)| (key.clone(), Word(value.clone())));
    definition.params.extend(params);
    definition
}
