//! Block traces against the engine's own replacement code: who misses how often.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;
use loligo_engine::policy::{Kind, Replacement};
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let mut f = tempfile::Builder::new().suffix(".csv").tempfile().expect("a temporary file");
        f.write_all(text).expect("written");
        f
    }

    #[test]
    fn requests_count_once_for_every_line_they_touch_gzipped_or_not() {
        let text = b"time_us,op,lba512,sectors\n0,W,7,2\n5,R,0,8\n9,U,80,1\n";
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text).expect("compressed");
        for text in [text.to_vec(), gz.finish().expect("compressed")] {
            let t = Trace::read(file(&text).path()).expect("a trace");
            assert_eq!((t.accesses, t.addresses), (vec![0, 1, 0, 2], vec![0, 1, 10]));
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        for bad in ["0,X,0,8", "0,R,0", "0,R,0,0", "0,R,-1,8", "0,R,18446744073709551615,8", "x"] {
            let f = file(format!("0,R,0,8\n{bad}\n").as_bytes());
            let e = Trace::read(f.path()).expect_err(bad).to_string();
            assert!(e.contains(":2:") && e.contains(bad), "{e}");
        }
        assert!(Trace::read(file(b"").path()).is_err());
    }

    #[test]
    fn a_cache_of_the_whole_footprint_misses_each_line_once() {
        let text: String = (0..3000u64).map(|i| format!("0,R,{},8\n", i * i % 997 * 8)).collect();
        let f = file(text.as_bytes());
        let trace = Trace::read(f.path()).expect("a trace");
        let rows = run(&[f.path().to_path_buf()], &Kind::ALL, &[1.0], |_, _| {}).expect("rows");
        assert_eq!(rows.len(), Kind::ALL.len());
        for row in rows {
            assert_eq!(row.miss_ratio, trace.addresses.len() as f64 / 3000.0, "{}", row.policy);
        }
    }

    /// The published block traces, where the host has them.
    fn traces() -> Option<Vec<PathBuf>> {
        let Some(dir) = std::env::var_os("LOLIGO_TRACES").map(PathBuf::from) else {
            loligo_log::outln!("SKIP: LOLIGO_TRACES does not name a folder with the published traces");
            return None;
        };
        let names = ["cloudphysics_w", "opencas_ycsba_rocksdb", "tencent_randiops537", "tencent_rw60_490"];
        let files: Vec<PathBuf> = names.iter().map(|n| dir.join(n).with_extension("csv.gz")).collect();
        if files.iter().all(|f| f.exists()) {
            return Some(files);
        }
        loligo_log::outln!("SKIP: no traces in {} (LOLIGO_TRACES names the folder)", dir.display());
        None
    }

    #[test]
    fn lru_misses_as_published_and_s3cm_misses_less() {
        let Some(files) = traces() else { return };
        let fractions = [0.01, 0.03, 0.1, 0.3];
        // Computed by an independent simulator (libCacheSim 0.3.5 agrees with it).
        let published = [
            [0.897, 0.891, 0.874, 0.623],
            [1.000, 1.000, 0.951, 0.887],
            [0.463, 0.339, 0.250, 0.175],
            [0.448, 0.337, 0.227, 0.165],
        ];
        let rows = run(&files, &[Kind::Lru, Kind::S3Cm], &fractions, |_, _| {}).expect("traces are readable");
        let mut at_ten = 0.0;
        for (i, pair) in rows.chunks(2).enumerate() {
            let (lru, s3) = (pair[0].miss_ratio, pair[1].miss_ratio);
            let fraction = fractions[i % 4];
            assert!(
                (lru - published[i / 4][i % 4]).abs() < 0.0006,
                "{} {fraction}: lru {lru}",
                pair[0].trace
            );
            assert!(s3 <= 1.01 * lru, "{} {fraction}: s3cm {s3}, lru {lru}", pair[0].trace);
            if fraction == 0.1 {
                at_ten += (1.0 - s3 / lru) / files.len() as f64;
            }
        }
        assert!(at_ten >= 0.055, "mean gain at a tenth of the footprint: {at_ten:.3}");
    }
}
