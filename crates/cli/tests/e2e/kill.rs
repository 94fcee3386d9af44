//! kill -9 under load: no acknowledged write is lost.

use crate::nbd::Client;
use crate::rig::{MIB, Rig};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const BLOCKS: u64 = 600;

/// Version `v` of block `b` of client `c`.
fn content(c: u64, b: u64, v: u32) -> Vec<u8> {
    let word = (c << 56 | b << 32 | u64::from(v)).to_le_bytes();
    word.iter().copied().cycle().take(4096).collect()
}

/// A client with blocks of its own: the last version acknowledged of each, and the last that was sent.
struct Load {
    number: u64,
    acked: Vec<u32>,
    sent: Vec<u32>,
    version: u32,
}

impl Load {
    fn at(&self, block: u64) -> u64 {
        (block * 4 + self.number) * 4096 + block / 50 * MIB / 4
    }

    fn check(&self, c: &mut Client) {
        for b in 0..BLOCKS {
            let have = c.read(self.at(b), 4096).unwrap();
            let (acked, sent) = (self.acked[b as usize], self.sent[b as usize]);
            let fits = |v: u32| have == if v == 0 { vec![0; 4096] } else { content(self.number, b, v) };
            let v = u32::from_le_bytes(have[..4].try_into().unwrap());
            assert!(
                v >= acked && v <= sent && fits(v),
                "client {} block {b}: {v}, acknowledged {acked}, sent {sent}",
                self.number
            );
        }
    }

    /// Writes until the connection breaks; counts itself among those who `write` once it has looked at what there is.
    fn write(&mut self, socket: &Path, write: &AtomicUsize) {
        let mut c = Client::connect(socket, "vol").unwrap();
        self.check(&mut c);
        // What was in flight may be there or not; from here on it is known.
        for b in 0..BLOCKS {
            let have = c.read(self.at(b), 512).unwrap();
            self.acked[b as usize] = u32::from_le_bytes(have[..4].try_into().unwrap());
        }
        write.fetch_add(1, Ordering::Release);
        let mut x = 0x9e37_79b9_7f4a_7c15 ^ (self.number + 1) ^ u64::from(self.version) << 8;
        loop {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let b = x % BLOCKS;
            self.version += 1;
            self.sent[b as usize] = self.version;
            match c.write(self.at(b), &content(self.number, b, self.version)) {
                Ok(0) => self.acked[b as usize] = self.version,
                Ok(error) => panic!("NBD error {error}"),
                Err(_) => return,
            }
        }
    }
}

#[test]
fn a_killed_service_loses_no_acknowledged_write() {
    for (shards, mode) in [("1", "wb"), ("2", "wb"), ("1", "wt")] {
        let rig = Rig::new(64 * MIB);
        let mut loads: Vec<Load> = (0..3)
            .map(|number| Load {
                number,
                acked: vec![0; BLOCKS as usize],
                sent: vec![0; BLOCKS as usize],
                version: 0,
            })
            .collect();
        for round in 0..4u64 {
            let served = rig.serve(&["--shards", shards, "--mode", mode]);
            let socket = rig.path("sock");
            let write = AtomicUsize::new(0);
            std::thread::scope(|s| {
                let clients: Vec<_> =
                    loads.iter_mut().map(|load| s.spawn(|| load.write(&socket, &write))).collect();
                while write.load(Ordering::Acquire) < clients.len()
                    && !clients.iter().any(|c| c.is_finished())
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(400 + round * 137));
                served.kill();
            });
        }
        assert!(loads.iter().all(|l| l.version > 100), "the load did something");
        let served = rig.serve(&["--mode", mode]);
        let mut c = Client::connect(&rig.path("sock"), "vol").unwrap();
        loads.iter().for_each(|l| l.check(&mut c));
        c.flush().unwrap();
        served.stop();
    }
}
