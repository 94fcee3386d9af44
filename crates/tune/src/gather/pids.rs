//! Processes of a host, by the names of their programs. Those of another container are seen as well, where `/proc` is the host's.

use loligo_block::host_files::HostFiles;

/// The numbers of all processes.
pub(super) fn all(files: &HostFiles) -> Vec<String> {
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    files.names("/proc").into_iter().filter(is_process).collect()
}

/// The name of a process's program.
pub(super) fn program(files: &HostFiles, pid: &str) -> Option<String> {
    files.read(format!("/proc/{pid}/comm"))
}

/// The numbers of processes of these programs.
pub(super) fn of(files: &HostFiles, programs: &[&str]) -> Vec<String> {
    let is_it = |pid: &String| program(files, pid).is_some_and(|it| programs.contains(&it.as_str()));
    all(files).into_iter().filter(is_it).collect()
}
