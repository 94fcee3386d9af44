//! Other processes, as `/proc` shows them.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of each process.
///
/// # Errors
/// If there is no `/proc`.
pub fn folders() -> io::Result<impl Iterator<Item = PathBuf>> {
    let is_number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    let all = fs::read_dir("/proc")?.flatten();
    Ok(all.filter(move |e| is_number(e.file_name().as_encoded_bytes())).map(|e| e.path()))
}

/// "process 123 (name)" of every process with a descriptor that is `wanted`, by its link in `/proc/PID/fd`. Another user's are seen by root
/// only.
pub fn with_open(wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let holds = |process: &PathBuf| {
        fs::read_dir(process.join("fd")).is_ok_and(|fds| fds.flatten().any(|fd| wanted(&fd.path())))
    };
    let holders = folders().into_iter().flatten().filter(holds);
    holders.filter_map(|p| Some(described(p.file_name()?.to_string_lossy()))).collect()
}

/// "process 123 (name)".
pub fn described(pid: impl Display) -> String {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim_end())
}

/// A process as `/proc/PID/stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `Z`, ...
    pub state: char,
    /// Ticks of user and of system time, all threads.
    pub ticks: u64,
    /// The same of its children that have ended and were waited for.
    pub children_ticks: u64,
    /// Its threads that have not ended; of one that has, itself.
    pub threads: u64,
    /// Ticks from the boot to its start.
    pub start: u64,
}

impl Stat {
    /// The state of process `pid`, a number or `self`.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn of(pid: impl Display) -> io::Result<Stat> {
        Stat::parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat"))?))
            .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is cut short")))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name is in brackets and may hold anything.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let numbers: Vec<u64> = fields.map_while(|f| f.parse::<i64>().ok().map(|n| n as u64)).collect();
        let sum = |from: usize| Some(numbers.get(from)? + numbers.get(from + 1)?);
        let [threads, start] = [*numbers.get(16)?, *numbers.get(18)?];
        Some(Stat { state, ticks: sum(10)?, children_ticks: sum(12)?, threads, start })
    }

    /// It has ended or is about to.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// It has ended with all of its threads. One that was killed is called ended while others of them still hold its files and locks.
    pub fn is_gone(&self) -> bool {
        self.is_ended() && self.threads <= 1
    }

    /// It was stopped by a signal, and goes on by another.
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }
}

/// True if process `pid` has ended or is about to.
pub fn has_ended(pid: impl Display) -> bool {
    Stat::of(pid).map_or(true, |s| s.is_ended())
}

/// The identity of this boot of the machine; empty where the kernel shows none.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_without_a_number_does_not() {
        let own = std::process::id();
        assert!(!has_ended(own) && has_ended(u32::MAX));
        assert!(folders().expect("/proc").any(|p| p.ends_with(own.to_string())));
        let file = tempfile::NamedTempFile::new().expect("a file");
        let holders = with_open(|fd| fs::read_link(fd).is_ok_and(|to| to == file.path()));
        assert!(holders.contains(&described(own)), "{holders:?}");
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = format!("7 (a) b) S {}", (4..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        let expected = Stat { state: 'S', ticks: 14 + 15, children_ticks: 16 + 17, threads: 20, start: 22 };
        assert_eq!(Stat::parse(&stat), Some(expected.clone()));
        let ended = Stat { state: 'Z', ..expected };
        assert!(ended.is_ended() && !ended.is_gone(), "its other threads hold its files");
        assert!(Stat { threads: 1, ..ended.clone() }.is_gone());
        assert_eq!(Stat::parse("7 (a) S 1 2"), None);
    }
}
