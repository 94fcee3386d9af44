//! A cluster that does not answer, seen from outside: nothing here asks it anything.

use rustix::fs::statvfs;
use std::fmt::Write;
use std::path::Path;

/// Last lines of each log.
const LAST: usize = 6;

/// The daemons of the lab in `dir`, the room that is left, and the last words of each log.
pub(crate) fn autopsy(dir: &Path) -> String {
    let mut said = String::new();
    if let Ok(room) = statvfs(dir) {
        let _ = writeln!(said, "{} MiB are left in {}", (room.f_bavail * room.f_frsize) >> 20, dir.display());
    }
    for file in files(&dir.join("run"), "pid") {
        let pid = std::fs::read_to_string(&file).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap_or_default();
        let state = status.lines().find_map(|l| l.strip_prefix("State:")).unwrap_or(" gone");
        let _ = writeln!(said, "{}:{state}", name(&file));
    }
    for file in files(&dir.join("log"), "log") {
        let log = std::fs::read(&file).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let _ = writeln!(said, "{}:", name(&file));
        for line in &lines[lines.len().saturating_sub(LAST)..] {
            let _ = writeln!(said, "    {:.200}", line);
        }
    }
    said
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn files(dir: &Path, kind: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == kind)).collect();
    all.sort();
    all
}
