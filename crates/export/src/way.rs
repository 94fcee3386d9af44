//! The ways to a volume that a user can name: sockets, the file in a FUSE mount, and a block device.

use crate::listen::{ListenAddr, ListenError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:PATH`, `tcp:ADDR:PORT`, `fuse:MOUNTPOINT` or `ublk:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// NBD over a socket.
    Socket(ListenAddr),
    /// A file in a folder.
    Fuse(PathBuf),
    /// `/dev/loligo/NAME`, a block device of the kernel.
    Ublk(String),
}

impl FromStr for Way {
    type Err = ListenError;

    fn from_str(s: &str) -> Result<Way, ListenError> {
        if let Some(name) = s.strip_prefix("ublk:") {
            let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
                let why = "a device is named by 1 to 64 letters, digits, dots, dashes and underscores, no dot first";
                return Err(ListenError::Address { given: s.to_owned(), why: why.to_owned() });
            }
            return Ok(Way::Ublk(name.to_owned()));
        }
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
            Way::Ublk(name) => write!(f, "ublk:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_is_documented() {
        assert_eq!("fuse:/mnt/vol".parse::<Way>().unwrap(), Way::Fuse("/mnt/vol".into()));
        assert_eq!("ublk:osd.3".parse::<Way>().unwrap(), Way::Ublk("osd.3".into()));
        for written in ["fuse:/mnt/vol", "ublk:vol", "unix:/run/vol.sock", "tcp:127.0.0.1:10809"] {
            assert_eq!(written.parse::<Way>().unwrap().to_string(), written);
        }
        for bad in ["fuse:", "udp:1", "", "ublk:", "ublk:../x", "ublk:a/b"] {
            assert!(bad.parse::<Way>().unwrap_err().to_string().contains("fuse:MOUNTPOINT"), "{bad}");
        }
    }
}
