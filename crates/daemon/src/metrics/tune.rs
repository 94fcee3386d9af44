//! The numbers of the watch over applied values.

use super::families::{Families, Value};
use crate::tune::TuneNumbers;
use prometheus_client::metrics::MetricType;
use std::time::UNIX_EPOCH;

/// They alone, as the text that a collector reads.
pub fn text(numbers: &TuneNumbers) -> String {
    let mut all = Families::default();
    add(&mut all, numbers);
    all.text()
}

/// Adds them to a scrape.
pub(super) fn add(all: &mut Families, TuneNumbers { last, is_blind }: &TuneNumbers) {
    let mut one = |name: &str, help: &str, value: f64| {
        all.put(name, MetricType::Gauge, help, [(vec![], Value::Number(value))]);
    };
    one("tune_up", "1: applied values could be looked at", f64::from(u8::from(!is_blind)));
    let Some((time, look)) = last else { return };
    let time = time.duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64());
    one("tune_looked_seconds", "time of the last look that succeeded, since 1970", time);
    one("tune_values", "applied values that are looked at", look.steps as f64);
    let drifted = look.drifts.iter().map(|it| {
        let labels = vec![("run", it.run.clone()), ("rule", it.rule.clone()), ("place", it.place.clone())];
        (labels, Value::Number(1.0))
    });
    all.put("tune_drifted", MetricType::Gauge, "1 for each value that drifted", drifted);
}
