//! Lines of the log in the name of a volume. The last one is kept for those who wait for the volume elsewhere.

use parking_lot::Mutex;
use std::cell::RefCell;
use std::fmt::Arguments;
use std::sync::Arc;

thread_local! {
    static SPEAKER: RefCell<Option<Speaker>> = const { RefCell::new(None) };
}

/// The last line that a volume said; empty where there is none.
pub type LastWords = Arc<Mutex<String>>;

struct Speaker {
    name: String,
    last: LastWords,
}

/// From now on this thread speaks for the volume `name`, whose last line is to be found in `last`.
pub fn speak_for(name: &str, last: &LastWords) {
    let speaker = Speaker { name: name.to_owned(), last: last.clone() };
    SPEAKER.with_borrow_mut(|s| *s = Some(speaker));
}

/// The name that this thread speaks for; nothing where there is only one volume.
pub fn speaker() -> Option<String> {
    SPEAKER.with_borrow(|s| s.as_ref().map(|s| s.name.clone()))
}

/// Says a line.
pub fn speak(words: Arguments<'_>) {
    SPEAKER.with_borrow(|s| match s {
        None => crate::line(None, words),
        Some(speaker) => {
            crate::line(Some(&speaker.name), words);
            *speaker.last.lock() = words.to_string();
        }
    });
}
