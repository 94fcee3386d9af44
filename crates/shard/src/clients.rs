//! Clients without a connection: those in this process, mounts, and the kernel's queues.

use crate::engine_driver::Answers;
use crate::message::{Message, ThreadMailbox};
use crate::sockets::{QUEUE_MARK, Sockets};
use loligo_block::lease::{Hold, Lease};
use loligo_block::{Answer, Foreign, Reply, ReqError, Request, Ring};
use loligo_export::fuse::Session;
use loligo_export::ublk::Queue;
use loligo_export::{Answered, Server, Source, Volume};
use rustix::fd::AsFd;
use slab::Slab;
use std::fmt;
use std::sync::Arc;

/// A volume as a client in this process reaches it, from any of its threads.
///
/// All its requests go in at one of the volume's threads, as those of a connection do: streams are recognised there, and what
/// it asks is taken in the order in which it asks.
#[derive(Debug, Clone)]
pub struct Local {
    pub(crate) boxes: Arc<[ThreadMailbox]>,
    pub(crate) home: usize,
}

impl Volume for Local {
    fn ask(&self, request: Request, answered: Answered) {
        self.boxes[self.home].put([Message::Local(request, AnswerTo(Some(answered)))]);
    }
}

/// The client that waits for one answer. One that is dropped without it is told that the volume stops, so that nobody waits for ever,
/// whatever becomes of the thread.
pub(crate) struct AnswerTo(Option<Answered>);

impl AnswerTo {
    fn answer(mut self, result: Result<Answer, ReqError>) {
        if let Some(answered) = self.0.take() {
            answered(result);
        }
    }
}

impl Drop for AnswerTo {
    fn drop(&mut self) {
        if let Some(answered) = self.0.take() {
            answered(Err(ReqError::Shutdown));
        }
    }
}

impl fmt::Debug for AnswerTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerTo")
    }
}

/// Those of one thread.
#[derive(Debug, Default)]
pub(crate) struct LocalClients {
    askers: Slab<AnswerTo>,
    stopping: bool,
}

impl LocalClients {
    /// Gives `request` its id. Nothing, and ESHUTDOWN for who asks, once the volume stops.
    pub(crate) fn accept(&mut self, mut request: Request, asker: AnswerTo) -> Option<Request> {
        if self.stopping {
            return None;
        }
        request.id = Source::Local(self.askers.insert(asker) as u32).id();
        Some(request)
    }

    /// Requests that come from now on are refused.
    pub(crate) fn shutdown(&mut self) {
        self.stopping = true;
    }
}

/// A mount, and whether the ring watches it.
#[derive(Debug)]
struct Mounted {
    session: Session,
    armed: bool,
}

/// The leases by which answers leave.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    /// The lease of an image that is the core.
    pub core: Option<Arc<Lease>>,
    /// The lease of arrays that two controllers share. Clients of the network are hung up on once either is lost.
    pub array: Option<Arc<Lease>>,
}

impl Leases {
    /// The worth of an answer that leaves now: that of the worse.
    fn now(&self) -> Hold {
        let all = [&self.core, &self.array].into_iter().flatten();
        all.map(|lease| lease.now()).max().unwrap_or(Hold::Valid)
    }

    /// True if another controller can serve the volume: its clients find it there, and an error would go to their users.
    fn has_partner(&self) -> bool {
        self.array.is_some()
    }
}

/// All who ask one thread.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) server: Server,
    pub(crate) locals: LocalClients,
    /// Nothing in the place of one that is gone.
    queues: Vec<Option<Queue>>,
    /// Likewise.
    mounts: Vec<Option<Mounted>>,
    leases: Leases,
    /// Answers that wait until the lease is renewed.
    held: Vec<Reply>,
    /// An array has given a device to another host.
    is_expelled: bool,
}

impl Clients {
    pub(crate) fn new(server: Server, leases: Leases) -> Clients {
        let (queues, mounts) = (Vec::new(), Vec::new());
        let (locals, held) = (LocalClients::default(), Vec::new());
        Clients { server, locals, queues, mounts, leases, held, is_expelled: false }
    }

    /// Lets answers go that could not before.
    pub(crate) fn look_at_lease(&mut self) {
        if !self.held.is_empty() && self.leases.now() != Hold::Expired {
            for reply in std::mem::take(&mut self.held) {
                self.answer(reply);
            }
        }
    }

    /// Serves a queue of a block device from now on.
    pub(crate) fn add_queue(&mut self, ring: &mut Ring, mut queue: Queue) {
        let free = self.queues.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.queues.push(None);
            self.queues.len() - 1
        });
        if self.locals.stopping {
            queue.stop();
        }
        queue.fetch(ring, index, QUEUE_MARK);
        self.queues[index] = Some(queue);
    }

    /// Serves a mount from now on.
    pub(crate) fn add_mount(&mut self, mut session: Session) {
        session.sit(self.mounts.len());
        if self.locals.stopping {
            session.stop();
        }
        self.mounts.push(Some(Mounted { session, armed: false }));
    }

    /// Something has arrived at a mount.
    pub(crate) fn arrived(&mut self, mount: usize, requests: &mut Vec<Request>) {
        let Some(place) = self.mounts.get_mut(mount) else { return };
        if let Some(mounted) = place {
            mounted.armed = false;
            mounted.session.receive(requests);
        }
        // Whoever still asks it gets errors, and waits for nobody.
        place.take_if(|mounted| mounted.session.is_over());
    }

    /// The effects of answers to requests of mounts.
    pub(crate) fn follow_up(&mut self, requests: &mut Vec<Request>) {
        self.mounts.iter_mut().flatten().for_each(|mounted| mounted.session.follow_up(requests));
    }

    /// Watches the mounts that may hold more.
    pub(crate) fn arm_mounts(&mut self, ring: &mut Ring) {
        for (index, place) in self.mounts.iter_mut().enumerate() {
            let Some(mounted) = place else { continue };
            if !mounted.armed && mounted.session.wants() {
                mounted.armed = true;
                Sockets::arm_mount(ring, mounted.session.as_fd(), index);
            }
        }
    }

    /// The requests that the kernel makes by `event`.
    pub(crate) fn fired(&mut self, event: Foreign) -> Option<Request> {
        let place = self.queues.get_mut(Queue::index_of(event))?;
        let request = place.as_mut()?.fired(event);
        // Its device can go then, and another come.
        place.take_if(|queue| queue.is_over());
        request
    }

    /// Sends the answers that queues have kept.
    pub(crate) fn flush_queues(&mut self, ring: &mut Ring) {
        for queue in self.queues.iter_mut().flatten().filter(|q| q.has_answers()) {
            queue.flush(ring, QUEUE_MARK);
        }
    }

    /// Requests that come from now on are refused, or left for the next server.
    pub(crate) fn shutdown(&mut self) {
        self.locals.shutdown();
        self.queues.iter_mut().flatten().for_each(Queue::stop);
        self.mounts.iter_mut().flatten().for_each(|mounted| mounted.session.stop());
    }

    /// Lets go of what others wait at.
    pub(crate) fn leave(&mut self) {
        self.mounts.clear();
        self.queues.clear();
    }

    /// True if answers wait for the lease.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

impl Answers for Clients {
    /// Clients of the network ask the other host again. An error would go to their users.
    fn expel(&mut self) {
        self.is_expelled = true;
        self.server.hang_up(None);
    }

    fn answer(&mut self, mut reply: Reply) {
        // A stop of this thread may lie between the beginning of the turn and now.
        match self.leases.now() {
            Hold::Valid => {}
            Hold::Expired => return self.held.push(reply),
            // It was done for a core that is another's by now.
            Hold::Lost => {
                reply.result = Err(ReqError::Shutdown);
                if self.leases.has_partner() && !self.is_expelled {
                    self.expel();
                }
            }
        }
        match Source::of(reply.id) {
            Source::Connection { .. } if self.is_expelled => self.server.hang_up(None),
            Source::Connection { .. } => self.server.answer(reply),
            Source::Queue { index, .. } => {
                if let Some(Some(queue)) = self.queues.get_mut(index as usize) {
                    queue.answer(reply);
                }
            }
            Source::Mount { index, .. } => {
                if let Some(Some(mounted)) = self.mounts.get_mut(index as usize) {
                    mounted.session.answer(reply);
                }
            }
            Source::Local(key) => {
                if let Some(asker) = self.locals.askers.try_remove(key as usize) {
                    asker.answer(reply.result);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::ReqKind;
    use std::sync::mpsc::{Receiver, channel};

    fn flush() -> Request {
        Request { id: 7, kind: ReqKind::Flush, offset: 0, len: 0, fua: false }
    }

    fn asker() -> (AnswerTo, Receiver<Result<Answer, ReqError>>) {
        let (send, answer) = channel();
        (AnswerTo(Some(Box::new(move |result| drop(send.send(result))))), answer)
    }

    #[test]
    fn whoever_asks_after_the_stop_or_of_a_thread_that_is_gone_hears_that_the_volume_stops() {
        let boxes: Arc<[ThreadMailbox]> = [ThreadMailbox::new().unwrap()].into();
        let volume = Local { boxes: boxes.clone(), home: 0 };
        let (send, answers) = channel();
        let ask = || {
            let send = send.clone();
            volume.ask(flush(), Box::new(move |result| drop(send.send(result))));
        };
        ask();
        assert!(answers.try_recv().is_err(), "it lies in the box");
        boxes[0].close();
        assert!(matches!(answers.try_recv(), Ok(Err(ReqError::Shutdown))));
        ask();
        assert!(matches!(answers.try_recv(), Ok(Err(ReqError::Shutdown))), "nobody opens the box any more");

        let mut locals = LocalClients::default();
        let (before, first) = asker();
        assert!(locals.accept(flush(), before).is_some_and(|r| matches!(Source::of(r.id), Source::Local(_))));
        locals.shutdown();
        let (after, second) = asker();
        assert!(locals.accept(flush(), after).is_none());
        assert!(matches!(second.try_recv(), Ok(Err(ReqError::Shutdown))));
        assert!(first.try_recv().is_err(), "what was accepted is answered by the volume");
        drop(locals);
        assert!(matches!(first.try_recv(), Ok(Err(ReqError::Shutdown))));
    }
}
