//! Connections of Ceph that were made while an interface took larger packets. Their partners go on to send segments of that size, which
//! are lost, until a timeout of minutes ends the connection. They are ended here at once: daemons and clients connect anew, and send again
//! what had no answer.

use crate::gather::subnets::{self, Subnet};
use loligo_block::host_files::HostFiles;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};

/// Ports of monitors.
const MONITORS: [u16; 2] = [3300, 6789];
/// Ports of other daemons: `ms_bind_port_min`, and the largest `ms_bind_port_max` of 12 to 20.
const DAEMONS: RangeInclusive<u16> = 6800..=7568;
/// Bytes of a packet that are no segment: the heads of IP and TCP.
const HEADS: [i64; 2] = [40, 60];

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    address: IpAddr,
    port: u16,
}

impl End {
    /// As `ss` writes it: `10.0.0.1:6800`, `[fe80::1%eth0]:6800`.
    fn new(word: &str) -> Option<End> {
        let (address, port) = word.rsplit_once(':')?;
        let address = address.trim_matches(['[', ']']);
        let address = address.split('%').next().unwrap_or(address);
        Some(End { address: address.parse().ok()?, port: port.parse().ok()? })
    }

    fn is_ceph(&self) -> bool {
        MONITORS.contains(&self.port) || DAEMONS.contains(&self.port)
    }

    fn word(&self) -> String {
        match self.address {
            IpAddr::V4(address) => format!("{address}:{}", self.port),
            IpAddr::V6(address) => format!("[{address}]:{}", self.port),
        }
    }
}

/// Ends those by these interfaces that were made for larger packets than `mtu`. Where `ss` is missing or the kernel ends none for others
/// (`CONFIG_INET_DIAG_DESTROY`), they end by their timeout.
pub(super) fn end_larger(host: &HostFiles, nics: &[String], mtu: i64) {
    if !host.are_live() {
        return;
    }
    let subnets: Vec<Subnet> = subnets::look(host).into_iter().filter(|it| nics.contains(&it.nic)).collect();
    for (own, other) in larger(&ss(&["-HtinO", "state", "established"]), &subnets, mtu) {
        ss(&["-KHtn", "src", &own.word(), "dst", &other.word()]);
    }
}

/// Both ends of each such connection.
fn larger(text: &str, subnets: &[Subnet], mtu: i64) -> Vec<(End, End)> {
    let one = |line: &str| {
        let mut ends = line.split_whitespace().filter_map(End::new);
        let (own, other) = (ends.next()?, ends.next()?);
        let segment =
            line.split_whitespace().find_map(|it| it.strip_prefix("advmss:"))?.parse::<i64>().ok()?;
        let heads = HEADS[usize::from(own.address.is_ipv6())];
        let is_one = segment > mtu - heads
            && (own.is_ceph() || other.is_ceph())
            && subnets.iter().any(|it| it.has(own.address));
        is_one.then_some((own, other))
    };
    text.lines().filter_map(one).collect()
}

/// The words of `ss`; empty: it cannot be run.
fn ss(args: &[&str]) -> String {
    let said = Command::new("ss").args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
    said.map_or_else(|_| String::new(), |it| String::from_utf8_lossy(&it.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_ceph_that_expect_too_much_are_meant() {
        let subnet =
            |address: &str, bits| Subnet { nic: "e0".into(), address: address.parse().expect("one"), bits };
        let subnets = [subnet("10.0.0.0", 24), subnet("fd00::", 64)];
        let line = |own: &str, other: &str, segment: i64| {
            format!(
                "0      0      {own} {other} cubic mss:{segment} pmtu:9000 rcvmss:536 advmss:{segment} cwnd:10\n"
            )
        };
        let of = |own: &str, other: &str, segment| larger(&line(own, other, segment), &subnets, 1500).len();
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 8948), 1);
        assert_eq!(of("10.0.0.1:6801", "10.0.0.2:41878", 8948), 1, "the daemon's own end");
        assert_eq!(of("[fd00::1]:41878", "[fd00::2]:3300", 8940), 1);
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 1460), 0, "it is small");
        assert_eq!(of("[fd00::1]:41878", "[fd00::2]:3300", 1440), 0, "heads of IPv6 are larger");
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:22", 8948), 0, "a connection of a person");
        assert_eq!(of("10.0.1.1:41878", "10.0.0.2:6800", 8948), 0, "another interface's");
        let (own, other) = larger(&line("[fd00::1]:9", "[fd00::2]:3300", 8940), &subnets, 1500)[0];
        assert_eq!((own.word().as_str(), other.word().as_str()), ("[fd00::1]:9", "[fd00::2]:3300"));
    }
}
