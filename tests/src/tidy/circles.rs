//! Files of a crate that import each other in a circle: nobody can read one of them without all others.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// For each crate, how many of its files may lie in circles of imports. A number may only fall.
pub const MAY_CIRCLE: [(&str, usize); 13] = [
    ("bench", 19),
    ("block", 19),
    ("ceph", 8),
    ("cli", 3),
    ("client", 2),
    ("daemon", 2),
    ("engine", 17),
    ("export", 17),
    ("format", 5),
    ("osd", 12),
    ("shard", 7),
    ("sim", 9),
    ("volume", 11),
];

/// The module that the file at `path` is, by its segments below the crate's root; nothing for tests and other programs.
fn module(path: &str) -> Option<(&str, Vec<&str>)> {
    let (name, below) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut segments: Vec<&str> = below.strip_suffix(".rs")?.split('/').collect();
    if matches!(segments.last(), Some(&("mod" | "lib" | "main"))) {
        segments.pop();
    }
    Some((name, segments))
}

/// The paths in `code` that begin with `first` and `::`, with the trees of a `use` taken apart.
fn paths<'a>(code: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let begin = format!("{first}::");
    for (at, _) in code.match_indices(&begin) {
        let before = code[..at].chars().next_back();
        if before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            tree(&code[at + begin.len()..], &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Takes one path or one tree in braces off the front of `code`; what is left of it.
fn tree<'a>(code: &'a str, stem: &mut Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) -> &'a str {
    let mut rest = code.trim_start();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            inside = tree(inside, &mut stem.clone(), found).trim_start();
            // 'x as y'
            inside = inside.find([',', '}', ';']).map_or("", |end| &inside[end..]);
            match inside.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => inside = more,
                Some(more) => return more.trim_start().get(1..).unwrap_or(""),
                None => return inside.get(1..).unwrap_or(""),
            }
        }
    }
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    stem.push(&rest[..end]);
    rest = &rest[end..];
    match rest.strip_prefix("::") {
        Some(more) => tree(more, stem, found),
        None => {
            found.push(stem.clone());
            rest
        }
    }
}

/// For each crate, the groups of files that import each other in a circle, through however many others.
pub fn circles(sources: &[Source]) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut crates: BTreeMap<&str, BTreeMap<Vec<&str>, &Source>> = BTreeMap::new();
    for source in sources {
        if let Some((name, segments)) = module(&source.path) {
            crates.entry(name).or_default().insert(segments, source);
        }
    }
    let grouped = crates.iter().map(|(name, files)| ((*name).to_owned(), groups(&imports(files))));
    grouped.filter(|(_, groups)| !groups.is_empty()).collect()
}

/// The imports of each file, by their paths. An item in the crate's root is imported from nobody.
fn imports<'a>(files: &BTreeMap<Vec<&str>, &'a Source>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut all = BTreeMap::new();
    for (module, source) in files {
        let code: Vec<&str> = source.production().map(|(_, line)| line).collect();
        let code = code.join("\n");
        let parent = &module[..module.len().saturating_sub(1)];
        let mut named: Vec<Vec<&str>> = paths(&code, "crate");
        named.extend(paths(&code, "super").into_iter().map(|p| [parent, &p].concat()));
        for child in files.keys().filter(|k| !k.is_empty() && k[..k.len() - 1] == module[..]) {
            let last = child[child.len() - 1];
            named.extend(paths(&code, last).into_iter().map(|p| [&child[..], &p].concat()));
        }
        let mut of: BTreeSet<&str> = BTreeSet::new();
        for path in named {
            let longest = (1..=path.len()).rev().find_map(|n| files.get(&path[..n]));
            of.extend(longest.map(|s| s.path.as_str()).filter(|p| *p != source.path));
        }
        if !module.is_empty() {
            all.insert(source.path.as_str(), of);
        }
    }
    all
}

/// Files that reach each other, the largest group first.
fn groups(imports: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|from| (*from, reached(from, imports))).collect();
    let mut seen = BTreeSet::new();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (from, to) in &reach {
        let group: Vec<&str> = to.iter().filter(|f| reach[**f].contains(from)).copied().collect();
        if group.len() > 1 && seen.insert(group.clone()) {
            found.push(group.into_iter().map(str::to_owned).collect());
        }
    }
    found.sort_by_key(|g| std::cmp::Reverse(g.len()));
    found
}

fn reached<'a>(from: &'a str, imports: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut all, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(next) = todo.pop() {
        for to in imports.get(next).into_iter().flatten().copied().filter(|to| imports.contains_key(to)) {
            if all.insert(to) {
                todo.push(to);
            }
        }
    }
    all
}

/// The faults of `circles`: a crate with more files in circles than it may have, or fewer, so that the number is to fall.
pub fn check(circles: &BTreeMap<String, Vec<Vec<String>>>, may: &[(&str, usize)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let names: BTreeSet<&str> = circles.keys().map(String::as_str).chain(may.iter().map(|m| m.0)).collect();
    for name in names {
        let allowed = may.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
        let groups = circles.get(name).map_or(&[][..], Vec::as_slice);
        let there: usize = groups.iter().map(Vec::len).sum();
        if there > allowed {
            let files: Vec<String> = groups.iter().map(|g| g.join(" ")).collect();
            wrong.push(format!(
                "{name}: {there} files in circles, {allowed} may be: {}; move what they share into a file that imports none of them",
                files.join("; ")
            ));
        } else if there < allowed {
            wrong.push(format!(
                "{name}: {there} files in circles; set its number in MAY_CIRCLE (tests/src/tidy/circles.rs) to that"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> BTreeMap<String, Vec<Vec<String>>> {
        circles(&files.iter().map(|(path, text)| Source::new(path, text)).collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_through_trees_and_parents_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod x; mod y; pub use x::X;"),
            ("crates/a/src/x.rs", "use crate::{z, y::{self, In as Other}};"),
            ("crates/a/src/y/mod.rs", "mod deep; fn f() { deep::g() }"),
            ("crates/a/src/y/deep.rs", "use super::super::x; use crate::x::X;"),
            ("crates/a/src/z.rs", "use crate::X; // use crate::x::X"),
        ];
        let circle = ["crates/a/src/x.rs", "crates/a/src/y/deep.rs", "crates/a/src/y/mod.rs"];
        assert_eq!(of(&files)["a"], [circle]);
    }

    #[test]
    fn imports_one_way_and_tests_make_no_circle() {
        let files = [
            ("crates/a/src/x.rs", "use crate::y::Y;"),
            ("crates/a/src/y.rs", "#[cfg(test)]\nmod tests {\n    use crate::x::X;\n}\n"),
        ];
        assert!(of(&files).is_empty());
    }

    #[test]
    fn the_number_of_files_in_circles_only_falls() {
        let two = of(&[("crates/a/src/x.rs", "use crate::y::Y;"), ("crates/a/src/y.rs", "use super::x;")]);
        assert!(check(&two, &[])[0].starts_with("a: 2 files"));
        assert!(check(&two, &[("a", 2)]).is_empty());
        assert!(check(&two, &[("a", 3)])[0].contains("set its number"));
    }
}
