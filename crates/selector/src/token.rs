//! From text to tokens: ActiveMQ's grammar, and the suffixes of Java literals (JMS 3.8.1.1).

use crate::error::{Found, Reason, SelectorError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyword {
    Not,
    And,
    Or,
    Between,
    Like,
    Escape,
    In,
    Is,
    True,
    False,
    Null,
}

const KEYWORDS: &[(&str, Keyword)] = &[
    ("NOT", Keyword::Not),
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("BETWEEN", Keyword::Between),
    ("LIKE", Keyword::Like),
    ("ESCAPE", Keyword::Escape),
    ("IN", Keyword::In),
    ("IS", Keyword::Is),
    ("TRUE", Keyword::True),
    ("FALSE", Keyword::False),
    ("NULL", Keyword::Null),
];

/// Two characters first: the longest symbol wins.
const SYMBOLS: &[&str] = &["<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", ","];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token<'t> {
    Keyword(Keyword),
    Name(&'t str),
    /// With quotes taken off.
    String(String),
    Long(i64),
    /// 2^63: legal after a minus sign alone.
    LongMinMagnitude,
    Double(f64),
    Symbol(&'static str),
    /// No token begins with this character.
    Unknown,
    End,
}

/// A token, and the bytes of the text it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'t> {
    pub(crate) token: Token<'t>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All tokens from byte `start` on; the last one is [`Token::End`].
pub(crate) fn tokens(text: &str, start: usize) -> Result<Vec<Placed<'_>>, SelectorError> {
    let mut tokens = Vec::new();
    let mut at = start;
    let last_line_end = text.rfind(['\n', '\r']).unwrap_or(0);
    loop {
        at = skip_blank(text, at, last_line_end)?;
        let (token, end) = token(text, at)?;
        let last = matches!(token, Token::End | Token::Unknown);
        tokens.push(Placed { token, start: at, end });
        if last {
            // Nothing after an unknown character is looked at: the parser stops there at the
            // latest.
            tokens.push(Placed { token: Token::End, start: text.len(), end: text.len() });
            return Ok(tokens);
        }
        at = end;
    }
}

pub(crate) fn error_at(text: &str, byte: usize, reason: Reason) -> SelectorError {
    SelectorError { position: text[..byte].chars().count(), reason }
}

pub(crate) fn found(text: &str, placed: &Placed<'_>) -> Found {
    Found::new(&text[placed.start..placed.end])
}

/// Blanks (JMS 3.8.1.1) and comments. `--` begins a comment only where a line ends after it:
/// without one, ActiveMQ reads two minus signs. That it is known where the last line ends keeps
/// `-----…` linear.
fn skip_blank(text: &str, mut at: usize, last_line_end: usize) -> Result<usize, SelectorError> {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']).len();
        if 0 < blank {
            at += blank;
        } else if at < last_line_end && rest.starts_with("--") {
            at += rest.find(['\n', '\r']).unwrap_or(rest.len());
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or_else(|| error_at(text, at, Reason::OpenComment))?;
            at += end + 4;
        } else {
            return Ok(at);
        }
    }
}

fn token(text: &str, at: usize) -> Result<(Token<'_>, usize), SelectorError> {
    let rest = &text[at..];
    let mut characters = rest.chars();
    let Some(first) = characters.next() else { return Ok((Token::End, at)) };
    if first == '\'' {
        return string(text, at);
    }
    if first.is_ascii_digit() || (first == '.' && characters.next().is_some_and(|next| next.is_ascii_digit()))
    {
        return number(text, at);
    }
    if is_name_start(first) {
        let end = at + name_length(rest);
        let name = &text[at..end];
        let keyword = KEYWORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(name));
        return Ok((keyword.map_or(Token::Name(name), |(_, keyword)| Token::Keyword(*keyword)), end));
    }
    match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        Some(symbol) => Ok((Token::Symbol(symbol), at + symbol.len())),
        None => Ok((Token::Unknown, at + first.len_utf8())),
    }
}

fn is_name_start(character: char) -> bool {
    character.is_alphabetic() || character == '_' || character == '$'
}

fn is_name_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

/// Bytes of the name at the start of `rest`. A dot belongs to it where more of the name follows.
fn name_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let dot = character == '.' && characters.peek().is_some_and(|(_, next)| is_name_part(*next));
        if !is_name_part(character) && !dot {
            return at;
        }
    }
    rest.len()
}

/// A quote inside is written twice.
fn string(text: &str, at: usize) -> Result<(Token<'_>, usize), SelectorError> {
    let mut value = String::new();
    let mut from = at + 1;
    while let Some(length) = text[from..].find('\'') {
        let quote = from + length;
        value.push_str(&text[from..quote]);
        if !text[quote + 1..].starts_with('\'') {
            return Ok((Token::String(value), quote + 1));
        }
        value.push('\'');
        from = quote + 2;
    }
    Err(error_at(text, at, Reason::OpenString))
}

fn number(text: &str, at: usize) -> Result<(Token<'_>, usize), SelectorError> {
    let rest = &text[at..];
    let hex = rest.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    let hex_digits = if hex { count(&rest[2..], |character| character.is_ascii_hexdigit()) } else { 0 };
    if 0 < hex_digits {
        return integer(text, at, 2, 2 + hex_digits, 16);
    }
    let whole = digits(rest);
    let mut length = whole;
    if rest[length..].starts_with('.') {
        length += 1 + digits(&rest[length + 1..]);
    }
    length += exponent_length(&rest[length..]);
    let suffixed = suffix(&rest[length..], "dDfF");
    if whole < length || suffixed.is_some() {
        return Ok(double(text, at, length, suffixed));
    }
    if rest.starts_with('0') {
        // `08` is the octal number 0 and a second number behind it, which the parser refuses.
        let octal = count(rest, |character| ('0'..='7').contains(&character));
        return integer(text, at, 0, octal, 8);
    }
    integer(text, at, 0, whole, 10)
}

fn double(text: &str, at: usize, length: usize, suffix: Option<char>) -> (Token<'_>, usize) {
    let digits = &text[at..at + length];
    let single = suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(&'f'));
    let value = if single { digits.parse::<f32>().map(f64::from) } else { digits.parse::<f64>() };
    let value = value.expect("digits, at most one point and one exponent are a number");
    (Token::Double(value), at + length + usize::from(suffix.is_some()))
}

fn integer(
    text: &str,
    at: usize,
    from: usize,
    to: usize,
    radix: u32,
) -> Result<(Token<'_>, usize), SelectorError> {
    let end = at + to + usize::from(suffix(&text[at + to..], "lL").is_some());
    let magnitude = u64::from_str_radix(&text[at + from..at + to], radix);
    match magnitude.map(|magnitude| (magnitude, i64::try_from(magnitude))) {
        Ok((_, Ok(value))) => Ok((Token::Long(value), end)),
        Ok((magnitude, Err(_))) if magnitude == i64::MIN.unsigned_abs() && radix == 10 => {
            Ok((Token::LongMinMagnitude, end))
        }
        _ => Err(error_at(text, at, Reason::NumberOutOfRange)),
    }
}

fn count(text: &str, mut wanted: impl FnMut(char) -> bool) -> usize {
    text.find(|character| !wanted(character)).unwrap_or(text.len())
}

fn digits(text: &str) -> usize {
    count(text, |character| character.is_ascii_digit())
}

/// Bytes of `E`, an optional sign and digits; none where the digits are missing.
fn exponent_length(text: &str) -> usize {
    let Some(behind) = text.strip_prefix(['e', 'E']) else { return 0 };
    let unsigned = behind.strip_prefix(['+', '-']).unwrap_or(behind);
    match digits(unsigned) {
        0 => 0,
        digits => text.len() - unsigned.len() + digits,
    }
}

/// A letter that ends the literal: no part of a word, as in `5LIKE`.
fn suffix(text: &str, letters: &str) -> Option<char> {
    let mut characters = text.chars();
    let letter = characters.next().filter(|letter| letters.contains(*letter))?;
    characters.next().is_none_or(|next| !is_name_part(next)).then_some(letter)
}
