//! A model of what an attach touches: the header's version, stamp, lock and watchers, the marker, the blocklist, and the record
//! in the cache. Nothing else of Ceph is in it.

use crate::CephError;
use crate::attach::step::{Answer, Client, ImageView, Step};
use crate::attach_marker::AttachMarker;
use crate::identity::ImageIdentity;
use crate::image::{LockHolder, WatcherInfo};
use crate::lock_record::{LockRecord, Loss};
use std::collections::{BTreeMap, BTreeSet};

/// The UUID of the cache.
pub(super) const CACHE: &str = "ours";

/// The life of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// It says nothing any more.
    Silent,
    Gone,
}

/// A deed of a stranger between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Comes, takes a lock that is free or a dead client's, writes, and goes.
    Visit,
    /// The same, and stays.
    Stay,
    /// The same, and dies with the lock.
    Die,
    /// Opens the image, and does nothing.
    Watch,
    /// Takes the image from everybody for another cache, by force.
    Steal,
    /// The stranger that holds the lock writes.
    Write,
}

pub(super) const DEEDS: [Deed; 6] =
    [Deed::Visit, Deed::Stay, Deed::Die, Deed::Watch, Deed::Steal, Deed::Write];

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) version: u64,
    /// The time of the last change of the header, where that is a stamp.
    pub(super) stamp: Option<i64>,
    pub(super) seq: u64,
    pub(super) lock: Option<LockHolder>,
    pub(super) watchers: BTreeSet<i64>,
    /// Watches of the header by an attach, and whether they heard of anybody.
    pub(super) ears: BTreeMap<i64, bool>,
    pub(super) marker: Option<String>,
    pub(super) blocklist: BTreeSet<String>,
    pub(super) clients: BTreeMap<i64, Life>,
    /// Clients that ever were this cache's.
    pub(super) own: BTreeSet<i64>,
    /// Clients of the present process that were given up.
    pub(super) given_up: Vec<i64>,
    /// The record as the cache has it on its device.
    pub(super) record: Option<LockRecord>,
    /// Clients that believe that they may write.
    pub(super) writers: BTreeSet<i64>,
    /// A stranger has written since the cache knew the image, and nobody has ordered to write over that.
    pub(super) foreign: bool,
    /// Times that a stranger took the lock.
    pub(super) acquired: u64,
    /// Rules that were broken so far.
    pub(super) wrong: Vec<String>,
}

/// The handles of one attach.
#[derive(Debug, Default)]
pub(super) struct Handles {
    pub(super) looking: Option<i64>,
    pub(super) own: Option<i64>,
}

pub(super) fn address(client: i64) -> String {
    format!("10.0.0.1:0/{client}")
}

pub(super) fn holder(client: i64) -> LockHolder {
    LockHolder { client: format!("client.{client}"), cookie: "auto 1".to_owned(), address: address(client) }
}

pub(super) fn number(holder: &LockHolder) -> i64 {
    holder.client["client.".len()..].parse().expect("a number")
}

pub(super) fn identity() -> ImageIdentity {
    ImageIdentity { fsid: "f".to_owned(), pool: 1, namespace: String::new(), id: "a1".to_owned() }
}

pub(super) fn marker(cache: &str, image: &str) -> String {
    let of = ImageIdentity { id: image.to_owned(), ..identity() };
    AttachMarker::new(cache.to_owned(), 1, "host".to_owned(), "volume".to_owned()).of(&of).encode()
}

pub(super) fn lost_answer() -> CephError {
    CephError::call("waiting", -libc::ETIMEDOUT)
}

impl World {
    /// An image that nobody has.
    pub(super) fn new() -> World {
        World {
            version: 100,
            stamp: None,
            seq: 4,
            lock: None,
            watchers: BTreeSet::new(),
            ears: BTreeMap::new(),
            marker: None,
            blocklist: BTreeSet::new(),
            clients: BTreeMap::new(),
            own: BTreeSet::new(),
            given_up: Vec::new(),
            record: None,
            writers: BTreeSet::new(),
            foreign: false,
            acquired: 0,
            wrong: Vec::new(),
        }
    }

    /// A client with a number that no other ever had.
    pub(super) fn connect(&mut self) -> i64 {
        let client = self.clients.len() as i64 + 1;
        self.clients.insert(client, Life::Alive);
        client
    }

    pub(super) fn life(&self, client: i64) -> Life {
        self.clients.get(&client).copied().unwrap_or(Life::Gone)
    }

    pub(super) fn is_refused(&self, client: i64) -> bool {
        self.blocklist.contains(&address(client))
    }

    /// True if what `client` sends may be carried out.
    pub(super) fn may_send(&self, client: i64) -> bool {
        self.life(client) == Life::Alive && !self.is_refused(client)
    }

    fn wrong(&mut self, why: impl Into<String>) {
        self.wrong.push(why.into());
    }

    /// Two clients that believe that they may write, and are not kept from it.
    pub(super) fn check_writers(&mut self) {
        let all: Vec<i64> = self.writers.iter().copied().filter(|w| self.may_send(*w)).collect();
        if all.len() > 1 {
            self.wrong(format!("two owners: {all:?}"));
        }
    }

    fn touch(&mut self) {
        self.stamp = None;
    }

    fn change(&mut self) {
        self.version += 3;
        self.stamp = None;
    }

    /// The lock is `client`'s: it tells all who watch the header.
    pub(super) fn give_lock(&mut self, client: i64) {
        self.lock = Some(holder(client));
        self.change();
        for (ear, came) in &mut self.ears {
            *came |= *ear != client;
        }
    }

    pub(super) fn is_locked_by(&self, client: i64) -> bool {
        self.lock.as_ref().is_some_and(|h| number(h) == client)
    }

    /// The lock goes back, if it is `client`'s.
    pub(super) fn let_go(&mut self, client: i64) {
        if self.is_locked_by(client) {
            self.lock = None;
            self.change();
        }
        self.writers.remove(&client);
    }

    pub(super) fn is_stranger(&self, client: i64) -> bool {
        !self.own.contains(&client)
    }

    /// Takes the lock as librbd does: one whose holder does not watch is broken, and its client refused. False: a living one has it.
    fn acquire(&mut self, client: i64, asks: bool) -> bool {
        if let Some(h) = self.lock.clone() {
            let other = number(&h);
            if other == client {
                return true;
            }
            if self.watchers.contains(&other) {
                // Owners of this program do not hand it over.
                if !asks || !self.is_stranger(other) || !self.may_send(other) {
                    return false;
                }
                self.let_go(other);
                if let Some(came) = self.ears.get_mut(&client) {
                    *came = true;
                }
            } else {
                self.blocklist.insert(address(other));
                self.lock = None;
                self.change();
            }
        }
        self.give_lock(client);
        true
    }

    /// A stranger acts.
    pub(super) fn act(&mut self, deed: Deed) {
        if deed == Deed::Write {
            let writers: Vec<i64> = self.writers.iter().copied().collect();
            self.foreign |= writers.iter().any(|w| self.is_stranger(*w) && self.may_send(*w));
            return;
        }
        let client = self.connect();
        self.watchers.insert(client);
        self.touch();
        if deed == Deed::Watch {
            return;
        }
        if deed == Deed::Steal {
            let holder = self.lock.as_ref().map(number);
            for other in self.watchers.iter().copied().chain(holder).filter(|o| *o != client) {
                self.blocklist.insert(address(other));
            }
            self.lock = None;
            self.marker = Some(marker("theirs", &identity().id));
        } else if self
            .lock
            .as_ref()
            .is_some_and(|h| self.watchers.contains(&number(h)) && number(h) != client)
        {
            self.watchers.remove(&client);
            return;
        }
        self.acquire(client, false);
        self.acquired += 1;
        self.foreign = true;
        self.writers.insert(client);
        self.check_writers();
        match deed {
            Deed::Visit => {
                self.let_go(client);
                self.watchers.remove(&client);
                self.touch();
                self.clients.insert(client, Life::Gone);
            }
            Deed::Die => {
                self.writers.remove(&client);
                self.clients.insert(client, Life::Gone);
            }
            Deed::Stay | Deed::Steal | Deed::Watch | Deed::Write => {}
        }
    }

    /// Time passes: strangers go, and OSDs forget clients that say nothing.
    pub(super) fn quiet(&mut self) {
        let strangers: Vec<i64> =
            self.watchers.iter().copied().filter(|w| self.is_stranger(*w) && self.may_send(*w)).collect();
        for client in strangers {
            if self.marker.is_none() || !self.is_locked_by(client) {
                self.let_go(client);
            }
            self.watchers.remove(&client);
            self.touch();
            self.writers.remove(&client);
            self.clients.insert(client, Life::Gone);
        }
        self.forget_the_silent();
    }

    /// The watches of clients that say nothing end: no change of the header.
    pub(super) fn forget_the_silent(&mut self) {
        let silent: Vec<i64> = self.clients.keys().copied().filter(|c| !self.may_send(*c)).collect();
        for client in silent {
            self.watchers.remove(&client);
            self.ears.remove(&client);
            self.writers.remove(&client);
        }
    }

    fn watcher(&self, client: i64) -> WatcherInfo {
        WatcherInfo { address: address(client), client, kernel: false, mirrors: false }
    }

    fn view(&self) -> ImageView {
        ImageView {
            identity: identity(),
            holder: self.lock.clone(),
            watchers: self
                .watchers
                .union(&self.ears.keys().copied().collect())
                .map(|c| self.watcher(*c))
                .collect(),
            mirrored: false,
            given_up: self.given_up.clone(),
        }
    }

    /// Carries `step` out for the attach that has `handles`.
    pub(super) fn carry_out(&mut self, handles: &mut Handles, step: &Step) -> Result<Answer, CephError> {
        if let Some(me) = handles.own
            && self.is_refused(me)
            && !is_end(step)
            && !matches!(step, Step::Note(_) | Step::NoteLost(..) | Step::ReadHeard)
        {
            return Err(CephError::call("asking an OSD", -libc::ESHUTDOWN));
        }
        let me = handles.own.unwrap_or_default();
        match step {
            Step::Connect(Client::Looking) => {
                let client = self.connect();
                handles.looking = Some(client);
                Ok(Answer::Connected(client))
            }
            Step::Connect(Client::Own) => {
                let client = self.connect();
                self.own.insert(client);
                handles.own = Some(client);
                Ok(Answer::Connected(client))
            }
            Step::Note(record) => {
                self.record = Some((**record).clone());
                Ok(Answer::Done)
            }
            Step::NoteLost(record, why) => {
                self.record = Some(LockRecord { lost: Some(Loss::now(why)), ..(**record).clone() });
                Ok(Answer::Done)
            }
            Step::OpenImage => {
                self.watchers.insert(me);
                self.touch();
                Ok(Answer::Done)
            }
            Step::WatchHeader(_) => {
                self.ears.insert(me, false);
                self.touch();
                Ok(Answer::Done)
            }
            Step::Blocklist(address) => {
                self.blocklist.insert(address.clone());
                Ok(Answer::Done)
            }
            Step::BreakLock(holder, stamp) => self.break_lock(holder, *stamp),
            Step::TakeLock => match self.acquire(me, true) {
                true => Ok(Answer::Locked(7)),
                false => Err(CephError::call("taking the lock", -libc::EROFS)),
            },
            Step::DropInheritedMarker => {
                let is_inherited = self.marker.as_ref().and_then(|m| AttachMarker::decode(m));
                if is_inherited.is_some_and(|m| !m.is_of(&identity())) {
                    self.marker = None;
                    self.change();
                }
                Ok(Answer::Done)
            }
            Step::OpenGate => {
                let record = LockRecord { version: Some(self.version), ..bare_record(me, self.seq) };
                Ok(Answer::Record(Box::new(record)))
            }
            Step::Adopt(_) | Step::Refresh | Step::TryWrite | Step::OpenPools => Ok(Answer::Done),
            step if is_end(step) => {
                self.end(handles, step);
                Ok(Answer::Done)
            }
            read => Ok(self.read(me, read)),
        }
    }

    fn break_lock(&mut self, holder: &LockHolder, stamp: i64) -> Result<Answer, CephError> {
        if self.lock.as_ref() != Some(holder) {
            return Err(CephError::call("breaking the lock", -libc::ENOENT));
        }
        self.lock = None;
        self.change();
        self.stamp = Some(stamp);
        Ok(Answer::Version(self.version))
    }

    fn read(&self, me: i64, step: &Step) -> Answer {
        match step {
            Step::ReadFeatures(_) => Answer::Features(crate::image::feature::EXCLUSIVE_LOCK, false),
            Step::ReadView(_) => Answer::View(Box::new(self.view())),
            Step::ReadMarker(_) => Answer::Marker(self.marker.clone()),
            Step::ReadHeader(_) => Answer::Header(self.seq, self.version),
            Step::ReadStamp(_, stamp) => Answer::Is(self.stamp == Some(*stamp)),
            Step::ReadSnapshots(_) => Answer::Snapshots(Vec::new()),
            Step::ReadOptions(_) | Step::ReadGrouping | Step::ReadFlags => Answer::Reasons(Vec::new()),
            Step::ReadSize => Answer::Number(1 << 30),
            Step::ReadWatchTimeout => Answer::Number(30),
            Step::ReadWatchers => Answer::Clients(self.view().watchers.iter().map(|w| w.client).collect()),
            Step::ReadHolder => Answer::Holder(self.lock.clone()),
            Step::ReadHeard => Answer::Is(self.is_refused(me) || self.ears.get(&me).copied().unwrap_or(true)),
            other => unreachable!("{other:?} reads nothing"),
        }
    }

    fn end(&mut self, handles: &mut Handles, step: &Step) {
        let me = handles.own.unwrap_or_default();
        let heard = self.may_send(me);
        match step {
            Step::CloseLooking => {
                let looking = handles.looking.take();
                self.clients.extend(looking.map(|l| (l, Life::Gone)));
            }
            Step::EndWatch if heard => {
                self.ears.remove(&me);
                self.touch();
            }
            Step::CloseImage | Step::Detach if heard => {
                self.let_go(me);
                self.watchers.remove(&me);
                self.touch();
            }
            Step::Retire if heard => {
                self.blocklist.insert(address(me));
                self.watchers.remove(&me);
            }
            Step::Leave => self.silence(handles),
            _ => {}
        }
        if matches!(step, Step::CloseClient | Step::Detach | Step::Retire) {
            self.clients.insert(me, Life::Gone);
            handles.own = None;
        }
    }

    /// The process ends, and nothing of it says goodbye.
    pub(super) fn end_process(&mut self) {
        self.given_up.clear();
        for (client, life) in &mut self.clients {
            if self.own.contains(client) {
                *life = Life::Gone;
                self.writers.remove(client);
            }
        }
    }

    /// The own client says nothing any more.
    pub(super) fn silence(&mut self, handles: &mut Handles) {
        if let Some(me) = handles.own.take() {
            self.clients.insert(me, Life::Silent);
            self.writers.remove(&me);
        }
    }
}

/// The steps that end something.
pub(super) fn is_end(step: &Step) -> bool {
    matches!(
        step,
        Step::CloseLooking
            | Step::EndWatch
            | Step::CloseImage
            | Step::CloseClient
            | Step::Leave
            | Step::Retire
            | Step::Detach
    )
}

/// A hold of `client`.
pub(super) fn bare_record(client: i64, seq: u64) -> LockRecord {
    LockRecord {
        holder: holder(client),
        seq,
        tried: None,
        broken: None,
        free_at: None,
        left_at: None,
        version: None,
        rests_at: None,
        suspect: false,
        lost: None,
    }
}
