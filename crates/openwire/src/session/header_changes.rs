//! Header changes: an OpenWire message with other headers and properties, and the same body.

use bytes::{Bytes, BytesMut};
use postroad_model::{HeaderChanges, HeaderValue, Message};

use crate::codec::{Primitive, PrimitiveMap, WireError, from_stored, to_stored};

/// The message with these changes. Its body is not decoded.
///
/// # Errors
/// The message, or its properties, cannot be read or written.
pub fn change_headers(message: &Message, changes: &HeaderChanges) -> Result<Message, WireError> {
    let version = message.encoding.version;
    let mut changed = from_stored(&message.bytes, version)?;
    if changes.properties().next().is_some() {
        changed.marshalled_properties = properties(changed.marshalled_properties.as_ref(), changes)?;
    }
    let text = |value: Option<&HeaderValue>| value.map(|value| value.text().as_str().into());
    if let Some(value) = changes.get("JMSCorrelationID") {
        changed.correlation_id = text(value);
    }
    if let Some(value) = changes.get("JMSType") {
        changed.message_type = text(value);
    }
    let priority = changes.priority().unwrap_or(message.priority);
    if priority != message.priority {
        changed.priority = priority;
    }
    let bytes = to_stored(&changed, version)?;
    Ok(Message { bytes, priority, ..message.clone() })
}

/// The marshalled properties with these changes; `None` if there are none left.
fn properties(marshalled: Option<&Bytes>, changes: &HeaderChanges) -> Result<Option<Bytes>, WireError> {
    let mut properties = marshalled.map_or_else(|| Ok(PrimitiveMap::default()), PrimitiveMap::decode)?;
    properties.0.retain(|(name, _)| changes.get(&name.to_str()).is_none());
    for (name, value) in changes.properties() {
        properties.0.extend(value.map(|value| (name.into(), primitive(value))));
    }
    let mut encoded = BytesMut::new();
    properties.encode(&mut encoded)?;
    Ok((!properties.0.is_empty()).then(|| encoded.freeze()))
}

fn primitive(value: &HeaderValue) -> Primitive {
    match value {
        HeaderValue::Boolean(value) => Primitive::Boolean(*value),
        HeaderValue::Int(value) => Primitive::Int(*value),
        HeaderValue::Long(value) => Primitive::Long(*value),
        HeaderValue::Double(value) => Primitive::Double(*value),
        HeaderValue::String(value) => Primitive::String(value.as_ref().into()),
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{Encoding, Protocol};

    use super::*;

    fn stored(properties: &[(&str, Primitive)]) -> Message {
        let mut marshalled = BytesMut::new();
        let map: PrimitiveMap = properties.iter().map(|(name, value)| (*name, value.clone())).collect();
        map.encode(&mut marshalled).unwrap();
        let sent = crate::codec::Message {
            marshalled_properties: (!properties.is_empty()).then(|| marshalled.freeze()),
            content: Some(Bytes::from_static(b"body")),
            priority: 4,
            message_type: Some("old".into()),
            ..Default::default()
        };
        Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: to_stored(&sent, 12).unwrap(),
        }
    }

    #[test]
    fn headers_change_and_the_body_stays() {
        let mut changes = HeaderChanges::default();
        for (name, value) in [
            ("kept", None),
            ("gone", None),
            ("n", Some(HeaderValue::Long(7))),
            ("set", Some(HeaderValue::String("x".into()))),
            ("JMSType", Some(HeaderValue::String("new".into()))),
            ("JMSPriority", Some(HeaderValue::Int(9))),
        ] {
            if name != "kept" {
                changes.put(name.into(), value);
            }
        }
        let sent = stored(&[
            ("kept", Primitive::Int(1)),
            ("gone", Primitive::Int(2)),
            ("n", Primitive::String("old".into())),
        ]);
        let changed = change_headers(&sent, &changes).unwrap();
        assert_eq!(changed.priority, 9);
        let read = from_stored(&changed.bytes, 12).unwrap();
        let properties = PrimitiveMap::decode(&read.marshalled_properties.unwrap()).unwrap();
        let want: PrimitiveMap =
            [("kept", Primitive::Int(1)), ("n", Primitive::Long(7)), ("set", Primitive::String("x".into()))]
                .into_iter()
                .collect();
        assert_eq!(properties, want);
        assert_eq!((read.priority, read.message_type), (9, Some("new".into())));
        assert_eq!(read.content, Some(Bytes::from_static(b"body")));
    }

    #[test]
    fn without_properties_none_are_written() {
        let mut changes = HeaderChanges::default();
        changes.put("gone".into(), None);
        let changed = change_headers(&stored(&[("gone", Primitive::Int(2))]), &changes).unwrap();
        assert_eq!(changed.bytes, stored(&[]).bytes);
        let noise = Message { bytes: Bytes::from_static(b"noise"), ..changed };
        assert!(change_headers(&noise, &changes).is_err());
    }
}
