//! Rust text as the rules read it: comments and string contents masked, tests marked, functions
//! measured.
//!
//! This is a lexer, not a parser: it knows where comments, strings and braces begin and end, which
//! is all that the rules ask for, and takes milliseconds for the whole repository.

/// One Rust file, ready to be asked about.
pub struct RustText {
    original: Vec<String>,
    /// The same lines, with the insides of comments, strings and character literals blanked.
    masked: Vec<String>,
    /// Per line: does it belong to tests?
    test: Vec<bool>,
    /// Text of comments by 1-based line.
    comments: Vec<(usize, String)>,
    functions: Vec<Function>,
    /// Names in `#[cfg(test)] mod NAME;`.
    pub outlined_test_modules: Vec<String>,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// 1-based line of the word `fn`.
    pub line: usize,
    /// From the word `fn` to the closing brace, both included.
    pub lines: usize,
}

impl RustText {
    pub fn new(text: &str) -> RustText {
        let masked_text = mask(text);
        let mut source = RustText {
            original: text.lines().map(str::to_owned).collect(),
            masked: masked_text.lines().map(str::to_owned).collect(),
            test: vec![false; text.lines().count()],
            comments: comments(text),
            functions: functions(&masked_text),
            outlined_test_modules: Vec::new(),
        };
        source.mark_tests(&masked_text);
        source
    }

    /// Lines as written.
    pub fn original(&self) -> impl Iterator<Item = &str> {
        self.original.iter().map(String::as_str)
    }

    /// Lines of comments, without their slashes, with their 1-based numbers.
    pub fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        self.comments.iter().map(|(line, text)| (*line, text.as_str()))
    }

    /// Masked lines that are no tests, with their 1-based numbers.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.masked.iter().zip(&self.test).enumerate();
        lines.filter(|(_, (_, test))| !**test).map(|(index, (line, _))| (index + 1, line.as_str()))
    }

    /// Functions that are no tests.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|function| !self.is_test(function.line))
    }

    /// Is there a function of this name, tests among them?
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function.name == name)
    }

    /// Number of lines that are no tests.
    pub fn code_lines(&self) -> usize {
        self.test.iter().filter(|test| !**test).count()
    }

    /// Does the 1-based line belong to tests?
    pub fn is_test(&self, line: usize) -> bool {
        self.test.get(line - 1).copied().unwrap_or(false)
    }

    /// Declares the whole file tests.
    pub fn all_tests(&mut self) {
        self.test.fill(true);
    }

    fn mark_tests(&mut self, masked: &str) {
        if masked.contains("#![cfg(test)]") {
            self.all_tests();
        }
        for attribute in ["#[cfg(test)]", "#[cfg(all(test,", "#[test]", "proptest! {"] {
            for (start, _) in masked.match_indices(attribute) {
                let after = start + attribute.len();
                let end = item_end(masked, if attribute.ends_with('{') { after - 1 } else { after });
                self.outlined_test_modules.extend(outlined_module(&masked[after..end]));
                let (first, last) = (line_of(masked, start), line_of(masked, end.saturating_sub(1)));
                let last = last.min(self.test.len());
                self.test[first - 1..last].fill(true);
            }
        }
    }
}

/// `mod NAME;`, perhaps after other attributes: NAME.
fn outlined_module(item: &str) -> Option<String> {
    let declaration = item.trim().strip_suffix(';')?;
    let (before, name) = declaration.rsplit_once("mod ")?;
    let declares = before.is_empty() || before.ends_with([' ', '\n', ']', ')']);
    let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (declares && plain && !declaration.contains('{')).then(|| name.to_owned())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Offset after the item that starts at `from`: after its `;`, or after its closing brace.
fn item_end(masked: &str, from: usize) -> usize {
    let (mut depth, mut braces) = (0_usize, 0_usize);
    for (offset, byte) in masked.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                // `mod NAME { … }` and `fn … { … }` end here; `use a::{b};` goes on to its
                // semicolon.
                if depth == 0 && braces == 0 && masked.as_bytes().get(offset + 1) != Some(&b';') {
                    return offset + 1;
                }
            }
            b';' if depth == 0 && braces == 0 => return offset + 1,
            _ => {}
        }
    }
    masked.len()
}

/// Every `fn NAME … { … }`; a declaration without body is none.
fn functions(masked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, _) in masked.match_indices("fn ") {
        if masked[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &masked[start + 3..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let end = item_end(masked, start);
        if name.is_empty() || !masked[..end].ends_with('}') {
            continue;
        }
        let line = line_of(masked, start);
        found.push(Function { name, line, lines: line_of(masked, end - 1) - line + 1 });
    }
    found
}

/// Every line of every comment, with its 1-based number.
fn comments(text: &str) -> Vec<(usize, String)> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let word_before = 0 < at && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let Some(end) = literal_end(bytes, at, word_before) else {
            at += 1;
            continue;
        };
        if bytes[at..].starts_with(b"//") || bytes[at..].starts_with(b"/*") {
            let first = line_of(text, at);
            let comment = String::from_utf8_lossy(&bytes[at..end]);
            let lines = comment.lines().enumerate();
            found.extend(
                lines.map(|(index, line)| {
                    (first + index, line.trim_start_matches(['/', '!', '*']).to_owned())
                }),
            );
        }
        at = end;
    }
    found
}

/// Blanks comments, strings and character literals; keeps every line break and every byte offset.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let word_before = 0 < at && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let end = literal_end(bytes, at, word_before);
        match end {
            Some(end) => {
                for byte in &mut out[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Offset after the comment or literal that starts at `at`; `None` if code stands there.
fn literal_end(bytes: &[u8], at: usize, word_before: bool) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    if rest[0] == b'"' {
        return Some(string_end(bytes, at));
    }
    if rest[0] == b'\'' {
        return character_end(bytes, at);
    }
    if !word_before {
        let prefix =
            if rest.starts_with(b"br") || rest.starts_with(b"cr") { 2 } else { usize::from(rest[0] == b'r') };
        return (0 < prefix).then(|| raw_string_end(bytes, at + prefix)).flatten();
    }
    None
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0_usize, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `at` is after the `r`: any number of `#`, then the quote.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let body = at + hashes + 1;
    let length = bytes[body..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| body + length + close.len()))
}

/// A character literal, or `None` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at + 1)? {
        b'\\' => {
            // The byte after the backslash may itself be a quote.
            let close = bytes[at + 3..].iter().position(|byte| *byte == b'\'')?;
            Some(at + 3 + close + 1)
        }
        first => {
            let width = match first {
                0xF0.. => 4,
                0xE0.. => 3,
                0xC0.. => 2,
                _ => 1,
            };
            (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_blanks_what_is_no_code() {
        for (name, text, want) in [
            ("line comment", "a // b\nc", "a     \nc"),
            ("nested block comment", "a /* b /* c */ d */ e", "a                   e"),
            ("string with quote", r#"a("x\"y") b"#, "a(      ) b"),
            ("raw string", r###"a(r#"x"y"#) b"###, "a(        ) b"),
            ("raw identifier stays", "r#type x", "r#type x"),
            ("character and lifetime", "<'a> '{' '\\'' b", "<'a>          b"),
            ("wide character", "'é' x", "     x"),
            ("line breaks stay", "\"a\nb\" c", "  \n   c"),
        ] {
            assert_eq!(mask(text), want, "case: {name}");
        }
    }

    #[test]
    fn comments_are_read_and_strings_are_not() {
        let text = "//! A\nfn a() -> &'static str {\n    \"// b\" // c\n}\n/* d\ne */\n";
        let want = [(1, " A"), (3, " c"), (5, " d"), (6, "e */")];
        assert_eq!(RustText::new(text).comments().collect::<Vec<_>>(), want);
    }

    #[test]
    fn functions_are_measured_to_their_closing_brace() {
        let text = "fn one() {}\nimpl A {\n    fn two(&self)\n    where\n        A: B,\n    {\n        if x {\n        }\n    }\n}\ntrait T { fn none(); }\n";
        let want = [("one", 1, 1), ("two", 3, 7)];
        let want: Vec<Function> =
            want.map(|(name, line, lines)| Function { name: name.to_owned(), line, lines }).into();
        assert_eq!(functions(&mask(text)), want);
    }

    #[test]
    fn tests_are_not_code() {
        let text = "use a;\n#[cfg(test)]\nuse b::{c, d};\nfn e() {}\n#[cfg(test)]\nmod tests {\n    fn f() {\n    }\n}\nfn g() {}\n";
        let source = RustText::new(text);
        assert_eq!(
            source.code().collect::<Vec<_>>(),
            vec![(1, "use a;"), (4, "fn e() {}"), (10, "fn g() {}")]
        );
        assert_eq!(source.functions().map(|f| f.name.as_str()).collect::<Vec<_>>(), vec!["e", "g"]);
        assert_eq!(source.code_lines(), 3);
    }
}
