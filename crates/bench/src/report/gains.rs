//! Requests per second as settings are added one by one.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::FontStyle;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Gain;
use super::canvas::{AFTER, BEFORE, FONT, INK, plain, svg};
use crate::units;

const WIDTH: i32 = 900;
const LEFT: i32 = 215;
const RIGHT: i32 = 170;
const TOP: i32 = 8;
const ROW: i32 = 30;
const BAR: i32 = 18;

/// Draws a bar for each, from zero, with its value and the gain in all at the right.
pub(super) fn draw(gains: &[Gain]) -> Result<String> {
    let most = gains.iter().map(|gain| gain.iops).fold(1.0, f64::max);
    let x = |value: f64| LEFT + (value / most * f64::from(WIDTH - LEFT - RIGHT)).round() as i32;
    let change = |gain: &Gain| format!("{:+.1} %", (gain.total - 1.0) * 100.0);
    let told: Vec<String> = gains
        .iter()
        .map(|gain| format!("{}: {}, {}", gain.name, units::number(gain.iops), change(gain)))
        .collect();
    let label = format!("Requests per second as settings are added. {}", told.join("; "));
    svg((WIDTH as u32, (2 * TOP + ROW * gains.len() as i32) as u32), &label, |area| {
        let text = |size: i32, bold: bool, h: HPos| {
            let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
            (FONT, size).into_font().style(style).color(&INK).pos(Pos::new(h, VPos::Center))
        };
        for (at, gain) in gains.iter().enumerate() {
            let top = TOP + ROW * at as i32 + (ROW - BAR) / 2;
            let (centre, end) = (top + BAR / 2, x(gain.iops));
            let colour = if at == 0 { BEFORE } else { AFTER };
            area.draw(&Text::new(gain.name.clone(), (LEFT - 12, centre), text(13, false, HPos::Right)))
                .map_err(plain)?;
            area.draw(&Rectangle::new([(LEFT, top), (end, top + BAR)], colour.filled())).map_err(plain)?;
            area.draw(&Text::new(units::number(gain.iops), (end + 6, centre), text(12, false, HPos::Left)))
                .map_err(plain)?;
            if at > 0 {
                area.draw(&Text::new(change(gain), (WIDTH - 8, centre), text(15, true, HPos::Right)))
                    .map_err(plain)?;
            }
        }
        Ok(())
    })
}
