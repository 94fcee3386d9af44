//! An agent that runs in this process, as others ask it.

use crate::executor::Word;
use crate::history::{History, Told};
use crate::status::{HistoryEntry, Status};
use anyhow::{Result, bail};
use loligo_pair::machine::Order;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The time that the main loop has to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The agent.
#[derive(Debug, Clone)]
pub struct Handle {
    words: Sender<Word>,
    history: History,
}

impl Handle {
    pub(crate) fn new(words: Sender<Word>, history: History) -> Handle {
        Handle { words, history }
    }

    /// How it is. Waits for the agent's loop.
    ///
    /// # Errors
    /// If the agent is ending, or does not answer.
    pub fn status(&self) -> Result<Status> {
        let (back, answer) = channel();
        self.tell(Word::Status(back))?;
        Handle::hear(&answer)
    }

    fn hear<T>(answer: &Receiver<T>) -> Result<T> {
        match answer.recv_timeout(PATIENCE) {
            Ok(answer) => Ok(answer),
            Err(_) => bail!("the agent of the pair does not answer: its log says why"),
        }
    }

    /// The history, the oldest entry first.
    pub fn history(&self) -> Vec<HistoryEntry> {
        self.history.entries()
    }

    /// The numbers of what was told since this run began.
    pub fn told(&self) -> Told {
        self.history.told()
    }

    /// Gives an order. The inner result is the reason if it is refused; what comes of one that is taken, the status says. Waits for
    /// the agent's loop.
    ///
    /// # Errors
    /// If the agent is ending, or does not answer.
    pub fn order(&self, order: Order) -> Result<std::result::Result<(), String>> {
        let (back, answer) = channel();
        self.tell(Word::Order(order, back))?;
        Handle::hear(&answer)
    }

    /// Has the agent end; what runs on this side goes on.
    pub fn end(&self) {
        // One that has ended already hears nothing.
        let _ = self.words.send(Word::End);
    }

    fn tell(&self, word: Word) -> Result<()> {
        match self.words.send(word) {
            Ok(()) => Ok(()),
            Err(_) => bail!("the agent of the pair is ending"),
        }
    }
}
