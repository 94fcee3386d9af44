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

/// Goes through the lines of Ceph's file: each with true if it is one of `key` for OSDs, or goes on with one.
fn lines<'a>(text: &'a str, key: &str, skipped: &str) -> Vec<(&'a str, bool)> {
    let key = plain(key);
    let mut section = String::new();
    let mut goes_on = false;
    let mut all = Vec::new();
    for whole in text.split_inclusive('\n') {
        let Some(line) = whole.strip_prefix(skipped) else {
            all.push((whole, false));
            continue;
        };
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
pub(crate) fn in_file(text: &str, key: &str) -> Option<String> {
    let found = lines(text, key, "").into_iter().filter(|(_, is_key)| *is_key);
    let value = found.filter_map(|(line, _)| line.split_once('=')).next_back()?.1;
    Some(value.trim().to_owned())
}

/// The text with the lines of an option marked as taken away.
pub(crate) fn taken_away(text: &str, key: &str) -> String {
    let lines = lines(text, key, "");
    lines
        .into_iter()
        .map(|(line, is_key)| if is_key { format!("{TAKEN}{line}") } else { line.to_owned() })
        .collect()
}

/// The text with those lines as they were. Sections are those of all lines.
pub(crate) fn given_back(text: &str, key: &str) -> String {
    let key = plain(key);
    let mut goes_on = false;
    let back = text.split_inclusive('\n').map(|line| {
        let Some(taken) = line.strip_prefix(TAKEN) else { return line };
        let bare = taken.trim();
        let is_key = goes_on || bare.split_once('=').is_some_and(|(name, _)| plain(name) == key);
        goes_on = is_key && bare.ends_with('\\');
        if is_key { taken } else { line }
    });
    back.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = "[global]\nfsid = x\n  OSD max-backfills = 8\n[mon]\nosd max backfills = 9\n[osd.1]\n\
                        osd_max_backfills = \\\n 7\nosd recovery max active=20\n# osd max backfills = 5\n";

    #[test]
    fn an_option_of_ceph_s_file_goes_and_comes_back_byte_by_byte() {
        assert_eq!(in_file(CONF, "osd_recovery_max_active").as_deref(), Some("20"));
        let gone = taken_away(CONF, "osd_max_backfills");
        assert_eq!(in_file(&gone, "osd_max_backfills"), None);
        assert!(gone.contains("\nosd max backfills = 9\n"), "that of monitors stays: {gone}");
        assert!(gone.contains("#loligo-tune#  7\n"), "the line that goes on goes as well: {gone}");
        let more = taken_away(&gone, "osd_recovery_max_active");
        assert_eq!(in_file(&more, "osd_recovery_max_active"), None);
        assert_eq!(given_back(&given_back(&more, "osd_max_backfills"), "osd_recovery_max_active"), CONF);
        assert_eq!(given_back(&more, "osd_max_backfills"), taken_away(CONF, "osd_recovery_max_active"));
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
