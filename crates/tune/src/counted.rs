//! Numbers of things in words.

/// A number with its noun, as `1 OSD`, `2 OSDs`, `3 entries`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    match (noun.strip_suffix('y'), noun.ends_with('s')) {
        (Some(stem), _) => format!("{count} {stem}ies"),
        (None, true) => format!("{count} {noun}es"),
        (None, false) => format!("{count} {noun}s"),
    }
}

/// The word that goes with so many.
pub fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        let of = |noun: &str| [0, 1, 2].map(|count| counted(count, noun)).join(", ");
        assert_eq!(of("OSD"), "0 OSDs, 1 OSD, 2 OSDs");
        assert_eq!(of("entry"), "0 entries, 1 entry, 2 entries");
        assert_eq!(of("OSD address"), "0 OSD addresses, 1 OSD address, 2 OSD addresses");
        assert_eq!([0, 1, 2].map(is_or_are), ["are", "is", "are"]);
    }
}
