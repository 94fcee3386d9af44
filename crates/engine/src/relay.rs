//! One thread's post: requests of its clients go out as parts to the shards that own their windows, and come
//! back as answers. The runtime carries messages from thread to thread, in order between any two.

use crate::api::Hint;
use crate::part_id::{from_thread, thread_of};
use crate::router::{Part, Router};
use loligo_block::{Reply, ReqId, Request};

/// A message from one thread to another.
#[derive(Debug)]
pub enum ShardMessage {
    /// Part of a request, for a window of the receiver's.
    Part(Request, Hint),
    /// The answer to such a part.
    Answered(Reply),
    /// Such a part was not wholly in the cache; comes before its answer.
    Missed(ReqId),
}

/// The post of one thread.
#[derive(Debug)]
pub struct Relay {
    me: u16,
    router: Router,
    parts: Vec<Part>,
}

impl Relay {
    /// The post of thread `me`.
    pub fn new(me: u16, router: Router) -> Relay {
        Relay { me, router, parts: Vec::new() }
    }

    /// A client's request: `send` gets its parts, those for this thread's own shard too. One that cannot be is answered at once.
    pub fn request(&mut self, request: Request, mut send: impl FnMut(u16, Request, Hint)) -> Option<Reply> {
        let refused = self.router.route(request, &mut self.parts);
        for mut part in self.parts.drain(..) {
            part.request.id = from_thread(part.request.id, self.me);
            send(part.shard, part.request, part.hint);
        }
        refused
    }

    /// The answer of this thread's shard to a part: the thread that asked for it, and the message that tells
    /// it.
    pub fn reply(mut reply: Reply) -> (u16, ShardMessage) {
        let (to, id) = thread_of(reply.id);
        reply.id = id;
        (to, ShardMessage::Answered(reply))
    }

    /// The same, of a part that was not wholly in its cache.
    pub fn miss(id: ReqId) -> (u16, ShardMessage) {
        let (to, id) = thread_of(id);
        (to, ShardMessage::Missed(id))
    }

    /// The answer to a part that went out from here; the client's once it was the last.
    pub fn answered(&mut self, reply: Reply) -> Option<Reply> {
        self.router.answered(reply)
    }

    /// A part that went out from here was not wholly in the cache.
    pub fn missed(&mut self, id: ReqId) {
        self.router.missed(id);
    }

    /// Thread `shard` has ended and answers nothing any more: the clients' answers that waited for nothing but it, all of them errors.
    pub fn lose(&mut self, shard: u16) -> Vec<Reply> {
        self.router.lose(shard)
    }

    /// The router that splits requests.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// The same, to change it.
    pub fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }
}
