//! A network interface of a host: its identity, its link, and the interfaces below and above it.

use crate::gather::{by_socket, ethtool, subnets};
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

    /// The reason why files and sockets of this process may mean different interfaces: a container may have the files of its host.
    pub(super) fn is_of_two(&self) -> Option<String> {
        let index = self.text("ifindex").and_then(|it| it.parse::<i32>().ok());
        let bytes = |text: String| text.split(':').map(|it| u8::from_str_radix(it, 16).ok()).collect();
        let address: Vec<u8> = self.text("address").and_then(bytes).unwrap_or_default();
        let by_socket = by_socket::hardware_address(self.name, address.len());
        let is_one = by_socket::index(self.name) == index
            && by_socket.is_some_and(|it| address.starts_with(&it) && it.is_empty() == address.is_empty());
        (self.host.are_live() && !is_one).then(|| {
            format!(
                "the {} of /sys is not that of this process: run it in the network namespace of the host",
                self.name
            )
        })
    }

    /// True if addresses of IPv4, or of IPv6 beyond the link, are its own.
    pub(super) fn has_addresses(&self) -> bool {
        let beyond = || subnets::look(self.host).iter().any(|it| it.nic == self.name && it.address.is_ipv6());
        self.host.are_live() && (by_socket::has_address(self.name) || beyond())
    }
}

/// The time until which links have to be back that a driver takes down now.
pub(super) fn back_by() -> Instant {
    Instant::now() + LINK
}

/// Waits until these links are there, and stay for two looks.
///
/// # Errors
/// If one does not come back in time.
pub(super) fn wait_until_up(host: &HostFiles, names: &[String], deadline: Instant) -> Result<(), String> {
    let mut seen = 0;
    while seen < 2 && !names.is_empty() {
        let down = names.iter().find(|name| !Interface { host, name }.is_up());
        seen = if down.is_none() { seen + 1 } else { 0 };
        if let Some(name) = down.filter(|_| Instant::now() > deadline) {
            return Err(format!("the link of {name} is not back after {} s", LINK.as_secs()));
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(())
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
