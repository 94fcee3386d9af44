//! Processors that packets of receive queues are steered to, as one value.
//!
//! `0-3`: those of each queue. `none`: no queue is steered. `rx-0=0-3 rx-1=none`: each queue has its own.

use crate::cpus::Cpus;
use std::collections::BTreeMap;
use std::fmt;

/// The word for no processor.
const NONE: &str = "none";

/// Processors of receive queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Steering {
    /// Each queue has the same.
    Same(Cpus),
    /// Each has its own, by its name.
    Each(BTreeMap<String, Cpus>),
}

impl Steering {
    /// Of queues; nothing: there are none.
    pub(super) fn of(all: BTreeMap<String, Cpus>) -> Option<Steering> {
        let first = all.values().next()?.clone();
        let is_same = all.values().all(|cpus| *cpus == first);
        Some(if is_same { Steering::Same(first) } else { Steering::Each(all) })
    }

    /// Of a value; nothing: it is none.
    pub(super) fn parse(text: &str) -> Option<Steering> {
        if let Some(cpus) = list(text) {
            return Some(Steering::Same(cpus));
        }
        let one = |word: &str| {
            let (name, cpus) = word.split_once('=')?;
            let number = name.strip_prefix("rx-")?;
            number.parse::<u32>().ok().filter(|it| it.to_string() == number)?;
            Some((name.to_owned(), list(cpus)?))
        };
        text.split(' ').map(one).collect::<Option<BTreeMap<_, _>>>().map(Steering::Each)
    }

    /// Those of a queue; nothing: it came later, and nobody said anything of it.
    pub(super) fn queue(&self, name: &str) -> Option<&Cpus> {
        match self {
            Steering::Same(cpus) => Some(cpus),
            Steering::Each(all) => all.get(name),
        }
    }

    /// True if each queue has what one of both says: a change may have been cut between two queues.
    pub(super) fn is_of(&self, one: &Steering, other: &Steering) -> bool {
        match self {
            Steering::Same(is) => [one, other].iter().any(|it| match it {
                Steering::Same(all) => all == is,
                Steering::Each(all) => all.values().any(|it| it == is),
            }),
            Steering::Each(all) => all.iter().all(|(name, is)| {
                one.queue(name).is_none_or(|it| it == is) || other.queue(name).is_none_or(|it| it == is)
            }),
        }
    }
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |cpus: &Cpus| if cpus.is_empty() { NONE.to_owned() } else { cpus.to_string() };
        match self {
            Steering::Same(cpus) => f.write_str(&text(cpus)),
            Steering::Each(all) => {
                let mut names: Vec<&String> = all.keys().collect();
                names.sort_by_key(|name| (name.len(), (*name).clone()));
                let words: Vec<String> =
                    names.iter().map(|name| format!("{name}={}", text(&all[*name]))).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

fn list(text: &str) -> Option<Cpus> {
    if text == NONE { Some(Cpus::none()) } else { Cpus::parse(text) }
}

/// Processors of a mask of the kernel: `00000001,0000000f`, the highest first.
pub(super) fn of_mask(mask: &str) -> Option<Cpus> {
    let mut all = Vec::new();
    for (at, word) in mask.trim().rsplit(',').enumerate() {
        let bits = u32::from_str_radix(word, 16).ok()?;
        all.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| at as i64 * 32 + bit));
    }
    Some(all.into_iter().collect())
}

/// The mask of processors.
pub(super) fn mask(cpus: &Cpus) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word =
        |at: i64| (0..32).filter(|bit| cpus.has(at * 32 + bit)).fold(0u32, |word, bit| word | 1 << bit);
    let words: Vec<String> = (0..words).rev().map(|at| format!("{:08x}", word(at))).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Steering {
        Steering::parse(text).expect("a value")
    }

    #[test]
    fn steering_is_read_as_it_is_written() {
        for text in ["none", "0-3", "rx-0=0-3 rx-1=none", "rx-2=1 rx-10=none"] {
            assert_eq!(value(text).to_string(), text);
        }
        for bad in ["", "x", "rx-0=", "tx-0=1", "rx-0=0 x", "node:0", "rx-=1", "rx-../0=1", "rx-00=1"] {
            assert_eq!(Steering::parse(bad), None, "{bad}");
        }
        let all = [("rx-0".to_owned(), Cpus::none()), ("rx-1".to_owned(), Cpus::none())];
        assert_eq!(Steering::of(all.into()).map(|it| it.to_string()).as_deref(), Some("none"));
    }

    #[test]
    fn masks_of_the_kernel_are_lists() {
        let of = |mask: &str| of_mask(mask).map(|cpus| cpus.to_string());
        assert_eq!(of("00000001,0000000f").as_deref(), Some("0-3,32"));
        assert_eq!((of("0").as_deref(), of("x")), (Some(""), None));
        for list in ["0", "0-3,32", "63,64"] {
            let cpus = Cpus::parse(list).expect("a list");
            assert_eq!(of_mask(&mask(&cpus)), Some(cpus));
        }
        assert_eq!(mask(&Cpus::none()), "00000000");
    }

    #[test]
    fn a_change_that_was_cut_between_queues_is_ours() {
        let (want, before) = (value("0-3"), value("rx-0=none rx-1=1"));
        assert!(value("rx-0=0-3 rx-1=1").is_of(&want, &before));
        assert!(value("0-3").is_of(&want, &before));
        assert!(!value("rx-0=2 rx-1=1").is_of(&want, &before), "somebody else's");
        assert!(!value("2").is_of(&want, &before));
    }
}
