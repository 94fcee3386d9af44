//! The ways to a volume that a user can name: sockets, and the file in a FUSE mount.

use crate::listen::{ListenAddr, ListenError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:PATH`, `tcp:ADDR:PORT` or `fuse:MOUNTPOINT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// NBD over a socket.
    Socket(ListenAddr),
    /// A file in a folder.
    Fuse(PathBuf),
}

impl FromStr for Way {
    type Err = ListenError;

    fn from_str(s: &str) -> Result<Way, ListenError> {
        match s.strip_prefix("fuse:") {
            Some("") => {
                Err(ListenError::Address { given: s.to_owned(), why: "the folder is missing".to_owned() })
            }
            Some(path) => Ok(Way::Fuse(path.into())),
            None => s.parse().map(Way::Socket),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Socket(addr) => addr.fmt(f),
            Way::Fuse(path) => write!(f, "fuse:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_is_documented() {
        assert_eq!("fuse:/mnt/vol".parse::<Way>().unwrap(), Way::Fuse("/mnt/vol".into()));
        for written in ["fuse:/mnt/vol", "unix:/run/vol.sock", "tcp:127.0.0.1:10809"] {
            assert_eq!(written.parse::<Way>().unwrap().to_string(), written);
        }
        for bad in ["fuse:", "udp:1", ""] {
            assert!(bad.parse::<Way>().unwrap_err().to_string().contains("fuse:MOUNTPOINT"), "{bad}");
        }
    }
}
