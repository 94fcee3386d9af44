//! The deeds that an attach asks for, and their answers.

use crate::identity::ImageIdentity;
use crate::image::{LockHolder, WatcherInfo};
use crate::lock_record::LockRecord;
use std::time::Duration;

/// The client of Ceph that carries a deed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// It only looks: it disturbs nobody, and gives up where nobody answers.
    Looking,
    /// It is to own the image: it waits for OSDs as long as it takes.
    Own,
}

/// One deed. The driver carries it out and brings the answer; the machine does neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Connects a client. The own one is known to who may give the attach up. Answer: its number.
    Connect(Client),
    /// Opens the image read-only. Answer: its features.
    ReadFeatures(Client),
    /// Reads identity, lock holder and watchers. Answer: a view.
    ReadView(Client),
    /// Reads the marker in the image's metadata. Answer: a marker.
    ReadMarker(Client),
    /// Reads snapshot sequence and version of the header. Answer: a header.
    ReadHeader(Client),
    /// Asks whether the last change of the header carries this stamp. Answer: yes or no.
    ReadStamp(Client, i64),
    /// Lists the snapshots. Answer: snapshots.
    ReadSnapshots(Client),
    /// Reads the options of the image. Answer: the reasons for which they exclude it as a core.
    ReadOptions(Client),
    /// Has an OSD carry out a write to the header that changes nothing.
    TryWrite,
    /// Writes the record down in the cache.
    Note(Box<LockRecord>),
    /// The same, with the loss of the image for this reason.
    NoteLost(Box<LockRecord>, &'static str),
    /// Opens the image to write it: librbd watches it from then on.
    OpenImage,
    /// Reads layout and data pool. Answer: the reasons against groups of writes.
    ReadGrouping,
    /// Reads the size. Answer: bytes.
    ReadSize,
    /// Reads the flags. Answer: warnings.
    ReadFlags,
    /// Asks after how many seconds OSDs forget a client. Answer: seconds.
    ReadWatchTimeout,
    /// Opens the pools of header and data, and what librbd's callbacks ring.
    OpenPools,
    /// Watches the header, to hear of others who take the lock. These clients may have it: they do not write.
    WatchHeader(Vec<i64>),
    /// Puts the client at this address on the blocklist.
    Blocklist(String),
    /// Breaks the lock and leaves the stamp. Answer: the header's version then.
    BreakLock(LockHolder, i64),
    /// Lists who watches the image. Answer: clients.
    ReadWatchers,
    /// Takes the lock. Answer: the time right before.
    TakeLock,
    /// Reads whose the lock is. Answer: a holder.
    ReadHolder,
    /// Asks the watch whether anybody took the lock, or the watch broke. Answer: yes or no.
    ReadHeard,
    /// Ends the watch of the header.
    EndWatch,
    /// Makes the image a core, and has librbd tell of snapshots and changes.
    Adopt(Box<Adoption>),
    /// Reads the snapshot context and uses it from then on.
    Refresh,
    /// Removes a marker that came with a clone or a copy.
    DropInheritedMarker,
    /// Lets writes pass. Answer: the record of this hold.
    OpenGate,
    /// Closes the looking client.
    CloseLooking,
    /// Closes the image: its watch ends, and a lock that it has goes back.
    CloseImage,
    /// Closes the own client.
    CloseClient,
    /// Silences the own client, and leaves it and what it has open to end with the process.
    Leave,
    /// Ends the attach of a cache with dirty data: the lock stays as that of a client on the blocklist.
    Retire,
    /// Ends the attach: the lock goes back.
    Detach,
}

/// The facts with which an image becomes a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adoption {
    pub(crate) identity: ImageIdentity,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) holder: LockHolder,
    /// The validity of a word that the image is ours.
    pub(crate) lease: Duration,
    /// Nanoseconds since boot: the lease runs from here.
    pub(crate) asked: u64,
    /// Nothing: dirty data goes out by object.
    pub(crate) why_librbd: Option<String>,
}

/// The answer to a step that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// The number of a client.
    Connected(i64),
    /// Feature bits, and whether the image is of the first format.
    Features(u64, bool),
    /// The clients that have the image.
    View(Box<ImageView>),
    /// A value of the metadata.
    Marker(Option<String>),
    /// The snapshot sequence and the version of the header.
    Header(u64, u64),
    /// Yes or no.
    Is(bool),
    /// Number and name of each snapshot.
    Snapshots(Vec<(u64, String)>),
    /// Sentences for the user.
    Reasons(Vec<String>),
    /// Bytes or seconds.
    Number(u64),
    /// The header's version after a change.
    Version(u64),
    /// Numbers of clients.
    Clients(Vec<i64>),
    /// Nanoseconds since boot, right before the lock was asked for.
    Locked(u64),
    /// The holder of the lock.
    Holder(Option<LockHolder>),
    /// The record of a hold.
    Record(Box<LockRecord>),
}

/// An image and who has it, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageView {
    pub(crate) identity: ImageIdentity,
    pub(crate) holder: Option<LockHolder>,
    pub(crate) watchers: Vec<WatcherInfo>,
    /// It is mirrored to another cluster.
    pub(crate) mirrored: bool,
    /// Clients of this process among them that were given up: they say nothing any more.
    pub(crate) given_up: Vec<i64>,
}

impl ImageView {
    /// The lock holder that is to lose it. A daemon that mirrors the image gives it up when asked, and goes on.
    pub(crate) fn owner(&self) -> Option<&LockHolder> {
        self.holder.as_ref().filter(|h| !h.mirrors(&self.watchers))
    }

    /// Clients that mirror the image.
    pub(crate) fn mirrors(&self) -> Vec<i64> {
        self.watchers.iter().filter(|w| w.mirrors).map(|w| w.client).collect()
    }

    /// True if one of `now` watches the image who did not by then, and is not `me`.
    pub(crate) fn is_joined_by(&self, now: &[i64], me: i64) -> bool {
        now.iter().any(|n| *n != me && !self.watchers.iter().any(|w| w.client == *n))
    }

    /// The addresses that go on the blocklist: everybody who has the image, but `me` and daemons that mirror it. A holder
    /// without a watch is dead, as librbd sees it too.
    pub(crate) fn to_blocklist(&self, me: i64) -> Vec<String> {
        let others = self.watchers.iter().filter(|w| w.client != me && !w.mirrors);
        let mut all: Vec<String> = others.map(|w| w.address.clone()).collect();
        all.extend(self.owner().map(|h| h.address.clone()));
        all.sort_unstable();
        all.dedup();
        all
    }
}
