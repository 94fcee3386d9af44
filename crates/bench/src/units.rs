//! Numbers as people read them.

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

/// Seconds since 1970 as `2026-11-21 13:45 UTC`.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to civil date in eras of 400 years that start on 1 March (H. Hinnant, chrono-compatible date algorithms).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn dates_hold_over_leap_years() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_795_268_965), "2026-11-21 13:49 UTC");
    }
}
