//! Words as they may be shown: names in them come from devices and clusters, and a terminal obeys what it is sent.

use std::borrow::Cow;

/// `words` without characters that a terminal would obey; each is written as Rust writes it. Line ends and tabs stay.
pub(crate) fn shown(words: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !words.contains(obeyed) {
        return Cow::Borrowed(words);
    }
    let mut text = String::with_capacity(words.len() + 16);
    for c in words.chars() {
        match obeyed(c) {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_spelt_out() {
        assert_eq!(
            shown("volume '\u{1b}]0;x\u{7}': \u{9b}2J\r\u{7f}"),
            r"volume '\u{1b}]0;x\u{7}': \u{9b}2J\r\u{7f}"
        );
    }

    #[test]
    fn lines_tabs_and_letters_of_every_kind_stay() {
        let words = "a table\n\tvon Größen: 4 KiB\n";
        assert!(matches!(shown(words), Cow::Borrowed(w) if w == words));
    }
}
