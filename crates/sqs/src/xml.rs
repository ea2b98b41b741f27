//! XML: answers of the query protocol, made of those of the JSON protocol.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::error::SqsError;

/// The namespace of answers and errors.
const NAMESPACE: &str = "http://queue.amazonaws.com/doc/2012-11-05/";

/// How a list or a map of the JSON protocol is called in XML.
enum Shape {
    List(&'static str),
    /// The element, and those of the key and of the value.
    Map(&'static str, &'static str, &'static str),
}

fn shape_of(action: &str, name: &str) -> Option<Shape> {
    Some(match name {
        "QueueUrls" | "queueUrls" => Shape::List("QueueUrl"),
        "Messages" => Shape::List("Message"),
        "Attributes" => Shape::Map("Attribute", "Name", "Value"),
        "MessageAttributes" => Shape::Map("MessageAttribute", "Name", "Value"),
        "Tags" => Shape::Map("Tag", "Key", "Value"),
        "Results" => Shape::List("ListMessageMoveTasksResultEntry"),
        "Failed" => Shape::List("BatchResultErrorEntry"),
        "Successful" => Shape::List(match action {
            "SendMessageBatch" => "SendMessageBatchResultEntry",
            "DeleteMessageBatch" => "DeleteMessageBatchResultEntry",
            _ => "ChangeMessageVisibilityBatchResultEntry",
        }),
        _ => return None,
    })
}

/// The answer to an action.
pub fn answer_xml(action: &str, answer: &Value, request_id: &str) -> String {
    let mut xml = format!("<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">");
    if let Some(fields) = answer.as_object() {
        let _ = write!(xml, "<{action}Result>");
        write_fields(&mut xml, action, fields);
        let _ = write!(xml, "</{action}Result>");
    }
    let _ = write!(
        xml,
        "<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    );
    xml
}

/// An error.
pub fn error_xml(error: &SqsError, request_id: &str) -> String {
    let mut xml = format!(
        "<?xml version=\"1.0\"?><ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{}</Type><Code>{}</Code><Message>",
        error.fault(),
        error.code.query()
    );
    write_text(&mut xml, &error.message);
    let _ = write!(xml, "</Message><Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>");
    xml
}

fn write_fields(xml: &mut String, action: &str, fields: &Map<String, Value>) {
    for (name, value) in fields {
        match (shape_of(action, name), value) {
            (Some(Shape::List(element)), Value::Array(items)) => {
                items.iter().for_each(|item| write_element(xml, action, element, item));
            }
            (Some(Shape::Map(element, key, of)), Value::Object(pairs)) => {
                for (name, value) in pairs {
                    let _ = write!(xml, "<{element}><{key}>");
                    write_text(xml, name);
                    let _ = write!(xml, "</{key}>");
                    write_element(xml, action, of, value);
                    let _ = write!(xml, "</{element}>");
                }
            }
            (_, value) => write_element(xml, action, name, value),
        }
    }
}

fn write_element(xml: &mut String, action: &str, name: &str, value: &Value) {
    let _ = write!(xml, "<{name}>");
    match value {
        Value::Object(fields) => write_fields(xml, action, fields),
        Value::String(text) => write_text(xml, text),
        Value::Null => {}
        other => drop(write!(xml, "{other}")),
    }
    let _ = write!(xml, "</{name}>");
}

/// Text; characters that XML does not know become U+FFFD.
fn write_text(xml: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            // Readers would make a line feed of it.
            '\r' => xml.push_str("&#13;"),
            '\t' | '\n' => xml.push(c),
            '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            c if c < ' ' => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use serde_json::json;

    #[test]
    fn answers_are_written_as_clients_read_them() {
        for (action, answer, want) in [
            ("DeleteMessage", Value::Null, ""),
            (
                "ListQueues",
                json!({ "QueueUrls": ["a", "b"] }),
                "<QueueUrl>a</QueueUrl><QueueUrl>b</QueueUrl>",
            ),
            (
                "ReceiveMessage",
                json!({ "Messages": [{ "Body": "<&\r\u{1}", "Attributes": { "SenderId": "x" },
                    "MessageAttributes": { "n": { "DataType": "Number" } } }] }),
                "<Message><Attributes></Attributes></Message>",
            ),
            (
                "SendMessageBatch",
                json!({ "Successful": [{ "Id": "a" }], "Failed": [{ "Id": "b", "SenderFault": true }] }),
                "<BatchResultErrorEntry><Id>b</Id><SenderFault>true</SenderFault></BatchResultErrorEntry>\
                 <SendMessageBatchResultEntry><Id>a</Id></SendMessageBatchResultEntry>",
            ),
        ] {
            let xml = answer_xml(action, &answer, "r");
            let want = match action {
                "DeleteMessage" => String::new(),
                "ReceiveMessage" => {
                    "<ReceiveMessageResult><Message><Attribute><Name>SenderId</Name><Value>x</Value>\
                    </Attribute><Body>&lt;&amp;&#13;\u{fffd}</Body><MessageAttribute><Name>n</Name><Value>\
                    <DataType>Number</DataType></Value></MessageAttribute></Message></ReceiveMessageResult>"
                        .to_owned()
                }
                _ => format!("<{action}Result>{want}</{action}Result>"),
            };
            let all = format!(
                "<?xml version=\"1.0\"?><{action}Response xmlns=\"{NAMESPACE}\">{want}<ResponseMetadata>\
                 <RequestId>r</RequestId></ResponseMetadata></{action}Response>"
            );
            assert_eq!(xml, all, "{action}");
        }
        let error = error_xml(&Code::InvalidAction.because("<x>"), "r");
        assert!(
            error.contains("<Type>Sender</Type><Code>InvalidAction</Code><Message>&lt;x&gt;</Message>"),
            "{error}"
        );
    }
}
