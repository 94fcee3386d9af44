//! Loads of clients in this process: some at a fixed rate, some as fast as they are answered.

use crate::drive::scatter;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use loligo_block::{Answer, Buf, ReqError, ReqKind, Request};
use loligo_export::Volume;
use loligo_shard::Local;
use serde::Serialize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// The part of a core that clients at a fixed rate use: it fits what every core is promised.
const USED: u64 = 8 << 20;
/// An answer that takes longer will not come.
const LOST: Duration = Duration::from_secs(60);

/// The latencies of clients at a fixed rate.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Steady {
    pub(super) iops: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Of the core that got the fewest answers in time, in percent of what it asked for.
    pub(super) least_percent: f64,
}

/// An answer: whose, when it was due and when it came, whether it succeeded.
type Said = (usize, Instant, Instant, Result<Answer, ReqError>);

fn ask(to: &Local, who: usize, kind: ReqKind, offset: u64, since: Instant, said: &Sender<Said>) {
    let said = said.clone();
    let request = Request { id: 0, kind, offset, len: BLOCK, fua: false };
    to.ask(request, Box::new(move |result| drop(said.send((who, since, Instant::now(), result)))));
}

fn data() -> ReqKind {
    ReqKind::Write(Buf::zeroed(BLOCK as usize).freeze())
}

/// The next answer within `limit`, if there is one.
fn answer(said: &Receiver<Said>, limit: Duration) -> Result<Option<(usize, Instant, Instant)>> {
    match said.recv_timeout(limit) {
        Ok((who, since, at, Ok(_))) => Ok(Some((who, since, at))),
        Ok((.., Err(e))) => bail!("a request failed: {e:?}"),
        Err(_) => Ok(None),
    }
}

/// The next answer, which must come.
fn expected(said: &Receiver<Said>) -> Result<(usize, Instant, Instant)> {
    answer(said, LOST)?.with_context(|| format!("no answer within {} s", LOST.as_secs()))
}

/// Asks every core for `rate` 4 KiB requests a second, reads and writes in turn; latency counts from when a request was due.
pub(super) fn steady(cores: &[Local], rate: u32, time: Duration, run: u64) -> Result<Steady> {
    let (send, said) = channel::<Said>();
    let gap = Duration::from_secs(1) / (rate * cores.len() as u32);
    let all = (time.as_nanos() / gap.as_nanos()) as u64;
    let begun = Instant::now();
    let mut latency: Histogram<u64> = Histogram::new_with_bounds(1, 120_000_000_000, 3)?;
    let mut served = vec![0u64; cores.len()];
    let mut note = |(who, since, at): (usize, Instant, Instant)| {
        latency.saturating_record(at.saturating_duration_since(since).as_nanos() as u64);
        served[who] += u64::from(at <= begun + time);
    };
    let mut left_out = all;
    for i in 0..all {
        let due = begun + gap * i as u32;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if let Some(one) = answer(&said, left)? {
                left_out -= 1;
                note(one);
            }
        }
        let who = (i % cores.len() as u64) as usize;
        let offset = scatter(run << 32 | i, USED / BLOCK) * BLOCK;
        let kind = if (i / cores.len() as u64).is_multiple_of(2) { data() } else { ReqKind::Read };
        ask(&cores[who], who, kind, offset, due, &send);
    }
    for _ in 0..left_out {
        note(expected(&said)?);
    }
    let each = all as f64 / cores.len() as f64;
    let least = served.iter().min().copied().unwrap_or(0) as f64;
    Ok(Steady {
        iops: served.iter().sum::<u64>() as f64 / time.as_secs_f64(),
        p50: latency.value_at_quantile(0.5) as f64,
        p99: latency.value_at_quantile(0.99) as f64,
        least_percent: least * 100.0 / each,
    })
}

/// Keeps `depth` 4 KiB writes under way, spread over `cores` and over the first `span` bytes of each; requests a second.
pub(super) fn storm(cores: &[Local], depth: usize, span: u64, time: Duration, run: u64) -> Result<f64> {
    let (send, said) = channel::<Said>();
    let begun = Instant::now();
    let mut sent = 0u64;
    let mut more = |who: usize| {
        sent += 1;
        let offset = scatter(run << 32 | sent, span / BLOCK) * BLOCK;
        ask(&cores[who], who, data(), offset, Instant::now(), &send);
    };
    (0..depth).for_each(|i| more(i % cores.len()));
    let (mut under_way, mut done) = (depth, 0u64);
    while under_way > 0 {
        let (who, ..) = expected(&said)?;
        if begun.elapsed() < time {
            done += 1;
            more(who);
        } else {
            under_way -= 1;
        }
    }
    Ok(done as f64 / time.as_secs_f64())
}
