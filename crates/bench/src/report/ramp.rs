//! The warming of a cache: hit rate and mean latency round by round.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::*;

use super::Round;
use super::canvas::{AFTER, Area, DIRTY, Panel, decades, marks, plain, svg};
use crate::units;

/// Draws both panels.
pub(super) fn draw(rounds: &[Round]) -> Result<String> {
    let told: Vec<String> = rounds
        .iter()
        .map(|round| format!("{:.0} % hits, {}", round.hits * 100.0, units::time(round.run.latency.mean_ns)))
        .collect();
    let label = format!("Hit rate and mean latency by round: {}", told.join("; "));
    let (low, high) = decades(rounds.iter().map(|round| round.run.latency.mean_ns));
    let panel = |title, y_marks, y_format| Panel {
        title,
        labels: (72, 24),
        free: (16, 4),
        x: 0.5..rounds.len() as f64 + 0.5,
        x_marks: rounds.len() + 1,
        x_format: &|x| if x.fract().abs() < 1e-6 { format!("round {x:.0}") } else { String::new() },
        x_name: "",
        y_marks,
        y_format,
    };
    let hits = panel("Reads answered by the cache", 5, &|share| format!("{share:.0} %"));
    let mean =
        panel("Mean latency (log scale)", marks((low, high)), &|decade| units::axis_time(10f64.powf(decade)));
    svg((900, 340), &label, |area| {
        let (top, bottom) = area.split_vertically(160);
        curve(&hits, &top, DIRTY, 0.0..100.0, rounds.iter().map(|round| round.hits * 100.0))?;
        let latency = rounds.iter().map(|round| round.run.latency.mean_ns.log10());
        curve(&mean, &bottom, AFTER, low.log10()..high.log10(), latency)
    })
}

/// One value for each round.
fn curve(
    panel: &Panel<'_>,
    area: &Area<'_>,
    colour: RGBColor,
    y: Range<f64>,
    values: impl Iterator<Item = f64>,
) -> Result<()> {
    let mut chart = panel.open(area, y)?;
    let points: Vec<(f64, f64)> = values.enumerate().map(|(i, value)| (i as f64 + 1.0, value)).collect();
    chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2))).map_err(plain)?;
    let marks = points.iter().map(|at| Circle::new(*at, 4, colour.filled()));
    chart.draw_series(marks).map_err(plain)?;
    Ok(())
}
