//! Debian's kernel 6.12, its newest, and their modules: fetched as packages and unpacked, never installed.

use crate::skip::is_long;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Debian's name for the newest of the series.
const META: &str = "linux-image-6.12-amd64";
/// Besides: programs that nothing else brings, of packages that would install udev rules and services.
const BESIDES: [&str; 3] = ["bcache-tools", "open-iscsi", "libopeniscsiusr"];
/// Debian's name for its newest kernel.
const NEWEST_META: &str = "linux-image-amd64";
/// The only suite whose kernel has reservations in its NVMe target (6.13 and newer).
const NEWEST_SOURCE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main\n";

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

    /// Debian's newest, of sid: the one in the cache. It is fetched (125 MB, and 17 MB of lists) only with `LOLIGO_LONG=1`.
    ///
    /// # Errors
    /// If it is not there and not to be fetched, or cannot be had.
    pub fn newest() -> Result<&'static Kernel> {
        static KERNEL: OnceLock<Result<Kernel, String>> = OnceLock::new();
        let kernel = KERNEL.get_or_init(|| find_newest().map_err(|e| format!("{e:#}")));
        kernel.as_ref().map_err(|e| anyhow!("{e}"))
    }

    /// The one whose packages were unpacked into `root`.
    pub(super) fn unpacked(root: PathBuf) -> Result<Kernel> {
        // Debian 14 has /lib in /usr alone, and the image with the modules.
        let (old, new) = (root.join("lib/modules"), root.join("usr/lib/modules"));
        let all = if old.exists() { old } else { new };
        let version = std::fs::read_dir(&all)?.flatten().next().context("the package has no modules")?;
        let version = version.file_name().to_string_lossy().into_owned();
        let modules = all.join(&version);
        let image = root.join("boot").join(format!("vmlinuz-{version}"));
        let image = if image.exists() { image } else { modules.join("vmlinuz") };
        Ok(Kernel { image, modules, version, root })
    }
}

fn find() -> Result<Kernel> {
    let dir = cache_dir();
    std::fs::create_dir_all(&dir)?;
    // Several test programs may come here at once.
    let lock = std::fs::File::create(dir.join("lock"))?;
    lock.lock()?;
    let root = dir.join("root");
    // An older checkout had fetched less.
    if !std::fs::read_to_string(root.join("complete")).is_ok_and(|with| with == BESIDES.join(" ")) {
        let image = parts(META, None)?;
        let image = image.first().with_context(|| format!("{META} needs no kernel"))?;
        let packages: Vec<&str> = std::iter::once(image.as_str()).chain(BESIDES).collect();
        fetch(&dir, &root, &packages, None)?;
        std::fs::write(root.join("complete"), BESIDES.join(" "))?;
    }
    Kernel::unpacked(root)
}

fn find_newest() -> Result<Kernel> {
    let dir = cache_dir();
    std::fs::create_dir_all(&dir)?;
    let lock = std::fs::File::create(dir.join("lock"))?;
    lock.lock()?;
    let root = dir.join("newest");
    if !root.join("complete").exists() {
        if !is_long() {
            bail!("a kernel of 6.13 or newer is not there: LOLIGO_LONG=1 fetches Debian sid's");
        }
        let config = apt_of_its_own(&dir)?;
        output(Command::new("apt-get").args(["-q", "update"]).env("APT_CONFIG", &config))?;
        let image = parts(NEWEST_META, Some(&config))?;
        let image = image.first().with_context(|| format!("{NEWEST_META} needs no kernel"))?;
        let parts = parts(image, Some(&config))?;
        let packages: Vec<&str> = std::iter::once(image).chain(&parts).map(String::as_str).collect();
        fetch(&dir, &root, &packages, Some(&config))?;
        std::fs::write(root.join("complete"), "")?;
    }
    Kernel::unpacked(root)
}

/// A configuration of apt that knows Debian sid and nothing else, and leaves the machine's own lists alone.
fn apt_of_its_own(dir: &Path) -> Result<PathBuf> {
    let apt = dir.join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(apt.join(part))?;
    }
    std::fs::write(apt.join("sources.list"), NEWEST_SOURCE)?;
    std::fs::write(apt.join("status"), "")?;
    let config = apt.join("apt.conf");
    let at = apt.display();
    let text = format!(
        "Dir::Etc::SourceList \"{at}/sources.list\";\nDir::Etc::SourceParts \"-\";\n\
         Dir::State::Lists \"{at}/lists\";\nDir::State::Status \"{at}/status\";\nDir::Cache \"{at}/cache\";\n\
         Acquire::Languages \"none\";\nAcquire::Check-Valid-Until \"false\";\nAPT::Sandbox::User \"root\";\n"
    );
    std::fs::write(&config, text)?;
    Ok(config)
}

/// The packages of a kernel that `package` depends on.
fn parts(package: &str, config: Option<&Path>) -> Result<Vec<String>> {
    let mut apt = Command::new("apt-cache");
    apt.args(["depends", package]);
    if let Some(config) = config {
        apt.env("APT_CONFIG", config);
    }
    let depends = output(&mut apt)
        .with_context(|| format!("{package} is not among the packages of this machine (apt-get update)"))?;
    let kernel = ["linux-image-", "linux-binary-", "linux-modules-"];
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(names.filter(|name| kernel.iter().any(|k| name.starts_with(k))).map(str::to_owned).collect())
}

pub(super) fn output(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?} does not run"))?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Unpacks `packages` into `root`.
fn fetch(dir: &Path, root: &Path, packages: &[&str], config: Option<&Path>) -> Result<()> {
    let got = tempfile::tempdir_in(dir)?;
    println!("fetching {} (100 MB) into {}", packages.join(", "), dir.display());
    let mut apt = Command::new("apt-get");
    apt.args(["-q", "download"]).args(packages).current_dir(got.path());
    if let Some(config) = config {
        apt.env("APT_CONFIG", config);
    }
    output(&mut apt)?;
    let _ = std::fs::remove_dir_all(root);
    let mut unpacked = 0;
    for deb in std::fs::read_dir(got.path())?.flatten() {
        output(Command::new("dpkg-deb").arg("-x").arg(deb.path()).arg(root))?;
        unpacked += 1;
    }
    ensure!(unpacked == packages.len(), "{unpacked} packages came, and {} were asked for", packages.len());
    Ok(())
}
