//! Options of Ceph that a person names: `--set WHO:NAME=VALUE`.

use super::from::RiskArg;
use crate::outcome::refuse;
use anyhow::{Result, anyhow};
use loligo_client::outcome::Ended;
use loligo_tune::apply::{Chosen, Hands, price};
use loligo_tune::facts::Facts;
use loligo_tune::plan::{Change, Now, is_of};
use loligo_tune::rules::{Observe, Target};

/// The changes that these texts name, each as dear as the tables of options say.
pub(super) fn by_name(
    texts: &[String],
    risk: RiskArg,
    hands: Hands<'_>,
    facts: &Facts,
) -> Result<Vec<Chosen>> {
    let all: Vec<Chosen> = texts.iter().map(|text| one(text, risk, hands, facts)).collect::<Result<_>>()?;
    for (at, it) in all.iter().enumerate() {
        if all[..at].iter().any(|before| before.change.is_at(&it.change)) {
            return refuse(format!("--set names {} of {} twice", it.change.key, it.change.who));
        }
    }
    Ok(all)
}

fn one(text: &str, risk: RiskArg, hands: Hands<'_>, facts: &Facts) -> Result<Chosen> {
    let parts = text.split_once('=').and_then(|(place, value)| {
        let (who, key) = place.rsplit_once(':')?;
        (!who.is_empty() && !key.is_empty()).then_some((who, key, value))
    });
    let Some((who, key, value)) = parts else {
        return refuse(format!("--set {text}: it is WHO:NAME=VALUE, as osd:osd_max_backfills=1"));
    };
    if !is_section(who) {
        return refuse(format!(
            "--set {text}: {who} is no section that can be followed to its daemons: take osd, osd.N, osd/class:NAME, osd/host:NAME, \
             global or client"
        ));
    }
    if who.starts_with("osd") && !facts.osds.iter().any(|osd| is_of(osd, who)) {
        return refuse(format!("--set {text}: there is no OSD of {who}: 'ceph osd tree' lists them"));
    }
    if is_abbreviated(value) {
        return refuse(format!(
            "--set {text}: write the number in full: the cluster keeps it so, and it is compared with that"
        ));
    }
    if !hands.knows(key).map_err(|why| anyhow!(why))? {
        return refuse(format!("--set {text}: this release has no option {key}"));
    }
    let change = Change {
        target: Target::Config,
        who: who.to_owned(),
        key: key.to_owned(),
        now: Now::default(),
        value: Some(value.to_owned()),
        observe: observe(who, key),
    };
    let dear = price(&change, facts).map_err(|why| Ended::refused(format!("--set {text}: {why}")))?;
    risk.affords(key, dear)?;
    Ok(Chosen::new("by hand", dear, change, facts))
}

/// Sections as the configuration database spells them, and whose daemons are known.
fn is_section(who: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':', ' ']);
    match who.split_once('/') {
        Some(("osd", mask)) => {
            ["class:", "host:"].iter().any(|kind| mask.strip_prefix(kind).is_some_and(is_name))
        }
        Some(_) => false,
        None => {
            let number = who.strip_prefix("osd.");
            ["osd", "global"].contains(&who)
                || number.is_some_and(|it| it.parse::<u32>().is_ok_and(|number| number.to_string() == it))
                || who == "client"
                || who.strip_prefix("client.").is_some_and(is_name)
        }
    }
}

/// `32M` and `4Ki`: numbers that the cluster writes out.
pub(super) fn is_abbreviated(value: &str) -> bool {
    let digits = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    digits.len() < value.len()
        && ["K", "M", "G", "T", "P", "E"]
            .iter()
            .any(|unit| digits.strip_prefix(unit).is_some_and(|rest| ["", "i", "B", "iB"].contains(&rest)))
}

/// The way to see that a value acts. Some options have a witness beside the daemon's word on them.
fn observe(who: &str, key: &str) -> Observe {
    match key {
        _ if who.starts_with("client") => Observe::Image,
        "osd_max_backfills" => Observe::Reservers,
        _ if key.starts_with("osd_op_num_shards") => Observe::Shards,
        _ => Observe::Option,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_those_whose_daemons_are_known() {
        for good in ["osd", "osd.3", "osd/class:hdd", "osd/host:n1", "global", "client", "client.vm"] {
            assert!(is_section(good), "{good}");
        }
        for bad in
            ["mon", "osd.03", "osd/root:default", "osd/class:hdd/host:n1", "class:hdd/osd", "osd/class:", ""]
        {
            assert!(!is_section(bad), "{bad}");
        }
    }

    #[test]
    fn numbers_with_units_are_known() {
        for short in ["32M", "4Ki", "1.5GiB", "10K"] {
            assert!(is_abbreviated(short), "{short}");
        }
        for full in ["33554432", "kernel", "0/1", "compression=M", "M", "high_client_ops", "10s"] {
            assert!(!is_abbreviated(full), "{full}");
        }
    }
}
