//! Large packets that must reach other hosts whole, as an interface is set to carry them.

use super::interface::Interface;
use crate::counted;
use crate::gather::{mtu, subnets};
use loligo_block::host_files::HostFiles;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The least packet that every link carries whole, bytes.
pub(super) const LEAST: i64 = 576;
/// Packets that are on their way at the same time, at most.
const AT_ONCE: usize = 256;
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

/// A way to an address of another host: by this interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// The interface whose subnet or router it begins with.
    pub(super) nic: String,
    /// The packet that is to come there.
    pub(super) frame: Frame,
}

impl Way {
    /// The same with the least packet.
    pub(super) fn short(&self) -> Way {
        Way { nic: self.nic.clone(), frame: Frame { size: LEAST, ..self.frame } }
    }

    fn passes(&self) -> Result<bool, String> {
        match self.frame.address {
            IpAddr::V4(address) => mtu::passes(address, &self.nic, self.frame.size),
            IpAddr::V6(_) => Ok(false),
        }
    }
}

/// Ways whose hosts answer short packets, and those whose hosts do not.
///
/// # Errors
/// If no packet can be sent.
pub(super) fn answered(ways: Vec<Way>) -> Result<(Vec<Way>, Vec<Way>), String> {
    let passed = passing(&ways.iter().map(Way::short).collect::<Vec<_>>())?;
    let (answered, silent): (Vec<_>, Vec<_>) = ways.into_iter().zip(passed).partition(|(_, passed)| *passed);
    let of = |all: Vec<(Way, bool)>| all.into_iter().map(|(way, _)| way).collect();
    Ok((of(answered), of(silent)))
}

/// Checks that packets can show whether an interface carries more than `before` bytes.
///
/// # Errors
/// If a host that would be sent more answers none.
pub(super) fn provable(answered: &[Way], silent: &[Way], before: i64) -> Result<(), String> {
    if let Some(Way { frame, .. }) = silent.iter().find(|way| way.frame.address.is_ipv6()) {
        return Err(format!(
            "{} lies behind it, and MTUs of IPv6 are not probed: set it by hand, by 'ip link set'",
            frame.address
        ));
    }
    if answered.is_empty() && !silent.is_empty() {
        return Err(format!(
            "none of {} addresses behind it answers echo requests, so that nothing shows whether large packets pass: a firewall may drop them",
            silent.len()
        ));
    }
    match silent.iter().find(|way| way.frame.size > before) {
        None => Ok(()),
        Some(Way { frame, nic }) => Err(format!(
            "{} answers no echo request by {nic}, so that nothing shows whether packets of {} bytes come to it whole: start that host, or let it answer",
            frame.address, frame.size
        )),
    }
}

/// The ways of `frames` that begin with one of these interfaces. An address in no subnet lies behind a router.
pub(super) fn behind(host: &HostFiles, nics: &[String], frames: &[Frame]) -> Vec<Way> {
    let (own, subnets) = (subnets::own(host), subnets::look(host));
    let is_behind = |frame: &Frame, nic: &String| {
        let mut of = subnets.iter().filter(|it| it.has(frame.address)).peekable();
        let is_far = of.peek().is_none();
        !own.contains(&frame.address)
            && (of.any(|it| it.nic == *nic) || (is_far && subnets::has_router(host, nic)))
    };
    let of = |frame: Frame| {
        let nics = nics.iter().filter(move |nic| is_behind(&frame, nic));
        nics.map(move |nic| Way { nic: nic.clone(), frame })
    };
    frames.iter().copied().flat_map(of).collect()
}

/// Checks that packets pass, again and again for five seconds. Those that have passed are not sent again.
///
/// # Errors
/// If one does not.
pub(super) fn pass(ways: &[Way]) -> Result<(), String> {
    let deadline = Instant::now() + PROOF;
    let mut left = ways.to_vec();
    loop {
        let passed = passing(&left)?;
        left = left.into_iter().zip(passed).filter(|(_, passed)| !passed).map(|(way, _)| way).collect();
        let Some(Way { nic, frame: Frame { address, size } }) = left.first() else { return Ok(()) };
        if Instant::now() <= deadline {
            continue;
        }
        return Err(match left.iter().any(|it| it.frame.size <= LEAST) {
            true => format!("{address} answers no packet by {nic} any more"),
            false => format!(
                "packets of {size} bytes do not come to {address} whole: raise the MTU of each switch port on the way first"
            ),
        });
    }
}

/// Large packets in words, as they pass now.
///
/// # Errors
/// If one does not pass.
pub(super) fn sight(nic: Interface<'_>, frames: &[Frame]) -> Result<String, String> {
    let ways = behind(nic.host, &[nic.name.to_owned()], frames);
    let nobody = ways.is_empty();
    let (answered, _) = answered(ways).unwrap_or_default();
    pass(&answered)?;
    let largest = answered.iter().map(|way| way.frame.size).max();
    Ok(match largest {
        None if nobody => "no OSD of another host lies behind it".to_owned(),
        None => "nobody behind it answers, so that no large packet was seen to pass".to_owned(),
        Some(size) => {
            format!("packets of up to {size} bytes pass to {}", counted(answered.len(), "OSD address"))
        }
    })
}

fn passing(ways: &[Way]) -> Result<Vec<bool>, String> {
    let mut all = Vec::new();
    for some in ways.chunks(AT_ONCE) {
        let passed: Result<Vec<bool>, String> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|way| scope.spawn(|| way.passes())).collect();
            threads.into_iter().map(|it| it.join().unwrap_or(Ok(false))).collect()
        });
        all.extend(passed?);
    }
    Ok(all)
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
            behind(&host, &nics, &all).iter().map(|it| it.frame.address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("e0"), ["10.0.0.6"]);
        assert_eq!(of("e1"), ["10.0.1.6", "10.9.0.1", "fd00::1"], "others lie behind its router");
        let far = behind(&host, &["e1".to_owned()], &all);
        assert!(provable(&[], &far, 1500).expect_err("IPv6").contains("not probed"));
        assert!(behind(&host, &["e2".to_owned()], &all).is_empty());
        let of = |sizes: &[i64]| {
            let way = |size: &i64| Way { nic: "e0".into(), frame: Frame { size: *size, ..all[1] } };
            sizes.iter().map(way).collect::<Vec<_>>()
        };
        assert!(provable(&of(&[9000]), &of(&[1500]), 1500).is_ok(), "it is sent no more than before");
        let why = provable(&of(&[1500]), &of(&[9000]), 1500).expect_err("it is sent more");
        assert!(why.contains("10.0.0.6 answers no echo request by e0"), "{why}");
    }
}
