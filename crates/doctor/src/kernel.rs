//! The kernel: how old it is, and what it lets us do.

use super::{Case, Check, Finding};

/// Least kernel for each thing.
const RINGS: (u32, u32) = (5, 6);
const LOOPS: (u32, u32) = (5, 15);
const UBLK: (u32, u32) = (6, 0);
const UBLK_GROWS: (u32, u32) = (6, 16);

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let text = case.host.read("/proc/sys/kernel/osrelease");
    let version = text.as_deref().and_then(version);
    vec![release(case, text.as_deref(), version), ring(case), ublk(case, version), fuse(case)]
}

/// Its first two numbers.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn release(case: &Case<'_>, text: Option<&str>, version: Option<(u32, u32)>) -> Finding {
    let check = Check::new(
        "kernel.release",
        "volumes need io_uring, and block devices a loop driver that numbers its devices",
    );
    let Some(version) = version else { return check.unknown("the kernel does not say its version") };
    let seen = format!("Linux {}", text.unwrap_or_default());
    if version < RINGS {
        return check.bad(seen, "install Linux 5.15 or later");
    }
    if version < LOOPS {
        let mend = "install Linux 5.15 or later for 'block:NAME'; unix:, tcp: and fuse: work";
        let needed = case.makes_loops();
        return if needed { check.bad(seen, mend) } else { check.warn(seen, mend) };
    }
    check.ok(seen)
}

fn ring(case: &Case<'_>) -> Finding {
    let check = Check::new("kernel.io_uring", "every volume does its I/O by io_uring");
    let knob = case.host.number("/proc/sys/kernel/io_uring_disabled");
    match &case.facts.ring {
        None => check.unknown("not tried"),
        Some(Ok(())) if knob == Some(1) => check.warn(
            "a ring can be made, by root and the group of kernel.io_uring_group alone",
            "run the service as root, or: sysctl kernel.io_uring_disabled=0",
        ),
        Some(Ok(())) => check.ok("a ring can be made"),
        Some(Err((_, why))) if knob.is_some_and(|k| k > 0) => check.bad(
            format!("{why}; kernel.io_uring_disabled is {}", knob.unwrap_or_default()),
            "sysctl kernel.io_uring_disabled=0, and the same in /etc/sysctl.d",
        ),
        Some(Err((libc::ENOSYS, why))) => {
            check.bad(why, "this kernel was built without io_uring, or a sandbox hides it: use another")
        }
        Some(Err((libc::EPERM | libc::EACCES, why))) => check.bad(
            format!("{why}: most likely a seccomp filter of the container or unit"),
            "allow io_uring_setup, io_uring_enter and io_uring_register there",
        ),
        Some(Err((libc::ENOMEM, why))) => check.bad(
            format!("{why}: memory for the ring cannot be locked"),
            "raise LimitMEMLOCK, or 'ulimit -l unlimited'",
        ),
        Some(Err((_, why))) => check.bad(why, "'dmesg' shows what refuses it"),
    }
}

fn ublk(case: &Case<'_>, version: Option<(u32, u32)>) -> Finding {
    let check = Check::new(
        "kernel.ublk",
        "a ublk device outlives a restart of its service; a loop device over a mount does not",
    );
    let loops = "volumes are block devices by FUSE and loop here";
    match version {
        None => check.unknown("the kernel does not say its version"),
        Some(v) if v < UBLK => check.warn(format!("too old for ublk; {loops}"), "install Linux 6.0 or later"),
        Some(_) if !super::modules::there(case.host, "ublk_drv") => check
            .warn(format!("no module ublk_drv; {loops}"), "install the kernel's package with extra modules"),
        Some(v) if v < UBLK_GROWS => check
            .ok("present; a device in use grows only at its next start (from Linux 6.16 on: while \
                it is used)"),
        Some(_) => check.ok("there"),
    }
}

fn fuse(case: &Case<'_>) -> Finding {
    let check = Check::new(
        "kernel.fuse",
        "fuse:MOUNTPOINT and loop:NAME are mounts, and block:NAME where there is no ublk",
    );
    if !case.host.has("/dev/fuse") {
        let needed = case.listens("fuse:") || case.makes_loops();
        let mend = "modprobe fuse; in a container, give it the device /dev/fuse";
        return if needed { check.bad("no /dev/fuse", mend) } else { check.warn("no /dev/fuse", mend) };
    }
    match case.host.read("/sys/module/fuse/parameters/enable_uring").as_deref() {
        Some("Y" | "1") => {
            check.ok("/dev/fuse is there; FUSE over io_uring is on, which this release does not use")
        }
        Some(_) => check.ok("/dev/fuse is there; FUSE over io_uring is off, which this release does not use"),
        None => check.ok("/dev/fuse is there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    fn kernel(release: &str) -> Fake {
        let mut fake = Fake::new(&[("/proc/sys/kernel/osrelease", release), ("/dev/fuse", "")]);
        fake.facts.ring = Some(Ok(()));
        fake
    }

    #[test]
    fn old_kernels_are_told_from_those_that_lack_unasked_things() {
        assert_eq!(kernel("4.19.0-1-amd64").verdict(check, "kernel.release"), Verdict::Bad);
        assert_eq!(kernel("5.10.0-30-amd64").verdict(check, "kernel.release"), Verdict::Warn);
        let asked = kernel("5.10.0").configured("[volume.a]\ncore = \"/x\"\nlisten = [\"block:a\"]");
        assert_eq!(asked.verdict(check, "kernel.release"), Verdict::Bad);
        assert_eq!(kernel("6.1.0-28-amd64\n").verdict(check, "kernel.release"), Verdict::Ok);
        assert_eq!(kernel("").verdict(check, "kernel.release"), Verdict::Unknown);
    }

    #[test]
    fn a_ring_that_cannot_be_made_has_a_mend_that_fits_the_reason() {
        let mut fake = kernel("6.12.0");
        let mend = |fake: &Fake| {
            let found = fake.one(check, "kernel.io_uring");
            assert_eq!(found.verdict, Verdict::Bad);
            found.mend.unwrap()
        };
        fake.facts.ring = Some(Err((libc::EPERM, "Operation not permitted".into())));
        assert!(mend(&fake).contains("io_uring_setup"));
        fake.write("/proc/sys/kernel/io_uring_disabled", "2\n");
        assert!(mend(&fake).contains("io_uring_disabled=0"));
        fake.write("/proc/sys/kernel/io_uring_disabled", "1\n");
        fake.facts.ring = Some(Ok(()));
        assert_eq!(fake.verdict(check, "kernel.io_uring"), Verdict::Warn);
    }

    #[test]
    fn ublk_needs_a_kernel_and_its_module() {
        assert!(kernel("5.15.0").one(check, "kernel.ublk").seen.contains("too old"));
        assert!(kernel("6.12.0").one(check, "kernel.ublk").seen.contains("no module"));
        let fake = kernel("6.12.0");
        fake.write("/lib/modules/6.12.0/modules.dep", "kernel/drivers/block/ublk_drv.ko.xz:\n");
        let found = fake.one(check, "kernel.ublk");
        assert!(found.verdict == Verdict::Ok && found.seen.contains("next start"), "{found:?}");
    }

    #[test]
    fn without_dev_fuse_what_needs_it_is_bad() {
        let fake = Fake::new(&[]);
        assert_eq!(fake.verdict(check, "kernel.fuse"), Verdict::Warn);
        let asked = fake.configured("[volume.a]\ncore = \"/x\"\nlisten = [\"fuse:/mnt\"]");
        assert_eq!(asked.verdict(check, "kernel.fuse"), Verdict::Bad);
    }
}
