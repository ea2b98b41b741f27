//! Header rules: the header changes of a route, and how selectors see the result.

use std::borrow::Cow;
use std::sync::Arc;

use postroad_model::{HeaderChanges, HeaderValue};
use postroad_selector::{Properties, Value};

/// Text that a template may make of a message: beyond this it ends.
const TEMPLATE_BYTES_MAX: usize = 32 << 10;

/// One header that a route changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    /// Which.
    pub name: Arc<str>,
    /// How.
    pub change: HeaderChange,
}

/// How a header changes. Values are read from the message as it was before the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderChange {
    /// The message has it no more.
    Remove,
    /// It gets the value of another header; without that one it stays as it was.
    Copy(Arc<str>),
    /// It gets this value.
    Set(HeaderValue),
    /// It gets this text.
    Template(Template),
}

/// Text with the values of headers in it: `order-${region}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Header(Box<str>),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// A `${` has no end.
    #[error("`${{` at byte {at} has no closing brace")]
    Open {
        /// Where.
        at: usize,
    },
    /// A `${}` names no header.
    #[error("`${{}}` at byte {at} names no header")]
    NoName {
        /// Where.
        at: usize,
    },
}

impl Template {
    /// Reads a template. `$$` stands for one `$`.
    ///
    /// # Errors
    /// [`TemplateError`]: a reference to a header does not end, or is empty.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let (mut parts, mut plain, mut at) = (Vec::new(), String::new(), 0);
        while let Some(found) = text[at..].find('$') {
            plain.push_str(&text[at..at + found]);
            at += found;
            let rest = &text[at + 1..];
            if let Some(reference) = rest.strip_prefix('{') {
                let length = reference.find('}').ok_or(TemplateError::Open { at })?;
                if length == 0 {
                    return Err(TemplateError::NoName { at });
                }
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(Part::Header(reference[..length].into()));
                at += 3 + length;
            } else {
                plain.push('$');
                at += if rest.starts_with('$') { 2 } else { 1 };
            }
        }
        plain.push_str(&text[at..]);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Template { parts })
    }

    /// The text itself, if it names no header.
    pub fn constant(&self) -> Option<&str> {
        match &self.parts[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text for this message; a header that it does not have is empty.
    fn fill(&self, properties: &dyn Properties) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let piece: Cow<'_, str> = match part {
                Part::Text(plain) => Cow::Borrowed(plain),
                Part::Header(name) => {
                    let value = properties.property(name).and_then(|value| header_value(&value));
                    value.map_or(Cow::Borrowed(""), |value| Cow::Owned(value.text()))
                }
            };
            let room = TEMPLATE_BYTES_MAX - text.len();
            text.push_str(&piece[..piece.floor_char_boundary(room)]);
        }
        text
    }
}

/// A value of a selector, as one that can be set; `None` for bytes, maps and lists.
pub fn header_value(value: &Value<'_>) -> Option<HeaderValue> {
    Some(match value {
        Value::Boolean(value) => HeaderValue::Boolean(*value),
        Value::Long(value) => HeaderValue::integer(*value),
        Value::Double(value) => HeaderValue::Double(*value),
        Value::String(text) => HeaderValue::String(text.as_ref().into()),
        Value::Other => return None,
    })
}

/// The changes made so far, and those that these rules add. All values are read before any is
/// changed.
pub fn changed_by(rules: &[HeaderRule], so_far: &HeaderChanges, message: &dyn Properties) -> HeaderChanges {
    let seen = Changed { message, changes: so_far };
    let mut changes = so_far.clone();
    for HeaderRule { name, change } in rules {
        let value = match change {
            HeaderChange::Remove => None,
            HeaderChange::Set(value) => Some(value.clone()),
            HeaderChange::Template(template) => Some(HeaderValue::String(template.fill(&seen).into())),
            HeaderChange::Copy(from) => match seen.property(from).and_then(|value| header_value(&value)) {
                Some(value) => Some(value),
                None => continue,
            },
        };
        changes.put(name.clone(), value);
    }
    changes
}

/// A message with changed headers, as selectors see it.
pub struct Changed<'m> {
    /// As it was sent.
    pub message: &'m dyn Properties,
    /// Its changes.
    pub changes: &'m HeaderChanges,
}

impl Properties for Changed<'_> {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        match self.changes.get(name) {
            None => self.message.property(name),
            Some(value) => value.map(|value| match value {
                HeaderValue::Boolean(value) => Value::Boolean(*value),
                HeaderValue::Int(value) => Value::Long(i64::from(*value)),
                HeaderValue::Long(value) => Value::Long(*value),
                HeaderValue::Double(value) => Value::Double(*value),
                HeaderValue::String(text) => Value::String(Cow::Borrowed(text)),
            }),
        }
    }

    fn body(&self) -> Option<Cow<'_, str>> {
        self.message.body()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent;

    impl Properties for Sent {
        fn property(&self, name: &str) -> Option<Value<'_>> {
            match name {
                "region" => Some("eu".into()),
                "n" => Some(Value::Long(7)),
                _ => None,
            }
        }
    }

    #[test]
    fn templates_are_filled_or_refused() {
        for (text, want) in [
            ("plain", Ok("plain")),
            ("", Ok("")),
            ("${region}-${n}", Ok("eu-7")),
            ("a$$b$c${none}!", Ok("a$b$c!")),
            ("${region", Err(TemplateError::Open { at: 0 })),
            ("x${}", Err(TemplateError::NoName { at: 1 })),
        ] {
            let got = Template::parse(text).map(|template| template.fill(&Sent));
            assert_eq!(got, want.map(str::to_owned), "{text}");
        }
        let long = Template::parse(&"ä".repeat(TEMPLATE_BYTES_MAX)).unwrap();
        assert_eq!(long.fill(&Sent).len(), TEMPLATE_BYTES_MAX);
    }

    #[test]
    fn values_are_read_before_any_changes() {
        let rule = |name: &str, change| HeaderRule { name: name.into(), change };
        let template = |text| HeaderChange::Template(Template::parse(text).unwrap());
        let rules = [
            rule("region", HeaderChange::Remove),
            rule("was", HeaderChange::Copy("region".into())),
            rule("none", HeaderChange::Copy("missing".into())),
            rule("n", HeaderChange::Set(HeaderValue::Int(8))),
            rule("key", template("${region}/${n}")),
        ];
        let changes = changed_by(&rules, &HeaderChanges::default(), &Sent);
        let changed = Changed { message: &Sent, changes: &changes };
        for (name, want) in [
            ("region", None),
            ("was", Some("eu".into())),
            ("none", None),
            ("n", Some(Value::Long(8))),
            ("key", Some("eu/7".into())),
        ] {
            assert_eq!(changed.property(name), want, "{name}");
        }
        let more = changed_by(&[rule("key", template("${key}+"))], &changes, &Sent);
        assert_eq!(more.get("key"), Some(Some(&HeaderValue::String("eu/7+".into()))));
    }
}
