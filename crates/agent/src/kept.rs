//! The values that were set of a volume by command, kept on the quorum LUN: the partner serves the volume with them.
//!
//! Each volume has two copies, which are written in turn. A write that is cut off leaves the other one.

use crate::config::VOLUMES;
use loligo_block::{Buf, crc32c};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The place of the first copy on the quorum LUN, bytes.
const FIRST: u64 = 2 << 20;
/// Bytes of a copy.
const COPY: usize = 64 << 10;
/// Bytes that the quorum LUN must have.
pub const QUORUM_BYTES: u64 = FIRST + 2 * VOLUMES as u64 * COPY as u64;

const MAGIC: [u8; 8] = *b"LoliKept";
const VERSION: u32 = 1;
/// Bytes before the text.
const HEAD: usize = 32;

/// Values of a volume that were set by command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The volume's name.
    pub name: String,
    /// The definition that the pair's file had then: an editor who changes it later means the file.
    pub instead_of: serde_json::Value,
    /// The mode that it was switched to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Tunables that were set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
}

/// The places of one volume.
#[derive(Debug, Clone)]
pub struct KeptPlace {
    quorum: PathBuf,
    id: u32,
}

impl KeptPlace {
    /// Those of the volume with the id `id`, on a path to the quorum LUN.
    pub fn new(quorum: &Path, id: u32) -> KeptPlace {
        KeptPlace { quorum: quorum.to_owned(), id }
    }

    /// The newest copy; nothing: none was ever written.
    ///
    /// # Errors
    /// If the LUN cannot be read, or it holds a copy of a later program.
    pub fn read(&self) -> io::Result<Option<Kept>> {
        Ok(self.newest()?.map(|(_, kept)| kept))
    }

    /// Writes a new copy over the older one. It is durable when this returns.
    ///
    /// # Errors
    /// If the LUN fails, or the values are too many for a copy.
    pub fn write(&self, kept: &Kept) -> io::Result<()> {
        let sequence = self.newest()?.map_or(1, |(last, _)| last + 1);
        let bytes = encode(sequence, kept)?;
        let file = crate::luns::direct(&self.quorum, OFlags::WRONLY | OFlags::DSYNC)?;
        match rustix::io::pwrite(&file, &bytes, self.place(sequence))? {
            COPY => Ok(()),
            _ => Err(io::Error::other("the quorum LUN took part of a write")),
        }
    }

    fn place(&self, sequence: u64) -> u64 {
        FIRST + (2 * u64::from(self.id) + sequence % 2) * COPY as u64
    }

    fn newest(&self) -> io::Result<Option<(u64, Kept)>> {
        let file = crate::luns::direct(&self.quorum, OFlags::RDONLY)?;
        let mut newest: Option<(u64, Kept)> = None;
        let mut damaged = 0;
        for turn in 0..2 {
            let mut bytes = Buf::zeroed(COPY);
            let read = rustix::io::pread(&file, &mut bytes[..], self.place(turn))?;
            let found = decode(&bytes[..read])?;
            damaged += u32::from(found.is_none() && bytes.iter().any(|byte| *byte != 0));
            newest = found.into_iter().chain(newest).max_by_key(|(sequence, _)| *sequence);
        }
        // The first write may have been cut off; a later one leaves the copy before it.
        if damaged == 2 {
            return Err(io::Error::other(format!(
                "both copies of the values set of volume {} are damaged on {quorum}: give them up with 'dd if=/dev/zero of={quorum} \
                 bs={COPY} seek={} count=2 conv=notrunc oflag=direct', and set them again",
                self.id,
                self.place(0) / COPY as u64,
                quorum = self.quorum.display()
            )));
        }
        Ok(newest)
    }
}

/// The bytes of a copy: magic, version, length of the text, sequence, checksum of all but itself, and the text.
fn encode(sequence: u64, kept: &Kept) -> io::Result<Buf> {
    let text = serde_json::to_vec(kept)?;
    if HEAD + text.len() > COPY {
        return Err(io::Error::other(format!("the values of {} do not fit in {COPY} bytes", kept.name)));
    }
    let mut bytes = Buf::zeroed(COPY);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(text.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
    bytes[HEAD..HEAD + text.len()].copy_from_slice(&text);
    let sum = crc32c(&bytes);
    bytes[24..28].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// The copy that `bytes` hold; nothing: none, or one that was cut off.
fn decode(bytes: &[u8]) -> io::Result<Option<(u64, Kept)>> {
    if bytes.len() != COPY || bytes[..8] != MAGIC {
        return Ok(None);
    }
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut plain = bytes.to_vec();
    plain[24..28].fill(0);
    if crc32c(&plain) != number(24) {
        return Ok(None);
    }
    if number(8) != VERSION {
        return Err(io::Error::other(format!(
            "the quorum LUN has values of a volume in version {}, which this program does not know: use that of the partner",
            number(8)
        )));
    }
    let text = bytes.get(HEAD..HEAD + number(12) as usize).unwrap_or_default();
    let sequence = u64::from(number(16)) | u64::from(number(20)) << 32;
    Ok(serde_json::from_slice(text).ok().map(|kept| (sequence, kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u32) -> (tempfile::NamedTempFile, KeptPlace) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(QUORUM_BYTES).unwrap();
        let place = KeptPlace::new(file.path(), id);
        (file, place)
    }

    fn kept(mode: &str) -> Kept {
        Kept { name: "vm1".to_owned(), mode: Some(mode.to_owned()), ..Kept::default() }
    }

    #[test]
    fn the_newest_copy_counts_and_a_damaged_one_does_not() {
        let (file, place) = place(63);
        assert_eq!(place.read().unwrap(), None);
        for mode in ["wb", "wt", "wo"] {
            place.write(&kept(mode)).unwrap();
            assert_eq!(place.read().unwrap(), Some(kept(mode)));
        }
        // The third write lies where the first one did.
        let at = place.place(3) + HEAD as u64 + 3;
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"?", at).unwrap();
        assert_eq!(place.read().unwrap(), Some(kept("wt")));
    }

    #[test]
    fn two_damaged_copies_are_refused_with_the_mend() {
        let (file, place) = place(2);
        let spoil = |sequence| {
            let at = place.place(sequence) + HEAD as u64;
            std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"?", at).unwrap();
        };
        place.write(&kept("wb")).unwrap();
        spoil(1);
        assert_eq!(place.read().unwrap(), None, "the first write was cut off");
        place.write(&kept("wt")).unwrap();
        place.write(&kept("wb")).unwrap();
        [0, 1].into_iter().for_each(spoil);
        let before = std::fs::read(file.path()).unwrap();
        let said = place.read().unwrap_err().to_string();
        assert!(said.contains("bs=65536 seek=36 count=2"), "{said}");
        assert!(place.write(&kept("wo")).is_err());
        assert!(std::fs::read(file.path()).unwrap() == before, "something was written");
    }

    #[test]
    fn volumes_have_places_of_their_own() {
        let (file, first) = place(0);
        let second = KeptPlace::new(file.path(), 1);
        first.write(&kept("wb")).unwrap();
        second.write(&kept("wt")).unwrap();
        second.write(&kept("wo")).unwrap();
        assert_eq!(first.read().unwrap(), Some(kept("wb")));
        assert_eq!(second.read().unwrap(), Some(kept("wo")));
    }

    #[test]
    fn a_flipped_byte_makes_no_copy_or_one_of_a_later_program() {
        let good = encode(7, &kept("wb")).unwrap();
        assert_eq!(decode(&good).unwrap(), Some((7, kept("wb"))));
        for at in (0..128).chain(COPY - 8..COPY) {
            let mut bytes = good.to_vec();
            bytes[at] ^= 0x20;
            assert_eq!(decode(&bytes).unwrap(), None, "byte {at}");
        }
        let mut later = good.to_vec();
        later[8] = 2;
        later[24..28].fill(0);
        let sum = crc32c(&later);
        later[24..28].copy_from_slice(&sum.to_le_bytes());
        assert!(decode(&later).unwrap_err().to_string().contains("version 2"));
    }
}
