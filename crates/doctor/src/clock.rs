//! Clocks: the one of the wall, which Ceph compares between hosts, and the one that latencies and pace are measured by.

use super::{Case, Check, Finding};

/// More than this the clock does not go astray by itself, microseconds.
const JUMP: i64 = 5_000;
/// The clock error that Ceph's monitors begin to complain at, microseconds.
const DRIFT: i64 = 50_000;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    vec![wall(case), steps(case), source(case)]
}

fn wall(case: &Case<'_>) -> Finding {
    let check = Check::new(
        "clock.synchronised",
        "Ceph's monitors and authentication want clocks of all hosts within 50 ms",
    );
    let mend = "run chrony or systemd-timesyncd; in a container or virtual machine, see that the host does";
    match case.facts.clock {
        None => check.unknown("the kernel does not say"),
        Some(c) if !c.synchronised => check.warn("nobody keeps it right, the kernel says", mend),
        Some(c) if c.max_error_us > DRIFT * 10 => {
            check.warn(format!("it may be {} ms wrong", c.max_error_us / 1000), mend)
        }
        Some(c) => check.ok(format!("kept right, at most {} ms wrong", c.max_error_us / 1000)),
    }
}

fn steps(case: &Case<'_>) -> Finding {
    let check = Check::new("clock.steps", "two programs fight over a clock that is set back and forth");
    match case.facts.clock {
        None => check.unknown("not watched"),
        Some(c) if c.jump_us.abs() > JUMP => check.warn(
            format!("it jumped by {} ms", c.jump_us / 1000),
            "let one program alone set the clock, and have it slew instead of step",
        ),
        Some(_) => check.ok("it went on evenly while it was watched"),
    }
}

fn source(case: &Case<'_>) -> Finding {
    let check = Check::new(
        "clock.source",
        "each request reads the clock several times; some sources take microseconds",
    );
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match case.host.read(path).as_deref() {
        None => check.unknown("the kernel does not say"),
        Some(slow @ ("hpet" | "acpi_pm" | "pit" | "jiffies" | "refined-jiffies")) => check.warn(
            slow,
            format!(
                "look for 'clocksource' in dmesg: the kernel found the CPU's own counter unstable. \
                If the counter is right: echo tsc > {path}"
            ),
        ),
        Some(fast) => check.ok(fast),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::facts::Clock;
    use crate::fake::Fake;

    #[test]
    fn a_clock_that_is_free_wrong_jumping_or_slow_is_found() {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let mut fake = Fake::new(&[(source, "hpet\n")]);
        assert_eq!(fake.verdict(check, "clock.source"), Verdict::Warn);
        assert_eq!(fake.verdict(check, "clock.synchronised"), Verdict::Unknown);
        let mut told = |synchronised, max_error_us, jump_us| {
            fake.facts.clock = Some(Clock { synchronised, max_error_us, jump_us });
            (fake.verdict(check, "clock.synchronised"), fake.verdict(check, "clock.steps"))
        };
        assert_eq!(told(true, 900, 3), (Verdict::Ok, Verdict::Ok));
        assert_eq!(told(false, 900, 3), (Verdict::Warn, Verdict::Ok));
        assert_eq!(told(true, 16_000_000, -40_000), (Verdict::Warn, Verdict::Warn));
    }
}
