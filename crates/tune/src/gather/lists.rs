//! Lists of numbers as the kernel writes them.

/// `0-3,8` as its numbers.
pub(crate) fn numbers(list: &str) -> Vec<i64> {
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<i64>(), to.trim().parse::<i64>()) {
            all.extend(from..=to);
        }
    }
    all
}

/// The word of a list that is in brackets: `[none] mq-deadline`.
pub(crate) fn chosen(list: &str) -> Option<String> {
    let (_, rest) = list.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// All words of such a list.
pub(super) fn choices(list: &str) -> Vec<String> {
    list.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(numbers("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers(""), [0; 0]);
        assert_eq!(numbers("nonsense,2"), [2]);
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(choices("[none] mq-deadline"), ["none", "mq-deadline"]);
        assert_eq!(chosen("none"), None);
    }
}
