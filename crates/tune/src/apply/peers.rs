//! The hosts that an interface must reach with packets as large as its MTU.

use super::frames::{Frame, LEAST};
use super::places::Hands;
use crate::facts::{Facts, Osd};
use crate::plan::{Change, Now};
use crate::rules::{Observe, Target};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The packets that must pass once an interface has the value of a change. Those of an MTU are as large as the interfaces of both ends
/// carry. Those to a host whose interface is not known must pass whole. OSDs that are down count: they come back.
pub(super) fn toward(hands: Hands<'_>, facts: &Facts, change: &Change) -> Vec<Frame> {
    if change.target != Target::Nic {
        return Vec::new();
    }
    let mtu = change.value.as_ref().filter(|_| is_mtu(change)).and_then(|it| it.parse::<i64>().ok());
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
    for osd in facts.osds.iter().filter(|osd| osd.host != change.who) {
        for (address, nic) in [(osd.front, &osd.public_iface), (osd.back, &osd.cluster_iface)] {
            let Some(address) = address else { continue };
            let size = mtu.map_or(LEAST, |mtu| of(osd, nic).map_or(mtu, |other| other.min(mtu)));
            all.insert(address, size);
        }
    }
    all.into_iter().map(|(address, size)| Frame { address, size }).collect()
}

/// True if a change is of an MTU.
pub(super) fn is_mtu(change: &Change) -> bool {
    change.target == Target::Nic && change.key.ends_with("/mtu")
}
