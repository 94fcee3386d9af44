//! The look of a line: with a priority for the journal, with a time stamp in a service's file, plain in a terminal.

use rustix::fs::fstat;
use std::io;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The priorities of syslog that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// A thread has panicked.
    Critical = 2,
    /// Something failed.
    Error = 3,
    /// Something may fail, or was given up.
    Warning = 4,
    /// Something happened.
    Info = 6,
    /// For those who look for a fault.
    Debug = 7,
}

impl Level {
    /// The priority that a line has by its first word.
    pub(crate) fn of(words: &str) -> Level {
        match words.split_once(':').map(|(first, _)| first) {
            Some("error") => Level::Error,
            Some("warning") => Level::Warning,
            _ => Level::Info,
        }
    }
}

/// The style of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `<4>words`: the journal takes the number for the priority, and has the time itself.
    Journal,
    /// `2026-11-23T18:56:53.123Z words`
    Stamped,
    /// `words`
    Plain,
}

impl Style {
    /// A service's.
    pub(crate) fn of_service() -> Style {
        if is_journal() { Style::Journal } else { Style::Stamped }
    }

    /// A command's.
    pub(crate) fn of_command() -> Style {
        if is_journal() { Style::Journal } else { Style::Plain }
    }

    /// The line or lines of `words`, each with the prefix and an end.
    pub(crate) fn render(self, level: Level, who: Option<&str>, words: &str) -> String {
        let mut prefix = match self {
            Style::Journal => format!("<{}>", level as u8),
            Style::Stamped => format!("{} ", humantime::format_rfc3339_millis(SystemTime::now())),
            Style::Plain => String::new(),
        };
        if let Some(who) = who {
            prefix.push_str(who);
            prefix.push_str(": ");
        }
        let mut text = String::with_capacity(prefix.len() + words.len() + 1);
        for (n, line) in words.trim_end_matches('\n').split('\n').enumerate() {
            text.push_str(&prefix);
            // In a log a line is a message: none that a name ends in the middle is to look like another.
            if n > 0 && self != Style::Plain {
                text.push_str("  ");
            }
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// True if standard error goes to the journal: systemd names the device and inode of the stream that it gave.
fn is_journal() -> bool {
    static JOURNAL: OnceLock<bool> = OnceLock::new();
    *JOURNAL.get_or_init(|| {
        let Ok(stat) = fstat(io::stderr()) else { return false };
        std::env::var("JOURNAL_STREAM").is_ok_and(|named| named == format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_gives_the_priority() {
        assert_eq!(Level::of("error: a core: gone"), Level::Error);
        assert_eq!(Level::of("warning: a core"), Level::Warning);
        for words in ["", "serving", "errors: none", "no error: at all"] {
            assert_eq!(Level::of(words), Level::Info, "{words}");
        }
    }

    #[test]
    fn every_line_has_its_prefix_and_further_ones_are_indented() {
        assert_eq!(Style::Plain.render(Level::Info, None, "a"), "a\n");
        assert_eq!(Style::Journal.render(Level::Warning, Some("v"), "a\nb\n"), "<4>v: a\n<4>v:   b\n");
        let stamped = Style::Stamped.render(Level::Info, None, "a");
        assert!(stamped.starts_with("20") && stamped.ends_with("Z a\n") && stamped.len() == 27, "{stamped}");
    }
}
