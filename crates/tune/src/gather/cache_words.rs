//! Words and numbers that caches of all kinds have in common.

/// A share in percent, two digits behind the point; nothing of nothing is no share.
pub(super) fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part * 1e4 / whole).round() / 1e2)
}

/// The mode of a kernel's cache in the words of Open CAS, which Loligo has, too.
pub(super) fn mode_of(word: &str) -> &str {
    match word {
        "writeback" => "wb",
        "writethrough" => "wt",
        "writearound" => "wa",
        "none" | "passthrough" => "pt",
        other => other,
    }
}
