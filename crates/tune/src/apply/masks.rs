//! Processors of several things, threads or interrupts, as one value.
//!
//! `0-3`: each has these. `36=0 37=1`: each has its own, by its number. A thread is named by its number and the tick of its start, so that
//! another one with the same number is not taken for it.

use crate::cpus::Cpus;
use std::collections::BTreeMap;
use std::fmt;

/// Processors of several things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Masks {
    /// Each has the same.
    Same(Cpus),
    /// Each has its own. There is one at least.
    Each(BTreeMap<String, Cpus>),
}

impl Masks {
    /// Of things with their names; nothing: there are none.
    pub(super) fn of(all: BTreeMap<String, Cpus>) -> Option<Masks> {
        let first = all.values().next()?.clone();
        let is_same = all.values().all(|cpus| *cpus == first);
        Some(if is_same { Masks::Same(first) } else { Masks::Each(all) })
    }

    /// Of a value; nothing: it is none.
    pub(super) fn parse(text: &str) -> Option<Masks> {
        if let Some(cpus) = Cpus::parse(text) {
            return Some(Masks::Same(cpus));
        }
        let one = |word: &str| {
            let (name, list) = word.split_once('=')?;
            Some((name.to_owned(), Cpus::parse(list)?))
        };
        let all: Option<BTreeMap<String, Cpus>> = text.split(' ').map(one).collect();
        all.filter(|all| !all.is_empty()).map(Masks::Each)
    }

    /// Those of one thing. One that came later has what most have.
    pub(super) fn mask(&self, name: &str) -> &Cpus {
        match self {
            Masks::Same(cpus) => cpus,
            Masks::Each(all) => all.get(name).unwrap_or_else(|| self.common()),
        }
    }

    /// The set that most have, the first of those that are alike.
    fn common(&self) -> &Cpus {
        match self {
            Masks::Same(cpus) => cpus,
            Masks::Each(all) => {
                let count = |cpus: &Cpus| all.values().filter(|it| *it == cpus).count();
                let most = all.values().map(count).max().unwrap_or(0);
                all.values().find(|cpus| count(cpus) == most).unwrap_or(&NONE)
            }
        }
    }

    /// True if each thing of these has what `want` says.
    pub(super) fn are(&self, want: &Masks) -> bool {
        match (self, want) {
            (Masks::Same(is), Masks::Same(want)) => is == want,
            (Masks::Same(is), Masks::Each(want)) => want.values().all(|want| want == is),
            (Masks::Each(is), want) => is.iter().all(|(name, is)| is == want.mask(name)),
        }
    }

    /// True if each thing has what one of both says.
    pub(super) fn are_of(&self, one: &Masks, other: &Masks) -> bool {
        match self {
            Masks::Same(is) => [one, other].iter().any(|it| it.has(is)),
            Masks::Each(all) => all.iter().all(|(name, is)| is == one.mask(name) || is == other.mask(name)),
        }
    }

    fn has(&self, cpus: &Cpus) -> bool {
        match self {
            Masks::Same(all) => all == cpus,
            Masks::Each(all) => all.values().any(|it| it == cpus),
        }
    }

    /// The same for things of other names, in the order of numbers: interrupts have new ones after a boot.
    pub(super) fn renamed(&self, names: &[String]) -> Masks {
        let Masks::Each(all) = self else { return self.clone() };
        if names.iter().all(|name| all.contains_key(name)) {
            return self.clone();
        }
        let number = |name: &str| name.parse::<i64>().unwrap_or(i64::MAX);
        let (mut old, mut new): (Vec<&String>, Vec<&String>) = (all.keys().collect(), names.iter().collect());
        old.sort_by_key(|name| number(name));
        new.sort_by_key(|name| number(name));
        let cpus = old.iter().filter_map(|name| all.get(*name)).cycle().cloned();
        Masks::Each(new.into_iter().cloned().zip(cpus).collect())
    }

    /// The same for the things of `is`, as [`Masks::renamed`].
    pub(super) fn renamed_as(&self, is: &Masks) -> Masks {
        match is {
            Masks::Same(_) => self.clone(),
            Masks::Each(all) => self.renamed(&all.keys().cloned().collect::<Vec<_>>()),
        }
    }
}

static NONE: Cpus = Cpus::none();

impl fmt::Display for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Masks::Same(cpus) => write!(f, "{cpus}"),
            Masks::Each(all) => {
                let mut names: Vec<&String> = all.keys().collect();
                names.sort_by_key(|name| (name.len(), (*name).clone()));
                let words: Vec<String> = names.iter().map(|name| format!("{name}={}", all[*name])).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masks(text: &str) -> Masks {
        Masks::parse(text).expect("masks")
    }

    #[test]
    fn masks_are_read_as_they_are_written() {
        for text in ["0-3", "9=0 36=0-1", "7@12=0 8@13=1"] {
            assert_eq!(masks(text).to_string(), text);
        }
        for bad in ["", "x", "36=", "node:0/share:0.22", "36=0 x"] {
            assert_eq!(Masks::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_thread_that_came_later_has_what_most_have() {
        let before = masks("7@1=0 8@1=0-1 9@1=0-1");
        assert!(masks("7@1=0 8@1=0-1 10@5=0-1").are(&before));
        assert!(!masks("0-1").are(&before), "thread 7 has another set");
        assert!(!masks("7@1=0 10@5=1").are(&before));
        assert!(masks("0-1").are(&masks("7@1=0-1 8@1=0-1")));
    }

    #[test]
    fn what_was_half_made_is_known_as_ours() {
        let (want, before) = (masks("2-3"), masks("7@1=0 8@1=0-1"));
        assert!(masks("7@1=0 8@1=2-3").are_of(&want, &before));
        assert!(masks("2-3").are_of(&want, &before));
        assert!(!masks("7@1=1 8@1=2-3").are_of(&want, &before), "somebody else's");
        assert!(!masks("1").are_of(&want, &before));
    }

    #[test]
    fn interrupts_of_other_numbers_get_the_same_cores() {
        let kept = masks("36=0 37=1");
        let names = ["99", "100", "101"].map(str::to_owned);
        assert_eq!(kept.renamed(&names).to_string(), "99=0 100=1 101=0");
        assert_eq!(kept.renamed(&["36".into(), "37".into()]), kept);
    }
}
