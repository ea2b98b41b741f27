//! Header changes: an AMQP message with other application properties, and the same body.
//!
//! A broker may change the bare message if it makes another message of it (3.2), as a route does.

use bytes::BytesMut;
use postroad_model::{HeaderChanges, HeaderValue, Message};

use super::Sections;
use crate::codec::{Field, Header, Properties, Value, WireError};

/// Typical bytes of additions, to reserve once.
const ADDED_BYTES: usize = 256;

/// The message with these changes. Its body is not decoded.
///
/// # Errors
/// The message, or its properties, cannot be read.
pub fn change_headers(message: &Message, changes: &HeaderChanges) -> Result<Message, WireError> {
    let bytes = &message.bytes;
    let sections = Sections::scan(bytes)?;
    let mut out = BytesMut::with_capacity(bytes.len() + ADDED_BYTES);
    let priority = changes.priority().unwrap_or(message.priority);
    let header_end = sections.header.as_ref().map_or(0, |span| span.end);
    if priority == message.priority {
        out.extend_from_slice(&bytes[..header_end]);
    } else {
        Header { priority, ..sections.header(bytes)? }.write(&mut out);
    }
    out.extend_from_slice(&bytes[header_end..sections.bare]);
    let properties_end = sections.properties.as_ref().map_or(sections.bare, |span| span.end);
    let standard = (changes.get("JMSCorrelationID"), changes.get("JMSType"));
    if standard == (None, None) {
        out.extend_from_slice(&bytes[sections.bare..properties_end]);
    } else {
        let mut properties = sections.properties(bytes)?;
        if let Some(value) = standard.0 {
            properties.correlation_id = value.map(|value| Value::from(value.text().as_str()));
        }
        if let Some(value) = standard.1 {
            properties.subject = value.map(|value| value.text().as_str().into());
        }
        if properties != Properties::default() {
            properties.write(&mut out);
        }
    }
    let application_end = sections.application_properties.as_ref().map_or(properties_end, |span| span.end);
    if changes.properties().next().is_some() {
        write_application_properties(&sections, message, changes, &mut out)?;
    } else {
        out.extend_from_slice(&bytes[properties_end..application_end]);
    }
    out.extend_from_slice(&bytes[application_end..]);
    Ok(Message { bytes: out.freeze(), priority, ..message.clone() })
}

fn write_application_properties(
    sections: &Sections,
    message: &Message,
    changes: &HeaderChanges,
    out: &mut BytesMut,
) -> Result<(), WireError> {
    let mut properties = sections.application_properties(&message.bytes)?;
    let changes_it = |key: &Value| match key {
        Value::String(name) => changes.get(name.as_str()).is_some(),
        _ => false,
    };
    properties.0.retain(|(key, _)| !changes_it(key));
    for (name, value) in changes.properties() {
        properties.0.extend(value.map(|set| (Value::from(name), value_of(set))));
    }
    if !properties.is_empty() {
        out.extend_from_slice(b"\x00\x53\x74");
        Value::Map(properties).encode(out);
    }
    Ok(())
}

fn value_of(value: &HeaderValue) -> Value {
    match value {
        HeaderValue::Boolean(value) => Value::Boolean(*value),
        HeaderValue::Int(value) => Value::Int(*value),
        HeaderValue::Long(value) => Value::Long(*value),
        HeaderValue::Double(value) => Value::Double(*value),
        HeaderValue::String(value) => Value::from(value.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postroad_model::{Encoding, Protocol};

    use super::*;
    use crate::codec::ValueMap;

    const BODY: &[u8] = b"\0\x53\x77\xa1\x01a";

    fn message(bytes: Vec<u8>) -> Message {
        Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from(bytes),
        }
    }

    #[test]
    fn headers_change_and_the_body_stays() {
        let mut changes = HeaderChanges::default();
        changes.put("gone".into(), None);
        changes.put("set".into(), Some(HeaderValue::String("x".into())));
        changes.put("JMSType".into(), Some(HeaderValue::String("new".into())));
        changes.put("JMSPriority".into(), Some(HeaderValue::Int(9)));
        let mut full = BytesMut::new();
        Header { durable: true, ..Header::default() }.write(&mut full);
        full.extend_from_slice(b"\0\x53\x72\xc1\x05\x02\xa3\x01m\x41");
        Properties { message_id: Some("7".into()), ..Properties::default() }.write(&mut full);
        full.extend_from_slice(b"\0\x53\x74");
        let old = ValueMap(vec![("gone".into(), Value::Int(1)), ("kept".into(), Value::Int(2))]);
        Value::Map(old).encode(&mut full);
        for (case, ahead, kept, id) in [
            ("all sections", full.to_vec(), vec![(Value::from("kept"), Value::Int(2))], Some("7".into())),
            ("a body alone", Vec::new(), Vec::new(), None),
        ] {
            let sent = message([&ahead[..], BODY].concat());
            let changed = change_headers(&sent, &changes).unwrap();
            assert!(changed.bytes.ends_with(BODY), "case: {case}");
            assert_eq!(changed.priority, 9, "case: {case}");
            let sections = Sections::scan(&changed.bytes).unwrap();
            let want = ValueMap([kept, vec![("set".into(), "x".into())]].concat());
            assert_eq!(sections.application_properties(&changed.bytes), Ok(want), "case: {case}");
            let properties = sections.properties(&changed.bytes).unwrap();
            assert_eq!((properties.subject, properties.message_id), (Some("new".into()), id), "case: {case}");
            assert_eq!(sections.header(&changed.bytes).unwrap().priority, 9, "case: {case}");
        }
        assert!(change_headers(&message(b"noise".to_vec()), &changes).is_err());
    }
}
