//! The rules that every replacement policy must keep, and the further claims of the default.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Kind, Replacement};

/// A cache of keys around a policy, checking it at every step.
struct Model {
    policy: Replacement,
    capacity: u32,
    keys: Vec<Option<u64>>,
    dirty: Vec<bool>,
    ids: BTreeMap<u64, u32>,
    log: Vec<Option<u32>>,
}

impl Model {
    fn new(kind: Kind, capacity: u32) -> Model {
        let n = capacity as usize;
        Model {
            policy: Replacement::new(kind, capacity, 7),
            capacity,
            keys: vec![None; n],
            dirty: vec![false; n],
            ids: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn victim(&mut self) -> Option<u32> {
        let (keys, dirty) = (&self.keys, &self.dirty);
        let id = self.policy.victim(|id| {
            let key = keys[id as usize].expect("only resident ids are offered");
            (!dirty[id as usize]).then_some(key)
        });
        self.log.push(id);
        if let Some(id) = id {
            assert!(!self.dirty[id as usize], "a dirty line was evicted");
            let key = self.keys[id as usize].take().expect("an evicted id was resident");
            self.ids.remove(&key);
        }
        id
    }

    /// Returns whether it hit.
    fn access(&mut self, key: u64, write: bool) -> bool {
        if let Some(&id) = self.ids.get(&key) {
            self.policy.hit(id, key);
            self.dirty[id as usize] |= write;
            return true;
        }
        self.policy.missed(key);
        let free = self.keys.iter().position(Option::is_none).map(|i| i as u32);
        if let Some(id) = free.or_else(|| self.victim()) {
            self.keys[id as usize] = Some(key);
            self.dirty[id as usize] = write;
            self.ids.insert(key, id);
            self.policy.insert(id, key);
        }
        false
    }

    fn remove(&mut self, key: u64) {
        if let Some(id) = self.ids.remove(&key) {
            self.keys[id as usize] = None;
            self.policy.remove(id);
        }
    }

    fn moved(&mut self, key: u64) {
        let Some(to) = self.keys.iter().position(Option::is_none) else { return };
        let Some(from) = self.ids.get(&key).copied() else { return };
        self.keys.swap(from as usize, to);
        self.dirty[to] = self.dirty[from as usize];
        self.ids.insert(key, to as u32);
        self.policy.moved(from, to as u32);
    }

    fn clean(&mut self, key: u64, tell: bool) {
        if let Some(&id) = self.ids.get(&key) {
            self.dirty[id as usize] = false;
            if tell {
                self.policy.cleaned(id);
            }
        }
    }

    fn check(&self) {
        assert!(self.ids.len() <= self.capacity as usize);
        for id in 0..self.capacity {
            assert_eq!(self.policy.state(id) != 0, self.keys[id as usize].is_some(), "id {id}");
        }
    }

    /// Evicts until nothing is left: each resident id must come exactly once.
    fn drain(&mut self) {
        self.dirty.fill(false);
        let mut idle = 0;
        while !self.ids.is_empty() {
            idle = if self.victim().is_some() { 0 } else { idle + 1 };
            assert!(idle < 100, "{} resident lines are never offered", self.ids.len());
        }
        assert_eq!(self.victim(), None);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Access(u64, bool),
    Remove(u64),
    Moved(u64),
    Clean(u64, bool),
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop_oneof![0u64..20, 0u64..300];
    prop::collection::vec(
        prop_oneof![
            12 => (key(), prop::bool::weighted(0.3)).prop_map(|(k, w)| Step::Access(k, w)),
            1 => key().prop_map(Step::Remove),
            1 => key().prop_map(Step::Moved),
            3 => (key(), any::<bool>()).prop_map(|(k, t)| Step::Clean(k, t)),
            1 => Just(Step::Evict),
        ],
        1..2000,
    )
}

fn play(kind: Kind, capacity: u32, steps: &[Step]) -> Vec<Option<u32>> {
    let mut m = Model::new(kind, capacity);
    for (i, step) in steps.iter().enumerate() {
        match *step {
            Step::Access(k, w) => {
                m.access(k, w);
            }
            Step::Remove(k) => m.remove(k),
            Step::Moved(k) => m.moved(k),
            Step::Clean(k, tell) => m.clean(k, tell),
            Step::Evict => {
                m.victim();
            }
        }
        if i % 64 == 0 {
            m.check();
        }
    }
    m.check();
    m.drain();
    m.check();
    m.log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_history_keeps_ids_once_and_evicts_what_may_go(
        steps in steps(), capacity in prop_oneof![1u32..8, 8u32..200],
    ) {
        for kind in Kind::ALL {
            let log = play(kind, capacity, &steps);
            prop_assert_eq!(log, play(kind, capacity, &steps), "not deterministic");
        }
    }

    #[test]
    fn a_restored_policy_holds_the_same_ids_with_the_same_state(steps in steps(), capacity in 1u32..200) {
        for kind in Kind::ALL {
            let mut m = Model::new(kind, capacity);
            for step in &steps {
                if let Step::Access(k, w) = *step {
                    m.access(k, w);
                }
            }
            let mut warm = Replacement::new(kind, capacity, 7);
            for id in 0..capacity {
                warm.restore(id, m.policy.state(id));
            }
            for id in 0..capacity {
                let (was, is) = (m.policy.state(id), warm.state(id));
                prop_assert_eq!(was & 0xf0, is & 0xf0, "queue and frequency");
            }
            m.policy = warm;
            m.check();
            m.drain();
        }
    }
}

/// A generator good enough for choosing keys.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut at = seed;
    move || {
        at += 1;
        super::hash::mix(at)
    }
}

/// Accesses that mostly go to few keys: the product of two uniform numbers.
fn skewed(next: &mut impl FnMut() -> u64, keys: u64) -> u64 {
    (next() % keys) * (next() % keys) / keys
}

fn misses(kind: Kind, capacity: u32, keys: impl Iterator<Item = u64>) -> u32 {
    let mut m = Model::new(kind, capacity);
    keys.map(|k| u32::from(!m.access(k, false))).sum()
}

#[test]
fn one_clean_line_among_100_000_dirty_ones_is_found() {
    let n = 100_000;
    for kind in Kind::ALL {
        for tell in [true, false] {
            let mut p = Replacement::new(kind, n, 1);
            (0..n).for_each(|id| p.insert(id, u64::from(id)));
            (0..200).for_each(|_| assert_eq!(p.victim(|_| None), None));
            if tell {
                p.cleaned(77);
            }
            let mut asked = 0;
            let mut calls = 0;
            let found = loop {
                calls += 1;
                let found = p.victim(|id| {
                    asked += 1;
                    (id == 77).then_some(77)
                });
                if found.is_some() {
                    break found;
                }
                assert!(calls < 1000, "{kind:?} never finds it");
            };
            assert_eq!(found, Some(77));
            assert!(asked <= if tell { 8 } else { 2 * n }, "{kind:?} asked {asked} times");
            assert!(asked / calls <= 2050, "a single search is bounded");
        }
    }
}

/// A policy whose lines `0..proven` are in the main queue (where there is one), all others in the small one, and all set aside.
fn aside(kind: Kind, n: u32, proven: u32) -> Replacement {
    let mut p = Replacement::new(kind, n, 1);
    // What comes back soon after it was evicted is proven.
    (0..proven).for_each(|id| p.insert(id, u64::from(id)));
    let gone = (0..proven).filter_map(|_| p.victim(|id| Some(u64::from(id)))).count();
    assert_eq!(gone, proven as usize);
    (0..n).for_each(|id| p.insert(id, u64::from(id)));
    (0..200).for_each(|_| assert_eq!(p.victim(|_| None), None));
    if kind == Kind::S3Cm {
        assert!((0..n).all(|id| (p.state(id) & 0x40 != 0) == (id < proven)), "not in the queues it is about");
    }
    p
}

#[test]
fn thousands_of_lines_that_became_clean_are_all_found() {
    let (n, proven) = (100_000, 4_000);
    for kind in Kind::ALL {
        for clean in [0..proven, proven..3 * proven] {
            let mut p = aside(kind, n, proven);
            clean.clone().for_each(|id| p.cleaned(id));
            let mut asked = 0;
            for found in 0..clean.len() {
                let victim = p.victim(|id| {
                    asked += 1;
                    clean.contains(&id).then_some(u64::from(id))
                });
                assert!(victim.is_some(), "{kind:?}, {clean:?}: {found} found, and no more");
            }
            assert!(asked <= 4 * clean.len(), "{kind:?}, {clean:?}: asked {asked} times");
        }
    }
}

#[test]
fn a_clean_line_nobody_told_of_is_found_in_the_shorter_queue() {
    let (n, proven) = (20_000, 500);
    for kind in Kind::ALL {
        let mut p = aside(kind, n, proven);
        let found = (0..2 * n).find_map(|_| p.victim(|id| (id == 77).then_some(77)));
        assert_eq!(found, Some(77), "{kind:?}");
    }
}

#[test]
fn without_hits_lines_leave_in_the_order_they_came() {
    for kind in Kind::ALL {
        let mut m = Model::new(kind, 64);
        for k in 0..64 {
            m.access(k, false);
        }
        let order: Vec<_> = (0..64).map(|_| m.victim()).collect();
        assert_eq!(order, (0..64).map(Some).collect::<Vec<_>>(), "{kind:?}");
    }
}

#[test]
fn an_unproven_line_that_comes_back_soon_outlives_newcomers() {
    let mut m = Model::new(Kind::S3Cm, 100);
    (0..150).for_each(|k| {
        m.access(k, false);
    });
    assert!(!m.ids.contains_key(&40) && m.policy.remembers(40) && !m.policy.remembers(140));
    m.access(40, false);
    assert!(!m.policy.remembers(40));
    (1000..1500).for_each(|k| {
        m.access(k, false);
    });
    assert!(m.ids.contains_key(&40), "it went to the main queue");
    assert!(!m.ids.contains_key(&1000));
}

#[test]
fn in_a_large_cache_the_order_is_kept_to_an_eightieth() {
    let n = 50_000;
    let mut p = Replacement::new(Kind::S3Cm, n, 1);
    // Ids in an order of their own: 7,919 is prime to 50,000.
    (0..n).for_each(|i| p.insert((u64::from(i) * 7919 % u64::from(n)) as u32, 0));
    let back = inverse(7919, n);
    for i in 0..n {
        let id = p.victim(|_| Some(0)).expect("all are clean");
        let came = u64::from(id) * back % u64::from(n);
        assert!(came.abs_diff(u64::from(i)) <= u64::from(n / 80), "number {came} left as number {i}");
    }
}

fn inverse(of: u64, modulo: u32) -> u64 {
    let m = u64::from(modulo);
    (1..m).find(|x| of * x % m == 1).expect("they have no common divisor")
}

#[test]
fn a_scan_leaves_a_proven_set_in_s3cm_and_flushes_lru() {
    let kept = |kind| {
        let mut m = Model::new(kind, 1000);
        for _ in 0..8 {
            for k in 0..500 {
                m.access(k, false);
            }
            (0..600).for_each(|_| {
                let k = 1_000_000 + m.log.len() as u64;
                m.access(k, false);
            });
        }
        for k in 0..10_000 {
            m.access(5_000_000 + k, false);
        }
        (0..500).filter(|k| m.ids.contains_key(k)).count()
    };
    assert!(kept(Kind::S3Cm) > 450, "{}", kept(Kind::S3Cm));
    assert_eq!(kept(Kind::Lru), 0);
}

#[test]
fn s3cm_misses_less_than_lru_under_a_skewed_load_with_scans() {
    let load = || {
        let mut next = numbers(3);
        let mut scan = 1u64 << 40;
        (0..120_000).map(move |i| {
            if i % 3 == 0 {
                scan += 1;
                scan
            } else {
                skewed(&mut next, 5000)
            }
        })
    };
    let (s3, lru) = (misses(Kind::S3Cm, 500, load()), misses(Kind::Lru, 500, load()));
    assert!(f64::from(s3) < 0.95 * f64::from(lru), "s3cm {s3}, lru {lru}");
}

#[test]
fn a_load_that_wants_a_large_small_queue_gets_one() {
    // Every key comes four times, 200 others between, and never again: a small queue of a tenth loses it each time.
    let load = || (0..400_000u64).map(|i| i / 800 * 200 + i % 200);
    let lru = misses(Kind::Lru, 400, load());
    let s3 = misses(Kind::S3Cm, 400, load());
    assert!(f64::from(s3) < 1.05 * f64::from(lru), "s3cm {s3}, lru {lru}");
}

#[test]
fn a_miniature_of_a_sixteenth_misses_as_often_as_the_whole() {
    let mut next = numbers(9);
    let keys: Vec<u64> = (0..300_000).map(|_| skewed(&mut next, 100_000)).collect();
    let mut whole = super::shadow::Shadow::new(8192, 100);
    let mut mini = super::shadow::Shadow::new(512, 100);
    let mut sampled = 0;
    for &k in &keys {
        whole.access(k as u32);
        if super::hash::mix(k) >> 32 & 15 == 0 {
            sampled += 1;
            mini.access(k as u32);
        }
    }
    let whole = f64::from(whole.take_misses()) / keys.len() as f64;
    let mini = f64::from(mini.take_misses()) / f64::from(sampled);
    assert!((whole - mini).abs() < 0.03, "whole {whole:.3}, miniature {mini:.3}");
}

#[test]
fn the_default_policy_holds_at_most_5_bytes_a_line() {
    for lines in [1 << 20, 1 << 24] {
        let bytes = Replacement::new(Kind::S3Cm, lines, 1).bytes() as f64 / f64::from(lines);
        assert!(bytes <= 5.0, "{bytes} B a line at {lines} lines");
    }
}

#[test]
fn a_restored_lru_evicts_in_about_the_order_it_was_saved_with() {
    let n = 6400u32;
    let mut p = Replacement::new(Kind::Lru, n, 1);
    (0..n).for_each(|id| p.insert(id, 0));
    let mut warm = Replacement::new(Kind::Lru, n, 1);
    (0..n).rev().for_each(|id| warm.restore(id, p.state(id)));
    for i in 0..n {
        let id = warm.victim(|_| Some(0)).expect("all are clean");
        assert!(id.abs_diff(i) <= n / 16, "{id} left as number {i}");
    }
}
