//! The remains of a guard that other programs and other versions leave.

use loligo_block::{RamDevice, SyncIo, crc32c};
use loligo_engine::open::{FormatOptions, format};
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label;
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, SuperError, Superblock};

/// `wipefs -a` on a stopped core takes two bytes for LVM1's mark, and two of the partition table.
#[test]
fn a_label_without_its_first_mark_is_not_absent() {
    let label = CoreLabel {
        generation: 4,
        cache: [7; 16],
        name: "osd3".to_owned(),
        data_start: 0,
        dirty_bytes: Some(12_288),
        through: false,
    };
    let mut core = RamDevice::new(2 << 20).unwrap();
    let mut raw = in_place_label::encode(&label);
    raw[..2].fill(0);
    core.write_at(0, &raw).unwrap();
    assert!(in_place_label::is_label(&raw), "its magic, name and checksum are there");
    assert!(!matches!(CoreLabel::load(&mut core), Err(SuperError::Absent)));
}

/// A later version was cut off between its two copies: the newer copy says so.
#[test]
fn an_older_copy_does_not_count_beside_a_newer_version() {
    let mut dev = RamDevice::new(64 << 20).unwrap();
    let options = FormatOptions {
        uuid: [3; 16],
        name: "v".to_owned(),
        cache_size: 64 << 20,
        core: CoreIdentity { size: 64 << 20, id: String::new() },
        line_size: 4096,
        shards: 1,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    };
    let mut sb = format(&mut dev, &options).unwrap();
    sb.generation += 1;
    let mut raw = sb.encode();
    raw[16..20].copy_from_slice(&3u32.to_le_bytes());
    raw[20..24].fill(0);
    let crc = crc32c(&raw);
    raw[20..24].copy_from_slice(&crc.to_le_bytes());
    dev.write_at(512 << 10, &raw).unwrap();
    let found = Superblock::load(&mut dev);
    assert!(matches!(found, Err(SuperError::TooNew(_))), "{:?}", found.map(|sb| sb.generation));
}
