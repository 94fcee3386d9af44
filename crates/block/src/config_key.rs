//! Options that errors name, each as a command line has it and as the daemon's file has it.

use std::cell::RefCell;
use std::fmt;

/// The place of an option in the daemon's file.
#[derive(Clone, Copy)]
enum InFile {
    /// A key with a value.
    Value(&'static str),
    /// A key that is true or false.
    Flag(&'static str),
    /// None: one start may be given it, and no definition.
    OneStart,
}

macro_rules! config_keys {
    ($($variant:ident, $constant:ident: $option:literal, $in_file:expr;)*) => {
        /// An option that an error can name. It is displayed as an option, and as a key of the daemon's file in
        /// [`KeyedText::for_file`](crate::KeyedText::for_file). Where a value follows it, `{:#}` puts what stands before a value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ConfigKey {
            $(#[doc = concat!("`", $option, "`")] $variant,)*
        }

        /// Every [`ConfigKey`] under a name that stands out in a text: `{CACHE_SIZE}`.
        pub mod keys {
            use super::ConfigKey;
            $(#[doc = concat!("`", $option, "`")] pub const $constant: ConfigKey = ConfigKey::$variant;)*
        }

        impl ConfigKey {
            /// All of them.
            pub const ALL: [ConfigKey; [$($option),*].len()] = [$(ConfigKey::$variant),*];

            /// As a command line has it.
            pub fn option(self) -> &'static str {
                match self {
                    $(ConfigKey::$variant => $option,)*
                }
            }

            fn in_file(self) -> InFile {
                match self {
                    $(ConfigKey::$variant => $in_file,)*
                }
            }
        }
    };
}

config_keys! {
    Anonymous, ANONYMOUS: "--anonymous", InFile::Flag("tls.anonymous");
    Cache, CACHE: "--cache", InFile::Value("cache");
    CacheSize, CACHE_SIZE: "--cache-size", InFile::Value("cache-size");
    Core, CORE: "--core", InFile::Value("core");
    CoreReserve, CORE_RESERVE: "--core-reserve", InFile::Value("core-reserve");
    Create, CREATE: "--create", InFile::OneStart;
    DataOffset, DATA_OFFSET: "--data-offset", InFile::Value("data-offset");
    Destage, DESTAGE: "--destage", InFile::Value("rbd.destage");
    DevName, DEV_NAME: "--dev-name", InFile::Value("dev-names");
    DevOwner, DEV_OWNER: "--dev-owner", InFile::Value("dev-owner");
    FlushOnStop, FLUSH_ON_STOP: "--flush-on-stop", InFile::Flag("flush-on-stop");
    Force, FORCE: "--force", InFile::OneStart;
    ForceWithoutCache, FORCE_WITHOUT_CACHE: "--force-without-cache", InFile::OneStart;
    JournalMirror, JOURNAL_MIRROR: "--journal-mirror", InFile::Value("journal-mirror");
    Lease, LEASE: "--lease", InFile::Value("rbd.lease");
    LineSize, LINE_SIZE: "--line-size", InFile::Value("line-size");
    Listen, LISTEN: "--listen", InFile::Value("listen");
    Metrics, METRICS: "--metrics", InFile::Value("metrics");
    Mirror, MIRROR: "--mirror", InFile::Value("mirror");
    MirrorAlone, MIRROR_ALONE: "--mirror-alone", InFile::OneStart;
    Mode, MODE: "--mode", InFile::Value("mode");
    Name, NAME: "--name", InFile::Value("name");
    Reservation, RESERVATION: "--reservation", InFile::Value("reservation");
    Shards, SHARDS: "--shards", InFile::Value("shards");
    SnapshotDeadline, SNAPSHOT_DEADLINE: "--snapshot-deadline", InFile::Value("rbd.snapshot-deadline");
    Sparse, SPARSE: "--sparse", InFile::Flag("sparse");
    Steal, STEAL: "--steal", InFile::OneStart;
    TlsCa, TLS_CA: "--tls-ca", InFile::Value("tls.ca");
    TlsCert, TLS_CERT: "--tls-cert", InFile::Value("tls.cert");
    TlsKey, TLS_KEY: "--tls-key", InFile::Value("tls.key");
    TlsPsk, TLS_PSK: "--tls-psk", InFile::Value("tls.psk");
}

thread_local! {
    /// While this thread spells a text for the daemon's file: the options of one start that it named so far.
    static FOR_FILE: RefCell<Option<Vec<ConfigKey>>> = const { RefCell::new(None) };
}

/// True if the text that this thread spells now is for the daemon's file.
pub(crate) fn is_for_file() -> bool {
    FOR_FILE.with_borrow(Option::is_some)
}

/// Notes that the text which this thread spells now names `key`.
pub(crate) fn note(key: ConfigKey) {
    let add = |named: &mut Vec<ConfigKey>| {
        if matches!(key.in_file(), InFile::OneStart) && !named.contains(&key) {
            named.push(key);
        }
    };
    FOR_FILE.with_borrow_mut(|named| named.as_mut().map(add));
}

/// `text` as a command line has it.
pub(crate) fn for_command(text: fmt::Arguments<'_>) -> String {
    let _spelling = Spelling::begin(None);
    text.to_string()
}

/// `text` as the daemon's file has it, and the options of one start that it names.
pub(crate) fn for_file(text: fmt::Arguments<'_>) -> (String, Vec<ConfigKey>) {
    let _spelling = Spelling::begin(Some(Vec::new()));
    let text = text.to_string();
    (text, FOR_FILE.take().unwrap_or_default())
}

/// One way to spell keys on this thread; the one before comes back with its end.
struct Spelling {
    before: Option<Vec<ConfigKey>>,
}

impl Spelling {
    fn begin(now: Option<Vec<ConfigKey>>) -> Spelling {
        Spelling { before: FOR_FILE.replace(now) }
    }
}

impl Drop for Spelling {
    fn drop(&mut self) {
        FOR_FILE.set(self.before.take());
    }
}

impl fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !is_for_file() {
            return f.write_str(self.option());
        }
        note(*self);
        match self.in_file() {
            InFile::Value(key) if f.alternate() => write!(f, "{key} ="),
            InFile::Value(key) => f.write_str(key),
            InFile::Flag(key) => write!(f, "{key} = true"),
            InFile::OneStart => f.write_str(self.option()),
        }
    }
}
