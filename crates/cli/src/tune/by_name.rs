//! Options of Ceph that a person names: `--set WHO:NAME=VALUE`.

use super::apply::RiskArg;
use crate::outcome::refuse;
use anyhow::{Result, anyhow};
use loligo_client::outcome::Ended;
use loligo_tune::apply::{Chosen, Hands, price};
use loligo_tune::facts::Facts;
use loligo_tune::plan::{Change, Now};
use loligo_tune::rules::{Observe, Target};

/// The changes that these texts name, each as dear as the tables of options say.
pub(super) fn by_name(
    texts: &[String],
    risk: RiskArg,
    hands: Hands<'_>,
    facts: &Facts,
) -> Result<Vec<Chosen>> {
    texts.iter().map(|text| one(text, risk, hands, facts)).collect()
}

fn one(text: &str, risk: RiskArg, hands: Hands<'_>, facts: &Facts) -> Result<Chosen> {
    let parts = text.split_once('=').and_then(|(place, value)| {
        let (who, key) = place.rsplit_once(':')?;
        (!who.is_empty() && !key.is_empty()).then_some((who, key, value))
    });
    let Some((who, key, value)) = parts else {
        return refuse(format!("--set {text}: it is WHO:NAME=VALUE, as osd:osd_max_backfills=1"));
    };
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

/// The way to see that a value acts. Some options have a witness beside the daemon's word on them.
fn observe(who: &str, key: &str) -> Observe {
    match key {
        _ if who.starts_with("client") => Observe::Image,
        "osd_max_backfills" => Observe::Reservers,
        _ if key.starts_with("osd_op_num_shards") => Observe::Shards,
        _ => Observe::Option,
    }
}
