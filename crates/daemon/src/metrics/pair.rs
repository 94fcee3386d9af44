//! The numbers of the agent of a pair.

use super::families::{Families, Labels, Value};
use loligo_agent::history::Told;
use loligo_agent::status::Status;
use loligo_pair::machine::RoleName;
use prometheus_client::metrics::MetricType;

/// The agent as a scrape tells of it.
#[derive(Debug)]
pub(crate) struct PairNumbers {
    pub(crate) status: Status,
    pub(crate) told: Told,
}

/// Adds them to a scrape.
pub(super) fn add(all: &mut Families, PairNumbers { status, told }: &PairNumbers) {
    let labels: Labels = vec![("pair", status.pair.clone()), ("side", status.side.to_string())];
    let with = |key: &'static str, value: &str| {
        let mut labels = labels.clone();
        labels.push((key, value.to_owned()));
        labels
    };
    let flag = |is: bool| Value::Number(f64::from(u8::from(is)));
    let roles = RoleName::ALL.map(|role| (with("role", &role.to_string()), flag(role == status.role)));
    all.put("pair_role", MetricType::Gauge, "1: this controller has the role", roles);
    let began = RoleName::ALL.map(|role| {
        let count = told.roles.get(&role).copied().unwrap_or_default();
        (with("role", &role.to_string()), Value::Number(count as f64))
    });
    let help = "changes of role that led to it since the agent began";
    all.put("pair_transitions", MetricType::Counter, help, began);
    let mut one = |name: &str, kind: MetricType, help: &str, value: Value| {
        all.put(name, kind, help, [(labels.clone(), value)]);
    };
    let help = "alarms since the agent began: 'loligo pair history' has them";
    one("pair_alarms", MetricType::Counter, help, Value::Number(told.alarms as f64));
    let heard = status.partner.as_ref().is_some_and(|partner| partner.heard);
    one("pair_partner_heard", MetricType::Gauge, "1: a link brings the partner's heartbeats", flag(heard));
    if let Some(age) = status.monitor_age_ms {
        let help = "since a monitor of the cluster answered";
        one("pair_monitor_age_seconds", MetricType::Gauge, help, Value::Number(age as f64 / 1e3));
    }
    let units = status.units.iter().map(|unit| (with("unit", &unit.name), flag(unit.state == "running")));
    all.put("pair_unit_running", MetricType::Gauge, "1: the unit runs on this controller", units);
    let held = status.luns.iter().map(|lun| {
        let mut labels = with("lun", &lun.name);
        labels.push(("holder", lun.holder.map_or_else(String::new, |side| side.to_string())));
        (labels, Value::Number(1.0))
    });
    all.put("pair_lun_holder", MetricType::Gauge, "always 1; the side that holds the LUN is a label", held);
}
