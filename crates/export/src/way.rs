//! The ways to a volume that a user can name: sockets, the file in a FUSE mount, and a block device.

use crate::listen::{ListenAddr, ListenError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:PATH`, `tcp:ADDR:PORT`, `fuse:MOUNTPOINT` or `block:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// NBD over a socket.
    Socket(ListenAddr),
    /// A file in a folder.
    Fuse(PathBuf),
    /// A block device under this name.
    Block(String),
}

impl FromStr for Way {
    type Err = ListenError;

    fn from_str(s: &str) -> Result<Way, ListenError> {
        let missing = |what: &str| {
            Err(ListenError::Address { given: s.to_owned(), why: format!("the {what} is missing") })
        };
        match s.split_once(':') {
            Some(("fuse", "")) => missing("folder"),
            Some(("fuse", path)) => Ok(Way::Fuse(path.into())),
            Some(("block", "")) => missing("name"),
            Some(("block", name)) => Ok(Way::Block(name.to_owned())),
            _ => s.parse().map(Way::Socket),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Socket(addr) => addr.fmt(f),
            Way::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Way::Block(name) => write!(f, "block:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_is_documented() {
        assert_eq!("fuse:/mnt/vol".parse::<Way>().unwrap(), Way::Fuse("/mnt/vol".into()));
        assert_eq!("block:osd.0".parse::<Way>().unwrap(), Way::Block("osd.0".into()));
        for written in ["fuse:/mnt/vol", "block:vol", "unix:/run/vol.sock", "tcp:127.0.0.1:10809"] {
            assert_eq!(written.parse::<Way>().unwrap().to_string(), written);
        }
        for bad in ["fuse:", "block:", "udp:1", ""] {
            assert!(bad.parse::<Way>().unwrap_err().to_string().contains("fuse:MOUNTPOINT"), "{bad}");
        }
    }
}
