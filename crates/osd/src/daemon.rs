//! The OSD's own process: whether one runs, on which device, and how it is started and ended.

use crate::cluster::{Cluster, DEFAULT_CONF, default_dir};
use crate::place::Place;
use anyhow::{Context, Result, bail, ensure};
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use rustix::process::{
    Flock, FlockType, Pid, Signal, configure_io_flusher_behavior, fcntl_getlk, kill_process,
};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// The time that an OSD may take to end: what it was asked for by clients is answered first.
const END: Duration = Duration::from_secs(60);
/// The time that one may take that has lost its device: it writes down how it died.
const DIE: Duration = Duration::from_secs(20);
/// The time that one may take to begin.
const BEGIN: Duration = Duration::from_secs(120);

/// True if the system's own service manager runs here.
pub fn systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// An OSD's unit.
pub fn unit(id: u32) -> String {
    format!("ceph-osd@{id}")
}

/// Refuses a place that systemd, where it runs, would not start: it knows OSDs by their number alone.
///
/// # Errors
/// If the place is another than its.
pub fn can_be_started(place: &Place) -> Result<()> {
    if !systemd() {
        return Ok(());
    }
    let (dir, conf) = (default_dir(place.id), Path::new(DEFAULT_CONF));
    ensure!(
        place.dir == dir && place.cluster.conf == conf,
        "systemd starts OSDs with the folder {} and the configuration {} only: leave --osd-dir and \
        --conf out",
        dir.display(),
        conf.display()
    );
    Ok(())
}

/// The process that has an OSD's folder: it locks the file `fsid` in it.
pub fn holder(dir: &Path) -> Option<Pid> {
    let file = File::options().read(true).write(true).open(dir.join("fsid")).ok()?;
    let held = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
    held.pid
}

/// True if process `pid` has what is at `path` now open. One that has a device open that is no longer there has another.
pub fn has_open(pid: Pid, path: &Path) -> bool {
    let Ok(now) = rustix::fs::stat(path) else { return false };
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let Ok(open) = std::fs::read_dir(folder) else { return false };
    open.flatten().filter_map(|fd| rustix::fs::stat(fd.path()).ok()).any(|s| match now.st_rdev {
        0 => (s.st_dev, s.st_ino) == (now.st_dev, now.st_ino),
        number => s.st_rdev == number && s.st_mode & 0o170_000 == now.st_mode & 0o170_000,
    })
}

/// Starts the OSD and returns when its process has begun.
///
/// # Errors
/// If it cannot be started, or ends at once.
pub fn start(place: &Place, stop: &Interrupt) -> Result<()> {
    can_be_started(place)?;
    if systemd() {
        let unit = unit(place.id);
        // Deaths of the device's doing count against the unit.
        let _ = systemctl(&["reset-failed", &unit], stop);
        // One that waits to be started again goes on waiting where it is only to be started.
        let waits = systemctl(&["show", "-p", "SubState", "--value", &unit], stop)
            .is_ok_and(|state| state.trim() == "auto-restart" && holder(&place.dir).is_none());
        systemctl(&[if waits { "restart" } else { "start" }, &unit], stop)?;
    } else {
        // Whoever runs this may be a process that file systems wait for; an OSD is none.
        let _ = configure_io_flusher_behavior(false);
        let mut command = osd_command(place, stop);
        process::run(&mut command, BEGIN, stop)
            .with_context(|| format!("osd.{} cannot be started (its log: {})", place.id, log(place, stop)))?;
    }
    let begun = Instant::now();
    while holder(&place.dir).is_none() {
        stop.sleep(LOOK)?;
        ensure!(
            begun.elapsed() < BEGIN,
            "osd.{} was started and has not opened its store: see its log, {}",
            place.id,
            log(place, stop)
        );
    }
    Ok(())
}

/// The OSD's program with what tells it where it is.
pub(crate) fn osd_command(place: &Place, stop: &Interrupt) -> Command {
    let mut command = Cluster::new(&place.cluster, stop).command("ceph-osd");
    // As a service: Ceph 18 and 20 of Debian look for their object classes below the folder they are started in.
    command.current_dir("/");
    let (user, group) = place.user.split_once(':').unwrap_or((&place.user, &place.user));
    command.args(["-i", &place.id.to_string()]);
    command.arg("--osd-data").arg(&place.dir).arg("--keyring").arg(place.dir.join("keyring"));
    if user != "root" {
        command.args(["--setuser", user, "--setgroup", group]);
    }
    command
}

fn log(place: &Place, stop: &Interrupt) -> String {
    let mut command = Cluster::new(&place.cluster, stop).command("ceph-conf");
    command.args(["--name", &format!("osd.{}", place.id), "--show-config-value", "log_file"]);
    match process::run(&mut command, Duration::from_secs(10), stop) {
        Ok(path) => path.trim().to_owned(),
        Err(_) => format!("/var/log/ceph/ceph-osd.{}.log", place.id),
    }
}

/// Runs `systemctl`.
///
/// # Errors
/// If it fails; the error holds its words.
pub(crate) fn systemctl(words: &[&str], stop: &Interrupt) -> Result<String> {
    process::run(Command::new("systemctl").args(words), BEGIN, stop)
        .with_context(|| format!("systemctl {}", words.join(" ")))
}

/// Has the OSD start with the machine, or no more.
///
/// # Errors
/// If systemd refuses; the error holds its words.
pub fn at_boot(id: u32, wanted: bool, stop: &Interrupt) -> Result<()> {
    if systemd() {
        systemctl(&[if wanted { "enable" } else { "disable" }, &unit(id)], stop)?;
    }
    Ok(())
}

/// Ends the OSD, which answers what it was asked first. Returns when it has ended.
///
/// # Errors
/// If it does not end, or this is interrupted.
pub fn stop(id: u32, dir: &Path, interrupt: &Interrupt) -> Result<()> {
    if systemd() {
        systemctl(&["stop", &unit(id)], interrupt)?;
    }
    let Some(pid) = holder(dir) else { return Ok(()) };
    // It may end at this moment.
    let _ = kill_process(pid, Signal::TERM);
    ensure!(
        ends(dir, pid, END, interrupt)?,
        "osd.{id} (process {}) does not end: 'ceph daemon osd.{id} ops' shows what it waits for",
        pid.as_raw_nonzero()
    );
    Ok(())
}

/// Ends an OSD whose device is gone: there is nothing that it could still do.
///
/// # Errors
/// If it does not end, or this is interrupted.
pub fn bury(id: u32, dir: &Path, interrupt: &Interrupt) -> Result<()> {
    let Some(pid) = holder(dir) else { return Ok(()) };
    // Most likely it has noticed, and is writing down why it dies.
    let _ = kill_process(pid, Signal::TERM);
    if ends(dir, pid, DIE, interrupt)? {
        return Ok(());
    }
    let _ = kill_process(pid, Signal::KILL);
    if !ends(dir, pid, DIE, interrupt)? {
        bail!(
            "osd.{id} (process {}) does not end although its device is gone: the kernel still waits for \
            an operation",
            pid.as_raw_nonzero()
        );
    }
    Ok(())
}

fn ends(dir: &Path, pid: Pid, limit: Duration, interrupt: &Interrupt) -> Result<bool> {
    let begun = Instant::now();
    while holder(dir) == Some(pid) {
        if begun.elapsed() > limit {
            return Ok(false);
        }
        interrupt.sleep(LOOK)?;
    }
    Ok(true)
}

/// The link to this device in the folder of another OSD, if there is one.
pub(crate) fn linked_from(device: &Path, except: &Path) -> Option<PathBuf> {
    let wanted = rustix::fs::stat(device).ok()?;
    let folders = std::fs::read_dir(default_dir(0).parent()?).ok()?;
    for folder in folders.flatten().map(|f| f.path()).filter(|f| f != except) {
        for link in ["block", "block.db", "block.wal"].map(|l| folder.join(l)) {
            let there = rustix::fs::stat(&link);
            if there.is_ok_and(|s| wanted.st_rdev != 0 && s.st_rdev == wanted.st_rdev) {
                return Some(link);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_by_the_process_that_locks_its_fsid() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(holder(dir.path()), None, "there is no such file");
        std::fs::write(dir.path().join("fsid"), "x").expect("a file");
        assert_eq!(holder(dir.path()), None);
        let script = "import fcntl,sys,time;f=open(sys.argv[1],'r+');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);time.sleep(60)";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(dir.path().join("fsid"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut word = [0; 4];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut word).expect("it says so");
        let pid = Pid::from_child(&child);
        assert_eq!(holder(dir.path()), Some(pid));
        assert!(has_open(pid, &dir.path().join("fsid")) && !has_open(pid, Path::new("/etc/passwd")));
        bury(0, dir.path(), &Interrupt::default()).expect("it dies");
        assert_eq!(holder(dir.path()), None);
        child.wait().expect("it ended");
    }
}
