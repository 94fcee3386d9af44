//! The value of an option, with its source.

use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// The value of an option in a daemon that runs.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The daemon's own word.
    pub value: String,
    /// The source of the value in force: `default`, `file`, `mon`, `env`, `override`, `cmdline`.
    pub source: String,
    /// All sources that hold a value.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The value as a number, if it is one without a fraction.
    pub int: Option<i64>,
    /// The value as a number.
    pub double: Option<f64>,
    /// The value as yes or no.
    pub bool: Option<bool>,
}

impl Setting {
    /// The setting of this value and source.
    pub fn new(value: &str, source: &str) -> Setting {
        let int = value.parse().ok();
        Setting {
            value: value.to_owned(),
            source: source.to_owned(),
            sources: vec![source.to_owned()],
            int,
            double: value.parse().ok(),
            bool: value.parse().ok().or(match int {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_as_all_that_it_may_be() {
        let of = |value: &str| Setting::new(value, "default");
        assert_eq!((of("1").int, of("1").double, of("1").bool), (Some(1), Some(1.0), Some(true)));
        assert_eq!((of("0.500000").int, of("0.500000").double), (None, Some(0.5)));
        assert_eq!((of("false").bool, of("false").int), (Some(false), None));
        assert_eq!((of("wpq").int, of("wpq").double, of("wpq").bool), (None, None, None));
    }
}
