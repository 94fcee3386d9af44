//! Connections of Ceph that were made while an interface took larger packets. Their partners go on to send segments of that size, which
//! are lost, until a timeout of minutes ends the connection. They are ended here at once: daemons and clients connect anew, and send again
//! what had no answer.

use crate::gather::subnets::{self, Subnet};
use loligo_block::host_files::HostFiles;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ports of monitors.
const MONITORS: [u16; 2] = [3300, 6789];
/// Ports of other daemons: `ms_bind_port_min`, and the largest `ms_bind_port_max` of 12 to 20.
const DAEMONS: RangeInclusive<u16> = 6800..=7568;
/// Bytes of a packet that are no segment: the heads of IP and TCP.
const HEADS: [i64; 2] = [40, 60];

/// Bytes that times take in each packet (RFC 7323).
const TIMES: i64 = 12;
/// Connections that are ended by one run of `ss`, which looks through all of the host's each time.
const AT_ONCE: usize = 100;
/// The time after which no more are ended: an order to a host has a minute.
const LONGEST: Duration = Duration::from_secs(10);

/// One end of a connection as `ss` writes it: `10.0.0.1:6800`, `[fe80::1%eth0]:6800`.
fn end(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.rsplit_once(':')?;
    let address = address.trim_matches(['[', ']']);
    let address = address.split('%').next().unwrap_or(address);
    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
}

fn is_ceph(end: SocketAddr) -> bool {
    MONITORS.contains(&end.port()) || DAEMONS.contains(&end.port())
}

/// Ends those by these interfaces that were made for larger packets than `mtu`. Where `ss` is missing or the kernel ends none for others
/// (`CONFIG_INET_DIAG_DESTROY`), and after [`LONGEST`], they end by their timeout.
pub(super) fn end_larger(host: &HostFiles, nics: &[String], mtu: i64) {
    if !host.are_live() {
        return;
    }
    let deadline = Instant::now() + LONGEST;
    let subnets: Vec<Subnet> = subnets::look(host).into_iter().filter(|it| nics.contains(&it.nic)).collect();
    let own = subnets::own(host);
    let all = larger(&ss(&["-HtinO", "state", "established"]), &subnets, &own, mtu);
    for some in all.chunks(AT_ONCE).take_while(|_| Instant::now() < deadline) {
        ss(&["-KHtn", &filter(some)]);
    }
}

/// A filter of `ss` for these connections.
fn filter(all: &[(SocketAddr, SocketAddr)]) -> String {
    let one = |(own, other): &(SocketAddr, SocketAddr)| format!("( src {own} and dst {other} )");
    all.iter().map(one).collect::<Vec<_>>().join(" or ")
}

/// Both ends of each such connection. One to this host itself, which is among `here`, goes by no interface.
fn larger(text: &str, subnets: &[Subnet], here: &[IpAddr], mtu: i64) -> Vec<(SocketAddr, SocketAddr)> {
    let one = |line: &str| {
        let mut ends = line.split_whitespace().filter_map(end);
        let (own, other) = (ends.next()?, ends.next()?);
        let segment =
            line.split_whitespace().find_map(|it| it.strip_prefix("advmss:"))?.parse::<i64>().ok()?;
        let is_one = expects_more(segment, mtu - HEADS[usize::from(own.is_ipv6())])
            && (is_ceph(own) || is_ceph(other))
            && own.ip() != other.ip()
            && !here.contains(&other.ip())
            && subnets.iter().any(|it| it.has(own.ip()));
        is_one.then_some((own, other))
    };
    text.lines().filter_map(one).collect()
}

/// True if a connection that announced this segment was made for packets with more than `most` behind their heads. Times in each packet
/// take room of the segment; `ss` does not always say whether there are any. One of just `most` was made without them.
fn expects_more(segment: i64, most: i64) -> bool {
    segment + TIMES > most && segment != most
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
        let here: [IpAddr; 2] = ["10.0.0.1", "10.0.0.9"].map(|it| it.parse().expect("one"));
        let all = |own: &str, other: &str, segment| larger(&line(own, other, segment), &subnets, &here, 1500);
        let of = |own: &str, other: &str, segment| all(own, other, segment).len();
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 8948), 1);
        assert_eq!(of("10.0.0.1:6801", "10.0.0.2:41878", 8948), 1, "the daemon's own end");
        assert_eq!(of("[fd00::1]:41878", "[fd00::2]:3300", 8940), 1);
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 1460), 0, "it is small");
        assert_eq!(of("[fd00::1]:41878", "[fd00::2]:3300", 1440), 0, "heads of IPv6 are larger");
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:22", 8948), 0, "a connection of a person");
        assert_eq!(of("10.0.1.1:41878", "10.0.0.2:6800", 8948), 0, "another interface's");
        assert_eq!(of("10.0.0.1:41878", "10.0.0.9:6800", 65483), 0, "one to this host itself");
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 1452), 1, "of an MTU of 1504, with times");
        assert_eq!(of("10.0.0.1:41878", "10.0.0.2:6800", 1448), 0, "of an MTU of 1500, with times");
        let found = all("[fd00::1]:9", "[fd00::2]:3300", 8940);
        assert_eq!(filter(&found), "( src [fd00::1]:9 and dst [fd00::2]:3300 )");
        assert!(filter(&[found[0], found[0]]).contains(" ) or ( "));
    }
}
