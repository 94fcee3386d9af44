//! Further copies of a store's label on the OSD's own device, where Ceph 19 and later look for one when that at byte 0 is gone.
//!
//! A store gets them when it is made there, or by a repair under `bluestore_bdev_label_multi_upgrade`. With them the raw device of an adopted
//! OSD shows whose it is, and they cannot be hidden: they lie in the midst of what the OSD writes. So such a store is not adopted, and of
//! one that has got them since it is said, loudly, each time that anybody looks.

use crate::devices::{BLUESTORE, bluestore_uuid};
use crate::place::Known;
use crate::raw;
use crate::wipe::look_at;
use anyhow::{Context, Result};
use loligo_block::SyncIo;
use loligo_log::say;
use std::path::Path;

/// The places where they are looked for.
const PLACES: [u64; 4] = [1 << 30, 10 << 30, 100 << 30, 1000 << 30];
/// Bytes of a copy.
const COPY: u64 = 4096;

/// The places where `dev` shows any.
pub(crate) fn on(dev: &mut dyn SyncIo) -> Result<Vec<u64>> {
    Ok(copies(dev, 0)?.into_iter().map(|(at, _)| at).collect())
}

/// The copies on a store that begins at byte `start` of `dev`: where each is, and the id of its OSD.
pub(crate) fn copies(dev: &mut dyn SyncIo, start: u64) -> Result<Vec<(u64, Option<String>)>> {
    let mut found = Vec::new();
    let size = dev.size();
    for at in PLACES.into_iter().map(|at| start + at).filter(|at| at + COPY <= size) {
        let mut copy = vec![0; COPY as usize];
        dev.read_at(at, &mut copy)?;
        if copy.starts_with(BLUESTORE) {
            found.push((at, bluestore_uuid(&copy)));
        }
    }
    Ok(found)
}

/// Writes zeros over them.
pub(crate) fn clear(dev: &mut dyn SyncIo, start: u64) -> Result<()> {
    for (at, _) in copies(dev, start)? {
        dev.write_at(at, &[0; COPY as usize])?;
    }
    Ok(dev.flush()?)
}

/// The same of the raw device at `path`, whoever has it.
fn at(path: &Path) -> Result<Vec<u64>> {
    look_at(path).and_then(|mut dev| on(&mut dev)).with_context(|| format!("looking at {}", path.display()))
}

/// The places where the raw device of an adopted OSD shows any. One that was prepared is looked for elsewhere: its content begins behind a label.
pub(crate) fn of(known: &Known) -> Vec<u64> {
    let found = known.place.adopted.as_ref().map(|_| raw::core_of(known).and_then(|core| at(&core)));
    // A device that cannot be read is somebody else's to complain of.
    found.and_then(Result::ok).unwrap_or_default()
}

/// The warning about an OSD that has some.
pub fn warning(id: u32, core: &str, found: &[u64]) -> Option<String> {
    let first = found.first()?;
    Some(format!(
        "{core} shows a copy of the store's label at byte {first} (bluestore_bdev_label_multi). A \
        program that looks for one finds osd.{id} on the raw device, and may start it without its \
        cache, which may hold data that the device lacks. Let nothing of ceph-volume's start it. Take \
        the cache away with 'loligo osd release {id}', or make the OSD anew with 'loligo osd remove \
        {id}' and 'loligo osd prepare': its copies are hidden then"
    ))
}

/// Says so, if there is anything to be said.
pub(crate) fn warn(known: &Known) {
    if let Some(text) = warning(known.place.id, &known.volume.definition.core, &of(known)) {
        say!("warning: {text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_copy_is_found_where_it_may_be_and_other_content_is_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write =
            |place: u64, bytes: &[u8]| file.as_file().write_all_at(bytes, place).expect("it can be written");
        file.as_file().set_len((10 << 30) + COPY).expect("holes");
        assert!(at(file.path()).expect("it can be read").is_empty());
        write(1 << 30, b"bluestore cookie\n");
        write(2 << 30, BLUESTORE);
        assert!(at(file.path()).expect("it can be read").is_empty());
        write(10 << 30, BLUESTORE);
        assert_eq!(at(file.path()).expect("it can be read"), [10 << 30]);
        write(1 << 30, BLUESTORE);
        assert_eq!(at(file.path()).expect("it can be read"), [1 << 30, 10 << 30]);
        let mut dev = crate::wipe::open_device(file.path()).expect("it opens");
        clear(&mut dev, 4096).expect("none begins there");
        assert_eq!(on(&mut dev).expect("it can be read"), [1 << 30, 10 << 30]);
        clear(&mut dev, 0).expect("cleared");
        assert!(on(&mut dev).expect("it can be read").is_empty());
        drop(dev);
        [1 << 30, 10 << 30].into_iter().for_each(|place| write(place, BLUESTORE));
        file.as_file().set_len((10 << 30) + COPY - 1).expect("shorter");
        assert_eq!(at(file.path()).expect("it can be read"), [1 << 30], "the other has no room any more");
        let said = warning(3, "/dev/sdb", &[1 << 30]).expect("there is one");
        assert!(said.contains("1073741824") && said.contains("loligo osd release 3"), "{said}");
        assert_eq!(warning(3, "/dev/sdb", &[]), None);
    }
}
