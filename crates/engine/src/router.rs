//! The router: a volume's request becomes one part per window, each for the shard that owns it, and the parts' answers
//! become one. A flush goes to every shard. One router a thread; ids it makes are unique in that thread.

use crate::api::Hint;
use crate::part_id::PartId;
use crate::policy::streams::Streams;
use crate::stats::Stats;
use loligo_block::{Answer, Extent, Reply, ReqError, ReqId, ReqKind, Request, SECTOR, Segments};
use loligo_format::units::{Striping, WINDOW};
use slab::Slab;

/// The destination of a part.
#[derive(Debug)]
pub struct Part {
    /// The shard.
    pub shard: u16,
    /// The part; its id is the router's.
    pub request: Request,
    /// Facts that the shard cannot see.
    pub hint: Hint,
}

/// The requests that it counts among.
#[derive(Debug, Clone, Copy)]
enum Tallied {
    Reads,
    Writes,
}

#[derive(Debug)]
struct Parent {
    id: ReqId,
    left: u32,
    /// The window of the first part; nothing for a flush, of which every shard has one.
    first: Option<u64>,
    tallied: Option<Tallied>,
    /// Some part was not wholly in the cache.
    missed: bool,
    error: Option<ReqError>,
    /// Answers of the parts, in order, where there is more than one. Something stands in for one that failed.
    answers: Vec<Option<Answer>>,
}

/// Splits requests and joins answers.
#[derive(Debug)]
pub struct Router {
    by: Striping,
    size: u64,
    block: u64,
    streams: Streams,
    parents: Slab<Parent>,
    /// Shards that answer nothing any more.
    gone: Vec<u16>,
    /// Hits and misses of requests that had several parts.
    reads: Tally,
    writes: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    hits: u64,
    misses: u64,
}

impl Router {
    /// For a volume of `size` bytes in blocks of `logical_block` bytes, divided like that.
    pub fn new(size: u64, logical_block: u32, by: Striping, promotion: u32) -> Router {
        let block = u64::from(logical_block).max(SECTOR);
        Router {
            by,
            size,
            block,
            streams: Streams::new(promotion),
            parents: Slab::with_capacity(256),
            gone: Vec::new(),
            reads: Tally::default(),
            writes: Tally::default(),
        }
    }

    /// The volume has so many bytes from now on.
    pub fn resize(&mut self, size: u64) {
        self.size = size;
    }

    /// Splits `request`; its parts are added to `out`. A request that cannot be is answered at once.
    pub fn route(&mut self, request: Request, out: &mut Vec<Part>) -> Option<Reply> {
        let refused = |e| Some(Reply { id: request.id, result: Err(e) });
        let flush = matches!(request.kind, ReqKind::Flush);
        let inside = request.offset.checked_add(request.len).is_some_and(|end| end <= self.size);
        let aligned = request.offset.is_multiple_of(self.block)
            && (request.len.is_multiple_of(self.block) || request.offset + request.len == self.size);
        if let ReqKind::Write(data) = &request.kind
            && data.len() as u64 != request.len
        {
            return refused(ReqError::Invalid);
        }
        if !flush && (!inside || !aligned) {
            return refused(ReqError::Invalid);
        }
        if !flush && request.len == 0 {
            return Some(Reply { id: request.id, result: Ok(Answer::Done) });
        }
        let windows = (request.offset + request.len).div_ceil(WINDOW) - request.offset / WINDOW;
        let (first, parts) = match flush {
            true => (None, u64::from(self.by.shards)),
            false => (Some(request.offset / WINDOW), windows),
        };
        let owners = |n| owner(first, n, self.by);
        if !self.gone.is_empty() && (0..parts).any(|n| self.gone.contains(&owners(n))) {
            return refused(ReqError::Shutdown);
        }
        let write = match request.kind {
            ReqKind::Read => Some(false),
            ReqKind::Write(_) => Some(true),
            _ => None,
        };
        let run = write.map(|write| self.streams.observe(request.offset, request.len, write));
        let [stream_bytes, run_bytes] = run.map_or([0; 2], |run| [run.stream_bytes(), run.bytes]);
        let (offset, len) = (request.offset, request.len);
        let hint = Hint { stream_bytes, run_bytes, split: parts > 1, whole: len };
        let Request { id, kind, fua, .. } = request;
        let tallied = match kind {
            ReqKind::Read => Some(Tallied::Reads),
            ReqKind::Write(_) | ReqKind::WriteZeroes { .. } | ReqKind::Discard => Some(Tallied::Writes),
            ReqKind::Flush | ReqKind::Status => None,
        };
        let mut answers = Vec::new();
        if parts > 1 {
            answers.resize_with(parts as usize, || None);
        }
        let parent = Parent { id, left: parts as u32, first, tallied, missed: false, error: None, answers };
        let key = self.parents.insert(parent);
        let id = |n: u64| PartId { request: key, part: n as u32 }.id();
        if flush {
            out.extend((0..parts).map(|n| {
                let request = Request { id: id(n), kind: ReqKind::Flush, offset: 0, len: 0, fua };
                Part { shard: n as u16, request, hint }
            }));
            return None;
        }
        if parts == 1 {
            // The payload moves on whole: a second handle to it would cost two locked operations, the later of which
            // waits for the copy that emptied the buffer.
            let request = Request { id: id(0), kind, offset, len, fua };
            out.push(Part { shard: self.by.owner(offset), request, hint });
            return None;
        }
        let mut at = offset;
        for n in 0..parts {
            let end = ((at / WINDOW + 1) * WINDOW).min(offset + len);
            let kind = match &kind {
                ReqKind::Write(data) => {
                    ReqKind::Write(data.slice((at - offset) as usize..(end - offset) as usize))
                }
                other => other.clone(),
            };
            let request = Request { id: id(n), kind, offset: at, len: end - at, fua };
            out.push(Part { shard: self.by.owner(at), request, hint });
            at = end;
        }
        None
    }

    /// A part is answered; the whole request's answer once it was the last.
    pub fn answered(&mut self, reply: Reply) -> Option<Reply> {
        let PartId { request: key, part } = PartId::of(reply.id);
        let parent = self.parents.get_mut(key)?;
        parent.left -= 1;
        let mut single = None;
        match reply.result {
            Ok(answer) if parent.answers.is_empty() => single = Some(answer),
            Ok(answer) => parent.answers[part as usize] = Some(answer),
            Err(e) => {
                parent.error = parent.error.or(Some(e));
                if let Some(answer) = parent.answers.get_mut(part as usize) {
                    *answer = Some(Answer::Done);
                }
            }
        }
        if parent.left > 0 {
            return None;
        }
        let parent = self.parents.remove(key);
        if parent.answers.len() > 1 {
            self.count(&parent);
        }
        let result = match (parent.error, single) {
            (Some(e), _) => Err(e),
            (None, Some(answer)) => Ok(answer),
            (None, None) => Ok(join(parent.answers)),
        };
        Some(Reply { id: parent.id, result })
    }

    /// Shard `shard` answers nothing any more: the requests that this was the last part of, and whatever else needs it from now on,
    /// fail.
    pub fn lose(&mut self, shard: u16) -> Vec<Reply> {
        self.gone.push(shard);
        let mut owed = Vec::new();
        for (key, parent) in &self.parents {
            let parts = parent.answers.len().max(1) as u64;
            let open = |n: &u64| parent.answers.get(*n as usize).is_none_or(Option::is_none);
            let its = (0..parts).filter(|n| owner(parent.first, *n, self.by) == shard);
            owed.extend(its.filter(open).map(|n| PartId { request: key, part: n as u32 }.id()));
        }
        let fails = |id| self.answered(Reply { id, result: Err(ReqError::Shutdown) });
        owed.into_iter().filter_map(fails).collect()
    }

    fn count(&mut self, parent: &Parent) {
        let tally = match parent.tallied {
            Some(Tallied::Reads) => &mut self.reads,
            Some(Tallied::Writes) => &mut self.writes,
            None => return,
        };
        match parent.missed {
            true => tally.misses += 1,
            false => tally.hits += 1,
        }
    }

    /// Part `id` of a request was not wholly in the cache.
    pub fn missed(&mut self, id: ReqId) {
        if let Some(parent) = self.parents.get_mut(PartId::of(id).request) {
            parent.missed = true;
        }
    }

    /// Adds the requests that had several parts to what the shards counted of the others.
    pub fn add_to(&self, stats: &mut Stats) {
        stats.read_hits += self.reads.hits;
        stats.read_misses += self.reads.misses;
        stats.write_hits += self.writes.hits;
        stats.write_misses += self.writes.misses;
    }

    /// Requests under way.
    pub fn in_flight(&self) -> usize {
        self.parents.len()
    }

    /// Changes after how many requests a run counts as a stream.
    pub fn set_promotion(&mut self, requests: u32) {
        self.streams.set_promotion(requests);
    }
}

/// The shard of part `n` of a request whose first part is for this window; of a flush without one.
fn owner(first: Option<u64>, n: u64, by: Striping) -> u16 {
    first.map_or(n as u16, |first| by.owner((first + n) * WINDOW))
}

fn join(answers: Vec<Option<Answer>>) -> Answer {
    let mut segments = Segments::new();
    let mut extents: Vec<Extent> = Vec::new();
    for a in answers.into_iter().flatten() {
        match a {
            Answer::Done => {}
            Answer::Data(mut s) => segments.append(&mut s),
            Answer::Extents(more) => {
                for e in more {
                    match extents.last_mut() {
                        Some(l) if l.allocated == e.allocated && l.zero == e.zero => l.len += e.len,
                        _ => extents.push(e),
                    }
                }
            }
        }
    }
    match (segments.is_empty(), extents.is_empty()) {
        (false, _) => Answer::Data(segments),
        (true, false) => Answer::Extents(extents),
        (true, true) => Answer::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: ReqId, kind: ReqKind, offset: u64, windows: u64) -> Request {
        Request { id, kind, offset: offset * WINDOW, len: windows * WINDOW, fua: false }
    }

    #[test]
    fn a_shard_that_is_gone_fails_what_needs_it_and_nothing_else() {
        let mut router = Router::new(64 * WINDOW, 512, Striping::by_window(2), 8);
        let mut parts = Vec::new();
        for (id, kind, offset, windows) in [
            (1, ReqKind::Read, 1, 1),
            (2, ReqKind::Read, 0, 1),
            (3, ReqKind::Discard, 0, 3),
            (4, ReqKind::Discard, 1, 2),
            (5, ReqKind::Flush, 0, 0),
        ] {
            assert!(router.route(request(id, kind, offset, windows), &mut parts).is_none());
        }
        let done = |router: &mut Router, part: usize, result| {
            let id = parts[part].request.id;
            router.answered(Reply { id, result }).map(|r| (r.id, r.result.is_ok()))
        };
        // Both shards have answered all of 4 but one part, which the shard that stays owes; one of them failed.
        assert_eq!(done(&mut router, 5, Err(ReqError::Io)), None);
        assert_eq!(done(&mut router, 7, Ok(Answer::Done)), None);
        let mut failed: Vec<_> = router.lose(1).into_iter().map(|r| (r.id, r.result.err())).collect();
        failed.sort_by_key(|f| f.0);
        assert_eq!(failed, [(1, Some(ReqError::Shutdown)), (5, Some(ReqError::Shutdown))]);
        assert_eq!(done(&mut router, 1, Ok(Answer::Done)), Some((2, true)));
        assert_eq!(done(&mut router, 2, Ok(Answer::Done)), None);
        assert_eq!(done(&mut router, 4, Ok(Answer::Done)), Some((3, false)));
        assert_eq!(done(&mut router, 6, Ok(Answer::Done)), Some((4, false)));
        assert_eq!(router.in_flight(), 0);
        let mut parts = Vec::new();
        let refused = router.route(request(6, ReqKind::Flush, 0, 0), &mut parts);
        assert_eq!(refused.map(|r| r.result.err()), Some(Some(ReqError::Shutdown)));
        assert!(router.route(request(7, ReqKind::Read, 4, 2), &mut parts).is_some() && parts.is_empty());
        assert!(router.route(request(8, ReqKind::Read, 4, 1), &mut parts).is_none() && parts.len() == 1);
    }
}
