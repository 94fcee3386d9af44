//! LUNs and paths, as they are typed.

use loligo_block::parse_size;
use std::path::PathBuf;

/// The name of the file on each mount of an array with one LUN that nobody named.
pub const LUN: &str = "lun";

/// A path to the LUNs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSpec {
    /// Its name, for counters.
    pub name: String,
    /// The empty folder that it is mounted on.
    pub mountpoint: PathBuf,
}

impl std::str::FromStr for PathSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<PathSpec, String> {
        let (name, place) = text.split_once('=').ok_or("write NAME=MOUNTPOINT")?;
        match name.is_empty() || place.is_empty() {
            true => Err("write NAME=MOUNTPOINT".to_owned()),
            false => Ok(PathSpec { name: name.to_owned(), mountpoint: place.into() }),
        }
    }
}

/// A LUN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LunSpec {
    /// The name of its file on each mount.
    pub name: String,
    /// The file with its bytes.
    pub backing: PathBuf,
    /// Bytes of that file, if it is to be made.
    pub size: Option<u64>,
}

impl std::str::FromStr for LunSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<LunSpec, String> {
        const WRITE: &str = "write NAME=FILE or NAME=FILE:SIZE";
        let (name, rest) = text.split_once('=').ok_or(WRITE)?;
        if name.is_empty() || name.contains('/') || name.starts_with('.') || rest.is_empty() {
            return Err(WRITE.to_owned());
        }
        // A name of a file may hold a colon; only what follows the last one can be a size.
        let sized = rest.rsplit_once(':').and_then(|(file, size)| Some((file, parse_size(size).ok()?)));
        let (backing, size) = sized.map_or((rest, None), |(file, size)| (file, Some(size)));
        Ok(LunSpec { name: name.to_owned(), backing: backing.into(), size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lun_is_a_name_a_file_and_perhaps_a_size() {
        let lun = |text: &str| text.parse::<LunSpec>();
        let of =
            |name: &str, backing: &str, size| LunSpec { name: name.into(), backing: backing.into(), size };
        assert_eq!(lun("osd0=/x/osd0:3g"), Ok(of("osd0", "/x/osd0", Some(3 << 30))));
        assert_eq!(lun("q=/x/q"), Ok(of("q", "/x/q", None)));
        assert_eq!(lun("q=/x/a:b"), Ok(of("q", "/x/a:b", None)));
        for bad in ["q", "=/x", "q=", "a/b=/x", ".=/x"] {
            assert!(lun(bad).is_err(), "{bad}");
        }
    }
}
