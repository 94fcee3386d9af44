//! The layers that a path leads through: devices of the kernel and volumes of Loligo, down to disks.

use super::devices;
use super::volumes::Volume;
use loligo_block::host_files::HostFiles;
use loligo_block::mounts::{self, Mount};
use std::path::{Path, PathBuf};

/// Links and layers that are followed at most: nobody stacks so many, and a circle ends.
const DEEPEST: usize = 32;
/// The type of a file system that lies in memory, and has no device.
const MEMORY: &str = "tmpfs";

/// One layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layer {
    /// A block device of the kernel, by its name in `/sys/block`.
    Device(String),
    /// The volume of this number.
    Volume(usize),
    /// A volume of this name that could not be asked.
    Silent(String),
}

/// A host whose layers are looked at.
#[derive(Debug)]
pub(super) struct Stack<'a> {
    pub(super) files: &'a HostFiles,
    pub(super) volumes: &'a [Volume],
}

impl Stack<'_> {
    /// All layers below `path`, the topmost first, as a process with these `mounts` sees it. Nothing where the path leads nowhere.
    pub(super) fn below(&self, path: &Path, mounts: &[Mount]) -> Vec<Layer> {
        let mut found = Vec::new();
        let mut next = self.under_path(path, mounts);
        while !next.is_empty() && found.len() < DEEPEST {
            let layer = next.remove(0);
            if found.contains(&layer) {
                continue;
            }
            next.extend(match &layer {
                Layer::Device(name) => self.under_device(name, mounts),
                Layer::Volume(at) => {
                    plain(&self.volumes[*at].core).map_or_else(Vec::new, |core| self.under_path(core, mounts))
                }
                Layer::Silent(_) => Vec::new(),
            });
            found.push(layer);
        }
        found
    }

    /// The disk or whole device at the end of the first way down.
    pub(super) fn disk(&self, path: &Path, mounts: &[Mount]) -> Option<String> {
        self.below(path, mounts).into_iter().rev().find_map(|layer| match layer {
            Layer::Device(name) if name != MEMORY => Some(name),
            _ => None,
        })
    }

    /// The layer that a path is.
    fn under_path(&self, path: &Path, mounts: &[Mount]) -> Vec<Layer> {
        let path = self.resolved(path);
        if let Some(name) = device_name(&path) {
            return self.mapped(name).map_or_else(Vec::new, |name| vec![self.device(&name)]);
        }
        let Some(mount) = mounts::around(mounts, &path) else { return Vec::new() };
        if let Some(name) = mount.source.strip_prefix("loligo:") {
            return vec![self.volume(name, |it| it.is_in(&mount.at))];
        }
        if mount.kind == MEMORY {
            return vec![Layer::Device(MEMORY.to_owned())];
        }
        let number = self.files.link(format!("/sys/dev/block/{}", mount.device));
        number.and_then(|link| file_name(&link)).map_or_else(Vec::new, |name| vec![self.device(&name)])
    }

    /// The device, as what serves it.
    fn device(&self, name: &str) -> Layer {
        let links = self.files.names("/dev/loligo");
        let mut named = links.into_iter().filter(|link| {
            let to = self.files.link(format!("/dev/loligo/{link}"));
            to.and_then(|to| file_name(&to)).as_deref() == Some(name)
        });
        match named.next() {
            Some(link) => self.volume(&link, |it| it.is_device(&link)),
            None => Layer::Device(self.whole(name)),
        }
    }

    fn volume(&self, name: &str, is_it: impl Fn(&Volume) -> bool) -> Layer {
        let at = self.volumes.iter().position(is_it);
        at.map_or_else(|| Layer::Silent(name.to_owned()), Layer::Volume)
    }

    fn under_device(&self, name: &str, mounts: &[Mount]) -> Vec<Layer> {
        let slaves = self.files.names(format!("/sys/block/{name}/slaves"));
        let mut under: Vec<Layer> = slaves.iter().map(|slave| Layer::Device(self.whole(slave))).collect();
        if let Some(file) = self.files.read(format!("/sys/block/{name}/loop/backing_file")) {
            under.extend(self.under_path(Path::new(&file), mounts));
        }
        under
    }

    /// The device that a partition is a part of.
    fn whole(&self, name: &str) -> String {
        devices::whole(self.files, name).unwrap_or_else(|| name.to_owned())
    }

    /// The kernel's name of a device, which may be given by a name of the device mapper.
    fn mapped(&self, name: String) -> Option<String> {
        if self.files.has(format!("/sys/class/block/{name}")) || self.files.has(format!("/sys/block/{name}"))
        {
            return Some(name);
        }
        let mut all = self.files.names("/sys/block").into_iter();
        let by_name = |dm: &String| {
            self.files.read(format!("/sys/block/{dm}/dm/name")).as_deref() == Some(name.as_str())
        };
        all.find(by_name).or_else(|| (self.whole(&name) != name).then(|| name.clone()))
    }

    /// The path without the links at its end.
    fn resolved(&self, path: &Path) -> PathBuf {
        let mut path = path.to_owned();
        for _ in 0..DEEPEST {
            let Some(to) = self.files.link(&path) else { break };
            path = path.parent().map_or_else(|| to.clone(), |parent| plain_path(&parent.join(&to)));
        }
        path
    }
}

/// The name of a device node.
fn device_name(path: &Path) -> Option<String> {
    path.starts_with("/dev").then(|| file_name(path)).flatten()
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// A path without `..`.
fn plain_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// The path in a device as volumes take it: `/dev/sdb`, `file:PATH`, `hdd:PATH?rpm=7200`, `pool:PATH#0`. Nothing for what has none.
pub(super) fn plain(spec: &str) -> Option<&Path> {
    let kinds = ["file:", "hdd:", "block:", "pool:"];
    let rest = kinds.iter().find_map(|kind| spec.strip_prefix(kind)).unwrap_or(spec);
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    rest.starts_with('/').then(|| Path::new(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn device(name: &str) -> Layer {
        Layer::Device(name.to_owned())
    }

    #[test]
    fn a_logical_volume_on_a_partition_leads_to_its_disk() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |path: &str| dir.path().join(path);
        for folder in [
            "sys/block/dm-3/slaves/sdb1",
            "sys/block/sdb/sdb1",
            "dev/ceph-1",
            "sys/block/dm-3/dm",
            "sys/class/block/dm-3",
        ] {
            std::fs::create_dir_all(at(folder)).expect("folders");
        }
        std::fs::write(at("sys/block/sdb/sdb1/partition"), "1\n").expect("a file");
        std::fs::write(at("sys/block/dm-3/dm/name"), "ceph--1-osd--block\n").expect("a file");
        symlink("../dm-3", at("dev/ceph-1/osd-block")).expect("a link");
        let files = HostFiles::new(dir.path());
        let stack = Stack { files: &files, volumes: &[] };
        let want = [device("dm-3"), device("sdb")];
        assert_eq!(stack.below(Path::new("/dev/ceph-1/osd-block"), &[]), want);
        assert_eq!(stack.below(Path::new("/dev/mapper/ceph--1-osd--block"), &[]), want);
        assert_eq!(stack.disk(Path::new("/dev/sdb1"), &[]).as_deref(), Some("sdb"));
        assert_eq!(stack.below(Path::new("/dev/none"), &[]), []);
    }

    #[test]
    fn a_file_of_a_volume_leads_to_the_volume_and_its_core() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("sys/class/block/sdc")).expect("a folder");
        std::fs::create_dir_all(dir.path().join("sys/block/sdc")).expect("a folder");
        let files = HostFiles::new(dir.path());
        let volume = |mount: &str, core: &str| Volume {
            name: "disk0".into(),
            core: core.into(),
            listen: vec![format!("fuse:{mount}")],
            ..Volume::default()
        };
        let volumes = [volume("/other/disk", "/dev/sdd"), volume("/lab/disk", "hdd:/dev/sdc?rpm=7200")];
        let stack = Stack { files: &files, volumes: &volumes };
        let mount = |at: &str| Mount {
            device: "0:45".into(),
            at: at.into(),
            kind: "fuse".into(),
            source: "loligo:disk0".into(),
        };
        let below = |at: &str| stack.below(&Path::new(at).join("disk0"), &[mount(at)]);
        assert_eq!(below("/lab/disk"), [Layer::Volume(1), device("sdc")]);
        assert_eq!(below("/lab/none"), [Layer::Silent("disk0".into())]);
    }
}
