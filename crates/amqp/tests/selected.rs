//! The values of a message for selectors: headers by their JMS names, and the application's
//! properties.

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::{Field, Header, Properties, Timestamp, Value, ValueMap};
use postroad_amqp::message::{StoredProperties, mark_dead_letter};
use postroad_model::{DeadLetter, Destination, Encoding, Message, Protocol};
use postroad_selector::{Properties as _, Value as Seen};

fn message(header: Header, properties: Properties, application: &[(&str, Value)]) -> Bytes {
    let mut out = BytesMut::new();
    header.write(&mut out);
    properties.write(&mut out);
    out.extend_from_slice(b"\x00\x53\x74");
    let pairs = application.iter().map(|(name, value)| (Value::from(*name), value.clone()));
    Value::Map(ValueMap(pairs.collect())).encode(&mut out);
    out.extend_from_slice(b"\x00\x53\x77\x40");
    out.freeze()
}

#[test]
fn headers_go_by_their_jms_names() {
    let header = Header { durable: true, priority: 7, delivery_count: 2, ..Header::default() };
    let properties = Properties {
        message_id: Some("ID:1".into()),
        user_id: Some(Bytes::from_static(b"me")),
        to: Some("orders".into()),
        subject: Some("invoice".into()),
        reply_to: Some("replies".into()),
        correlation_id: Some(Value::Ulong(5)),
        creation_time: Some(Timestamp(11)),
        group_id: Some("g".into()),
        // As Qpid JMS writes -1.
        group_sequence: Some(u32::MAX),
        ..Properties::default()
    };
    let bytes = message(header, properties, &[("JMSXOther", Value::from("mine"))]);
    let seen = StoredProperties::of(&bytes, 99);
    let text = |text: &'static str| Some(Seen::from(text));
    for (name, want) in [
        ("JMSDeliveryMode", text("PERSISTENT")),
        ("JMSPriority", Some(Seen::Long(7))),
        ("JMSRedelivered", Some(Seen::Boolean(true))),
        ("JMSXDeliveryCount", Some(Seen::Long(3))),
        ("JMSExpiration", Some(Seen::Long(99))),
        ("JMSTimestamp", Some(Seen::Long(11))),
        ("JMSMessageID", text("ID:1")),
        ("JMSCorrelationID", text("ID:AMQP_ULONG:5")),
        ("JMSType", text("invoice")),
        ("JMSXGroupID", text("g")),
        ("JMSXGroupSeq", Some(Seen::Long(-1))),
        ("JMSXUserID", text("me")),
        ("JMSDestination", text("queue://orders")),
        ("JMSReplyTo", text("queue://replies")),
        ("JMSXOther", text("mine")),
        ("JMSXNothing", None),
    ] {
        assert_eq!(seen.property(name), want, "{name}");
    }
}

#[test]
fn application_properties_of_any_type_are_seen() {
    let cases = [
        (Value::Null, None),
        (Value::Boolean(true), Some(Seen::Boolean(true))),
        (Value::Byte(-1), Some(Seen::Long(-1))),
        (Value::Short(-2), Some(Seen::Long(-2))),
        (Value::Int(-3), Some(Seen::Long(-3))),
        (Value::Long(-4), Some(Seen::Long(-4))),
        (Value::Ubyte(1), Some(Seen::Long(1))),
        (Value::Ushort(2), Some(Seen::Long(2))),
        (Value::Uint(3), Some(Seen::Long(3))),
        (Value::Ulong(4), Some(Seen::Long(4))),
        (Value::Ulong(1 << 63), Some(Seen::Double(9_223_372_036_854_775_808.0))),
        (Value::Float(0.5), Some(Seen::Double(0.5))),
        (Value::Double(0.25), Some(Seen::Double(0.25))),
        (Value::from("text"), Some(Seen::from("text"))),
        (Value::Symbol("name".into()), Some(Seen::from("name"))),
        (Value::Char('c'), Some(Seen::from("c"))),
        (Value::Binary(Bytes::new()), Some(Seen::Other)),
    ];
    for (value, want) in cases {
        let bytes = message(Header::default(), Properties::default(), &[("p", value.clone())]);
        assert_eq!(StoredProperties::of(&bytes, 0).property("p"), want, "{value:?}");
    }
}

#[test]
fn the_cause_of_a_dead_letter_goes_by_the_name_that_jms_clients_know() {
    let sent = |application: &[(&str, Value)]| Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: true,
        priority: 4,
        expires_at_ms: 0,
        rare: None,
        bytes: message(Header::default(), Properties::default(), application),
    };
    let queue = Destination::queue;
    let past = DeadLetter { queue: queue("DLQ"), origin: queue("orders"), reason: Some("too old".into()) };
    let own = (DeadLetter::CAUSE, Value::from("mine"));
    for (case, bytes, want) in [
        ("no dead letter", sent(&[]).bytes, None),
        ("a dead letter", mark_dead_letter(&sent(&[]), &past).bytes, Some("too old")),
        ("with the sender's own property", mark_dead_letter(&sent(&[own]), &past).bytes, Some("mine")),
    ] {
        let seen = StoredProperties::of(&bytes, 0);
        assert_eq!(seen.property(DeadLetter::CAUSE), want.map(Seen::from), "{case}");
        assert_eq!(seen.property("dlq"), None, "{case}");
    }
}

#[test]
fn what_cannot_be_read_has_no_properties() {
    for bytes in [&b"noise"[..], b"", b"\x00\x53\x74\xc1\x03\x02\x40\x57"] {
        let bytes = Bytes::copy_from_slice(bytes);
        assert_eq!(StoredProperties::of(&bytes, 0).property("p"), None, "{bytes:?}");
    }
}
