//! Room for a core that is to come to a pool whose served cores have grown into all of it: they give back what they have beyond
//! their promise, the one that has most of it first, and the balancer gives nobody what comes free meanwhile.

use super::govern::{Seat, governed};
use super::{Attach, Pool, State};
use anyhow::{Context, Result, bail, ensure};
use loligo_client::outcome::Ended;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Between two looks at cores that are changing their size already.
const LOOK: Duration = Duration::from_millis(100);

/// Extents that are kept free for somebody, until this is dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    pool: &'a Pool,
    extents: u32,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.pool.state().kept -= self.extents;
    }
}

/// The result of a look for somebody who gives.
enum Giver {
    /// This one, so many extents.
    Found(Seat, u32),
    /// Nobody just now.
    Later,
    /// Nobody.
    Nobody,
}

impl Pool {
    /// Has served cores give until there is room for `a`, if that can be at all. Clients go on meanwhile; what is dirty in the parts
    /// that go is written to the cores first.
    pub(super) fn make_room(&self, a: &Attach, is_off: &dyn Fn() -> bool) -> Result<Room<'_>> {
        let seats: Vec<u16> = governed(&self.inner).seats.keys().copied().collect();
        let mut state = self.state();
        // For what is refused anyway nobody gives anything.
        attached_at_best(self, &state, a, &seats)?;
        let extents = state.table.table().extents_in(a.min);
        state.kept += extents;
        drop(state);
        let room = Room { pool: self, extents };
        let (mut tried, mut why) = (BTreeSet::new(), None);
        while let Some(short) = self.short_of() {
            ensure!(!is_off(), Ended::refused("given up: nothing is attached"));
            match self.giver(short, &tried) {
                Giver::Found(seat, extents) => {
                    let number = seat.share.member().number;
                    let given = give(&seat, extents);
                    seat.busy.store(false, Ordering::Release);
                    if let Err(error) = given {
                        tried.insert(number);
                        why =
                            Some(error.context(format!(
                                "core {number} does not give what it has beyond its promise"
                            )));
                    }
                }
                Giver::Later => std::thread::sleep(LOOK),
                Giver::Nobody => match why {
                    Some(why) => return Err(why).context("there is no room"),
                    None => bail!(Ended::refused(
                        "the room that there was has gone to others meanwhile: try again"
                    )),
                },
            }
        }
        Ok(room)
    }

    /// Extents that are kept for somebody, or promised, and not there.
    fn short_of(&self) -> Option<u32> {
        let state = self.state();
        let table = state.table.table();
        let short = (state.kept + table.promised()).saturating_sub(table.free());
        (short > 0).then_some(short)
    }

    /// The member that is to give next, and how much of `short`; it counts as busy from then on.
    fn giver(&self, short: u32, tried: &BTreeSet<u16>) -> Giver {
        let seats: Vec<(u16, Seat)> =
            governed(&self.inner).seats.iter().map(|(n, s)| (*n, s.clone())).collect();
        let state = self.state();
        let table = state.table.table();
        let above = |number: u16| {
            let has = table.extents_of(number).len() as u32;
            table.member(number).map_or(0, |m| has.saturating_sub(table.entitled(m)))
        };
        let mut givers: Vec<(u32, Seat)> = seats
            .into_iter()
            .filter(|(n, _)| !tried.contains(n))
            .map(|(n, seat)| (above(n), seat))
            .filter(|(above, _)| *above > 0)
            .collect();
        drop(state);
        if givers.is_empty() {
            return Giver::Nobody;
        }
        givers.sort_by_key(|(above, _)| std::cmp::Reverse(*above));
        let free = |(_, seat): &(u32, Seat)| {
            seat.busy.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        match givers.into_iter().find(free) {
            Some((above, seat)) => Giver::Found(seat, above.min(short)),
            None => Giver::Later,
        }
    }
}

fn give(seat: &Seat, extents: u32) -> Result<()> {
    let share = &seat.share;
    let bytes = {
        let state = share.pool().state();
        let has = state.table.table().extents_of(share.member().number).len() as u32;
        u64::from(has.saturating_sub(extents)) * state.table.extent()
    };
    share.resize_live(&seat.handle, bytes, || Ok(()))
}

/// Checks that `a` can be attached once those of `seats` have no more than they are promised.
fn attached_at_best(pool: &Pool, state: &State, a: &Attach, seats: &[u16]) -> Result<()> {
    let mut table = state.table.table().clone();
    for &number in seats {
        let Some(member) = table.member(number) else { continue };
        let least =
            state.table.limit_for(number, u64::from(table.entitled(member)) * state.table.extent())?;
        if least < table.limit(number)? {
            table.resize(number, least)?;
        }
    }
    table.attach(pool.member_of(state, a)?)?;
    Ok(())
}
