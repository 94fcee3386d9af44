//! What the log says of sectors that a core refuses: each change once, and never oftener than once a minute.

use std::time::{Duration, Instant};

/// Between two lines of the log.
const PAUSE: Duration = Duration::from_secs(60);

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    at: Option<Instant>,
    said: Option<String>,
}

impl Refusals {
    /// The line to log now, if there is one. `refused`: what the core refuses at present.
    pub(crate) fn line(&mut self, now: Instant, refused: Option<String>) -> Option<String> {
        if self.said == refused || self.at.is_some_and(|at| now.duration_since(at) < PAUSE) {
            return None;
        }
        self.at = Some(now);
        self.said = refused;
        Some(match &self.said {
            Some(why) => format!("warning: {why}"),
            None => "the core has taken what it refused".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_sectors_are_logged_once_and_a_change_a_minute_later() {
        let (mut r, begun) = (Refusals::default(), Instant::now());
        let mut line =
            |s: u64, what: Option<&str>| r.line(begun + Duration::from_secs(s), what.map(str::to_owned));
        assert_eq!(line(0, None), None);
        assert_eq!(line(1, Some("a")).as_deref(), Some("warning: a"));
        assert_eq!(line(2, Some("a")), None);
        assert_eq!(line(3, Some("b")), None);
        assert_eq!(line(61, Some("b")).as_deref(), Some("warning: b"));
        assert_eq!(line(100, None), None);
        assert!(line(121, None).is_some_and(|l| l.contains("has taken")));
    }
}
