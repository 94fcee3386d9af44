//! The metrics of a scrape, gathered by name and written as text.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

pub(super) type Labels = Vec<(&'static str, String)>;

/// A number, or many.
#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    /// Seconds: their sum, how many there are, and how many lie below each end but not below the one before.
    Histogram {
        sum: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

/// One metric: what it is, and its value for each volume.
#[derive(Debug)]
struct Family {
    kind: MetricType,
    help: String,
    rows: Vec<(Labels, Value)>,
}

/// The metrics of a scrape by name, without 'loligo_' and '_total'.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<String, Family>);

impl Families {
    pub(super) fn put(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        rows: impl IntoIterator<Item = (Labels, Value)>,
    ) {
        let family = || Family { kind, help: help.to_owned(), rows: Vec::new() };
        self.0.entry(name.to_owned()).or_insert_with(family).rows.extend(rows);
    }

    /// All of them as text.
    pub(super) fn text(self) -> String {
        let mut registry = Registry::with_prefix("loligo");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("a string takes all text");
        text
    }

    /// A number that has no text of its own: its name says what it is.
    pub(super) fn plain(&mut self, name: &str, grows: bool, labels: &Labels, value: f64) {
        let kind = if grows { MetricType::Counter } else { MetricType::Gauge };
        self.put(name, kind, &name.replace('_', " "), [(labels.clone(), Value::Number(value))]);
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, family) in &self.0 {
            let mut metric = encoder.encode_descriptor(name, &family.help, None, family.kind)?;
            match family.rows.as_slice() {
                // Without braces, as all tools read it.
                [(labels, value)] if labels.is_empty() => write(metric, family.kind, value)?,
                rows => {
                    for (labels, value) in rows {
                        write(metric.encode_family(labels)?, family.kind, value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn write(mut row: MetricEncoder<'_>, kind: MetricType, value: &Value) -> Result<(), fmt::Error> {
    let number = match value {
        Value::Histogram { sum, count, buckets } => {
            return row.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None);
        }
        Value::Number(number) => *number,
    };
    // Whole numbers are written without a point, up to those that a float tells apart.
    let whole = (number >= 0.0 && number.fract() == 0.0 && number < 2f64.powi(53)).then_some(number as u64);
    match (kind, whole) {
        (MetricType::Counter, Some(n)) => row.encode_counter::<NoLabelSet, u64, f64>(&n, None),
        (MetricType::Counter, None) => row.encode_counter::<NoLabelSet, f64, f64>(&number, None),
        (_, Some(n)) => row.encode_gauge(&n),
        (_, None) => row.encode_gauge(&number),
    }
}
