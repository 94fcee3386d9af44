//! Devices as users name them.

use crate::hdd::{HddDevice, HddParams, Rpm};
use crate::uring::{DevId, UringFile};
use crate::{AnyDevice, DeviceFile, IoError, IoKind, parse_size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The track length of a spinning disk whose spec does not give one, bytes.
const DEFAULT_TRACK: u64 = 1 << 20;

/// The place of a device's bytes, and its pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A file or block device: `file:PATH`, or the path alone.
    File(PathBuf),
    /// The spinning-disk model over one: `hdd:PATH?rpm=7200&track=1MiB`, both parameters optional.
    Hdd {
        /// The file or block device that holds the bytes.
        path: PathBuf,
        /// Spindle speed.
        rpm: Rpm,
        /// Bytes per track.
        track: u64,
    },
}

impl DeviceSpec {
    /// The file or device that holds the bytes.
    pub fn path(&self) -> &Path {
        match self {
            DeviceSpec::File(path) | DeviceSpec::Hdd { path, .. } => path,
        }
    }

    /// The device on an open file, as `id` on its thread's ring.
    pub fn device(&self, file: DeviceFile, id: DevId) -> AnyDevice {
        let below = AnyDevice::File(UringFile::new(file, id));
        match self {
            DeviceSpec::File(_) => below,
            DeviceSpec::Hdd { rpm, track, .. } => {
                AnyDevice::Hdd(Box::new(HddDevice::new(below, HddParams::preset(*rpm, *track))))
            }
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = IoError;

    fn from_str(text: &str) -> Result<DeviceSpec, IoError> {
        let bad =
            |why: String| IoError::new(IoKind::Invalid, format!("'{text}' does not name a device: {why}"));
        let non_empty = |path: &str| match path {
            "" => Err(bad(
                "the path is missing (file:PATH, hdd:PATH?rpm=7200&track=1MiB, or a path)".to_owned()
            )),
            path => Ok(PathBuf::from(path)),
        };
        if text.starts_with("rbd:") {
            return Err(bad("RBD images cannot be cores yet; use a disk, or a file".to_owned()));
        }
        let Some(hdd) = text.strip_prefix("hdd:") else {
            return non_empty(text.strip_prefix("file:").unwrap_or(text)).map(DeviceSpec::File);
        };
        let (path, query) = hdd.rsplit_once('?').unwrap_or((hdd, ""));
        let (mut rpm, mut track) = (Rpm::R7200, DEFAULT_TRACK);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("rpm", value)) => {
                    let known = value.parse().ok().and_then(Rpm::from_number);
                    rpm = known.ok_or_else(|| bad(format!("rpm={value}: 7200 and 10000 are modelled")))?;
                }
                Some(("track", value)) => {
                    track = parse_size(value)?;
                    if !(64 << 10..=64 << 20).contains(&track) || !track.is_multiple_of(4096) {
                        return Err(bad(format!("track={value}: from 64KiB to 64MiB in steps of 4KiB")));
                    }
                }
                _ => return Err(bad(format!("'{pair}': the parameters are rpm=NUMBER and track=SIZE"))),
            }
        }
        Ok(DeviceSpec::Hdd { path: non_empty(path)?, rpm, track })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_devices_and_modelled_disks_are_told_apart() {
        let parsed = |t: &str| t.parse::<DeviceSpec>().unwrap();
        assert_eq!(parsed("/dev/sdb"), DeviceSpec::File("/dev/sdb".into()));
        assert_eq!(parsed("file:a?b"), DeviceSpec::File("a?b".into()));
        let hdd = |rpm, track| DeviceSpec::Hdd { path: "/x y".into(), rpm, track };
        assert_eq!(parsed("hdd:/x y"), hdd(Rpm::R7200, 1 << 20));
        assert_eq!(parsed("hdd:/x y?rpm=10000"), hdd(Rpm::R10000, 1 << 20));
        assert_eq!(parsed("hdd:/x y?rpm=7200&track=512k"), hdd(Rpm::R7200, 512 << 10));
    }

    #[test]
    fn a_spec_that_is_wrong_is_refused_with_what_would_be_right() {
        for (text, mend) in [
            ("", "file:PATH"),
            ("hdd:?rpm=7200", "path is missing"),
            ("hdd:/x?rpm=5400", "10000"),
            ("hdd:/x?track=1", "64KiB"),
            ("hdd:/x?trak=1m", "track=SIZE"),
        ] {
            let said = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(said.contains(mend), "{said}");
        }
    }
}
