//! Requests per second before and after, phase by phase, on a log axis.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Phase;
use super::canvas::{AFTER, BEFORE, FONT, GRID, INK, SOFT, decades, plain, svg};
use crate::units;

const WIDTH: i32 = 900;
const LEFT: i32 = 215;
const RIGHT: i32 = 150;
const TOP: i32 = 8;
const GROUP: i32 = 58;
const BAR: i32 = 18;

/// Draws two bars per phase, with their values and the ratio at the right.
pub(super) fn draw(phases: &[Phase]) -> Result<String> {
    let (low, high) = decades(phases.iter().flat_map(|phase| [phase.before.iops, phase.after.iops]));
    // One decade lower, so that the slowest bar has a length.
    let low = low / 10.0;
    let bottom = TOP + GROUP * phases.len() as i32;
    let x = |value: f64| {
        LEFT + ((value / low).log10() / (high / low).log10() * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
    };
    let told: Vec<String> = phases
        .iter()
        .map(|phase| {
            let [before, after] = [phase.before.iops, phase.after.iops].map(units::number);
            format!("{}: {before} before, {after} after, {}", phase.name, units::times(phase.ratio()))
        })
        .collect();
    let label = format!("Requests per second without and with the cache, log scale. {}", told.join("; "));
    svg((WIDTH as u32, (bottom + 46) as u32), &label, |area| {
        let text = |size: i32, colour: &RGBColor, bold: bool, h: HPos| {
            let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
            (FONT, size).into_font().style(style).color(colour).pos(Pos::new(h, VPos::Center))
        };
        let mut tick = low;
        while tick <= high * 1.001 {
            area.draw(&PathElement::new([(x(tick), TOP), (x(tick), bottom)], GRID)).map_err(plain)?;
            let style = text(12, &SOFT, false, HPos::Center);
            area.draw(&Text::new(units::axis(tick), (x(tick), bottom + 12), style)).map_err(plain)?;
            tick *= 10.0;
        }
        let style = text(12, &SOFT, false, HPos::Center);
        let middle = (LEFT + WIDTH - RIGHT) / 2;
        area.draw(&Text::new("requests per second (IOPS, log scale)", (middle, bottom + 32), style))
            .map_err(plain)?;
        for (i, phase) in phases.iter().enumerate() {
            let top = TOP + GROUP * i as i32 + (GROUP - 2 * BAR - 2) / 2;
            let centre = top + BAR + 1;
            let name = Text::new(phase.name.clone(), (LEFT - 12, centre), text(14, &INK, true, HPos::Right));
            area.draw(&name).map_err(plain)?;
            for (side, colour, y) in [(&phase.before, BEFORE, top), (&phase.after, AFTER, top + BAR + 2)] {
                let end = x(side.iops);
                area.draw(&Rectangle::new([(LEFT, y), (end, y + BAR)], colour.filled())).map_err(plain)?;
                let style = text(12, &INK, false, HPos::Left);
                area.draw(&Text::new(units::number(side.iops), (end + 6, y + BAR / 2), style))
                    .map_err(plain)?;
            }
            let style = text(20, &INK, true, HPos::Right);
            area.draw(&Text::new(units::times(phase.ratio()), (WIDTH - 8, centre), style)).map_err(plain)?;
        }
        Ok(())
    })
}
