//! How a cache warms: hit rate and mean latency round by round.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::FontStyle;

use super::Round;
use super::canvas::{AFTER, Area, DIRTY, FONT, INK, calm, decades, plain, svg};
use crate::units;

const LEFT: u32 = 72;

/// One curve over the rounds.
struct Panel<'a> {
    title: &'a str,
    values: Vec<f64>,
    range: Range<f64>,
    marks: usize,
    colour: RGBColor,
    format: fn(f64) -> String,
}

/// Draws both panels.
pub(super) fn draw(rounds: &[Round]) -> Result<String> {
    let told: Vec<String> = rounds
        .iter()
        .map(|round| format!("{:.0} % hits, {}", round.hits * 100.0, units::time(round.run.latency.mean_ns)))
        .collect();
    let label = format!("Hit rate and mean latency by round: {}", told.join("; "));
    let (low, high) = decades(rounds.iter().map(|round| round.run.latency.mean_ns));
    let hits = Panel {
        title: "Reads answered by the cache",
        values: rounds.iter().map(|round| round.hits * 100.0).collect(),
        range: 0.0..100.0,
        marks: 5,
        colour: DIRTY,
        format: |share| format!("{share:.0} %"),
    };
    let mean = Panel {
        title: "Mean latency (log scale)",
        values: rounds.iter().map(|round| round.run.latency.mean_ns.log10()).collect(),
        range: low.log10()..high.log10(),
        marks: ((high / low).log10().round() as usize + 1).max(2),
        colour: AFTER,
        format: |decade| units::axis_time(10f64.powf(decade)),
    };
    svg((900, 340), &label, |area| {
        let (top, bottom) = area.split_vertically(160);
        hits.draw(&top)?;
        mean.draw(&bottom)
    })
}

impl Panel<'_> {
    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let style = (FONT, 14).into_font().style(FontStyle::Bold).color(&INK);
        area.draw(&Text::new(self.title.to_owned(), (LEFT as i32, 4), style)).map_err(plain)?;
        let mut chart = ChartBuilder::on(area)
            .margin_top(28)
            .margin_right(16)
            .margin_bottom(4)
            .x_label_area_size(24)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(0.5..self.values.len() as f64 + 0.5, self.range.clone())
            .map_err(plain)?;
        let mut mesh = chart.configure_mesh();
        calm(&mut mesh);
        mesh.x_labels(self.values.len() + 1)
            .y_labels(self.marks)
            .x_label_formatter(&|x: &f64| {
                if x.fract().abs() < 1e-6 { format!("round {x:.0}") } else { String::new() }
            })
            .y_label_formatter(&|y| (self.format)(*y))
            .draw()
            .map_err(plain)?;
        let points: Vec<(f64, f64)> =
            self.values.iter().enumerate().map(|(i, value)| (i as f64 + 1.0, *value)).collect();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), self.colour.stroke_width(2)))
            .map_err(plain)?;
        let marks = points.iter().map(|at| Circle::new(*at, 4, self.colour.filled()));
        chart.draw_series(marks).map_err(plain)?;
        Ok(())
    }
}
