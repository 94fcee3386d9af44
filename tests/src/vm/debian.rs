//! A small Debian 12 with systemd, LVM and Ceph, as a disk of the machine: made once from Debian's archive
//! and never written to again. The writes of a machine go into a file over it.

use super::arm;
use super::kernel::{Kernel, cache_dir, output};
use crate::skip::{installed, root};
use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SUITE: &str = "bookworm";
/// Packages beside the least that Debian is.
const PACKAGES: &str = "systemd,systemd-sysv,udev,kmod,util-linux,lvm2,ceph-mon,ceph-osd,ceph-common,openssl";
/// Bytes of the disk.
const SIZE: &str = "3G";
/// Units that have nothing to do with any claim here, and cost emulated processors time.
const MASKED: [&str; 5] =
    ["ceph-crash.service", "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "fstrim.timer"];

/// A disk with the system, to be written to.
#[derive(Debug, Clone)]
pub struct Root {
    /// The written blocks, over the disk that all share.
    pub(super) image: PathBuf,
    /// True if systemd runs; else the script alone does, in the system's folders.
    pub(super) boots: bool,
}

impl Root {
    /// A new one, its writes in `dir`. With `boots`, systemd starts it and the script runs beside all else.
    /// Without, the script is the only thing that runs.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(dir: &Path, boots: bool) -> Result<Root> {
        Root::over(ready()?, dir, boots)
    }

    /// A new one for aarch64, of Debian 13, its writes in `dir`. The script is the only thing that runs.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn arm(dir: &Path) -> Result<Root> {
        Root::over(&arm::ready()?.image, dir, false)
    }

    fn over(base: &Path, dir: &Path, boots: bool) -> Result<Root> {
        let image = dir.join("root.qcow2");
        let mut make = Command::new("qemu-img");
        make.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(base).arg(&image);
        output(&mut make)?;
        Ok(Root { image, boots })
    }

    /// The reason why there can be none here, for a person to read.
    pub fn missing() -> Option<String> {
        // Whether the archive answers is known when it is asked: that takes a minute, once.
        Root::lacks_tools().or_else(|| ready().err().map(|why| format!("no Debian for the machine: {why:#}")))
    }

    /// The reason why no root can be made here, whatever the archive has.
    pub(super) fn lacks_tools() -> Option<String> {
        for (program, package) in
            [("mmdebstrap", "mmdebstrap"), ("qemu-img", "qemu-utils"), ("mkfs.ext4", "e2fsprogs")]
        {
            if !installed(program) {
                return Some(format!("{program} is missing (apt-get install {package})"));
            }
        }
        if !root() {
            return Some("only root can make a Debian root file system".to_owned());
        }
        None
    }
}

/// The disk that all are made over.
fn ready() -> Result<&'static Path> {
    static BASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let base = BASE.get_or_init(|| base().map_err(|e| format!("{e:#}")));
    base.as_deref().map_err(|e| anyhow!("{e}"))
}

/// The one in the cache, else a new one.
fn base() -> Result<PathBuf> {
    let kernel = Kernel::get()?;
    let (image, mark) = (cache_dir().join("debian.img"), cache_dir().join("debian.txt"));
    let wanted = format!("{}\n{PACKAGES}\n{SIZE}\n{MASKED:?}\n1", kernel.version);
    let lock = File::create(cache_dir().join("lock"))?;
    lock.lock()?;
    if image.exists() && std::fs::read_to_string(&mark).is_ok_and(|m| m == wanted) {
        return Ok(image);
    }
    let dir = tempfile::tempdir_in(cache_dir())?;
    let system = dir.path().join("system");
    println!("making a Debian with Ceph (some 150 MB of packages) in {}", cache_dir().display());
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--mode=root", "--variant=minbase", "--include", PACKAGES])
        .args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\""])
        .args(["man", "doc", "locale", "info"].map(|d| format!("--dpkgopt=path-exclude=/usr/share/{d}/*")))
        .arg(SUITE)
        .arg(&system);
    output(&mut make)?;
    furnish(&system, kernel)?;
    let new = dir.path().join("image");
    output(Command::new("mkfs.ext4").args(["-q", "-L", "root", "-d"]).arg(&system).arg(&new).arg(SIZE))?;
    std::fs::rename(&new, &image)?;
    std::fs::write(mark, wanted)?;
    Ok(image)
}

/// Settings of a machine that nobody has set up yet: a name, modules, a journal that stays.
fn furnish(system: &Path, kernel: &Kernel) -> Result<()> {
    let write = |path: &str, text: &str| {
        let path = system.join(path);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("etc/hostname", "vm\n")?;
    write("etc/hosts", "127.0.0.1 localhost vm\n")?;
    // With one that is empty the first boot would ask questions.
    write("etc/machine-id", "6c6f6c69676f6c6f6c69676f6c6f6c69\n")?;
    std::fs::create_dir_all(system.join("var/log/journal"))?;
    for unit in MASKED {
        std::os::unix::fs::symlink("/dev/null", system.join("etc/systemd/system").join(unit))?;
    }
    let modules = system.join("lib/modules");
    std::fs::create_dir_all(&modules)?;
    output(Command::new("cp").arg("-r").arg(&kernel.modules).arg(&modules))?;
    output(Command::new("chroot").arg(system).args(["depmod", &kernel.version])).map(drop)
}
