//! The points of the figures, and their goals.

use crate::fio::{Measured, Rw};
use crate::marks::Want;
use serde::Serialize;
use std::str::FromStr;

const KIB: u64 = 1 << 10;

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Figure {
    /// 5: latency of one write at a time.
    #[serde(rename = "5")]
    Latency,
    /// 6: throughput at queue 64.
    #[serde(rename = "6")]
    Throughput,
    /// 7: operations a second at queue 128.
    #[serde(rename = "7")]
    Iops,
    /// Throughput at queue 64 once the journal has been full for a while.
    #[serde(rename = "sustained")]
    Sustained,
}

impl Figure {
    pub(super) const ALL: [Figure; 4] =
        [Figure::Latency, Figure::Throughput, Figure::Iops, Figure::Sustained];

    pub(super) fn name(self) -> &'static str {
        match self {
            Figure::Latency => "5",
            Figure::Throughput => "6",
            Figure::Iops => "7",
            Figure::Sustained => "sustained",
        }
    }

    fn depth(self) -> u32 {
        match self {
            Figure::Latency => 1,
            Figure::Throughput | Figure::Sustained => 64,
            Figure::Iops => 128,
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Figure, String> {
        let found = Figure::ALL.into_iter().find(|figure| figure.name() == text);
        found.ok_or_else(|| "the figures are 5, 6, 7 and sustained".to_owned())
    }
}

/// The order of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Seq,
    /// Uniformly random.
    Rand,
}

impl Pattern {
    pub(super) const ALL: [Pattern; 2] = [Pattern::Seq, Pattern::Rand];

    pub(super) fn name(self) -> &'static str {
        match self {
            Pattern::Seq => "seq",
            Pattern::Rand => "rand",
        }
    }

    pub(super) fn rw(self) -> Rw {
        match self {
            Pattern::Seq => Rw::Write,
            Pattern::Rand => Rw::RandWrite,
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let found = Pattern::ALL.into_iter().find(|pattern| pattern.name() == text);
        found.ok_or_else(|| "the orders are seq and rand".to_owned())
    }
}

/// The speed of links, megabits a second; nothing: as fast as they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Link(pub Option<u32>);

impl Link {
    /// The most that goes over it in one direction, bytes a second.
    pub(super) fn ceiling(self) -> Option<f64> {
        self.0.map(|megabits| f64::from(megabits) * 1e6 / 8.0)
    }

    pub(super) fn name(self) -> String {
        match self.0 {
            None => "unlimited".to_owned(),
            Some(megabits) if megabits.is_multiple_of(1000) => format!("{}g", megabits / 1000),
            Some(megabits) => format!("{megabits}m"),
        }
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Link, String> {
        let wrong = || "a link is 'unlimited', or a speed as 1g or 100m".to_owned();
        if text == "unlimited" {
            return Ok(Link(None));
        }
        let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
        let unit = match unit {
            "g" => 1000,
            "m" => 1,
            _ => return Err(wrong()),
        };
        let number: u32 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(unit).filter(|megabits| *megabits > 0).map(|m| Link(Some(m))).ok_or_else(wrong)
    }
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The figure.
    pub figure: Figure,
    /// Bytes of a write.
    pub block: u64,
    /// Their order.
    pub pattern: Pattern,
    /// Writes in flight.
    pub depth: u32,
    /// Speed of the links.
    pub link: Link,
}

/// The arms that are compared, the first over the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arms {
    /// Fast ack over native.
    FastNative,
    /// Fast ack with a mirror over fast ack without.
    MirroredFast,
    /// Fast ack with a mirror over native.
    MirroredNative,
}

/// The number that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Number {
    /// Mean latency.
    Latency,
    /// 99th percentile of the latency.
    P99,
    /// Writes a second.
    Rate,
}

impl Number {
    pub(super) fn of(self, run: &Measured) -> f64 {
        match self {
            Number::Latency => run.latency.mean_ns,
            Number::P99 => run.latency.p99_ns as f64,
            Number::Rate => run.iops,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Number::Latency => "latency",
            Number::P99 => "p99",
            Number::Rate => "rate",
        }
    }
}

impl Point {
    pub(super) fn new(figure: Figure, block: u64, pattern: Pattern, link: Link) -> Point {
        Point { figure, block, pattern, depth: figure.depth(), link }
    }

    /// `4K rand qd1`.
    pub(super) fn name(&self) -> String {
        let size = match self.block {
            block if block >= KIB * KIB => format!("{}M", block / KIB / KIB),
            block => format!("{}K", block / KIB),
        };
        format!("{size} {} qd{}", self.pattern.name(), self.depth)
    }

    /// What is asked of fast ack over native.
    pub(super) fn goals(&self) -> Vec<(Number, Want)> {
        let (kib, is_rand) = (self.block / KIB, self.pattern == Pattern::Rand);
        let rate = |want| vec![(Number::Rate, want)];
        match self.figure {
            Figure::Latency => {
                let most = if kib == 4 { 0.2 } else { 0.5 };
                vec![(Number::Latency, Want::AtMost(most)), (Number::P99, Want::AtMost(1.0))]
            }
            Figure::Throughput if kib <= 16 => rate(Want::AtLeast(1.5)),
            Figure::Throughput if is_rand && kib <= 128 => rate(Want::AtLeast(2.0)),
            Figure::Throughput => rate(Want::AtLeast(0.95)),
            Figure::Iops if is_rand && kib >= 64 => rate(Want::AtLeast(3.0)),
            Figure::Iops if kib >= 128 => rate(Want::AtLeast(2.0)),
            Figure::Iops if !is_rand && kib <= 16 => rate(Want::AtLeast(1.5)),
            Figure::Iops => rate(Want::Nothing),
            Figure::Sustained if is_rand && kib == 4 => rate(Want::AtLeast(3.0)),
            Figure::Sustained => rate(Want::AtLeast(0.95)),
        }
    }
}

impl Point {
    /// The goals of a mirrored volume; none: it is not measured there.
    pub(super) fn mirror_goals(&self) -> Vec<(Arms, Number, Want)> {
        match self.figure {
            Figure::Latency => [(Arms::MirroredFast, 2.0), (Arms::MirroredNative, 0.5)]
                .map(|(arms, most)| (arms, Number::Latency, Want::AtMost(most)))
                .to_vec(),
            Figure::Throughput | Figure::Iops | Figure::Sustained => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_and_named_alike() {
        for (text, megabits) in [("unlimited", None), ("1g", Some(1000)), ("100m", Some(100))] {
            let link: Link = text.parse().unwrap();
            assert_eq!((link.0, link.name()), (megabits, text.to_owned()));
        }
        assert_eq!("1g".parse::<Link>().unwrap().ceiling(), Some(125e6));
        for wrong in ["", "g", "0m", "1", "1k", "9999999g", "é"] {
            wrong.parse::<Link>().unwrap_err();
        }
    }

    #[test]
    fn each_point_has_the_goal_of_its_figure() {
        let goal =
            |figure, kib: u64, pattern| Point::new(figure, kib << 10, pattern, Link(None)).goals()[0].1;
        use Figure::{Iops, Latency, Sustained, Throughput};
        use Pattern::{Rand, Seq};
        assert_eq!(goal(Latency, 4, Seq), Want::AtMost(0.2));
        assert_eq!(goal(Latency, 4096, Rand), Want::AtMost(0.5));
        assert_eq!([8, 64, 1024].map(|kib| goal(Throughput, kib, Rand)), [1.5, 2.0, 0.95].map(Want::AtLeast));
        assert_eq!(goal(Throughput, 64, Seq), Want::AtLeast(0.95));
        assert_eq!([16, 128, 4096].map(|kib| goal(Iops, kib, Seq)), [1.5, 2.0, 2.0].map(Want::AtLeast));
        assert_eq!([64, 4096].map(|kib| goal(Iops, kib, Rand)), [3.0; 2].map(Want::AtLeast));
        assert_eq!(goal(Iops, 16, Rand), Want::Nothing);
        assert_eq!([4, 8].map(|kib| goal(Sustained, kib, Rand)), [3.0, 0.95].map(Want::AtLeast));
    }
}
