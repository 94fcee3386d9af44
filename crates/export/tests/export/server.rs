//! Many connections with sockets, on one thread, without a real volume's delays in between.

use crate::common::client::{Got, info, option, replies, request, write};
use crate::common::volume::Volume;
use crate::common::{Running, SIZE};
use loligo_block::{Answer, Buf, Reply, Request};
use loligo_export::{ConnId, Export, Limits, Peer, Server};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

struct ServerUnderTest {
    server: Server,
    requests: Vec<Request>,
    now: Instant,
}

impl ServerUnderTest {
    fn new(limits: Limits) -> ServerUnderTest {
        ServerUnderTest::of(SIZE as u64, limits)
    }

    fn of(size: u64, limits: Limits) -> ServerUnderTest {
        let server = Server::new(Export::new("disk", size), limits, None);
        ServerUnderTest { server, requests: Vec::new(), now: Instant::now() }
    }

    fn connect(&mut self) -> (ConnId, UnixStream) {
        self.connect_from(Peer::Unknown)
    }

    fn connect_from(&mut self, peer: Peer) -> (ConnId, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let id = self.server.add(ours.into(), peer, self.now).unwrap();
        self.server.flush(self.now, &mut self.requests);
        (id, theirs)
    }

    fn connected(&mut self) -> (ConnId, UnixStream) {
        let (id, s) = self.connect();
        self.greet(id, s)
    }

    /// Brings a connection into transmission.
    fn greet(&mut self, id: ConnId, mut s: UnixStream) -> (ConnId, UnixStream) {
        s.write_all(&[&[0, 0, 0, 3][..], &option(7, &info("", &[]))].concat()).unwrap();
        self.turn(id);
        let mut hello = [0; 18 + 32 + 34 + 20];
        s.read_exact(&mut hello).unwrap();
        (id, s)
    }

    fn turn(&mut self, id: ConnId) {
        self.server.on_readable(id, self.now, &mut self.requests);
        self.server.flush(self.now, &mut self.requests);
    }

    fn answer(&mut self) {
        for r in std::mem::take(&mut self.requests) {
            let bytes = Buf::zeroed(r.len as usize).freeze();
            let answer = match r.kind {
                loligo_block::ReqKind::Read => Answer::Data(std::iter::once(bytes).collect()),
                _ => Answer::Done,
            };
            self.server.answer(Reply { id: r.id, result: Ok(answer) });
        }
        self.server.flush(self.now, &mut self.requests);
    }
}

#[test]
fn answers_for_a_vanished_client_never_reach_its_successor() {
    let mut d = ServerUnderTest::new(Limits::default());
    let (id, mut s) = d.connected();
    s.write_all(&write(0, 1, 0, &[1; 4096])).unwrap();
    d.turn(id);
    drop(s);
    d.turn(id);
    assert_eq!(d.server.len(), 1, "its request still runs");
    let late = d.requests.clone();
    d.answer();
    assert!(d.server.is_empty() && d.server.interest(id).is_none());
    let (next, mut s) = d.connected();
    assert_ne!(next, id);
    s.write_all(&request(0, 3, 7, 0, 0)).unwrap();
    d.turn(next);
    for r in late {
        d.server.answer(Reply { id: r.id, result: Err(loligo_block::ReqError::Io) });
    }
    d.answer();
    let mut got = [0; 16];
    s.read_exact(&mut got).unwrap();
    assert_eq!(replies(&got, 0), [Got::Simple(7, 0, vec![])]);
}

#[test]
fn clients_that_come_write_and_vanish_cannot_pile_up_memory() {
    // The last quarter of the places is for other peers.
    let limits = Limits { connections: 5, ..Limits::default() };
    let mut d = ServerUnderTest::new(limits);
    for _ in 0..4 {
        let (id, mut s) = d.connected();
        s.write_all(&write(0, 1, 0, &[1; 4096])).unwrap();
        d.turn(id);
        drop(s);
        d.turn(id);
    }
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert!(
        d.server.add(ours.into(), Peer::Unknown, d.now).is_none(),
        "the places are taken until the volume has answered"
    );
    assert_eq!(d.server.held_bytes(), 4 * 4096);
    d.answer();
    assert_eq!((d.server.len(), d.server.held_bytes()), (0, 0));
}

#[test]
fn connections_that_share_a_small_budget_all_get_their_turn() {
    let mut d = ServerUnderTest::new(Limits { server_bytes: 1 << 20, connections: 12, ..Limits::default() });
    let mut clients: Vec<_> = (0..8).map(|_| d.connected()).collect();
    for (id, s) in &mut clients {
        s.write_all(&request(0, 0, 1, 0, 1 << 20)).unwrap();
        d.turn(*id);
    }
    let readers: Vec<_> = clients
        .into_iter()
        .map(|(id, mut s)| {
            let thread = std::thread::spawn(move || {
                let mut got = vec![0; 16 + (1 << 20)];
                s.read_exact(&mut got).map(|()| s)
            });
            (id, thread)
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(10);
    while !readers.iter().all(|(_, t)| t.is_finished()) && Instant::now() < until {
        assert!(d.server.held_bytes() <= 1 << 20);
        d.answer();
        for (id, _) in &readers {
            if d.server.interest(*id).is_some_and(|i| i.write) {
                d.server.on_writable(*id);
            }
        }
        d.server.flush(d.now, &mut d.requests);
    }
    for (_, t) in readers {
        assert!(t.join().unwrap().is_ok());
    }
}

#[test]
fn a_client_that_does_not_read_is_cut_and_others_notice_nothing() {
    let mut d = ServerUnderTest::new(Limits { in_flight_bytes: 8 << 20, ..Limits::default() });
    let (lazy, mut l) = d.connected();
    let flood: Vec<u8> = (0..64).flat_map(|c| request(0, 0, c, 0, 1 << 20)).collect();
    l.write_all(&flood).unwrap();
    for _ in 0..20 {
        d.turn(lazy);
        d.answer();
    }
    assert!(d.server.held_bytes() <= 8 << 20);
    let want = d.server.interest(lazy).unwrap();
    assert!(want.write && !want.read);
    let (other, mut s) = d.connected();
    s.write_all(&request(0, 3, 7, 0, 0)).unwrap();
    d.turn(other);
    d.answer();
    s.read_exact(&mut [0; 16]).unwrap();
    d.now += Duration::from_secs(61);
    assert!(d.server.next_deadline(d.now).unwrap() <= d.now);
    d.server.tick(d.now, &mut d.requests);
    assert!(d.server.interest(lazy).is_none() && d.server.interest(other).is_some());
    assert_eq!(d.server.held_bytes(), 0);
}

#[test]
fn silent_clients_are_gone_after_the_time_for_the_handshake() {
    let mut d = ServerUnderTest::new(Limits::default());
    let silent: Vec<_> = (0..50).map(|_| d.connect()).collect();
    let (id, _s) = d.connected();
    d.now += Duration::from_secs(11);
    d.server.tick(d.now, &mut d.requests);
    assert_eq!(d.server.connections().map(|(id, ..)| id).collect::<Vec<_>>(), [id]);
    for (_, mut s) in silent {
        let mut rest = Vec::new();
        assert_eq!(s.read_to_end(&mut rest).unwrap(), 18, "the greeting, then the end");
    }
}

fn host(last: u8) -> Peer {
    Peer::Host([192, 0, 2, last].into())
}

#[test]
fn silent_handshakes_of_one_peer_do_not_lock_others_out() {
    let mut d = ServerUnderTest::new(Limits::default());
    let mut silent: Vec<_> = (0..1000).map(|_| d.connect_from(host(1))).collect();
    assert!(d.server.len() <= Limits::default().connections / 2);
    let (id, s) = d.connect_from(host(2));
    silent.extend((0..1000).map(|_| d.connect_from(host(1))));
    let (id, mut s) = d.greet(id, s);
    s.write_all(&request(0, 0, 1, 0, 4096)).unwrap();
    d.turn(id);
    d.answer();
    s.read_exact(&mut [0; 16 + 4096]).unwrap();
}

#[test]
fn a_full_table_drops_the_oldest_silent_handshake() {
    let mut d = ServerUnderTest::new(Limits { connections: 8, ..Limits::default() });
    let (_, first) = d.connect_from(host(1));
    d.now += Duration::from_secs(1);
    let _silent: Vec<_> = (0..7).map(|n| d.connect_from(host(1 + n % 3))).collect();
    let (id, s) = d.connect_from(host(9));
    d.greet(id, s);
    let mut rest = Vec::new();
    assert_eq!((&first).read_to_end(&mut rest).unwrap(), 18, "the oldest has ended");
}

#[test]
fn one_peer_cannot_take_the_places_of_all() {
    let mut d = ServerUnderTest::new(Limits { connections: 8, ..Limits::default() });
    let mut open = Vec::new();
    for _ in 0..6 {
        let (id, s) = d.connect_from(host(1));
        open.push(d.greet(id, s));
    }
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert!(d.server.add(ours.into(), host(1), d.now).is_none());
    let (id, s) = d.connect_from(host(2));
    d.greet(id, s);
}

/// Connects and greets as `peer` until there is no place, or so often; the connections.
fn fill(d: &mut ServerUnderTest, peer: Peer, most: usize) -> Vec<(ConnId, UnixStream)> {
    let mut open = Vec::new();
    while open.len() < most {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let Some(id) = d.server.add(ours.into(), peer, d.now) else { break };
        open.push(d.greet(id, theirs));
    }
    open
}

#[test]
fn processes_of_one_user_leave_places_to_others() {
    let mut d = ServerUnderTest::new(Limits::default());
    let mut open = Vec::new();
    let mut all = |pids: std::ops::Range<i32>, uid: u32| -> Vec<usize> {
        let mut of = |pid| {
            open.push(fill(&mut d, Peer::Process(pid, uid), usize::MAX));
            open.last().map_or(0, Vec::len)
        };
        pids.map(&mut of).collect()
    };
    assert_eq!(all(1..3, 1000), [192, 8], "two that run away leave the last quarter, but for a few");
    assert_eq!(all(3..4, 1000), [8], "a third of that user has its few");
    assert_eq!(all(4..20, 1000).iter().sum::<usize>(), 16, "all of them have half of that quarter");
    assert_eq!(all(20..24, 1001), [8; 4], "the rest is for others");
}

#[test]
fn a_process_that_comes_again_ends_no_handshake_of_another() {
    let mut d = ServerUnderTest::new(Limits::default());
    let greedy = Peer::Process(1, 1000);
    let _open = fill(&mut d, greedy, usize::MAX);
    let (id, s) = d.connect_from(Peer::Process(2, 1001));
    for _ in 0..10 {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(d.server.add(ours.into(), greedy, d.now).is_none());
        d.server.flush(d.now, &mut d.requests);
    }
    d.greet(id, s);
}

/// Clients that ask for `each` reads of `len` bytes and take nothing.
fn greedy(d: &mut ServerUnderTest, clients: u32, each: u64, len: u32) -> Vec<(ConnId, UnixStream)> {
    let flood: Vec<u8> = (0..each).flat_map(|c| request(0, 0, c, 0, len)).collect();
    (0..clients)
        .map(|_| {
            let (id, s) = d.connect_from(host(1));
            let (id, mut s) = d.greet(id, s);
            s.write_all(&flood).unwrap();
            for _ in 0..each {
                d.turn(id);
                d.answer();
            }
            (id, s)
        })
        .collect()
}

#[test]
fn clients_that_read_nothing_take_no_share_from_others() {
    for (clients, each, len) in [(32, 100, 1 << 20), (9, 2, 32 << 20)] {
        let mut d = ServerUnderTest::new(Limits::default());
        let greedy = greedy(&mut d, clients, each, len);
        for peer in [host(1), host(2)] {
            let (id, s) = d.connect_from(peer);
            let (id, mut s) = d.greet(id, s);
            for wanted in [4096, 1 << 20, 32 << 20] {
                s.write_all(&request(0, 0, 1, 0, wanted as u32)).unwrap();
                let mut reader = s.try_clone().unwrap();
                let thread = std::thread::spawn(move || {
                    let mut got = vec![1; 16 + wanted];
                    reader.read_exact(&mut got).map(|()| got)
                });
                while !thread.is_finished() {
                    d.turn(id);
                    d.answer();
                    d.server.on_writable(id);
                }
                let got = thread.join().unwrap().expect("it is served");
                assert_eq!(replies(&got, wanted), [Got::Simple(1, 0, vec![0; wanted])]);
                s.write_all(&write(0, 1, 0, &vec![7; 40_000])).unwrap();
                d.turn(id);
                d.answer();
                s.read_exact(&mut [0; 16]).expect("a write as well");
            }
        }
        assert!(greedy.iter().all(|(id, _)| d.server.interest(*id).is_some()), "they are still there");
        assert!(d.server.held_bytes() <= Limits::default().server_bytes);
    }
}

#[test]
fn a_stop_answers_what_was_accepted_and_closes_every_connection() {
    let mut d = ServerUnderTest::new(Limits::default());
    let (idle, mut i) = d.connected();
    let (busy, mut b) = d.connected();
    b.write_all(&write(0, 1, 0, &[1; 4096])).unwrap();
    d.turn(busy);
    d.server.shutdown(d.now, &mut d.requests);
    i.write_all(&request(0, 0, 9, 0, 4096)).unwrap();
    d.turn(idle);
    let mut refused = [0; 16];
    i.read_exact(&mut refused).unwrap();
    assert_eq!(replies(&refused, 0), [Got::Simple(9, 108, vec![])], "an idle client is told why");
    d.now += Limits::default().linger;
    d.server.tick(d.now, &mut d.requests);
    assert_eq!(i.read(&mut [0; 1]).unwrap(), 0, "and not waited for");
    b.write_all(&write(0, 2, 0, &[2; 4096])).unwrap();
    d.turn(busy);
    d.answer();
    let mut got = Vec::new();
    b.read_to_end(&mut got).unwrap();
    assert_eq!(replies(&got, 0), [Got::Simple(2, 108, vec![]), Got::Simple(1, 0, vec![])]);
    assert!(d.server.is_empty());
    assert!(d.server.add(UnixStream::pair().unwrap().0.into(), Peer::Unknown, d.now).is_none());
}

#[test]
fn a_client_that_closes_its_sending_side_still_gets_its_answers() {
    let mut d = ServerUnderTest::new(Limits::default());
    let (id, mut s) = d.connected();
    s.write_all(&request(0, 0, 1, 0, 4096)).unwrap();
    s.shutdown(std::net::Shutdown::Write).unwrap();
    d.turn(id);
    d.turn(id);
    d.answer();
    let mut got = Vec::new();
    s.read_to_end(&mut got).unwrap();
    assert_eq!(replies(&got, 4096), [Got::Simple(1, 0, vec![0; 4096])]);
}

#[test]
fn many_connections_over_tcp_are_served_together() {
    let s = Running::start("tcp:127.0.0.1:0", Volume::ram(SIZE), Limits::default(), None);
    let loligo_export::ListenAddr::Tcp(addr) = s.addr else { unreachable!() };
    let mut clients: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    for (i, c) in clients.iter_mut().enumerate() {
        c.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        c.write_all(&[&[0, 0, 0, 3][..], &option(7, &info("", &[]))].concat()).unwrap();
        c.write_all(&write(0, 1, i as u64 * 4096, &[i as u8; 4096])).unwrap();
    }
    for (i, c) in clients.iter_mut().enumerate() {
        c.read_exact(&mut [0; 18 + 32 + 34 + 20 + 16]).unwrap();
        c.write_all(&request(0, 0, 2, i as u64 * 4096, 4096)).unwrap();
        let mut got = [0; 16 + 4096];
        c.read_exact(&mut got).unwrap();
        assert_eq!(replies(&got, 4096), [Got::Simple(2, 0, vec![i as u8; 4096])]);
    }
}

/// Bytes that the volume is asked for now.
fn asked(d: &ServerUnderTest) -> u64 {
    d.requests.iter().map(|r| r.len).sum()
}

#[test]
fn long_ranges_of_a_client_are_under_way_in_parts() {
    const LEN: u32 = u32::MAX - (64 << 10) + 1;
    const MOST: u64 = 32 << 20;
    for (command, flags) in [(4, 0), (6, 0), (6, 1 << 1)] {
        let mut d = ServerUnderTest::of(1 << 40, Limits::default());
        let (id, mut s) = d.connected();
        (0..100).for_each(|n| s.write_all(&request(flags, command, n, n << 32, LEN)).unwrap());
        d.turn(id);
        assert_eq!(asked(&d), MOST, "{command}");
        let (mut bytes, mut last) = (0, 0);
        for _ in 0..u64::from(LEN).div_ceil(MOST) {
            assert!(asked(&d) <= MOST && d.requests.iter().all(|r| r.offset >= last));
            bytes += asked(&d);
            last = d.requests.last().unwrap().offset;
            d.answer();
        }
        let mut got = [0; 16];
        s.read_exact(&mut got).unwrap();
        assert_eq!(replies(&got, 0), [Got::Simple(0, 0, vec![])], "one answer for all parts of the first");
        assert!(bytes >= u64::from(LEN) && last < 2 << 32, "nothing twice, nothing left out");
        drop(s);
        d.turn(id);
        d.answer();
        d.answer();
        assert!(d.requests.is_empty(), "{command}: a client that has gone has nothing more done for it");
    }
}

#[test]
fn short_ranges_go_side_by_side_and_others_beside_long_ones() {
    let mut d = ServerUnderTest::of(1 << 40, Limits::default());
    let (id, mut s) = d.connected();
    (0..64).for_each(|n| s.write_all(&request(0, 4, n, n << 20, 1 << 20)).unwrap());
    s.write_all(&request(0, 0, 99, 0, 4096)).unwrap();
    d.turn(id);
    let trims = d.requests.iter().filter(|r| matches!(r.kind, loligo_block::ReqKind::Discard)).count();
    assert_eq!((trims, d.requests.len()), (32, 33), "the read does not wait for the trims");
    d.answer();
    assert_eq!(d.requests.len(), 32);
    d.answer();
    assert!(d.requests.is_empty());
}

#[test]
fn a_stop_refuses_the_parts_that_have_not_begun() {
    let mut d = ServerUnderTest::of(1 << 40, Limits::default());
    let (id, mut s) = d.connected();
    s.write_all(&request(0, 4, 7, 0, 1 << 30)).unwrap();
    d.turn(id);
    let mut requests = std::mem::take(&mut d.requests);
    d.server.shutdown(d.now, &mut d.requests);
    assert!(d.requests.is_empty());
    d.requests.append(&mut requests);
    d.answer();
    assert!(d.requests.is_empty());
    let mut got = [0; 16];
    s.read_exact(&mut got).unwrap();
    assert_eq!(replies(&got, 0), [Got::Simple(7, 108, vec![])], "ESHUTDOWN");
}
