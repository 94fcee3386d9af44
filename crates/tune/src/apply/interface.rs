//! A network interface of a host: its identity, its link, and the interfaces below and above it.

use crate::gather::ethtool;
use loligo_block::host_files::HostFiles;
use std::time::{Duration, Instant};

/// The time that a link has to come back after its driver was set anew. Partners agree on a speed within a few seconds.
const LINK: Duration = Duration::from_secs(15);
/// The time between two looks at a link.
const BETWEEN: Duration = Duration::from_millis(100);
/// Interfaces that lie on each other, at most.
const DEPTH: usize = 8;
/// Prefixes of links to interfaces below and above.
const LOWER: &str = "lower_";
const UPPER: &str = "upper_";
/// Kinds whose names an administrator has given them. Their addresses may be those of any port.
const NAMED: [&str; 3] = ["bridge", "bond", "team"];

/// An interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface<'a> {
    pub(super) host: &'a HostFiles,
    pub(super) name: &'a str,
}

impl<'a> Interface<'a> {
    fn other<'b>(&self, name: &'b str) -> Interface<'b>
    where
        'a: 'b,
    {
        Interface { host: self.host, name }
    }

    pub(super) fn path(&self, file: &str) -> String {
        format!("/sys/class/net/{}/{file}", self.name)
    }

    fn text(&self, file: &str) -> Option<String> {
        self.host.read(self.path(file)).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty())
    }

    /// The MTU.
    ///
    /// # Errors
    /// If there is no such interface.
    pub(super) fn mtu(&self) -> Result<i64, String> {
        let mtu = self.text("mtu").and_then(|it| it.parse().ok());
        mtu.ok_or_else(|| format!("there is no interface {}", self.name))
    }

    /// The identity: the address that it was made with, else the path of its device, else its kind. A name such as `eth0` may be
    /// another interface's after a boot.
    pub(super) fn identity(&self) -> Option<String> {
        let made_with = || self.text("addr_assign_type").is_none_or(|it| it == "0");
        let device = self.host.link(self.path("device"));
        let permanent = self.host.are_live().then(|| ethtool::permanent_address(self.name)).flatten();
        let permanent = permanent
            .or_else(|| self.text("bonding_slave/perm_hwaddr"))
            .or_else(|| self.text("address").filter(|_| device.is_some() && made_with()));
        if let Some(address) = permanent {
            return Some(address);
        }
        if let Some(device) = device {
            return Some(device.file_name()?.to_string_lossy().into_owned());
        }
        let kind = self.text("uevent").unwrap_or_default();
        let kind = kind.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).unwrap_or_default();
        match kind {
            "vlan" => {
                let lower = self.lower().into_iter().next()?;
                Some(format!("vlan on {}", self.other(&lower).identity()?))
            }
            kind if NAMED.contains(&kind) => Some(kind.to_owned()),
            _ => self.text("address"),
        }
    }

    fn beside(&self, prefix: &str) -> Vec<String> {
        let names = self.host.names(self.path(""));
        names.iter().filter_map(|name| name.strip_prefix(prefix).map(str::to_owned)).collect()
    }

    /// Interfaces that it lies on: ports of a bridge or bond, the parent of a VLAN.
    pub(super) fn lower(&self) -> Vec<String> {
        self.beside(LOWER)
    }

    /// Interfaces that lie on it.
    pub(super) fn upper(&self) -> Vec<String> {
        self.beside(UPPER)
    }

    /// True if it is a bridge. The MTU of one that nobody has set follows its ports.
    pub(super) fn is_bridge(&self) -> bool {
        self.host.has(self.path("bridge"))
    }

    /// All that it lies on, the lowest first.
    pub(super) fn all_lower(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect(&mut all, DEPTH, LOWER);
        all.reverse();
        all
    }

    /// All that lie on it.
    pub(super) fn all_upper(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect(&mut all, DEPTH, UPPER);
        all
    }

    fn collect(&self, all: &mut Vec<String>, depth: usize, prefix: &str) {
        for name in self.beside(prefix) {
            // One that is reached twice comes after all that lead to it.
            all.retain(|it| *it != name);
            all.push(name.clone());
            if depth > 0 {
                self.other(&name).collect(all, depth - 1, prefix);
            }
        }
    }

    /// True if its link carries packets.
    pub(super) fn is_up(&self) -> bool {
        let state = self.text("operstate");
        self.text("carrier").as_deref() == Some("1") && matches!(state.as_deref(), Some("up" | "unknown"))
    }

    /// Waits until the link is there, and stays for two looks.
    ///
    /// # Errors
    /// If it does not come back within 15 s.
    pub(super) fn wait_until_up(&self) -> Result<(), String> {
        let deadline = Instant::now() + LINK;
        let mut seen = 0;
        while seen < 2 {
            seen = if self.is_up() { seen + 1 } else { 0 };
            if seen == 0 && Instant::now() > deadline {
                return Err(format!("the link of {} is not back after {} s", self.name, LINK.as_secs()));
            }
            std::thread::sleep(BETWEEN);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    #[test]
    fn an_interface_is_known_by_more_than_its_name() {
        let dir = tree(&[
            ("sys/class/net/e0/address", "aa:00\n"),
            ("sys/class/net/e0/addr_assign_type", "0\n"),
            ("sys/class/net/e1/address", "aa:00\n"),
            ("sys/class/net/e1/addr_assign_type", "3\n"),
            ("sys/class/net/e2/address", "aa:00\n"),
            ("sys/class/net/e2/bonding_slave/perm_hwaddr", "aa:02\n"),
            ("sys/class/net/br0/address", "aa:00\n"),
            ("sys/class/net/br0/uevent", "DEVTYPE=bridge\nINTERFACE=br0\n"),
            ("sys/class/net/e0.5/uevent", "DEVTYPE=vlan\n"),
            ("sys/class/net/e0.5/lower_e0/x", ""),
            ("sys/class/net/veth/address", "aa:09\n"),
        ]);
        for (name, path) in [("e0", "0000:00:03.0"), ("e1", "0000:00:04.0"), ("e2", "0000:00:05.0")] {
            let link = dir.path().join(format!("sys/class/net/{name}/device"));
            std::os::unix::fs::symlink(format!("../../../{path}"), link).expect("a link");
        }
        let host = HostFiles::new(dir.path());
        let of = |name: &str| Interface { host: &host, name }.identity().unwrap_or_default();
        let all = ["e0", "e1", "e2", "br0", "e0.5", "veth"].map(of);
        assert_eq!(all, ["aa:00", "0000:00:04.0", "aa:02", "bridge", "vlan on aa:00", "aa:09"]);
    }

    #[test]
    fn the_lowest_interface_comes_first() {
        let dir = tree(&[
            ("sys/class/net/br0/lower_bond0.5/x", ""),
            ("sys/class/net/bond0.5/lower_bond0/x", ""),
            ("sys/class/net/bond0/lower_e0/x", ""),
            ("sys/class/net/bond0/lower_e1/x", ""),
            ("sys/class/net/e0/upper_bond0/x", ""),
            ("sys/class/net/bond0/upper_bond0.5/x", ""),
        ]);
        let host = HostFiles::new(dir.path());
        let of = |name| Interface { host: &host, name };
        assert_eq!(of("br0").all_lower(), ["e1", "e0", "bond0", "bond0.5"]);
        assert_eq!(of("e0").all_upper(), ["bond0", "bond0.5"]);
    }
}
