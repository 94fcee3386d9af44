//! The persistent reservation of one LUN, without I/O: who is registered, who holds it, and who may write.
//!
//! The rules are those of SPC-5, section 5.14 (persistent reservations), as far as `IOC_PR_*` of Linux reaches them. Types
//! have the numbers of `<linux/pr.h>`, which are not SCSI's.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// One path of an initiator to the LUN, an I_T nexus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Port(pub u32);

/// The key that a port registers with; 0 stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(pub u64);

impl Key {
    /// No key.
    pub const NONE: Key = Key(0);
}

/// The type of a reservation, with its number in `<linux/pr.h>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The holder alone writes; everybody reads.
    WriteExclusive = 1,
    /// The holder alone reads and writes.
    ExclusiveAccess = 2,
    /// Registrants write; everybody reads. SCSI's type 5, and the pair's.
    WriteExclusiveRegistrants = 3,
    /// Registrants read and write. SCSI's type 6.
    ExclusiveAccessRegistrants = 4,
    /// As [`Kind::WriteExclusiveRegistrants`], and every registrant holds it.
    WriteExclusiveAll = 5,
    /// As [`Kind::ExclusiveAccessRegistrants`], and every registrant holds it.
    ExclusiveAccessAll = 6,
}

impl Kind {
    /// The type with this number of `<linux/pr.h>`.
    pub fn of(number: u32) -> Option<Kind> {
        [
            Kind::WriteExclusive,
            Kind::ExclusiveAccess,
            Kind::WriteExclusiveRegistrants,
            Kind::ExclusiveAccessRegistrants,
            Kind::WriteExclusiveAll,
            Kind::ExclusiveAccessAll,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }

    /// True if every registrant may do what the holder may.
    fn is_for_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// True if every registrant holds it.
    fn is_held_by_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// True if it also keeps others from reading.
    fn bars_reads(self) -> bool {
        matches!(self, Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll)
    }
}

/// A unit attention: the next command of a port fails once with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attention {
    /// 2Ah/03h: the reservation of the port went to another.
    ReservationsPreempted,
    /// 2Ah/04h: the reservation was released.
    ReservationsReleased,
    /// 2Ah/05h: the registration of the port was taken away.
    RegistrationsPreempted,
    /// 29h/00h: the array was switched on, or reset.
    PowerOn,
}

/// The reason why a command has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// RESERVATION CONFLICT, the return value 24 of `IOC_PR_*`; `EBADE` of a write.
    #[error("the reservation forbids it")]
    Conflict,
    /// ILLEGAL REQUEST: a release names another type than the reservation's, or a preemption no key.
    #[error("the request is not legal")]
    Illegal,
    /// UNIT ATTENTION: the same command may be tried again.
    #[error("something has changed for this path: {0:?}")]
    Attention(Attention),
}

/// A reservation that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The port that reserved or preempted. Of the types that all registrants hold it is the port that made it so.
    pub holder: Port,
    /// Its type.
    pub kind: Kind,
}

/// The effect of a preemption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    /// Ports whose registration it took away.
    pub victims: Vec<Port>,
    /// Those of them that held the reservation.
    pub holders: Vec<Port>,
}

/// The registrations and the reservation of one LUN.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservations {
    /// Each with its key.
    registered: BTreeMap<Port, Key>,
    held: Option<Held>,
    /// PRGENERATION: counts what changes registrations.
    generation: u32,
    /// They outlive a loss of power (APTPL), as the last registration asked.
    persistent: bool,
    attentions: BTreeMap<Port, Attention>,
}

impl Reservations {
    /// The registered keys with their ports, and the generation: READ KEYS.
    pub fn keys(&self) -> (u32, Vec<(Port, Key)>) {
        (self.generation, self.registered.iter().map(|(port, key)| (*port, *key)).collect())
    }

    /// The reservation with its holder's key, and the generation: READ RESERVATION.
    pub fn held(&self) -> (u32, Option<(Held, Key)>) {
        let key = |held: Held| match held.kind.is_held_by_all() {
            true => Key::NONE,
            false => self.key(held.holder),
        };
        (self.generation, self.held.map(|held| (held, key(held))))
    }

    /// The key of `port`.
    pub fn key(&self, port: Port) -> Key {
        self.registered.get(&port).copied().unwrap_or(Key::NONE)
    }

    /// True if `port` may write now.
    pub fn may_write(&self, port: Port) -> bool {
        self.held.is_none_or(|held| self.is_privileged(port, held))
    }

    /// True if `port` may read now.
    pub fn may_read(&self, port: Port) -> bool {
        self.held.is_none_or(|held| !held.kind.bars_reads() || self.is_privileged(port, held))
    }

    fn is_privileged(&self, port: Port, held: Held) -> bool {
        self.registered.contains_key(&port) && (held.holder == port || held.kind.is_for_registrants())
    }

    fn holds(&self, port: Port) -> bool {
        let is_held = |held: Held| held.holder == port || held.kind.is_held_by_all();
        self.registered.contains_key(&port) && self.held.is_some_and(is_held)
    }

    /// The unit attention that is due to `port`, which is told of it once.
    ///
    /// # Errors
    /// If there is one.
    pub fn attend(&mut self, port: Port) -> Result<(), Refusal> {
        self.attentions.remove(&port).map_or(Ok(()), |a| Err(Refusal::Attention(a)))
    }

    /// Registers `port` with `new`, or takes its registration away if that is [`Key::NONE`]. Unless `ignore`, `old` is the key
    /// that it has. The last registration says whether all of them outlive a loss of power.
    ///
    /// # Errors
    /// If `old` is another key.
    pub fn register(
        &mut self,
        port: Port,
        old: Key,
        new: Key,
        ignore: bool,
        persistent: bool,
    ) -> Result<(), Refusal> {
        if !ignore && old != self.key(port) {
            return Err(Refusal::Conflict);
        }
        self.persistent = persistent;
        if new != Key::NONE {
            self.registered.insert(port, new);
            self.generation = self.generation.wrapping_add(1);
        } else if self.registered.contains_key(&port) {
            self.generation = self.generation.wrapping_add(1);
            let held = self.held.filter(|_| self.holds(port));
            self.registered.remove(&port);
            // Of a type that all hold the last registrant releases it.
            if let Some(held) = held.filter(|h| !h.kind.is_held_by_all() || self.registered.is_empty()) {
                self.released(held.kind, port);
            }
        }
        Ok(())
    }

    /// Reserves for `port`.
    ///
    /// # Errors
    /// If it is not registered with `key`, or another reservation stands.
    pub fn reserve(&mut self, port: Port, key: Key, kind: Kind) -> Result<(), Refusal> {
        self.must_be(port, key)?;
        match self.held {
            None => self.held = Some(Held { holder: port, kind }),
            Some(held) if held.kind == kind && self.holds(port) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(())
    }

    /// Gives the reservation of `port` back; it stays registered. Nothing if it holds none.
    ///
    /// # Errors
    /// If it is not registered with `key`, or the reservation has another type.
    pub fn release(&mut self, port: Port, key: Key, kind: Kind) -> Result<(), Refusal> {
        self.must_be(port, key)?;
        let Some(held) = self.held.filter(|_| self.holds(port)) else { return Ok(()) };
        if held.kind != kind {
            return Err(Refusal::Illegal);
        }
        self.released(kind, port);
        Ok(())
    }

    /// Takes all registrations and the reservation away.
    ///
    /// # Errors
    /// If `port` is not registered with `key`.
    pub fn clear(&mut self, port: Port, key: Key) -> Result<(), Refusal> {
        self.must_be(port, key)?;
        self.generation = self.generation.wrapping_add(1);
        for other in self.registered.keys().filter(|p| **p != port) {
            self.attentions.insert(*other, Attention::ReservationsPreempted);
        }
        self.registered.clear();
        self.held = None;
        Ok(())
    }

    /// Takes the registrations with key `victim` away, and the reservation for `port` if one of these holds it. `port` itself
    /// keeps its registration. Writes that the array has taken already are not touched.
    ///
    /// # Errors
    /// If `port` is not registered with `key`, or nobody with `victim`.
    pub fn preempt(&mut self, port: Port, key: Key, victim: Key, kind: Kind) -> Result<Preempted, Refusal> {
        self.must_be(port, key)?;
        let all = self.held.is_some_and(|held| held.kind.is_held_by_all());
        if victim == Key::NONE && !all {
            return Err(Refusal::Illegal);
        }
        let is_victim = |p: Port, k: Key| p != port && (victim == Key::NONE || k == victim);
        let takes = match self.held {
            Some(_) if all => victim == Key::NONE,
            Some(held) => self.key(held.holder) == victim,
            None => false,
        };
        let of = self.registered.iter().filter(|(p, k)| is_victim(**p, **k));
        let victims: Vec<Port> = of.map(|(p, _)| *p).collect();
        if victims.is_empty() && !takes {
            return Err(Refusal::Conflict);
        }
        let holders: Vec<Port> = victims.iter().copied().filter(|p| self.holds(*p)).collect();
        self.generation = self.generation.wrapping_add(1);
        for gone in &victims {
            self.registered.remove(gone);
            self.attentions.insert(*gone, Attention::RegistrationsPreempted);
        }
        if takes {
            let was = self.held.replace(Held { holder: port, kind });
            if was.is_some_and(|was| was.kind != kind) {
                for other in self.registered.keys().filter(|p| **p != port) {
                    self.attentions.insert(*other, Attention::ReservationsReleased);
                }
            }
        }
        Ok(Preempted { victims, holders })
    }

    /// The array loses power, and has it again. `keeps`: it stores what is to be persistent.
    pub fn power_cycle(&mut self, keeps: bool) {
        let ports: Vec<Port> = self.registered.keys().copied().collect();
        if !(keeps && self.persistent) {
            self.registered.clear();
            self.held = None;
            self.persistent = false;
            self.generation = 0;
        }
        self.attentions.extend(ports.into_iter().map(|port| (port, Attention::PowerOn)));
    }

    /// # Errors
    /// If `port` is not registered with `key`.
    fn must_be(&self, port: Port, key: Key) -> Result<(), Refusal> {
        let is_it = self.registered.get(&port) == Some(&key);
        if is_it { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// The reservation ends by the deed of `by`. Registrants that lost a right with it are told.
    fn released(&mut self, kind: Kind, by: Port) {
        self.held = None;
        if kind.is_for_registrants() {
            for other in self.registered.keys().filter(|p| **p != by) {
                self.attentions.insert(*other, Attention::ReservationsReleased);
            }
        }
    }
}

#[cfg(test)]
mod tests;
