//! Debian's kernel 6.12 and its modules: fetched as packages and unpacked, never installed.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Debian's name for the newest of the series.
const META: &str = "linux-image-6.12-amd64";
/// Besides: a program that nothing else brings, of a package that would install a udev rule.
const BESIDES: &str = "bcache-tools";

/// A kernel, unpacked.
#[derive(Debug)]
pub struct Kernel {
    /// The image that boots.
    pub image: PathBuf,
    /// `lib/modules/VERSION` of it.
    pub modules: PathBuf,
    /// Its version.
    pub version: String,
    /// The folder of the unpacked packages.
    pub root: PathBuf,
}

/// The folder that keeps all of this between runs.
pub(super) fn cache_dir() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // <target>/<profile>/deps/<test>
    test.ancestors().nth(3).expect("tests are built into a target directory").join("vm")
}

impl Kernel {
    /// The one in the cache, else a new one from Debian's archive.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn get() -> Result<&'static Kernel> {
        static KERNEL: OnceLock<Result<Kernel, String>> = OnceLock::new();
        KERNEL.get_or_init(|| find().map_err(|e| format!("{e:#}"))).as_ref().map_err(|e| anyhow!("{e}"))
    }
}

fn find() -> Result<Kernel> {
    let dir = cache_dir();
    std::fs::create_dir_all(&dir)?;
    // Several test programs may come here at once.
    let lock = std::fs::File::create(dir.join("lock"))?;
    lock.lock()?;
    let root = dir.join("root");
    if !root.join("complete").exists() {
        fetch(&dir, &root)?;
    }
    let versions = std::fs::read_dir(root.join("lib/modules"))?;
    let version = versions.flatten().next().context("the package has no modules")?;
    let version = version.file_name().to_string_lossy().into_owned();
    Ok(Kernel {
        image: root.join("boot").join(format!("vmlinuz-{version}")),
        modules: root.join("lib/modules").join(&version),
        version,
        root,
    })
}

pub(super) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?} does not run"))?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn fetch(dir: &Path, root: &Path) -> Result<()> {
    let depends = output(Command::new("apt-cache").args(["depends", META]))?;
    let package = depends
        .lines()
        .find_map(|l| l.trim().strip_prefix("Depends: ").filter(|p| p.starts_with("linux-image-")))
        .with_context(|| format!("{META} is not among the packages of this machine (apt-get update)"))?;
    let got = tempfile::tempdir_in(dir)?;
    println!("fetching {package} (100 MB) into {}", dir.display());
    output(Command::new("apt-get").args(["-q", "download", package, BESIDES]).current_dir(got.path()))?;
    let _ = std::fs::remove_dir_all(root);
    let mut unpacked = 0;
    for deb in std::fs::read_dir(got.path())?.flatten() {
        output(Command::new("dpkg-deb").arg("-x").arg(deb.path()).arg(root))?;
        unpacked += 1;
    }
    if unpacked != 2 {
        bail!("{unpacked} packages came, and two were asked for");
    }
    std::fs::write(root.join("complete"), "")?;
    Ok(())
}
