//! To whom the node of a device belongs. The kernel keeps the node when the device is let go of, so that what it was before is
//! noted, and made again: else the next device of that number, somebody else's, would be open to this one's user.

use rustix::fs::{Gid, Mode, Uid, chmod, chown, stat};
use rustix::io::Errno;
use std::path::Path;
use std::str::FromStr;

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
}

impl FromStr for Owner {
    type Err = String;

    /// `USER` or `USER:GROUP`, by name or number; a user alone brings his own group.
    fn from_str(text: &str) -> Result<Owner, String> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        parse(text, &read("/etc/passwd"), &read("/etc/group"))
    }
}

fn parse(text: &str, users: &str, groups: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(u, g)| (u, Some(g)));
    let entry = fields(users, user);
    let field = |entry: &[&str], i: usize| entry.get(i).and_then(|n| n.parse::<u32>().ok());
    let known = entry.as_deref().and_then(|e| Some((field(e, 2)?, field(e, 3)?)));
    let Some(uid) = known.map(|(uid, _)| uid).or_else(|| user.parse().ok()) else {
        return Err(format!("there is no user '{user}' in /etc/passwd: give a name or a number"));
    };
    let gid = match group {
        None => known.map_or(uid, |(_, gid)| gid),
        Some(group) => {
            let found = fields(groups, group).as_deref().and_then(|e| field(e, 2));
            found.or_else(|| group.parse().ok()).ok_or_else(|| {
                format!("there is no group '{group}' in /etc/group: give a name or a number")
            })?
        }
    };
    Ok(Owner { uid, gid })
}

/// The line of `name`, at its colons.
fn fields<'a>(list: &'a str, name: &str) -> Option<Vec<&'a str>> {
    list.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f[0] == name)
}

/// The owner of a node, and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) owner: Owner,
    pub(crate) mode: u32,
}

impl Access {
    pub(crate) fn of(node: &Path) -> Result<Access, Errno> {
        let s = stat(node)?;
        Ok(Access { owner: Owner { uid: s.st_uid, gid: s.st_gid }, mode: s.st_mode & 0o7777 })
    }

    /// Makes it so.
    pub(crate) fn put(&self, node: &Path) -> Result<(), Errno> {
        chown(node, Some(Uid::from_raw(self.owner.uid)), Some(Gid::from_raw(self.owner.gid)))?;
        chmod(node, Mode::from_raw_mode(self.mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nceph:x:167:64045::/var/lib/ceph:/bin/false\n";
        let groups = "root:x:0:\ndisk:x:6:\nceph:x:64045:\n";
        let owner = |text: &str| parse(text, users, groups).map(|o| (o.uid, o.gid));
        assert_eq!(owner("ceph"), Ok((167, 64045)));
        assert_eq!(owner("ceph:disk"), Ok((167, 6)));
        assert_eq!(owner("167:167"), Ok((167, 167)));
        assert_eq!(owner("1000"), Ok((1000, 1000)));
        assert!(owner("nobody-here").unwrap_err().contains("/etc/passwd"));
        assert!(owner("ceph:nobody-here").unwrap_err().contains("/etc/group"));
        assert!(owner("").is_err() && owner(":").is_err());
    }
}
