//! The key by which a controller holds the arrays that it shares.

use loligo_pair::reservation::Key;
use std::str::FromStr;

/// The key of this controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservationKey(pub(crate) Key);

impl FromStr for ReservationKey {
    type Err = String;

    fn from_str(text: &str) -> Result<ReservationKey, String> {
        let digits = text.strip_prefix("0x").unwrap_or_default();
        match u64::from_str_radix(digits, 16) {
            Ok(key) if key != 0 => Ok(ReservationKey(Key(key))),
            Ok(_) | Err(_) => Err(format!(
                "reservation = \"{text}\" is no key: give 0x and hexadecimal digits, 16 at most and not all 0"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_in_hexadecimal() {
        assert_eq!("0xA".parse(), Ok(ReservationKey(Key(0xa))));
        for bad in ["", "0x", "0x0", "a", "10", "0x12345678123456789", "0xg"] {
            assert!(bad.parse::<ReservationKey>().is_err(), "{bad}");
        }
    }
}
