//! Messages that cross from one protocol to another: the promises of docs/protocols/fidelity.md,
//! from end to end.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use std::path::Path;

use bytes::Bytes;
use postroad_amqp::portable as amqp;
use postroad_model::portable::{Body, Decimal, Headers, Id, Portable, Text, Value};
use postroad_model::{Destination, Encoding, EntryTag, Message, Protocol};
use postroad_openwire::codec;
use postroad_openwire::portable as openwire;
use proptest::collection::vec;
use proptest::prelude::*;

const VERSION: u8 = 12;

/// One door: a message as an OpenWire client sees it.
fn through_openwire(portable: &Portable) -> Portable {
    let id = openwire::TranslatedId { tag: EntryTag(1), stored: b"" };
    let at = codec::Destination::Queue("at".into());
    let bytes = openwire::write_portable(portable, id, &at, VERSION).unwrap();
    openwire::read_portable(&stored(Protocol::OpenWire, VERSION, portable, bytes)).unwrap()
}

/// The other door: a message as an AMQP client sees it.
fn through_amqp(portable: &Portable) -> Portable {
    let bytes = amqp::write_portable(portable);
    amqp::read_portable(&stored(Protocol::Amqp, 0, portable, bytes)).unwrap()
}

fn stored(protocol: Protocol, version: u8, portable: &Portable, bytes: Bytes) -> Message {
    let headers = &portable.headers;
    Message {
        encoding: Encoding { protocol, version },
        persistent: headers.persistent,
        priority: headers.priority,
        expires_at_ms: headers.expires_at_ms.unwrap_or(0) as u64,
        rare: None,
        bytes,
    }
}

fn text() -> impl Strategy<Value = Text> {
    prop_oneof![".{0,12}", "ID:AMQP_(UUID|ULONG|BINARY|STRING|NO_PREFIX):[0-9a-f]{0,4}", "[a-z]{1,8}"]
        .prop_map(Text::from)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

/// Values that Java has.
fn java_value() -> impl Strategy<Value = Value> {
    let simple = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        any::<i32>().prop_map(Value::Int),
        any::<i64>().prop_map(Value::Long),
        (-1e30_f32..1e30).prop_map(Value::Float),
        (-1e300_f64..1e300).prop_map(Value::Double),
        proptest::char::range('\0', '\u{D7FF}').prop_map(Value::Char),
        bytes().prop_map(Value::Binary),
        text().prop_map(Value::String),
    ];
    simple.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::List), map(inner).prop_map(Value::Map)]
    })
}

/// Values that only AMQP has.
fn foreign_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::UnsignedByte),
        any::<u16>().prop_map(Value::UnsignedShort),
        any::<u32>().prop_map(Value::UnsignedInt),
        any::<u64>().prop_map(Value::UnsignedLong),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any::<char>().prop_map(Value::Char),
        "[ -~]{0,9}".prop_map(|name| Value::Symbol(name.into())),
        (any::<bool>(), any::<u64>(), -40..40_i32).prop_map(|(negative, digits, exponent)| {
            Value::Decimal(Decimal { negative, digits: digits.into(), exponent })
        }),
    ]
}

fn map(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Vec<(Text, Value)>> {
    proptest::collection::btree_map("[a-zA-Zé]{1,6}", value, 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        text().prop_map(Id::Text),
        bytes().prop_map(Id::Binary),
        any::<[u8; 16]>().prop_map(Id::Uuid),
        any::<u64>().prop_map(Id::Number)
    ]
}

fn destination() -> impl Strategy<Value = Destination> {
    ("[a-z.:]{1,9}", any::<bool>(), any::<bool>()).prop_map(|(name, queue, temporary)| {
        let destination = if queue { Destination::queue(&name) } else { Destination::topic(&name) };
        Destination { temporary, ..destination }
    })
}

fn headers() -> impl Strategy<Value = Headers> {
    let option = proptest::option::of::<BoxedStrategy<Text>>;
    let texts = [option(text().boxed()), option(text().boxed()), option(text().boxed())];
    let times = [proptest::option::of(1..i64::MAX), proptest::option::of(1..i64::MAX)];
    let destinations =
        (destination(), proptest::option::of(destination()), proptest::option::of(destination()));
    let names = (id(), proptest::option::of(id()), proptest::option::of("[a-z]{0,9}"));
    let numbers = (proptest::option::of(1..i32::MAX), 0..10_u8, any::<bool>(), 0..9_u32);
    let kinds =
        (proptest::option::of("image/[a-z]{3}"), proptest::option::of("[a-z]{3}"), option(text().boxed()));
    (texts, times, destinations, names, numbers, kinds).prop_map(
        |(
            [message_type, group_id, reply_to_group_id],
            [timestamp_ms, expires_at_ms],
            (to, reply_to, original_destination),
            (message_id, correlation_id, user),
            (group_sequence, priority, persistent, failed_deliveries),
            (content_type, content_encoding, dead_letter_cause),
        )| Headers {
            message_id: Some(message_id),
            correlation_id,
            destination: Some(to),
            reply_to,
            message_type,
            group_id,
            group_sequence,
            reply_to_group_id,
            user_id: user.map(|user| user.into()),
            timestamp_ms,
            expires_at_ms,
            priority,
            persistent,
            failed_deliveries,
            content_type: content_type.map(Text::from),
            content_encoding: content_encoding.map(Text::from),
            original_destination,
            dead_letter_cause,
        },
    )
}

/// Bodies that both know.
fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::None),
        proptest::option::of(text()).prop_map(Body::Text),
        bytes().prop_map(Body::Bytes),
        map(java_value()).prop_map(Body::Map),
        vec(java_value().prop_filter("a stream holds no lists", Value::is_simple), 0..5)
            .prop_map(Body::Stream),
        proptest::option::of(vec(any::<u8>(), 1..20))
            .prop_map(|object| Body::Object(object.map(Bytes::from))),
    ]
}

fn portable(value: BoxedStrategy<Value>) -> impl Strategy<Value = Portable> {
    let annotations = proptest::collection::btree_map("x-opt-[a-c]{1,3}", java_value(), 0..3);
    (headers(), map(value), annotations, body()).prop_map(|(mut headers, properties, annotations, body)| {
        if matches!(body, Body::Object(_)) {
            // The kind of body implies the type: no other MIME type is kept.
            headers.content_type = None;
        }
        let annotations = annotations.into_iter().map(|(name, value)| (name.into(), value)).collect();
        Portable { headers, properties, annotations, body }
    })
}

/// The names of a message without order: an annotation keeps lists and maps apart from simple
/// properties.
fn sorted(mut portable: Portable) -> Portable {
    portable.properties.sort_by(|one, other| one.0.cmp(&other.0));
    portable.annotations.sort_by(|one, other| one.0.cmp(&other.0));
    portable
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_openwire_says_comes_back_from_amqp(sent in portable(java_value().boxed())) {
        let sent = sorted(through_openwire(&sent));
        let received = through_amqp(&sent);
        prop_assert_eq!(sorted(received.clone()), sent.clone());
        prop_assert_eq!(sorted(through_openwire(&received)), sent);
    }

    #[test]
    fn what_amqp_says_is_changed_once_by_openwire(
        sent in portable(prop_oneof![java_value(), foreign_value()].boxed())
    ) {
        let sent = sorted(through_amqp(&sent));
        let once = sorted(through_openwire(&sent));
        prop_assert_eq!(sorted(through_openwire(&through_amqp(&once))), once.clone());
        // Only values of properties are other ones.
        let without = |portable: &Portable| Portable { properties: Vec::new(), ..portable.clone() };
        prop_assert_eq!(without(&once), without(&sent));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_refused_and_never_panics(
        sent in portable(java_value().boxed()),
        noise in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let id = openwire::TranslatedId { tag: EntryTag(1), stored: b"" };
        let at = codec::Destination::Queue("at".into());
        let by_openwire = openwire::write_portable(&sent, id, &at, VERSION).unwrap();
        let by_amqp = amqp::write_portable(&sent);
        for (protocol, version, bytes) in [(Protocol::OpenWire, VERSION, by_openwire), (Protocol::Amqp, 0, by_amqp)] {
            let mut bytes = bytes.to_vec();
            for (index, byte) in &noise {
                let index = index.index(bytes.len());
                bytes[index] = *byte;
            }
            let message = stored(protocol, version, &sent, bytes.into());
            let read = match protocol {
                Protocol::OpenWire => openwire::read_portable(&message),
                Protocol::Amqp => amqp::read_portable(&message),
            };
            if let Ok(read) = read {
                amqp::write_portable(&read);
                let _ = openwire::write_portable(&read, id, &at, VERSION);
            }
        }
    }
}

#[test]
fn values_of_amqp_alone_reach_java_as_the_table_says() {
    let wide = Value::UnsignedLong(u64::MAX);
    for (case, sent, received) in [
        ("unsigned that fits", Value::UnsignedInt(7), Value::Int(7)),
        ("unsigned that does not", Value::UnsignedInt(u32::MAX), Value::Long(u32::MAX.into())),
        ("unsigned of 64 bits", wide, Value::from("18446744073709551615")),
        ("timestamp", Value::Timestamp(5), Value::Long(5)),
        ("symbol", Value::Symbol("s".into()), Value::from("s")),
        ("uuid", Value::Uuid([0x11; 16]), Value::from("11111111-1111-1111-1111-111111111111")),
        ("decimal", Decimal { negative: false, digits: 5, exponent: -1 }.into(), Value::Double(0.5)),
    ] {
        let of = |value| Portable { body: Body::Map(vec![("k".into(), value)]), ..Portable::default() };
        let got = through_openwire(&through_amqp(&of(sent)));
        assert_eq!(got.body, of(received).body, "case: {case}");
    }
}

/// Every row of the table names a test, and the test exists.
#[test]
fn each_row_of_the_table_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/protocols/fidelity.md")).unwrap();
    let sources: String = ["crates/openwire/tests/portable.rs", "crates/amqp/tests/portable.rs", file!()]
        .iter()
        .chain(&[
            "crates/model/src/portable/id.rs",
            "crates/openwire/src/session/consumer.rs",
            "crates/broker/src/runtime/body.rs",
            "tests/jms/src/fidelity/java/postroad/jms/FidelityTest.java",
            "tests/jms/src/fidelity/java/postroad/jms/UnusualMessagesTest.java",
        ])
        .map(|path| std::fs::read_to_string(root.join(path)).unwrap())
        .collect();
    let table = table.split("## Where ActiveMQ Classic differs").next().unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(rows.len() > 40, "the table has {} rows", rows.len());
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test: {row}");
        for name in names {
            let exists =
                sources.contains(&format!("fn {name}(")) || sources.contains(&format!("void {name}("));
            assert!(exists, "the test {name} does not exist: {row}");
        }
    }
}
