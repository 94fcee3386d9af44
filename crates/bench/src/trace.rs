//! Block traces against the engine's own replacement code: who misses how often.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;
use loligo_cache::policy::{Kind, Replacement};
use serde::Serialize;

/// Sectors of 512 B in a line of 4 KiB.
const LINE_SECTORS: u64 = 8;
/// Seed of the policies' sampling: the same run gives the same table.
const SEED: u64 = 1;

/// One measured point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The trace file's name without its endings.
    pub trace: String,
    /// The policy's name.
    pub policy: String,
    /// Cache size as a share of the distinct lines of the trace.
    pub fraction: f64,
    /// Misses per access to a 4 KiB line.
    pub miss_ratio: f64,
}

/// A trace as a sequence of line accesses, lines numbered by first appearance.
#[derive(Debug)]
pub struct Trace {
    /// The file's name without its endings.
    pub name: String,
    /// The line of each access, 0 to `addresses.len() - 1`.
    pub accesses: Vec<u32>,
    /// The address of each line in lines of 4 KiB.
    pub addresses: Vec<u64>,
}

impl Trace {
    /// Reads `time_us,op(R|W|U),lba512,sectors` lines, gzipped or not.
    pub fn read(path: &Path) -> anyhow::Result<Trace> {
        let mut file =
            BufReader::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?);
        let gz = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let text: Box<dyn Read> = if gz { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let name = name.trim_end_matches(".gz").trim_end_matches(".csv").to_owned();
        let mut trace = Trace { name, accesses: Vec::new(), addresses: Vec::new() };
        let mut numbers = std::collections::HashMap::new();
        for (at, line) in BufReader::new(text).lines().enumerate() {
            let line = line.with_context(|| format!("cannot read {}", path.display()))?;
            if line.is_empty() || (at == 0 && line.starts_with("time_us")) {
                continue;
            }
            let Some((lba, sectors)) = parse(&line) else {
                bail!(
                    "{}:{}: {line:?} is not time_us,op,lba512,sectors with op R, W or U",
                    path.display(),
                    at + 1
                );
            };
            for address in lba / LINE_SECTORS..(lba + sectors).div_ceil(LINE_SECTORS) {
                let number = *numbers.entry(address).or_insert_with(|| {
                    trace.addresses.push(address);
                    trace.addresses.len() as u32 - 1
                });
                trace.accesses.push(number);
            }
        }
        if trace.accesses.is_empty() {
            bail!("{} holds no requests", path.display());
        }
        Ok(trace)
    }

    /// Lines of a cache that holds `fraction` of the trace's distinct lines.
    pub fn lines(&self, fraction: f64) -> u32 {
        ((self.addresses.len() as f64 * fraction).round() as u32).max(1)
    }

    /// Misses per access when a policy governs a cache of `lines`; reads and writes both allocate.
    pub fn miss_ratio(&self, kind: Kind, lines: u32) -> f64 {
        const OUT: u32 = u32::MAX;
        let mut policy = Replacement::new(kind, lines, SEED);
        let mut id_of = vec![OUT; self.addresses.len()];
        let mut line_of: Vec<u32> = Vec::with_capacity(lines as usize);
        let mut misses = 0u64;
        for &line in &self.accesses {
            let key = self.addresses[line as usize];
            let id = id_of[line as usize];
            if id != OUT {
                policy.hit(id, key);
                continue;
            }
            misses += 1;
            policy.missed(key);
            let id = if line_of.len() < lines as usize {
                line_of.push(line);
                line_of.len() as u32 - 1
            } else {
                let Some(id) = policy.victim(|id| Some(self.addresses[line_of[id as usize] as usize])) else {
                    continue;
                };
                id_of[line_of[id as usize] as usize] = OUT;
                line_of[id as usize] = line;
                id
            };
            id_of[line as usize] = id;
            policy.insert(id, key);
        }
        misses as f64 / self.accesses.len() as f64
    }
}

fn parse(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split(',');
    let _time = fields.next()?;
    if !matches!(fields.next()?, "R" | "W" | "U") {
        return None;
    }
    let (lba, sectors) = (fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?);
    (u64::checked_add(lba, sectors)? < u64::MAX - LINE_SECTORS && sectors > 0).then_some((lba, sectors))
}

/// Runs every trace under every policy at every size. `progress` is told after each point how many are done of all.
pub fn run(
    files: &[PathBuf],
    policies: &[Kind],
    fractions: &[f64],
    mut progress: impl FnMut(usize, usize),
) -> anyhow::Result<Vec<Row>> {
    if let Some(f) = fractions.iter().find(|f| !(**f > 0.0 && **f <= 1.0)) {
        bail!("a cache size of {f} of the footprint: give fractions above 0 and up to 1");
    }
    let all = files.len() * policies.len() * fractions.len();
    let mut rows = Vec::with_capacity(all);
    for file in files {
        let trace = Trace::read(file)?;
        for &fraction in fractions {
            for &kind in policies {
                rows.push(Row {
                    trace: trace.name.clone(),
                    policy: kind.name().to_owned(),
                    fraction,
                    miss_ratio: trace.miss_ratio(kind, trace.lines(fraction)),
                });
                progress(rows.len(), all);
            }
        }
    }
    Ok(rows)
}
