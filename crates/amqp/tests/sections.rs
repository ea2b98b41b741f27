//! Sections of messages: found in their bytes, in their order, or refused.

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::{Field, Header, Properties, Value, ValueMap, WireError};
use postroad_amqp::message::{Body, BodyKind, Sections, plain_text};

fn header() -> Vec<u8> {
    b"\0\x53\x70\xc0\x02\x01\x41".to_vec()
}

const DELIVERY_ANNOTATIONS: &[u8] = b"\0\x53\x71\xc1\x05\x02\xa3\x01d\x40";
const MESSAGE_ANNOTATIONS: &[u8] = b"\0\x53\x72\xc1\x05\x02\xa3\x01m\x41";
const PROPERTIES: &[u8] = b"\0\x53\x73\xc0\x04\x01\xa1\x01i";
const APPLICATION_PROPERTIES: &[u8] = b"\0\x53\x74\xc1\x06\x02\xa1\x01k\x54\x07";
const DATA: &[u8] = b"\0\x53\x75\xa0\x02ab";
const SEQUENCE: &[u8] = b"\0\x53\x76\xc0\x02\x01\x40";
const VALUE: &[u8] = b"\0\x53\x77\xa1\x02ab";
const FOOTER: &[u8] = b"\0\x53\x78\xc1\x05\x02\xa3\x01f\x42";

fn scan(parts: &[&[u8]]) -> Result<Sections, WireError> {
    Sections::scan(&Bytes::from(parts.concat()))
}

#[test]
fn every_section_is_found_and_read() {
    let header = header();
    let parts: &[&[u8]] = &[
        &header,
        DELIVERY_ANNOTATIONS,
        MESSAGE_ANNOTATIONS,
        PROPERTIES,
        APPLICATION_PROPERTIES,
        DATA,
        DATA,
        FOOTER,
    ];
    let message = Bytes::from(parts.concat());
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(sections.header(&message), Ok(Header { durable: true, ..Header::default() }));
    let map = |key: Value, value: Value| Ok(ValueMap(vec![(key, value)]));
    let symbol = |name: &'static str| Value::Symbol(name.into());
    assert_eq!(sections.delivery_annotations(&message), map(symbol("d"), Value::Null));
    assert_eq!(sections.message_annotations(&message), map(symbol("m"), Value::Boolean(true)));
    let properties = Properties { message_id: Some("i".into()), ..Properties::default() };
    assert_eq!(sections.properties(&message), Ok(properties));
    assert_eq!(sections.application_properties(&message), map("k".into(), Value::Int(7)));
    let data = Value::Binary(Bytes::from_static(b"ab"));
    assert_eq!(sections.body_values(&message), Ok(vec![data.clone(), data]));
    assert_eq!(sections.footer(&message), map(symbol("f"), Value::Boolean(false)));
    let bare = header.len() + DELIVERY_ANNOTATIONS.len() + MESSAGE_ANNOTATIONS.len();
    assert_eq!(sections.bare, bare);
    let body = bare + PROPERTIES.len() + APPLICATION_PROPERTIES.len();
    let span = body..body + 2 * DATA.len();
    assert_eq!(sections.body, Some(Body { kind: BodyKind::Data, span, count: 2 }));
}

#[test]
fn what_is_absent_has_its_default() {
    let message = Bytes::from_static(VALUE);
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(sections.header(&message), Ok(Header::default()));
    assert_eq!(sections.properties(&message), Ok(Properties::default()));
    assert_eq!(sections.application_properties(&message), Ok(ValueMap::default()));
    assert_eq!(sections.body_values(&message), Ok(vec!["ab".into()]));
    assert_eq!(sections.bare, 0);
    assert_eq!(scan(&[]), Ok(Sections::default()));
}

#[test]
fn sections_come_in_their_order() {
    let header = header();
    let out_of_order = |section, after, offset| Err(WireError::SectionOutOfOrder { section, after, offset });
    let descriptor = |descriptor: &str, offset| {
        let descriptor = descriptor.to_owned();
        Err(WireError::UnexpectedDescriptor { descriptor, wanted: "message section", offset })
    };
    for (case, parts, want) in [
        ("body first", &[VALUE, &header][..], out_of_order("header", "amqp-value", VALUE.len())),
        ("two headers", &[&header, &header], out_of_order("header", "header", header.len())),
        ("two values", &[VALUE, VALUE], out_of_order("amqp-value", "amqp-value", VALUE.len())),
        ("mixed bodies", &[DATA, SEQUENCE], out_of_order("amqp-sequence", "data", DATA.len())),
        ("data behind a value", &[VALUE, DATA], out_of_order("data", "amqp-value", VALUE.len())),
        ("behind the footer", &[FOOTER, DATA], out_of_order("data", "footer", FOOTER.len())),
        ("no section", &[b"\0\x53\x10\x45"], descriptor("0x10", 0)),
        ("by an unknown name", &[DATA, b"\0\xa3\x01x\x45"], descriptor("x", DATA.len())),
        (
            "not described",
            &[DATA, b"\x40"],
            Err(WireError::UnexpectedType { code: 0x40, wanted: "described value", offset: DATA.len() }),
        ),
        (
            "data of another type",
            &[b"\0\x53\x75\xa1\x01a"],
            Err(WireError::UnexpectedType { code: 0xa1, wanted: "binary", offset: 3 }),
        ),
        (
            "cut off",
            &[b"\0\x53\x75\xa0\x05a"],
            Err(WireError::Truncated { offset: 5, wanted_bytes: 5, left_bytes: 1 }),
        ),
    ] {
        assert_eq!(scan(parts), want, "case: {case}");
    }
    assert_eq!(scan(&[SEQUENCE, SEQUENCE]).unwrap().body.unwrap().count, 2);
}

#[test]
fn sections_may_be_named_by_symbols() {
    let mut message = BytesMut::from(&b"\0"[..]);
    Value::Symbol("amqp:data:binary".into()).encode(&mut message);
    Bytes::from_static(b"x").write(&mut message);
    let message = message.freeze();
    let sections = Sections::scan(&message).unwrap();
    assert_eq!(sections.body_values(&message), Ok(vec![Value::Binary(Bytes::from_static(b"x"))]));
}

#[test]
fn a_body_of_one_text_is_read_in_place() {
    let header = header();
    let wide_properties = b"\0\x53\x73\xd0\0\0\0\x07\0\0\0\x01\xa1\x01i";
    let wide_value = b"\0\x53\x77\xb1\0\0\0\x02ab";
    let before: &[&[u8]] =
        &[&header, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, VALUE];
    for (case, parts, want) in [
        ("alone", &[VALUE][..], Some("ab")),
        ("behind all that may be before it", before, Some("ab")),
        ("wide forms", &[wide_properties, wide_value], Some("ab")),
        ("empty", &[b"\0\x53\x77\xa1\0"], Some("")),
        ("a footer", &[VALUE, FOOTER], None),
        ("nothing", &[], None),
        ("no body", &[PROPERTIES], None),
        ("another body", &[DATA], None),
        ("another value", &[b"\0\x53\x77\xa0\x02ab"], None),
        ("two bodies", &[VALUE, VALUE], None),
        ("out of order", &[PROPERTIES, &header, VALUE], None),
        ("twice", &[PROPERTIES, PROPERTIES, VALUE], None),
        ("a section of another type", &[b"\0\x53\x73\xa1\x01a", VALUE], None),
        ("no text", &[b"\0\x53\x77\xa1\x02\xff\xfe"], None),
        ("cut off", &[b"\0\x53\x77\xa1\x05ab"], None),
        ("cut off in the length", &[b"\0\x53\x77\xb1\0"], None),
    ] {
        let message = Bytes::from(parts.concat());
        assert_eq!(plain_text(&message), want, "case: {case}");
        if let Some(text) = want {
            let sections = Sections::scan(&message).unwrap();
            assert_eq!(sections.body_values(&message), Ok(vec![text.into()]), "case: {case}");
        }
    }
}
