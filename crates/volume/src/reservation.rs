//! The reservation of an array that two controllers share. A lock of this host says nothing of the other one: the array's own word
//! says whose a device is.

mod holding;
mod word;

use crate::options::{CacheOptions, ReservationKey, ServeOptions};
use crate::pool::PoolSpec;
use anyhow::{Result, bail};
use loligo_block::keys::RESERVATION;
use loligo_block::{DeviceFile, keyed};
use loligo_pair::fence::{FenceError, Shown};
use loligo_pair::reservation::Key;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

pub(crate) use holding::Holding;
use word::{devices, holds, shown_of};

/// The time that an array has to say whose it is.
const LIMIT: Duration = Duration::from_secs(10);

/// Refuses to open what `o` names where it has a key, and an array does not say that this key holds it. Nothing is opened, read or
/// written for that but the array's answer.
///
/// # Errors
/// If another has an array, or it cannot be asked.
pub(crate) fn check(o: &ServeOptions) -> Result<()> {
    let Some(ReservationKey(mine)) = o.reservation else { return Ok(()) };
    for path in devices(o)? {
        refuse(&path, mine, look(&path))?;
    }
    Ok(())
}

/// Refuses a device on a shared array that is not reached by direct I/O: the page cache takes writes that the
/// array refuses later, and the kernel tells of a plain error then, or of none.
pub(crate) fn refuse_buffered(o: &ServeOptions, file: &DeviceFile) -> Result<()> {
    if o.reservation.is_none() || file.dio().is_some() {
        return Ok(());
    }
    bail!(keyed!(
        "{} takes no direct I/O, so that nobody would hear that the array refuses a write: lay it on a device that does, or leave \
         {RESERVATION} out",
        file.path().display()
    ))
}

/// True if the lock of the cache `c` says that nobody else has it: no array is seen to have keys for its device, or `o` has the key
/// that holds it, which was checked.
pub(crate) fn is_alone(o: &ServeOptions, c: &CacheOptions) -> bool {
    let pool = PoolSpec::of(&c.path).ok().flatten();
    match look(pool.as_ref().map_or(&c.path, |pool| &pool.path)) {
        _ if o.reservation.is_some() => true,
        Ok(Some(shown)) => shown.keys.is_empty(),
        Err(FenceError::TimedOut { .. }) => false,
        // Most devices have none, and say so in many ways.
        Ok(None) | Err(_) => true,
    }
}

/// Keys and holder of a device by its array; nothing: it has none that can be seen.
fn look(path: &Path) -> Result<Option<Shown>, FenceError> {
    let (send, answer) = channel();
    let at = path.to_owned();
    let ask = move || drop(send.send(shown_of(&at)));
    let lun = path.display().to_string();
    // One that does not answer is left behind with its thread.
    let asked = std::thread::Builder::new().name("reservation".to_owned()).spawn(ask);
    if let Err(why) = asked {
        return Err(FenceError::Io { lun, why });
    }
    match answer.recv_timeout(LIMIT) {
        Ok(Ok(shown)) => Ok(Some(shown)),
        Ok(Err(why)) if has_none(&why) => Ok(None),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(FenceError::TimedOut { lun, limit: LIMIT }),
    }
}

/// A file that nobody models has no such attribute.
fn has_none(why: &FenceError) -> bool {
    match why {
        FenceError::Unsupported { .. } => true,
        FenceError::Io { why, .. } => why.raw_os_error() == Some(libc::ENODATA),
        _ => false,
    }
}

fn refuse(path: &Path, mine: Key, shown: Result<Option<Shown>, FenceError>) -> Result<()> {
    let path = path.display();
    let why = match shown {
        Ok(Some(shown)) => match holds(mine, &shown) {
            Ok(()) => return Ok(()),
            Err(why) => why,
        },
        Ok(None) => "it has no reservation that can be read".to_owned(),
        Err(why) => why.to_string(),
    };
    bail!(keyed!(
        "{path} is not opened: by its array it is not this controller's ({why}). Take it over, or have it given back, so that the array \
         says so; without {RESERVATION} a device is taken for this host's alone"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_pair::fence::KIND;
    use loligo_pair::reservation::Kind;

    fn shown(keys: &[u64], held: Option<(u64, Kind)>) -> Result<Option<Shown>, FenceError> {
        let keys = keys.iter().map(|k| Key(*k)).collect();
        Ok(Some(Shown { generation: 1, keys, held: held.map(|(key, kind)| (Key(key), kind)) }))
    }

    #[test]
    fn only_the_holder_opens_a_device() {
        let says = |shown| refuse(Path::new("/lun"), Key(0xa), shown).map_err(|why| why.to_string());
        assert_eq!(says(shown(&[0xa, 0xb], Some((0xa, KIND)))), Ok(()), "a partner may be registered");
        for (shown, why) in [
            (shown(&[0xa, 0xb], Some((0xb, KIND))), "key 0xb holds it, and this controller's is 0xa"),
            (shown(&[0xb], Some((0xb, KIND))), "key 0xb holds it"),
            (shown(&[0xa], None), "nobody holds it"),
            (shown(&[0xa], Some((0xa, Kind::WriteExclusiveAll))), "WriteExclusiveAll"),
            (Ok(None), "no reservation that can be read"),
            (Err(FenceError::TimedOut { lun: "/lun".into(), limit: LIMIT }), "no answer in 10 s"),
        ] {
            let said = says(shown).unwrap_err();
            assert!(said.contains(why) && said.contains("Take it over"), "{said}");
        }
    }

    #[test]
    fn a_plain_file_has_no_reservation() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(look(file.path()).is_ok_and(|shown| shown.is_none()));
    }
}
