//! fio's log of every request.

use anyhow::{Context, Result};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// The time of its answer, milliseconds since 1970.
    pub at_ms: u64,
    /// The time that it took, nanoseconds.
    pub wait_ns: u64,
    /// A write.
    pub write: bool,
}

impl Waited {
    /// The time at which it was made, milliseconds since 1970.
    pub fn since_ms(&self) -> u64 {
        self.at_ms.saturating_sub(self.wait_ns / 1_000_000)
    }
}

/// Reads what fio wrote with `--write_lat_log --log_unix_epoch=1` and appends it.
pub(super) fn waited(log: &str, to: &mut Vec<Waited>) -> Result<()> {
    for line in log.lines() {
        let mut fields = line.split(',').map(str::trim);
        let mut next = || -> Result<u64> {
            let field = fields.next().context("a line of fio's latency log is cut short")?;
            field.parse().with_context(|| format!("'{field}' in fio's latency log"))
        };
        let (at_ms, wait_ns, direction) = (next()?, next()?, next()?);
        to.push(Waited { at_ms, wait_ns, write: direction == 1 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_answer_with_its_moment_and_wait() {
        let mut all = Vec::new();
        waited("1795313523291, 5092000, 0, 4096, 0\n1795313523300, 7, 1, 4096, 0\n", &mut all).unwrap();
        assert_eq!((all[0].since_ms(), all[0].write), (1_795_313_523_286, false));
        assert_eq!((all[1].since_ms(), all[1].write), (1_795_313_523_300, true));
        assert!(waited("1, 2", &mut all).is_err());
    }
}
