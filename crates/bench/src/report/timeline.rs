//! IOPS, 99th percentile and dirty share over the seconds of one phase.

use anyhow::Result;
use plotters::prelude::*;

use super::Timeline;
use super::canvas::{AFTER, Area, BEFORE, DIRTY, Panel, decades, marks, plain, svg};
use crate::fio::Second;
use crate::stats::median;
use crate::units;

/// One line: its points, its colour, and whether it is dashed.
struct Line {
    points: Vec<(f64, f64)>,
    colour: RGBColor,
    dashed: bool,
}

/// Draws the three panels.
pub(super) fn draw(timeline: &Timeline) -> Result<String> {
    let ends = timeline.before.iter().chain(&timeline.after).map(|second| second.at);
    let end = ends.chain(timeline.dirty.iter().map(|(at, _)| *at)).fold(1.0, f64::max);
    let label = format!(
        "{}: requests per second, 99th percentile latency and dirty share of the cache over time, with and without the cache",
        timeline.name
    );
    svg((900, 560), &label, |area| {
        let (top, rest) = area.split_vertically(225);
        let (middle, bottom) = rest.split_vertically(165);
        let iops = lines(timeline, end, |second| second.iops);
        log_panel(&top, "Requests per second (IOPS, log scale)", end, &iops, &units::axis)?;
        let p99 = lines(timeline, end, |second| second.p99_ns as f64 / 1e6);
        log_panel(&middle, "99th percentile latency of each second (log scale)", end, &p99, &|ms| {
            units::axis_time(ms * 1e6)
        })?;
        dirty_panel(&bottom, end, &timeline.dirty)
    })
}

/// The lines of both sides; the bare side, where it ran for a shorter time, goes on dashed at its median.
fn lines(timeline: &Timeline, end: f64, value: impl Fn(&Second) -> f64) -> Vec<Line> {
    let points = |series: &[Second]| -> Vec<(f64, f64)> {
        series.iter().map(|second| (second.at, value(second))).filter(|(_, value)| *value > 0.0).collect()
    };
    let before = points(&timeline.before);
    let mut lines = Vec::new();
    if let Some((last, _)) = before.last().filter(|(last, _)| *last + 2.0 < end) {
        let level = median(&before.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        lines.push(Line { points: vec![(*last, level), (end, level)], colour: BEFORE, dashed: true });
    }
    lines.push(Line { points: before, colour: BEFORE, dashed: false });
    lines.push(Line { points: points(&timeline.after), colour: AFTER, dashed: false });
    lines
}

/// A panel over the seconds of the load.
fn panel<'p>(title: &'p str, end: f64, y_marks: usize, y_format: &'p dyn Fn(f64) -> String) -> Panel<'p> {
    Panel {
        title,
        labels: (72, 22),
        free: (16, 8),
        x: 0.0..end,
        // As many as there are by default.
        x_marks: 11,
        x_format: &|x| format!("{x:.0} s"),
        x_name: "",
        y_marks,
        y_format,
    }
}

fn log_panel(
    area: &Area<'_>,
    title: &str,
    end: f64,
    lines: &[Line],
    format: &dyn Fn(f64) -> String,
) -> Result<()> {
    let (low, high) = decades(lines.iter().flat_map(|line| line.points.iter().map(|(_, value)| *value)));
    let mut chart = panel(title, end, marks((low, high)), format).open(area, (low..high).log_scale())?;
    for line in lines {
        let style = line.colour.stroke_width(2);
        if line.dashed {
            chart
                .draw_series(DashedLineSeries::new(line.points.iter().copied(), 6, 5, style))
                .map_err(plain)?;
        } else {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), style)).map_err(plain)?;
        }
    }
    Ok(())
}

fn dirty_panel(area: &Area<'_>, end: f64, dirty: &[(f64, f64)]) -> Result<()> {
    let percent = |y| format!("{y:.0} %");
    let panel = panel("Dirty share of the cache", end, 5, &percent);
    let panel = Panel { labels: (72, 34), free: (16, 0), x_name: "time since the load began", ..panel };
    let mut chart = panel.open(area, 0.0..100.0)?;
    let points: Vec<(f64, f64)> = dirty.iter().map(|(at, share)| (*at, share * 100.0)).collect();
    let area = AreaSeries::new(points, 0.0, DIRTY.mix(0.25)).border_style(DIRTY.stroke_width(2));
    chart.draw_series(area).map_err(plain)?;
    Ok(())
}
