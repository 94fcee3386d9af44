//! A small Debian 13 for aarch64 with Ceph, and its kernel whose pages have 16 KiB: made once from Debian's archive, by unpacking
//! alone. No program of it runs before the machine does.

use super::kernel::{Kernel, cache_dir, output};
use anyhow::{Context, Result, anyhow};
use std::fs::{File, create_dir_all, rename};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SUITE: &str = "trixie";
/// Its Ceph has tcmalloc; that of Debian 12 has not.
const PACKAGES: &str =
    "linux-image-arm64-16k,busybox-static,libc-bin,e2fsprogs,fio,ceph-mon,ceph-osd,ceph-common";
/// Bytes of the disk.
const SIZE: &str = "2G";
/// Names of folders that no package of these brings, and the folders.
const LINKS: [(&str, &str); 4] =
    [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("var/run", "../run")];
const FOLDERS: [&str; 7] = ["dev", "proc", "sys", "run", "mnt", "root", "var/tmp"];

/// The kernel, and the disk that all roots are made over.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) kernel: Kernel,
    pub(super) image: PathBuf,
}

/// The one in the cache, else a new one.
pub(super) fn ready() -> Result<&'static Arm> {
    static ARM: OnceLock<Result<Arm, String>> = OnceLock::new();
    ARM.get_or_init(|| find().map_err(|e| format!("{e:#}"))).as_ref().map_err(|e| anyhow!("{e}"))
}

fn find() -> Result<Arm> {
    create_dir_all(cache_dir())?;
    let (parts, image) = (cache_dir().join("arm16k"), cache_dir().join("arm16k.img"));
    let (mark, wanted) = (cache_dir().join("arm16k.txt"), format!("{SUITE}\n{PACKAGES}\n{SIZE}\n1"));
    // Several test programs may come here at once.
    let lock = File::create(cache_dir().join("lock"))?;
    lock.lock()?;
    if !std::fs::read_to_string(&mark).is_ok_and(|m| m == wanted) {
        make(&parts, &image)?;
        std::fs::write(mark, wanted)?;
    }
    Ok(Arm { kernel: Kernel::unpacked(parts)?, image })
}

/// Puts kernel, modules and busybox below `parts`, and the rest into `image`.
fn make(parts: &Path, image: &Path) -> Result<()> {
    let dir = tempfile::tempdir_in(cache_dir())?;
    let system = dir.path().join("system");
    println!(
        "unpacking a Debian for aarch64 with Ceph (some 250 MB of packages) in {}",
        cache_dir().display()
    );
    let mut fetch = Command::new("mmdebstrap");
    fetch
        .args(["--quiet", "--mode=root", "--variant=extract", "--architectures=arm64", "--include", PACKAGES])
        .args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\""])
        .arg(SUITE)
        .arg(&system);
    output(&mut fetch)?;
    let _ = std::fs::remove_dir_all(parts);
    for part in ["boot", "usr/lib/modules"] {
        let to = parts.join(part);
        create_dir_all(to.parent().context("a part lies in a folder")?)?;
        rename(system.join(part), to).with_context(|| format!("no {part} in what was unpacked"))?;
    }
    create_dir_all(parts.join("usr/bin"))?;
    std::fs::copy(system.join("usr/bin/busybox"), parts.join("usr/bin/busybox"))?;
    furnish(&system)?;
    let new = dir.path().join("image");
    output(Command::new("mkfs.ext4").args(["-q", "-L", "root", "-d"]).arg(&system).arg(&new).arg(SIZE))?;
    rename(new, image)?;
    Ok(())
}

/// Folders, links and users, which scripts of packages make that do not run here.
fn furnish(system: &Path) -> Result<()> {
    for (name, to) in LINKS {
        symlink(to, system.join(name)).with_context(|| format!("linking {name}"))?;
    }
    for name in FOLDERS {
        create_dir_all(system.join(name))?;
    }
    let write = |path: &str, text: &str| {
        let path = system.join(path);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nceph:x:64045:64045::/var/lib/ceph:/bin/sh\n")?;
    write("etc/group", "root:x:0:\nceph:x:64045:\n")?;
    write("etc/hostname", "vm\n")?;
    write("etc/hosts", "127.0.0.1 localhost vm\n")
}
