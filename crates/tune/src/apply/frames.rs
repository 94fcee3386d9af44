//! Large packets that must reach other hosts whole, as an interface is set to carry them.

use super::interface::Interface;
use crate::gather::{mtu, subnets};
use loligo_block::host_files::HostFiles;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// The least packet that every link carries whole, bytes.
const LEAST: i64 = 576;
/// The time in which large packets must pass: switches forward some seconds after a link is up.
const PROOF: Duration = Duration::from_secs(5);

/// A packet that must come to an address whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The address of an OSD.
    pub address: IpAddr,
    /// Its size, bytes.
    pub size: i64,
}

/// Those of `frames` whose way begins at one of these interfaces, and whose host answers short packets.
///
/// # Errors
/// If nothing would show that large packets pass.
pub(super) fn answered(
    host: &HostFiles,
    nics: &[String],
    frames: &[Frame],
) -> Result<Vec<(Ipv4Addr, i64)>, String> {
    let all = behind(host, nics, frames);
    let mut wanted = Vec::new();
    for frame in &all {
        match frame.address {
            IpAddr::V4(address) => wanted.push((address, frame.size)),
            IpAddr::V6(address) => {
                return Err(format!(
                    "{address} lies behind it, and MTUs of IPv6 are not probed: set it by hand, by 'ip link set'"
                ));
            }
        }
    }
    let short: Vec<_> = wanted.iter().map(|(address, _)| (*address, LEAST)).collect();
    let passed = passing(&short)?;
    let answered: Vec<_> =
        wanted.iter().zip(passed).filter(|(_, passed)| *passed).map(|(it, _)| *it).collect();
    if answered.is_empty() && !wanted.is_empty() {
        return Err(format!(
            "none of {} addresses behind it answers echo requests, so that nothing shows whether large packets pass: a firewall may drop them",
            wanted.len()
        ));
    }
    Ok(answered)
}

/// Those of `frames` that go out by one of these interfaces. An address in no subnet lies behind a router.
fn behind(host: &HostFiles, nics: &[String], frames: &[Frame]) -> Vec<Frame> {
    let (own, subnets) = (subnets::own(host), subnets::look(host));
    let is_behind = |frame: &&Frame| {
        let mut of = subnets.iter().filter(|it| it.has(frame.address)).peekable();
        let is_far = of.peek().is_none();
        !own.contains(&frame.address)
            && (of.any(|it| nics.contains(&it.nic))
                || (is_far && nics.iter().any(|nic| subnets::has_router(host, nic))))
    };
    frames.iter().filter(is_behind).copied().collect()
}

/// Checks that packets pass, again and again for five seconds.
///
/// # Errors
/// If one does not.
pub(super) fn pass(frames: &[(Ipv4Addr, i64)]) -> Result<(), String> {
    let deadline = Instant::now() + PROOF;
    loop {
        let passed = passing(frames)?;
        let Some((address, size)) = frames.iter().zip(passed).find(|(_, passed)| !passed).map(|(it, _)| *it)
        else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(format!(
                "packets of {size} bytes do not come to {address} whole: raise the MTU of each switch port on the way first"
            ));
        }
    }
}

/// Large packets in words, as they pass now.
///
/// # Errors
/// If one does not pass.
pub(super) fn sight(nic: Interface<'_>, frames: &[Frame]) -> Result<String, String> {
    let Ok(answered) = answered(nic.host, &[nic.name.to_owned()], frames) else {
        return Ok("nobody behind it answers, so that no large packet was seen to pass".to_owned());
    };
    pass(&answered)?;
    let largest = answered.iter().map(|(_, size)| *size).max();
    Ok(match largest {
        None => "no OSD of another host lies behind it".to_owned(),
        Some(size) => format!("packets of up to {size} bytes pass to {} OSD addresses", answered.len()),
    })
}

fn passing(frames: &[(Ipv4Addr, i64)]) -> Result<Vec<bool>, String> {
    std::thread::scope(|scope| {
        let one = |(address, size): (Ipv4Addr, i64)| scope.spawn(move || mtu::passes(address, size));
        let threads: Vec<_> = frames.iter().copied().map(one).collect();
        threads.into_iter().map(|it| it.join().unwrap_or(Ok(false))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    #[test]
    fn packets_to_hosts_behind_an_interface_count_for_it() {
        let dir = tree(&[
            (
                "proc/net/route",
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                 e0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
                 e1\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
                 e1\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\n",
            ),
            ("proc/net/fib_trie", "     |-- 10.0.0.5\n        /32 host LOCAL\n"),
        ]);
        let host = HostFiles::new(dir.path());
        let all = ["10.0.0.5", "10.0.0.6", "10.0.1.6", "10.9.0.1", "fd00::1"];
        let all = all.map(|it| Frame { address: it.parse().expect("an address"), size: 9000 });
        let of = |nic: &str| {
            let nics = [nic.to_owned()];
            behind(&host, &nics, &all).iter().map(|it| it.address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("e0"), ["10.0.0.6"]);
        assert_eq!(of("e1"), ["10.0.1.6", "10.9.0.1", "fd00::1"], "others lie behind its router");
        assert!(answered(&host, &["e1".to_owned()], &all).expect_err("IPv6").contains("not probed"));
        assert_eq!(answered(&host, &["e2".to_owned()], &all), Ok(Vec::new()));
    }
}
