//! The memory of a LUN beside its bytes: registrations and counters, which outlive the array's process as those of a real array
//! outlive its power (APTPL).
//!
//! The file has two places, which are written in turns, each whole with its checksum. A write that tears leaves the other place.

use anyhow::{Context, Result, ensure};
use loligo_block::crc32c;
use loligo_pair::lun::Counters;
use loligo_pair::reservation::Reservations;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"LOLI-LUN";
/// Version of the file.
const VERSION: u32 = 1;
/// Bytes of each of the two places.
const PLACE: u64 = 64 << 10;
/// Bytes before the text: magic, version, bytes of the text, sequence, checksum.
const HEAD: usize = 28;

/// What a LUN remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The names of the paths, in the order of their ports.
    pub(super) paths: Vec<String>,
    pub(super) reservations: Reservations,
    pub(super) counters: BTreeMap<String, Counters>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Keep {
    file: File,
    /// Of the newest place.
    sequence: u64,
}

impl Keep {
    /// The place of a LUN's memory, by the file with its bytes.
    pub(super) fn beside(backing: &Path) -> PathBuf {
        let mut name = backing.as_os_str().to_owned();
        name.push(".pr");
        name.into()
    }

    /// Opens or makes the memory at `path`, with what it holds; nothing of a new one.
    ///
    /// # Errors
    /// If it cannot be used, or neither place can be read.
    pub(super) fn open(path: &Path) -> Result<(Keep, Option<Memory>)> {
        let name = path.display();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("{name} cannot be opened"))?;
        let mut newest: Option<(u64, Memory)> = None;
        for place in [0, PLACE] {
            let mut raw = vec![0; PLACE as usize];
            let len = read_up_to(&file, &mut raw, place).with_context(|| format!("reading {name}"))?;
            let found = decode(&raw[..len]);
            newest = found.into_iter().chain(newest).max_by_key(|(sequence, _)| *sequence);
        }
        let empty = file.metadata().with_context(|| format!("{name} cannot be looked at"))?.len() == 0;
        ensure!(
            empty || newest.is_some(),
            "{name}: both copies of the LUN's registrations are damaged: remove the file to start without any"
        );
        let (sequence, memory) = newest.map_or((0, None), |(sequence, memory)| (sequence, Some(memory)));
        Ok((Keep { file, sequence }, memory))
    }

    /// Writes `memory`; `durably`: it is on the disk afterwards.
    ///
    /// # Errors
    /// If it cannot be written; what was written before stands then.
    pub(super) fn write(&mut self, memory: &Memory, durably: bool) -> io::Result<()> {
        let raw = encode(memory, self.sequence + 1)?;
        self.file.write_all_at(&raw, (self.sequence + 1) % 2 * PLACE)?;
        if durably {
            self.file.sync_data()?;
        }
        self.sequence += 1;
        Ok(())
    }
}

fn read_up_to(file: &File, raw: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < raw.len() {
        match file.read_at(&mut raw[len..], at + len as u64)? {
            0 => break,
            n => len += n,
        }
    }
    Ok(len)
}

fn encode(memory: &Memory, sequence: u64) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(memory)?;
    if text.len() > PLACE as usize - HEAD {
        return Err(io::Error::other("more registrations than the file has room for"));
    }
    let mut raw = MAGIC.to_vec();
    raw.extend(VERSION.to_le_bytes());
    raw.extend((text.len() as u32).to_le_bytes());
    raw.extend(sequence.to_le_bytes());
    let crc = crc32c(&[&raw[..], &text[..]].concat());
    raw.extend(crc.to_le_bytes());
    raw.extend(text);
    Ok(raw)
}

/// The sequence and the memory of a place; nothing where it is damaged, or of another version.
fn decode(raw: &[u8]) -> Option<(u64, Memory)> {
    let (head, rest) = raw.split_at_checked(HEAD)?;
    let number = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    if head[..8] != MAGIC || number(8)? != VERSION {
        return None;
    }
    let text = rest.get(..number(12)? as usize)?;
    let sequence = u64::from_le_bytes(head[16..24].try_into().ok()?);
    let is_whole = number(24)? == crc32c(&[&head[..24], text].concat());
    is_whole.then(|| serde_json::from_slice(text).ok().map(|memory| (sequence, memory))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_pair::reservation::{Key, Kind, Port};

    fn memory(written: u64) -> Memory {
        let mut reservations = Reservations::default();
        reservations.register(Port(0), Key::NONE, Key(7), false, true).unwrap();
        reservations.reserve(Port(0), Key(7), Kind::WriteExclusiveRegistrants).unwrap();
        let counters = BTreeMap::from([("a".to_owned(), Counters { written, ..Counters::default() })]);
        Memory { paths: vec!["a".to_owned()], reservations, counters }
    }

    #[test]
    fn the_newer_of_two_copies_is_read_and_a_torn_one_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = Keep::beside(&dir.path().join("lun"));
        let (mut keep, none) = Keep::open(&path).unwrap();
        assert_eq!(none, None);
        for written in 1..=3 {
            keep.write(&memory(written), true).unwrap();
        }
        assert_eq!(Keep::open(&path).unwrap().1, Some(memory(3)));
        // The third write went to the second place; it tears.
        keep.file.write_all_at(&[0xff; 9], PLACE + 60).unwrap();
        assert_eq!(Keep::open(&path).unwrap().1, Some(memory(2)));
        keep.file.write_all_at(&[0xff; 9], 60).unwrap();
        assert!(Keep::open(&path).unwrap_err().to_string().contains("both copies"));
    }

    #[test]
    fn every_flipped_bit_of_a_copy_is_seen() {
        let raw = encode(&memory(1), 9).unwrap();
        assert_eq!(decode(&raw), Some((9, memory(1))));
        for bit in 0..raw.len() * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }
}
