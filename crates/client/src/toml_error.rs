//! Errors of TOML in a line.

/// The reason why a text is no TOML, in one line: without the part of it that is shown below the place.
pub fn not_toml(why: &toml::de::Error) -> String {
    let is_shown = |line: &&str| {
        let bar = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        bar.starts_with('|')
    };
    let said = why.to_string();
    let lines: Vec<&str> = said.lines().filter(|line| !is_shown(line)).map(str::trim_end).collect();
    lines.join(": ")
}
