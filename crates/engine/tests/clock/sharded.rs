//! The sectors that are named if a volume has two shards.

use loligo_block::{Buf, IoError, IoKind, OpKind, ReqKind, Request};
use loligo_engine::api::{Dev, Effect, Event, Hint};
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};

const MIB: u64 = 1 << 20;

/// Of shard 0 of two, in windows that are neighbours there and not in the volume, the last block of one and the first of the next are
/// refused.
#[test]
fn refused_sectors_of_a_shard_are_named_where_they_are() {
    let (mut cache, core) = (vec![0u8; 64 << 20], 64 * MIB);
    let format = FormatOptions {
        uuid: [7; 16],
        name: "t".into(),
        cache_size: 64 << 20,
        core: CoreIdentity { size: core, id: String::new() },
        line_size: 4096,
        shards: 2,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    };
    open::format(&mut cache, &format).unwrap();
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let sb = Superblock::load(&mut cache).unwrap();
    let opened = open::open(&mut cache, &mut vec![0u8; core as usize], sb, &options).unwrap();
    let mut shard = opened.into_engines(Mode::Wb, &options, &Devices::PLAIN).1.remove(0);
    // Shard 0 has every other MiB.
    let bad = [3 * MIB - 4096, 4 * MIB];
    let (mut fx, mut now, mut failed) = (Vec::new(), 1, std::collections::BTreeSet::new());
    let wanted: Vec<u64> = bad.into_iter().chain((0..40).map(|i| 8 * MIB + i * 4096)).collect();
    for (id, offset) in wanted.into_iter().enumerate() {
        let kind = ReqKind::Write(Buf::zeroed(4096).freeze());
        let request = Request { id: id as u64 + 1, kind, offset, len: 4096, fua: false };
        shard.step(now, Event::Submit(request, Hint::default()), &mut fx);
    }
    for _ in 0..2000 {
        shard.settle(now, &mut fx);
        now += 20_000_000;
        for e in std::mem::take(&mut fx) {
            let Effect::Io(dev, op) = e else { continue };
            let (mut buf, mut result) = (None, Ok(()));
            let range = op.offset..op.offset + op.len();
            let hits: Vec<u64> = bad.into_iter().filter(|b| range.contains(b)).collect();
            match op.kind {
                OpKind::Read(mut b) => {
                    b.fill(0);
                    buf = Some(b);
                }
                OpKind::Write { .. } if dev == Dev::Core && !hits.is_empty() => {
                    failed.extend(hits);
                    result = Err(IoError::new(IoKind::Io, "a bad sector"));
                }
                _ => {}
            }
            shard.step(now, Event::Done { tag: op.tag, buf, result }, &mut fx);
        }
        shard.step(now, Event::Tick, &mut fx);
    }
    assert_eq!((shard.dirty_blocks(), failed.into_iter().collect::<Vec<_>>()), (2, bad.to_vec()));
    let refused = shard.core_refuses().expect("two are refused");
    assert_eq!((refused.ranges, refused.places), (bad.map(|at| at..at + 4096).to_vec(), 2));
}
