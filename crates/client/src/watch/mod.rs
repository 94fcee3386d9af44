//! All volumes of this host, looked at again and again: the daemon's, and those of `loligo serve`.

mod latency;
mod look;
mod rates;

pub use latency::{Distribution, Quantiles};
pub use look::{Look, Numbers, Seen, look};
pub use rates::{Rates, Row, rows};
