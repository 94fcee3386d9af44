//! The fio process.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::hist::{self, seconds};
use super::parse::{Measured, measured};
use super::waited::{Waited, waited};
use super::{Job, Rw};
use crate::child::{Child, describe};
use crate::interrupt::Interrupt;

/// The longest that fio may take to write its logs once it was told to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The longest that fio may go on after its time: what librbd's cache holds is written then.
const OVERDUE: Duration = Duration::from_secs(180);

/// Says how to get fio where it is missing.
fn missing(error: std::io::Error) -> anyhow::Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        anyhow!("fio missing: apt-get install fio")
    } else {
        anyhow::Error::new(error).context("starting fio")
    }
}

/// The version of the installed fio, e.g. `fio-3.33`.
pub fn version() -> Result<String> {
    let output = Command::new("fio").arg("--version").output().map_err(missing)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs the job to its end, calling `tick` with the elapsed time several times a second. fio's logs pass through a
/// folder in `scratch` that is gone afterwards. Errors carry fio's own words.
pub fn run(job: &Job, scratch: &Path, stop: &Interrupt, tick: &mut dyn FnMut(Duration)) -> Result<Measured> {
    let dir = logs(scratch)?;
    let mut extra = report();
    extra.extend(
        ["--write_hist_log=log", "--log_hist_msec=1000", "--log_hist_coarseness=0"].map(str::to_owned),
    );
    if job.verify.is_some() {
        extra.push("--do_verify=0".to_owned());
    }
    execute(job, &extra, dir.path(), stop, tick)?;
    let mut logs = Vec::new();
    for entry in fs::read_dir(dir.path())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().contains("_clat_hist")) {
            logs.push(fs::read_to_string(&path)?);
        }
    }
    let (series, whole) = seconds(logs.iter().map(String::as_str))?;
    let json = fs::read_to_string(dir.path().join("out.json")).context("fio's output")?;
    let mut run = measured(job.command_line(), &json, series)?;
    run.logged_p99_ns = hist::percentile(&whole, 0.99);
    Ok(run)
}

/// The arguments that make fio report what [`measured`] reads.
fn report() -> Vec<String> {
    let args = [
        "--unified_rw_reporting=both",
        "--group_reporting=1",
        "--percentile_list=50:90:99:99.9",
        "--lat_percentiles=1",
    ];
    args.map(str::to_owned).to_vec()
}

/// Runs the job like [`run`], but gives every single request instead of the course, and ends before its time once
/// `go_on` says so.
pub fn run_each(
    job: &Job,
    scratch: &Path,
    stop: &Interrupt,
    go_on: &mut dyn FnMut(Duration) -> bool,
) -> Result<Vec<Waited>> {
    let dir = logs(scratch)?;
    let extra = ["--write_lat_log=log", "--log_unix_epoch=1"].map(str::to_owned);
    let mut child = start(job, &extra, dir.path(), stop)?;
    let status = attend(&mut child, job, stop, go_on)?;
    ended(job, status, dir.path())?;
    let mut each = Vec::new();
    for worker in 1..=job.workers {
        let path = dir.path().join(format!("log_lat.{worker}.log"));
        let text = fs::read_to_string(&path).with_context(|| format!("fio's log {}", path.display()))?;
        waited(&text, &mut each)?;
    }
    Ok(each)
}

/// A verifying pass that found everything in order.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Checked {
    /// The command.
    pub command: String,
    /// Bytes read and found right.
    pub bytes: u64,
}

/// Reads back what `job` (with [`Job::verify`] set and a size) wrote earlier and checks every block; the first wrong
/// block is an error with fio's description of it.
pub fn verify(
    job: &Job,
    scratch: &Path,
    stop: &Interrupt,
    tick: &mut dyn FnMut(Duration),
) -> Result<Checked> {
    let (Some(_), Some(bytes), Rw::Write | Rw::RandWrite) = (job.verify, job.size, job.rw) else {
        bail!("only a write job with a size and verifiable content can be verified");
    };
    let dir = logs(scratch)?;
    let extra = ["--verify_only=1".to_owned(), "--verify_fatal=1".to_owned()];
    execute(job, &extra, dir.path(), stop, tick)?;
    Ok(Checked { command: format!("{} --verify_only=1", job.command_line()), bytes })
}

fn logs(scratch: &Path) -> Result<tempfile::TempDir> {
    let dir = tempfile::Builder::new().prefix("fio-").tempdir_in(scratch);
    dir.with_context(|| format!("a folder for fio's logs in {}", scratch.display()))
}

fn execute(
    job: &Job,
    extra: &[String],
    dir: &Path,
    stop: &Interrupt,
    tick: &mut dyn FnMut(Duration),
) -> Result<()> {
    let mut child = start(job, extra, dir, stop)?;
    let status = attend(&mut child, job, stop, &mut |elapsed| {
        tick(elapsed);
        true
    })?;
    ended(job, status, dir)
}

/// Waits until fio ends by itself, or ends it once `go_on` says so.
fn attend(
    child: &mut Child,
    job: &Job,
    stop: &Interrupt,
    go_on: &mut dyn FnMut(Duration) -> bool,
) -> Result<ExitStatus> {
    let limit = job.time.map(|time| job.ramp + time + OVERDUE);
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        stop.check()?;
        let elapsed = begun.elapsed();
        if limit.is_some_and(|limit| elapsed > limit) {
            bail!("fio goes on {} s after its time: {}", OVERDUE.as_secs(), job.command_line());
        }
        if !go_on(elapsed) {
            // It still writes its logs, and ends with a status of its own.
            child.terminate(stop, END_LIMIT)?.context("fio did not end after SIGTERM")?;
            return Ok(ExitStatus::default());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(job: &Job, extra: &[String], dir: &Path, stop: &Interrupt) -> Result<Child> {
    stop.check()?;
    let mut command = match &job.namespace {
        Some(name) => {
            let mut within = Command::new("ip");
            within.args(["netns", "exec", name, "fio"]);
            within
        }
        None => Command::new("fio"),
    };
    if let Some(conf) = job.conf() {
        loligo_lab::ceph::own_environment(&mut command, conf);
    }
    command
        .args(job.args())
        .args(extra)
        .args(["--output-format=json", "--output=out.json"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("stderr"))?);
    Child::spawn(&mut command).map_err(missing)
}

/// An error with fio's own words where it failed.
fn ended(job: &Job, status: ExitStatus, dir: &Path) -> Result<()> {
    if !status.success() {
        let text = fs::read_to_string(dir.join("stderr")).unwrap_or_default();
        let words: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(6).collect();
        bail!(
            "fio failed with {}: {}\n  command: {}",
            describe(status),
            words.join("\n  "),
            job.command_line()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{FileEngine, Target, Verify};
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file_job(path: &Path, rw: Rw) -> Job {
        let target = Target::File { path: path.to_owned(), engine: FileEngine::Psync, direct: false };
        Job::new(target, rw, 4096, 1)
    }

    fn have_fio() -> bool {
        let have = version().is_ok();
        if !have {
            loligo_log::say!("SKIP: fio is not installed");
        }
        have
    }

    #[test]
    fn a_run_reports_its_rate_latency_and_seconds() {
        if !have_fio() {
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let mut job = file_job(file.path(), Rw::RandRead).lasting(Duration::from_millis(2300));
        job.rate_iops = Some(200);
        let result = run(&job, &std::env::temp_dir(), &Interrupt::default(), &mut |_| ()).unwrap();
        assert!((150.0..=210.0).contains(&result.iops), "{}", result.iops);
        assert_eq!(result.series.len(), 2);
        assert!(result.latency.p50_ns > 0);
    }

    #[test]
    fn seeds_have_addresses_of_their_own_and_repeat_them() {
        if !have_fio() {
            return;
        }
        let written = |seed: u64| {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(16 << 20).unwrap();
            let mut job = file_job(file.path(), Rw::RandWrite).within(0, 16 << 20);
            job.total = Some(64 << 10);
            job.seed = seed;
            run(&job, &std::env::temp_dir(), &Interrupt::default(), &mut |_| ()).unwrap();
            let content = fs::read(file.path()).unwrap();
            let blocks = content.chunks(4096).enumerate();
            blocks
                .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        let (one, again, other) = (written(1), written(1), written(2));
        assert_eq!(one.len(), 16);
        assert_eq!(one, again);
        assert!(other.iter().filter(|at| one.contains(at)).count() < 4, "{one:?} {other:?}");
    }

    #[test]
    fn a_damaged_or_older_block_fails_the_verification() {
        if !have_fio() {
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let stop = Interrupt::default();
        for kind in [Verify::Crc32c, Verify::Version(0x1122_3344)] {
            let mut job = file_job(file.path(), Rw::RandWrite).within(0, 1 << 20);
            job.verify = Some(kind);
            run(&job, &std::env::temp_dir(), &stop, &mut |_| ()).unwrap();
            assert_eq!(verify(&job, &std::env::temp_dir(), &stop, &mut |_| ()).unwrap().bytes, 1 << 20);
            if kind != Verify::Crc32c {
                let mut newer = job.clone();
                newer.verify = Some(Verify::Version(0x1122_3345));
                verify(&newer, &std::env::temp_dir(), &stop, &mut |_| ()).unwrap_err();
            }
            let mut byte = [0];
            file.as_file().read_exact_at(&mut byte, 300_000).unwrap();
            file.as_file().write_all_at(&[!byte[0]], 300_000).unwrap();
            let error = verify(&job, &std::env::temp_dir(), &stop, &mut |_| ()).unwrap_err().to_string();
            assert!(error.contains("verify failed") || error.contains("bad pattern"), "{error}");
        }
    }

    #[test]
    fn every_request_has_its_direction_and_wait_even_if_cut_short() {
        if !have_fio() {
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let scratch = std::env::temp_dir();
        let mut job = file_job(file.path(), Rw::RandMix(50)).within(0, 1 << 20);
        let each = run_each(&job, &scratch, &Interrupt::default(), &mut |_| true).unwrap();
        assert_eq!(each.len(), 256);
        let writes = each.iter().filter(|one| one.write).count();
        assert!(writes > 60 && writes < 200, "{writes}");
        job = job.lasting(Duration::from_secs(60));
        job.rate_iops = Some(500);
        let mut enough = |elapsed| elapsed < Duration::from_millis(1500);
        let each = run_each(&job, &scratch, &Interrupt::default(), &mut enough).unwrap();
        assert!(each.len() > 200 && each.len() < 10_000, "{}", each.len());
    }

    #[test]
    fn a_failure_carries_fios_own_words_and_the_command() {
        if !have_fio() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let job = file_job(&missing, Rw::RandRead).within(0, 4096);
        let error =
            run(&job, &std::env::temp_dir(), &Interrupt::default(), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("missing") && error.contains("--rw=randread"), "{error}");
    }
}
