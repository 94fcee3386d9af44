//! The parts that all plots share: colours that follow the page's light or dark scheme, panels, and the SVG element around a drawing.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::FontStyle;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(1, 2, 3);
/// Secondary text.
pub(super) const SOFT: RGBColor = RGBColor(2, 3, 4);
/// Grid lines.
pub(super) const GRID: RGBColor = RGBColor(4, 5, 6);
/// The side without a cache.
pub(super) const BEFORE: RGBColor = RGBColor(7, 8, 9);
/// The side with a cache.
pub(super) const AFTER: RGBColor = RGBColor(10, 11, 12);
/// The dirty share.
pub(super) const DIRTY: RGBColor = RGBColor(13, 14, 15);

/// Each drawing colour and the page's variable that replaces it.
const VARIABLES: [(RGBColor, &str); 6] =
    [(INK, "ink"), (SOFT, "soft"), (GRID, "grid"), (BEFORE, "before"), (AFTER, "after"), (DIRTY, "dirty")];

/// The font of all plots.
pub(super) const FONT: &str = "system-ui, sans-serif";

/// The area that a plot draws on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Turns plotters' error into ours: it borrows from the backend.
pub(super) fn plain<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("drawing a plot: {error}")
}

/// Draws on `width` x `height` units and returns an inline SVG that scales with the page, is announced as an image with
/// `label`, and takes its colours from the page's variables.
pub(super) fn svg(
    (width, height): (u32, u32),
    label: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(plain)?;
    }
    let body = text.find("<svg").and_then(|at| text[at..].find('>').map(|end| at + end + 1));
    let mut body = text[body.ok_or_else(|| anyhow!("plotters drew no SVG"))?..].to_owned();
    for (RGBColor(r, g, b), name) in VARIABLES {
        body = body.replace(&format!("#{r:02X}{g:02X}{b:02X}"), &format!("var(--{name})"));
    }
    let label = label.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    Ok(format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\" \
         xmlns=\"http://www.w3.org/2000/svg\"><title>{label}</title>{body}"
    ))
}

/// A range of whole powers of ten around the positive values, at least one decade.
pub(super) fn decades(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .into_iter()
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (1.0, 10.0);
    }
    let low = 10f64.powf(low.log10().floor());
    let high = 10f64.powf(high.log10().ceil());
    (low, high.max(low * 10.0))
}

/// A chart with a title and calm axes, in a part of a drawing.
pub(super) struct Panel<'p> {
    pub(super) title: &'p str,
    /// Units that the labels have at the left and below.
    pub(super) labels: (u32, u32),
    /// Units that stay free at the right and at the bottom.
    pub(super) free: (u32, u32),
    pub(super) x: Range<f64>,
    pub(super) x_marks: usize,
    pub(super) x_format: &'p dyn Fn(f64) -> String,
    /// The title of the x axis; empty where its labels say it.
    pub(super) x_name: &'p str,
    pub(super) y_marks: usize,
    pub(super) y_format: &'p dyn Fn(f64) -> String,
}

/// An open panel, to draw series into.
pub(super) type Chart<'a, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Y>>;

impl Panel<'_> {
    /// Draws title and axes.
    pub(super) fn open<'a, Y>(&self, area: &Area<'a>, y: Y) -> Result<Chart<'a, Y::CoordDescType>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let style = (FONT, 14).into_font().style(FontStyle::Bold).color(&INK);
        area.draw(&Text::new(self.title.to_owned(), (self.labels.0 as i32, 4), style)).map_err(plain)?;
        let mut chart = ChartBuilder::on(area)
            .margin_top(28)
            .margin_right(self.free.0)
            .margin_bottom(self.free.1)
            .x_label_area_size(self.labels.1)
            .y_label_area_size(self.labels.0)
            .build_cartesian_2d(self.x.clone(), y)
            .map_err(plain)?;
        let (x_format, y_format) = (|x: &f64| (self.x_format)(*x), |y: &f64| (self.y_format)(*y));
        let mut mesh = chart.configure_mesh();
        // Lines across only, and few of them.
        mesh.disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(SOFT)
            .label_style((FONT, 12).into_font().color(&SOFT))
            .x_labels(self.x_marks)
            .y_labels(self.y_marks)
            .x_label_formatter(&x_format)
            .y_label_formatter(&y_format);
        if !self.x_name.is_empty() {
            mesh.axis_desc_style((FONT, 12).into_font().color(&SOFT)).x_desc(self.x_name);
        }
        mesh.draw().map_err(plain)?;
        Ok(chart)
    }
}

/// Labels of a log axis from `low` to `high`: one for each decade.
pub(super) fn marks((low, high): (f64, f64)) -> usize {
    ((high / low).log10().round() as usize + 1).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_axis_spans_whole_decades_around_its_values() {
        assert_eq!(decades([15.0, 950.0]), (10.0, 1000.0));
        assert_eq!(decades([100.0]), (100.0, 1000.0));
        assert_eq!(decades([0.0]), (1.0, 10.0));
        assert_eq!(decades([]), (1.0, 10.0));
    }

    #[test]
    fn a_plot_has_a_label_and_no_colour_of_its_own() {
        let svg = svg((100, 50), "IOPS < latency", |area| {
            area.draw(&Circle::new((5, 5), 3, AFTER.filled())).map_err(plain)
        })
        .unwrap();
        assert!(svg.contains("aria-label=\"IOPS &lt; latency\"") && svg.contains("var(--after)"), "{svg}");
        assert!(!svg.contains("#0A0B0C") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
