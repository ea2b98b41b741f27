//! Every encoding of part 1, section 1.6, read to its value, and malformed ones refused with their
//! position.

use bytes::{Bytes, BytesMut};
use postroad_amqp::codec::{
    Attach, Described, Disposition, Field, Flow, Open, Performative, Reader, Symbol, Value, ValueMap,
    WireError,
};

fn read(bytes: &[u8]) -> Result<Value, WireError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut reader = Reader::new(&bytes);
    let value = reader.value()?;
    reader.finish()?;
    Ok(value)
}

fn skipped(bytes: &[u8]) -> Result<usize, WireError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut reader = Reader::new(&bytes);
    reader.skip()?;
    Ok(reader.offset())
}

/// Encoding, value, and whether it is the smallest encoding, in which the value is written.
fn encodings() -> Vec<(&'static [u8], Value, bool)> {
    let text = |text: &str| Value::String(text.into());
    let symbol = |text: &'static str| Value::Symbol(Symbol::from_static(text));
    vec![
        (b"\x40", Value::Null, true),
        (b"\x41", Value::Boolean(true), true),
        (b"\x42", Value::Boolean(false), true),
        (b"\x56\x01", Value::Boolean(true), false),
        (b"\x56\x00", Value::Boolean(false), false),
        (b"\x50\xff", Value::Ubyte(255), true),
        (b"\x60\xff\xfe", Value::Ushort(65_534), true),
        (b"\x43", Value::Uint(0), true),
        (b"\x52\xff", Value::Uint(255), true),
        (b"\x70\0\0\0\x01", Value::Uint(1), false),
        (b"\x70\0\0\x01\0", Value::Uint(256), true),
        (b"\x44", Value::Ulong(0), true),
        (b"\x53\xff", Value::Ulong(255), true),
        (b"\x80\0\0\0\0\0\0\x01\0", Value::Ulong(256), true),
        (b"\x51\xff", Value::Byte(-1), true),
        (b"\x61\xff\xff", Value::Short(-1), true),
        (b"\x54\xff", Value::Int(-1), true),
        (b"\x71\xff\xff\xff\x7f", Value::Int(-129), true),
        (b"\x55\x80", Value::Long(-128), true),
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\x7f", Value::Long(-129), true),
        (b"\x72\x3f\x80\0\0", Value::Float(1.0), true),
        (b"\x82\x3f\xf0\0\0\0\0\0\0", Value::Double(1.0), true),
        (b"\x74\x01\x02\x03\x04", Value::Decimal32([1, 2, 3, 4]), true),
        (b"\x84\x01\x02\x03\x04\x05\x06\x07\x08", Value::Decimal64([1, 2, 3, 4, 5, 6, 7, 8]), true),
        (b"\x940123456789abcdef", Value::Decimal128(*b"0123456789abcdef"), true),
        (b"\x73\0\x01\xf6\x00", Value::Char('\u{1f600}'), true),
        (b"\x83\xff\xff\xff\xff\xff\xff\xff\xff", Value::Timestamp(-1), true),
        (b"\x980123456789abcdef", Value::Uuid(*b"0123456789abcdef"), true),
        (b"\xa0\x02\0\xff", Value::Binary(Bytes::from_static(b"\0\xff")), true),
        (b"\xb0\0\0\0\x01a", Value::Binary(Bytes::from_static(b"a")), false),
        (b"\xa1\x03gr\x7a", text("grz"), true),
        (b"\xb1\0\0\0\x02\xc3\xbc", text("\u{fc}"), false),
        (b"\xa3\x01a", symbol("a"), true),
        (b"\xb3\0\0\0\x01a", symbol("a"), false),
        (b"\x45", Value::List(vec![]), true),
        (b"\xc0\x01\0", Value::List(vec![]), false),
        (b"\xc0\x03\x02\x40\x41", Value::List(vec![Value::Null, Value::Boolean(true)]), true),
        (b"\xd0\0\0\0\x05\0\0\0\x01\x40", Value::List(vec![Value::Null]), false),
        (b"\xc1\x01\0", Value::Map(ValueMap::default()), true),
        (b"\xc1\x04\x02\xa3\0\x40", Value::Map(ValueMap(vec![(symbol(""), Value::Null)])), true),
        (b"\xd1\0\0\0\x06\0\0\0\x02\x40\x41", map(Value::Null, Value::Boolean(true)), false),
        (b"\0\x53\x24\x45", described(Value::Ulong(0x24), Value::List(vec![])), true),
        (
            b"\0\0\x40\x41\x42",
            described(described(Value::Null, Value::Boolean(true)), Value::Boolean(false)),
            true,
        ),
    ]
}

fn map(key: Value, value: Value) -> Value {
    Value::Map(ValueMap(vec![(key, value)]))
}

fn described(descriptor: Value, value: Value) -> Value {
    Value::Described(Box::new(Described { descriptor, value }))
}

#[test]
fn every_encoding_is_read_and_the_smallest_is_written() {
    for (bytes, value, smallest) in encodings() {
        assert_eq!(read(bytes).as_ref(), Ok(&value), "{bytes:x?}");
        assert_eq!(skipped(bytes), Ok(bytes.len()), "{bytes:x?}");
        let mut written = BytesMut::new();
        value.encode(&mut written);
        assert_eq!((&written[..] == bytes, read(&written)), (smallest, Ok(value)), "{bytes:x?}");
        for end in 0..bytes.len() {
            let cut = read(&bytes[..end]);
            assert!(matches!(cut, Err(WireError::Truncated { .. })), "{bytes:x?} cut at {end}: {cut:?}");
        }
    }
}

#[test]
fn arrays_are_read_element_by_element() {
    let uints = vec![Value::Uint(1), Value::Uint(2)];
    let nested = |bytes: &'static [u8]| read(bytes).unwrap();
    for (case, bytes, want) in [
        ("fixed", &b"\xe0\x04\x02\x52\x01\x02"[..], uints),
        ("large form", b"\xf0\0\0\0\x06\0\0\0\x01\x50\x07", vec![Value::Ubyte(7)]),
        ("variable", b"\xe0\x05\x01\xa1\x02ab", vec!["ab".into()]),
        ("no element", b"\xe0\x02\0\x70", vec![]),
        ("without bytes", b"\xe0\x02\x03\x40", vec![Value::Null; 3]),
        ("of arrays", b"\xe0\x06\x01\xe0\x03\x01\x50\x07", vec![nested(b"\xe0\x03\x01\x50\x07")]),
    ] {
        let Ok(Value::Array(array)) = read(bytes) else { panic!("case: {case}: {:?}", read(bytes)) };
        assert_eq!(array.elements(), Ok(want), "case: {case}");
        let mut written = BytesMut::new();
        Value::Array(array.clone()).encode(&mut written);
        assert_eq!(read(&written), Ok(Value::Array(array)), "case: {case}");
    }
    let Ok(Value::Array(array)) = read(b"\xe0\x07\x02\0\x53\x01\x50\x07\x08") else { panic!("described") };
    let element = |number| described(Value::Ulong(1), Value::Ubyte(number));
    assert_eq!(array.elements(), Ok(vec![element(7), element(8)]));
}

#[test]
fn what_is_malformed_is_refused_where_it_stands() {
    let bad = |got: &str, wanted, offset| WireError::BadValue { got: got.to_owned(), wanted, offset };
    for (case, bytes, want) in [
        ("unknown constructor", &b"\x46"[..], WireError::UnknownConstructor { code: 0x46, offset: 0 }),
        ("unknown in a list", b"\xc0\x02\x01\x57", WireError::UnknownConstructor { code: 0x57, offset: 3 }),
        ("boolean of another kind", b"\x56\x02", bad("0x02", "boolean", 1)),
        ("half a surrogate pair", b"\x73\0\0\xd8\0", bad("0xd800", "Unicode character", 1)),
        ("Latin-1", b"\xa1\x01\xfc", WireError::NotUtf8 { offset: 2 }),
        ("symbol beyond ASCII", b"\xa3\x02\xc3\xbc", WireError::NotAscii { offset: 2 }),
        ("map of one", b"\xc1\x02\x01\x40", WireError::OddMap { count: 1, offset: 3 }),
        (
            "list shorter than announced",
            b"\xc0\x03\x01\x40\x40",
            WireError::SizeMismatch { offset: 3, announced_bytes: 2, used_bytes: 1 },
        ),
        (
            "list longer than announced",
            b"\xc0\x02\x02\x40\x40",
            WireError::Truncated { offset: 4, wanted_bytes: 1, left_bytes: 0 },
        ),
        (
            "no room for the count",
            b"\xc0\x00",
            WireError::SizeMismatch { offset: 2, announced_bytes: 0, used_bytes: 1 },
        ),
        (
            "array shorter than its count",
            b"\xe0\x03\x02\x50\x01",
            WireError::Truncated { offset: 5, wanted_bytes: 1, left_bytes: 0 },
        ),
        ("something behind", b"\x40\x40", WireError::TrailingBytes { offset: 1, left_bytes: 1 }),
    ] {
        assert_eq!(read(bytes), Err(want), "case: {case}");
    }
}

#[test]
fn depth_and_number_of_values_have_bounds() {
    let nested = |depth: usize| [&b"\0\x40".repeat(depth)[..], b"\x40"].concat();
    assert!(read(&nested(32)).is_ok());
    assert_eq!(read(&nested(33)), Err(WireError::TooDeep { max: 32, offset: 65 }));
    assert!(skipped(&nested(32)).is_ok());
    assert_eq!(skipped(&nested(33)), Err(WireError::TooDeep { max: 32, offset: 65 }));
    let descriptors = |depth: usize| [&b"\0".repeat(depth)[..], &b"\x40".repeat(depth + 1)].concat();
    assert!(skipped(&descriptors(32)).is_ok());
    assert_eq!(skipped(&descriptors(1 << 20)), Err(WireError::TooDeep { max: 32, offset: 33 }));
    let list = |count: u32| {
        let mut bytes = vec![0xd0];
        bytes.extend_from_slice(&(count + 4).to_be_bytes());
        bytes.extend_from_slice(&count.to_be_bytes());
        bytes.resize(bytes.len() + count as usize, 0x40);
        bytes
    };
    assert!(read(&list(65_535)).is_ok());
    assert_eq!(read(&list(65_536)), Err(WireError::TooManyValues { max: 65_536, offset: 65_545 }));
}

#[test]
fn an_endless_array_costs_nothing_until_it_is_asked_for() {
    let bytes = b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40";
    let Ok(Value::Array(array)) = read(bytes) else { panic!("an array of nothings is legal") };
    assert_eq!(array.count(), u32::MAX);
    assert_eq!(array.elements(), Err(WireError::TooManyValues { max: 65_536, offset: 1 }));
}

fn performative(bytes: &[u8]) -> Result<Performative, WireError> {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut reader = Reader::new(&bytes);
    let performative = Performative::read(&mut reader)?;
    reader.finish()?;
    Ok(performative)
}

#[test]
fn composites_end_early_and_have_defaults() {
    let open = Open { container_id: "c".into(), ..Open::default() };
    for (case, bytes) in [
        ("shortest", &b"\0\x53\x10\xc0\x04\x01\xa1\x01c"[..]),
        ("descriptor in full", b"\0\x80\0\0\0\0\0\0\0\x10\xc0\x04\x01\xa1\x01c"),
        ("by name", b"\0\xa3\x0eamqp:open:list\xc0\x04\x01\xa1\x01c"),
        ("nulls", b"\0\x53\x10\xc0\x07\x04\xa1\x01c\x40\x40\x40"),
        ("large list", b"\0\x53\x10\xd0\0\0\0\x07\0\0\0\x01\xa1\x01c"),
    ] {
        assert_eq!(performative(bytes), Ok(Performative::Open(open.clone())), "case: {case}");
    }
    let missing = |composite, field| Err(WireError::MissingField { composite, field });
    for (case, bytes, want) in [
        ("nothing", &b"\0\x53\x10\x45"[..], missing("Open", "container_id")),
        ("null", b"\0\x53\x10\xc0\x02\x01\x40", missing("Open", "container_id")),
        ("in the middle", b"\0\x53\x15\xc0\x02\x01\x41", missing("Disposition", "first")),
        (
            "another type",
            b"\0\x53\x10\xc0\x02\x01\x43",
            Err(WireError::UnexpectedType { code: 0x43, wanted: "string", offset: 6 }),
        ),
        (
            "too many fields",
            b"\0\x53\x17\xc0\x03\x02\x40\x40",
            Err(WireError::TooManyFields { composite: "End", got: 2, max: 1, offset: 3 }),
        ),
        (
            "no performative",
            b"\0\x53\x24\x45",
            Err(WireError::UnexpectedDescriptor {
                descriptor: "0x24".to_owned(),
                wanted: "Performative",
                offset: 0,
            }),
        ),
        (
            "not described",
            b"\x45",
            Err(WireError::UnexpectedType { code: 0x45, wanted: "described value", offset: 0 }),
        ),
    ] {
        assert_eq!(performative(bytes), want, "case: {case}");
    }
}

#[test]
fn written_composites_end_with_their_last_field() {
    let written = |performative: Performative| {
        let mut out = BytesMut::new();
        performative.write(&mut out);
        out.to_vec()
    };
    let flow = Flow { incoming_window: 1, outgoing_window: 2, echo: true, ..Flow::default() };
    for (case, performative, want) in [
        ("required alone", Disposition::default().into(), &b"\0\x53\x15\xc0\x03\x02\x42\x43"[..]),
        (
            "nulls between",
            flow.into(),
            b"\0\x53\x13\xc0\x0d\x0a\x40\x52\x01\x43\x52\x02\x40\x40\x40\x40\x40\x41",
        ),
        ("default said", Attach::default().into(), b"\0\x53\x12\xc0\x05\x03\xa1\0\x43\x42"),
    ] {
        assert_eq!(written(performative), want, "case: {case}");
    }
    let long = Open { container_id: "x".repeat(300).as_str().into(), ..Open::default() };
    let bytes = written(long.clone().into());
    assert_eq!(bytes[..12], *b"\0\x53\x10\xd0\0\0\x01\x35\0\0\0\x01");
    assert_eq!(performative(&bytes), Ok(long.into()));
}

#[test]
fn several_symbols_or_one() {
    let read = |bytes: &[u8]| {
        let bytes = Bytes::copy_from_slice(bytes);
        Vec::<Symbol>::read(&mut Reader::new(&bytes))
    };
    let wanted = "symbol or array of symbols";
    for (case, bytes, want) in [
        ("one", &b"\xa3\x01a"[..], Ok(vec![Symbol::from("a")])),
        ("array", b"\xe0\x06\x02\xa3\x01a\x01b", Ok(vec!["a".into(), "b".into()])),
        ("empty", b"\xe0\x02\0\xa3", Ok(vec![])),
        ("a string", b"\xa1\x01a", Err(WireError::UnexpectedType { code: 0xa1, wanted, offset: 0 })),
        (
            "strings",
            b"\xe0\x04\x01\xa1\x01a",
            Err(WireError::UnexpectedType { code: 0xa1, wanted, offset: 0 }),
        ),
    ] {
        assert_eq!(read(bytes), want, "case: {case}");
    }
}
