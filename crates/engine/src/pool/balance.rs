//! The division of a pool's extents among its members: a state machine that is shown every member once a round and answers with
//! moves. It knows no clock and no device.
//!
//! A member that misses and evicts *wants*; no member does that while it has room. Extents that nobody has go
//! to those who want, by weight. When nothing is left, extents move from members above their fair share to
//! members below it who want: a member's fair share is what it is promised, and for those who want also their
//! part, by weight, of what is promised to nobody. Of those above, the one gives who uses what it has least.
//! So a busy core cannot take what others are promised, and what it takes beyond that it gives back when they
//! want it; and one that rests loses what others can use, down to what it is promised, and nothing where
//! nobody wants.
//!
//! Three things keep extents from going to and fro, for each move costs what was cached there: a member counts as
//! wanting for a while after it last did; between two that want a move needs the giver a tenth above and the taker half as much below;
//! and nobody gives within some rounds of having taken.

use std::collections::BTreeMap;

/// Rounds for which a member that wanted counts as wanting.
const WANTS_FOR: u32 = 30;
/// Rounds after it took in which a member does not give.
const KEEPS_FOR: u32 = 10;
/// Beyond its fair share a member gets this part of what it has in a round, at least one extent.
const STEP: u32 = 16;
/// So much of what the giver has is taken at once, at the most: a share that shrinks has to destage what is dirty in the part that
/// goes, which lies all over its disk, so that a step costs it a sweep whatever its size.
const TAKEN: u32 = 4;
/// By one part in so many a fair share is exceeded before extents move.
const SLACK: u32 = 10;
/// Part of a round's use in what is remembered of it.
const SMOOTH: f64 = 0.1;

/// A member, as it was in the round that ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Its number.
    pub number: u16,
    /// Extents it has.
    pub has: u32,
    /// Extents it is promised.
    pub min: u32,
    /// Extents it may have.
    pub max: u32,
    /// Its weight when what several want is divided.
    pub weight: u32,
    /// Lines evicted in the round to make room.
    pub evictions: u64,
    /// Requests that its cache could not serve.
    pub misses: u64,
    /// Requests that its cache served.
    pub hits: u64,
    /// It is changing its size now: nothing more is asked of it.
    pub busy: bool,
}

/// An action to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// So many extents more for this member; they are free.
    Give(u16, u32),
    /// So many fewer.
    Take(u16, u32),
}

/// The memory of a member.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// Rounds for which it counts as wanting.
    wants: u32,
    /// Rounds in which it does not give.
    keeps: u32,
    /// Hits an extent and round, smoothed.
    use_of_one: f64,
}

/// The balancer of a pool.
#[derive(Debug, Default)]
pub struct Balancer {
    past: BTreeMap<u16, Past>,
}

/// A member, with what it should have.
#[derive(Debug)]
struct Seat<'a> {
    load: &'a Load,
    past: Past,
    fair: u32,
}

impl Seat<'_> {
    fn step(&self) -> u32 {
        (self.load.has / STEP).max(1)
    }

    /// Extents it can get: it wants now, and may have more.
    fn lacks(&self) -> u32 {
        let wants = self.past.wants == WANTS_FOR && !self.load.busy;
        if wants { self.load.max.saturating_sub(self.load.has) } else { 0 }
    }

    /// Extents it is above its fair share by, if that is much.
    fn above(&self) -> u32 {
        let has = self.load.has;
        if self.load.busy || self.past.keeps > 0 || has * SLACK < self.fair * (SLACK + 1) {
            return 0;
        }
        has.saturating_sub(self.fair.max(self.load.min))
    }

    /// True if it is below its fair share, and `much`, where that must be.
    fn is_below(&self, much: bool) -> bool {
        let of = if much { 2 * SLACK - 1 } else { 2 * SLACK };
        self.load.has * 2 * SLACK < self.fair * of || self.load.has < self.load.min
    }
}

impl Balancer {
    /// The moves after a round. `free`: extents nobody has; `members`: all there are.
    pub fn round(&mut self, free: u32, members: &[Load]) -> Vec<Move> {
        self.past.retain(|n, _| members.iter().any(|m| m.number == *n));
        for m in members {
            let past = self.past.entry(m.number).or_default();
            let full = m.evictions > 0 && m.misses > 0 && !m.busy;
            let wants = full && m.has < m.max || m.has < m.min;
            past.wants = if wants { WANTS_FOR } else { past.wants.saturating_sub(1) };
            past.keeps = past.keeps.saturating_sub(1);
            let used = m.hits as f64 / f64::from(m.has.max(1));
            past.use_of_one += SMOOTH * (used - past.use_of_one);
        }
        let total = free + members.iter().map(|m| m.has).sum::<u32>();
        let mut seats = self.seats(total, members);
        let mut moves = Vec::new();
        // What is promised to members who have not got it is theirs, whether they want it yet or not.
        let promised: u32 = members.iter().map(|m| m.min.saturating_sub(m.has)).sum();
        self.give(&mut seats, free, promised, &mut moves);
        if moves.is_empty() && free <= promised {
            moves.extend(take(&seats));
        }
        moves
    }

    fn seats<'a>(&self, total: u32, members: &'a [Load]) -> Vec<Seat<'a>> {
        let past = |m: &Load| self.past.get(&m.number).copied().unwrap_or_default();
        let rest = total.saturating_sub(members.iter().map(|m| m.min).sum());
        let wanting = members.iter().filter(|m| past(m).wants > 0);
        let mut fair: BTreeMap<u16, u32> = members.iter().map(|m| (m.number, m.min)).collect();
        // What one may not have goes to the others.
        let mut open: Vec<&Load> = wanting.collect();
        let mut left = rest;
        while left > 0 && !open.is_empty() {
            let weights: u64 = open.iter().map(|m| u64::from(m.weight)).sum();
            let part = |m: &Load| (u64::from(left) * u64::from(m.weight) / weights) as u32;
            let filled: Vec<u16> =
                open.iter().filter(|m| m.min.saturating_add(part(m)) >= m.max).map(|m| m.number).collect();
            if filled.is_empty() {
                for m in &open {
                    fair.insert(m.number, m.min + part(m));
                }
                break;
            }
            for m in open.iter().filter(|m| filled.contains(&m.number)) {
                fair.insert(m.number, m.max);
                left = left.saturating_sub(m.max - m.min);
            }
            open.retain(|m| !filled.contains(&m.number));
        }
        members.iter().map(|load| Seat { load, past: past(load), fair: fair[&load.number] }).collect()
    }

    /// Gives what is free to those who want, those furthest below their fair share first.
    fn give(&mut self, seats: &mut [Seat<'_>], free: u32, promised: u32, moves: &mut Vec<Move>) {
        let mut open = free.saturating_sub(promised);
        let mut held = free.min(promised);
        seats.sort_by_key(|s| (u64::from(s.load.has) * 1000 / u64::from(s.fair.max(1)), s.load.number));
        // What was taken for those below their fair share is not for those above.
        let hungry = seats.iter().any(|s| s.lacks() > 0 && s.is_below(false));
        for s in seats.iter() {
            let missing = s.load.min.saturating_sub(s.load.has).min(held);
            held -= missing;
            let step = match s.fair.saturating_sub(s.load.has) {
                0 if hungry => 0,
                below => below.max(s.step()),
            };
            let more = s.lacks().saturating_sub(missing).min(step).min(open);
            open -= more;
            let n = if s.load.busy { 0 } else { missing + more };
            if n > 0 {
                if let Some(past) = self.past.get_mut(&s.load.number) {
                    past.keeps = KEEPS_FOR;
                }
                moves.push(Move::Give(s.load.number, n));
            }
        }
    }
}

/// Takes a step from the one above its fair share who uses what it has least, where somebody below wants it.
fn take(seats: &[Seat<'_>]) -> Option<Move> {
    let giver = seats.iter().filter(|s| s.above() > 0).min_by(|a, b| {
        a.past.use_of_one.total_cmp(&b.past.use_of_one).then(a.load.number.cmp(&b.load.number))
    })?;
    // From one that rests, what is taken does not come back soon.
    let much = giver.past.wants > 0;
    let takers = seats.iter().filter(|s| s.lacks() > 0 && s.is_below(much));
    let wanted: u32 = takers.map(|s| s.lacks().min(s.fair.saturating_sub(s.load.has).max(1))).sum();
    let n = wanted.min(giver.above()).min((giver.load.has / TAKEN).max(1));
    (n > 0).then_some(Move::Take(giver.load.number, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool whose members do as they are told at once.
    struct Pool {
        free: u32,
        members: Vec<Load>,
        balancer: Balancer,
        moves: usize,
    }

    impl Pool {
        fn new(free: u32, n: u16) -> Pool {
            let member = |number| Load {
                number,
                has: 10,
                min: 10,
                max: 1000,
                weight: 100,
                evictions: 0,
                misses: 0,
                hits: 0,
                busy: false,
            };
            Pool { free, members: (0..n).map(member).collect(), balancer: Balancer::default(), moves: 0 }
        }

        fn wants(&mut self, n: usize, wants: bool) {
            (self.members[n].misses, self.members[n].evictions) = if wants { (80, 50) } else { (80, 0) };
        }

        fn rounds(&mut self, n: usize) {
            let total = self.free + self.members.iter().map(|m| m.has).sum::<u32>();
            for _ in 0..n {
                for m in self.balancer.round(self.free, &self.members) {
                    self.moves += 1;
                    let (n, give, by) = match m {
                        Move::Give(n, by) => (n, true, by),
                        Move::Take(n, by) => (n, false, by),
                    };
                    let m = &mut self.members[usize::from(n)];
                    if give {
                        (m.has, self.free) = (m.has + by, self.free.checked_sub(by).expect("it is free"));
                    } else {
                        (m.has, self.free) = (m.has - by, self.free + by);
                    }
                    assert!(m.has <= m.max && (give || m.has >= m.min), "{m:?}");
                }
                assert_eq!(self.free + self.members.iter().map(|m| m.has).sum::<u32>(), total);
            }
        }

        fn has(&self, n: usize) -> u32 {
            self.members[n].has
        }
    }

    #[test]
    fn a_busy_core_gets_what_is_free_and_nobody_is_promised() {
        let mut p = Pool::new(500, 64);
        p.wants(5, true);
        p.rounds(200);
        assert_eq!((p.has(5), p.free), (510, 0));
        assert!((0..64).filter(|n| *n != 5).all(|n| p.has(n) == 10));
    }

    #[test]
    fn what_one_took_it_gives_back_by_weight_when_others_want() {
        let mut p = Pool::new(600, 4);
        p.wants(0, true);
        p.rounds(200);
        assert_eq!(p.has(0), 610);
        p.members[2].weight = 200;
        p.wants(1, true);
        p.wants(2, true);
        p.rounds(600);
        // 600 that are promised to nobody, at weights of 100, 100 and 200; what is not worth a move stays with the first.
        for (n, fair) in [(0, 160.0), (1, 160.0), (2, 310.0)] {
            let off = f64::from(p.has(n)) / fair;
            assert!((0.9..1.2).contains(&off), "{n}: {}", p.has(n));
        }
        assert_eq!(p.has(3), 10);
    }

    #[test]
    fn a_core_that_rests_keeps_its_promise_and_what_nobody_wants() {
        let mut p = Pool::new(100, 3);
        p.wants(0, true);
        p.rounds(100);
        p.wants(0, false);
        p.rounds(500);
        assert_eq!((p.has(0), p.moves > 0), (110, true));
        p.wants(1, true);
        p.rounds(500);
        assert!(p.has(0) <= 11 && p.has(1) >= 109, "{}, {}", p.has(0), p.has(1));
    }

    #[test]
    fn extents_go_to_who_is_below_and_not_back() {
        let mut p = Pool::new(100, 2);
        p.wants(0, true);
        p.rounds(60);
        assert_eq!(p.has(0), 110);
        p.wants(1, true);
        let (mut first, mut second) = (p.has(0), p.has(1));
        for _ in 0..200 {
            p.rounds(1);
            assert!(p.has(0) <= first && p.has(1) >= second);
            (first, second) = (p.has(0), p.has(1));
        }
        assert!(second >= 55, "{second}");
        assert!(p.moves < 40, "{}", p.moves);
    }

    #[test]
    fn of_those_above_their_share_the_one_gives_that_uses_it_least() {
        let mut p = Pool::new(200, 3);
        for n in [0, 1] {
            p.wants(n, true);
        }
        p.rounds(100);
        (0..2).for_each(|n| p.wants(n, false));
        p.members[0].hits = 100_000;
        p.members[1].hits = 10;
        p.rounds(60);
        p.wants(2, true);
        let before = (p.has(0), p.has(1));
        p.rounds(8);
        assert_eq!(p.has(0), before.0);
        assert!(p.has(1) < before.1);
    }

    #[test]
    fn a_pool_in_balance_is_left_alone_although_all_want() {
        let mut p = Pool::new(640, 8);
        (0..8).for_each(|n| p.wants(n, true));
        p.rounds(500);
        assert_eq!(p.free, 0);
        let settled = p.moves;
        p.rounds(2000);
        assert_eq!(p.moves, settled, "all want and have what is fair: nothing goes to and fro");
    }

    #[test]
    fn a_member_that_wants_on_and_off_moves_few_extents() {
        let mut p = Pool::new(200, 2);
        p.wants(0, true);
        p.rounds(200);
        let settled = p.moves;
        for turn in 0..40 {
            p.wants(1, turn % 2 == 0);
            p.wants(0, turn % 2 == 1);
            p.rounds(5);
        }
        // To where both have half, and no further.
        assert!(p.has(0).abs_diff(p.has(1)) < 40, "{}, {}", p.has(0), p.has(1));
        let there = p.moves;
        assert!(there - settled < 60);
        for turn in 0..40 {
            p.wants(1, turn % 2 == 0);
            p.wants(0, turn % 2 == 1);
            p.rounds(5);
        }
        assert!(p.moves - there <= 4, "{}", p.moves - there);
    }

    #[test]
    fn a_promise_is_kept_before_anybody_gets_more() {
        let mut p = Pool::new(0, 2);
        p.members[0].has = 100;
        p.members[1].min = 30;
        p.wants(0, true);
        p.rounds(100);
        assert!(p.has(1) >= 30, "{}", p.has(1));
        assert_eq!(p.has(0) + p.has(1), 110);
    }

    #[test]
    fn one_that_is_changing_its_size_is_asked_for_nothing_more() {
        let mut p = Pool::new(100, 2);
        p.wants(0, true);
        p.members[0].busy = true;
        p.rounds(50);
        assert_eq!((p.has(0), p.moves), (10, 0));
    }
}
