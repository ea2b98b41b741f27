//! OpenWire messages as every protocol understands them, and back: each row of
//! docs/protocols/fidelity.md that names OpenWire.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use bytes::{Buf, Bytes, BytesMut};
use postroad_model::portable::{Body, Decimal, Headers, Id, Portable, Text, TranslationError, Value};
use postroad_model::{self as model, Encoding, EntryTag, Protocol};
use postroad_openwire::codec::{
    BlobReference, Destination, Message, MessageId, MessageKind, PRIMITIVE_VALUES_MAX, Primitive,
    PrimitiveMap, ProducerId, WireString, encode_text_body, from_stored, to_stored,
};
use postroad_openwire::portable::{TranslatedId, read_portable, write_portable};

const VERSION: u8 = 12;

fn stored(message: &Message) -> model::Message {
    model::Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: VERSION },
        persistent: message.persistent,
        priority: message.priority,
        expires_at_ms: message.expiration_ms as u64,
        rare: None,
        bytes: to_stored(message, VERSION).unwrap(),
    }
}

fn read(message: &Message) -> Portable {
    read_portable(&stored(message)).unwrap()
}

fn write(portable: &Portable) -> Message {
    let id = TranslatedId { tag: EntryTag(7), stored: b"stored" };
    let at = Destination::Queue("at".into());
    from_stored(&write_portable(portable, id, &at, VERSION).unwrap(), VERSION).unwrap()
}

fn text(text: &str) -> Text {
    text.into()
}

fn marshalled(entries: &[(&str, Primitive)]) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    entries.iter().cloned().collect::<PrimitiveMap>().encode(&mut bytes).unwrap();
    Some(bytes.freeze())
}

fn values(values: &[Primitive]) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    values.iter().for_each(|value| value.encode(&mut bytes).unwrap());
    Some(bytes.freeze())
}

/// Each of Java's types, and the value that stands for it everywhere.
fn java_values() -> Vec<(&'static str, Primitive, Value)> {
    vec![
        ("null", Primitive::Null, Value::Null),
        ("boolean", Primitive::Boolean(true), Value::Boolean(true)),
        ("byte", Primitive::Byte(-128), Value::Byte(-128)),
        ("short", Primitive::Short(i16::MIN), Value::Short(i16::MIN)),
        ("char", Primitive::Char(0x20AC), Value::Char('€')),
        ("int", Primitive::Int(i32::MIN), Value::Int(i32::MIN)),
        ("long", Primitive::Long(i64::MIN), Value::Long(i64::MIN)),
        ("float", Primitive::Float(1.5), Value::Float(1.5)),
        ("double", Primitive::Double(-0.1), Value::Double(-0.1)),
        ("String", Primitive::String("a\0é😀".into()), Value::from("a\0é😀")),
        (
            "bytes",
            Primitive::Bytes(Bytes::from_static(b"\0\xff")),
            Value::Binary(Bytes::from_static(b"\0\xff")),
        ),
        ("List", Primitive::List(vec![Primitive::Int(1)]), Value::List(vec![Value::Int(1)])),
        (
            "Map",
            Primitive::Map([("k", Primitive::Null)].into_iter().collect()),
            Value::Map(vec![(text("k"), Value::Null)]),
        ),
    ]
}

#[test]
fn property_types_of_java_are_kept_both_ways() {
    for (case, primitive, value) in java_values() {
        let properties = marshalled(&[("p", primitive)]);
        let message = Message { marshalled_properties: properties.clone(), ..Message::default() };
        let portable = read(&message);
        assert_eq!(portable.properties, [(text("p"), value)], "read: {case}");
        assert_eq!(write(&portable).marshalled_properties, properties, "written: {case}");
    }
}

#[test]
fn values_that_java_does_not_know_become_their_nearest() {
    for (case, value, want) in [
        ("ubyte that fits", Value::UnsignedByte(127), Primitive::Byte(127)),
        ("ubyte", Value::UnsignedByte(255), Primitive::Short(255)),
        ("ushort that fits", Value::UnsignedShort(32_767), Primitive::Short(32_767)),
        ("ushort", Value::UnsignedShort(65_535), Primitive::Int(65_535)),
        ("uint that fits", Value::UnsignedInt(i32::MAX as u32), Primitive::Int(i32::MAX)),
        ("uint", Value::UnsignedInt(u32::MAX), Primitive::Long(u32::MAX.into())),
        ("ulong that fits", Value::UnsignedLong(i64::MAX as u64), Primitive::Long(i64::MAX)),
        ("ulong", Value::UnsignedLong(u64::MAX), Primitive::String("18446744073709551615".into())),
        ("timestamp", Value::Timestamp(-1), Primitive::Long(-1)),
        ("uuid", Value::Uuid([0xab; 16]), Primitive::String("abababab-abab-abab-abab-abababababab".into())),
        ("symbol", Value::Symbol(text("s")), Primitive::String("s".into())),
        (
            "decimal",
            Value::Decimal(Decimal { negative: true, digits: 15, exponent: -1 }),
            Primitive::Double(-1.5),
        ),
        ("char beyond U+FFFF", Value::Char('😀'), Primitive::String("😀".into())),
    ] {
        let portable = Portable { properties: vec![(text("p"), value)], ..Portable::default() };
        assert_eq!(write(&portable).marshalled_properties, marshalled(&[("p", want)]), "case: {case}");
    }
}

#[test]
fn lone_surrogates_are_replaced() {
    let lone = WireString::from_wire(Bytes::from_static(b"\xED\xA0\xBD")).unwrap();
    let properties = marshalled(&[("s", Primitive::String(lone)), ("c", Primitive::Char(0xD83D))]);
    let portable = read(&Message { marshalled_properties: properties, ..Message::default() });
    let replaced = [(text("s"), Value::from("\u{FFFD}")), (text("c"), Value::Char('\u{FFFD}'))];
    assert_eq!(portable.properties, replaced);
}

#[test]
fn bodies_of_each_kind_go_both_ways() {
    let (simple, nested): (Vec<_>, Vec<_>) =
        java_values().into_iter().partition(|(_, _, value)| value.is_simple());
    let primitives: Vec<_> = simple.iter().map(|(_, primitive, _)| primitive.clone()).collect();
    let all: Vec<_> = simple.iter().chain(&nested).collect();
    let map: Vec<_> = all.iter().map(|(name, primitive, _)| (*name, primitive.clone())).collect();
    for (case, kind, content, want) in [
        ("none", MessageKind::Plain, None, Body::None),
        (
            "text",
            MessageKind::Text,
            encode_text_body(&"a\0é😀".into()).ok(),
            Body::Text(Some(text("a\0é😀"))),
        ),
        ("empty text", MessageKind::Text, encode_text_body(&"".into()).ok(), Body::Text(Some(text("")))),
        ("null text", MessageKind::Text, None, Body::Text(None)),
        (
            "bytes",
            MessageKind::Bytes,
            Some(Bytes::from_static(b"\0\xff")),
            Body::Bytes(Bytes::from_static(b"\0\xff")),
        ),
        ("no bytes", MessageKind::Bytes, Some(Bytes::new()), Body::Bytes(Bytes::new())),
        (
            "map",
            MessageKind::Map,
            marshalled(&map),
            Body::Map(all.iter().map(|(name, _, value)| (text(name), value.clone())).collect()),
        ),
        ("empty map", MessageKind::Map, marshalled(&[]), Body::Map(vec![])),
        (
            "stream",
            MessageKind::Stream,
            values(&primitives),
            Body::Stream(simple.iter().map(|(_, _, value)| value.clone()).collect()),
        ),
        ("empty stream", MessageKind::Stream, Some(Bytes::new()), Body::Stream(vec![])),
        (
            "object",
            MessageKind::Object,
            Some(Bytes::from_static(b"\xac\xed")),
            Body::Object(Some(Bytes::from_static(b"\xac\xed"))),
        ),
        ("null object", MessageKind::Object, None, Body::Object(None)),
    ] {
        let message = Message { kind, content: content.clone(), ..Message::default() };
        let portable = read(&message);
        assert_eq!(portable.body, want, "read: {case}");
        let written = write(&portable);
        assert_eq!((written.kind, written.content), (kind, content), "written: {case}");
    }
}

#[test]
fn bodies_without_an_equal_are_shown_as_the_nearest_kind() {
    let list = Value::List(vec![Value::Int(1)]);
    let blob = BlobReference { remote_blob_url: Some("http://a/b".into()), ..BlobReference::default() };
    let message = Message { kind: MessageKind::Blob, blob: Some(Box::new(blob)), ..Message::default() };
    assert_eq!(read(&message).body, Body::Text(Some(text("http://a/b"))), "blob: where it lies");
    let written = |body| {
        let message = write(&Portable { body, ..Portable::default() });
        (message.kind, message.content)
    };
    assert_eq!(
        written(Body::Value(Value::UnsignedInt(7))),
        (MessageKind::Stream, values(&[Primitive::Int(7)])),
        "one value"
    );
    assert_eq!(
        written(Body::Stream(vec![Value::Boolean(true), list.clone()])),
        (
            MessageKind::Map,
            marshalled(&[("0", Primitive::Boolean(true)), ("1", Primitive::List(vec![Primitive::Int(1)]))])
        ),
        "a list in a stream"
    );
    assert_eq!(
        written(Body::Value(list)),
        (MessageKind::Stream, values(&[Primitive::Int(1)])),
        "a list as the value"
    );
}

/// The output of the reference client library: see `fixtures/openwire/README.md`.
fn reference_messages() -> Vec<(String, Bytes)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/openwire/bodies.bin");
    let mut input = Bytes::from(std::fs::read(path).unwrap());
    let mut data = || {
        let length = input.try_get_u32().ok()? as usize;
        Some(input.split_to(length))
    };
    let mut messages = Vec::new();
    while let Some(name) = data() {
        messages.push((String::from_utf8(name.to_vec()).unwrap(), data().unwrap()));
    }
    messages
}

/// The values that `Bodies.map` puts into maps and properties.
fn reference_values() -> Vec<(Text, Value)> {
    let list = Value::List(vec![Value::Int(1), Value::Null]);
    [
        ("String", Value::from("Grüße")),
        ("boolean", Value::Boolean(true)),
        ("byte", Value::Byte(i8::MIN)),
        ("bytes", Value::Binary(Bytes::from_static(b"\0\xff\x7f"))),
        ("char", Value::Char('€')),
        ("double", Value::Double(-0.1)),
        ("float", Value::Float(1.5)),
        ("int", Value::Int(i32::MIN)),
        ("list", list),
        ("long", Value::Long(i64::MIN)),
        ("map", Value::Map(vec![(text("k"), Value::from("v"))])),
        ("null", Value::Null),
        ("short", Value::Short(i16::MIN)),
    ]
    .map(|(name, value)| (text(name), value))
    .to_vec()
}

#[test]
fn messages_of_the_reference_library_are_read_plain_and_deflated() {
    let sorted = |mut pairs: Vec<(Text, Value)>| {
        pairs.sort_by(|one, other| one.0.cmp(&other.0));
        pairs
    };
    let values = reference_values();
    let properties: Vec<_> = values.iter().filter(|(name, _)| *name != "bytes").cloned().collect();
    let order = [
        "boolean",
        "byte",
        "short",
        "char",
        "int",
        "long",
        "float",
        "double",
        "String",
        "long text",
        "bytes",
        "null",
    ];
    let stream = order.map(|name| match values.iter().find(|(known, _)| known.as_str() == name) {
        Some((_, value)) => value.clone(),
        None => Value::from("x".repeat(10_000).as_str()),
    });
    // The serialisation of a java.lang.String, and the reset that the client writes after every
    // object.
    let serialised = Bytes::from_static(b"\xac\xed\0\x05t\0\x0aserialised\x79");
    let messages = reference_messages();
    assert_eq!(messages.len(), 26, "13 messages, twice");
    for (number, (name, bytes)) in messages.into_iter().enumerate() {
        let want = match name.as_str() {
            "none" | "properties" => Body::None,
            "text" => Body::Text(Some(text("Grüße \0 😀"))),
            "empty text" => Body::Text(Some(text(""))),
            "null text" => Body::Text(None),
            "bytes" => Body::Bytes(Bytes::from_static(b"\0\xff\x7f")),
            "no bytes" => Body::Bytes(Bytes::new()),
            "map" => Body::Map(values.clone()),
            "empty map" => Body::Map(vec![]),
            "stream" => Body::Stream(stream.to_vec()),
            "empty stream" => Body::Stream(vec![]),
            "object" => Body::Object(Some(serialised.clone())),
            "null object" => Body::Object(None),
            other => panic!("an unknown message: {other}"),
        };
        let encoding = Encoding { protocol: Protocol::OpenWire, version: VERSION };
        let message = model::Message { encoding, bytes, ..stored(&Message::default()) };
        let portable = read_portable(&message).unwrap();
        let body = match portable.body {
            Body::Map(map) => Body::Map(sorted(map)),
            body => body,
        };
        assert_eq!(body, want, "message {number}: {name}");
        let want = if name == "properties" { properties.clone() } else { vec![] };
        assert_eq!(sorted(portable.properties), want, "properties of message {number}: {name}");
    }
}

fn full_headers() -> Headers {
    Headers {
        message_id: Some(Id::Text(text("ID:host-1:2:3:4"))),
        correlation_id: Some(Id::Uuid([1; 16])),
        destination: Some(model::Destination::topic("t")),
        reply_to: Some(model::Destination { temporary: true, ..model::Destination::queue("ID:q") }),
        message_type: Some(text("type")),
        group_id: Some(text("group")),
        group_sequence: Some(-1),
        reply_to_group_id: Some(text("answers")),
        user_id: Some(Bytes::from_static("jörg".as_bytes())),
        timestamp_ms: Some(1000),
        expires_at_ms: Some(2000),
        priority: 7,
        persistent: true,
        failed_deliveries: 3,
        content_type: Some(text("text/plain")),
        content_encoding: Some(text("gzip")),
        original_destination: Some(model::Destination::queue("first")),
        dead_letter_cause: Some(text("no use")),
    }
}

fn full_message() -> Message {
    Message {
        message_id: Some(MessageId {
            producer_id: Some(ProducerId {
                connection_id: Some("ID:host-1".into()),
                session_id: 2,
                value: 3,
            }),
            producer_sequence_id: 4,
            ..MessageId::default()
        }),
        correlation_id: Some("ID:AMQP_UUID:01010101-0101-0101-0101-010101010101".into()),
        destination: Some(Destination::Topic("t".into())),
        reply_to: Some(Destination::TempQueue("ID:q".into())),
        message_type: Some("type".into()),
        group_id: Some("group".into()),
        group_sequence: -1,
        user_id: Some("jörg".into()),
        timestamp_ms: 1000,
        expiration_ms: 2000,
        priority: 7,
        persistent: true,
        redelivery_counter: 3,
        original_destination: Some(Destination::Queue("first".into())),
        marshalled_properties: marshalled(&[
            ("JMS_AMQP_ContentType", Primitive::String("text/plain".into())),
            ("JMS_AMQP_ContentEncoding", Primitive::String("gzip".into())),
            ("JMS_AMQP_ReplyToGroupID", Primitive::String("answers".into())),
            ("dlqDeliveryFailureCause", Primitive::String("no use".into())),
            ("JMS_AMQP_MA_x-opt-a", Primitive::Int(1)),
        ]),
        ..Message::default()
    }
}

#[test]
fn headers_are_kept_both_ways_but_for_the_message_id() {
    let annotations = vec![(text("x-opt-a"), Value::Int(1))];
    let portable = Portable { headers: full_headers(), annotations, ..Portable::default() };
    assert_eq!(read(&full_message()), portable);
    let written = write(&portable);
    let id = written.message_id.clone().unwrap();
    assert_eq!(id.text_view, Some("ID:host-1:2:3:4".into()));
    assert_eq!((&written.producer_id, id.producer_sequence_id), (&id.producer_id, 1));
    let want = Message {
        message_id: Some(id),
        producer_id: written.producer_id.clone(),
        reply_to: Some(Destination::TempQueue("ID:q".into())),
        ..full_message()
    };
    assert_eq!(written, want);
    assert_eq!(read(&written), portable);
}

#[test]
fn temporary_destinations_stay_temporary() {
    let temporary = |destination| model::Destination { temporary: true, ..destination };
    for (case, reply_to, want) in [
        ("queue", model::Destination::queue("a"), Destination::Queue("a".into())),
        ("temporary queue", temporary(model::Destination::queue("a")), Destination::TempQueue("a".into())),
        ("temporary topic", temporary(model::Destination::topic("a")), Destination::TempTopic("a".into())),
    ] {
        let headers = Headers { reply_to: Some(reply_to), ..Headers::default() };
        let portable = Portable { headers, ..Portable::default() };
        let written = write(&portable);
        assert_eq!(written.reply_to, Some(want), "case: {case}");
        assert_eq!(
            read(&written).headers.reply_to,
            portable.headers.reply_to,
            "the same destination: {case}"
        );
    }
}

#[test]
fn what_openwire_has_for_brokers_ends_here() {
    let message = Message {
        priority: 4,
        broker_path: Some(vec![]),
        cluster: Some(vec![]),
        arrival_ms: 1,
        broker_in_time_ms: 2,
        broker_out_time_ms: 3,
        received_by_df_bridge: true,
        droppable: true,
        ..Message::default()
    };
    assert_eq!(read(&message), Portable::default());
}

#[test]
fn headers_that_were_not_given_are_not_invented() {
    assert_eq!(read(&Message { priority: 4, ..Message::default() }), Portable::default());
    let written = write(&Portable::default());
    let want = Message {
        message_id: written.message_id.clone(),
        producer_id: written.producer_id.clone(),
        destination: Some(Destination::Queue("at".into())),
        priority: 4,
        ..Message::default()
    };
    assert_eq!(written, want);
    assert_eq!(written.message_id.unwrap().text_view, None);
}

#[test]
fn ids_of_foreign_messages_are_their_own_and_stay() {
    let id = |tag, stored| {
        let at = Destination::Queue("at".into());
        let id = TranslatedId { tag: EntryTag(tag), stored };
        let written = write_portable(&Portable::default(), id, &at, VERSION).unwrap();
        from_stored(&written, VERSION).unwrap().message_id.unwrap().producer_id
    };
    assert_eq!(id(1, b"a"), id(1, b"a"), "the same again");
    assert_ne!(id(1, b"a"), id(2, b"a"), "the same text sent twice");
    assert_ne!(id(1, b"a"), id(1, b"b"), "another message in the same place");
}

#[test]
fn marks_of_brokers_and_orders_for_schedulers_are_left_behind() {
    let names = [
        "JMS_AMQP_NATIVE",
        "JMS_AMQP_HEADER",
        "JMS_AMQP_PROPERTIES",
        "JMS_AMQP_ORIGINAL_ENCODING",
        "JMS_AMQP_MESSAGE_FORMAT",
        "JMS_AMQP_FirstAcquirer",
        "JMS_AMQP_DA_x",
        "AMQ_SCHEDULED_DELAY",
    ];
    let properties: Vec<_> = names.iter().map(|name| (*name, Primitive::Boolean(true))).collect();
    let marshalled_properties = marshalled(&properties);
    assert_eq!(
        read(&Message { priority: 4, marshalled_properties, ..Message::default() }),
        Portable::default()
    );
}

#[test]
fn deflated_bodies_are_inflated() {
    let plain = encode_text_body(&"deflated".into()).unwrap();
    let content = Some(miniz_oxide::deflate::compress_to_vec_zlib(&plain, 6).into());
    let message = Message { kind: MessageKind::Text, compressed: true, content, ..Message::default() };
    assert_eq!(read(&message).body, Body::Text(Some(text("deflated"))));
}

#[test]
fn what_cannot_be_read_says_why() {
    let error = |message: &Message| read_portable(&stored(message)).unwrap_err();
    let unreadable = |reason: &str| TranslationError::Unreadable {
        protocol: Protocol::OpenWire,
        reason: reason.to_owned(),
    };
    let cut = Some(Bytes::from_static(b"\0"));
    for (case, message, want) in [
        (
            "cut body",
            Message { kind: MessageKind::Text, content: cut.clone(), ..Message::default() },
            "its body: frame ends at offset 0: 4 bytes wanted, 1 left",
        ),
        (
            "cut properties",
            Message { marshalled_properties: cut.clone(), ..Message::default() },
            "its properties: frame ends at offset 0: 4 bytes wanted, 1 left",
        ),
        (
            "more nulls than may be read",
            Message {
                kind: MessageKind::Stream,
                content: Some(vec![0; PRIMITIVE_VALUES_MAX as usize + 1].into()),
                ..Message::default()
            },
            "its body: more than 1048576 values, at offset 1048576",
        ),
        (
            "not deflated",
            Message { kind: MessageKind::Text, compressed: true, content: cut, ..Message::default() },
            "a deflated body is damaged: FailedCannotMakeProgress",
        ),
    ] {
        assert_eq!(error(&message), unreadable(want), "case: {case}");
    }
}

#[test]
fn what_openwire_has_no_room_for_says_why() {
    let long = Headers { message_type: Some("x".repeat(70_000).into()), ..Headers::default() };
    let portable = Portable { headers: long, ..Portable::default() };
    let id = TranslatedId { tag: EntryTag(1), stored: b"" };
    let at = Destination::Queue("at".into());
    let want = TranslationError::Unwritable {
        protocol: Protocol::OpenWire,
        reason: "text of 70000 bytes exceeds the limit of 65535".to_owned(),
    };
    assert_eq!(write_portable(&portable, id, &at, VERSION), Err(want));
}
