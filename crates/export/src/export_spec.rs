//! The ways to a volume that a user can name: sockets, the file in a FUSE mount, and a block device.

use crate::listen::ListenError;
use crate::socket_spec::SocketSpec;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `unix:PATH`, `tcp:ADDR:PORT` (each with options of a [`SocketSpec`]), `fuse:MOUNTPOINT`, `block:NAME`, `ublk:NAME` or `loop:NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportSpec {
    /// NBD over a socket.
    Socket(SocketSpec),
    /// A file in a folder.
    Fuse(PathBuf),
    /// `/dev/loligo/NAME`, a block device of whichever of the next two kinds the kernel has.
    Block(String),
    /// The same as a device of the kernel's own, which outlives its service.
    Ublk(String),
    /// The same as a loop device over the file of a mount.
    Loop(String),
}

impl FromStr for ExportSpec {
    type Err = ListenError;

    fn from_str(s: &str) -> Result<ExportSpec, ListenError> {
        let missing = |what: &str| {
            Err(ListenError::Address { given: s.to_owned(), why: format!("the {what} is missing") })
        };
        let of_socket = |text: &str| {
            let key = text.split('=').next().unwrap_or_default();
            ["owner", "mode", "read-only"].contains(&key)
        };
        if let Some((kind @ ("fuse" | "block" | "ublk" | "loop"), rest)) = s.split_once(':')
            && rest.split_once('?').is_some_and(|(_, options)| options.split('&').any(of_socket))
        {
            let why = format!(
                "{kind}: is served for reading and writing; owner, mode and read-only are for unix: and tcp:"
            );
            return Err(ListenError::Address { given: s.to_owned(), why });
        }
        match s.split_once(':') {
            Some(("fuse", "")) => missing("folder"),
            Some(("fuse", path)) => Ok(ExportSpec::Fuse(path.into())),
            Some(("block" | "ublk" | "loop", "")) => missing("name"),
            Some((kind @ ("block" | "ublk" | "loop"), name)) => {
                let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                if name.len() > 64 || name.starts_with('.') || !name.chars().all(fits) {
                    let why = "a device is named by 1 to 64 letters, digits, dots, dashes and underscores, no dot first";
                    return Err(ListenError::Address { given: s.to_owned(), why: why.to_owned() });
                }
                let name = name.to_owned();
                Ok(match kind {
                    "block" => ExportSpec::Block(name),
                    "ublk" => ExportSpec::Ublk(name),
                    _ => ExportSpec::Loop(name),
                })
            }
            _ => s.parse().map(ExportSpec::Socket),
        }
    }
}

impl ExportSpec {
    /// The part that no two volumes can share: the way without its options.
    pub fn place(&self) -> String {
        match self {
            ExportSpec::Socket(spec) => spec.addr.to_string(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for ExportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportSpec::Socket(spec) => spec.fmt(f),
            ExportSpec::Fuse(path) => write!(f, "fuse:{}", path.display()),
            ExportSpec::Block(name) => write!(f, "block:{name}"),
            ExportSpec::Ublk(name) => write!(f, "ublk:{name}"),
            ExportSpec::Loop(name) => write!(f, "loop:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_is_documented() {
        assert_eq!("fuse:/mnt/vol".parse::<ExportSpec>().unwrap(), ExportSpec::Fuse("/mnt/vol".into()));
        assert_eq!("block:osd.0".parse::<ExportSpec>().unwrap(), ExportSpec::Block("osd.0".into()));
        assert_eq!("ublk:osd.3".parse::<ExportSpec>().unwrap(), ExportSpec::Ublk("osd.3".into()));
        assert_eq!("loop:osd.3".parse::<ExportSpec>().unwrap(), ExportSpec::Loop("osd.3".into()));
        let specs = [
            "fuse:/mnt/vol",
            "block:vol",
            "ublk:vol",
            "loop:vol",
            "unix:/run/vol.sock",
            "tcp:127.0.0.1:10809",
            "unix:/run/vol.sock?mode=0660&read-only",
        ];
        for written in specs {
            assert_eq!(written.parse::<ExportSpec>().unwrap().to_string(), written);
        }
        for bad in [
            "fuse:",
            "block:",
            "udp:1",
            "",
            "ublk:",
            "ublk:../x",
            "ublk:a/b",
            "loop:",
            "loop:.x",
            "block:a b",
            "fuse:/mnt/vol?read-only",
            "block:vol?read-only",
        ] {
            assert!(bad.parse::<ExportSpec>().unwrap_err().to_string().contains("fuse:MOUNTPOINT"), "{bad}");
        }
    }
}
