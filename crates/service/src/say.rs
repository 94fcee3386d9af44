//! What a volume has to say to its operator, on stderr. Where one process serves many, each line names its volume.

use std::cell::RefCell;

thread_local! {
    static VOLUME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on this thread speaks for the volume `name`.
pub(crate) fn speak_for(name: &str) {
    VOLUME.with_borrow_mut(|v| format!("{name}: ").clone_into(v));
}

/// The name to put before a line of this thread's, with what parts them; empty where there is only one volume.
pub(crate) fn prefix() -> String {
    VOLUME.with_borrow(String::clone)
}

/// A line on stderr.
macro_rules! say {
    ($($words:tt)*) => {
        eprintln!("{}{}", $crate::say::prefix(), format_args!($($words)*))
    };
}
pub(crate) use say;
