//! The engine driven by hand: requests in, effects carried out at once by a world that stands for its devices.

use anyhow::{Result, bail, ensure};
use loligo_block::{Op, ReqKind, Request};
use loligo_engine::api::{Control, Dev, Effect, Event};
use loligo_engine::{Engine, Part, Router};
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;

/// Operations between the one carried out and the one announced to its device.
const AHEAD: usize = 1;

/// The way in which effects are carried out.
pub(crate) trait World {
    /// `op` will be carried out soon.
    fn expect(&self, _dev: Dev, _op: &Op) {}
    fn carry_out(&mut self, dev: Dev, op: Op) -> Event;
}

/// A shard and its world. Completions nobody has reaped yet stay from one measurement to the next.
pub(crate) struct Driver<W> {
    pub(crate) engine: Engine,
    pub(crate) router: Router,
    pub(crate) world: W,
    pub(crate) events: VecDeque<Event>,
    now: u64,
}

impl<W: World> Driver<W> {
    /// Nothing has happened yet.
    pub(crate) fn new(engine: Engine, router: Router, world: W) -> Driver<W> {
        Driver { engine, router, world, events: VecDeque::new(), now: 1 }
    }

    /// Hands `request(i)` over for i in `0..n`, `depth` at a time, and returns thread CPU seconds.
    pub(crate) fn drive(
        &mut self,
        n: u64,
        depth: u64,
        mut request: impl FnMut(u64) -> Request,
    ) -> Result<f64> {
        let Driver { engine, router, world, events, now } = self;
        let (mut parts, mut fx): (Vec<Part>, Vec<Effect>) = Default::default();
        let (mut sent, mut answered) = (0u64, 0u64);
        let (mut failed, mut idle) = (0u64, 0u32);
        let from = cpu_seconds();
        while answered < n {
            while sent < n && sent - answered < depth {
                failed += u64::from(router.route(request(sent), &mut parts).is_some());
                sent += 1;
            }
            *now += 10_000;
            engine.prefetch(parts.iter().map(|p| p.request.offset));
            for p in parts.drain(..) {
                engine.step(*now, Event::Submit(p.request, p.hint), &mut fx);
            }
            while let Some(e) = events.pop_front() {
                engine.step(*now, e, &mut fx);
            }
            engine.settle(*now, &mut fx);
            // Close to its limit the engine admits by the clock: let time pass, but not for ever.
            idle = if fx.is_empty() && events.is_empty() { idle + 1 } else { 0 };
            *now += 10_000_000 * u64::from(idle > 0);
            ensure!(
                idle < 10_000,
                "the engine stands still with {answered} of {n} answered, {failed} refused"
            );
            let mut list = fx.drain(..);
            while let Some(f) = list.next() {
                // A real device would find its bytes while others are transferred.
                if let Some(Effect::Io(dev, op)) = list.as_slice().get(AHEAD) {
                    world.expect(*dev, op);
                }
                match f {
                    Effect::Io(dev, op) => events.push_back(world.carry_out(dev, op)),
                    Effect::Answer(r) => {
                        if let Some(whole) = router.answered(r) {
                            failed += u64::from(whole.result.is_err());
                            answered += 1;
                        }
                    }
                    Effect::Missed(_) | Effect::Controlled(..) => {}
                }
            }
        }
        let took = cpu_seconds() - from;
        ensure!(failed == 0, "{failed} of {n} requests failed");
        Ok(took)
    }

    /// Stops the engine cleanly: everything durable, and a checkpoint of it.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.events.push_back(Event::Control(1, Control::Stop));
        let mut fx = Vec::new();
        for _ in 0..10_000_000 {
            self.now += 1_000_000;
            while let Some(e) = self.events.pop_front() {
                self.engine.step(self.now, e, &mut fx);
            }
            self.engine.settle(self.now, &mut fx);
            for f in fx.drain(..) {
                match f {
                    Effect::Io(dev, op) => self.events.push_back(self.world.carry_out(dev, op)),
                    Effect::Answer(_) | Effect::Missed(_) => {}
                    Effect::Controlled(_, done) => return done.map_err(anyhow::Error::msg),
                }
            }
        }
        bail!("the engine does not stop")
    }
}

/// Time that this thread has had of a processor.
pub(crate) fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// A request for one block.
pub(crate) fn request(kind: ReqKind, offset: u64) -> Request {
    Request { id: 1, kind, offset, len: 4096, fua: false }
}

/// A fixed mix of `i`, uniform below `n`.
pub(crate) fn scatter(i: u64, n: u64) -> u64 {
    let x = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((u128::from(x ^ (x >> 32)) * u128::from(n)) >> 64) as u64
}

/// The `i`th of the numbers below `n` in a fixed, scattered order: each comes once.
pub(crate) fn permuted(i: u64, n: u64) -> u64 {
    let mask = n.next_power_of_two() - 1;
    let mut x = i;
    loop {
        // An odd factor permutes the power of two; walking on from numbers outside keeps it a permutation of the rest.
        x = x.wrapping_mul(0x9E37_79B1).wrapping_add(0x5bd1) & mask;
        if x < n {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_names_every_number_once() {
        for n in [1u64, 2, 1000, 1024, 4097] {
            let mut seen: Vec<u64> = (0..n).map(|i| permuted(i, n)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }
}
