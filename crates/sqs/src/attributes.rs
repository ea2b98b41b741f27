//! Attributes of messages: their types, their digests, and as properties of a message in the
//! broker.

use data_encoding::{BASE64, HEXLOWER};
use postroad_model::portable::{Text, Value as Property};
use serde_json::{Map, Value, json};

use crate::error::{Code, SqsError};
use crate::md5;
use crate::params::Params;

/// Attributes of one message, at most.
const ATTRIBUTES_MAX: usize = 10;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 256;
/// Digits of a number.
const DIGITS_MAX: usize = 38;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Of the types `String` and `Number`.
    Text(String),
    /// Of the type `Binary`.
    Bytes(Vec<u8>),
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, perhaps with a label: `Number.price`.
    pub data_type: String,
    /// The value.
    pub content: Content,
}

/// Attributes in the order of their names.
pub type MessageAttributes = std::collections::BTreeMap<String, MessageAttribute>;

/// Reads the attributes of a message to send.
///
/// # Errors
/// One of them is none.
pub fn read_attributes(map: Map<String, Value>) -> Result<MessageAttributes, SqsError> {
    if ATTRIBUTES_MAX < map.len() {
        let message =
            format!("Number of message attributes [{}] exceeds the allowed maximum [10].", map.len());
        return Err(Code::InvalidParameterValue.because(message));
    }
    map.into_iter().map(|(name, value)| read_one(&name, value).map(|attribute| (name, attribute))).collect()
}

fn read_one(name: &str, value: Value) -> Result<MessageAttribute, SqsError> {
    let wrong = |reason: &str| {
        Code::InvalidParameterValue.because(format!("The message attribute '{name}' is invalid: {reason}."))
    };
    check_name(name)?;
    let mut fields = Params::of(value, name)?;
    let data_type = fields.text("DataType")?.filter(|text| !text.is_empty());
    let data_type = data_type.ok_or_else(|| wrong("it must contain a non-empty attribute type"))?;
    let (text, binary) = (fields.text("StringValue")?, fields.text("BinaryValue")?);
    let kind = data_type.split('.').next().unwrap_or_default();
    let content = match (kind, text, binary) {
        ("String" | "Number" | "Binary", None, None) => {
            return Err(wrong("it must contain a non-empty attribute value for its type"));
        }
        ("String" | "Number", Some(text), None) if !text.is_empty() => Content::Text(text),
        ("Binary", None, Some(bytes)) if !bytes.is_empty() => {
            Content::Bytes(BASE64.decode(bytes.as_bytes()).map_err(|_| wrong("BinaryValue is not base64"))?)
        }
        ("String" | "Number", ..) => {
            return Err(wrong("a String or Number has a StringValue, which is not empty"));
        }
        ("Binary", ..) => return Err(wrong("a Binary has a BinaryValue, which is not empty")),
        _ => return Err(wrong("its type must begin with String, Number or Binary")),
    };
    match &content {
        Content::Text(text) if kind == "Number" && !is_number(text) => {
            Err(wrong(&format!("{text} is no number of at most {DIGITS_MAX} digits")))
        }
        Content::Text(text) if !is_allowed_text(text) => Err(wrong("it has characters that are not allowed")),
        _ => Ok(MessageAttribute { data_type, content }),
    }
}

fn check_name(name: &str) -> Result<(), SqsError> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let has_dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_good) && !is_reserved && !has_dots {
        return Ok(());
    }
    let message = format!(
        "Invalid message attribute name '{name}': 1 to {NAME_CHARS_MAX} letters, digits, hyphens, underscores \
         and single periods, not beginning with AWS. or Amazon."
    );
    Err(Code::InvalidParameterValue.because(message))
}

fn is_number(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    digits <= DIGITS_MAX && is_plain && text.parse::<f64>().is_ok()
}

/// Whether a body or an attribute has only characters that SQS allows: those of XML 1.0.
pub(crate) fn is_allowed_text(text: &str) -> bool {
    text.chars().all(|c| match c {
        '\t' | '\n' | '\r' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        _ => ' ' <= c,
    })
}

/// Bytes that the attributes count towards the size of a message.
pub(crate) fn byte_length(attributes: &MessageAttributes) -> usize {
    let of = |(name, attribute): (&String, &MessageAttribute)| {
        let content = match &attribute.content {
            Content::Text(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
        };
        name.len() + attribute.data_type.len() + content
    };
    attributes.iter().map(of).sum()
}

/// The digest of attributes, as clients check it; `None` without attributes.
pub fn attributes_md5(attributes: &MessageAttributes) -> Option<String> {
    let mut bytes = Vec::new();
    let mut put = |part: &[u8], mark: Option<u8>| {
        bytes.extend(mark);
        bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    for (name, MessageAttribute { data_type, content }) in attributes {
        put(name.as_bytes(), None);
        put(data_type.as_bytes(), None);
        match content {
            Content::Text(text) => put(text.as_bytes(), Some(1)),
            Content::Bytes(bytes) => put(bytes, Some(2)),
        }
    }
    (!attributes.is_empty()).then(|| HEXLOWER.encode(&md5(&bytes)))
}

/// An attribute in an answer.
pub(crate) fn to_json(attribute: &MessageAttribute) -> Value {
    match &attribute.content {
        Content::Text(text) => json!({ "DataType": attribute.data_type, "StringValue": text }),
        Content::Bytes(bytes) => {
            json!({ "DataType": attribute.data_type, "BinaryValue": BASE64.encode(bytes) })
        }
    }
}

/// The property of an attribute: numbers where a number says the same, so that selectors compare
/// them.
pub(crate) fn to_property(attribute: &MessageAttribute) -> Property {
    match &attribute.content {
        Content::Bytes(bytes) => Property::Binary(bytes.clone().into()),
        Content::Text(text) if attribute.data_type.starts_with("Number") => {
            let long = text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
            let double = || text.parse::<f64>().ok().filter(|number| number.to_string() == *text);
            match (long, double()) {
                (Some(long), _) => Property::Long(long),
                (None, Some(double)) => Property::Double(double),
                (None, None) => Property::String(text.as_str().into()),
            }
        }
        Content::Text(text) => Property::String(text.as_str().into()),
    }
}

/// The attribute of a property, of this type if it is known; `None` if there is none like it.
pub(crate) fn of_property(property: &Property, data_type: Option<&str>) -> Option<MessageAttribute> {
    let number = |text: String| Some(("Number", Content::Text(text)));
    let (kind, content) = match property {
        Property::String(text) | Property::Symbol(text) => {
            Some(("String", Content::Text(text.as_str().to_owned())))
        }
        Property::Boolean(value) => Some(("String", Content::Text(value.to_string()))),
        Property::Char(value) => Some(("String", Content::Text(value.to_string()))),
        Property::Uuid(uuid) => Some(("String", Content::Text(postroad_model::portable::uuid_text(uuid)))),
        Property::Byte(value) => number(value.to_string()),
        Property::Short(value) => number(value.to_string()),
        Property::Int(value) => number(value.to_string()),
        Property::Long(value) | Property::Timestamp(value) => number(value.to_string()),
        Property::UnsignedByte(value) => number(value.to_string()),
        Property::UnsignedShort(value) => number(value.to_string()),
        Property::UnsignedInt(value) => number(value.to_string()),
        Property::UnsignedLong(value) => number(value.to_string()),
        Property::Float(value) => number(value.to_string()),
        Property::Double(value) => number(value.to_string()),
        Property::Decimal(value) => number(value.to_string()),
        Property::Binary(bytes) => Some(("Binary", Content::Bytes(bytes.to_vec()))),
        Property::Null | Property::List(_) | Property::Map(_) => None,
    }?;
    let is_empty = match &content {
        Content::Text(text) => text.is_empty(),
        Content::Bytes(bytes) => bytes.is_empty(),
    };
    let data_type = data_type.unwrap_or(kind).to_owned();
    (!is_empty).then_some(MessageAttribute { data_type, content })
}

/// The types that [`of_property`] would not find by itself, by name; `None` if it finds all.
pub(crate) fn types_to_note(attributes: &MessageAttributes) -> Option<Text> {
    let is_noted = |(_, attribute): &(&String, &MessageAttribute)| {
        of_property(&to_property(attribute), None).as_ref() != Some(*attribute)
    };
    let noted = attributes.iter().filter(is_noted);
    let types: Map<String, Value> =
        noted.map(|(name, attribute)| (name.clone(), json!(attribute.data_type))).collect();
    (!types.is_empty()).then(|| Value::Object(types).to_string().into())
}

/// Whether an attribute is asked for: by its name, by `prefix.*`, or with all.
pub(crate) fn is_asked_for(name: &str, names: &[String]) -> bool {
    names.iter().any(|asked| match asked.as_str() {
        "All" | ".*" => true,
        asked => match asked.strip_suffix(".*") {
            Some(prefix) => name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.')),
            None => name == asked,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(data_type: &str, text: &str) -> MessageAttribute {
        MessageAttribute { data_type: data_type.to_owned(), content: Content::Text(text.to_owned()) }
    }

    fn read(value: Value) -> Result<MessageAttributes, SqsError> {
        let Value::Object(map) = value else { return Ok(MessageAttributes::new()) };
        read_attributes(map)
    }

    #[test]
    fn attributes_are_read_and_their_digest_is_that_of_the_clients() {
        // The digest was computed by hand after the developer guide.
        let read = read(json!({
            "b": { "DataType": "Binary", "BinaryValue": "AQI=" },
            "a": { "DataType": "Number.int", "StringValue": "7" },
        }));
        let attributes = read.unwrap();
        let by_hand = b"\x00\x00\x00\x01a\x00\x00\x00\x0aNumber.int\x01\x00\x00\x00\x017\x00\x00\x00\x01b\x00\x00\x00\x06Binary\x02\x00\x00\x00\x02\x01\x02";
        assert_eq!(attributes_md5(&attributes), Some(HEXLOWER.encode(&md5(by_hand))));
        assert_eq!(attributes_md5(&MessageAttributes::new()), None);
    }

    #[test]
    fn wrong_attributes_are_refused() {
        for value in [
            json!({ "a": { "StringValue": "x" } }),
            json!({ "a": { "DataType": "String" } }),
            json!({ "a": { "DataType": "String", "StringValue": "" } }),
            json!({ "a": { "DataType": "Text", "StringValue": "x" } }),
            json!({ "a": { "DataType": "Number", "StringValue": "x" } }),
            json!({ "a": { "DataType": "Number", "StringValue": "inf" } }),
            json!({ "a": { "DataType": "Binary", "BinaryValue": "?" } }),
            json!({ "a": { "DataType": "String", "StringValue": "\u{1}" } }),
            json!({ "AWS.a": { "DataType": "String", "StringValue": "x" } }),
            json!({ "a..b": { "DataType": "String", "StringValue": "x" } }),
            json!({ "": { "DataType": "String", "StringValue": "x" } }),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert_eq!(error.code, Code::InvalidParameterValue, "{value}");
        }
        let many: Map<String, Value> =
            (0..11).map(|n| (format!("a{n}"), json!({ "DataType": "String", "StringValue": "x" }))).collect();
        assert_eq!(read_attributes(many).unwrap_err().code, Code::InvalidParameterValue);
    }

    #[test]
    fn attributes_come_back_from_properties() {
        for (attribute, property, noted) in [
            (one("String", "x"), Property::from("x"), false),
            (one("Number", "7"), Property::Long(7), false),
            (one("Number", "1.5"), Property::Double(1.5), false),
            (one("Number", "1.50"), Property::from("1.50"), true),
            (one("Number", "007"), Property::from("007"), true),
            (one("Number.x", "-7"), Property::Long(-7), true),
            (one("String.x", "7"), Property::from("7"), true),
        ] {
            assert_eq!(to_property(&attribute), property, "{attribute:?}");
            let known = Some(attribute.data_type.as_str());
            assert_eq!(of_property(&property, known).as_ref(), Some(&attribute), "{attribute:?}");
            let all = MessageAttributes::from([("a".to_owned(), attribute)]);
            assert_eq!(types_to_note(&all).is_some(), noted, "{all:?}");
        }
        assert_eq!(of_property(&Property::Null, None), None);
        assert_eq!(of_property(&Property::Boolean(true), None), Some(one("String", "true")));
    }

    #[test]
    fn names_are_asked_for_one_by_one_by_prefix_or_all() {
        for (asked, want) in
            [("a.b", true), ("a.*", true), ("All", true), (".*", true), ("a", false), ("b.*", false)]
        {
            assert_eq!(is_asked_for("a.b", &[asked.to_owned()]), want, "{asked}");
        }
        assert!(!is_asked_for("a", &[]));
    }
}
