//! The effect of a step: the act of daemons and kernels, and never the answer of `config set`.

use super::disk::is_of_disk;
use super::peers;
use super::places::{Hands, is_in_force, wanted};
use super::step::Step;
use crate::counted;
use crate::facts::{Facts, Osd};
use crate::gather::asked::{ask, command};
use crate::plan::{is_of, is_same};
use crate::rules::{Observe, Target};
use loligo_ceph::CephError;
use loligo_ceph::commands::{CommandClient, Recipient};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};

/// Options act within seconds of `config set`.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two looks.
const BETWEEN: Duration = Duration::from_millis(250);

/// What was seen of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// It acts; the sight.
    Acts(String),
    /// It is set, and nothing shows whether it acts; the reason.
    NotVisible(String),
}

/// Waits until the effect of a step is seen.
///
/// # Errors
/// If it does not act; the reason.
pub fn wait(hands: Hands<'_>, facts: &Facts, step: &Step) -> Result<Effect, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look(hands, facts, step) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(BETWEEN),
            said => return said,
        }
    }
}

/// Looks once.
///
/// # Errors
/// If it does not act; the reason.
pub(super) fn look(hands: Hands<'_>, facts: &Facts, step: &Step) -> Result<Effect, String> {
    let change = &step.change;
    let want = wanted(change);
    let is = hands.value(change)?;
    if let Some(why) = is.is_another(&step.before) {
        return Err(format!("{}: {why}", step.place()));
    }
    let is_there = match (&is.now, &want.now) {
        (Some(one), Some(two)) => is_same(one, two) || is_in_force(change, &is, &want),
        _ => is_in_force(change, &is, &want),
    };
    if !is_there {
        let (place, is) = (step.place(), is.words().to_owned());
        return Err(format!("{place} is {is} and not {}", want.words()));
    }
    match change.target {
        Target::Config | Target::File | Target::Daemon => daemons(hands, facts, step),
        Target::Mgr if change.key.starts_with("mgr/balancer/") => balancer(hands, step),
        Target::Mgr => Ok(Effect::NotVisible("the manager's module does not say what it uses".to_owned())),
        Target::Affinity => Ok(bound(facts, step, &is.words())),
        Target::Env => environment(hands, step),
        Target::Unit => Ok(Effect::NotVisible("systemd takes it at the next start of the unit".to_owned())),
        Target::Nic => carried(hands, facts, step, &is.words()),
        Target::Sysfs if is_of_disk(&change.key) => {
            Ok(Effect::Acts(format!("{} is {}, until the host starts anew", step.place(), is.words())))
        }
        _ => Ok(Effect::Acts(format!("{} is {}", step.place(), is.words()))),
    }
}

/// The effect of a value of an interface: the driver has it, and packets as large as its MTU pass.
fn carried(hands: Hands<'_>, facts: &Facts, step: &Step, is: &str) -> Result<Effect, String> {
    let sight = format!("{} is {is}, until the host starts anew", step.place());
    let frames =
        if peers::is_mtu(&step.change) { peers::toward(hands, facts, &step.change) } else { Vec::new() };
    Ok(Effect::Acts(match hands.sight(&step.change, frames)? {
        Some(packets) => format!("{sight}; {packets}"),
        None => sight,
    }))
}

/// The effect of a variable: the process has it. One that was taken away may be another file's again.
fn environment(hands: Hands<'_>, step: &Step) -> Result<Effect, String> {
    let change = &step.change;
    let (osd, name) = change.key.split_once('/').unwrap_or_default();
    let has = hands.variable(change)?;
    let words = match &has {
        Some(value) => format!("the process of {osd} has {name}={value}"),
        None => format!("the process of {osd} has no {name}"),
    };
    match &change.value {
        Some(wants) if has.as_ref() != Some(wants) => Err(format!("{words}, and not {wants}")),
        _ => Ok(Effect::Acts(words)),
    }
}

/// The effect of processors. An OSD that no unit runs has those of its parent again when it starts anew.
fn bound(facts: &Facts, step: &Step, is: &str) -> Effect {
    let change = &step.change;
    let sight = format!("{} is {is}", step.place());
    let id = change.key.strip_prefix("osd.").and_then(|it| it.split('/').next()?.parse::<i64>().ok());
    let osd = facts.osds.iter().find(|osd| Some(osd.id) == id && osd.host == change.who);
    match osd.filter(|osd| osd.unit.as_deref().unwrap_or_default().is_empty()) {
        Some(osd) => Effect::Acts(format!(
            "{sight}, until osd.{} starts anew: no unit of systemd runs it. Then 'loligo tune threads {}' sets it",
            osd.id, osd.id
        )),
        None => Effect::Acts(sight),
    }
}

/// The effect of an option in daemons.
fn daemons(hands: Hands<'_>, facts: &Facts, step: &Step) -> Result<Effect, String> {
    let change = &step.change;
    let is_meant = |osd: &&Osd| match change.target {
        Target::File => osd.host == change.who,
        _ => is_of(osd, &change.who),
    };
    let osds: Vec<&Osd> = facts.osds.iter().filter(is_meant).filter(|osd| osd.up).collect();
    if osds.is_empty() {
        return Ok(Effect::NotVisible(format!("no OSD that is up runs with values of {}", change.who)));
    }
    let mut seen = Vec::new();
    for osd in osds {
        match one(hands, osd, step)? {
            Some(sight) => seen.push(sight),
            None => return Ok(Effect::NotVisible("this release does not know the name".to_owned())),
        }
    }
    match change.observe {
        Observe::Image => {
            Ok(Effect::NotVisible("clients use it from their next opening of an image".to_owned()))
        }
        Observe::None => Ok(Effect::NotVisible("nothing in an OSD shows the use of it".to_owned())),
        _ => Ok(Effect::Acts(seen.join("; "))),
    }
}

/// The sight of an option in one OSD; nothing: it has no such option.
fn one(hands: Hands<'_>, osd: &Osd, step: &Step) -> Result<Option<String>, String> {
    let change = &step.change;
    let to = Recipient::Osd(osd.id as u32);
    let runs = match runs_with(hands.client, osd.id, &change.key) {
        Err(why) if why.errno() == Some(libc::ENOENT) && change.value.is_none() => return Ok(None),
        said => said.map_err(|why| why.to_string())?,
    };
    match &change.value {
        Some(wants) if !is_same(&runs, wants) => {
            return Err(format!(
                "osd.{} runs with {}={runs} and not {wants}: a file, an override or mClock goes before it, or it must start anew",
                osd.id, change.key
            ));
        }
        Some(_) => {}
        None => is_gone(hands, osd, step)?,
    }
    if change.observe == Observe::Reservers && change.key == "osd_max_backfills" {
        let said = ask(hands.client, to, &command("dump_recovery_reservations"))?;
        let admits = said["local_reservations"]["max_allowed"].to_string();
        if !is_same(&admits, &runs) {
            return Err(format!("the reservers of osd.{} admit {admits} and not {runs}", osd.id));
        }
        return Ok(Some(format!("the reservers of osd.{} admit {admits}", osd.id)));
    }
    if change.observe == Observe::Shards {
        return shards(hands, osd, step).map(Some);
    }
    Ok(Some(format!("osd.{} runs with {runs}", osd.id)))
}

/// The value that an OSD runs with, by its own word.
pub(super) fn runs_with(client: &CommandClient, osd: i64, key: &str) -> Result<String, CephError> {
    let mut asks = command("config get");
    asks["var"] = json!(key);
    let text = client.send(Recipient::Osd(osd as u32), &asks)?;
    let said: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    Ok(said[key].as_str().map_or_else(|| said[key].to_string(), str::to_owned))
}

/// The shards of the operation queue that an OSD has.
fn shards(hands: Hands<'_>, osd: &Osd, step: &Step) -> Result<String, String> {
    let said = ask(hands.client, Recipient::Osd(osd.id as u32), &command("dump_op_pq_state"))?;
    let count =
        said.as_object().map_or(0, |all| all.keys().filter(|key| key.contains("ShardedOpWQ")).count());
    match &step.change.value {
        Some(wants) if step.change.key == "osd_op_num_shards" && !is_same(wants, &count.to_string()) => {
            Err(format!("osd.{} has {} and not {wants}", osd.id, counted(count, "shard")))
        }
        _ => Ok(format!("osd.{} has {}", osd.id, counted(count, "shard"))),
    }
}

/// A value that was taken away counts no more in an OSD. The OSD may run with one of its own then: mClock sets some.
fn is_gone(hands: Hands<'_>, osd: &Osd, step: &Step) -> Result<(), String> {
    let change = &step.change;
    let diff = ask(hands.client, Recipient::Osd(osd.id as u32), &command("config diff"))?;
    let sources = &diff["diff"][change.key.as_str()];
    let text = |source: &str| {
        let value = &sources[source];
        (!value.is_null()).then(|| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    match change.target {
        Target::File => match text("file") {
            Some(value) => Err(format!("osd.{} has {}={value} from its file still", osd.id, change.key)),
            None => Ok(()),
        },
        Target::Config => match text("mon") {
            // Another section may hold a value of its own.
            Some(value) if !is_same(&value, &by_database(hands, osd, &change.key)?) => {
                Err(format!("osd.{} has {}={value} from the database still", osd.id, change.key))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The value that an OSD takes by the database, or by default.
pub(super) fn by_database(hands: Hands<'_>, osd: &Osd, key: &str) -> Result<String, String> {
    let order = json!({"prefix": "config get", "who": format!("osd.{}", osd.id), "key": key});
    let said = hands.client.send(Recipient::Monitors, &order).map_err(|why| why.to_string())?;
    Ok(said.trim().to_owned())
}

fn balancer(hands: Hands<'_>, step: &Step) -> Result<Effect, String> {
    let change = &step.change;
    let said = ask(hands.client, Recipient::Manager, &command("balancer status"))?;
    let name = change.key.rsplit('/').next().unwrap_or_default();
    let shown = &said[name];
    let text = shown.as_str().map_or_else(|| shown.to_string(), str::to_owned);
    match &change.value {
        _ if shown.is_null() => Ok(Effect::NotVisible("the balancer does not show it".to_owned())),
        Some(want) if !is_same(&text, want) => Err(format!("the balancer has {name} {text} and not {want}")),
        _ => Ok(Effect::Acts(format!("the balancer has {name} {text}"))),
    }
}
