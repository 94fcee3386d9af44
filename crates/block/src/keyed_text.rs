//! Texts that name keys, which a command line and the daemon's file spell in two ways: who prints a text chooses one.

use crate::config_key::{self, ConfigKey};
use std::fmt;

/// A text of an error, as small as a `String`, in both spellings of its [`ConfigKey`]s. It is displayed with options, and with keys within another text
/// that is spelled for a file. [`keyed!`](crate::keyed) makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedText {
    with_options: Box<str>,
    /// `None` if both are the same.
    in_file: Option<Box<InFile>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct InFile {
    with_keys: String,
    /// Options of one start, which no file can have.
    one_start: Vec<ConfigKey>,
}

/// A [`KeyedText`](crate::KeyedText) from what `format!` takes. Errors within it keep both spellings, too.
#[macro_export]
macro_rules! keyed {
    ($($text:tt)*) => {
        $crate::KeyedText::of(::std::format_args!($($text)*))
    };
}

impl KeyedText {
    /// Spells `text` in both ways.
    pub fn of(text: fmt::Arguments<'_>) -> KeyedText {
        let with_options = config_key::for_command(text);
        let (with_keys, one_start) = config_key::for_file(text);
        let differs = with_keys != with_options || !one_start.is_empty();
        let in_file = differs.then(|| Box::new(InFile { with_keys, one_start }));
        KeyedText { with_options: with_options.into(), in_file }
    }

    /// The text for a reader of the daemon's file: with keys, and with a hint where one start alone can be given what it names.
    pub fn for_file(self) -> String {
        let Some(in_file) = self.in_file else { return self.with_options.into() };
        let InFile { with_keys: text, one_start } = *in_file;
        if one_start.is_empty() {
            return text;
        }
        let options: Vec<&str> = one_start.into_iter().map(ConfigKey::option).collect();
        format!("{text} ({}: for 'loligo volume start' and 'create')", options.join(", "))
    }
}

impl fmt::Display for KeyedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_file.as_ref().filter(|_| config_key::is_for_file()) {
            Some(in_file) => {
                in_file.one_start.iter().copied().for_each(config_key::note);
                f.write_str(&in_file.with_keys)
            }
            None => f.write_str(&self.with_options),
        }
    }
}

impl std::error::Error for KeyedText {}

impl From<String> for KeyedText {
    /// A text that names no key.
    fn from(text: String) -> KeyedText {
        KeyedText { with_options: text.into(), in_file: None }
    }
}

impl From<&str> for KeyedText {
    /// A text that names no key.
    fn from(text: &str) -> KeyedText {
        KeyedText { with_options: text.into(), in_file: None }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyedText;
    use crate::config_key::{ConfigKey, keys::*};

    fn said(text: KeyedText, with_options: &str, for_file: &str) {
        assert_eq!(text.to_string(), with_options);
        assert_eq!(text.for_file(), for_file);
    }

    #[test]
    fn a_key_is_an_option_or_a_key_for_who_prints_it() {
        said(
            keyed!("/c does not exist: give {CACHE_SIZE:#} SIZE to make it"),
            "/c does not exist: give --cache-size SIZE to make it",
            "/c does not exist: give cache-size = SIZE to make it",
        );
        said(
            keyed!("{LISTEN} unix:/x is given twice"),
            "--listen unix:/x is given twice",
            "listen unix:/x is given twice",
        );
        said(
            keyed!("give {TLS_CERT} and {TLS_KEY}, or {TLS_PSK}"),
            "give --tls-cert and --tls-key, or --tls-psk",
            "give tls.cert and tls.key, or tls.psk",
        );
        said(
            keyed!("serve it with {FLUSH_ON_STOP} (or run 'loligo flush')"),
            "serve it with --flush-on-stop (or run 'loligo flush')",
            "serve it with flush-on-stop = true (or run 'loligo flush')",
        );
        said(keyed!("{SPARSE:#}"), "--sparse", "sparse = true");
        said("--cache is somebody's word".into(), "--cache is somebody's word", "--cache is somebody's word");
    }

    #[test]
    fn a_file_is_told_which_options_one_start_alone_takes() {
        said(
            keyed!("if it is to be overwritten, add {FORCE}; else give another {CACHE}"),
            "if it is to be overwritten, add --force; else give another --cache",
            "if it is to be overwritten, add --force; else give another cache (--force: for 'loligo volume start' and 'create')",
        );
        said(
            keyed!("{CREATE} {FORCE} makes it anew; {FORCE} alone does not"),
            "--create --force makes it anew; --force alone does not",
            "--create --force makes it anew; --force alone does not (--create, --force: for 'loligo volume start' and 'create')",
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{count} do not fit: give a smaller {key}", key = SHARDS)]
    struct TooMany {
        count: u16,
    }

    #[test]
    fn errors_within_a_text_keep_both_spellings() {
        let inner = keyed!("{}, or {STEAL}", TooMany { count: 9 });
        let other = std::thread::spawn(move || keyed!("no cache: {inner}")).join().expect("a text");
        let as_io = std::io::Error::other(other);
        said(
            keyed!("{as_io} ({FORCE})"),
            "no cache: 9 do not fit: give a smaller --shards, or --steal (--force)",
            "no cache: 9 do not fit: give a smaller shards, or --steal (--force) (--steal, --force: for 'loligo volume start' and 'create')",
        );
    }

    #[test]
    fn a_text_made_while_another_is_spelled_keeps_to_itself() {
        struct Says;
        impl std::fmt::Display for Says {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                drop(keyed!("{FORCE}"));
                write!(f, "{CORE}")
            }
        }
        said(keyed!("{Says} {CACHE}"), "--core --cache", "core cache");
    }

    #[test]
    fn every_option_has_one_key() {
        for (i, key) in ConfigKey::ALL.iter().enumerate() {
            assert_eq!(key.to_string(), key.option());
            let others = &ConfigKey::ALL[i + 1..];
            let spelled = |key: &ConfigKey| keyed!("{key}").for_file();
            assert!(others.iter().all(|other| spelled(other) != spelled(key)), "{key}");
        }
    }
}
