//! Facts about the machine: figures without them mean nothing.

use std::fs;
use std::path::Path;

use loligo_block::mounts;
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
        let mounts = mounts::all().unwrap_or_default();
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
        Facts {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            ram_bytes: ram.unwrap_or(0) * 1024,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: mounts::around(&mounts, &dir)
                .map_or_else(unknown, |m| format!("{} on {}", m.kind, m.source)),
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

/// Bytes that an unprivileged process may still write in the file system of `dir`.
pub fn free_bytes(dir: &Path) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let facts = Facts::of(Path::new("/"));
        assert!(facts.cores >= 1 && facts.ram_bytes > 0 && !facts.kernel.is_empty());
        assert!(free_bytes(Path::new("/")).is_ok());
    }
}
