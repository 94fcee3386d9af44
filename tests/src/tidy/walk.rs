//! The files and functions that a document names.

use std::path::Path;

/// The functions that `text` names, each with the file that it is to be in: a path of a source in backticks, followed by a function in
/// backticks.
pub fn named(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let spans: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let mut file = None;
        for span in spans {
            if span.starts_with("crates/") && span.ends_with(".rs") {
                file = Some(span);
            } else if let Some(file) = file
                && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            {
                found.push((file.to_owned(), span.to_owned()));
            }
        }
    }
    found
}

/// Those of them that are not below `root`.
pub fn missing(root: &Path, named: &[(String, String)]) -> Vec<String> {
    let is_there = |file: &str, function: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        ["(", "<"].iter().any(|after| text.contains(&format!("fn {function}{after}")))
    };
    let gone = named.iter().filter(|(file, function)| !is_there(file, function));
    gone.map(|(file, function)| format!("{file}: no function {function}")).collect()
}

/// The paths below the root that `text` has in backticks. One with a word in capitals stands for many.
pub fn paths(text: &str) -> Vec<String> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |span: &&str| {
        ["crates/", "docs/", "fuzz/", "scripts/", "tests/"].iter().any(|folder| span.starts_with(folder))
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c))
    };
    spans.filter(is_path).map(str::to_owned).collect()
}

/// Those of them that are not below `root`.
pub fn gone(root: &Path, paths: &[String]) -> Vec<String> {
    let gone = paths.iter().filter(|path| !root.join(path).exists());
    gone.map(|path| format!("{path}: not there")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_is_gone_is_found() {
        let named =
            named("| 1 | `crates/a/src/b.rs` | `one` | `T` |\n`x`: `crates/a/src/c.rs` (`two`, `three`)");
        let of = |file: &str, function: &str| (file.to_owned(), function.to_owned());
        let wanted = [
            of("crates/a/src/b.rs", "one"),
            of("crates/a/src/c.rs", "two"),
            of("crates/a/src/c.rs", "three"),
        ];
        assert_eq!(named, wanted);
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("crates/a/src")).expect("folders");
        std::fs::write(dir.path().join("crates/a/src/b.rs"), "fn one() {}").expect("written");
        std::fs::write(dir.path().join("crates/a/src/c.rs"), "fn two<T>() {}").expect("written");
        assert_eq!(missing(dir.path(), &named), ["crates/a/src/c.rs: no function three"]);
    }

    #[test]
    fn a_path_that_is_gone_is_found() {
        let named = paths("`docs/a.md`, `crates/NAME.rs` and docs/b.md\n`cargo docs/c.md` in `tests/x/`");
        assert_eq!(named, ["docs/a.md", "tests/x/"]);
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("tests/x")).expect("folders");
        assert_eq!(gone(dir.path(), &named), ["docs/a.md: not there"]);
    }
}
