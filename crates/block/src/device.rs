//! The seam between an engine and what stores its bytes.
//!
//! One thread owns a [`Ring`] and any number of devices. Its loop is:
//!
//! 1. `device.submit(&mut ring, now, op)` for everything there is to do (no system call happens here);
//! 2. `ring.submit_and_wait(want, timeout)`, one system call for all devices, the timeout being the least of
//!    [`Device::next_deadline`];
//! 3. `ring.reap(|foreign| …)`, which sorts completions by device and hands over those that are not device I/O
//!    (sockets, event descriptors);
//! 4. `device.poll(&mut ring, now, &mut out)` for each device, which takes its completions.
//!
//! Devices that keep their bytes in memory ignore the ring; layers pass it down, so a stack of layers over a file
//! shares the ring with everything else. `now` is nanoseconds on a clock that never steps back; its origin is the
//! caller's choice, which is what lets the same code run in virtual time.

use crate::file::DeviceFile;
use crate::hdd::HddDevice;
use crate::mapped::MappedDevice;
use crate::masked_head::MaskedDevice;
use crate::mirror::MirroredDevice;
use crate::uring::{Ring, UringFile};
use crate::{Completion, Geometry, Op, Submit};

/// An asynchronous block device with one owner.
///
/// Tags of operations in flight on one device must differ. Operations in flight are not ordered: a write that must
/// come after another is submitted after the other's completion.
pub trait Device {
    /// Size and traits.
    fn geometry(&self) -> Geometry;
    /// Starts `op`. An operation outside the device, or not on sectors, finishes at once with an error.
    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit;
    /// Appends what has completed by `now` (after [`Ring::reap`]).
    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>);
    /// The time, in nanoseconds on the clock of `now`, at which `poll` should be called at the latest even if
    /// the ring is silent.
    fn next_deadline(&self) -> Option<u64>;
    /// Operations taken and not yet handed out by `poll`.
    fn in_flight(&self) -> usize;
}

/// The devices a thread owns, by kind, without a virtual call on the common ones.
pub enum AnyDevice {
    /// A file or raw block device.
    File(UringFile),
    /// Some extents of one.
    Mapped(Box<MappedDevice<UringFile>>),
    /// Two of them, with the same content.
    Mirrored(Box<MirroredDevice>),
    /// The spinning-disk model over another device.
    Hdd(Box<HddDevice<AnyDevice>>),
    /// A device whose first block is masked.
    Masked(Box<MaskedDevice<AnyDevice>>),
    /// Any other device, usually a stack of layers.
    Other(Box<dyn Device + Send>),
}

impl AnyDevice {
    /// The open file at the bottom, if there is one that can be reached.
    pub fn file(&self) -> Option<&DeviceFile> {
        match self {
            AnyDevice::File(d) => Some(d.file()),
            AnyDevice::Hdd(d) => d.inner().file(),
            AnyDevice::Masked(d) => d.inner().file(),
            AnyDevice::Mapped(_) | AnyDevice::Mirrored(_) | AnyDevice::Other(_) => None,
        }
    }
}

impl std::fmt::Debug for AnyDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnyDevice::File(d) => d.fmt(f),
            AnyDevice::Mapped(d) => d.fmt(f),
            AnyDevice::Mirrored(d) => d.fmt(f),
            AnyDevice::Hdd(d) => d.fmt(f),
            AnyDevice::Masked(d) => d.fmt(f),
            AnyDevice::Other(d) => write!(f, "Other({:?})", d.geometry()),
        }
    }
}

macro_rules! each {
    ($self:ident, $d:ident => $e:expr) => {
        match $self {
            AnyDevice::File($d) => $e,
            AnyDevice::Mapped($d) => $e,
            AnyDevice::Mirrored($d) => $e,
            AnyDevice::Hdd($d) => $e,
            AnyDevice::Masked($d) => $e,
            AnyDevice::Other($d) => $e,
        }
    };
}

impl Device for AnyDevice {
    fn geometry(&self) -> Geometry {
        each!(self, d => d.geometry())
    }
    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        each!(self, d => d.submit(ring, now, op))
    }
    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        each!(self, d => d.poll(ring, now, out))
    }
    fn next_deadline(&self) -> Option<u64> {
        each!(self, d => d.next_deadline())
    }
    fn in_flight(&self) -> usize {
        each!(self, d => d.in_flight())
    }
}
