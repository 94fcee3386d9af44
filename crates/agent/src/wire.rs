//! A heartbeat as bytes: signed, so that nobody else can keep a dead controller alive or call a living one stopped.

use loligo_pair::beat::Beat;
use loligo_pair::machine::RoleName;
use loligo_pair::plan::Side;
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;

/// Bytes of a heartbeat.
pub const BEAT: usize = 96;
/// Bytes of a sector on the quorum LUN: what an array writes whole.
pub const SECTOR: usize = 4096;

const MAGIC: [u8; 8] = *b"LoliBeat";
const VERSION: u16 = 1;
/// Bytes before the signature.
const SIGNED: usize = 64;
/// The age of a monitor's answer where there was none.
const NEVER: u64 = u64::MAX;

/// The reason why a heartbeat is none of this pair's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// It is of this version of the program.
    Version(u16),
    /// It is signed with another secret.
    Secret,
}

/// Writes and reads the heartbeats of one pair.
#[derive(Clone)]
pub struct Wire {
    key: PKey<Private>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// With the secret of the pair.
    ///
    /// # Panics
    /// If OpenSSL has no HMAC.
    pub fn new(secret: &[u8; 32]) -> Wire {
        Wire { key: PKey::hmac(secret).expect("OpenSSL has HMAC") }
    }

    fn sign(&self, bytes: &[u8]) -> [u8; BEAT - SIGNED] {
        let sign = || Signer::new(MessageDigest::sha256(), &self.key)?.sign_oneshot_to_vec(bytes);
        let signature = sign().expect("OpenSSL has SHA-256");
        signature.try_into().expect("SHA-256 gives 32 bytes")
    }

    /// The bytes of a heartbeat.
    ///
    /// | bytes | |
    /// |---|---|
    /// | 0..8 | magic `LoliBeat` |
    /// | 8..10 | version, little-endian as all numbers |
    /// | 10, 11, 12 | side, role, flags: 1 stopped, 2 granted, 4 reaches |
    /// | 16..24, 24..32 | run, number |
    /// | 32..40 | milliseconds since a monitor answered |
    /// | 40..44 | generation |
    /// | 48..56 | units that run |
    /// | 64..96 | HMAC-SHA-256 of what is before |
    pub fn encode(&self, beat: &Beat) -> [u8; BEAT] {
        let mut bytes = [0; BEAT];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = beat.side as u8;
        bytes[11] = beat.role as u8;
        bytes[12] = u8::from(beat.stopped) | u8::from(beat.granted) << 1 | u8::from(beat.reaches) << 2;
        bytes[16..24].copy_from_slice(&beat.run.to_le_bytes());
        bytes[24..32].copy_from_slice(&beat.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&beat.monitor_age.unwrap_or(NEVER).to_le_bytes());
        bytes[40..44].copy_from_slice(&beat.generation.to_le_bytes());
        bytes[48..56].copy_from_slice(&beat.running.to_le_bytes());
        let signature = self.sign(&bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(&signature);
        bytes
    }

    /// The reason why `bytes` hold a heartbeat that this side does not understand; nothing: they hold none, or one of its own.
    pub fn stranger(&self, bytes: &[u8]) -> Option<Stranger> {
        let head = bytes.get(..BEAT).filter(|head| head[..8] == MAGIC && self.decode(head).is_none())?;
        let version = u16::from_le_bytes([head[8], head[9]]);
        Some(if version == VERSION { Stranger::Secret } else { Stranger::Version(version) })
    }

    /// The heartbeat in `bytes`; nothing: they hold none of this pair and version.
    pub fn decode(&self, bytes: &[u8]) -> Option<Beat> {
        let bytes = bytes.get(..BEAT)?;
        if !openssl::memcmp::eq(&self.sign(&bytes[..SIGNED]), &bytes[SIGNED..]) {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..8] != MAGIC || bytes[8..10] != VERSION.to_le_bytes() {
            return None;
        }
        Some(Beat {
            side: *Side::BOTH.get(usize::from(bytes[10]))?,
            role: *RoleName::ALL.get(usize::from(bytes[11]))?,
            stopped: bytes[12] & 1 != 0,
            granted: bytes[12] & 2 != 0,
            reaches: bytes[12] & 4 != 0,
            run: number(16),
            number: number(24),
            monitor_age: Some(number(32)).filter(|age| *age != NEVER),
            generation: u32::from_le_bytes(bytes[40..44].try_into().expect("4 bytes")),
            running: number(48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat() -> Beat {
        Beat {
            side: Side::B,
            run: 7,
            number: 9,
            role: RoleName::Dual,
            monitor_age: Some(120),
            generation: 3,
            stopped: false,
            granted: true,
            reaches: true,
            running: 5,
        }
    }

    #[test]
    fn a_beat_comes_back_as_it_was() {
        let wire = Wire::new(&[1; 32]);
        for beat in [beat(), Beat { monitor_age: None, stopped: true, reaches: false, ..beat() }] {
            assert_eq!(wire.decode(&wire.encode(&beat)), Some(beat));
        }
    }

    #[test]
    fn a_changed_or_foreign_beat_is_none() {
        let wire = Wire::new(&[1; 32]);
        let bytes = wire.encode(&beat());
        for at in 0..BEAT {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(wire.decode(&changed), None, "byte {at}");
        }
        assert_eq!(Wire::new(&[2; 32]).decode(&bytes), None);
        assert_eq!(wire.decode(&bytes[..40]), None);
        assert_eq!(wire.decode(&[0; SECTOR]), None);
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(wire.stranger(&later), Some(Stranger::Version(2)));
        assert_eq!(Wire::new(&[2; 32]).stranger(&bytes), Some(Stranger::Secret));
        assert_eq!((wire.stranger(&bytes), wire.stranger(&[0; SECTOR])), (None, None));
    }
}
