//! Words as they may be shown: names in them come from devices and clusters, and a terminal obeys what it is sent.

use std::borrow::Cow;

/// A text without characters that a terminal would obey; each is written as JSON writes it, which a text may be. Line ends
/// and tabs stay.
pub(crate) fn shown(words: &str) -> Cow<'_, str> {
    spelt_out(words, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// The same of what is to be one line: the end of a line within it is a name's, and would pass for the beginning of
/// another one.
pub fn one_line(words: &str) -> Cow<'_, str> {
    spelt_out(words, |c| (c.is_control() && c != '\t') || matches!(c, '\u{2028}' | '\u{2029}'))
}

fn spelt_out(words: &str, is_obeyed: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !words.contains(&is_obeyed) {
        return Cow::Borrowed(words);
    }
    let mut text = String::with_capacity(words.len() + 16);
    for c in words.chars() {
        match c {
            '\n' if is_obeyed(c) => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            c if is_obeyed(c) => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
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
            r"volume '\u001b]0;x\u0007': \u009b2J\r\u007f"
        );
    }

    #[test]
    fn a_name_ends_no_line() {
        assert_eq!(one_line("of 'a\nerror: b\u{2028}\u{1b}'"), r"of 'a\nerror: b\u2028\u001b'");
        assert!(matches!(one_line("von\tGrößen"), Cow::Borrowed(_)));
    }

    #[test]
    fn lines_tabs_and_letters_of_every_kind_stay() {
        let words = "a table\n\tvon Größen: 4 KiB\n";
        assert!(matches!(shown(words), Cow::Borrowed(w) if w == words));
    }
}
