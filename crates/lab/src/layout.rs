//! The layout of a lab's folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::config::LabConfig;

/// The longest path of a unix socket, bytes, with its ending zero.
const SOCKET_PATH: usize = 108;
/// Room for the name of a daemon's admin socket below the run folder.
const SOCKET_NAME: usize = 24;

/// A lab's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(PathBuf);

impl Layout {
    /// The folder at `dir`, which need not exist yet.
    ///
    /// # Errors
    /// If the path is so long that no daemon could make its admin socket in it, or holds what a configuration file of
    /// Ceph cannot.
    pub fn at(dir: &Path) -> Result<Layout> {
        let dir = std::path::absolute(dir).with_context(|| format!("the path {}", dir.display()))?;
        let text = dir.to_str().with_context(|| format!("{} is not UTF-8", dir.display()))?;
        ensure!(
            !text.contains(['\n', '#', ';', '$', '\'', '"', ' ', ',']),
            "{text} cannot be a lab's folder: its name must be without blanks, quotes, commas, '#', ';' \
            and '$'"
        );
        let longest = SOCKET_PATH - SOCKET_NAME - "/run/".len();
        ensure!(
            text.len() <= longest,
            "{text} is too long for the sockets below it: name a folder of at most {longest} bytes with --dir"
        );
        Ok(Layout(dir))
    }

    /// The folder where none is named: `$LOLIGO_LAB_DIR`, or `loligo-lab` below the system's folder for large temporary
    /// files.
    pub fn default_dir() -> PathBuf {
        std::env::var_os("LOLIGO_LAB_DIR").map_or_else(|| PathBuf::from("/var/tmp/loligo-lab"), PathBuf::from)
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The started processes.
    pub fn state(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    /// The lock of whoever starts or stops parts of the lab.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lab.lock")
    }

    /// Ceph's configuration.
    pub fn conf(&self) -> PathBuf {
        self.0.join("ceph.conf")
    }

    /// Sockets and process ids.
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// Logs, one a daemon.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The log of one daemon's own words on its standard output and error.
    pub fn output(&self, name: &str) -> PathBuf {
        self.log().join(format!("{name}.out"))
    }

    /// The folder of a monitor, manager or OSD.
    pub fn daemon(&self, kind: &str, id: &str) -> PathBuf {
        self.0.join(format!("{kind}.{id}"))
    }

    /// The file under the disk model of an OSD.
    pub fn disk(&self, osd: u32) -> PathBuf {
        self.0.join(format!("disk.{osd}"))
    }

    /// The cache of an OSD. Labs whose caches lie in one folder do not share them.
    pub fn cache(&self, config: &LabConfig, osd: u32) -> PathBuf {
        match &config.cache_dir {
            Some(dir) => {
                dir.join(format!("{}.cache.{osd}", self.0.file_name().unwrap_or_default().to_string_lossy()))
            }
            None => self.0.join(format!("cache.{osd}")),
        }
    }

    /// The mountpoint of the volume that an OSD stands on.
    pub fn mount(&self, osd: u32) -> PathBuf {
        self.0.join(format!("mnt.{osd}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_too_deep_for_sockets_is_refused_at_first() {
        assert!(Layout::at(Path::new("/var/tmp/lab")).is_ok());
        let deep = format!("/{}", "d".repeat(90));
        assert!(Layout::at(Path::new(&deep)).unwrap_err().to_string().contains("too long"));
        assert!(Layout::at(Path::new("/tmp/a b")).unwrap_err().to_string().contains("blanks"));
    }
}
