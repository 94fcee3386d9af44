//! Facts about the machine: figures without them mean nothing.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Facts about the machine and the file system a run used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Processor model.
    pub cpu: String,
    /// Logical processors usable by this process.
    pub cores: usize,
    /// RAM in bytes.
    pub ram_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// File system of the scratch folder: type and source, e.g. `ext4 on /dev/vda`.
    pub file_system: String,
    /// Version of fio.
    pub fio: String,
}

impl Facts {
    /// Gathers them for a folder; what cannot be read is `unknown`.
    pub fn of(dir: &Path) -> Facts {
        let unknown = || "unknown".to_owned();
        let field = |file: &str, key: &str| {
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let ram =
            field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Facts {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            ram_bytes: ram.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            file_system: file_system(&mounts, &dir).unwrap_or_else(unknown),
            fio: crate::fio::version().unwrap_or_else(|_| unknown()),
        }
    }

    /// Name and value pairs for a table, with `more` of them.
    pub fn with(&self, more: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
        let own = [
            ("Processor", format!("{} ({} cores)", self.cpu, self.cores)),
            ("RAM", crate::units::bytes(self.ram_bytes as f64)),
            ("Kernel", self.kernel.clone()),
            ("File system", self.file_system.clone()),
            ("Load generator", self.fio.clone()),
        ];
        own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(more).collect()
    }
}

/// Finds the mount with the longest path that holds `dir` in the text of `/proc/self/mountinfo`.
fn file_system(mounts: &str, dir: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let point = place.split(' ').nth(4)?;
            let mut kind = kind.split(' ');
            let (kind, source) = (kind.next()?, kind.next()?);
            dir.starts_with(point).then(|| (point.len(), format!("{kind} on {source}")))
        })
        // Of two mounts on one place the later one is seen.
        .max_by_key(|(length, _)| *length)
        .map(|(_, text)| text)
}

/// Bytes that an unprivileged process may still write in the file system of `dir`.
pub fn free_bytes(dir: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_names_the_file_system() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n23 22 0:5 / /dev/shm rw,nosuid - tmpfs shm rw\n";
        assert_eq!(file_system(mounts, Path::new("/dev/shm/x")).unwrap(), "tmpfs on shm");
        assert_eq!(file_system(mounts, Path::new("/home")).unwrap(), "ext4 on /dev/vda");
    }

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let facts = Facts::of(Path::new("/"));
        assert!(facts.cores >= 1 && facts.ram_bytes > 0 && !facts.kernel.is_empty());
        assert!(free_bytes(Path::new("/")).is_ok());
    }
}
