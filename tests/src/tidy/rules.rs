//! Rules about sources. Each returns what is wrong as `path:line: why`.

use super::source::Source;

/// Most lines of code a file may have outside tests. The aim is 600; the rest is room to finish a thought.
pub const LONGEST: usize = 650;
/// The median file is to have at most this many.
pub const MEDIAN: usize = 250;

fn at(s: &Source, line: usize, why: &str) -> String {
    format!("{}:{line}: {why}", s.path)
}

/// A file is one idea.
pub fn length(s: &Source) -> Vec<String> {
    let n = s.length();
    if n <= LONGEST {
        return Vec::new();
    }
    vec![format!("{}: {n} lines of code, at most {LONGEST}: split it", s.path)]
}

/// The middle of `lengths`, 0 where there is none.
pub fn median(lengths: &mut [usize]) -> usize {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or(0)
}

/// Words that would bring time, chance, threads or another order into a replay.
const BANNED: [(&str, &str); 14] = [
    ("Instant::now", "reads a clock: time comes in with the event"),
    ("SystemTime", "reads a clock: time comes in with the event"),
    ("std::time::Instant", "is a clock: time comes in with the event"),
    ("std::thread", "starts or waits for threads"),
    ("thread_rng", "draws entropy: seeds come in"),
    ("rand::rng()", "draws entropy: seeds come in"),
    ("getrandom", "draws entropy: seeds come in"),
    ("RandomState", "hashes differently in every run"),
    ("std::collections::HashMap", "is ordered by chance: BTreeMap, or hashbrown with a fixed hasher"),
    ("std::collections::HashSet", "is ordered by chance: BTreeSet, or hashbrown with a fixed hasher"),
    ("std::fs", "does I/O"),
    ("std::net", "does I/O"),
    ("println!", "prints"),
    ("std::env", "depends on the environment"),
];

/// Lines that may do what others may not: `path` contains the first, the ban is the second.
const EXCUSED: [(&str, &str); 5] = [
    // Helps to load an image; what comes of it does not depend on who is faster (decision 0015).
    ("crates/engine/src/recover/image.rs", "std::thread"),
    // Runs many worlds side by side; each of them is one thread's alone.
    ("crates/sim/src/seeds.rs", "std::thread"),
    ("crates/sim/src/seeds.rs", "std::env"),
    // What a failed seed did, for whoever looks into it.
    ("crates/sim/src/trace.rs", "println!"),
    ("crates/sim/src/trace.rs", "std::env"),
];

/// The engine and its simulator depend on nothing but what they are told.
pub fn deterministic(s: &Source) -> Vec<String> {
    if !["crates/engine/src", "crates/format/src", "crates/sim/src"].iter().any(|d| s.path.starts_with(d)) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for (n, line) in s.production() {
        for (call, why) in BANNED {
            if line.contains(call) && !EXCUSED.iter().any(|(p, c)| s.path == *p && *c == call) {
                wrong.push(at(s, n, &format!("{call} {why}")));
            }
        }
        // `use std::collections::{HashMap, ...}`
        if line.contains("std::collections::{") && (line.contains("HashMap") || line.contains("HashSet")) {
            wrong.push(at(s, n, "a map ordered by chance: BTreeMap, or hashbrown with a fixed hasher"));
        }
    }
    wrong
}

/// The parts of the block crate that the engine may use: plain types, no device.
const PLAIN: [&str; 28] = [
    "Answer",
    "Buf",
    "Completion",
    "Extent",
    "Geometry",
    "IoError",
    "IoKind",
    "KeyedText",
    "Mark",
    "MarkState",
    "Op",
    "OpKind",
    "Reply",
    "ReqError",
    "ReqId",
    "ReqKind",
    "Request",
    "SECTOR",
    "Segments",
    "Shared",
    "SyncIo",
    "Tag",
    "alignment",
    "keyed",
    "keys",
    "crc32c",
    "parse_size",
    "crc32c_append",
];

/// The engine knows no device.
pub fn plain_types(s: &Source) -> Vec<String> {
    if !["crates/engine/src", "crates/format/src"].iter().any(|d| s.path.starts_with(d)) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    let code: Vec<(usize, &str)> = s.production().collect();
    for (i, (n, line)) in code.iter().enumerate() {
        let Some((_, rest)) = line.split_once("loligo_block::") else { continue };
        let mut names = rest.to_owned();
        if rest.starts_with('{') {
            code[i + 1..]
                .iter()
                .take_while(|_| !names.contains('}'))
                .map(|(_, l)| *l)
                .collect::<Vec<_>>()
                .iter()
                .for_each(|l| {
                    if !names.contains('}') {
                        names.push_str(l);
                    }
                });
            names = names.split('}').next().unwrap_or_default().trim_start_matches('{').to_owned();
        } else {
            names = names.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        }
        for name in names.split(',').map(str::trim).filter(|x| !x.is_empty()) {
            if !PLAIN.contains(&name) {
                wrong.push(at(
                    s,
                    *n,
                    &format!("loligo_block::{name} is no plain type: the engine knows no device"),
                ));
            }
        }
    }
    wrong
}

/// Every `unsafe` says why it is sound, within the eight lines before it.
pub fn safety(s: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, line) in s.code.iter().enumerate() {
        // Before `fn(..)`, without a name, it is part of a type and does nothing by itself.
        let is_type = line.contains("unsafe extern") && line.contains(" fn(");
        let uses = ["unsafe {", "unsafe impl", "unsafe fn"].iter().any(|u| line.contains(u))
            || (line.contains("unsafe extern") && !is_type);
        let said = |l: &String| l.contains("SAFETY:") || l.contains("# Safety");
        if uses && !s.lines[i.saturating_sub(8)..=i].iter().any(said) {
            wrong.push(at(s, i + 1, "unsafe without a SAFETY comment"));
        }
    }
    wrong
}

/// A deed left for later has an issue's number, and nothing was left behind from debugging.
pub fn leftovers(s: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, line) in s.lines.iter().enumerate() {
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            let marks = line.split(|c: char| !c.is_alphanumeric()).any(|w| w == word);
            let numbered = line.split('#').skip(1).any(|r| r.starts_with(|c: char| c.is_ascii_digit()));
            if marks && !numbered {
                wrong.push(at(s, i + 1, &format!("{word} without the number of an issue (#n)")));
            }
        }
        if s.code[i].contains(concat!("db", "g!(")) || s.code[i].contains(concat!("to", "do!(")) {
            wrong.push(at(s, i + 1, "left over from debugging"));
        }
    }
    wrong
}

/// Places and papers of whoever wrote this, which mean nothing to a reader elsewhere.
const ELSEWHERE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/tmp/", "bin/"),
    concat!("HEL", "PER.md"),
    concat!("shared/", "research"),
    concat!("/home/", "user"),
];

/// No line of `text` speaks of a place that only its author has.
pub fn elsewhere(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for place in ELSEWHERE {
            if line.contains(place) {
                wrong.push(format!("{path}:{}: speaks of {place}, which no reader has", i + 1));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(text: &str) -> Source {
        Source::new("crates/engine/src/x.rs", text)
    }

    #[test]
    fn a_file_that_is_too_long_is_found_and_its_tests_do_not_count() {
        let long = "fn a() {}\n".repeat(LONGEST + 1);
        assert_eq!(length(&cache(&long)).len(), 1);
        let tested = format!("fn a() {{}}\n// comment\n\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(length(&cache(&tested)), [""; 0]);
        assert_eq!(median(&mut [9, 1, 5]), 5);
    }

    #[test]
    fn clocks_threads_chance_and_printing_are_found_in_the_engine() {
        for (call, _) in BANNED {
            let wrong = deterministic(&cache(&format!("fn f() {{\n    {call};\n}}\n")));
            assert!(
                !wrong.is_empty() && wrong[0].starts_with("crates/engine/src/x.rs:2: "),
                "{call}: {wrong:?}"
            );
            let comment = format!("// {call}\n");
            assert_eq!(deterministic(&cache(&comment)), [""; 0]);
        }
        assert_eq!(deterministic(&cache("use std::collections::{BTreeMap, HashMap};\n")).len(), 1);
        assert_eq!(deterministic(&cache("#[cfg(test)]\nmod t {\n    use std::fs;\n}\n")), [""; 0]);
        assert_eq!(deterministic(&Source::new("crates/bench/src/x.rs", "Instant::now();\n")), [""; 0]);
        assert_eq!(deterministic(&Source::new("crates/sim/src/x.rs", "std::thread::spawn(f);\n")).len(), 1);
    }

    #[test]
    fn a_device_in_the_engine_is_found() {
        assert_eq!(plain_types(&cache("use loligo_block::{Buf, RamDevice, crc32c};\n")).len(), 1);
        assert_eq!(plain_types(&cache("use loligo_block::{\n    Buf,\n    Ring,\n};\n")).len(), 1);
        assert_eq!(plain_types(&cache("fn f(d: loligo_block::UringFile) {}\n")).len(), 1);
        assert_eq!(plain_types(&cache("use loligo_block::{Buf, Op, crc32c};\n")), [""; 0]);
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(safety(&cache(bare)).len(), 1);
        assert_eq!(
            safety(&cache(&bare.replace("    unsafe", "    // SAFETY: g is fine.\n    unsafe"))),
            [""; 0]
        );
        assert_eq!(safety(&cache("let x = \"unsafe { }\";\n")), [""; 0]);
    }

    #[test]
    fn leftovers_are_found() {
        let later = concat!("// TO", "DO: later\n");
        assert_eq!(leftovers(&cache(later)).len(), 1);
        assert_eq!(leftovers(&cache(&later.replace("later", "see #12"))), [""; 0]);
        assert_eq!(leftovers(&cache(concat!("db", "g!(x);\n"))).len(), 1);
    }

    #[test]
    fn places_that_only_the_author_has_are_found() {
        for place in ELSEWHERE {
            assert_eq!(elsewhere("README.md", &format!("a\nsee {place}x\n")).len(), 1, "{place}");
        }
        assert_eq!(elsewhere("README.md", "/usr/share/doc"), [""; 0]);
    }
}
