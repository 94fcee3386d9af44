//! The kernel's list of mounts.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The list of this process.
pub const LIST: &str = "/proc/self/mountinfo";

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The file system's own number, as `8:1`.
    pub device: String,
    /// Its mountpoint.
    pub at: PathBuf,
    /// Its type.
    pub kind: String,
    /// Its own name: of a disk's the node.
    pub source: String,
}

/// All mounts, in the order of mounting: of two at one place the later hides the earlier.
///
/// # Errors
/// If the kernel shows no list.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(LIST)?))
}

/// Reads a list. A line that is none is passed over: one odd name hides no other mount.
pub fn parse(list: &[u8]) -> Vec<Mount> {
    list.split(|b| *b == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|b| *b == b' ');
    let text = |raw: &[u8]| String::from_utf8_lossy(&unescaped(raw)).into_owned();
    let device = text(words.nth(2)?);
    let at = OsString::from_vec(unescaped(words.nth(1)?)).into();
    // Some optional fields, closed by a dash, precede these two.
    let mut rest = words.skip_while(|w| *w != b"-").skip(1);
    Some(Mount { device, at, kind: text(rest.next()?), source: text(rest.next()?) })
}

/// The mount that `path` lies in, which is absolute and has no links.
pub fn around<'a>(all: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // The later of two maxima.
    all.iter().filter(|m| path.starts_with(&m.at)).max_by_key(|m| m.at.as_os_str().len())
}

/// The mount on `path` itself that is seen.
pub fn on<'a>(all: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    all.iter().rfind(|m| m.at == path)
}

/// The kernel writes blanks and the like as three octal digits after a backslash.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let digits = raw.get(at + 1..at + 4).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| raw[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(raw[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_and_innermost_mounts_are_found() {
        let list = b"22 1 254:0 / / rw shared:1 - ext4 /dev/root rw\n\
            31 22 0:45 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse loligo:vol rw,user_id=0\n\
            no mount\n33 22 0:47 / /mnt/\xff rw - xfs /dev/x rw\n\
            32 31 0:46 / /mnt/a\\040b rw - tmpfs none rw\n";
        let all = parse(list);
        let top = on(&all, Path::new("/mnt/a b")).expect("mounted");
        assert_eq!((&top.device[..], &top.kind[..], &top.source[..]), ("0:46", "tmpfs", "none"));
        assert_eq!(on(&all, Path::new("/")).expect("the root").source, "/dev/root");
        assert_eq!(on(&all, Path::new("/mnt")), None);
        assert_eq!(around(&all, Path::new("/mnt/a b/c")), Some(top));
        assert_eq!(around(&all, Path::new("/mnt/a")).expect("the root").kind, "ext4");
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn this_system_has_a_root() {
        let all = all().expect("the kernel shows them");
        assert!(around(&all, Path::new("/")).is_some(), "{all:?}");
    }
}
