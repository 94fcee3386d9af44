//! Recognising what somebody else put on a device, so that formatting it needs to be said twice.

/// The bytes from the start of a device that [`foreign_signature`] wants to see.
pub const SIGNATURE_PROBE: usize = 256 << 10;

/// Name, offset and bytes of marks that are enough by themselves. From the on-disk formats' own definitions (those in
/// the Linux kernel's uapi headers where there are any).
const MARKS: [(&str, usize, &[u8]); 33] = [
    ("a Loligo pool (a core's share of it is pool:PATH#CORE)", 0, b"LOLIGOPL"),
    // What Loligo writes begins as LVM1's members did, so that others leave it alone.
    ("a Loligo pool (a core's share of it is pool:PATH#CORE)", 0, b"HM\x01\0\0\0\0\0LOLIGOPL"),
    ("a Loligo cache", 0, b"HM\x01\0\0\0\0\0LOLIGOSB"),
    ("a core of Loligo's", 0, b"HM\x01\0\0\0\0\0LOLIGOHM"),
    ("a core of Loligo's", 0, b"HM\x01\0\0\0\0\0LOLIGOVL"),
    ("a leg of a mirrored cache of Loligo's", 0, b"HM\x01\0\0\0\0\0LOLIGOMR"),
    ("LVM1 physical volume", 0, b"HM\x01\0"),
    ("LVM1 physical volume", 0, b"HM\x02\0"),
    ("Ceph BlueStore", 0, b"bluestore block device"),
    ("LUKS", 0, b"LUKS\xba\xbe"),
    ("XFS", 0, b"XFSB"),
    ("btrfs", 0x10040, b"_BHRfS_M"),
    ("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("squashfs", 0, b"hsqs"),
    ("NTFS", 3, b"NTFS    "),
    ("exFAT", 3, b"EXFAT   "),
    ("FAT", 82, b"FAT32   "),
    ("FAT", 54, b"FAT1"),
    ("ISO 9660", 32769, b"CD001"),
    ("LVM2 physical volume", 512, b"LABELONE"),
    ("LVM2 physical volume", 0, b"LABELONE"),
    ("LVM2 physical volume", 1024, b"LABELONE"),
    ("LVM2 physical volume", 1536, b"LABELONE"),
    (
        "bcache",
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    ("Linux RAID", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("Linux RAID", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("swap", 4086, b"SWAPSPACE2"),
    ("swap", 65526, b"SWAPSPACE2"),
    ("qcow2 image", 0, b"QFI\xfb"),
    ("VMDK image", 0, b"KDMV"),
    ("GPT partition table", 512, b"EFI PART"),
    ("GPT partition table", 4096, b"EFI PART"),
    ("ext2/3/4", 0x438, &[0x53, 0xef]),
];

/// ZFS keeps up to 128 uberblocks of 1 KiB or more from 128 KiB on; each starts with this, in either byte order.
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;

/// The content of a device that starts with `head` (up to [`SIGNATURE_PROBE`] bytes), `None` when all of it is zero.
pub fn foreign_signature(head: &[u8]) -> Option<&'static str> {
    known_signature(head).or_else(|| head.iter().any(|b| *b != 0).then_some("unknown data"))
}

/// The same, where it is known whose it is.
pub fn known_signature(head: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, len: usize| head.get(offset..offset + len);
    if let Some((name, ..)) = MARKS.iter().find(|(_, offset, mark)| at(*offset, mark.len()) == Some(*mark)) {
        return Some(name);
    }
    let zfs = (128 << 10..SIGNATURE_PROBE).step_by(1024).any(|o| {
        at(o, 8).is_some_and(|b| {
            let n = u64::from_le_bytes(b.try_into().expect("eight bytes were taken"));
            n == ZFS_UBERBLOCK || n.swap_bytes() == ZFS_UBERBLOCK
        })
    });
    if zfs {
        return Some("ZFS");
    }
    (at(510, 2) == Some(&[0x55, 0xaa])).then_some("MBR partition table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_recognised_where_it_belongs() {
        for (name, offset, mark) in MARKS {
            let mut head = vec![0; SIGNATURE_PROBE];
            head[offset..offset + mark.len()].copy_from_slice(mark);
            assert_eq!(foreign_signature(&head), Some(name));
        }
    }

    #[test]
    fn zeros_are_free_and_a_single_other_byte_is_unknown_data() {
        let mut head = vec![0; SIGNATURE_PROBE];
        assert_eq!(foreign_signature(&head), None);
        assert_eq!(foreign_signature(&[]), None);
        head[SIGNATURE_PROBE - 1] = 1;
        assert_eq!(foreign_signature(&head), Some("unknown data"));
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(foreign_signature(&head), Some("MBR partition table"));
        head[(130 << 10)..(130 << 10) + 8].copy_from_slice(&ZFS_UBERBLOCK.to_be_bytes());
        assert_eq!(foreign_signature(&head), Some("ZFS"));
    }
}
