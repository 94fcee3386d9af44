//! The model of one LUN of an array: its reservation and its writes under way, with counters that say whether a fence held.
//!
//! It does no I/O. An array process answers a block device's own calls by it; the simulator drives it by events. Arrays have
//! defects (measured on LIO and nvmet); each can be switched on.

use crate::reservation::{Held, Key, Kind, Port, Refusal, Reservations};
use crate::writes::{AbortId, Ticket, Writes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A command of a port, as `IOC_PR_*` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// `IOC_PR_REGISTER`.
    Register {
        /// The key that the port has.
        old: Key,
        /// The key that it is to have.
        new: Key,
        /// `PR_FL_IGNORE_KEY`: whatever key it has.
        ignore: bool,
        /// Registrations outlive a loss of power (APTPL). Linux asks for it with each registration.
        persistent: bool,
    },
    /// `IOC_PR_RESERVE`.
    Reserve {
        /// The port's key.
        key: Key,
        /// The type.
        kind: Kind,
    },
    /// `IOC_PR_RELEASE`.
    Release {
        /// The port's key.
        key: Key,
        /// The type.
        kind: Kind,
    },
    /// `IOC_PR_PREEMPT` and `IOC_PR_PREEMPT_ABORT`.
    Preempt {
        /// The port's key: `old_key` of the call.
        key: Key,
        /// The victim's: `new_key` of the call.
        victim: Key,
        /// The type.
        kind: Kind,
        /// Writes of the victim that the array has taken are reached too.
        abort: bool,
    },
    /// `IOC_PR_CLEAR`.
    Clear {
        /// The port's key.
        key: Key,
    },
}

/// The answer to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It is done, or refused.
    Now(Result<(), Refusal>),
    /// It is done once this abort is over ([`Lun::end_write`]).
    After(AbortId),
}

/// Defects of arrays. By default there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Defects {
    /// An abort reaches the writes of a victim that held the reservation, and no others (LIO on 6.12 and 7.2).
    pub abort_misses_registrants: bool,
    /// A preemption by the holder answers success and leaves the victim registered (nvmet on 7.2).
    pub preempts_without_effect: bool,
    /// Registrations are lost with the power, whatever was asked (no APTPL).
    pub forgets_at_power_cycle: bool,
    /// Keys and holder are kept and shown, and no write is refused for them.
    pub refuses_no_write: bool,
}

/// Writes of one port, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Writes that ended well while the port was allowed to write, or before the fence against it was answered.
    pub written: u64,
    /// Writes that were refused or cancelled (`EBADE`).
    pub rejected: u64,
    /// Writes that reached the medium while the port was not allowed to write, and no fence waited for them: late writes.
    pub landed: u64,
}

/// One LUN.
#[derive(Debug, Clone, Default)]
pub struct Lun {
    reservations: Reservations,
    writes: Writes,
    counters: BTreeMap<Port, Counters>,
    defects: Defects,
}

impl Lun {
    /// A LUN with these registrations, as they were stored, and these defects.
    pub fn new(reservations: Reservations, defects: Defects) -> Lun {
        Lun { reservations, defects, ..Lun::default() }
    }

    /// The same with these counters, as they were stored.
    #[must_use]
    pub fn with_counters(self, counters: BTreeMap<Port, Counters>) -> Lun {
        Lun { counters, ..self }
    }

    /// The registrations and the reservation, to be stored or read.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The counters of `port`.
    pub fn counters(&self, port: Port) -> Counters {
        self.counters.get(&port).copied().unwrap_or_default()
    }

    /// READ RESERVATION of `port`: the reservation with its holder's key.
    ///
    /// # Errors
    /// If a unit attention is due.
    pub fn read_reservation(&mut self, port: Port) -> Result<Option<(Held, Key)>, Refusal> {
        self.reservations.attend(port)?;
        Ok(self.reservations.held().1)
    }

    /// READ KEYS of `port`, one key for each registration.
    ///
    /// # Errors
    /// If a unit attention is due.
    pub fn read_keys(&mut self, port: Port) -> Result<Vec<Key>, Refusal> {
        self.reservations.attend(port)?;
        Ok(self.reservations.keys().1.into_iter().map(|(_, key)| key).collect())
    }

    /// Carries `command` of `port` out.
    pub fn command(&mut self, port: Port, command: Command) -> Reply {
        if let Err(why) = self.reservations.attend(port) {
            return Reply::Now(Err(why));
        }
        Reply::Now(match command {
            Command::Register { old, new, ignore, persistent } => {
                self.reservations.register(port, old, new, ignore, persistent)
            }
            Command::Reserve { key, kind } => self.reservations.reserve(port, key, kind),
            Command::Release { key, kind } => self.reservations.release(port, key, kind),
            Command::Clear { key } => self.reservations.clear(port, key),
            Command::Preempt { key, victim, kind, abort } => {
                return self.preempt(port, (key, victim), kind, abort);
            }
        })
    }

    fn preempt(&mut self, port: Port, (key, victim): (Key, Key), kind: Kind, abort: bool) -> Reply {
        let by_holder = self.reservations.held().1.is_some_and(|(held, _)| held.holder == port);
        if self.defects.preempts_without_effect && by_holder && self.reservations.key(port) == key {
            return Reply::Now(Ok(()));
        }
        let done = match self.reservations.preempt(port, key, victim, kind) {
            Ok(done) => done,
            Err(why) => return Reply::Now(Err(why)),
        };
        let reached = if self.defects.abort_misses_registrants { done.holders } else { done.victims };
        let waits = if abort { self.writes.abort(&reached) } else { None };
        waits.map_or(Reply::Now(Ok(())), Reply::After)
    }

    /// Takes a write of `port`, or a discard.
    ///
    /// # Errors
    /// If the reservation forbids it.
    pub fn take_write(&mut self, port: Port) -> Result<Ticket, Refusal> {
        if !self.lets_write(port) {
            self.of(port).rejected += 1;
            return Err(Refusal::Conflict);
        }
        Ok(self.writes.take(port))
    }

    /// Begins a write that was taken, which may have waited: its bytes go to the medium from now on. One that is refused here is
    /// over; the aborts that this ends are told.
    ///
    /// # Errors
    /// If an abort has cancelled it, or the reservation forbids it by now.
    pub fn begin_write(&mut self, ticket: Ticket) -> Result<(), (Refusal, Vec<AbortId>)> {
        let port = self.writes.port(ticket);
        let may = port.is_some_and(|port| self.lets_write(port));
        if may && self.writes.begin(ticket) {
            return Ok(());
        }
        if let Some(port) = port {
            self.of(port).rejected += 1;
        }
        Err((Refusal::Conflict, self.writes.end(ticket)))
    }

    /// True if a write of `port` is not refused.
    pub fn lets_write(&self, port: Port) -> bool {
        self.defects.refuses_no_write || self.reservations.may_write(port)
    }

    /// True if a write that was taken has not ended, and the array has not lost its power since.
    pub fn is_under_way(&self, ticket: Ticket) -> bool {
        self.port(ticket).is_some()
    }

    /// The port of a write that is under way.
    pub fn port(&self, ticket: Ticket) -> Option<Port> {
        self.writes.port(ticket)
    }

    /// Ends a write that began: its bytes are on the medium. The aborts that are over by this; `None`: the array has lost its
    /// power meanwhile, and the write is not acknowledged.
    pub fn end_write(&mut self, ticket: Ticket) -> Option<Vec<AbortId>> {
        let port = self.writes.port(ticket)?;
        let in_time = self.reservations.may_write(port) || self.writes.is_waited_for(ticket);
        let counters = self.of(port);
        *(if in_time { &mut counters.written } else { &mut counters.landed }) += 1;
        Some(self.writes.end(ticket))
    }

    /// The array loses power, and has it again. Writes under way are neither ended nor acknowledged. The aborts whose callers
    /// get no answer.
    pub fn power_cycle(&mut self) -> Vec<AbortId> {
        self.reservations.power_cycle(!self.defects.forgets_at_power_cycle);
        self.writes.power_cycle()
    }

    fn of(&mut self, port: Port) -> &mut Counters {
        self.counters.entry(port).or_default()
    }
}

#[cfg(test)]
mod tests;
