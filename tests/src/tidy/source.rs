//! A Rust file as the rules see it: its code without comments and strings, and what of it is test code.

/// One source file.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path from the workspace's root.
    pub path: String,
    /// Lines as written.
    pub lines: Vec<String>,
    /// The same lines with comments and the insides of strings and characters blanked.
    pub code: Vec<String>,
    /// True for each line that belongs to test code.
    pub test: Vec<bool>,
}

/// A string of a source.
#[derive(Debug, Clone)]
pub struct Literal {
    /// Number of the line where it begins, from 1.
    pub line: usize,
    /// Its inside, as written.
    pub text: String,
    /// The word before the bracket around it, as `bail!`.
    pub of: String,
}

impl Source {
    /// Takes `text` apart; `path` is relative to the workspace's root.
    pub fn new(path: &str, text: &str) -> Source {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut code: Vec<String> = blank(text, |_, _| ()).lines().map(str::to_owned).collect();
        code.resize(lines.len(), String::new());
        let whole = path.contains("/tests/") || path.contains("/examples/") || path.ends_with("/tests.rs");
        let test = if whole { vec![true; lines.len()] } else { test_lines(&code) };
        Source { path: path.to_owned(), lines, code, test }
    }

    /// Lines of code outside tests: neither blank nor only comment.
    pub fn length(&self) -> usize {
        self.production().filter(|(_, l)| !l.trim().is_empty()).count()
    }

    /// Every string outside tests.
    pub fn production_literals(&self) -> Vec<Literal> {
        let mut found = Vec::new();
        blank(&self.lines.join("\n"), |inside, before| {
            let line = 1 + before.matches('\n').count();
            if !self.test[line - 1] {
                found.push(Literal { line, text: inside.iter().collect(), of: open_bracket(before) });
            }
        });
        found
    }

    /// Number (from 1) and code of every line outside tests.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().filter(|(i, _)| !self.test[*i]).map(|(i, l)| (i + 1, l.as_str()))
    }
}

/// The word before the innermost bracket that `code` leaves open.
fn open_bracket(code: &str) -> String {
    let mut depth = 0;
    for (i, c) in code.char_indices().rev() {
        depth += i32::from(matches!(c, ')' | ']' | '}')) - i32::from(matches!(c, '(' | '[' | '{'));
        if depth < 0 {
            let name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '!');
            let before = &code[..i];
            return before[before.trim_end_matches(name).len()..].to_owned();
        }
    }
    String::new()
}

/// Marks what stands under `#[cfg(test)]`: a module with a body up to its closing brace, else the one item after it.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut test = vec![false; code.len()];
    let mut i = 0;
    while i < code.len() {
        if !code[i].trim_start().starts_with("#[cfg(test)]") {
            i += 1;
            continue;
        }
        let (mut depth, mut opened) = (0i32, false);
        while i < code.len() {
            test[i] = true;
            for c in code[i].chars() {
                depth += i32::from(c == '{') - i32::from(c == '}');
                opened |= c == '{';
            }
            let over = if opened { depth <= 0 } else { code[i].trim_end().ends_with(';') };
            i += 1;
            if over {
                break;
            }
        }
    }
    test
}

/// `text` with the same lines, in which comments and the insides of literals are gone; `string` is told the inside
/// of each string, and what comes of the text before that.
fn blank(text: &str, mut string: impl FnMut(&[char], &str)) -> String {
    let c: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let at = |i: usize| c.get(i).copied().unwrap_or('\0');
    let mut i = 0;
    while i < c.len() {
        if at(i) == '/' && at(i + 1) == '/' {
            while i < c.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            let mut depth = 0;
            loop {
                if at(i) == '/' && at(i + 1) == '*' {
                    depth += 1;
                    i += 2;
                } else if at(i) == '*' && at(i + 1) == '/' {
                    depth -= 1;
                    i += 2;
                } else {
                    keep_newline(at(i), &mut out);
                    i += 1;
                }
                if depth == 0 || i >= c.len() {
                    break;
                }
            }
        } else if let Some((begin, hashes)) = raw_string(&c, i) {
            out.push('"');
            let opened = out.len();
            i = begin;
            while i < c.len() && !(at(i) == '"' && (1..=hashes).all(|h| at(i + h) == '#')) {
                keep_newline(at(i), &mut out);
                i += 1;
            }
            string(&c[begin..i], &out[..opened]);
            out.push('"');
            i += 1 + hashes;
        } else if at(i) == '"' {
            out.push('"');
            i += 1;
            let (begin, opened) = (i, out.len());
            while i < c.len() && at(i) != '"' {
                i += usize::from(at(i) == '\\' && at(i + 1) != '\n');
                keep_newline(at(i), &mut out);
                i += 1;
            }
            string(&c[begin..i.min(c.len())], &out[..opened]);
            out.push('"');
            i += 1;
        } else if at(i) == '\'' && (at(i + 2) == '\'' || at(i + 1) == '\\') {
            // A character; what else begins with a quote is a lifetime.
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < c.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
            out.push_str("' '");
        } else {
            out.push(at(i));
            i += 1;
        }
    }
    out
}

fn keep_newline(c: char, out: &mut String) {
    if c == '\n' {
        out.push('\n');
    }
}

/// The start of the inside of a raw string that starts at `i`, and how many `#` close it.
fn raw_string(c: &[char], i: usize) -> Option<(usize, usize)> {
    let before = i.checked_sub(1).map(|p| c[p]);
    if before.is_some_and(|b| b.is_alphanumeric() || b == '_') {
        return None;
    }
    let mut j = i;
    if c.get(j) == Some(&'b') {
        j += 1;
    }
    if c.get(j) != Some(&'r') {
        return None;
    }
    let hashes = c[j + 1..].iter().take_while(|x| **x == '#').count();
    (c.get(j + 1 + hashes) == Some(&'"')).then_some((j + 2 + hashes, hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_no_code_and_keep_line_numbers() {
        let text = "let a = \"x { // y\"; // z {\n/* b\n/* c */ d */ let e = r#\"f \" g\"#;\nlet h = '{'; let i: &'static str = \"\\\"j\";\n";
        let s = Source::new("a.rs", text);
        assert_eq!(s.code.len(), 4);
        assert_eq!(s.code[0].trim_end(), "let a = \"\";");
        assert_eq!(s.code[2].trim(), "let e = \"\";");
        assert_eq!(s.code[3], "let h = ' '; let i: &'static str = \"\";");
    }

    #[test]
    fn a_string_knows_its_line_and_what_it_is_given_to() {
        let text = "// \"a\"\nbail!(\n    f(1, \"\"),\n    \"b \\\n     c\",\n);\nlet d = r#\"e\"#;\n";
        let s = Source::new("a.rs", text);
        let all = s.production_literals();
        let found: Vec<_> = all.iter().map(|l| (l.line, l.text.as_str(), l.of.as_str())).collect();
        assert_eq!(found, [(3, "", "f"), (4, "b \\\n     c", "bail!"), (7, "e", "")]);
    }

    #[test]
    fn only_what_stands_under_cfg_test_is_test_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod t {\n    fn c() {}\n}\nfn d() {}\n";
        let s = Source::new("crates/x/src/a.rs", text);
        let kept: Vec<usize> = s.production().map(|(n, _)| n).collect();
        assert_eq!(kept, [1, 4, 9]);
        assert_eq!(Source::new("crates/x/tests/a.rs", text).length(), 0);
    }
}
