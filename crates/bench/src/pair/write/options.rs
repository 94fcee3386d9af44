//! The settings of an experiment.

use super::point::{Figure, Link, Pattern};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

/// The sizes of writes, bytes.
const SIZES: [u64; 8] = [4 << 10, 8 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 2 << 20, 4 << 20];

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

fn bytes(text: &str) -> Result<u64, String> {
    loligo_block::parse_size(text).map_err(|why| why.to_string())
}

/// A size that a write can have here.
fn block(text: &str) -> Result<u64, String> {
    let fits = |bytes: &u64| (4096..=4 << 20).contains(bytes) && bytes.is_multiple_of(4096);
    bytes(text).ok().filter(fits).ok_or_else(|| "sizes of writes are multiples of 4k, up to 4m".to_owned())
}

/// The settings by which it is measured
#[derive(Debug, Clone, clap::Args)]
#[group(id = "write")]
pub struct Options {
    /// 5 (latency at queue 1), 6 (throughput at queue 64), 7 (IOPS at queue 128), sustained [default: all]
    #[arg(long, value_name = "FIGURE,...", value_delimiter = ',', conflicts_with = "failures")]
    pub figures: Vec<Figure>,
    /// Sizes of the writes [default: 4k,8k,16k,64k,128k,1m,2m,4m]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = block, conflicts_with = "failures")]
    pub sizes: Vec<u64>,
    /// seq, rand [default: both]
    #[arg(long, value_name = "ORDER,...", value_delimiter = ',', conflicts_with = "failures")]
    pub patterns: Vec<Pattern>,
    /// Interleaved pairs of runs
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "failures")]
    pub rounds: usize,
    /// Seconds of each run
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds, conflicts_with = "failures")]
    pub seconds: Duration,
    /// Seconds that a full journal is written to before 'sustained' is measured
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds, conflicts_with = "failures")]
    pub settle: Duration,
    /// Speeds of all hosts' links: unlimited, or as 1g, 100m (bits a second) [default: unlimited]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', conflicts_with = "failures")]
    pub link: Vec<Link>,
    /// Bytes of each image
    #[arg(long, value_name = "SIZE", default_value = "2g", value_parser = bytes, conflicts_with = "failures")]
    pub image_size: u64,
    /// Bytes of the cache on the array
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = bytes, conflicts_with = "failures")]
    pub cache_size: u64,
    /// Measure figure 5 also on a volume whose cache has a mirror on a second array
    #[arg(long, conflicts_with = "failures")]
    pub mirror: bool,
    /// Use the lab of pairs with volumes that runs in this folder
    #[arg(long, value_name = "DIR", conflicts_with = "failures")]
    pub lab: Option<PathBuf>,
}

impl Options {
    pub(super) fn figures(&self) -> Vec<Figure> {
        asked(&self.figures, &Figure::ALL)
    }

    pub(super) fn sizes(&self) -> Vec<u64> {
        asked(&self.sizes, &SIZES)
    }

    pub(super) fn patterns(&self) -> Vec<Pattern> {
        asked(&self.patterns, &Pattern::ALL)
    }

    pub(super) fn links(&self) -> Vec<Link> {
        asked(&self.link, &[Link(None)])
    }
}

fn asked<T: Clone>(asked: &[T], all: &[T]) -> Vec<T> {
    if asked.is_empty() { all.to_vec() } else { asked.to_vec() }
}
