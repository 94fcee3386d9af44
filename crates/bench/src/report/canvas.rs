//! The parts that all plots share: colours that follow the page's light or dark scheme, panels, and the SVG element around a drawing.

use anyhow::{Result, anyhow};
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

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

/// The look that axes share: lines across only, and few of them.
pub(super) fn calm<'a, X, Y, DB>(mesh: &mut MeshStyle<'a, '_, X, Y, DB>)
where
    X: Ranged,
    Y: Ranged,
    DB: DrawingBackend,
{
    mesh.disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(SOFT)
        .label_style((FONT, 12).into_font().color(&SOFT));
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
