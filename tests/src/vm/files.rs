//! The content of the machine's memory when it boots.

use super::Plan;
use super::archive::Archive;
use super::kernel::{Kernel, cache_dir};
use super::platform::Platform;
use crate::server::{aarch64_program, program};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of this machine, with their libraries. Those that are missing here are missing there.
const PROGRAMS: [&str; 5] = ["fio", "mkfs.ext4", "e2fsck", "blkdiscard", "dmsetup"];
/// Modules that are there, with those they need.
const MODULES: [&str; 22] = [
    "ublk_drv",
    "bcache",
    "dm-writecache",
    "dm-cache",
    "dm-cache-smq",
    "dm-flakey",
    "dm-delay",
    "scsi_debug",
    "sd_mod",
    "loop",
    "ext4",
    "virtio_blk",
    "brd",
    "null_blk",
    "crc32c_generic",
    "target_core_iblock",
    "iscsi_target_mod",
    "iscsi_tcp",
    "e1000e",
    "8021q",
    "bonding",
    "dummy",
];
/// The same with Debian's newest kernel, which has no `crc32c_generic`.
const NEWEST_MODULES: [&str; 10] = [
    "virtio_blk",
    "sd_mod",
    "brd",
    "dm-delay",
    "target_core_iblock",
    "iscsi_target_mod",
    "iscsi_tcp",
    "nvmet",
    "nvme-core",
    "nvme-loop",
];
/// The same on aarch64. Programs lie on its disk alone.
const ARM_MODULES: [&str; 5] = ["virtio_blk", "ext4", "ublk_drv", "loop", "crc32c_generic"];
/// Programs of packages that are not installed, by their places.
const UNPACKED: [&str; 3] = ["usr/sbin/make-bcache", "usr/sbin/bcache-super-show", "sbin/iscsistart"];
/// The first program: sets up everything a program may expect, then runs the script.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LOLIGO_RUNTIME_DIR=/run/loligo
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm /run/loligo /mnt /tmp
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
mount -t tmpfs none /tmp
mkdir -p /run/loligo
ulimit -c 0
modprobe virtio_blk
modprobe crc32c_generic
exec </dev/null >/dev/hvc0 2>&1
stty -F /dev/hvc0 -opost 2>/dev/null
[ ! -e /lib/root.sh ] || . /lib/root.sh
. /lib/prelude.sh
( . /script.sh )
echo "=== exit $?"
sleep 0.2
poweroff -f
"#;

/// Writes the image of a machine that does what `plan` says to `to`.
pub(super) fn image(kernel: &Kernel, plan: &Plan, to: &Path) -> Result<()> {
    let base = base(kernel, plan.platform)?;
    std::fs::copy(base, to)?;
    let file = File::options().append(true).open(to)?;
    // The kernel unpacks one archive after the other.
    let mut archive = Archive::new(BufWriter::new(file));
    archive.bytes("script.sh", plan.script.as_bytes())?;
    archive.bytes("lib/prelude.sh", include_bytes!("../../vm/prelude.sh"))?;
    archive.bytes("init", INIT.as_bytes())?;
    archive.dir("files")?;
    archive.dir("files/units")?;
    let mut done = BTreeSet::new();
    for (name, path) in &plan.files {
        archive.file(&format!("files/{name}"), path)?;
    }
    for path in &plan.programs {
        let name = path.file_name().context("a program has a name")?.to_string_lossy();
        archive.file(&format!("bin/{name}"), &stripped(path, to, plan.platform)?)?;
        libraries(&mut archive, path, Path::new("/"), &mut done)?;
    }
    if let Some(root) = &plan.root {
        let disk = char::from(b'a' + plan.disks.len() as u8);
        let head = format!("ROOT=/dev/vd{disk} BOOTS={}\n", u8::from(root.boots));
        archive.bytes("lib/root.sh", (head + include_str!("../../vm/root.sh")).as_bytes())?;
    }
    if plan.platform == Platform::Arm16k {
        let program = aarch64_program().context("LOLIGO_AARCH64_BIN names no program")?;
        archive.file("bin/loligo", &stripped(&program, to, plan.platform)?)?;
    } else {
        archive.file("bin/loligo", &stripped(program(), to, plan.platform)?)?;
        libraries(&mut archive, program(), Path::new("/"), &mut done)?;
    }
    archive.end()?;
    Ok(())
}

/// `program` without what only a debugger reads, which is most of it.
fn stripped(program: &Path, beside: &Path, platform: Platform) -> Result<PathBuf> {
    let to = beside.with_file_name("stripped");
    let strip = Command::new(platform.strip()).arg("-o").arg(&to).arg(program).status();
    if !strip.is_ok_and(|s| s.success()) {
        std::fs::copy(program, &to)?;
    }
    Ok(to)
}

/// Everything that stays the same from run to run.
fn base(kernel: &Kernel, platform: Platform) -> Result<PathBuf> {
    let (name, wanted): (_, &[&str]) = match platform {
        Platform::X86 => ("base", &MODULES),
        Platform::X86Newest => ("newest", &NEWEST_MODULES),
        Platform::Arm16k => ("arm", &ARM_MODULES),
    };
    let mark_text = format!("{}\n{PROGRAMS:?}\n{UNPACKED:?}\n{wanted:?}\n1", kernel.version);
    let (path, mark) = (cache_dir().join(format!("{name}.cpio")), cache_dir().join(format!("{name}.txt")));
    // Programs are Debian 12's, whatever the kernel of x86-64. It takes the same lock.
    let unpacked = if platform == Platform::Arm16k { &kernel.root } else { &Kernel::get()?.root };
    let lock = File::create(cache_dir().join("lock"))?;
    lock.lock()?;
    if path.exists() && std::fs::read_to_string(&mark).is_ok_and(|m| m == mark_text) {
        return Ok(path);
    }
    let mut archive = Archive::new(BufWriter::new(File::create(&path)?));
    for dir in [
        "bin", "sbin", "lib", "lib64", "usr", "usr/bin", "usr/sbin", "etc", "dev", "proc", "sys", "run",
        "tmp", "mnt",
    ] {
        archive.dir(dir)?;
    }
    archive.node("dev/console", 5, 1)?;
    archive.link("etc/mtab", "/proc/mounts")?;
    archive.bytes("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")?;
    archive.bytes("etc/group", b"root:x:0:\n")?;
    if platform == Platform::Arm16k {
        archive.file("bin/busybox", &unpacked.join("usr/bin/busybox"))?;
    } else {
        programs(&mut archive, unpacked)?;
    }
    modules(&mut archive, kernel, wanted)?;
    archive.end()?;
    std::fs::write(mark, mark_text)?;
    Ok(path)
}

/// Programs of this machine, and of packages below `unpacked`.
fn programs<W: Write>(archive: &mut Archive<W>, unpacked: &Path) -> Result<()> {
    let mut done = BTreeSet::new();
    archive.file("bin/busybox", &found("busybox").context("busybox is missing")?)?;
    for name in PROGRAMS {
        let Some(path) = found(name) else { continue };
        archive.file(&format!("usr/sbin/{name}"), &path)?;
        libraries(archive, &path, Path::new("/"), &mut done)?;
    }
    for place in UNPACKED {
        let (path, name) = (unpacked.join(place), place.rsplit('/').next().unwrap_or(place));
        archive.file(&format!("usr/sbin/{name}"), &path)?;
        libraries(archive, &path, unpacked, &mut done)?;
    }
    Ok(())
}

fn found(program: &str) -> Option<PathBuf> {
    let out = Command::new("sh")
        .args(["-c", "PATH=$PATH:/usr/sbin:/sbin; command -v \"$0\"", program])
        .output()
        .ok()?;
    let path = String::from_utf8(out.stdout).ok()?;
    (out.status.success() && path.starts_with('/')).then(|| path.trim_end().into())
}

/// The shared libraries of `program`, under the names by which it looks for them. Those of its own package are below `root`.
fn libraries<W: Write>(
    archive: &mut Archive<W>,
    program: &Path,
    root: &Path,
    done: &mut BTreeSet<String>,
) -> Result<()> {
    let mut ldd = Command::new("ldd");
    ldd.arg(program).env("LD_LIBRARY_PATH", root.join("usr/lib/x86_64-linux-gnu"));
    let out = ldd.output().context("ldd does not run")?;
    let text = String::from_utf8_lossy(&out.stdout);
    for from in text.split_whitespace().filter(|w| w.starts_with('/')).map(Path::new) {
        let path = Path::new("/").join(from.strip_prefix(root).or_else(|_| from.strip_prefix("/"))?);
        if !done.insert(path.display().to_string()) {
            continue;
        }
        let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
        parents.reverse();
        for dir in parents.iter().map(|p| p.to_string_lossy()).filter(|p| p.len() > 1) {
            if done.insert(dir.to_string()) && !["/lib", "/lib64", "/usr"].contains(&&*dir) {
                archive.dir(dir.trim_start_matches('/'))?;
            }
        }
        archive.file(path.to_string_lossy().trim_start_matches('/'), from)?;
    }
    Ok(())
}

/// The modules, unpacked, with the list of what needs what that `modprobe` reads.
fn modules<W: Write>(archive: &mut Archive<W>, kernel: &Kernel, wanted: &[&str]) -> Result<()> {
    let mut all = BTreeMap::new();
    collect(&kernel.modules.join("kernel"), &mut all)?;
    let to = format!("lib/modules/{}", kernel.version);
    archive.dir("lib/modules")?;
    archive.dir(&to)?;
    let mut loaded = BTreeMap::new();
    let mut list = String::new();
    for name in wanted {
        let mut order = Vec::new();
        visit(&name.replace('-', "_"), &all, &mut loaded, &mut order)?;
        // Each before what it needs.
        let names: Vec<String> = order.iter().rev().map(|n| format!("{n}.ko")).collect();
        list.push_str(&format!("{}: {}\n", names[0], names[1..].join(" ")));
    }
    for (name, bytes) in &loaded {
        archive.bytes(&format!("{to}/{name}.ko"), bytes)?;
    }
    archive.bytes(&format!("{to}/modules.dep"), list.as_bytes())?;
    Ok(())
}

/// Puts what the module `name` needs, directly or not, and then itself into `order`; their bytes into `loaded`.
fn visit(
    name: &str,
    all: &BTreeMap<String, PathBuf>,
    loaded: &mut BTreeMap<String, Vec<u8>>,
    order: &mut Vec<String>,
) -> Result<()> {
    if order.iter().any(|n| n == name) {
        return Ok(());
    }
    if !loaded.contains_key(name) {
        let path = all.get(name).with_context(|| format!("no module {name}"))?;
        let out = Command::new("xz").arg("-dc").arg(path).output().context("xz does not run")?;
        ensure!(out.status.success(), "{} cannot be unpacked", path.display());
        loaded.insert(name.to_owned(), out.stdout);
    }
    for need in needs(&loaded[name]) {
        visit(&need.replace('-', "_"), all, loaded, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// All modules by name.
fn collect(dir: &Path, all: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, all)?;
        } else if let Some(name) = entry.file_name().to_string_lossy().strip_suffix(".ko.xz") {
            all.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

/// The needs of a module, by its own account.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let text: Vec<u8> = module[at + KEY.len()..].iter().copied().take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&text).split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
}
