//! Latency percentiles of one phase, both sides, on a log axis.

use anyhow::Result;
use plotters::prelude::*;

use super::Phase;
use super::canvas::{AFTER, BEFORE, Panel, decades, marks, plain, svg};
use crate::fio::Latency;
use crate::units;

const NAMES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

fn values(latency: &Latency) -> [f64; 5] {
    [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns]
        .map(|ns| ns.max(1) as f64)
}

/// Draws one small panel.
pub(super) fn draw(phase: &Phase) -> Result<String> {
    let before = values(&phase.before.latency);
    let after = values(&phase.after.latency);
    let (low, high) = decades(before.iter().chain(&after).copied());
    let told = |values: &[f64; 5]| {
        let pairs: Vec<String> =
            NAMES.iter().zip(values).map(|(name, ns)| format!("{name} {}", units::time(*ns))).collect();
        pairs.join(", ")
    };
    let label =
        format!("Latency of {}. Without the cache: {}. With it: {}", phase.name, told(&before), told(&after));
    let panel = Panel {
        title: &phase.name,
        labels: (66, 24),
        free: (12, 0),
        x: -0.3..4.3,
        x_marks: 5,
        x_format: &|x| NAMES.get(x.round() as usize).map_or(String::new(), |name| (*name).to_owned()),
        x_name: "",
        y_marks: marks((low, high)),
        y_format: &units::axis_time,
    };
    svg((440, 250), &label, |area| {
        let mut chart = panel.open(area, (low..high).log_scale())?;
        for (values, colour, round) in [(before, BEFORE, false), (after, AFTER, true)] {
            let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, ns)| (i as f64, *ns)).collect();
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
                .map_err(plain)?;
            // Different marks, so that the sides are told apart without colour.
            if round {
                chart
                    .draw_series(points.iter().map(|at| Circle::new(*at, 4, colour.filled())))
                    .map_err(plain)?;
            } else {
                let mark = |at: &(f64, f64)| TriangleMarker::new(*at, 6, colour.filled());
                chart.draw_series(points.iter().map(mark)).map_err(plain)?;
            }
        }
        Ok(())
    })
}
