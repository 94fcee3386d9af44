//! Sizes as users write them.

use crate::{IoError, IoKind};

/// Bytes from text: a whole number, optionally followed by k, m, g or t in either case (powers of 1024) and then
/// optionally by `iB`, `i` or `b` in either case: `4k`, `1GiB`, `512m`, `1048576`.
pub fn parse_size(text: &str) -> Result<u64, IoError> {
    let bad = |why: &str| {
        let text = format!("'{text}' is not a size: {why} (write bytes, or k/m/g/t as in 4k, 512M, 1GiB)");
        IoError::new(IoKind::Invalid, text)
    };
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.len() - lower.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = lower.split_at(digits);
    if number.is_empty() {
        return Err(bad("it does not start with a whole number"));
    }
    let shift = match unit.chars().next() {
        None | Some('b') => 0,
        Some('k') => 10,
        Some('m') => 20,
        Some('g') => 30,
        Some('t') => 40,
        Some(_) => return Err(bad("unknown unit")),
    };
    let rest = if shift == 0 { unit } else { &unit[1..] };
    let rest_allowed =
        if shift == 0 { matches!(rest, "" | "b") } else { matches!(rest, "" | "b" | "i" | "ib") };
    if !rest_allowed {
        return Err(bad("unknown unit"));
    }
    let n: u64 = number.parse().map_err(|_| bad("the number is too large"))?;
    n.checked_mul(1 << shift).ok_or_else(|| bad("the number is too large"))
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_powers_of_1024_in_any_case() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512b", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("4ki", 4096),
            ("64kb", 65536),
            ("512m", 512 << 20),
            ("1GiB", 1 << 30),
            ("2T", 2 << 40),
            (" 1g ", 1 << 30),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_the_text_and_an_example() {
        for text in
            ["", "k", "-1", "1.5g", "1x", "1gi b", "1ii", "5bb", "0x10", "99999999999999999999", "99999999t"]
        {
            let said = parse_size(text).unwrap_err().to_string();
            assert!(said.contains(&format!("'{text}'")) && said.contains("1GiB"), "{said}");
        }
    }
}
