//! Ceph's file on a host: options for its OSDs, read, taken away and given back.

use std::collections::BTreeMap;

/// The beginning of a line of Ceph's file that was taken away.
const TAKEN: &str = "#loligo-tune# ";

/// All options for OSDs, by the names that Ceph compares; the last value of each.
pub(crate) fn of_osds(text: &str) -> BTreeMap<String, String> {
    let mut section = String::new();
    let mut all = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|it| it.split(']').next()) {
            section = name.trim().to_owned();
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_of_osds(&section)) {
            all.insert(plain(name), value.trim().to_owned());
        }
    }
    all
}

/// The name of an option as Ceph compares it.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace([' ', '-', '\t'], "_")
}

/// The sections whose options OSDs take.
fn is_of_osds(section: &str) -> bool {
    section == "global" || section == "osd" || section.starts_with("osd.")
}

/// Goes through the lines of Ceph's file: each with true if it is one of `key` for OSDs, or goes on with one. Bytes that are no text are
/// in comments and descriptions, and are no part of names.
fn lines<'a>(text: &'a [u8], key: &str) -> Vec<(&'a [u8], bool)> {
    let key = plain(key);
    let mut section = String::new();
    let mut goes_on = false;
    let mut all = Vec::new();
    for whole in text.split_inclusive(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(whole);
        let bare = line.trim();
        if !goes_on && let Some(name) = bare.strip_prefix('[').and_then(|it| it.split(']').next()) {
            section = name.trim().to_owned();
        }
        let is_key = goes_on
            || (is_of_osds(&section) && bare.split_once('=').is_some_and(|(name, _)| plain(name) == key));
        goes_on = is_key && bare.ends_with('\\');
        all.push((whole, is_key));
    }
    all
}

/// The value of an option for OSDs in Ceph's file; the last one counts.
pub(crate) fn in_file(text: &[u8], key: &str) -> Option<String> {
    let found = lines(text, key).into_iter().filter(|(_, is_key)| *is_key);
    let found = found.map(|(line, _)| String::from_utf8_lossy(line));
    let mut value = found.filter_map(|line| Some(line.split_once('=')?.1.trim().to_owned()));
    value.next_back()
}

/// The bytes with the lines of an option marked as taken away. All others are as they were.
pub(crate) fn taken_away(text: &[u8], key: &str) -> Vec<u8> {
    let lines = lines(text, key).into_iter();
    lines.flat_map(|(line, is_key)| [if is_key { TAKEN.as_bytes() } else { &[] }, line].concat()).collect()
}

/// The bytes with those lines as they were. Sections are those of all lines.
pub(crate) fn given_back(text: &[u8], key: &str) -> Vec<u8> {
    let key = plain(key);
    let mut goes_on = false;
    let back = text.split_inclusive(|byte| *byte == b'\n').flat_map(|line| {
        let Some(taken) = line.strip_prefix(TAKEN.as_bytes()) else { return line };
        let said = String::from_utf8_lossy(taken);
        let bare = said.trim();
        let is_key = goes_on || bare.split_once('=').is_some_and(|(name, _)| plain(name) == key);
        goes_on = is_key && bare.ends_with('\\');
        if is_key { taken } else { line }
    });
    back.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "[global]\nfsid = x\n  OSD max-backfills = 8\n[mon]\nosd max backfills = 9\n[osd.1]\n\
                        osd_max_backfills = \\\n 7\nosd recovery max active=20\n# osd max backfills = 5\n";

    #[test]
    fn an_option_of_ceph_s_file_goes_and_comes_back_byte_by_byte() {
        let conf = CONF.as_bytes();
        assert_eq!(in_file(conf, "osd_recovery_max_active").as_deref(), Some("20"));
        let gone = taken_away(conf, "osd_max_backfills");
        assert_eq!(in_file(&gone, "osd_max_backfills"), None);
        let words = String::from_utf8_lossy(&gone);
        assert!(words.contains("\nosd max backfills = 9\n"), "that of monitors stays: {words}");
        assert!(words.contains("#loligo-tune#  7\n"), "the line that goes on goes as well: {words}");
        let more = taken_away(&gone, "osd_recovery_max_active");
        assert_eq!(in_file(&more, "osd_recovery_max_active"), None);
        assert_eq!(given_back(&given_back(&more, "osd_max_backfills"), "osd_recovery_max_active"), conf);
        assert_eq!(given_back(&more, "osd_max_backfills"), taken_away(conf, "osd_recovery_max_active"));
    }

    #[test]
    fn bytes_that_are_no_utf_8_stay_as_they_are() {
        let conf = b"# \xe9t\xe9 \x85\n[osd]\nosd max backfills = 8 ; \xa0\xff\nnote = caf\xe9\n\xfe\xff";
        let gone = taken_away(conf, "osd_max_backfills");
        assert_eq!(gone.len(), conf.len() + TAKEN.len());
        assert!(gone.starts_with(b"# \xe9t\xe9 \x85\n") && gone.ends_with(b"= caf\xe9\n\xfe\xff"));
        assert_eq!(given_back(&gone, "osd_max_backfills"), conf);
    }

    #[test]
    fn options_of_osds_are_listed_by_their_plain_names() {
        let all = of_osds(CONF);
        let of = |name: &str| all.get(name).map(String::as_str);
        assert_eq!((of("osd_recovery_max_active"), of("fsid")), (Some("20"), Some("x")));
        assert_eq!(of("osd_max_backfills"), Some("\\"), "a line that goes on is not followed");
        assert!(!all.values().any(|it| it == "9" || it == "5"), "{all:?}");
    }
}
