//! Numbers as people read them.

use std::time::SystemTime;

/// `1,234,567`: thousands separated, rounded to whole numbers from 100 on, otherwise to three figures.
pub fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A tick on a logarithmic axis: `100`, `10k`, `1M`.
pub fn axis(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

/// A tick of nanoseconds on a logarithmic axis: `100 µs`, `1 ms`.
pub fn axis_time(ns: f64) -> String {
    match ns {
        ns if ns < 0.999e3 => format!("{ns:.0} ns"),
        ns if ns < 0.999e6 => format!("{:.0} µs", ns / 1e3),
        ns if ns < 0.999e9 => format!("{:.0} ms", ns / 1e6),
        ns => format!("{:.0} s", ns / 1e9),
    }
}

/// A time in nanoseconds as µs, ms or s.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", number(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", number(ns / 1e6)),
        ns => format!("{} s", number(ns / 1e9)),
    }
}

/// Bytes in binary units.
pub fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = (0..units.len() - 1).find(|i| count < 1024f64.powi(*i as i32 + 1)).unwrap_or(units.len() - 1);
    let scaled = count / 1024f64.powi(step as i32);
    if scaled.fract() == 0.0 {
        format!("{scaled} {}", units[step])
    } else {
        format!("{} {}", number(scaled), units[step])
    }
}

/// `57.8x`.
pub fn times(ratio: f64) -> String {
    format!("{}x", number(ratio))
}

/// A time as `2026-11-21 13:45 UTC`.
pub fn utc(time: SystemTime) -> String {
    // "2026-11-21T13:45:59Z"
    let text = humantime::format_rfc3339_seconds(time).to_string();
    format!("{} {} UTC", &text[..10], &text[11..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn numbers_read_well_at_every_size() {
        assert_eq!(number(1_234_567.4), "1,234,567");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(number(57.84), "57.8");
        assert_eq!(number(1.0), "1.00");
        assert_eq!(axis(10_000.0), "10k");
        assert_eq!(axis_time(1e6), "1 ms");
        assert_eq!(times(58.3), "58.3x");
        assert_eq!(time(950.0), "950 ns");
        assert_eq!(time(42_500.0), "42.5 µs");
        assert_eq!(time(12_345_678.0), "12.3 ms");
        assert_eq!(bytes(268_435_456.0), "256 MiB");
        assert_eq!(bytes(1536.0), "1.50 KiB");
    }

    #[test]
    fn a_time_is_told_to_the_minute() {
        let at = |seconds| utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(at(1_795_268_965), "2026-11-21 13:49 UTC");
    }
}
