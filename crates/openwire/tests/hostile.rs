//! Frames that no honest peer sends, and values that no frame can hold.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use bytes::{Bytes, BytesMut};
use postroad_openwire::codec::{
    Command, ConnectionId, ConsumerId, Destination, KeepAliveInfo, Message, PRIMITIVE_NESTING_MAX, Primitive,
    PrimitiveMap, ProducerInfo, RemoveInfo, RemovedId, Response, SessionInfo, WireError, WireFormat,
    WireFormatOptions, WireString, find_property, peek_headers,
};

/// The columns every command starts with: its number, and no response wanted.
const BASE: [u8; 5] = [0, 0, 0, 1, 0];

fn frame(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

#[test]
fn errors_name_the_byte_and_the_number() {
    let size_2_gib = [1, 0x7F, 0xFF, 0xFF, 0xFF];
    for (name, version, frame, want) in [
        ("empty frame", 12, frame(&[]), WireError::Truncated { offset: 0, wanted_bytes: 1, left_bytes: 0 }),
        ("null command", 12, frame(&[&[0]]), WireError::UnknownType { type_id: 0, offset: 0 }),
        ("unknown command", 12, frame(&[&[13], &BASE]), WireError::UnknownType { type_id: 13, offset: 0 }),
        (
            "an id is no command",
            12,
            frame(&[&[120], &[0]]),
            WireError::UnknownType { type_id: 120, offset: 0 },
        ),
        (
            "pull before its version",
            1,
            frame(&[&[20], &BASE]),
            WireError::TypeNotInVersion { type_id: 20, offset: 0, since: 2, version: 1 },
        ),
        (
            "blob before its version",
            2,
            frame(&[&[29], &BASE]),
            WireError::TypeNotInVersion { type_id: 29, offset: 0, since: 3, version: 2 },
        ),
        (
            "two GiB of bytes",
            12,
            frame(&[&[60], &BASE[..4], &size_2_gib]),
            WireError::Truncated { offset: 10, wanted_bytes: i32::MAX as usize, left_bytes: 0 },
        ),
        (
            "negative bytes",
            12,
            frame(&[&[60], &BASE[..4], &[1, 0xFF, 0xFF, 0xFF, 0xFE]]),
            WireError::NegativeSize { got: -2, offset: 6 },
        ),
        (
            "negative array",
            12,
            frame(&[&[33], &BASE, &[0, 0, 0, 1], &[1, 0x80, 0]]),
            WireError::NegativeSize { got: -32768, offset: 11 },
        ),
        (
            "32767 elements and no bytes for them",
            12,
            frame(&[&[33], &BASE, &[0, 0, 0, 1], &[1, 0x7F, 0xFF]]),
            WireError::Truncated { offset: 13, wanted_bytes: 1, left_bytes: 0 },
        ),
        (
            "a hole in an array",
            12,
            frame(&[&[33], &BASE, &[0, 0, 0, 1], &[1, 0, 1, 0]]),
            WireError::NullElement { offset: 13 },
        ),
        (
            "a queue where a session id belongs",
            12,
            frame(&[&[4], &BASE, &[1, 100, 0]]),
            WireError::UnexpectedType { type_id: 100, wanted: "SessionId", offset: 7 },
        ),
        (
            "a destination without a name",
            12,
            frame(&[&[6], &BASE, &[0], &[1, 100, 0]]),
            WireError::MissingName { type_id: 100, offset: 9 },
        ),
        (
            "text that Java cannot read",
            12,
            frame(&[&[14], &BASE, &[1, 0, 1, 0x80]]),
            WireError::MalformedText { offset: 7 },
        ),
        (
            "not OpenWire",
            12,
            frame(&[&[1], b"GET / HT"]),
            WireError::BadMagic { got: *b"GET / HT", offset: 1 },
        ),
    ] {
        assert_eq!(WireFormat::loose(version).decode(&frame), Err(want), "case: {name}");
    }
}

#[test]
fn objects_in_objects_are_followed_sixteen_deep() {
    let nested = |depth: usize| {
        let mut bytes = vec![32];
        for _ in 0..depth {
            bytes.extend([&BASE[..], &[0, 0, 0, 1], &[1, 32]].concat());
        }
        bytes.extend([&BASE[..], &[0, 0, 0, 1], &[0]].concat());
        WireFormat::loose(12).decode(&bytes.into())
    };
    assert!(nested(16).is_ok());
    assert_eq!(nested(17), Err(WireError::TooDeep { offset: 17 * 11, max: 16 }));
}

#[test]
fn causes_of_causes_are_followed_sixteen_deep() {
    let mut bytes = [&[31][..], &BASE, &[0, 0, 0, 1]].concat();
    // Present, no class, no message, no stack, and so on with the cause.
    bytes.extend([1, 0, 0, 0, 0].repeat(100));
    let mut format = WireFormat::loose(12);
    format.stack_traces = true;
    assert_eq!(format.decode(&bytes.into()), Err(WireError::TooDeep { offset: 10 + 16 * 5 + 1, max: 16 }));
}

#[test]
fn maps_in_maps_are_followed_to_the_limit() {
    let nested = |depth: u8| {
        let mut bytes = vec![0, 0, 0, 1, 0, 1, b'm'];
        for _ in 0..depth {
            bytes.extend([11, 0, 0, 0, 1, 0, 1, b'm']);
        }
        bytes.push(0);
        let bytes = bytes.into();
        (PrimitiveMap::decode(&bytes).map(drop), find_property(&bytes, "m").map(drop))
    };
    assert_eq!(nested(PRIMITIVE_NESTING_MAX), (Ok(()), Ok(())));
    let max = PRIMITIVE_NESTING_MAX;
    let error = Err(WireError::TooDeep { offset: 8 + 8 * usize::from(max), max });
    assert_eq!(nested(max + 1), (error.clone(), error));
}

#[test]
fn primitive_sizes_are_not_trusted() {
    let left = |offset, wanted_bytes, left_bytes| WireError::Truncated { offset, wanted_bytes, left_bytes };
    for (name, bytes, want) in [
        ("two billion entries", &[0x7F, 0xFF, 0xFF, 0xFF][..], Err(left(4, 2, 0))),
        ("null map", &[0xFF; 4], Ok(PrimitiveMap::default())),
        (
            "two GiB of bytes",
            &[0, 0, 0, 1, 0, 0, 10, 0x7F, 0xFF, 0xFF, 0xFF],
            Err(left(11, i32::MAX as usize, 0)),
        ),
        (
            "negative list",
            &[0, 0, 0, 1, 0, 0, 12, 0xFF, 0xFF, 0xFF, 0xFF],
            Err(WireError::NegativeSize { got: -1, offset: 7 }),
        ),
        (
            "unknown type",
            &[0, 0, 0, 1, 0, 0, 14],
            Err(WireError::UnknownPrimitive { type_id: 14, offset: 6 }),
        ),
        ("more after the map", &[0, 0, 0, 0, 9], Err(WireError::TrailingBytes { offset: 4, left_bytes: 1 })),
    ] {
        assert_eq!(PrimitiveMap::decode(&Bytes::from_static(bytes)), want, "case: {name}");
    }
}

#[test]
fn a_property_is_found_without_the_others() {
    let map: PrimitiveMap = [
        ("a", Primitive::Map([("b", Primitive::Int(1))].into_iter().collect())),
        ("l", Primitive::List(vec![Primitive::Null, Primitive::String("x".into())])),
        ("b", Primitive::Long(2)),
        ("c", Primitive::String("é".into())),
        ("b", Primitive::Long(3)),
        ("€\0", Primitive::Boolean(true)),
    ]
    .into_iter()
    .collect();
    let mut bytes = BytesMut::new();
    map.encode(&mut bytes).unwrap();
    let bytes = bytes.freeze();
    for (name, want) in [
        ("b", Some(Primitive::Long(3))),
        ("c", Some(Primitive::String("é".into()))),
        ("€\0", Some(Primitive::Boolean(true))),
        ("d", None),
    ] {
        let found = find_property(&bytes, name).unwrap();
        assert_eq!(found.map(|found| found.value().unwrap()), want, "{name}");
    }
}

#[test]
fn cache_references_stay_inside_the_agreed_slots() {
    // SessionInfo whose id is "in slot N already".
    let known = |index: i16| frame(&[&[4], &BASE, &[0], &index.to_be_bytes()]);
    let mut format = WireFormat::loose(12).with_cache_slots(10);
    let empty = SessionInfo { command_id: 1, ..SessionInfo::default() };
    assert_eq!(format.decode(&known(9)), Ok(empty.into()), "a slot never filled holds nothing");
    for index in [10, -1, i16::MIN] {
        let want = WireError::CacheIndex { index, slots: 10, offset: 7 };
        assert_eq!(format.decode(&known(index)), Err(want), "index {index}");
    }
}

#[test]
fn a_cached_value_of_another_type_is_refused() {
    let mut format = WireFormat::loose(12).with_cache_slots(10);
    let queue =
        frame(&[&[6], &BASE, &[1, 0, 0, 0], &[1, 0, 3, 1, 100, 1, 0, 1, b'q'], &[0, 0], &[0, 0, 0, 0]]);
    let Command::ProducerInfo(producer) = format.decode(&queue).unwrap() else { panic!() };
    let want = ProducerInfo {
        command_id: 1,
        destination: Some(Destination::Queue("q".into())),
        ..ProducerInfo::default()
    };
    assert_eq!(producer, want);
    let session = frame(&[&[4], &BASE, &[0, 0, 3]]);
    let want = WireError::UnexpectedType { type_id: 100, wanted: "SessionId", offset: 7 };
    assert_eq!(format.decode(&session), Err(want));
}

#[test]
fn the_decode_cache_has_a_bound_in_bytes() {
    let name = vec![b'n'; 60_000];
    let mut format = WireFormat::loose(12).with_cache_slots(1000);
    let mut refused = None;
    for slot in 0..1000_u16 {
        let length = (name.len() as u16).to_be_bytes();
        let id = [&[1][..], &slot.to_be_bytes(), &[1, 100, 1], &length, &name].concat();
        let bytes = frame(&[&[6], &BASE, &[0, 3, 0xE7], &id, &[0, 0], &[0, 0, 0, 0]]);
        if let Err(error) = format.decode(&bytes) {
            refused = Some((slot, error));
            break;
        }
    }
    let (slot, error) = refused.unwrap();
    assert!(matches!(error, WireError::CacheBytes { max_bytes: 4_194_304, .. }), "{error}");
    assert_eq!(slot, 69);
}

#[test]
fn a_command_that_cannot_be_encoded_leaves_no_trace() {
    let long = || Some(WireString::from("x".repeat(70_000)));
    let id = || Some(ConsumerId { connection_id: Some("c".into()), session_id: 1, value: 2 });
    let good =
        Command::from(RemoveInfo { object_id: id().map(RemovedId::Consumer), ..RemoveInfo::default() });
    let bad = Command::from(postroad_openwire::codec::ConsumerInfo {
        consumer_id: id(),
        selector: long(),
        ..Default::default()
    });
    for (tight, slots) in [(false, 0), (true, 0), (false, 200), (true, 200)] {
        let format = || {
            let mut format = WireFormat::loose(12).with_cache_slots(slots);
            format.tight_encoding = tight;
            format
        };
        let mut ours = format();
        let mut out = BytesMut::from(&b"before"[..]);
        let error = WireError::TextTooLong { got_bytes: 70_000, max_bytes: 65_535 };
        assert_eq!(ours.encode(&bad, &mut out), Err(error));
        assert_eq!(out, "before", "nothing is written");
        out.clear();
        ours.encode(&good, &mut out).unwrap();
        assert_eq!(format().decode(&out.freeze().slice(4..)).as_ref(), Ok(&good), "nothing is remembered");
    }
}

#[test]
fn frames_above_the_limit_are_not_written() {
    let mut format = WireFormat::loose(12);
    format.max_frame_bytes = 6;
    let mut out = BytesMut::new();
    assert_eq!(format.encode(&KeepAliveInfo::default().into(), &mut out), Ok(()));
    let error = WireError::FrameTooLarge { got_bytes: 10, max_bytes: 6 };
    assert_eq!(format.encode(&Response::default().into(), &mut out), Err(error));
    assert_eq!(out[..], [0, 0, 0, 6, 10, 0, 0, 0, 0, 0]);
}

#[test]
fn text_too_long_for_the_short_form_is_still_sent_tight() {
    let name = WireString::from("n".repeat(40_000));
    let command = Command::from(SessionInfo::default());
    let destination = Command::from(ProducerInfo {
        destination: Some(Destination::Topic(name)),
        ..ProducerInfo::default()
    });
    for command in [command, destination] {
        let mut format = WireFormat::loose(12);
        format.tight_encoding = true;
        let mut out = BytesMut::new();
        format.encode(&command, &mut out).unwrap();
        assert_eq!(format.decode(&out.freeze().slice(4..)), Ok(command));
    }
}

#[test]
fn negotiation_takes_what_both_sides_want() {
    let side = |version, on: bool, cache_size, max_frame_bytes| WireFormatOptions {
        version,
        tight_encoding: on,
        cache: on,
        cache_size,
        stack_traces: on,
        max_frame_bytes,
        ..WireFormatOptions::default()
    };
    for (name, ours, theirs, want) in [
        ("the lower version and limit", side(12, true, 10, 100), side(9, true, 20, 50), (9, true, 50)),
        ("a feature needs both", side(12, false, 10, 100), side(12, true, 20, 100), (12, false, 100)),
        ("no opinion: the other side's", side(12, true, 10, 0), side(0, true, 10, 70), (12, true, 70)),
        ("no opinion at all", side(12, true, 10, 0), side(12, true, 10, 0), (12, true, u64::MAX)),
        ("newer than we know", side(12, true, 10, 0), side(13, true, 10, 0), (12, true, u64::MAX)),
    ] {
        let format = WireFormat::negotiate(&ours, &theirs).unwrap();
        let got = (format.version, format.has_cache(), format.max_frame_bytes);
        assert_eq!(got, want, "case: {name}");
        assert_eq!((format.tight_encoding, format.stack_traces), (want.1, want.1), "case: {name}");
    }
    let error = WireFormat::negotiate(&side(12, true, 10, 0), &side(12, true, -1, 0)).unwrap_err();
    assert_eq!(error, WireError::CacheSize { got: -1, max: 32767 });
}

#[test]
fn decoding_copies_no_body() {
    let body = Bytes::from(vec![7; 100_000]);
    let message = Message { content: Some(body), ..Message::default() };
    let mut format = WireFormat::loose(12);
    let mut out = BytesMut::new();
    format.encode(&Command::Message(Box::new(message)), &mut out).unwrap();
    let frame = out.freeze().slice(4..);
    let Command::Message(got) = format.decode(&frame).unwrap() else { panic!() };
    let content = got.content.unwrap();
    assert!(frame.as_ptr_range().contains(&content.as_ptr()));
    assert_eq!(peek_headers(&frame, 12).unwrap().content_bytes, 100_000);
}

#[test]
fn what_a_cache_keeps_does_not_hold_the_frame() {
    let mut format = WireFormat::loose(12).with_cache_slots(10);
    let connection = ConnectionId { value: Some("c".into()) };
    let mut out = BytesMut::new();
    let info =
        postroad_openwire::codec::ConnectionInfo { connection_id: Some(connection), ..Default::default() };
    format.encode(&info.into(), &mut out).unwrap();
    let frame = out.freeze().slice(4..);
    drop(format.decode(&frame).unwrap());
    assert!(frame.is_unique());
}
