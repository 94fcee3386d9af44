//! Sets of processors, as the kernel writes them: `0-3,8`.

use crate::gather::lists::numbers;
use std::collections::BTreeSet;
use std::fmt;

/// Processors, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus(BTreeSet<i64>);

impl Cpus {
    /// A list of the kernel; nothing: it has no processor, or is no list.
    pub fn parse(list: &str) -> Option<Cpus> {
        let is_list = list.bytes().all(|byte| byte.is_ascii_digit() || b",-".contains(&byte));
        let all: Cpus = numbers(list).into_iter().collect();
        (is_list && !all.is_empty()).then_some(all)
    }

    /// No processor.
    pub const fn none() -> Cpus {
        Cpus(BTreeSet::new())
    }

    /// True if there is none in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of them.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if this one is in it.
    pub fn has(&self, cpu: i64) -> bool {
        self.0.contains(&cpu)
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.0.iter().copied()
    }

    /// True if no processor is in both.
    pub fn is_apart(&self, other: &Cpus) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// True if all of these are in `other`.
    pub fn is_within(&self, other: &Cpus) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<i64> for Cpus {
    fn from_iter<I: IntoIterator<Item = i64>>(all: I) -> Cpus {
        Cpus(all.into_iter().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.iter().peekable();
        let mut comma = "";
        while let Some(from) = all.next() {
            let mut to = from;
            while all.peek() == Some(&(to + 1)) {
                to += 1;
                all.next();
            }
            match to == from {
                true => write!(f, "{comma}{from}")?,
                false => write!(f, "{comma}{from}-{to}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_the_kernel_writes_it() {
        for list in ["0", "0-3,8", "0,2,4", "1-2,4-5"] {
            assert_eq!(Cpus::parse(list).expect("a list").to_string(), list);
        }
        for bad in ["", "x", "node:0/share:0.5", "3-1", "0-1 4=0"] {
            assert_eq!(Cpus::parse(bad), None, "{bad}");
        }
    }
}
