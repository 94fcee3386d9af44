//! The identity of a disk: its name in the kernel goes to another one at a boot or a swap.

use loligo_block::host_files::HostFiles;

/// The folder of block devices.
const FOLDER: &str = "/sys/block/";

/// True if a path below /sys is of a block device.
pub(super) fn is_of_disk(key: &str) -> bool {
    key.starts_with(FOLDER)
}

/// The identity of the disk that a path below /sys is of: its world wide name, else its serial number and model, else its id in the
/// device mapper or among arrays. Nothing: it is of no disk, or the disk does not say.
pub(super) fn identity(host: &HostFiles, key: &str) -> Option<String> {
    let name = key.strip_prefix(FOLDER)?.split('/').next()?;
    let read = |file: &str| {
        let text = host.read(format!("{FOLDER}{name}/{file}"))?;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (!words.is_empty()).then_some(words)
    };
    let first = |files: &[&str]| files.iter().find_map(|file| read(file));
    let by_serial = || {
        let serial = first(&["device/serial", "serial"])?;
        Some(format!("{} {serial}", read("device/model").unwrap_or_default()).trim().to_owned())
    };
    first(&["wwid", "device/wwid"]).or_else(by_serial).or_else(|| first(&["dm/uuid", "md/uuid"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::tree;

    #[test]
    fn a_disk_is_known_by_what_it_says_of_itself() {
        let dir = tree(&[
            ("sys/block/nvme0n1/wwid", "eui.01\n"),
            ("sys/block/sda/device/wwid", "naa.5\n"),
            ("sys/block/sdb/device/model", "Disk  X\n"),
            ("sys/block/sdb/device/serial", "S1\n"),
            ("sys/block/vda/serial", "V1\n"),
            ("sys/block/sdc/size", "1\n"),
        ]);
        let host = HostFiles::new(dir.path());
        let of = |name: &str| identity(&host, &format!("/sys/block/{name}/queue/write_cache"));
        let all = ["nvme0n1", "sda", "sdb", "vda"].map(|name| of(name).unwrap_or_default());
        assert_eq!(all, ["eui.01", "naa.5", "Disk X S1", "V1"]);
        assert_eq!((of("sdc"), identity(&host, "/sys/kernel/mm/x")), (None, None));
    }
}
