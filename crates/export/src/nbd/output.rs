//! The output that waits to be sent: small headers in one arena, payloads as slices of the volume's own buffers.

use loligo_block::Shared;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Most slices handed to one `sendmsg`.
pub const MAX_SLICES: usize = 128;

#[derive(Debug)]
enum Segment {
    /// The next so many bytes of the arena.
    Head(usize),
    Payload(Shared),
    /// The end of a reply that took so many bytes of the connection's allowance.
    Release(u64),
}

/// Output of one connection, in order.
#[derive(Debug, Default)]
pub struct Output {
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    heads_sent: usize,
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are sent.
    first_sent: usize,
    /// Unsent bytes.
    queued: u64,
}

impl Output {
    /// Appends a copy of `bytes`.
    pub fn head(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.queued += bytes.len() as u64;
        match self.segments.back_mut() {
            Some(Segment::Head(n)) => *n += bytes.len(),
            _ => self.segments.push_back(Segment::Head(bytes.len())),
        }
    }

    /// Appends `payload` without copying it.
    pub fn payload(&mut self, payload: Shared) {
        if !payload.is_empty() {
            self.queued += payload.len() as u64;
            self.segments.push_back(Segment::Payload(payload));
        }
    }

    /// Notes that `bytes` may be taken anew once everything appended so far is sent.
    pub fn release(&mut self, bytes: u64) {
        self.segments.push_back(Segment::Release(bytes));
    }

    /// Unsent bytes.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Unsent bytes of headers.
    pub fn queued_heads(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// True if everything is sent.
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// Fills `slices` from the front and says how many it used.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut n, mut at, mut skip) = (0, self.heads_sent, self.first_sent);
        for s in &self.segments {
            let bytes = match s {
                Segment::Head(len) => {
                    let end = at + len - skip;
                    let b = &self.heads[at..end];
                    at = end;
                    b
                }
                Segment::Payload(p) => &p[skip..],
                Segment::Release(_) => continue,
            };
            skip = 0;
            if n == slices.len() {
                break;
            }
            slices[n] = IoSlice::new(bytes);
            n += 1;
        }
        n
    }

    /// Drops `n` bytes from the front; returns the allowance that replies sent by now give back.
    pub fn sent(&mut self, mut n: usize) -> u64 {
        let mut released = 0;
        self.queued -= n as u64;
        while let Some(s) = self.segments.front() {
            let (len, is_head) = match s {
                Segment::Head(len) => (*len, true),
                Segment::Payload(p) => (p.len(), false),
                Segment::Release(bytes) => {
                    released += bytes;
                    self.segments.pop_front();
                    continue;
                }
            };
            let step = n.min(len - self.first_sent);
            n -= step;
            if is_head {
                self.heads_sent += step;
            }
            self.first_sent += step;
            if self.first_sent < len {
                break;
            }
            self.first_sent = 0;
            self.segments.pop_front();
        }
        if self.heads_sent == self.heads.len() {
            self.heads.clear();
            self.heads_sent = 0;
        } else if self.heads_sent > 64 << 10 {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
        released
    }

    /// Forgets everything; returns the allowance that it held.
    pub fn clear(&mut self) -> u64 {
        let held = self.segments.iter().map(|s| if let Segment::Release(b) = s { *b } else { 0 }).sum();
        *self = Output::default();
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    fn drain(o: &mut Output, step: usize) -> (Vec<u8>, u64) {
        let (mut bytes, mut released) = (Vec::new(), 0);
        while !o.is_empty() {
            let mut slices = [IoSlice::new(&[]); 3];
            let used = o.gather(&mut slices);
            let flat: Vec<u8> = slices[..used].iter().flat_map(|s| s.iter().copied()).collect();
            let n = step.min(flat.len());
            bytes.extend_from_slice(&flat[..n]);
            released += o.sent(n);
        }
        (bytes, released)
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_kernel_takes_at_a_time() {
        for step in [1, 3, 7, 64, 4096] {
            let mut o = Output::default();
            let mut want = Vec::new();
            for i in 0..20u8 {
                o.head(&[i; 5]);
                want.extend([i; 5]);
                if i % 3 == 0 {
                    o.payload(Buf::copy_of(&[i | 0x80; 33]).freeze());
                    want.extend([i | 0x80; 33]);
                    o.release(33);
                }
            }
            assert_eq!(o.queued(), want.len() as u64);
            assert_eq!(drain(&mut o, step), (want, 7 * 33), "step {step}");
        }
    }
}
