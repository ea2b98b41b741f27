//! AMQP messages as every protocol understands them, and back: each row of
//! docs/protocols/fidelity.md that names AMQP.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use bytes::{BufMut, Bytes, BytesMut};
use postroad_amqp::codec::{
    Array, Described, Field, Header, Properties, Symbol, Text as WireText, Timestamp, Value as Wire,
    ValueMap, WireError,
};
use postroad_amqp::message::Sections;
use postroad_amqp::portable::{in_amqp, read_portable, write_portable};
use postroad_model::portable::{Body, Decimal, Headers, Id, Portable, Text, TranslationError, Value};
use postroad_model::{self as model, Destination, Encoding, Protocol};

const MESSAGE_TYPE: &str = "x-opt-jms-msg-type";

fn stored(bytes: Bytes) -> model::Message {
    model::Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: false,
        priority: 4,
        expires_at_ms: 0,
        rare: None,
        bytes,
    }
}

fn read(bytes: Bytes) -> Portable {
    read_portable(&stored(bytes)).unwrap()
}

/// A section of this number.
fn section(code: u8, value: &Wire) -> Bytes {
    let mut out = BytesMut::new();
    out.put_slice(&[0, 0x53, code]);
    value.encode(&mut out);
    out.freeze()
}

fn annotated(kind: i8) -> Bytes {
    let mut map = ValueMap::default();
    map.push(MESSAGE_TYPE, Wire::Byte(kind));
    section(0x72, &map.into())
}

fn of_type(content_type: &'static str) -> Bytes {
    let mut out = BytesMut::new();
    let content_type = Some(Symbol::from_static(content_type));
    Properties { content_type, ..Properties::default() }.write(&mut out);
    out.freeze()
}

fn data(bytes: &'static [u8]) -> Bytes {
    section(0x75, &Bytes::from_static(bytes).into())
}

fn value(value: impl Into<Wire>) -> Bytes {
    section(0x77, &value.into())
}

fn concat(parts: &[Bytes]) -> Bytes {
    parts.concat().into()
}

fn text(text: &str) -> Text {
    text.into()
}

fn binary(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

/// Each of AMQP's types, and the value that stands for it everywhere.
fn amqp_values() -> Vec<(&'static str, Wire, Value)> {
    let decimal = Decimal { negative: false, digits: 750, exponent: -2 };
    vec![
        ("null", Wire::Null, Value::Null),
        ("boolean", Wire::Boolean(true), Value::Boolean(true)),
        ("ubyte", Wire::Ubyte(255), Value::UnsignedByte(255)),
        ("ushort", Wire::Ushort(65_535), Value::UnsignedShort(65_535)),
        ("uint", Wire::Uint(u32::MAX), Value::UnsignedInt(u32::MAX)),
        ("ulong", Wire::Ulong(u64::MAX), Value::UnsignedLong(u64::MAX)),
        ("byte", Wire::Byte(-128), Value::Byte(-128)),
        ("short", Wire::Short(i16::MIN), Value::Short(i16::MIN)),
        ("int", Wire::Int(i32::MIN), Value::Int(i32::MIN)),
        ("long", Wire::Long(i64::MIN), Value::Long(i64::MIN)),
        ("float", Wire::Float(1.5), Value::Float(1.5)),
        ("double", Wire::Double(-0.1), Value::Double(-0.1)),
        (
            "decimal128",
            Wire::Decimal128(0x303C_0000_0000_0000_0000_0000_0000_02EE_u128.to_be_bytes()),
            Value::Decimal(decimal),
        ),
        ("char", Wire::Char('😀'), Value::Char('😀')),
        ("timestamp", Wire::Timestamp(-1), Value::Timestamp(-1)),
        ("uuid", Wire::Uuid([7; 16]), Value::Uuid([7; 16])),
        ("binary", Wire::Binary(binary(b"\0\xff")), Value::Binary(binary(b"\0\xff"))),
        ("string", Wire::from("a\0é😀"), Value::from("a\0é😀")),
        ("symbol", Symbol::from_static("s").into(), Value::Symbol(text("s"))),
    ]
}

#[test]
fn property_types_of_amqp_are_kept_both_ways() {
    for (case, wire, portable) in amqp_values() {
        let mut map = ValueMap::default();
        map.0.push((Wire::from("p"), wire));
        let message = concat(&[section(0x74, &map.clone().into()), value("body")]);
        let got = read(message);
        assert_eq!(got.properties, [(text("p"), portable)], "read: {case}");
        let written = write_portable(&got);
        let again = Sections::scan(&written).unwrap().application_properties(&written);
        assert_eq!(again, Ok(map), "written: {case}");
    }
}

#[test]
fn values_that_others_do_not_have_become_their_nearest() {
    let described = Described { descriptor: Wire::Ulong(1), value: Wire::Int(5) };
    let array = Array::of_symbols(&[Symbol::from_static("a"), Symbol::from_static("b")]);
    let keys = ValueMap(vec![(Wire::Int(1), Wire::Null), (Wire::Uuid([0; 16]), Wire::Null)]);
    for (case, wire, want) in [
        ("decimal32", Wire::Decimal32(0x3180_02EE_u32.to_be_bytes()), decimal(750, -2)),
        ("decimal64", Wire::Decimal64(0x3180_0000_0000_02EE_u64.to_be_bytes()), decimal(750, -2)),
        ("array", array.into(), Value::List(vec![Value::Symbol(text("a")), Value::Symbol(text("b"))])),
        ("described", Wire::Described(Box::new(described)), Value::Int(5)),
        (
            "keys that are no text",
            keys.into(),
            Value::Map(vec![
                (text("1"), Value::Null),
                (text("00000000-0000-0000-0000-000000000000"), Value::Null),
            ]),
        ),
    ] {
        let list = Wire::List(vec![wire]);
        assert_eq!(read(value(list)).body, Body::Stream(vec![want]), "case: {case}");
    }
}

/// A list of `count` arrays, each of 65,535 nothings in a few bytes.
fn arrays_of_nothing(count: usize) -> Bytes {
    let array = [0xf0, 0, 0, 0, 5, 0, 0, 0xff, 0xff, 0x40];
    let mut out = BytesMut::from(&b"\0\x53\x77\xd0"[..]);
    out.put_u32((4 + count * array.len()) as u32);
    out.put_u32(count as u32);
    (0..count).for_each(|_| out.put_slice(&array));
    out.freeze()
}

/// Arrays of one array each.
fn arrays_inside_each_other(depth: usize) -> Bytes {
    let mut array = vec![0xf0, 0, 0, 0, 5, 0, 0, 0, 1, 0x40];
    for _ in 1..depth {
        let mut outer = vec![0xf0];
        outer.put_u32(array.len() as u32 + 4);
        outer.put_u32(1);
        outer.extend(array);
        array = outer;
    }
    [&b"\0\x53\x77"[..], &array].concat().into()
}

#[test]
fn what_expands_beyond_the_bounds_is_refused() {
    let unreadable =
        |reason: &str| TranslationError::Unreadable { protocol: Protocol::Amqp, reason: reason.to_owned() };
    let too_many = unreadable("more than 65536 values, at offset 0");
    assert!(read_portable(&stored(arrays_of_nothing(1))).is_ok());
    assert_eq!(read_portable(&stored(arrays_of_nothing(2))), Err(too_many.clone()));
    assert_eq!(read_portable(&stored(arrays_of_nothing(60_000))), Err(too_many));
    let too_deep = unreadable("more than 64 values inside each other at offset 0");
    assert!(read_portable(&stored(arrays_inside_each_other(64))).is_ok());
    assert_eq!(read_portable(&stored(arrays_inside_each_other(65))), Err(too_deep.clone()));
    assert_eq!(read_portable(&stored(arrays_inside_each_other(2_000))), Err(too_deep));
}

fn decimal(digits: u128, exponent: i32) -> Value {
    Value::Decimal(Decimal { negative: false, digits, exponent })
}

#[test]
fn lists_and_maps_among_the_properties_go_round_as_an_annotation() {
    let nested = vec![
        (text("list"), Value::List(vec![Value::Int(1)])),
        (text("map"), Value::Map(vec![(text("k"), Value::Boolean(true))])),
    ];
    let properties: Vec<_> = [(text("simple"), Value::Int(1))].into_iter().chain(nested).collect();
    let portable = Portable { properties, ..Portable::default() };
    let written = write_portable(&portable);
    let sections = Sections::scan(&written).unwrap();
    let application = sections.application_properties(&written).unwrap();
    assert_eq!(application.0, [(Wire::from("simple"), Wire::Int(1))], "simple ones alone are properties");
    assert_eq!(read(written), portable);
}

#[test]
fn bodies_are_read_by_section_and_by_what_is_said_of_them() {
    let object = of_type("application/x-java-serialized-object");
    let bytes = of_type("application/octet-stream");
    let plain = of_type("text/plain; charset=UTF-8");
    let latin = of_type("text/plain; charset=iso-8859-1");
    let null_object = data(&[0xac, 0xed, 0, 5, 0x70]);
    let map = ValueMap(vec![(Wire::from("k"), Wire::Int(1))]);
    let pairs = vec![(text("k"), Value::Int(1))];
    let list = Wire::List(vec![Wire::Int(1)]);
    let serialised = Body::Object(Some(binary(b"\xac\xed")));
    let some_text = Body::Text(Some(text("a")));
    for (case, parts, want) in [
        ("JMS message", vec![annotated(0)], Body::None),
        ("JMS message, null", vec![annotated(0), value(Wire::Null)], Body::None),
        ("JMS object", vec![annotated(1), object.clone(), data(b"\xac\xed")], serialised.clone()),
        ("null object", vec![annotated(1), object.clone(), null_object], Body::Object(None)),
        ("no object", vec![annotated(1), object.clone()], Body::Object(None)),
        ("JMS map", vec![annotated(2), value(map.clone())], Body::Map(pairs.clone())),
        ("no map", vec![annotated(2)], Body::Map(vec![])),
        ("JMS bytes", vec![annotated(3), bytes.clone(), data(b"a")], Body::Bytes(binary(b"a"))),
        ("bytes as a value", vec![annotated(3), value(binary(b"a"))], Body::Bytes(binary(b"a"))),
        ("no bytes", vec![annotated(3)], Body::Bytes(Bytes::new())),
        ("JMS stream", vec![annotated(4), section(0x76, &list)], Body::Stream(vec![Value::Int(1)])),
        ("no stream", vec![annotated(4)], Body::Stream(vec![])),
        ("JMS text", vec![annotated(5), value("a")], some_text.clone()),
        ("null text", vec![annotated(5), value(Wire::Null)], Body::Text(None)),
        ("no text", vec![annotated(5)], Body::Text(None)),
        ("text as data", vec![annotated(5), data(b"a")], some_text.clone()),
        ("text that is none", vec![annotated(5), data(b"\xff")], Body::Bytes(binary(b"\xff"))),
        ("nothing at all", vec![], Body::Bytes(Bytes::new())),
        ("nothing, an object", vec![object.clone()], Body::Object(None)),
        ("nothing, text", vec![of_type("text/plain")], Body::Text(None)),
        ("nothing, an image", vec![of_type("image/png")], Body::None),
        ("data", vec![data(b"a")], Body::Bytes(binary(b"a"))),
        ("data in two", vec![data(b"a"), data(b"b")], Body::Bytes(binary(b"ab"))),
        ("data, an object", vec![object, data(b"\xac\xed")], serialised),
        ("data, text", vec![plain.clone(), data(b"a")], some_text.clone()),
        ("data, JSON", vec![of_type("application/a+json"), data(b"a")], some_text.clone()),
        ("data, no UTF-8", vec![plain, data(b"\xff")], Body::Bytes(binary(b"\xff"))),
        ("data, another charset", vec![latin, data(b"a")], Body::Bytes(binary(b"a"))),
        ("value: null", vec![value(Wire::Null)], Body::Text(None)),
        ("value: string", vec![value("a")], some_text),
        ("value: binary", vec![value(binary(b"a"))], Body::Bytes(binary(b"a"))),
        ("value: map", vec![value(map)], Body::Map(pairs)),
        ("value: list", vec![value(list.clone())], Body::Stream(vec![Value::Int(1)])),
        ("value: a number", vec![value(7_u32)], Body::Value(Value::UnsignedInt(7))),
        (
            "sequences",
            vec![section(0x76, &list), section(0x76, &list)],
            Body::Stream(vec![Value::Int(1), Value::Int(1)]),
        ),
    ] {
        assert_eq!(read(concat(&parts)).body, want, "case: {case}");
    }
}

#[test]
fn bodies_are_written_for_jms_clients_and_come_back() {
    for (case, body, code, kind) in [
        ("none", Body::None, 0x77, 0),
        ("text", Body::Text(Some(text("a"))), 0x77, 5),
        ("null text", Body::Text(None), 0x77, 5),
        ("bytes", Body::Bytes(binary(b"a")), 0x75, 3),
        ("map", Body::Map(vec![(text("k"), Value::List(vec![Value::Int(1)]))]), 0x77, 2),
        ("stream", Body::Stream(vec![Value::Null, Value::Byte(1)]), 0x77, 4),
        ("object", Body::Object(Some(binary(b"\xac\xed"))), 0x75, 1),
        ("null object", Body::Object(None), 0x75, 1),
        ("a value", Body::Value(Value::Double(0.5)), 0x77, 1),
    ] {
        let portable = Portable { body, ..Portable::default() };
        let written = write_portable(&portable);
        let sections = Sections::scan(&written).unwrap();
        let notes = sections.message_annotations(&written).unwrap();
        let section = sections.body.as_ref().map(|body| written[body.span.start + 2]);
        assert_eq!((section, notes.get(MESSAGE_TYPE)), (Some(code), Some(&Wire::Byte(kind))), "case: {case}");
        assert_eq!(read(written), portable, "back: {case}");
    }
}

#[test]
fn a_mime_type_is_for_data_alone() {
    let headers = Headers { content_type: Some(text("text/csv")), ..Headers::default() };
    let portable = Portable { headers, body: Body::Text(Some(text("a,b"))), ..Portable::default() };
    let written = write_portable(&portable);
    assert!(written.ends_with(&data(b"a,b")));
    assert_eq!(read(written), portable);
}

fn full_headers() -> Headers {
    Headers {
        message_id: Some(Id::Text(text("ID:1"))),
        correlation_id: Some(Id::Binary(binary(b"\0\xff"))),
        destination: Some(Destination::topic("t")),
        reply_to: Some(Destination { temporary: true, ..Destination::queue("ID:q") }),
        message_type: Some(text("type")),
        group_id: Some(text("group")),
        group_sequence: Some(-1),
        reply_to_group_id: Some(text("answers")),
        user_id: Some(binary("jörg".as_bytes())),
        timestamp_ms: Some(1000),
        expires_at_ms: Some(2000),
        priority: 7,
        persistent: true,
        failed_deliveries: 3,
        content_type: Some(text("image/png")),
        content_encoding: Some(text("gzip")),
        original_destination: Some(Destination::queue("first")),
        dead_letter_cause: Some(text("no use")),
    }
}

#[test]
fn headers_are_kept_both_ways() {
    let portable = Portable {
        headers: full_headers(),
        annotations: vec![(text("x-opt-a"), Value::List(vec![Value::Int(1)]))],
        body: Body::Bytes(binary(b"a")),
        ..Portable::default()
    };
    let bytes = write_portable(&portable);
    let sections = Sections::scan(&bytes).unwrap();
    let header = Header { durable: true, priority: 7, ttl: Some(1), delivery_count: 3, ..Header::default() };
    assert_eq!(sections.header(&bytes), Ok(header));
    let properties = Properties {
        message_id: Some("ID:1".into()),
        correlation_id: Some(binary(b"\0\xff").into()),
        to: Some("topic://t".into()),
        reply_to: Some("temp-queue://ID:q".into()),
        subject: Some("type".into()),
        group_id: Some("group".into()),
        group_sequence: Some(u32::MAX),
        reply_to_group_id: Some("answers".into()),
        user_id: Some(binary("jörg".as_bytes())),
        creation_time: Some(Timestamp(1000)),
        absolute_expiry_time: Some(Timestamp(2000)),
        content_type: Some("image/png".into()),
        content_encoding: Some("gzip".into()),
    };
    assert_eq!(sections.properties(&bytes), Ok(properties));
    let mut notes = ValueMap::default();
    notes.push(MESSAGE_TYPE, Wire::Byte(3));
    notes.push("x-opt-jms-dest", Wire::Byte(1));
    notes.push("x-opt-jms-reply-to", Wire::Byte(2));
    notes.push("x-opt-original-address", "queue://first");
    notes.push("x-opt-dead-letter-reason", "no use");
    notes.push("x-opt-a", vec![Wire::Int(1)]);
    assert_eq!(sections.message_annotations(&bytes), Ok(notes));
    let message = model::Message { persistent: true, priority: 7, expires_at_ms: 2000, ..stored(bytes) };
    assert_eq!(read_portable(&message), Ok(portable));
}

#[test]
fn headers_that_were_not_given_are_not_invented() {
    let portable = Portable { body: Body::Text(None), ..Portable::default() };
    assert_eq!(read(value(Wire::Null)), portable);
    let written = write_portable(&portable);
    assert_eq!(Sections::scan(&written).unwrap().properties(&written), Ok(Properties::default()));
}

#[test]
fn ids_of_each_type_are_kept() {
    for id in [Id::Text(text("x")), Id::Number(u64::MAX), Id::Uuid([3; 16]), Id::Binary(binary(b"\0"))] {
        let headers =
            Headers { message_id: Some(id.clone()), correlation_id: Some(id), ..Headers::default() };
        let portable = Portable { headers, ..Portable::default() };
        assert_eq!(read(write_portable(&portable)), portable);
    }
}

#[test]
fn destinations_are_named_by_prefix_annotation_or_word() {
    let topic = || Destination { temporary: true, ..Destination::topic("a") };
    for (case, name, note, want) in [
        ("nothing said", None, Wire::Null, Destination::queue("a")),
        ("number", Some("x-opt-jms-reply-to"), Wire::Byte(3), topic()),
        ("unknown number", Some("x-opt-jms-reply-to"), Wire::Byte(9), Destination::queue("a")),
        ("words", Some("x-opt-reply-type"), Wire::from("temporary,topic"), topic()),
    ] {
        let mut notes = ValueMap::default();
        if let Some(name) = name {
            notes.push(name, note);
        }
        let mut message = BytesMut::from(&section(0x72, &notes.into())[..]);
        let reply_to = Some(WireText::from_static("a"));
        Properties { reply_to, ..Properties::default() }.write(&mut message);
        message.put_slice(&value("body"));
        assert_eq!(read(message.freeze()).headers.reply_to, Some(want), "case: {case}");
    }
}

#[test]
fn what_amqp_has_for_one_hop_ends_here() {
    let mut notes = ValueMap::default();
    notes.push("x-opt-a", 1);
    let mut message = BytesMut::new();
    Header { first_acquirer: true, ..Header::default() }.write(&mut message);
    message.put_slice(&section(0x71, &notes.clone().into()));
    message.put_slice(&value(Wire::Null));
    message.put_slice(&section(0x78, &notes.into()));
    assert_eq!(read(message.freeze()), Portable { body: Body::Text(None), ..Portable::default() });
}

#[test]
fn what_is_no_message_says_why() {
    let truncated = TranslationError::Unreadable {
        protocol: Protocol::Amqp,
        reason: WireError::Truncated { wanted_bytes: 9, left_bytes: 1, offset: 5 }.to_string(),
    };
    assert_eq!(read_portable(&stored(binary(b"\0\x53\x77\xa1\x09a"))), Err(truncated));
    let refuse = |_: &model::Message| {
        Err(TranslationError::Unreadable { protocol: Protocol::OpenWire, reason: "no".to_owned() })
    };
    let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
    let foreign = model::Message { encoding, ..stored(binary(b"")) };
    assert!(in_amqp(&foreign, refuse).is_err());
    assert!(in_amqp(&stored(binary(b"noise")), refuse).is_ok(), "its own messages pass through as they are");
}

#[test]
fn messages_of_others_are_translated() {
    let speak =
        |_: &model::Message| Ok(Portable { body: Body::Text(Some("hi".into())), ..Portable::default() });
    let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
    let foreign = model::Message { encoding, ..stored(binary(b"")) };
    let bytes = in_amqp(&foreign, speak).unwrap().into_owned();
    assert_eq!(read(bytes.clone()).body, Body::Text(Some(text("hi"))));
    let chunks = model::Chunks { bytes: 1 << 20, piece_bytes: 1 << 18, positions: Box::default() };
    let large = foreign.with_chunks(Some(chunks.into()));
    let ahead = in_amqp(&large, speak).unwrap().into_owned();
    assert_eq!([&ahead[..], b"\0\x53\x77\xa1\x02hi"].concat(), bytes, "the body follows in pieces");
}
