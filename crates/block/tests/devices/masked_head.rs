//! Claims about devices whose first block is masked: what is seen through the mask, and what on the disk.

use crate::common::{Rig, pattern};
use crate::layer::*;
use loligo_block::masked_head::{HEAD, LABEL, body};
use loligo_block::*;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A head as stores have it: text, then zeros.
fn head(seed: u64) -> Vec<u8> {
    let mut head = pattern(1000, seed);
    head.resize(HEAD as usize, 0);
    head
}

fn masked(seed: u64) -> Arc<MaskedHead> {
    let masked = MaskedHead::before(head(seed)).expect("it has room");
    masked.set_label(&[b'L'; LABEL]);
    Arc::new(masked)
}

/// A disk with pattern behind the block of `masked`.
fn disk(masked: &MaskedHead) -> RamDevice {
    let mut ram = RamDevice::new(MIB).unwrap();
    ram.write_at(0, &pattern(MIB as usize, 3)).unwrap();
    ram.write_at(0, &masked.block()).unwrap();
    ram
}

fn rig() -> (Rig<MaskedDevice<RamDevice>>, Arc<MaskedHead>) {
    let masked = masked(1);
    let dev = MaskedDevice::new(disk(&masked), masked.clone());
    (Rig { dev, ring: Ring::new(4).unwrap() }, masked)
}

/// On a file system and on tmpfs, where I/O is over at once.
fn over_files(claim: impl Fn(&mut Rig<AnyDevice>, &std::path::Path, &MaskedHead)) {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let dir = tempfile::tempdir_in(root).unwrap();
        let path = dir.path().join("disk");
        let masked = masked(1);
        let file = DeviceFile::create(&path, MIB, &OpenOptions::default()).unwrap();
        let mut io = SyncFile::new(file.clone());
        io.write_at(0, &pattern(MIB as usize, 3)).unwrap();
        io.write_at(0, &masked.block()).unwrap();
        let core = CoreFile::masked(file, masked.clone());
        let dev = core.on_ring(&DeviceSpec::File(path.clone()), DevId(0)).unwrap();
        claim(&mut Rig { dev, ring: Ring::new(8).unwrap() }, &path, &masked);
    }
}

#[test]
fn the_head_is_seen_in_its_place_and_only_the_label_on_the_disk() {
    over_files(|rig, path, masked| {
        let mut whole = head(1);
        whole.extend(&pattern(MIB as usize, 3)[HEAD as usize..]);
        assert_eq!(rig.read(0, MIB as usize), whole);
        assert_eq!(rig.read(512, 512), whole[512..1024]);
        assert_eq!(rig.read(HEAD - 512, 1024), whole[HEAD as usize - 512..HEAD as usize + 512]);
        let raw = std::fs::read(path).unwrap();
        assert_eq!(raw[..LABEL], [b'L'; LABEL]);
        assert!(!raw.windows(16).any(|w| w == &head(1)[..16]), "the head lies on the disk as it is");
        // A write over the border goes to both sides, and a flush after it makes both durable.
        let data = pattern(8192, 9);
        let data = [&head(5)[512..], &data[..]].concat();
        rig.write(512, &data, true).unwrap();
        rig.one(0, OpKind::Flush).result.unwrap();
        assert_eq!(rig.read(512, data.len()), data);
        let raw = std::fs::read(path).unwrap();
        assert_eq!(raw[..LABEL], [b'L'; LABEL], "the label stays");
        assert_eq!(raw[..HEAD as usize], masked.block());
        assert_eq!(raw[HEAD as usize..12288], data[HEAD as usize - 512..]);
        let again = MaskedHead::of_block(raw[..HEAD as usize].to_vec());
        assert_eq!(again.head().unwrap()[512..], data[..HEAD as usize - 512]);
        assert_eq!(rig.dev.in_flight(), 0);
    });
}

#[test]
fn zeroes_and_discards_of_the_head_leave_the_label() {
    let (mut rig, masked) = rig();
    rig.one(0, OpKind::WriteZeroes { len: 1024, unmap: true }).result.unwrap();
    let mut now = head(1);
    now[..1024].fill(0);
    assert_eq!(rig.read(0, HEAD as usize), now);
    rig.one(0, OpKind::Discard { len: 8192 }).result.unwrap();
    assert_eq!(rig.read(0, 8192), vec![0; 8192]);
    assert_eq!(masked.block()[..LABEL], [b'L'; LABEL]);
    assert_eq!(rig.dev.in_flight(), 0);
}

#[test]
fn a_head_that_has_no_room_is_an_error_and_changes_nothing() {
    let (mut rig, masked) = rig();
    let before = masked.block();
    assert!(MaskedHead::before(pattern(HEAD as usize, 2)).is_none());
    rig.write(0, &pattern(HEAD as usize, 2), false).unwrap_err();
    rig.write(HEAD - 512, &[1; 512], false).unwrap_err();
    assert_eq!((masked.block(), rig.read(0, HEAD as usize)), (before, head(1)));
    let mut most = pattern(body::MOST, 2);
    most.resize(HEAD as usize, 0);
    rig.write(0, &most, false).unwrap();
    assert_eq!(rig.read(0, HEAD as usize), most);
}

#[test]
fn an_error_on_either_side_fails_the_whole_request() {
    let (_, masked) = rig();
    let rule = |range| ErrorRule { class: OpClass::Write, range, pick: Pick::ALL, errno: 5 };
    let behind = ErrorDevice::new(disk(&masked), rule(HEAD..HEAD + 512));
    let mut rig = Rig { dev: MaskedDevice::new(behind, masked.clone()), ring: Ring::new(4).unwrap() };
    let both = [&head(2)[..], &[7; 512]].concat();
    rig.write(0, &both, false).unwrap_err();
    assert_eq!(rig.read(0, HEAD as usize), head(2), "the head's part was written");
    let of_head = ErrorDevice::new(disk(&masked), rule(0..512));
    let mut rig = Rig { dev: MaskedDevice::new(of_head, masked.clone()), ring: Ring::new(4).unwrap() };
    rig.write(0, &both, false).unwrap_err();
    assert_eq!(rig.read(HEAD, 512), [7; 512]);
    assert_eq!(rig.read(0, HEAD as usize), head(2), "its block on the disk is as it was");
    rig.write(512, &[1; 512], false).unwrap_err();
    assert_eq!(rig.dev.in_flight(), 0);
}

#[test]
fn a_damaged_head_is_not_read_until_it_is_written_whole() {
    let masked = Arc::new(MaskedHead::of_block(vec![b'L'; HEAD as usize]));
    let mut rig = Rig { dev: MaskedDevice::new(disk(&masked), masked.clone()), ring: Ring::new(4).unwrap() };
    let done = rig.one(0, OpKind::Read(Buf::alloc(8192)));
    assert!(done.result.is_err() && done.buf.is_some(), "the buffer comes back");
    rig.write(512, &[1; 512], false).unwrap_err();
    rig.write(0, &head(4), false).unwrap();
    assert_eq!(rig.read(0, HEAD as usize), head(4));
}

/// The disk after a failed write of the head.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    Before,
    After,
    Torn,
}

/// A disk that fails one write of its first block.
struct OnceBroken {
    ram: RamDevice,
    leaves: Option<Leaves>,
    /// A label is written while that write is under way.
    label: Option<Arc<MaskedHead>>,
}

impl OnceBroken {
    fn failed(&mut self, data: &[u8]) -> Option<IoError> {
        let len = match self.leaves.take()? {
            Leaves::Before => 0,
            Leaves::After => data.len(),
            Leaves::Torn => data.len() / 4,
        };
        if let Some(masked) = self.label.take() {
            masked.write_label(&[b'M'; LABEL], |block| self.ram.write_at(0, block)).unwrap();
        }
        self.ram.write_at(0, &data[..len]).unwrap();
        Some(IoError::new(IoKind::Io, "timeout"))
    }
}

impl SyncIo for &mut OnceBroken {
    fn size(&self) -> u64 {
        MIB
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.ram.read_at(offset, buf)
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.failed(data).map_or(Ok(()), Err)?;
        self.ram.write_at(offset, data)
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

impl Device for OnceBroken {
    fn geometry(&self) -> Geometry {
        Device::geometry(&self.ram)
    }
    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let broken = match &op.kind {
            OpKind::Write { data, .. } => self.failed(data),
            _ => None,
        };
        match broken {
            Some(error) => Submit::Finished(Completion { tag: op.tag, buf: None, result: Err(error) }),
            None => self.ram.submit(ring, now, op),
        }
    }
    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        self.ram.poll(ring, now, out);
    }
    fn next_deadline(&self) -> Option<u64> {
        self.ram.next_deadline()
    }
    fn in_flight(&self) -> usize {
        self.ram.in_flight()
    }
}

#[test]
fn after_a_failed_write_the_head_is_as_the_disk_has_it() {
    for leaves in [Leaves::Before, Leaves::After, Leaves::Torn] {
        let mut after = head(1);
        after[512..1024].fill(6);
        let seen = if leaves == Leaves::After { &after } else { &head(1) };
        let own = masked(1);
        let broken =
            |masked: &MaskedHead| OnceBroken { ram: disk(masked), leaves: Some(leaves), label: None };
        let mut once = broken(&own);
        let mut io = MaskedIo::new(&mut once, own.clone());
        io.write_at(512, &[6; 512]).expect_err("it failed");
        let mut to = vec![0; HEAD as usize];
        io.read_at(0, &mut to).expect("it is known");
        assert_eq!(&to, seen, "{leaves:?}");
        io.write_at(512, &[6; 512]).expect("the disk is well again");
        io.read_at(0, &mut to).expect("it is known");
        assert_eq!(to, after);

        let own = masked(1);
        let dev = MaskedDevice::new(broken(&own), own.clone());
        let mut rig = Rig { dev, ring: Ring::new(4).unwrap() };
        rig.write(512, &[6; 512], false).expect_err("it failed");
        assert_eq!(&rig.read(0, HEAD as usize), seen, "{leaves:?}");
        rig.write(512, &[6; 512], false).expect("the disk is well again");
        assert_eq!(rig.read(0, HEAD as usize), after);
        assert_eq!(rig.dev.in_flight(), 0);
    }
}

#[test]
fn a_label_survives_a_write_of_the_head_that_fails_beside_it() {
    for leaves in [Leaves::Before, Leaves::After, Leaves::Torn] {
        let broken = |masked: &Arc<MaskedHead>| OnceBroken {
            ram: disk(masked),
            leaves: Some(leaves),
            label: Some(masked.clone()),
        };
        let own = masked(1);
        let mut once = broken(&own);
        let mut io = MaskedIo::new(&mut once, own.clone());
        io.write_at(512, &[6; 512]).expect_err("it failed");
        let mut seen = vec![0; HEAD as usize];
        io.read_at(0, &mut seen).expect("it is known");
        let raw = &once.ram.bytes()[..HEAD as usize];
        assert!(raw[..LABEL] == [b'M'; LABEL] && raw == own.block(), "{leaves:?}");
        assert!(body::unpack(raw) == Some(seen), "{leaves:?}");

        let own = masked(1);
        let dev = MaskedDevice::new(broken(&own), own.clone());
        let mut rig = Rig { dev, ring: Ring::new(4).unwrap() };
        rig.write(512, &[6; 512], false).expect_err("it failed");
        let seen = rig.read(0, HEAD as usize);
        let raw = &rig.dev.inner().ram.bytes()[..HEAD as usize];
        assert!(raw[..LABEL] == [b'M'; LABEL] && raw == own.block(), "{leaves:?}");
        assert!(body::unpack(raw) == Some(seen) && rig.dev.in_flight() == 0, "{leaves:?}");
    }
}

#[test]
fn writes_of_the_head_that_are_under_way_together_all_arrive() {
    over_files(|rig, path, masked| {
        // The device holds one block for them all: each must be made from the one before.
        let write = |tag: u64| Op {
            tag,
            offset: tag * 512,
            kind: OpKind::Write { data: Buf::copy_of(&[tag as u8 + 1; 512]).freeze(), fua: false },
        };
        let done = rig.all((0..6).map(write).collect());
        assert!(done.iter().all(|c| c.result.is_ok()), "{done:?}");
        assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
        let head = rig.read(0, HEAD as usize);
        for tag in 0..6 {
            assert_eq!(head[tag * 512..(tag + 1) * 512], [tag as u8 + 1; 512]);
        }
        let raw = std::fs::read(path).unwrap();
        assert_eq!(body::unpack(&raw[..HEAD as usize]).as_ref(), Some(&head));
        assert_eq!(masked.head().as_ref(), Some(&head));
    });
}

#[test]
fn a_label_written_during_a_write_of_the_head_stays_on_the_disk() {
    let seen = std::cell::Cell::new(0);
    over_files(|rig, path, masked| {
        let kind = OpKind::Write { data: Buf::copy_of(&[9; 512]).freeze(), fua: false };
        let taken = rig.dev.submit(&mut rig.ring, 0, Op { tag: 1, offset: 512, kind });
        let Submit::Taken = taken else { return };
        seen.set(seen.get() + 1);
        let file = std::fs::File::options().write(true).open(path).unwrap();
        masked.write_label(&[b'M'; LABEL], |block| file.write_all_at(block, 0)).unwrap();
        // Only now does the kernel get the write with the label from before.
        rig.all(Vec::new());
        assert_eq!(rig.read(512, 512), [9; 512]);
        assert_eq!(std::fs::read(path).unwrap()[..HEAD as usize], masked.block());
        assert_eq!(masked.block()[..LABEL], [b'M'; LABEL]);
    });
    assert!(seen.get() > 0, "on tmpfs it is over at once, and elsewhere not");
}

/// A request: offset and length in sectors, kind, and a seed.
type Asked = (u64, u64, u8, u64);

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    proptest::collection::vec((0u64..20, 1u64..20, 0u8..4, any::<u64>()), 1..40)
}

proptest! {
    #[test]
    fn any_mixture_of_requests_reads_as_on_a_plain_disk(all in asked()) {
        let (mut rig, masked) = rig();
        let own = Arc::new(MaskedHead::of_block(masked.block()));
        let mut io = MaskedIo::new(disk(&own), own.clone());
        let mut plain = head(1);
        plain.extend(&pattern(MIB as usize, 3)[HEAD as usize..]);
        for (offset, len, what, seed) in all {
            let (at, len) = (offset * 512, len * 512);
            // The last sectors of a head stay zeros, as those of a store's do.
            let mut data = pattern(len as usize, seed);
            data.iter_mut().zip(at..).filter(|(_, n)| (body::MOST as u64..HEAD).contains(n)).for_each(|(b, _)| *b = 0);
            let range = at as usize..(at + len) as usize;
            match what {
                0 => prop_assert_eq!(rig.read(at, len as usize), &plain[range.clone()]),
                1 => {
                    rig.write(at, &data, seed % 2 == 0).unwrap();
                    io.write_at(at, &data).unwrap();
                    plain[range.clone()].copy_from_slice(&data);
                }
                2 => {
                    rig.one(at, OpKind::WriteZeroes { len, unmap: false }).result.unwrap();
                    io.write_at(at, &vec![0; len as usize]).unwrap();
                    plain[range.clone()].fill(0);
                }
                _ => rig.one(0, OpKind::Flush).result.unwrap(),
            }
            let mut read = vec![0; len as usize];
            io.read_at(at, &mut read).unwrap();
            prop_assert_eq!(&read, &plain[range]);
        }
        prop_assert_eq!(&masked.block()[..LABEL], [b'L'; LABEL]);
        prop_assert_eq!(masked.block(), own.block(), "both ways write the same");
        prop_assert_eq!(rig.read(0, MIB as usize), plain);
    }
}
