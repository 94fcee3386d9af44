//! Subnets of the interfaces of a host, from its routes and addresses.

use loligo_block::host_files::HostFiles;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A subnet that is reached by an interface without a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subnet {
    /// The interface.
    pub nic: String,
    /// An address in it.
    pub address: IpAddr,
    /// Bits of its mask.
    pub bits: u32,
}

impl Subnet {
    /// True if the address lies in it.
    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let shift = 32 - self.bits.min(32);
                u64::from(own.to_bits()) >> shift == u64::from(other.to_bits()) >> shift
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let shift = 128 - self.bits.min(128);
                (own.to_bits() ^ other.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// All of them.
pub(crate) fn look(files: &HostFiles) -> Vec<Subnet> {
    let routes = files.read("/proc/net/route").unwrap_or_default();
    let addresses = files.read("/proc/net/if_inet6").unwrap_or_default();
    routes.lines().skip(1).filter_map(route).chain(addresses.lines().filter_map(address)).collect()
}

/// Addresses of this host itself, by the kernel's table of IPv4.
pub(crate) fn own(files: &HostFiles) -> Vec<IpAddr> {
    let table = files.read("/proc/net/fib_trie").unwrap_or_default();
    let (mut all, mut above) = (Vec::new(), None);
    for line in table.lines() {
        if let Some((_, address)) = line.split_once("|-- ") {
            above = address.trim().parse::<IpAddr>().ok();
        } else if line.contains("/32 host LOCAL") {
            all.extend(above);
        }
    }
    all
}

/// True if routers are reached by an interface.
pub(crate) fn has_router(files: &HostFiles, nic: &str) -> bool {
    let of = |path: &str, name: usize, gateway: usize| {
        let text = files.read(path).unwrap_or_default();
        text.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_gateway = words.get(gateway).is_some_and(|it| {
                it.bytes().all(|byte| byte.is_ascii_hexdigit()) && it.bytes().any(|byte| byte != b'0')
            });
            words.get(name) == Some(&nic) && is_gateway
        })
    };
    of("/proc/net/route", 0, 2) || of("/proc/net/ipv6_route", 9, 4)
}

/// A line of `/proc/net/route`: interface, destination, gateway, flags, four numbers, mask. Numbers are those of a machine that
/// stores the low byte first.
fn route(line: &str) -> Option<Subnet> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::swap_bytes);
    let (to, by, mask) = (number(1)?, number(2)?, number(7)?);
    // Others lie behind a router.
    (by == 0 && mask != 0).then(|| Subnet {
        nic: words[0].to_owned(),
        address: Ipv4Addr::from_bits(to).into(),
        bits: mask.leading_ones(),
    })
}

/// A line of `/proc/net/if_inet6`: address, index, bits, scope, flags, interface.
fn address(line: &str) -> Option<Subnet> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = Ipv6Addr::from_bits(u128::from_str_radix(words.first()?, 16).ok()?);
    let bits = u32::from_str_radix(words.get(2)?, 16).ok()?;
    (*words.get(3)? == "00").then(|| Subnet {
        nic: words[words.len() - 1].to_owned(),
        address: address.into(),
        bits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_addresses_are_subnets() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("proc/net")).expect("folders");
        let put = |name: &str, text: &str| {
            std::fs::write(dir.path().join("proc/net").join(name), text).expect("a file")
        };
        put(
            "route",
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
             eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
             eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
        );
        put(
            "if_inet6",
            "fd000000000000000000000000000005 02 40 00 80     eth1\nfe800000000000000000000000000001 02 40 20 80 eth1\n",
        );
        put(
            "fib_trie",
            "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n",
        );
        assert_eq!(own(&HostFiles::new(dir.path())), ["10.0.0.5".parse::<IpAddr>().expect("an address")]);
        assert!(has_router(&HostFiles::new(dir.path()), "eth0"));
        assert!(!has_router(&HostFiles::new(dir.path()), "eth1"));
        let all = look(&HostFiles::new(dir.path()));
        assert_eq!(
            all.iter().map(|it| (it.nic.as_str(), it.bits)).collect::<Vec<_>>(),
            [("eth0", 24), ("eth1", 64)]
        );
        let has = |at: usize, address: &str| all[at].has(address.parse().expect("an address"));
        assert!(has(0, "10.0.0.7") && !has(0, "10.0.1.7") && !has(0, "fd00::7"));
        assert!(has(1, "fd00::7") && !has(1, "fd01::7"));
    }
}
