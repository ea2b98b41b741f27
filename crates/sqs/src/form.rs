//! The query protocol: forms as the parameters of the JSON protocol.
//!
//! `Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=7` is `{"Attributes":
//! {"VisibilityTimeout": "7"}}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Code, SqsError};
use crate::params::Params;

/// Fields of one form, at most: a batch of ten messages with ten attributes each has some 500.
const FIELDS_MAX: usize = 4_096;
/// Parts of a field's name, at most.
const DEPTH_MAX: usize = 8;

/// How a list or a map of the query protocol is called in the JSON protocol.
enum Shape {
    List(&'static str),
    /// The field of the key, and of the value.
    Map(&'static str, &'static str, &'static str),
}

/// Lists and maps of all actions but for the entries of batches.
fn shape_of(name: &str) -> Option<Shape> {
    Some(match name {
        "Attribute" => Shape::Map("Attributes", "Name", "Value"),
        "MessageAttribute" => Shape::Map("MessageAttributes", "Name", "Value"),
        "MessageSystemAttribute" => Shape::Map("MessageSystemAttributes", "Name", "Value"),
        "Tag" | "Tags" => Shape::Map("Tags", "Key", "Value"),
        "AttributeName" => Shape::List("AttributeNames"),
        "MessageAttributeName" => Shape::List("MessageAttributeNames"),
        "MessageSystemAttributeName" => Shape::List("MessageSystemAttributeNames"),
        "TagKey" => Shape::List("TagKeys"),
        "SendMessageBatchRequestEntry"
        | "DeleteMessageBatchRequestEntry"
        | "ChangeMessageVisibilityBatchRequestEntry" => Shape::List("Entries"),
        _ => return None,
    })
}

/// Clients name an empty list as the JSON protocol does, and give it an empty text.
const LISTS: &[&str] =
    &["AttributeNames", "Entries", "MessageAttributeNames", "MessageSystemAttributeNames", "TagKeys"];

/// A field, or the fields below it.
#[derive(Debug)]
enum Node {
    Text(String),
    /// In the order of their numbers, where these are numbers.
    Fields(BTreeMap<(u32, String), Node>),
}

/// The action, and its parameters.
///
/// # Errors
/// The form cannot be read, or names no action.
pub fn read_form(form: &str) -> Result<(String, Params), SqsError> {
    let mut root = BTreeMap::new();
    let (mut action, mut count) = (None, 0);
    for pair in form.split('&').filter(|pair| !pair.is_empty()) {
        count += 1;
        if FIELDS_MAX < count {
            return Err(Code::MalformedInput.because(format!("The form has more than {FIELDS_MAX} fields.")));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        match name.as_str() {
            "Action" => action = Some(value),
            "Version" => {}
            // Of a signature in the query.
            _ if name.starts_with("X-Amz-") => {}
            _ => insert(&mut root, &name, value)?,
        }
    }
    let action = action.ok_or_else(|| SqsError::missing("Action"))?;
    let params = Params::of(shaped(root), "the form")?;
    Ok((action, params))
}

fn insert(root: &mut BTreeMap<(u32, String), Node>, name: &str, value: String) -> Result<(), SqsError> {
    let wrong = || Code::MalformedInput.because(format!("The field {name} contradicts another one."));
    let parts: Vec<&str> = name.split('.').collect();
    let Some((last, above)) = parts.split_last() else { return Ok(()) };
    if DEPTH_MAX < parts.len() {
        return Err(Code::MalformedInput.because(format!("The field {name} has too many parts.")));
    }
    let mut fields = root;
    for part in above {
        let node = fields.entry(key(part)).or_insert_with(|| Node::Fields(BTreeMap::new()));
        match node {
            Node::Fields(below) => fields = below,
            Node::Text(_) => return Err(wrong()),
        }
    }
    match fields.insert(key(last), Node::Text(value)) {
        None => Ok(()),
        Some(_) => Err(wrong()),
    }
}

fn key(part: &str) -> (u32, String) {
    (part.parse().unwrap_or(0), part.to_owned())
}

/// Fields with the names of the JSON protocol.
fn shaped(fields: BTreeMap<(u32, String), Node>) -> Value {
    let mut named = Map::new();
    for ((_, name), node) in fields {
        match (shape_of(&name), node) {
            (None, Node::Text(text)) if text.is_empty() && LISTS.contains(&&*name) => {
                named.insert(name, Value::Array(Vec::new()));
            }
            (None, Node::Text(text)) => drop(named.insert(name, Value::String(text))),
            (None, Node::Fields(below)) => drop(named.insert(name, shaped(below))),
            (Some(Shape::List(name)), Node::Fields(below)) => {
                let items = below.into_values().map(value).collect();
                named.insert(name.to_owned(), Value::Array(items));
            }
            (Some(Shape::Map(name, key, of)), Node::Fields(below)) => {
                let pairs = below.into_values().filter_map(|node| pair(node, key, of));
                named.insert(name.to_owned(), Value::Object(pairs.collect()));
            }
            // A list of one that is not numbered; an empty one is none.
            (Some(Shape::List(_)), Node::Text(text)) if text.is_empty() => {}
            (Some(Shape::List(name)), Node::Text(text)) => {
                named.insert(name.to_owned(), Value::Array(vec![Value::String(text)]));
            }
            (Some(Shape::Map(..)), Node::Text(_)) => {}
        }
    }
    Value::Object(named)
}

fn value(node: Node) -> Value {
    match node {
        Node::Text(text) => Value::String(text),
        Node::Fields(below) => shaped(below),
    }
}

fn pair(node: Node, key: &str, of: &str) -> Option<(String, Value)> {
    let Node::Fields(mut fields) = node else { return None };
    let Node::Text(name) = fields.remove(&(0, key.to_owned()))? else { return None };
    let value = fields.remove(&(0, of.to_owned())).map_or_else(|| Value::String(String::new()), value);
    Some((name, value))
}

/// Text of a form without its encoding.
pub(crate) fn decoded(text: &str) -> Result<String, SqsError> {
    let wrong = || Code::MalformedInput.because(format!("{text} is not percent-encoded UTF-8."));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
                (digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low).ok_or_else(wrong)?, after)
            }
            (b'%', _) => return Err(wrong()),
            (b'+', after) => (b' ', after),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn forms_become_the_parameters_of_the_json_protocol() {
        for (form, action, want) in [
            ("Action=ListQueues&Version=2012-11-05", "ListQueues", json!({})),
            (
                "Action=CreateQueue&QueueName=a%20b+c&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=7\
                 &Tag.1.Key=k&Tag.1.Value=v&Tag.2.Key=empty&Tag.2.Value=",
                "CreateQueue",
                json!({"QueueName": "a b c", "Attributes": {"VisibilityTimeout": "7"},
                       "Tags": {"k": "v", "empty": ""}}),
            ),
            ("Action=SendMessageBatch&Entries=", "SendMessageBatch", json!({"Entries": []})),
            (
                "Action=ReceiveMessage&AttributeName.2=b&AttributeName.10=c&AttributeName.1=a&WaitTimeSeconds=3",
                "ReceiveMessage",
                json!({"AttributeNames": ["a", "b", "c"], "WaitTimeSeconds": "3"}),
            ),
            (
                "Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=x\
                 &SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n\
                 &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String\
                 &SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=s",
                "SendMessageBatch",
                json!({"Entries": [{"Id": "x", "MessageAttributes":
                       {"n": {"DataType": "String", "StringValue": "s"}}}]}),
            ),
        ] {
            let (named, params) = read_form(form).unwrap();
            assert_eq!((named.as_str(), Value::Object(params.0)), (action, want), "{form}");
        }
    }

    #[test]
    fn wrong_forms_are_refused() {
        for (form, code) in [
            ("QueueName=a", Code::MissingParameter),
            ("Action=A&QueueName=%zz", Code::MalformedInput),
            ("Action=A&a=1&a.b=1", Code::MalformedInput),
            ("Action=A&a.b=1&a=1", Code::MalformedInput),
            ("Action=A&a.b.c.d.e.f.g.h.i=1", Code::MalformedInput),
        ] {
            assert_eq!(read_form(form).err().map(|error| error.code), Some(code), "{form}");
        }
    }
}
