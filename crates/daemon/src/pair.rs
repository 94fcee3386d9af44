//! The agent of a pair, in the daemon that serves the pair's volumes.

use crate::config::PairSection;
use crate::metrics::pair::PairNumbers;
use anyhow::{Context, Result, bail};
use loligo_agent::config::PairConfig;
use loligo_agent::handle::Handle;
use loligo_agent::run::run;
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;
use loligo_pair::plan::Side;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two starts of an agent that could not run: an address may come with its interface.
const AGAIN: Duration = Duration::from_secs(2);

/// The agent, as the API and the metrics ask it.
#[derive(Debug, Clone)]
pub(crate) struct PairAgent(Arc<Mutex<Found>>);

#[derive(Debug)]
enum Found {
    /// It serves nothing yet, or could not run: why.
    Not(String),
    Runs(Handle),
}

/// A thread that runs the agent for as long as the daemon lives.
#[derive(Debug)]
pub(crate) struct PairThread {
    agent: PairAgent,
    stop: Interrupt,
    thread: Option<JoinHandle<()>>,
}

/// Reads the pair's file that `section` names.
///
/// # Errors
/// If it cannot be used.
pub(crate) fn read(section: &PairSection) -> Result<PairConfig> {
    let config = PairConfig::read(&section.file).context("[pair] of the daemon's file")?;
    config.plan(section.side)?;
    Ok(config)
}

impl PairAgent {
    /// One that is about to be started.
    pub(crate) fn new() -> PairAgent {
        PairAgent(Arc::new(Mutex::new(Found::Not("the agent of the pair is being started".to_owned()))))
    }

    /// The agent while it runs.
    ///
    /// # Errors
    /// If it does not: the reason.
    pub(crate) fn handle(&self) -> Result<Handle> {
        match &*self.0.lock() {
            Found::Runs(handle) => Ok(handle.clone()),
            Found::Not(why) => bail!("{why}"),
        }
    }

    /// The numbers for a scrape; nothing: it does not answer.
    pub(crate) fn numbers(&self) -> Option<PairNumbers> {
        let handle = self.handle().ok()?;
        let status = handle.status().ok()?;
        Some(PairNumbers { status, told: handle.told() })
    }
}

impl PairThread {
    /// Starts the agent of `side`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn start(config: PairConfig, side: Side, agent: PairAgent) -> Result<PairThread> {
        let stop = Interrupt::default();
        let (its, until) = (agent.clone(), stop.clone());
        let keep = move || {
            while until.check().is_ok() {
                let ready = |handle| {
                    *its.0.lock() = Found::Runs(handle);
                    say!("pair {}: the agent of controller {side} runs", config.pair);
                };
                let ran = run(config.clone(), side, &until, ready);
                let why = match ran {
                    Ok(()) => "the agent of the pair has ended".to_owned(),
                    Err(why) => {
                        let why = format!("the agent of the pair does not run: {why:#}");
                        say!("error: {why}; tried again in {} s", AGAIN.as_secs());
                        why
                    }
                };
                *its.0.lock() = Found::Not(why);
                if until.sleep(AGAIN).is_err() {
                    return;
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("pair".into()).spawn(keep).context("starting a thread")?;
        Ok(PairThread { agent, stop, thread: Some(thread) })
    }

    /// Ends the agent, and waits for that. OSDs go on.
    pub(crate) fn end(&mut self) {
        self.stop.set();
        if let Ok(handle) = self.agent.handle() {
            handle.end();
        }
        if let Some(thread) = self.thread.take() {
            // A panic was told by the panic's own message.
            let _ = thread.join();
        }
    }
}
