//! Search filters (RFC 4515), as the configuration writes them, with placeholders for names.
//!
//! A placeholder is filled in after the filter is parsed: a name cannot change the filter's form.

use super::ber::{Writer, tag};

/// Parentheses inside of parentheses.
const DEPTH_MAX: usize = 16;

/// A filter of the configuration is not longer.
const TEXT_BYTES_MAX: usize = 2_048;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Each of these.
    And(Vec<Filter>),
    /// One of these.
    Or(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
    /// The attribute is there.
    Present(String),
    /// `=`, `>=`, `<=` or `~=`.
    Compare(u8, String, Value),
    /// `=` with `*` in the value: the parts between, of which the first and last may be empty.
    Parts(String, Vec<Value>),
    /// `ATTRIBUTE:dn:RULE:=VALUE`; rule and attribute may be missing, not both.
    Extensible {
        /// The rule by which values are compared.
        rule: Option<String>,
        /// The attribute; all that the rule is for without one.
        attribute: Option<String>,
        /// Whether the attributes of the distinguished name count.
        of_dn: bool,
        /// The value.
        value: Value,
    },
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Placeholder(Placeholder),
}

/// A name that is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{user}`: the name that the client has sent.
    User,
    /// `{dn}`: the distinguished name of the user's entry.
    Dn,
}

impl Placeholder {
    const ALL: [(&'static str, Placeholder); 2] = [("{user}", Placeholder::User), ("{dn}", Placeholder::Dn)];
}

/// The names to fill in.
#[derive(Clone, Copy, Debug)]
pub struct Names<'n> {
    /// The name that the client has sent.
    pub user: &'n str,
    /// The distinguished name of the user's entry.
    pub dn: &'n str,
}

/// Why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Something else was expected.
    #[error("expected {expected} at {at:?}")]
    Expected {
        /// The right text.
        expected: &'static str,
        /// The rest of the text.
        at: String,
    },
    /// A backslash without two hexadecimal digits.
    #[error("a backslash needs two hexadecimal digits after it, such as \\2a for *")]
    Escape,
    /// Too many parentheses, or too long.
    #[error("at most {DEPTH_MAX} parentheses inside of each other, and {TEXT_BYTES_MAX} bytes")]
    TooLarge,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// It is not one.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        if TEXT_BYTES_MAX < text.len() {
            return Err(FilterError::TooLarge);
        }
        let mut rest = text.trim();
        let filter = parenthesized(&mut rest, DEPTH_MAX)?;
        match rest.is_empty() {
            true => Ok(filter),
            false => Err(expected("the end", rest)),
        }
    }

    /// Whether a placeholder is in it.
    pub fn has(&self, placeholder: Placeholder) -> bool {
        let in_value = |value: &Value| value.0.contains(&Piece::Placeholder(placeholder));
        match self {
            Filter::And(all) | Filter::Or(all) => all.iter().any(|filter| filter.has(placeholder)),
            Filter::Not(filter) => filter.has(placeholder),
            Filter::Present(_) => false,
            Filter::Compare(_, _, value) | Filter::Extensible { value, .. } => in_value(value),
            Filter::Parts(_, values) => values.iter().any(in_value),
        }
    }

    /// Writes it with these names (RFC 4511, section 4.5.1.7).
    pub(super) fn write(&self, names: Names<'_>, writer: &mut Writer) {
        match self {
            Filter::And(all) => {
                writer.nested(tag::AND, |writer| all.iter().for_each(|of| of.write(names, writer)))
            }
            Filter::Or(all) => {
                writer.nested(tag::OR, |writer| all.iter().for_each(|of| of.write(names, writer)))
            }
            Filter::Not(filter) => writer.nested(tag::NOT, |writer| filter.write(names, writer)),
            Filter::Present(attribute) => writer.bytes(tag::PRESENT, attribute.as_bytes()),
            Filter::Compare(kind, attribute, value) => writer.nested(*kind, |writer| {
                writer.bytes(tag::OCTETS, attribute.as_bytes());
                writer.bytes(tag::OCTETS, &value.filled(names));
            }),
            Filter::Parts(attribute, parts) => writer.nested(tag::SUBSTRINGS, |writer| {
                writer.bytes(tag::OCTETS, attribute.as_bytes());
                writer.nested(tag::SEQUENCE, |writer| {
                    let last = parts.len().saturating_sub(1);
                    for (index, part) in parts.iter().enumerate().filter(|(_, part)| !part.0.is_empty()) {
                        let place = if index == 0 {
                            0x80
                        } else if index == last {
                            0x82
                        } else {
                            0x81
                        };
                        writer.bytes(place, &part.filled(names));
                    }
                });
            }),
            Filter::Extensible { rule, attribute, of_dn, value } => {
                writer.nested(tag::EXTENSIBLE, |writer| {
                    rule.iter().for_each(|rule| writer.bytes(0x81, rule.as_bytes()));
                    attribute.iter().for_each(|attribute| writer.bytes(0x82, attribute.as_bytes()));
                    writer.bytes(0x83, &value.filled(names));
                    if *of_dn {
                        writer.bytes(0x84, &[0xFF]);
                    }
                })
            }
        }
    }
}

impl Value {
    fn filled(&self, names: Names<'_>) -> Vec<u8> {
        let bytes = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.clone(),
            Piece::Placeholder(Placeholder::User) => names.user.as_bytes().to_vec(),
            Piece::Placeholder(Placeholder::Dn) => names.dn.as_bytes().to_vec(),
        };
        self.0.iter().flat_map(bytes).collect()
    }

    fn parse(text: &str) -> Result<Value, FilterError> {
        let (mut pieces, mut bytes, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            if let Some((word, placeholder)) =
                Placeholder::ALL.into_iter().find(|(word, _)| rest.starts_with(word))
            {
                pieces.extend((!bytes.is_empty()).then(|| Piece::Bytes(std::mem::take(&mut bytes))));
                pieces.push(Piece::Placeholder(placeholder));
                rest = &rest[word.len()..];
            } else if first == '\\' {
                let digits = rest.get(1..3).ok_or(FilterError::Escape)?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| FilterError::Escape)?);
                rest = &rest[3..];
            } else {
                bytes.extend(first.to_string().bytes());
                rest = &rest[first.len_utf8()..];
            }
        }
        pieces.extend((!bytes.is_empty()).then_some(Piece::Bytes(bytes)));
        Ok(Value(pieces))
    }
}

fn expected(expected: &'static str, at: &str) -> FilterError {
    FilterError::Expected { expected, at: at.chars().take(40).collect() }
}

fn take(rest: &mut &str, character: char, name: &'static str) -> Result<(), FilterError> {
    *rest = rest.strip_prefix(character).ok_or_else(|| expected(name, rest))?;
    Ok(())
}

fn parenthesized(rest: &mut &str, depth: usize) -> Result<Filter, FilterError> {
    let deeper = depth.checked_sub(1).ok_or(FilterError::TooLarge)?;
    take(rest, '(', "(")?;
    let filter = match rest.chars().next() {
        Some(operator @ ('&' | '|')) => {
            *rest = &rest[1..];
            let mut all = Vec::new();
            while rest.starts_with('(') {
                all.push(parenthesized(rest, deeper)?);
            }
            if operator == '&' { Filter::And(all) } else { Filter::Or(all) }
        }
        Some('!') => {
            *rest = &rest[1..];
            Filter::Not(Box::new(parenthesized(rest, deeper)?))
        }
        _ => {
            let end = rest.find(')').ok_or_else(|| expected(")", ""))?;
            let item = item(&rest[..end])?;
            *rest = &rest[end..];
            item
        }
    };
    take(rest, ')', ")")?;
    Ok(filter)
}

/// `ATTRIBUTE=VALUE` and its relatives.
fn item(text: &str) -> Result<Filter, FilterError> {
    let form = "ATTRIBUTE=VALUE";
    let (left, value) = text.split_once('=').ok_or_else(|| expected(form, text))?;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-;_".contains(&byte))
    };
    let attribute = |name: &str| match is_name(name) {
        true => Ok(name.to_owned()),
        false => Err(expected(form, text)),
    };
    if value.contains('(') {
        return Err(expected("\\28 for (", text));
    }
    if let Some(left) = left.strip_suffix(':') {
        let mut parts = left.split(':');
        let name = parts.next().filter(|name| !name.is_empty()).map(&attribute).transpose()?;
        let (mut of_dn, mut rule) = (false, None);
        for part in parts {
            match part {
                "dn" if !of_dn && rule.is_none() => of_dn = true,
                part if rule.is_none() => rule = Some(attribute(part)?),
                _ => return Err(expected(form, text)),
            }
        }
        if name.is_none() && rule.is_none() {
            return Err(expected(form, text));
        }
        return Ok(Filter::Extensible { rule, attribute: name, of_dn, value: Value::parse(value)? });
    }
    for (operator, kind) in [('>', tag::GREATER), ('<', tag::LESS), ('~', tag::APPROXIMATE)] {
        if let Some(left) = left.strip_suffix(operator) {
            return Ok(Filter::Compare(kind, attribute(left)?, Value::parse(value)?));
        }
    }
    let left = attribute(left)?;
    if value == "*" {
        return Ok(Filter::Present(left));
    }
    match value.contains('*') {
        true => {
            let parts = value.split('*').map(Value::parse).collect::<Result<_, _>>()?;
            Ok(Filter::Parts(left, parts))
        }
        false => Ok(Filter::Compare(tag::EQUAL, left, Value::parse(value)?)),
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn written(text: &str, user: &str) -> Result<String, FilterError> {
        let mut writer = Writer::default();
        Filter::parse(text)?.write(Names { user, dn: "cn=x" }, &mut writer);
        Ok(HEXLOWER.encode(&writer.done()))
    }

    #[test]
    fn filters_are_written_as_rfc_4511_says() {
        for (text, want) in [
            ("(uid={user})", "a30a0403756964".to_owned() + "0403616e6e"),
            ("(uid=*)", "8703756964".to_owned()),
            ("(!(uid=a))", "a20aa3080403756964040161".to_owned()),
            ("(&(a=b)(c=d))", "a010a306040161040162a306040163040164".to_owned()),
            ("(|(a=b)(c=d))", "a110a306040161040162a306040163040164".to_owned()),
            ("(a>=1)", "a506040161040131".to_owned()),
            ("(a<=1)", "a606040161040131".to_owned()),
            ("(a~=1)", "a806040161040131".to_owned()),
            ("(a=x*y*z)", "a40e040161".to_owned() + "3009" + "800178" + "810179" + "82017a"),
            ("(a=*y)", "a408040161".to_owned() + "3003" + "820179"),
            ("(a=\\2a)", "a30604016104012a".to_owned()),
            ("(m:1.2:={dn})", "a90e".to_owned() + "8103312e32" + "82016d" + "8304636e3d78"),
            ("(:dn:1.2:=v)", "a90b".to_owned() + "8103312e32" + "830176" + "8401ff"),
        ] {
            assert_eq!(written(text, "ann"), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_name_cannot_change_the_form_of_a_filter() {
        for name in ["*", "ann)(uid=*", "a\\2a", "*)(|(uid=*", "\0"] {
            let filter = written("(&(objectClass=person)(uid={user}))", name).unwrap();
            let value = format!("04{:02x}{}", name.len(), HEXLOWER.encode(name.as_bytes()));
            assert!(filter.ends_with(&value), "{name:?}: {filter}");
            assert_eq!(filter.matches("a3").count(), 2, "{name:?}: {filter}");
        }
    }

    #[test]
    fn texts_that_are_not_filters_are_refused() {
        for text in [
            "",
            "uid={user}",
            "(uid)",
            "(uid=a",
            "(uid=a))",
            "(=a)",
            "(u d=a)",
            "(&(a=b)",
            "(a=\\2)",
            "(a=\\zz)",
            "(a=b(c)",
            "(::=a)",
            "(a:b:c:=d)",
            "(!a=b)",
        ] {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
        let deep = |depth: usize| format!("{}(a=b){}", "(!".repeat(depth), ")".repeat(depth));
        assert!(Filter::parse(&deep(DEPTH_MAX - 1)).is_ok());
        assert_eq!(Filter::parse(&deep(DEPTH_MAX)), Err(FilterError::TooLarge));
        assert_eq!(Filter::parse(&format!("(a={})", "x".repeat(3_000))), Err(FilterError::TooLarge));
        assert!(Filter::parse("(uid={user})").unwrap().has(Placeholder::User));
        assert!(!Filter::parse("(uid=ann)").unwrap().has(Placeholder::User));
    }
}
