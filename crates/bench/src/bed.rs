//! The base of every experiment: the program under test, a scratch folder, and files to serve.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loligo_lab::process;
use rustix::mount::UnmountFlags;

use crate::facts::{Facts, free_bytes};
use crate::fio::{self, FileEngine, Job, Measured, Target};
use crate::folder::Folder;
use crate::interrupt::Interrupt;
use crate::server::{Ready, Server, Volume, disk_model};
use crate::units;
use crate::watch::{Stats, Watch};

/// The longest that a server may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The longest that a full cache may take to reach its core at a user's word.
const FLUSH_LIMIT: Duration = Duration::from_secs(1800);

/// A file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";

/// The longest that a cache may take to write its dirty data to the core.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(180);

/// The place and the means of an experiment.
#[derive(Debug, Clone)]
pub struct Place {
    /// The `loligo` program.
    pub binary: PathBuf,
    /// Parent of the scratch folder: its file system holds caches and cores.
    pub dir: PathBuf,
    /// Stops the experiment.
    pub stop: Interrupt,
    /// Say on stderr what runs.
    pub verbose: bool,
}

impl Place {
    /// The running program, in the system's temporary folder, stopped by SIGINT, SIGTERM and SIGHUP.
    pub fn here() -> Result<Place> {
        Ok(Place {
            binary: std::env::current_exe().context("the path of this program")?,
            dir: std::env::temp_dir(),
            stop: Interrupt::on_signals().context("catching Ctrl-C")?,
            verbose: true,
        })
    }
}

/// A scratch folder in a place; removed when dropped, so declare it before the servers that use it.
#[derive(Debug)]
pub(crate) struct Bed {
    place: Place,
    dir: Folder,
}

impl Bed {
    /// Makes one where `need` bytes are free.
    pub(crate) fn new(place: &Place, need: u64) -> Result<Bed> {
        Bed::in_folder(place, &place.dir, need)
    }

    /// Makes one in another folder than the place's own.
    pub(crate) fn in_folder(place: &Place, parent: &Path, need: u64) -> Result<Bed> {
        let parent =
            &parent.canonicalize().with_context(|| format!("the folder {}: create it", parent.display()))?;
        let free = free_bytes(parent).with_context(|| format!("free space of {}", parent.display()))?;
        if free < need {
            let [free, need] = [free, need].map(|bytes| units::bytes(bytes as f64));
            bail!("{} has {free} free, this needs {need}: name another folder with --dir", parent.display());
        }
        let dir = Folder::new(parent, "loligo-bench-")?;
        Ok(Bed { place: place.clone(), dir })
    }

    pub(crate) fn stop(&self) -> &Interrupt {
        &self.place.stop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.nbd"))
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts::of(self.dir.path())
    }

    /// A file of `size` bytes, written whole, so that no run pays for its allocation.
    pub(crate) fn file(&self, name: &str, size: u64) -> Result<PathBuf> {
        let path = self.path(name);
        let mut file = File::create_new(&path)?;
        let piece = vec![0xa5; 1 << 20];
        for at in (0..size).step_by(piece.len()) {
            self.stop().check()?;
            file.write_all(&piece[..(size - at).min(piece.len() as u64) as usize])
                .with_context(|| format!("writing {}", path.display()))?;
        }
        file.sync_all()?;
        Ok(path)
    }

    /// A sparse file of `size` bytes behind the disk model, as `--core` takes it.
    pub(crate) fn disk(&self, name: &str, size: u64) -> Result<String> {
        let path = self.path(name);
        File::create_new(&path)?.set_len(size).context("a sparse disk")?;
        Ok(disk_model(&path))
    }

    /// A write-back volume with a cache of this name and size, and no statistics.
    pub(crate) fn volume(&self, cache: &str, cache_bytes: u64, core: String) -> Volume {
        let cache = self.path(cache);
        Volume { cache, cache_bytes, core, mode: "wb", stats: None, flush_on_stop: false }
    }

    /// Serves a cached volume.
    pub(crate) fn serve(&self, name: &str, volume: &Volume) -> Result<Server> {
        self.loligo(name, &volume.args())
    }

    fn start(&self, command: Command, name: &str, export: &str, ready: Ready) -> Result<Server> {
        Server::start(command, self.dir.path(), name, export, ready, self.stop())
    }

    /// Starts `loligo serve` on a socket of its own. `args` are those after `serve --name NAME`.
    pub(crate) fn loligo(&self, name: &str, args: &[String]) -> Result<Server> {
        let mut command = Command::new(&self.place.binary);
        command.args(["serve", "--name", name]).args(args);
        command.arg("--listen").arg(format!("unix:{}", self.socket(name).display()));
        command.env("LOLIGO_RUNTIME_DIR", self.dir.path());
        self.start(command, name, name, Ready::Line)
    }

    /// Starts the target that answers at once.
    pub(crate) fn null(&self, listen: &str, size: u64) -> Result<Server> {
        let mut command = Command::new(&self.place.binary);
        command.args(["bench", "null", "--listen", listen, "--size", &size.to_string()]);
        command.arg("--folder").arg(self.dir.path());
        self.start(command, "null", "", Ready::Line)
    }

    /// Starts nbdkit with these arguments (plugin and its parameters).
    pub(crate) fn nbdkit(&self, name: &str, args: &[&str]) -> Result<Server> {
        let mut command = Command::new("nbdkit");
        command.arg("--foreground").arg("--unix").arg(self.socket(name)).args(args);
        self.start(command, name, "", Ready::Socket)
    }

    /// Starts qemu-nbd over a raw file, without its page cache, on io_uring, open to several clients.
    pub(crate) fn qemu_nbd(&self, name: &str, file: &Path) -> Result<Server> {
        let mut command = Command::new("qemu-nbd");
        command.args(["--format=raw", "--persistent", "--shared=0", "--discard=unmap"]);
        command.args(["--cache=none", "--aio=io_uring"]);
        command.arg(format!("--socket={}", self.socket(name).display())).arg(file);
        self.start(command, name, "", Ready::Socket)
    }

    /// Runs `loligo ARGS` for a volume whose control socket lies in `runtime_dir`.
    pub(crate) fn ask(&self, runtime_dir: &Path, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.place.binary);
        command.args(args).env("LOLIGO_RUNTIME_DIR", runtime_dir);
        process::run(&mut command, FLUSH_LIMIT, self.stop())
            .with_context(|| format!("loligo {}", args.join(" ")))
    }

    /// Runs a load that checks what it reads.
    pub(crate) fn verify(&self, job: &Job) -> Result<fio::Checked> {
        fio::verify(job, self.dir.path(), self.stop(), &mut |_| ())
    }

    /// Stops a server cleanly.
    pub(crate) fn end(&self, server: Server) -> Result<()> {
        server.stop(self.stop(), STOP_LIMIT)
    }

    /// Runs a load.
    pub(crate) fn run(&self, job: &Job) -> Result<Measured> {
        if self.place.verbose {
            loligo_log::say!("{}", job.command_line());
        }
        self.run_watched(job, &mut |_| ())
    }

    /// Runs a load, calling `tick` several times a second.
    pub(crate) fn run_watched(&self, job: &Job, tick: &mut dyn FnMut(Duration)) -> Result<Measured> {
        fio::run(job, self.dir.path(), self.stop(), tick)
    }

    /// Statistics of a volume that are newer than this call.
    pub(crate) fn look(&self, watch: &mut Watch) -> Result<Stats> {
        // The file is rewritten each second.
        self.stop().sleep(Duration::from_millis(1100))?;
        watch.look();
        watch.last().context("the server wrote no statistics")
    }

    /// Waits until a volume holds no dirty data, so that its destage does not disturb the next run.
    pub(crate) fn drained(&self, watch: &mut Watch) -> Result<()> {
        let begun = Instant::now();
        while self.look(watch)?.dirty_bytes > 0 {
            if begun.elapsed() > DRAIN_LIMIT {
                bail!("the cache did not drain within {} s", DRAIN_LIMIT.as_secs());
            }
        }
        Ok(())
    }
}

/// A folder that nothing is to be mounted on when the experiment ends, however it ends. Declare it before the server.
pub(crate) struct Mountpoint(PathBuf);

impl Mountpoint {
    /// Makes the folder `name`.
    pub(crate) fn new(bed: &Bed, name: &str) -> Result<Mountpoint> {
        let folder = Mountpoint(bed.path(name));
        std::fs::create_dir(&folder.0)?;
        Ok(folder)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        // Usually the server has unmounted.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A file reached past the page cache.
pub(crate) fn direct(path: &Path, engine: FileEngine) -> Target {
    Target::File { path: path.to_owned(), engine, direct: true }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::server::bare_args;

    /// One in `dir`, where nothing is free that is asked for, with this program.
    pub(crate) fn bed(dir: &Path, binary: PathBuf) -> Bed {
        let place = Place { binary, dir: dir.to_owned(), stop: Interrupt::default(), verbose: false };
        Bed::new(&place, 0).expect("a bed")
    }

    #[test]
    fn a_server_that_refuses_to_start_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let refuse = dir.path().join("refuse");
        std::fs::write(&refuse, "#!/bin/sh\necho 'the core is in use by pid 7: stop it first' >&2\nexit 1\n")
            .unwrap();
        std::fs::set_permissions(&refuse, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = bed(dir.path(), refuse).loligo("vol", &bare_args("file:x")).unwrap_err().to_string();
        assert!(error.contains("in use by pid 7") && error.contains("exit code 1"), "{error}");
    }

    #[test]
    fn a_missing_server_names_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let error = bed(dir.path(), dir.path().join("missing")).loligo("vol", &[]);
        assert!(error.unwrap_err().to_string().contains("missing"), "the cause is named");
    }
}
