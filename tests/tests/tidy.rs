//! The house is in order: direction of dependencies, length of files, banned calls, reasons for `unsafe`, no leftovers.

#![allow(clippy::print_stdout)]

use loligo_tests::tidy::rules::{self, MEDIAN};
use loligo_tests::tidy::source::Source;
use loligo_tests::tidy::{circles, files, keys, manifest, root, walk};

fn sources() -> Vec<Source> {
    let root = root();
    let mut all = Vec::new();
    for dir in ["crates", "tests"] {
        for path in files(&root.join(dir), ".rs") {
            let text = std::fs::read_to_string(&path).expect("a source is text");
            let name = path.strip_prefix(&root).expect("below the root").display().to_string();
            all.push(Source::new(&name, &text));
        }
    }
    assert!(all.len() > 50, "only {} sources found", all.len());
    all
}

/// Reads the document `name`, and complains of what it names and `check` does not find.
fn names_what_is_there(name: &str, check: impl Fn(&str) -> Vec<String>) {
    let text = std::fs::read_to_string(root().join(name)).expect("the document");
    none_wrong(check(&text).iter().map(|wrong| format!("{wrong}: correct {name}")).collect());
}

fn none_wrong(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{} found:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn dependencies_point_down_and_async_stays_out_of_data_paths() {
    let all = files(&root().join("crates"), "Cargo.toml");
    assert!(all.len() >= 8);
    none_wrong(
        all.iter().flat_map(|p| manifest::check(&std::fs::read_to_string(p).expect("text"))).collect(),
    );
}

#[test]
fn files_are_short() {
    let all = sources();
    none_wrong(all.iter().flat_map(rules::length).collect());
    let mut lengths: Vec<usize> = all.iter().map(Source::length).filter(|n| *n > 0).collect();
    let median = rules::median(&mut lengths);
    println!(
        "{} files with code, median {median} lines, longest {}",
        lengths.len(),
        lengths.last().unwrap_or(&0)
    );
    assert!(median <= MEDIAN, "the median file has {median} lines of code, at most {MEDIAN}: split files");
}

#[test]
fn the_walks_of_architecture_lead_through_code_that_is_there() {
    names_what_is_there("docs/architecture.md", |text| {
        let named = walk::named(text);
        assert!(named.len() > 30, "only {} stops found", named.len());
        walk::missing(&root(), &named)
    });
}

#[test]
fn contributing_names_files_that_are_there() {
    names_what_is_there("CONTRIBUTING.md", |text| {
        let named = walk::paths(text);
        assert!(named.len() > 100, "only {} paths found", named.len());
        walk::gone(&root(), &named)
    });
}

#[test]
fn fewer_and_fewer_files_import_each_other_in_circles() {
    none_wrong(circles::check(&circles::circles(&sources()), &circles::MAY_CIRCLE));
}

#[test]
fn engine_and_simulator_depend_on_what_they_are_told_alone() {
    none_wrong(sources().iter().flat_map(rules::deterministic).collect());
}

#[test]
fn the_engine_knows_no_device() {
    none_wrong(sources().iter().flat_map(rules::plain_types).collect());
}

#[test]
fn unsafe_says_why_it_is_sound() {
    none_wrong(sources().iter().flat_map(rules::safety).collect());
}

#[test]
fn texts_name_options_by_their_keys() {
    none_wrong(sources().iter().flat_map(keys::check).collect());
}

#[test]
fn nothing_is_left_over() {
    none_wrong(
        sources().iter().filter(|s| !s.path.ends_with("tidy/rules.rs")).flat_map(rules::leftovers).collect(),
    );
}

#[test]
fn nothing_speaks_of_places_that_only_its_author_has() {
    let root = root();
    let mut wrong = Vec::new();
    for suffix in [".rs", ".md", ".toml", ".sh", ".html", "Makefile", "/run"] {
        for path in files(&root, suffix.trim_start_matches('/')) {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.strip_prefix(&root).expect("below the root").display().to_string();
            wrong.extend(rules::elsewhere(&name, &text));
        }
    }
    none_wrong(wrong);
}

#[test]
fn documents_name_the_releases_of_ceph_that_are_tested() {
    for name in ["README.md", "docs/rbd.md", "docs/osd.md"] {
        let text = std::fs::read_to_string(root().join(name)).expect("text");
        for release in loligo_ceph::release::TESTED {
            assert!(text.contains(&release.to_string()), "{name} does not name {release}");
        }
    }
}
