//! The name of a share of a pool: `pool:PATH#CORE`.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// A core of a pool: its number, or the name it was attached with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoreName {
    /// 0 to 4095.
    Number(u16),
    /// As given when it was attached.
    Name(String),
}

impl std::str::FromStr for CoreName {
    type Err = String;
    fn from_str(text: &str) -> Result<CoreName, String> {
        match text.parse::<u16>() {
            Ok(n) => Ok(CoreName::Number(n)),
            Err(_) if text.is_empty() => Err("a core of a pool is a number (0 to 4095) or a name".to_owned()),
            Err(_) => Ok(CoreName::Name(text.to_owned())),
        }
    }
}

impl std::fmt::Display for CoreName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CoreName::Number(n) => write!(f, "{n}"),
            CoreName::Name(name) => f.write_str(name),
        }
    }
}

/// A share of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The pool's device.
    pub path: PathBuf,
    /// The core whose share it is.
    pub core: CoreName,
}

impl PoolSpec {
    /// The share of a pool that `cache` names; nothing if it names a device of its own.
    ///
    /// # Errors
    /// If it begins like one and is none.
    pub fn of(cache: &Path) -> Result<Option<PoolSpec>> {
        let Some(text) = cache.to_str().and_then(|t| t.strip_prefix("pool:")) else { return Ok(None) };
        match text.rsplit_once('#') {
            Some((path, core)) if !path.is_empty() && !core.is_empty() => {
                let core = core.parse().map_err(anyhow::Error::msg)?;
                Ok(Some(PoolSpec { path: PathBuf::from(path), core }))
            }
            _ => bail!("'pool:{text}' names no share: write pool:PATH#CORE, CORE being a number or a name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_with_a_number_or_name_names_a_share() {
        let of = |t: &str| PoolSpec::of(Path::new(t));
        let spec = |path: &str, core| Some(PoolSpec { path: path.into(), core });
        assert_eq!(of("pool:/dev/nvme0n1#7").unwrap(), spec("/dev/nvme0n1", CoreName::Number(7)));
        assert_eq!(of("pool:/a#b#osd.3").unwrap(), spec("/a#b", CoreName::Name("osd.3".into())));
        assert_eq!(of("/dev/nvme0n1").unwrap(), None);
        assert_eq!(of("./pool:x").unwrap(), None);
        for bad in ["pool:", "pool:/x", "pool:#3", "pool:/x#"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
