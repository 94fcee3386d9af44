//! What a volume has to say to its operator, on stderr. Where one process serves many, each line names its volume, and whoever waits for
//! the volume elsewhere can be told the last.

use std::cell::RefCell;
use std::fmt::Arguments;
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    static SPEAKER: RefCell<Option<Speaker>> = const { RefCell::new(None) };
}

/// The last line that a volume said; empty where there is none.
pub(crate) type LastWords = Arc<Mutex<String>>;

struct Speaker {
    name: String,
    last: LastWords,
}

/// From now on this thread speaks for the volume `name`, whose last line is to be found in `last`.
pub(crate) fn speak_for(name: &str, last: &LastWords) {
    let speaker = Speaker { name: name.to_owned(), last: last.clone() };
    SPEAKER.with_borrow_mut(|s| *s = Some(speaker));
}

/// The name to put before a line of this thread's, with what parts them; empty where there is only one volume.
pub(crate) fn prefix() -> String {
    SPEAKER.with_borrow(|s| s.as_ref().map(|s| format!("{}: ", s.name)).unwrap_or_default())
}

/// Says a line.
pub(crate) fn line(words: Arguments<'_>) {
    SPEAKER.with_borrow(|s| match s {
        None => eprintln!("{words}"),
        Some(speaker) => {
            let words = words.to_string();
            eprintln!("{}: {words}", speaker.name);
            *speaker.last.lock().unwrap_or_else(PoisonError::into_inner) = words;
        }
    });
}

/// A line on stderr.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}
pub(crate) use say;
