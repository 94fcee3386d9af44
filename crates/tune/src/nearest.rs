//! The name that was meant, where somebody gives one that is not there.

/// Names that are less alike are not those that were meant.
const ALIKE: f64 = 0.6;

/// ` (did you mean X?)` with the name of `all` that is most like `name`, for an error; nothing: none is like it.
pub fn did_you_mean<S: AsRef<str>>(name: &str, all: impl IntoIterator<Item = S>) -> String {
    let name = name.to_lowercase();
    let likeness = |it: &S| strsim::normalized_damerau_levenshtein(&name, &it.as_ref().to_lowercase());
    let alike = all.into_iter().map(|it| (likeness(&it), it)).filter(|(likeness, _)| *likeness >= ALIKE);
    // Of several that are as near the first is named.
    let nearest = alike.reduce(|best, it| if it.0 > best.0 { it } else { best });
    nearest.map_or_else(String::new, |(_, it)| format!(" (did you mean {}?)", it.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_that_was_meant() {
        let options = ["osd_max_scrubs", "osd_max_backfills", "osd_max_object_size"];
        assert_eq!(did_you_mean("osd_max_backfill", options), " (did you mean osd_max_backfills?)");
        assert_eq!(did_you_mean("osd_mx_scrbs", options), " (did you mean osd_max_scrubs?)");
        assert_eq!(did_you_mean("OSD9", ["MEM-01", "OSD-19", "OSD-09"]), " (did you mean OSD-19?)");
        assert_eq!(did_you_mean("osd-09", ["MEM-01", "OSD-19", "OSD-09"]), " (did you mean OSD-09?)");
        assert_eq!(did_you_mean("no_such_option", options), "");
        assert_eq!(did_you_mean("x", [""; 0]), "");
    }
}
