//! The pulse of a cluster under load: a load on a cluster that is gone never ends by itself.

use crate::interrupt::Interrupt;
use anyhow::{Context, Result, bail};
use loligo_ceph::commands::{CommandClient, Recipient};
use loligo_log::say;
use parking_lot::{Condvar, Mutex};
use serde_json::json;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two questions. One that nobody answers takes 15 s.
const EVERY: Duration = Duration::from_secs(5);
/// The silence after which the cluster counts as gone.
const SILENCE: Duration = Duration::from_secs(30);

/// A thread that asks the monitors for as long as this lives.
pub(crate) struct Pulse {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Seen>,
    ends: Condvar,
}

#[derive(Default)]
struct Seen {
    /// The last question had no answer.
    is_silent: bool,
    /// It was silent for so long that the load was ended.
    is_gone: bool,
    /// Its owner has let it go.
    is_over: bool,
}

impl Pulse {
    /// Runs `body`, and has `stop` end what it does once the cluster is gone: the error says so then.
    ///
    /// # Errors
    /// If `body` fails, or the cluster is gone.
    pub(crate) fn over<T>(
        client: &CommandClient,
        stop: &Interrupt,
        body: impl FnOnce(&Pulse) -> Result<T>,
    ) -> Result<T> {
        let client = client.clone();
        let ask = move || client.send(Recipient::Monitors, &json!({"prefix": "osd stat"})).is_ok();
        let pulse = Pulse::start(ask, stop.clone(), EVERY, SILENCE)?;
        let said = body(&pulse);
        if said.is_err() && pulse.state.seen.lock().is_gone {
            bail!(
                "no monitor has answered for {} s: the cluster is gone, and the load was ended. Mend it: 'ceph status' answers then",
                SILENCE.as_secs()
            );
        }
        said
    }

    fn start(
        ask: impl Fn() -> bool + Send + 'static,
        stop: Interrupt,
        every: Duration,
        silence: Duration,
    ) -> Result<Pulse> {
        let state = Arc::new(State::default());
        let theirs = state.clone();
        let listen = move || listen(&ask, &theirs, &stop, every, silence);
        let thread =
            std::thread::Builder::new().name("pulse".into()).spawn(listen).context("starting a thread")?;
        Ok(Pulse { state, thread: Some(thread) })
    }

    /// True if the last question had no answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.state.seen.lock().is_silent
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.state.seen.lock().is_over = true;
        self.state.ends.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic was told by the panic's own message.
            let _ = thread.join();
        }
    }
}

fn listen(ask: &dyn Fn() -> bool, state: &State, stop: &Interrupt, every: Duration, silence: Duration) {
    let mut heard = Instant::now();
    let mut seen = state.seen.lock();
    while !seen.is_over && !seen.is_gone {
        state.ends.wait_for(&mut seen, every);
        if seen.is_over {
            return;
        }
        drop(seen);
        let has_answered = ask();
        if has_answered {
            heard = Instant::now();
        }
        seen = state.seen.lock();
        seen.is_silent = !has_answered;
        if heard.elapsed() >= silence && !has_answered {
            seen.is_gone = true;
            say!("no monitor has answered for {} s: the load is ended", silence.as_secs());
            stop.set();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const TICK: Duration = Duration::from_millis(5);

    /// A pulse whose answers are `answers`, the last one for good.
    fn pulse(answers: &'static [bool], silence: Duration) -> (Pulse, Interrupt) {
        let (stop, asked) = (Interrupt::default(), AtomicU32::new(0));
        let ask = move || {
            let number = asked.fetch_add(1, Ordering::SeqCst) as usize;
            answers[number.min(answers.len() - 1)]
        };
        (Pulse::start(ask, stop.clone(), TICK, silence).expect("a thread"), stop)
    }

    #[test]
    fn a_cluster_that_stays_silent_ends_the_load() {
        let (pulse, stop) = pulse(&[true, false], TICK * 10);
        let begun = Instant::now();
        assert!(stop.sleep(Duration::from_secs(60)).is_err() && begun.elapsed() >= TICK * 10);
        assert!(pulse.is_silent() && pulse.state.seen.lock().is_gone);
    }

    #[test]
    fn one_that_answers_again_goes_on() {
        let (pulse, stop) = pulse(&[false, false, true], Duration::from_secs(30));
        while !pulse.is_silent() {
            std::thread::sleep(TICK);
        }
        while pulse.is_silent() {
            std::thread::sleep(TICK);
        }
        drop(pulse);
        assert!(stop.check().is_ok());
    }
}
