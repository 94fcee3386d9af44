//! Options of Ceph that a person names: `--set WHO:NAME=VALUE`.

use super::from::RiskArg;
use crate::outcome::refuse;
use anyhow::Result;
use loligo_client::outcome::Ended;
use loligo_tune::apply::{Chosen, Hands, in_force, named};
use loligo_tune::facts::Facts;

/// The changes that these texts name, each as dear as the tables of options say.
pub(super) fn by_name(
    texts: &[String],
    (risk, weaken): (RiskArg, bool),
    hands: Hands<'_>,
    facts: &Facts,
) -> Result<Vec<Chosen>> {
    let one = |text: &String| one(text, risk, weaken, hands, facts);
    let all: Vec<Chosen> = texts.iter().map(one).collect::<Result<_>>()?;
    for (at, it) in all.iter().enumerate() {
        if all[..at].iter().any(|before| before.change.is_at(&it.change)) {
            return refuse(format!("--set names {} of {} twice", it.change.key, it.change.who));
        }
    }
    Ok(all)
}

/// Refuses changes of a comparison to a value that is in force already: both arms would be the same. A section of all daemons may have
/// some that have another value.
pub(super) fn change_something(
    all: &[Chosen],
    texts: &[String],
    hands: Hands<'_>,
    facts: &Facts,
) -> Result<()> {
    for (it, text) in all.iter().zip(texts).filter(|(it, _)| it.change.who != "global") {
        if let Some(who) = in_force(hands, facts, it).map_err(Ended::refused)? {
            return refuse(format!(
                "--set {text}: nothing would change: {who} already. Name another value, or leave it out"
            ));
        }
    }
    Ok(())
}

fn one(text: &str, risk: RiskArg, weaken: bool, hands: Hands<'_>, facts: &Facts) -> Result<Chosen> {
    let parts = text.split_once('=').and_then(|(place, value)| {
        let (who, key) = place.rsplit_once(':')?;
        (!who.is_empty() && !key.is_empty()).then_some((who, key, value))
    });
    let Some((who, key, value)) = parts else {
        return refuse(format!("--set {text}: it is WHO:NAME=VALUE, as osd:osd_max_backfills=1"));
    };
    let of_option = named(hands, facts, "--set", [who, key], &[value.to_owned()], weaken);
    let chosen = of_option.map_err(|why| Ended::refused(format!("--set {text}: {why}")))?;
    risk.affords(key, chosen.risk)?;
    Ok(chosen)
}
