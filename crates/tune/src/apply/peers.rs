//! The hosts that an interface must reach with packets as large as its MTU.

use super::frames::Frame;
use super::places::Hands;
use crate::facts::{Facts, Osd};
use crate::plan::{Change, Now};
use crate::rules::{Observe, Target};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses that packets are sent to, at most.
const PROBED: usize = 32;
/// The packets that must pass once an MTU has the value of a change: as large as the interfaces of both ends carry. Those to a host
/// whose interface is not known must pass whole.
pub(super) fn toward(hands: Hands<'_>, facts: &Facts, change: &Change) -> Vec<Frame> {
    let is_mtu = change.target == Target::Nic && change.key.ends_with("/mtu");
    let Some(mtu) = change.value.as_ref().filter(|_| is_mtu).and_then(|it| it.parse::<i64>().ok()) else {
        return Vec::new();
    };
    let mut known = BTreeMap::new();
    let mut of = |osd: &Osd, nic: &Option<String>| {
        let nic = nic.as_ref().filter(|_| hands.hosts.reaches(&osd.host))?;
        *known.entry((osd.host.clone(), nic.clone())).or_insert_with(|| {
            let (who, key, now) = (osd.host.clone(), format!("{nic}/mtu"), Now::default());
            let change = Change { target: Target::Nic, who, key, now, value: None, observe: Observe::Nic };
            hands.value(&change).ok()?.now?.parse::<i64>().ok()
        })
    };
    let mut all: BTreeMap<IpAddr, i64> = BTreeMap::new();
    for osd in facts.osds.iter().filter(|osd| osd.up && osd.host != change.who) {
        for (address, nic) in [(osd.front, &osd.public_iface), (osd.back, &osd.cluster_iface)] {
            let Some(address) = address.filter(|it| all.len() < PROBED || all.contains_key(it)) else {
                continue;
            };
            let size = of(osd, nic).map_or(mtu, |other| other.min(mtu));
            all.insert(address, size);
        }
    }
    all.into_iter().map(|(address, size)| Frame { address, size }).collect()
}
