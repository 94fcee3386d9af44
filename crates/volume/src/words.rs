//! The daemon's messages speak of the keys of its file. `loligo serve`, whose code says most of them, speaks of options.

/// The options there, and the keys of a volume's section here.
const KEYS: [(&str, &str); 22] = [
    ("anonymous", "tls.anonymous = true"),
    ("cache", "cache"),
    ("cache-size", "cache-size"),
    ("core", "core"),
    ("core-reserve", "core-reserve"),
    ("destage", "rbd.destage"),
    ("dev-name", "dev-names"),
    ("dev-owner", "dev-owner"),
    ("flush-on-stop", "flush-on-stop = true"),
    ("data-offset", "data-offset"),
    ("line-size", "line-size"),
    ("listen", "listen"),
    ("metrics", "metrics"),
    ("mode", "mode"),
    ("name", "name"),
    ("shards", "shards"),
    ("snapshot-deadline", "rbd.snapshot-deadline"),
    ("sparse", "sparse = true"),
    ("tls-ca", "tls.ca"),
    ("tls-cert", "tls.cert"),
    ("tls-key", "tls.key"),
    ("tls-psk", "tls.psk"),
];
/// Options that one start may be given, and no definition.
const ALLOWED: [&str; 4] = ["create", "force", "force-without-cache", "steal"];
/// The start of a whole command that is quoted: its options are its own.
const COMMAND: &str = "'loligo ";

/// `said` for whoever has written a file.
pub fn of_file(said: &str) -> String {
    let (mut out, mut rest, mut allowed) = (String::new(), said, Vec::new());
    while let Some(at) = rest.find("--").into_iter().chain(rest.find(COMMAND)).min() {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let command = from.strip_prefix(COMMAND);
        let len = match command {
            Some(words) => words.find('\'').map_or(from.len(), |end| COMMAND.len() + end + 1),
            None => 2 + from[2..].bytes().take_while(|b| b.is_ascii_lowercase() || *b == b'-').count(),
        };
        let (word, after) = from.split_at(len);
        rest = after;
        let begins = out.is_empty() || out.ends_with([' ', '(', '\'']);
        match KEYS.iter().find(|(option, _)| begins && command.is_none() && *option == &word[2..]) {
            Some((_, key)) => {
                out.push_str(key);
                let value =
                    |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) || text.starts_with("SIZE");
                if after.strip_prefix(' ').is_some_and(value) {
                    out.push_str(" =");
                }
            }
            None => {
                out.push_str(word);
                if begins && command.is_none() && ALLOWED.contains(&&word[2..]) && !allowed.contains(&word) {
                    allowed.push(word);
                }
            }
        }
    }
    out.push_str(rest);
    if !allowed.is_empty() {
        out += &format!(" ({}: for 'loligo volume start' and 'create')", allowed.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::of_file;

    #[test]
    fn options_of_serve_become_keys_and_those_of_a_command_stay() {
        let same = |text: &str| assert_eq!(of_file(text), text);
        let said = |text: &str, as_keys: &str| assert_eq!(of_file(text), as_keys);
        said(
            "/c does not exist: give --cache-size SIZE to make it",
            "/c does not exist: give cache-size = SIZE to make it",
        );
        said(
            "this core belongs to one thread: use it with --shards 1",
            "this core belongs to one thread: use it with shards = 1",
        );
        said("--listen unix:/x is given twice", "listen unix:/x is given twice");
        said("give --tls-cert and --tls-key, or --tls-psk", "give tls.cert and tls.key, or tls.psk");
        said(
            "serve it with --flush-on-stop (or run 'loligo flush')",
            "serve it with flush-on-stop = true (or run 'loligo flush')",
        );
        said(
            "if it is to be overwritten, add --force; else give another --cache",
            "if it is to be overwritten, add --force; else give another cache (--force: for 'loligo volume start' and 'create')",
        );
        said(
            "--create --force makes it anew; --force alone does not",
            "--create --force makes it anew; --force alone does not (--create, --force: for 'loligo volume start' and 'create')",
        );
        same("give such a size ('loligo cache resize --min' changes the least), 'loligo serve --listen x");
        same("the volume's name is a--listen b -- and é --size --");
        same("");
    }
}
