//! The store of an OSD behind a cache, for as long as somebody outside of the pair needs it: while it is made, and while it is
//! checked.

use super::place::osd_lun;
use crate::config::LabConfig;
use crate::layout::Layout;
use crate::process::{Held, POLL, Process, end, last_lines};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time that the server may take to be ready; it writes a new cache whole first.
const LIMIT: Duration = Duration::from_secs(120);
/// The first part of a server's name.
pub(crate) const NAME: &str = "store.";
/// The time that it may take to end.
pub(crate) const END: Duration = Duration::from_secs(60);
/// Bytes before the store on its LUN: nobody who looks at the LUN finds a store there.
const DATA_OFFSET: &str = "1m";

/// The data of an OSD behind a cache, as they are to be served.
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// The OSD.
    pub id: u32,
    /// Its LUN.
    pub core: &'a Path,
    /// That of its cache.
    pub cache: &'a Path,
    /// The folder that it is mounted on.
    pub mount: &'a Path,
}

impl Served<'_> {
    /// The process that serves them, as the file `osdN` of the folder `mount`; it runs once it is let go.
    ///
    /// # Errors
    /// If the folder cannot be made, or nothing can be started.
    pub fn hold(self, at: &Layout, config: &LabConfig, program: &Path) -> Result<Held> {
        let name = format!("{NAME}{}", self.id);
        Process::hold(&name, &self.command(at, config, program)?, &at.output(&name))
    }

    /// Calls `work` while they are served.
    ///
    /// # Errors
    /// If they cannot be served, or `work` fails.
    pub fn with<T>(
        self,
        at: &Layout,
        config: &LabConfig,
        program: &Path,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let server = self.hold(at, config, program)?.go();
        let done = self.wait(at, &server).and_then(|()| work());
        end(&[server], END);
        done
    }

    fn command(self, at: &Layout, config: &LabConfig, program: &Path) -> Result<Command> {
        fs::create_dir_all(self.mount).with_context(|| format!("making {}", self.mount.display()))?;
        let mut command = Command::new(program);
        command.args(["serve", "--name", &osd_lun(self.id), "--mode", &config.cache_mode]);
        command.args(["--data-offset", DATA_OFFSET, "--core"]).arg(self.core).arg("--cache").arg(self.cache);
        command.args(["--listen", &format!("fuse:{}", self.mount.display())]);
        command.args(config.profile().into_iter().flat_map(|profile| ["--profile", profile]));
        let params = config.cache_set.iter();
        command.args(params.flat_map(|(key, value)| ["--param".to_owned(), format!("{key}={value}")]));
        command.env("LOLIGO_RUNTIME_DIR", at.run()).env("LOLIGO_STATE_DIR", at.run());
        Ok(command)
    }

    /// Waits until the file is there.
    ///
    /// # Errors
    /// With the server's last words, if it ends, or the time is over.
    pub(crate) fn wait(self, at: &Layout, server: &Process) -> Result<()> {
        let (file, begun) = (self.mount.join(osd_lun(self.id)), Instant::now());
        while !file.exists() {
            if !server.alive() || begun.elapsed() > LIMIT {
                let said = fs::read_to_string(at.output(&server.name)).unwrap_or_default();
                bail!("the store of osd.{} is not served: {}", self.id, last_lines(&said, 3));
            }
            std::thread::sleep(POLL / 5);
        }
        Ok(())
    }
}
