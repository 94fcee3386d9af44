//! A loop over [`Server`] for one thread, by poll(2).

use super::volume::Volume;
use loligo_export::{ConnId, Listener, Peer, Server};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Serves until `stop` becomes readable, then until every connection is closed.
pub fn serve(listeners: &[Listener], server: &mut Server, volume: &mut Volume, stop: BorrowedFd<'_>) {
    let (mut requests, mut ready, mut stopping) = (Vec::new(), Vec::new(), false);
    while !(stopping && server.is_empty()) {
        let (stop_now, accept) = wait(listeners, server, stop, stopping, &mut ready);
        let now = Instant::now();
        if stop_now && !stopping {
            stopping = true;
            server.shutdown(now, &mut requests);
        }
        if accept {
            for l in listeners {
                while let Ok(Some(socket)) = l.accept() {
                    let peer = Peer::of(&socket);
                    server.add(socket, peer, now);
                }
            }
        }
        for (id, writable) in ready.drain(..) {
            if writable {
                server.on_writable(id);
            }
            server.on_readable(id, now, &mut requests);
        }
        server.tick(now, &mut requests);
        loop {
            for r in requests.drain(..) {
                server.answer(volume.answer(r));
            }
            server.flush(now, &mut requests);
            if requests.is_empty() {
                break;
            }
        }
    }
}

/// Waits for events: (stop, somebody to accept), and the connections that are ready (true: writable).
fn wait(
    listeners: &[Listener],
    server: &Server,
    stop: BorrowedFd<'_>,
    stopping: bool,
    ready: &mut Vec<(ConnId, bool)>,
) -> (bool, bool) {
    let mut fds = Vec::with_capacity(1 + listeners.len() + server.len());
    fds.push(PollFd::from_borrowed_fd(stop, if stopping { PollFlags::empty() } else { PollFlags::IN }));
    fds.extend(listeners.iter().map(|l| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)));
    let mut ids = Vec::with_capacity(server.len());
    for (id, fd, interest) in server.connections() {
        if interest.read || interest.write {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, interest.read);
            events.set(PollFlags::OUT, interest.write);
            fds.push(PollFd::from_borrowed_fd(fd, events));
            ids.push(id);
        }
    }
    let now = Instant::now();
    let left = server.next_deadline(now).map(|d| d.saturating_duration_since(now) + Duration::from_millis(1));
    let left = left.and_then(|d| Timespec::try_from(d).ok());
    let _ = poll(&mut fds, left.as_ref());
    let behind = 1 + listeners.len();
    for (fd, id) in fds[behind..].iter().zip(ids) {
        let r = fd.revents();
        if !r.is_empty() {
            ready.push((id, r.intersects(PollFlags::OUT | PollFlags::ERR)));
        }
    }
    let accept = fds[1..behind].iter().any(|f| !f.revents().is_empty());
    (!fds[0].revents().is_empty(), accept)
}
