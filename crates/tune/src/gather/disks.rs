//! Facts of the disks of a host, from `/sys/block`.

use super::devices::{interrupts, node};
use super::lists::{choices, chosen};
use crate::facts::Disk;
use loligo_block::host_files::HostFiles;

/// Names of block devices that are no disks.
const OTHERS: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "rbd", "nbd", "sr"];

pub(super) fn look(files: &HostFiles, host: &str) -> Vec<Disk> {
    let is_disk = |name: &String| !OTHERS.iter().any(|other| name.starts_with(other));
    files.names("/sys/block").into_iter().filter(is_disk).map(|name| disk(files, host, name)).collect()
}

fn disk(files: &HostFiles, host: &str, name: String) -> Disk {
    let at = format!("/sys/block/{name}");
    let number = |path: &str| files.number(format!("{at}/{path}")).map(|it| it as i64);
    let text = |path: &str| files.read(format!("{at}/{path}")).map(|it| it.trim().to_owned());
    let rotational = number("queue/rotational").map(|it| it == 1);
    let kind = if name.starts_with("nvme") {
        "nvme"
    } else if name.starts_with("vd") {
        "virtio"
    } else if rotational == Some(true) {
        "hdd"
    } else {
        "ssd"
    };
    let scheduler = text("queue/scheduler");
    let has_queue = files.has(format!("{at}/queue"));
    Disk {
        plp: has_queue.then(|| protection(kind, number("queue/fua")).to_owned()),
        host: host.to_owned(),
        model: text("device/model"),
        firmware: text("device/firmware_rev").or_else(|| text("device/rev")),
        kind: Some(kind.to_owned()),
        rotational,
        write_cache: text("queue/write_cache"),
        schedulers: scheduler.as_deref().map(choices),
        scheduler: scheduler.as_deref().and_then(chosen),
        nr_requests: number("queue/nr_requests"),
        queue_depth: number("device/queue_depth"),
        read_ahead_kb: number("queue/read_ahead_kb"),
        rq_affinity: number("queue/rq_affinity"),
        nomerges: number("queue/nomerges"),
        add_random: number("queue/add_random"),
        iostats: number("queue/iostats"),
        max_sectors_kb: number("queue/max_sectors_kb"),
        discard: number("queue/discard_max_bytes").map(|it| it > 0),
        lba: number("queue/logical_block_size"),
        numa_node: text("device/numa_node")
            .or_else(|| text("device/device/numa_node"))
            .and_then(|it| it.parse().ok())
            .or_else(|| node(files, &at)),
        irqs: ["device/device", "device"].iter().find_map(|it| interrupts(files, &format!("{at}/{it}"))),
        bytes: number("size").map(|sectors| sectors * 512),
        crypt: Some(files.names(format!("{at}/holders")).iter().any(|holder| {
            files.read(format!("/sys/block/{holder}/dm/uuid")).is_some_and(|uuid| uuid.starts_with("CRYPT-"))
        })),
        name,
        ..Disk::default()
    }
}

/// Whether a disk keeps what it has in memory when power fails. An NVMe controller says by VWC of Identify whether its cache is
/// volatile, and the kernel shows that as `queue/fua`, which nobody can set. SATA and SAS have no such word: a disk without a
/// volatile cache looks like one whose cache was switched off.
fn protection(kind: &str, fua: Option<i64>) -> &'static str {
    match (kind, fua) {
        ("nvme", Some(0)) => "yes",
        ("nvme", Some(_)) => "no",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_says_whether_its_cache_is_volatile() {
        let dir = tempfile::tempdir().expect("a folder");
        for (disk, fua) in [("nvme0n1", "0"), ("nvme1n1", "1"), ("sda", "0")] {
            let queue = dir.path().join(format!("sys/block/{disk}/queue"));
            std::fs::create_dir_all(&queue).expect("folders");
            // Somebody has told the kernel that none of them needs a flush.
            std::fs::write(queue.join("write_cache"), "write through\n").expect("a file");
            std::fs::write(queue.join("fua"), format!("{fua}\n")).expect("a file");
        }
        let all = look(&HostFiles::new(dir.path()), "n1");
        let said: Vec<_> = all.iter().map(|it| it.plp.as_deref().unwrap_or("?")).collect();
        assert_eq!(said, ["yes", "no", "unknown"]);
    }
}
