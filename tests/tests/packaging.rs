//! Claims about what a package holds: it is where the system looks for it, and the system understands it.

use loligo_tests::blockdev::impossible;
use loligo_tests::loops::Loop;
use loligo_tests::server::{Volume, program};
use loligo_tests::skip::{installed, skip};
use loligo_tests::tidy;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The files of `make install`, below `dir`.
fn install(dir: &Path, prefix: &str) {
    let out = Command::new(tidy::root().join("scripts/install.sh"))
        .arg(program())
        .env("DESTDIR", dir)
        .env("PREFIX", prefix)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
}

fn said(out: &Output) -> String {
    [&out.stdout, &out.stderr].map(|t| String::from_utf8_lossy(t).into_owned()).concat()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn an_installation_is_complete_and_names_its_program() {
    let dir = folder();
    install(dir.path(), "/usr");
    let usr = dir.path().join("usr");
    for file in [
        "bin/loligo",
        "bin/loligod",
        "lib/systemd/system/loligod.service",
        "lib/systemd/system/loligo-tune-threads@.service",
        "lib/systemd/system/ceph-osd@.service.d/10-loligo.conf",
        "lib/systemd/system/ceph-volume@.service.d/10-loligo.conf",
        "lib/udev/rules.d/61-loligo.rules",
        "lib/modules-load.d/loligo.conf",
        "share/man/man1/loligo.1.gz",
        "share/man/man1/loligo-volume-create.1.gz",
        "share/man/man8/loligod.8.gz",
        "share/bash-completion/completions/loligo",
        "share/zsh/site-functions/_loligo",
        "share/fish/vendor_completions.d/loligo.fish",
        "share/doc/loligo/copyright",
    ] {
        assert!(usr.join(file).exists(), "{file} is missing");
    }
    let out = Command::new(usr.join("bin/loligod")).arg("--help").output().expect("it runs");
    assert!(said(&out).contains("Serve many volumes"), "{}", said(&out));
    assert!(read(usr.join("lib/systemd/system/loligod.service")).contains("ExecStart=/usr/bin/loligod "));
    assert!(read(usr.join("lib/udev/rules.d/61-loligo.rules")).contains("\"/usr/bin/loligo probe --export"));
    for unit in ["ceph-osd@", "ceph-volume@"] {
        let text = read(usr.join(format!("lib/systemd/system/{unit}.service.d/10-loligo.conf")));
        let told: Vec<&str> = text.lines().filter(|l| !l.starts_with(['#', '['])).collect();
        assert_eq!(told, ["After=loligod.service"], "nothing of an OSD may depend on loligod but its order");
    }
    let out = Command::new(program())
        .args(["config", "check", "--config"])
        .arg(usr.join("share/doc/loligo/loligod.toml"))
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
}

/// Keys that bind the life of a unit to that of another.
const BONDS: [&str; 7] =
    ["Requires", "Requisite", "BindsTo", "PartOf", "Upholds", "PropagatesStopTo", "StopPropagatedFrom"];

/// The settings of a unit's lines, in their order.
fn settings(unit: &str) -> Vec<(&str, &str)> {
    let lines = unit.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';', '[']));
    lines.filter_map(|l| l.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect()
}

#[test]
fn no_stop_of_the_daemon_is_cut_short_or_precedes_its_users() {
    let dir = folder();
    install(dir.path(), "/usr");
    let units = dir.path().join("usr/lib/systemd/system");
    let unit = read(units.join("loligod.service"));
    let set = settings(&unit);
    let all = |key: &str| -> Vec<&str> { set.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v).collect() };
    let promises =
        [("Type", "notify"), ("KillMode", "mixed"), ("SendSIGKILL", "no"), ("TimeoutStopSec", "infinity")];
    for (key, value) in promises {
        assert_eq!(all(key), [value], "{key}");
    }
    let before: Vec<&str> = all("Before").into_iter().flat_map(str::split_whitespace).collect();
    for other in ["ceph-osd.target", "blk-availability.service", "lvm2-activation-net.service"] {
        assert!(before.contains(&other), "{other} may stop later than the daemon: {before:?}");
    }
    let mut dropped_in = 0;
    for entry in std::fs::read_dir(&units).expect("units").flatten().filter(|e| e.path().is_dir()) {
        for file in std::fs::read_dir(entry.path()).expect("a folder").flatten() {
            let text = read(file.path());
            let bond = settings(&text).into_iter().find(|(key, _)| BONDS.contains(key));
            assert_eq!(bond, None, "{} dies with the daemon", file.path().display());
            dropped_in += 1;
        }
    }
    assert!(dropped_in >= 2, "{dropped_in} drop-ins");
    let bond = set.iter().find(|(key, value)| BONDS.contains(key) && value.contains("ceph"));
    assert_eq!(bond, None, "the daemon goes with an OSD");
}

#[test]
fn the_packaged_example_is_right_without_its_signs() {
    let text = read(tidy::root().join("packaging/loligod.toml"));
    let example: String = text
        .lines()
        .map(|l| l.strip_prefix("# ").unwrap_or(l))
        .skip_while(|l| !l.starts_with("[volume"))
        .filter(|l| *l != "#")
        .map(|l| format!("{l}\n"))
        .collect();
    let dir = folder();
    std::fs::write(dir.path().join("x.toml"), &example).expect("written");
    let out = Command::new(program())
        .args(["config", "check", "--config"])
        .arg(dir.path().join("x.toml"))
        .output()
        .expect("it runs");
    assert!(out.status.success() && said(&out).contains("1 volume"), "{example}: {}", said(&out));
}

#[test]
fn systemd_understands_the_unit() {
    if !installed("systemd-analyze") {
        return skip("the unit", "systemd-analyze is not installed (systemd)");
    }
    let dir = folder();
    install(dir.path(), "/usr");
    let units = dir.path().join("usr/lib/systemd/system");
    // The program itself is not in its place, and a manual page is looked for where nothing was installed.
    let unit = read(units.join("loligod.service"))
        .replace("/usr/bin/loligod ", "/bin/true ")
        .replace("/usr/bin/loligo ", "/bin/true ");
    std::fs::write(units.join("loligod.service"), unit).expect("written");
    let verify = || {
        Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--generators=no", "--recursive-errors=no"])
            .arg(units.join("loligod.service"))
            .env("SYSTEMD_UNIT_PATH", format!("{}:", units.display()))
            .output()
            .expect("it runs")
    };
    let out = verify();
    assert!(out.status.success() && said(&out).trim().is_empty(), "{}", said(&out));
    // It would have said so.
    let wrong = read(units.join("loligod.service")).replace("WatchdogSec=30", "WatchdogSec=often");
    std::fs::write(units.join("loligod.service"), wrong).expect("written");
    assert!(said(&verify()).contains("often"), "{}", said(&verify()));
}

/// The properties that udev gives a block device of this host with this rule file beside its own. It runs in a mount name space with a /dev and
/// a /run/udev of its own, so that nothing of this host changes.
fn rules(rule: &Path, device: &str) -> Output {
    let script = "mount --make-rprivate / && mkdir -p /run/udev && mount -t tmpfs none /run/udev && mkdir /run/udev/rules.d /run/udev/dev && \
                  cp \"$0\" /run/udev/rules.d/61-loligo.rules && cp -a \"/dev/$1\" /dev/null /dev/urandom /run/udev/dev && \
                  mount --bind /run/udev/dev /dev && udevadm test --action=add \"/sys/block/$1\" 2>&1";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(rule)
        .arg(device)
        .output()
        .expect("it runs")
}

#[test]
fn udev_marks_a_labelled_core_as_ours_by_a_valid_rule() {
    let what = "the udev rule";
    if impossible(what) {
        return;
    }
    if !installed("udevadm") || !installed("unshare") {
        return skip(what, "udevadm or unshare is not installed (udev, util-linux)");
    }
    let dir = folder();
    install(dir.path(), "/usr");
    let disk = match Loop::new(&dir.path().join("disk"), 64 << 20, 512) {
        Ok(disk) => disk,
        Err(why) => return skip(what, &why),
    };
    let volume = Volume {
        dir: dir.path().to_owned(),
        cache: dir.path().join("cache"),
        cache_size: 24 << 20,
        core: disk.path().to_owned(),
        mode: "wb",
        more: ["--data-offset", "1m"].map(str::to_owned).into(),
    };
    volume.serve().expect("it starts").stop().expect("a clean stop");
    let name = disk.path().file_name().expect("a name").to_str().expect("text");
    let whole = read(dir.path().join("usr/lib/udev/rules.d/61-loligo.rules"));
    let whole = whole.replace("/usr/bin/loligo", &program().display().to_string());
    let with = |change: (&str, &str)| {
        let text = whole.replace(change.0, change.1);
        assert_ne!(text, whole, "{change:?} changes nothing");
        let rule = dir.path().join("x.rules");
        std::fs::write(&rule, text).expect("written");
        said(&rules(&rule, name))
    };
    // Loop devices are left out, for volumes are some; this one stands for a disk.
    let seen = with(("loop*|", ""));
    if !seen.contains("61-loligo.rules") {
        return skip(
            what,
            &format!("udevadm test does not work here: {}", seen.lines().last().unwrap_or_default()),
        );
    }
    for line in ["ID_FS_TYPE=loligo_core", "ID_FS_USAGE=raid", "LOLIGO_VOLUME=vol", "UDISKS_IGNORE=1"] {
        assert!(seen.lines().any(|l| l == line), "{line}: {seen}");
    }
    assert!(seen.contains("/dev/disk/by-loligo/core-vol"), "{seen}");
    let complaints = |text: &str| -> Vec<String> {
        let bad = |l: &&str| ["nvalid", "nknown", "gnoring", "rror"].iter().any(|w| l.contains(w));
        text.lines().filter(|l| l.contains("61-loligo.rules:")).filter(bad).map(str::to_owned).collect()
    };
    assert_eq!(complaints(&seen), [""; 0]);
    let broken = with(("IMPORT{program}=", "IMPORT{nonsense}="));
    assert_ne!(complaints(&broken), [""; 0], "it would have said so: {broken}");
    let volumes = with(("# Marks", "# marks"));
    assert!(!volumes.contains("LOLIGO_KIND"), "a loop device is not asked about: {volumes}");
}

#[test]
fn a_debian_package_holds_what_an_installation_does() {
    if !installed("dpkg-deb") || !installed("strip") {
        return skip("the Debian package", "dpkg-deb or strip is missing");
    }
    let dir = folder();
    let out = Command::new(tidy::root().join("scripts/deb.sh"))
        .arg(program())
        .arg(dir.path())
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{}", said(&out));
    let package = String::from_utf8(out.stdout).expect("text");
    let list = Command::new("dpkg-deb").args(["--contents", package.trim()]).output().expect("it runs");
    for file in [
        "./usr/bin/loligod -> loligo",
        "./usr/lib/systemd/system/loligod.service",
        "./etc/loligo/loligod.toml",
    ] {
        assert!(said(&list).contains(file), "{file}: {}", said(&list));
    }
    assert!(said(&list).lines().all(|l| l.contains("root/root")), "{}", said(&list));
    let control = Command::new("dpkg-deb").args(["--field", package.trim()]).output().expect("it runs");
    assert!(said(&control).contains("libc6") && said(&control).contains("libssl3"), "{}", said(&control));
}
