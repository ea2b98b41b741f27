//! Messages: from the parameters of a send to a portable message, and back.

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use postroad_model::portable::{Body, Headers, Id, Portable, Text, Value as Property};
use postroad_model::{DEDUPLICATION_MS, Deduplication, DestinationKind, EntryTag, QueueId};
use serde_json::{Map, Value, json};

use crate::action::Receive;
use crate::attributes::{
    self, Content, MessageAttributes, attributes_md5, is_allowed_text, is_asked_for, of_property,
};
use crate::error::{Code, SqsError};
use crate::id::{Receipt, arn, is_fifo, md5_hex, message_id, sequence_number};
use crate::params::Params;
use crate::settings::{MESSAGE_BYTES_MAX, Settings};

/// Seconds that a message may be delayed.
const DELAY_S_MAX: u64 = 900;

/// Characters of a group id and of a deduplication id.
const FIFO_ID_CHARS_MAX: usize = 128;

/// Annotations for attributes without a header in JMS.
const TYPES: &str = "x-opt-sqs-types";
const TRACE: &str = "x-opt-sqs-trace";
const DEDUPLICATION: &str = "x-opt-sqs-deduplication-id";
/// The group of a message in a standard queue, which orders nothing.
const GROUP: &str = "x-opt-sqs-group-id";

/// The message system attribute that a sender may set.
const TRACE_HEADER: &str = "AWSTraceHeader";

/// System attributes of received messages.
const SYSTEM: &[&str] = &[
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    TRACE_HEADER,
    "DeadLetterQueueSourceArn",
];

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// The body.
    pub body: String,
    /// Seconds until it may be received, if not as the queue says.
    pub delay_s: Option<u64>,
    /// Its attributes.
    pub attributes: MessageAttributes,
    /// `AWSTraceHeader`.
    trace: Option<String>,
    /// Its message group.
    group: Option<String>,
    /// Its deduplication id.
    deduplication: Option<String>,
}

/// A message that is on its way into the queue, as its sender is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// Its id.
    pub id: Id,
    /// The digest of its body.
    body_md5: String,
    attributes_md5: Option<String>,
    system_md5: Option<String>,
}

impl NewMessage {
    /// Reads the parameters of a send, or of an entry of a batch.
    ///
    /// # Errors
    /// Something in them cannot be.
    pub fn parse(params: &mut Params) -> Result<NewMessage, SqsError> {
        let body = params.required("MessageBody")?;
        if body.is_empty() {
            return Err(SqsError::missing("MessageBody"));
        }
        if !is_allowed_text(&body) {
            let message =
                "Invalid characters in the message body: allowed are #x9, #xA, #xD, and #x20 onwards.";
            return Err(Code::InvalidMessageContents.because(message));
        }
        let delay_s = params.number("DelaySeconds", 0, DELAY_S_MAX)?;
        let attributes = attributes::read_attributes(params.map("MessageAttributes")?)?;
        let mut system = attributes::read_attributes(params.map("MessageSystemAttributes")?)?;
        let trace = match system.remove(TRACE_HEADER).map(|attribute| attribute.content) {
            Some(Content::Text(text)) => Some(text),
            Some(Content::Bytes(_)) => {
                return Err(SqsError::invalid(TRACE_HEADER, "", "It is of the type String"));
            }
            None => None,
        };
        if let Some(name) = system.keys().next() {
            let reason = "The only message system attribute that can be sent is AWSTraceHeader";
            return Err(SqsError::invalid("MessageSystemAttributes", name, reason));
        }
        let group = fifo_id(params, "MessageGroupId")?;
        let deduplication = fifo_id(params, "MessageDeduplicationId")?;
        Ok(NewMessage { body, delay_s, attributes, trace, group, deduplication })
    }

    /// Bytes that count towards the limit of the queue.
    pub fn byte_length(&self) -> u64 {
        (self.body.len() + attributes::byte_length(&self.attributes)) as u64
    }

    /// Whether a queue takes it.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, queue: &str, settings: &Settings) -> Result<(), SqsError> {
        let max = settings.message_bytes_max();
        if max < self.byte_length() {
            let message = format!(
                "One or more parameters are invalid. Reason: Message must be shorter than {max} bytes."
            );
            return Err(Code::InvalidParameterValue.because(message));
        }
        if !is_fifo(queue) {
            return match &self.deduplication {
                Some(id) => Err(SqsError::invalid(
                    "MessageDeduplicationId",
                    id,
                    "The request includes a parameter that is not valid for this queue type",
                )),
                None => Ok(()),
            };
        }
        if self.group.is_none() {
            return Err(SqsError::missing("MessageGroupId"));
        }
        if let Some(delay) = self.delay_s.filter(|delay| *delay != 0) {
            let reason = "The request includes a parameter that is not valid for this queue type";
            return Err(SqsError::invalid("DelaySeconds", &delay.to_string(), reason));
        }
        if self.deduplication.is_none() && !settings.deduplicates_by_content() {
            let message = "The queue should either have ContentBasedDeduplication enabled or \
                           MessageDeduplicationId provided explicitly";
            return Err(Code::InvalidParameterValue.because(message));
        }
        Ok(())
    }

    /// The id by which duplicates are found in a FIFO queue.
    fn deduplication_id(&self) -> String {
        let by_content =
            || HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, self.body.as_bytes()).as_ref());
        self.deduplication.clone().unwrap_or_else(by_content)
    }

    /// By which a FIFO queue knows it again; `None` for a standard queue. `now_ms` is the time of
    /// sending.
    pub fn deduplication(
        &self,
        queue: &str,
        settings: &Settings,
        id: &Id,
        now_ms: u64,
    ) -> Option<Deduplication> {
        let Id::Uuid(id) = id else { return None };
        if !is_fifo(queue) {
            return None;
        }
        let group = self.group.as_deref().filter(|_| settings.deduplicates_by_group()).unwrap_or_default();
        let named = format!("{queue}\n{group}\n{}", self.deduplication_id());
        let digest = ring::digest::digest(&ring::digest::SHA256, named.as_bytes());
        let key = digest.as_ref().iter().take(16).fold(0, |key, byte| key << 8 | u128::from(*byte));
        let until_ms = now_ms + DEDUPLICATION_MS;
        Some(Deduplication { key, id: u128::from_be_bytes(*id), until_ms })
    }

    /// As the sender is answered.
    pub fn sent(&self, id: Id) -> Sent {
        let trace = self.trace.as_ref().map(|text| attributes::MessageAttribute {
            data_type: "String".to_owned(),
            content: Content::Text(text.clone()),
        });
        let system = trace.map(|attribute| MessageAttributes::from([(TRACE_HEADER.to_owned(), attribute)]));
        Sent {
            id,
            body_md5: md5_hex(self.body.as_bytes()),
            attributes_md5: attributes_md5(&self.attributes),
            system_md5: system.and_then(|system| attributes_md5(&system)),
        }
    }

    /// The message as every protocol understands it.
    pub fn portable(self, queue: &str, id: Id, sender: Option<&str>, times_ms: (u64, u64)) -> Portable {
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let mut annotations: Vec<(Text, Property)> = Vec::new();
        let mut annotate = |name: &'static str, text: Option<Text>| {
            annotations.extend(text.map(|text| (Text::from_static(name), Property::String(text))));
        };
        annotate(TYPES, attributes::types_to_note(&self.attributes));
        annotate(TRACE, self.trace.as_deref().map(Text::from));
        let is_fifo = is_fifo(queue);
        annotate(DEDUPLICATION, is_fifo.then(|| self.deduplication_id().into()));
        let group = self.group.as_deref().map(Text::from);
        annotate(GROUP, group.clone().filter(|_| !is_fifo));
        let properties = self.attributes.iter();
        let properties =
            properties.map(|(name, attribute)| (name.as_str().into(), attributes::to_property(attribute)));
        let (now_ms, ends_ms) = times_ms;
        let headers = Headers {
            message_id: Some(id),
            persistent: true,
            timestamp_ms: Some(signed(now_ms)),
            expires_at_ms: Some(signed(ends_ms)),
            group_id: group.filter(|_| is_fifo),
            user_id: sender.map(|sender| Bytes::copy_from_slice(sender.as_bytes())),
            ..Headers::default()
        };
        let properties = properties.collect();
        Portable { headers, properties, annotations, body: Body::Text(Some(Text::from(self.body))) }
    }
}

fn fifo_id(params: &mut Params, name: &str) -> Result<Option<String>, SqsError> {
    let Some(id) = params.text(name)? else { return Ok(None) };
    let is_good = |c: char| c.is_ascii_graphic();
    if id.is_empty() || FIFO_ID_CHARS_MAX < id.len() || !id.chars().all(is_good) {
        let reason = format!("1 to {FIFO_ID_CHARS_MAX} letters, digits and ASCII punctuation");
        return Err(SqsError::invalid(name, &id, &reason));
    }
    Ok(Some(id))
}

impl Sent {
    /// The answer to a duplicate of a message with this id.
    pub fn of_first(self, id: u128) -> Sent {
        Sent { id: Id::Uuid(id.to_be_bytes()), ..self }
    }

    /// The answer; with the entry of a FIFO queue.
    pub fn to_answer(&self, queue: &str, at: (QueueId, EntryTag)) -> Value {
        let mut answer = json!({
            "MessageId": message_id(Some(&self.id), at.0, at.1),
            "MD5OfMessageBody": self.body_md5,
        });
        if let Some(md5) = &self.attributes_md5 {
            answer["MD5OfMessageAttributes"] = json!(md5);
        }
        if let Some(md5) = &self.system_md5 {
            answer["MD5OfMessageSystemAttributes"] = json!(md5);
        }
        if is_fifo(queue) {
            answer["SequenceNumber"] = json!(sequence_number(at.1));
        }
        answer
    }
}

/// Bytes of all messages of a batch, at most.
pub(crate) const BATCH_BYTES_MAX: u64 = MESSAGE_BYTES_MAX;

/// The names of attributes that a receive asks for.
///
/// # Errors
/// There is no such attribute.
pub(crate) fn check_system_names(names: &[String]) -> Result<(), SqsError> {
    match names.iter().find(|name| *name != "All" && !SYSTEM.contains(&name.as_str())) {
        Some(unknown) => Err(Code::InvalidAttributeName.because(format!("Unknown Attribute {unknown}."))),
        None => Ok(()),
    }
}

/// A message that was received, as its receiver gets it.
pub fn received(
    queue: &str,
    receipt: Receipt,
    deliveries: u32,
    portable: &Portable,
    asked: &Receive,
) -> Value {
    let body = text_of(&portable.body);
    let mut message = json!({
        "MessageId": message_id(portable.headers.message_id.as_ref(), receipt.queue, receipt.tag),
        "ReceiptHandle": receipt.to_handle(),
        "MD5OfBody": md5_hex(body.as_bytes()),
        "Body": body,
    });
    let system = system_attributes(queue, receipt, deliveries, portable, &asked.system_names);
    if !system.is_empty() {
        message["Attributes"] = Value::Object(system);
    }
    let types = annotation(portable, TYPES);
    let types: Value = types.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let read = |(name, property): &(Text, Property)| {
        let name = name.as_str();
        let attribute = is_asked_for(name, &asked.attribute_names)
            .then(|| of_property(property, types[name].as_str()))??;
        Some((name.to_owned(), attribute))
    };
    let attributes: MessageAttributes = portable.properties.iter().filter_map(read).collect();
    if let Some(md5) = attributes_md5(&attributes) {
        message["MD5OfMessageAttributes"] = json!(md5);
        let attributes = attributes.iter().map(|(name, one)| (name.clone(), attributes::to_json(one)));
        message["MessageAttributes"] = Value::Object(attributes.collect());
    }
    message
}

fn system_attributes(
    queue: &str,
    receipt: Receipt,
    deliveries: u32,
    portable: &Portable,
    names: &[String],
) -> Map<String, Value> {
    let headers = &portable.headers;
    let sent_ms = headers.timestamp_ms.unwrap_or(0).max(0).to_string();
    let fifo = is_fifo(queue);
    let first_ms = if deliveries <= 1 { receipt.received_ms.to_string() } else { sent_ms.clone() };
    let group = headers.group_id.as_ref().map(Text::as_str).or(annotation(portable, GROUP));
    let sender = headers.user_id.as_deref().map(String::from_utf8_lossy);
    let origin = headers.original_destination.as_ref();
    let origin = origin.filter(|origin| origin.kind == DestinationKind::Queue && !origin.temporary);
    let all = [
        ("SenderId", Some(sender.map_or_else(|| "anonymous".to_owned(), std::borrow::Cow::into_owned))),
        ("SentTimestamp", Some(sent_ms)),
        ("ApproximateReceiveCount", Some(deliveries.to_string())),
        ("ApproximateFirstReceiveTimestamp", Some(first_ms)),
        ("SequenceNumber", fifo.then(|| sequence_number(receipt.tag))),
        ("MessageDeduplicationId", annotation(portable, DEDUPLICATION).map(str::to_owned)),
        ("MessageGroupId", group.map(str::to_owned)),
        (TRACE_HEADER, annotation(portable, TRACE).map(str::to_owned)),
        ("DeadLetterQueueSourceArn", origin.map(|origin| arn(&origin.name))),
    ];
    let asked = |name: &str| names.iter().any(|asked| asked == "All" || asked == name);
    let all = all.into_iter().filter(|(name, _)| asked(name));
    all.filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

fn annotation<'p>(portable: &'p Portable, name: &str) -> Option<&'p str> {
    portable.annotations.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
        Property::String(text) => Some(text.as_str()),
        _ => None,
    })
}

/// A body as text: bytes that are no text in base64. The caller has made text of maps and streams.
fn text_of(body: &Body) -> String {
    match body {
        Body::Text(Some(text)) => text.as_str().to_owned(),
        Body::Bytes(bytes) | Body::Object(Some(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => BASE64.encode(bytes),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{Destination, LeaseId};

    fn new(value: Value) -> Result<NewMessage, SqsError> {
        NewMessage::parse(&mut Params::of(value, "m")?)
    }

    fn receipt() -> Receipt {
        Receipt { queue: QueueId(1), tag: EntryTag(5), lease: LeaseId(3), received_ms: 7000 }
    }

    fn all() -> Receive {
        let names = vec!["All".to_owned()];
        Receive { system_names: names.clone(), attribute_names: names, ..Receive::default() }
    }

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let sent = json!({
            "MessageBody": "größe",
            "MessageAttributes": {
                "n": { "DataType": "Number.x", "StringValue": "1.50" },
                "b": { "DataType": "Binary", "BinaryValue": "AQI=" },
            },
            "MessageSystemAttributes": { "AWSTraceHeader": { "DataType": "String", "StringValue": "Root=1" } },
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        });
        for (queue, sequence) in [("q", None), ("q.fifo", Some("00000000000000000005"))] {
            let message = new(sent.clone()).unwrap();
            let answer = message.sent(crate::random_id([0; 16])).to_answer(queue, (QueueId(1), EntryTag(5)));
            let portable = message.portable(queue, crate::random_id([0; 16]), Some("alice"), (1000, 2000));
            let got = received(queue, receipt(), 1, &portable, &all());
            assert_eq!(got["Body"], "größe");
            assert_eq!(got["MessageId"], answer["MessageId"]);
            assert_eq!(got["MD5OfBody"], answer["MD5OfMessageBody"]);
            assert_eq!(got["MD5OfMessageAttributes"], answer["MD5OfMessageAttributes"]);
            assert_eq!(got["MessageAttributes"], sent["MessageAttributes"]);
            let system = &got["Attributes"];
            assert_eq!((&system["SenderId"], &system["SentTimestamp"]), (&json!("alice"), &json!("1000")));
            assert_eq!(
                (&system["MessageGroupId"], &system["AWSTraceHeader"]),
                (&json!("g"), &json!("Root=1"))
            );
            assert_eq!(system["SequenceNumber"].as_str(), sequence, "{queue}");
            assert_eq!(system["MessageDeduplicationId"].as_str(), sequence.map(|_| "d"), "{queue}");
            assert_eq!(portable.headers.group_id.is_some(), sequence.is_some());
        }
    }

    #[test]
    fn messages_of_others_have_what_they_can() {
        let headers = Headers {
            message_id: Some(Id::Text("ID:a-1".into())),
            original_destination: Some(Destination::queue("source")),
            ..Headers::default()
        };
        let properties = vec![("a".into(), Property::Int(7)), ("l".into(), Property::List(Vec::new()))];
        let portable = Portable {
            headers,
            properties,
            body: Body::Bytes(Bytes::from_static(b"\xff")),
            ..Portable::default()
        };
        let got = received("q", receipt(), 2, &portable, &all());
        assert_eq!(
            (&got["Body"], &got["Attributes"]["ApproximateReceiveCount"]),
            (&json!("/w=="), &json!("2"))
        );
        assert_eq!(got["MessageAttributes"], json!({ "a": { "DataType": "Number", "StringValue": "7" } }));
        assert_eq!(got["Attributes"]["DeadLetterQueueSourceArn"], arn("source"));
        let none = received("q", receipt(), 2, &portable, &Receive::default());
        assert_eq!((none.get("Attributes"), none.get("MessageAttributes")), (None, None));
    }

    #[test]
    fn wrong_messages_are_refused() {
        for (value, code) in [
            (json!({}), Code::MissingParameter),
            (json!({ "MessageBody": "" }), Code::MissingParameter),
            (json!({ "MessageBody": 1 }), Code::MalformedInput),
            (json!({ "MessageBody": "\u{0}" }), Code::InvalidMessageContents),
            (json!({ "MessageBody": "\u{ffff}" }), Code::InvalidMessageContents),
            (json!({ "MessageBody": "x", "DelaySeconds": 901 }), Code::InvalidParameterValue),
            (json!({ "MessageBody": "x", "MessageGroupId": "a b" }), Code::InvalidParameterValue),
            (
                json!({ "MessageBody": "x", "MessageSystemAttributes": { "X": { "DataType": "String", "StringValue": "x" } } }),
                Code::InvalidParameterValue,
            ),
        ] {
            assert_eq!(new(value.clone()).unwrap_err().code, code, "{value}");
        }
    }

    #[test]
    fn queues_check_what_they_are_sent() {
        let mut by_content = Settings::default();
        let texts = [("ContentBasedDeduplication", "true"), ("MaximumMessageSize", "1024")];
        let texts = texts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        by_content.set("q.fifo", &texts, false).unwrap();
        let plain = Settings::default();
        for (queue, settings, value, code) in [
            ("q", &plain, json!({ "MessageGroupId": "g" }), None),
            ("q", &plain, json!({ "MessageDeduplicationId": "d" }), Some(Code::InvalidParameterValue)),
            ("q.fifo", &plain, json!({ "MessageGroupId": "g" }), Some(Code::InvalidParameterValue)),
            ("q.fifo", &by_content, json!({ "MessageGroupId": "g" }), None),
            ("q.fifo", &by_content, json!({}), Some(Code::MissingParameter)),
            (
                "q.fifo",
                &by_content,
                json!({ "MessageGroupId": "g", "DelaySeconds": 1 }),
                Some(Code::InvalidParameterValue),
            ),
            (
                "q.fifo",
                &by_content,
                json!({ "MessageGroupId": "g", "MessageBody": "x".repeat(1025) }),
                Some(Code::InvalidParameterValue),
            ),
        ] {
            let mut value = value;
            if value.get("MessageBody").is_none() {
                value["MessageBody"] = json!("x");
            }
            let message = new(value.clone()).unwrap();
            assert_eq!(message.check(queue, settings).err().map(|error| error.code), code, "{queue} {value}");
        }
    }
}
