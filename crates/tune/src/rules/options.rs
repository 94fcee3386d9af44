//! The options that releases of Ceph know, with when a change of each acts.
//!
//! Gathered from daemons of 16.2.15, 18.2.7 and 20.2.4, and from their sources. The flag that Ceph itself gives is no ground: most options
//! that it calls changeable at run time are read once.

use super::rule::Acts;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// An option of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownOption {
    /// Its name.
    pub name: String,
    /// Its type, in Ceph's words: `size`, `bool`.
    pub kind: String,
    /// Its default.
    pub default: String,
    /// When a change of it acts.
    pub acts: Acts,
}

/// The options of one release.
#[derive(Debug)]
pub struct OptionTable(BTreeMap<String, KnownOption>);

const TABLES: [(&str, &str); 3] = [
    ("16", include_str!("../../options/16.csv")),
    ("18", include_str!("../../options/18.csv")),
    ("20", include_str!("../../options/20.csv")),
];

impl OptionTable {
    /// The table of a major release, if there is one.
    pub fn of(release: &str) -> Option<&'static OptionTable> {
        static READ: OnceLock<BTreeMap<&str, OptionTable>> = OnceLock::new();
        READ.get_or_init(|| TABLES.iter().map(|(name, text)| (*name, read(text))).collect()).get(release)
    }

    /// The tables of all releases.
    pub fn all() -> impl Iterator<Item = &'static OptionTable> {
        TABLES.iter().filter_map(|(name, _)| OptionTable::of(name))
    }

    /// The table of the release, or of the newest one before it that has one.
    pub fn near(release: i64) -> Option<&'static OptionTable> {
        let older = TABLES.iter().rev().find(|(name, _)| name.parse::<i64>().is_ok_and(|has| has <= release));
        older.and_then(|(name, _)| OptionTable::of(name))
    }

    /// An option.
    pub fn find(&self, name: &str) -> Option<&KnownOption> {
        self.0.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &KnownOption> {
        self.0.values()
    }
}

fn read(text: &str) -> OptionTable {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows = reader.records().filter_map(Result::ok).filter_map(|row| {
        let field = |at: usize| row.get(at).map(str::to_owned);
        let acts = match row.get(3)? {
            "live" => Acts::Live,
            "restart" => Acts::Restart,
            "mkfs" => Acts::Mkfs,
            "pool" => Acts::Pool,
            "client" => Acts::Client,
            "never" => Acts::Never,
            _ => Acts::Unknown,
        };
        Some(KnownOption { name: field(0)?, kind: field(1)?, default: field(2)?, acts })
    });
    OptionTable(rows.map(|option| (option.name.clone(), option)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_table() {
        for (release, least) in [("16", 280), ("18", 450), ("20", 500)] {
            let table = OptionTable::of(release).expect("a table");
            assert!(table.iter().count() >= least, "{release}: {}", table.iter().count());
            assert_eq!(table.find("osd_memory_target").map(|o| o.acts), Some(Acts::Live));
        }
        assert!(OptionTable::of("18").expect("a table").find("no_such_option").is_none());
    }

    #[test]
    fn a_release_without_a_table_has_that_of_the_one_before() {
        let at = |release| OptionTable::near(release).map(|table| table.iter().count());
        assert_eq!(at(17), at(16));
        assert_eq!(at(19), at(18));
        assert_eq!(at(15), None);
    }
}
