//! Clients that wait while the engine below them is exchanged: their requests are held, what was let in before is answered.

use crate::draft::Draft;
use crate::mail::Said;
use loligo_block::Request;
use std::sync::mpsc::Sender;

/// The pause of one thread.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Requests that came since it began, oldest first; nothing while there is none. They are bounded as requests in flight are: by
    /// what connections, mounts and queues may have under way.
    held: Option<Vec<Request>>,
    /// Who waits until nothing is under way.
    asked: Option<Sender<Said>>,
    /// The engine that comes once the one that is there is quiet.
    next: Option<(Box<Draft>, Sender<Said>)>,
}

impl Pause {
    /// Holds requests from now on; `said` hears when none is under way any more.
    pub(crate) fn begin(&mut self, said: Sender<Said>) {
        self.held.get_or_insert_default();
        self.asked = Some(said);
    }

    /// Takes `requests` while it lasts.
    pub(crate) fn hold(&mut self, requests: &mut Vec<Request>) {
        if let Some(held) = &mut self.held {
            held.append(requests);
        }
    }

    /// Ends it; what was held comes before what is there.
    pub(crate) fn end(&mut self, requests: &mut Vec<Request>) {
        if let Some(mut held) = self.held.take() {
            held.append(requests);
            *requests = held;
        }
        // Whoever still waits hears that it came to nothing.
        self.asked = None;
        self.next = None;
    }

    /// Has `next` take the engine's place.
    pub(crate) fn exchange(&mut self, next: Box<Draft>, said: Sender<Said>) {
        self.next = Some((next, said));
    }

    /// Says that nothing is under way, if that is so.
    pub(crate) fn tell(&mut self, in_flight: usize) {
        if in_flight == 0
            && let Some(said) = self.asked.take()
        {
            // Nobody may be waiting any more.
            let _ = said.send(Said::Done(Ok(())));
        }
    }

    /// The engine that is to come, if this is the moment: clients wait, and the one that is there is `quiet`.
    pub(crate) fn next(&mut self, quiet: impl FnOnce() -> bool) -> Option<(Box<Draft>, Sender<Said>)> {
        if self.next.is_some() && self.held.is_some() && quiet() { self.next.take() } else { None }
    }
}
