//! Reads of disks, which tell whether one rotates.

use crate::facts::Unseen;
use crate::gather::HostReport;
use loligo_block::{DeviceFile, OpenOptions, SyncFile, SyncIo};
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads of one disk.
const READS: usize = 200;
/// Bytes of each.
const BLOCK: usize = 4096;
/// The time after which a disk is read no longer.
const AT_MOST: Duration = Duration::from_secs(5);
/// Fewer reads than this tell nothing.
const AT_LEAST: usize = 20;
/// A read of a disk that rotates takes this long at least: it waits for a quarter of a turn on average, and for the arm. Flash under
/// load answers some reads late, and most of them sooner.
const ROTATES: Duration = Duration::from_millis(1);

/// Disks of the host that its OSDs lie on, by name.
pub fn to_measure(report: &HostReport) -> Vec<String> {
    let is_used =
        |name: &String| report.processes.iter().any(|process| process.device.as_ref() == Some(name));
    report.disks.iter().map(|disk| disk.name.clone()).filter(is_used).collect()
}

/// Reads those of `names`, each for five seconds at most, and enters into the report what was seen. Nothing is written.
pub fn disks(report: &mut HostReport, names: &[String]) {
    for disk in report.disks.iter_mut().filter(|disk| names.contains(&disk.name)) {
        let path = Path::new("/dev").join(&disk.name);
        match reads(&path, AT_MOST) {
            Ok(times) => {
                disk.measured_read_us = Some(times.as_secs_f64() * 1e6);
                disk.measured_rotational = Some(times >= ROTATES);
            }
            Err(why) => {
                let what = format!("reads of {} of {}", disk.name, disk.host);
                report.unseen.push(Unseen { what, why });
            }
        }
    }
}

/// The lower quartile of random reads past the page cache.
fn reads(path: &Path, limit: Duration) -> Result<Duration, String> {
    let options = OpenOptions { read_only: true, direct: true, exclusive: None };
    let file = DeviceFile::open(path, &options).map_err(|why| format!("{why}; it is read as root"))?;
    if !file.warnings().is_empty() {
        return Err(file.warnings().join("; "));
    }
    let mut file = SyncFile::new(file);
    let blocks = file.size() / BLOCK as u64;
    if blocks == 0 {
        return Err(format!("{} is empty", path.display()));
    }
    let (begun, mut times, mut spare) = (Instant::now(), Vec::new(), None);
    while times.len() < READS && begun.elapsed() < limit {
        let at = getrandom::u64().map_err(|why| why.to_string())? % blocks;
        let before = Instant::now();
        let buf = file.read_owned(at * BLOCK as u64, BLOCK, spare.take());
        times.push(before.elapsed());
        spare = Some(buf.map_err(|why| why.to_string())?);
    }
    lower_quartile(times).ok_or_else(|| format!("{} answered too few reads in {limit:?}", path.display()))
}

fn lower_quartile(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    (times.len() >= AT_LEAST).then(|| times[times.len() / 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_slow_reads_are_no_rotation() {
        let ms = |fast: usize, slow: usize| {
            let all = std::iter::repeat_n(100, fast).chain(std::iter::repeat_n(9000, slow));
            lower_quartile(all.map(Duration::from_micros).collect())
        };
        assert_eq!(ms(100, 100), Some(Duration::from_micros(100)));
        assert_eq!(ms(10, 190), Some(Duration::from_micros(9000)));
        assert_eq!(ms(5, 5), None);
    }

    #[test]
    fn a_file_is_read_at_random() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        std::fs::write(file.path(), vec![7; 1 << 20]).expect("content");
        let took = reads(file.path(), AT_MOST).expect("reads");
        assert!(took > Duration::ZERO);
        assert!(reads(Path::new("/dev/none"), AT_MOST).is_err_and(|why| why.contains("/dev/none")));
    }
}
