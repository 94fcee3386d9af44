//! Limits of the control groups of a process, of version 2 and of version 1.

use loligo_block::host_files::HostFiles;

/// The memory that it may have, bytes; 0: there is no limit. Nothing: no limit can be read.
pub(super) fn memory(files: &HostFiles, pid: &str) -> Option<i64> {
    let of_two = |text: &str| if text == "max" { Some(i64::MAX) } else { text.parse().ok() };
    let of_one =
        |group: &str| files.read(format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"))?.parse().ok();
    // A number near the greatest is how version 1 says that there is none.
    let is_none = |limit: &i64| *limit > i64::MAX >> 1;
    let limit = least(files, pid, "memory.max", of_two).or_else(|| of_one(&named(files, pid, "memory")?))?;
    Some(if is_none(&limit) { 0 } else { limit })
}

/// The processors that it may use; 0: there is no limit. Nothing: no limit can be read.
pub(super) fn cpus(files: &HostFiles, pid: &str) -> Option<f64> {
    let of_two = |text: &str| {
        let (quota, period) = text.split_once(' ')?;
        if quota == "max" {
            Some(f64::INFINITY)
        } else {
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
        }
    };
    let of_one = |group: &str| {
        let number = |name: &str| {
            files.read(format!("/sys/fs/cgroup/cpu{group}/cpu.cfs_{name}_us"))?.parse::<f64>().ok()
        };
        let quota = number("quota")?;
        if quota < 0.0 { Some(f64::INFINITY) } else { Some(quota / number("period")?) }
    };
    let limit = least(files, pid, "cpu.max", of_two).or_else(|| of_one(&named(files, pid, "cpu")?))?;
    Some(if limit.is_finite() { limit } else { 0.0 })
}

/// The least of the limits `name` of its group of version 2 and of those around it. The outermost group has none.
fn least<T: PartialOrd>(
    files: &HostFiles,
    pid: &str,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let group = named(files, pid, "")?;
    let folders =
        std::iter::successors(Some(group.as_str()), |path| path.rsplit_once('/').map(|(above, _)| above));
    let limits = folders.filter_map(|path| read(&files.read(format!("/sys/fs/cgroup{path}/{name}"))?));
    limits.reduce(|one, other| if other < one { other } else { one })
}

/// The group of this controller, without the slash at its end; that of version 2 has no name.
fn named(files: &HostFiles, pid: &str, controller: &str) -> Option<String> {
    let text = files.read(format!("/proc/{pid}/cgroup"))?;
    let mut lines =
        text.lines().filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
    let is_it = |names: &str| names.split(',').any(|name| name == controller);
    lines.find(|[names, _]: &[&str; 2]| is_it(names)).map(|[_, path]| path.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostFiles) {
        let dir = small_tree::tree(files);
        let files = HostFiles::new(dir.path());
        (dir, files)
    }

    #[test]
    fn the_narrowest_group_of_version_two_counts() {
        let at = "sys/fs/cgroup/a.slice";
        let (_dir, files) = tree(&[
            ("proc/7/cgroup", "0::/a.slice/b.service\n"),
            (&format!("{at}/b.service/memory.max"), "max\n"),
            (&format!("{at}/memory.max"), "4096\n"),
            (&format!("{at}/b.service/cpu.max"), "250000 100000\n"),
            (&format!("{at}/cpu.max"), "max 100000\n"),
        ]);
        assert_eq!((memory(&files, "7"), cpus(&files, "7")), (Some(4096), Some(2.5)));
    }

    #[test]
    fn version_one_says_no_limit_by_a_great_number() {
        let (_dir, files) = tree(&[
            ("proc/7/cgroup", "4:memory:/x\n1:cpu,cpuacct:/\n0::/\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ]);
        assert_eq!((memory(&files, "7"), cpus(&files, "7")), (Some(0), Some(0.0)));
        let (_dir, files) = tree(&[("proc/7/cgroup", "0::/\n")]);
        assert_eq!((memory(&files, "7"), cpus(&files, "7")), (None, None));
    }
}
