//! One element of an XML configuration, which marks its attributes as read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use roxmltree::Node;

use super::translation::Translation;

/// See the head of this file.
pub struct Element<'a> {
    node: Node<'a, 'a>,
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Element<'a> {
    /// Nothing of it was read.
    pub fn new(node: Node<'a, 'a>) -> Element<'a> {
        Element { node, read: RefCell::default() }
    }

    /// Its name without namespace.
    pub fn name(&self) -> &'a str {
        self.node.tag_name().name()
    }

    /// Where it begins, counted from 1.
    pub fn line(&self) -> u32 {
        self.node.document().text_pos_at(self.node.range().start).row
    }

    /// The elements in it.
    pub fn children(&self) -> impl Iterator<Item = Element<'a>> + use<'a> {
        self.node.children().filter(Node::is_element).map(Element::new)
    }

    /// The text in it, without that of its elements.
    pub fn text(&self) -> &'a str {
        self.node.text().unwrap_or_default()
    }

    /// The first element of this name in it.
    pub fn child(&self, name: &str) -> Option<Element<'a>> {
        self.children().find(|child| child.name() == name)
    }

    /// The first element of the document with this id.
    pub fn with_id(&self, id: &str) -> Option<Element<'a>> {
        let mut all = self.node.document().descendants();
        all.find(|node| node.is_element() && node.attribute("id") == Some(id)).map(Element::new)
    }

    /// Whether the attribute is there.
    pub fn has(&self, name: &str) -> bool {
        self.node.has_attribute(name)
    }

    /// An attribute's value. One with a placeholder is noted, and not there.
    pub fn value(&self, name: &str, translation: &mut Translation) -> Option<&'a str> {
        let value = self.node.attribute(name)?;
        self.read.borrow_mut().insert(name.to_owned());
        if has_placeholder(value) {
            let why = format!("{name}=\"{value}\" stands for a value elsewhere: set it by hand");
            translation.note(self, &why);
            return None;
        }
        Some(value.trim())
    }

    /// As [`Element::value`], a number; anything else is noted.
    pub fn number(&self, name: &str, translation: &mut Translation) -> Option<i64> {
        let value = self.value(name, translation)?;
        match value.parse() {
            Ok(number) => Some(number),
            Err(_) => {
                translation.note(self, &format!("{name}=\"{value}\" is not a whole number"));
                None
            }
        }
    }

    /// As [`Element::value`], `true` or `false`; anything else is noted.
    pub fn flag(&self, name: &str, translation: &mut Translation) -> Option<bool> {
        let value = self.value(name, translation)?;
        match value {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                translation.note(self, &format!("{name}=\"{value}\" is neither true nor false"));
                None
            }
        }
    }

    /// As [`Element::value`], a size such as `64 mb`, in bytes; anything else is noted.
    pub fn bytes(&self, name: &str, translation: &mut Translation) -> Option<u64> {
        let value = self.value(name, translation)?;
        let bytes = bytes_of(value);
        if bytes.is_none() {
            translation.note(self, &format!("{name}=\"{value}\" is not a size such as 64 mb"));
        }
        bytes
    }

    /// Attributes that `known` explains are noted with the reason, others as unknown; those that
    /// were read are not.
    pub fn note_the_rest(&self, known: &[(&str, &str)], translation: &mut Translation) {
        let attributes = self.node.attributes().filter(|attribute| attribute.namespace().is_none());
        for attribute in attributes.filter(|attribute| !self.read.borrow().contains(attribute.name())) {
            let (name, value) = (attribute.name(), attribute.value());
            let reason = known.iter().find(|(known, _)| *known == name).map(|(_, why)| *why);
            match reason {
                _ if name == "id" => {}
                Some("") => {}
                Some(why) => translation.note(self, &format!("{name}=\"{value}\": {why}")),
                None => translation.note(self, &format!("{name}=\"{value}\" is unknown")),
            }
        }
    }
}

/// Whether part of the text is put in from elsewhere: `${name}`, `#{name}` and `#bean` by Spring,
/// `%name%` by scripts that install brokers.
fn has_placeholder(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|part| part.is_ascii_alphanumeric() || "._-".contains(part))
    };
    let between_percent_signs = text.split('%').skip(1);
    // Text after the last sign is between none.
    let names = text.matches('%').count().saturating_sub(1);
    text.starts_with('#')
        || text.contains("${")
        || text.contains("#{")
        || between_percent_signs.take(names).any(is_name)
}

/// `64 mb` and the like (ActiveMQ's `XBeanByteConverterUtil`).
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        for (text, want) in [
            ("orders.${zone}", true),
            ("#{systemProperties.name}", true),
            ("#deadLetters", true),
            ("orders.#", false),
            ("orders.%zone%", true),
            ("%a%.%b%", true),
            ("orders", false),
            ("50%", false),
            ("5% to 9%", false),
            ("a%%b", false),
        ] {
            assert_eq!(has_placeholder(text), want, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_activemq_reads_them() {
        for (text, want) in [
            ("7", Some(7)),
            ("7b", Some(7)),
            ("2 kb", Some(2048)),
            ("1 GB", Some(1 << 30)),
            ("64mb", Some(64 << 20)),
            ("1 tb", None),
            ("mb", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("99999999999999 gb", None),
        ] {
            assert_eq!(bytes_of(text), want, "{text}");
        }
    }
}
