//! A rule about texts: an option that a volume is defined by is a `ConfigKey`, so that who prints a text can say it as a key.

use super::source::{Literal, Source};
use loligo_block::ConfigKey;

/// The crates whose texts the daemon says, too.
const CRATES: [&str; 8] = ["block", "format", "export", "ceph", "engine", "shard", "volume", "daemon"];
/// Spells every option out.
const TABLE: &str = "crates/block/src/config_key.rs";
/// The begin of a whole command where one is quoted: its options are its own.
const COMMAND: &str = "'loligo ";
/// May be given a text with keys: one keeps both spellings, the other prints at once.
const KEEPS_KEYS: [&str; 2] = ["keyed!", "say!"];
/// Attaches images in tests.
const SIMULATOR: &str = "crates/ceph/src/attach/sim/";

/// Texts that name options by hand, and errors that keep the name of a key in one spelling only.
pub fn check(s: &Source) -> Vec<String> {
    let is_said = CRATES.iter().any(|name| s.path.starts_with(&format!("crates/{name}/src/")));
    if !is_said || s.path == TABLE || s.path.starts_with(SIMULATOR) {
        return Vec::new();
    }
    let at = |l: &Literal, why: String| format!("{}:{}: {why}", s.path, l.line);
    let mut wrong = Vec::new();
    for l in s.production_literals() {
        let by_hand =
            by_hand(&l.text).map(|key| format!("{} by hand: name loligo_block::keys::*", key.option()));
        wrong.extend(by_hand.map(|why| at(&l, why)));
        if !KEEPS_KEYS.contains(&l.of.as_str()) && names_key(&l.text) {
            wrong.push(at(&l, "a key of one spelling: put the text into keyed!()".to_owned()));
        }
    }
    wrong
}

/// The options that `text` names outside of quoted commands.
fn by_hand(text: &str) -> impl Iterator<Item = ConfigKey> {
    let mut own = String::new();
    for (i, part) in text.split(COMMAND).enumerate() {
        own.push_str(match i {
            0 => part,
            _ => part.split_once('\'').map_or("", |(_, after)| after),
        });
    }
    let in_option = |c: char| c.is_ascii_alphanumeric() || c == '-';
    ConfigKey::ALL
        .into_iter()
        .filter(move |key| own.split(|c| !in_option(c)).any(|word| word == key.option()))
}

/// True if `text` captures a constant of `loligo_block::keys`.
fn names_key(text: &str) -> bool {
    let captured = text.split('{').skip(1).filter_map(|part| part.split(['}', ':']).next());
    let name = |key: &ConfigKey| key.option()[2..].to_ascii_uppercase().replace('-', "_");
    captured.into_iter().any(|word| ConfigKey::ALL.iter().any(|key| name(key) == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(code: &str) -> Vec<String> {
        check(&Source::new("crates/volume/src/x.rs", code))
    }

    #[test]
    fn an_option_named_by_hand_is_found() {
        let found = wrong(
            "fn f() {\n    bail!(\n        \"{path}: give --cache-size SIZE, or '--sparse'\"\n    );\n}\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/volume/src/x.rs:3: --cache-size "), "{found:?}");
        assert_eq!(wrong("const MEND: &str = r\"(--force)\";\n").len(), 1);
    }

    #[test]
    fn a_quoted_command_keeps_its_options() {
        assert_eq!(wrong("say!(\"'loligo volume stop {0} --force' first\");\n"), [""; 0]);
        assert_eq!(wrong("say!(\"'loligo stop' it with --force\");\n").len(), 1);
        assert_eq!(wrong("say!(\"--size, a--force and --forced are no keys\");\n"), [""; 0]);
        assert_eq!(
            wrong("// --force\n#[cfg(test)]\nmod tests {\n    const A: &str = \"--force\";\n}\n"),
            [""; 0]
        );
    }

    #[test]
    fn an_error_that_keeps_one_spelling_is_found() {
        assert_eq!(wrong("fn f() {\n    ensure!(a(b), \"{p}: add {FORCE}\");\n}\n").len(), 1);
        assert_eq!(wrong("fn f() {\n    bail!(\"give {CACHE_SIZE:#} {n}\", n = g(1));\n}\n").len(), 1);
        assert_eq!(wrong("const MEND: &str = \"add {FORCE}\";\n").len(), 1);
        assert_eq!(wrong("fn f() {\n    bail!(keyed!(\"add {FORCE}\"));\n}\n"), [""; 0]);
        assert_eq!(wrong("fn f() {\n    bail!(\"{FREE} and {force}\");\n}\n"), [""; 0]);
    }
}
