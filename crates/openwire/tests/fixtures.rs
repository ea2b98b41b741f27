//! The codec against bytes of the reference client library; see
//! `fixtures/openwire/README.md`.
#![allow(clippy::unwrap_used, reason = "all of this file is test code")]

use std::path::Path;

use bytes::{Buf, Bytes, BytesMut};
use postroad_openwire::codec::{
    Command, DataStructure, Message, Patch, PrimitiveMap, VERSION_MAX, VERSION_MIN, WireError, WireFormat,
    WireFormatOptions, from_stored, peek_headers, peek_properties, stored_form, to_stored,
};

const TIGHT: u8 = 1;
const CACHED: u8 = 2;
const STACK_TRACES: u8 = 4;

/// Default slots of a cache.
const CACHE_SLOTS: u16 = 16383;

struct Record {
    version: u8,
    type_id: u8,
    full: bool,
    /// By flags.
    variants: Vec<Variant>,
}

struct Variant {
    flags: u8,
    text: String,
    frame: Bytes,
    second: Option<Bytes>,
}

impl Record {
    fn name(&self, variant: &Variant) -> String {
        let filled = if self.full { "filled in" } else { "empty" };
        format!("version {} type {} {filled}, flags {}", self.version, self.type_id, variant.flags)
    }
}

fn file(name: &str) -> Bytes {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/openwire").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

fn data(input: &mut Bytes) -> Bytes {
    let length = input.get_u32() as usize;
    input.split_to(length)
}

fn text(input: &mut Bytes) -> String {
    String::from_utf8(data(input).to_vec()).unwrap()
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for version in VERSION_MIN..=VERSION_MAX {
        let mut input = file(&format!("commands-v{version:02}.bin"));
        while input.has_remaining() {
            let (type_id, full) = (input.get_u8(), input.get_u8() == 1);
            let variant = |flags| Variant {
                flags,
                text: text(&mut input),
                frame: data(&mut input),
                second: Some(data(&mut input)).filter(|frame| !frame.is_empty()),
            };
            records.push(Record { version, type_id, full, variants: (0..8).map(variant).collect() });
        }
    }
    records
}

fn format(version: u8, flags: u8) -> WireFormat {
    let mut format = WireFormat::loose(version);
    format.tight_encoding = flags & TIGHT != 0;
    format.stack_traces = flags & STACK_TRACES != 0;
    if flags & CACHED != 0 { format.with_cache_slots(CACHE_SLOTS) } else { format }
}

fn encoded(format: &mut WireFormat, value: &DataStructure) -> Bytes {
    let mut out = BytesMut::new();
    format.encode_structure(value, &mut out).unwrap();
    assert_eq!(out.get_u32() as usize, out.len());
    out.freeze()
}

#[test]
fn every_version_has_every_type() {
    let counts: Vec<usize> = (VERSION_MIN..=VERSION_MAX)
        .map(|version| records().iter().filter(|record| record.version == version).count() / 2)
        .collect();
    assert_eq!(counts, [53, 54, 56, 56, 56, 56, 56, 56, 56, 56, 56, 57]);
}

#[test]
fn values_are_those_the_reference_reads() {
    let mut differences = Vec::new();
    for record in records() {
        for variant in &record.variants {
            // The text of the plain encoding, with stack traces or without.
            let same_as = &record.variants[usize::from(variant.flags & STACK_TRACES)];
            let got = format(record.version, variant.flags).decode_structure(&variant.frame);
            let got = got.map(|value| format!("{value:?}"));
            if got.as_ref() != Ok(&same_as.text) {
                differences.push(format!("{}:\n got {got:?}\nwant {}", record.name(variant), same_as.text));
            }
        }
    }
    assert_eq!(differences.join("\n"), "");
}

#[test]
fn bytes_are_those_the_reference_writes() {
    for record in records() {
        for variant in &record.variants {
            let name = record.name(variant);
            let mut peer = format(record.version, variant.flags);
            let mut ours = format(record.version, variant.flags);
            for frame in [Some(&variant.frame), variant.second.as_ref()].into_iter().flatten() {
                let value = peer.decode_structure(frame).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(frame[0], record.type_id, "{name}");
                assert_eq!(encoded(&mut ours, &value), frame, "{name}");
            }
        }
    }
}

#[test]
fn cached_values_come_back_after_the_cache_is_full() {
    let mut input = file("eviction-v12.bin");
    for flags in [CACHED, CACHED | TIGHT] {
        let slots = input.get_u16();
        let mut peer = format(12, flags).with_cache_slots(slots);
        let mut ours = format(12, flags).with_cache_slots(slots);
        let mut destinations = Vec::new();
        let count = usize::from(input.get_u16());
        for number in 0..count {
            let frame = data(&mut input);
            let command = peer.decode(&frame).unwrap();
            let mut out = BytesMut::new();
            ours.encode(&command, &mut out).unwrap();
            assert_eq!(&out[4..], &frame[..], "flags {flags}, command {number}");
            let Command::MessageAck(ack) = command else { panic!("{command:?}") };
            destinations.push(ack.destination.unwrap().name().to_string());
        }
        let want: Vec<String> = (0..count)
            .map(|number| if number % 7 == 6 { number / 2 } else { number })
            .map(|number| format!("q{}", number % 40))
            .collect();
        assert_eq!(destinations, want);
    }
}

#[test]
fn primitive_maps_are_those_the_reference_writes() {
    let mut input = file("primitives.bin");
    let (want, map) = (text(&mut input), data(&mut input));
    let got = PrimitiveMap::decode(&map).unwrap();
    assert_eq!(format!("{got:?}"), want);
    let mut out = BytesMut::new();
    got.encode(&mut out).unwrap();
    assert_eq!(out, map);
    for end in 0..map.len().min(400) {
        assert!(PrimitiveMap::decode(&map.slice(..end)).is_err(), "cut at {end}");
    }
}

#[test]
fn the_first_frame_of_a_client_tells_its_options() {
    let frame = data(&mut file("wireformat.bin"));
    let Command::WireFormatInfo(info) = WireFormat::initial().decode(&frame).unwrap() else { panic!() };
    let options = WireFormatOptions::from_info(&info).unwrap();
    let want = WireFormatOptions {
        version: 12,
        tight_encoding: true,
        cache: true,
        cache_size: 1024,
        tcp_no_delay: true,
        stack_traces: true,
        max_inactivity_ms: 30_000,
        max_inactivity_initial_delay_ms: 10_000,
        max_frame_bytes: i64::MAX,
        max_frame_size_enabled: true,
        ..options.clone()
    };
    assert_eq!(options, want);
    let again = WireFormatOptions::from_info(&options.to_info().unwrap());
    assert_eq!(again, Ok(options));
}

#[test]
fn a_frame_cut_anywhere_is_an_error_and_never_a_panic() {
    for record in records() {
        for variant in record.variants.iter().filter(|variant| variant.flags < CACHED) {
            for end in 0..variant.frame.len() {
                let cut = format(record.version, variant.flags).decode_structure(&variant.frame.slice(..end));
                assert!(cut.is_err(), "{} cut at {end}: {cut:?}", record.name(variant));
            }
            let long = [&variant.frame[..], &[0]].concat().into();
            let error = format(record.version, variant.flags).decode_structure(&long).unwrap_err();
            let offset = variant.frame.len();
            assert_eq!(error, WireError::TrailingBytes { offset, left_bytes: 1 }, "{}", record.name(variant));
        }
    }
}

#[test]
fn a_frame_with_any_byte_changed_never_panics() {
    for record in records().into_iter().filter(|record| record.version == VERSION_MAX && record.full) {
        for variant in record.variants.iter().filter(|variant| variant.flags < CACHED) {
            for place in 0..variant.frame.len() {
                for value in [0x7F, 0xFF] {
                    let mut bytes = variant.frame.to_vec();
                    bytes[place] = value;
                    drop(format(record.version, variant.flags).decode_structure(&bytes.into()));
                }
            }
        }
    }
}

fn as_message(value: DataStructure) -> Option<Message> {
    match value {
        DataStructure::Command(command) => match *command {
            Command::Message(message) => Some(*message),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn stored_messages_and_their_dispatch_are_the_same_by_splice_and_by_encoding() {
    let header_values: [i64; 4] = [1 << 40, 2, 3, 4];
    for record in records() {
        let loose = &record.variants[0].frame;
        for variant in &record.variants {
            let name = record.name(variant);
            let mut peer = format(record.version, variant.flags);
            let Some(message) = as_message(peer.decode_structure(&variant.frame).unwrap()) else { continue };
            let stored = stored_form(&peer, &message, &variant.frame).unwrap();
            assert_eq!(&stored, loose, "stored form: {name}");
            assert_eq!(from_stored(&stored, record.version).as_ref(), Ok(&message), "{name}");
            check_headers(&stored, record.version, &message, &name);
            // Without a nested object, stored bytes serve other versions as they are.
            let plain = Message { data_structure: None, ..message.clone() };
            let stored_plain = to_stored(&plain, record.version).unwrap();
            for version in [record.version, 3, 9, 10, VERSION_MAX] {
                check_dispatch(&stored, record.version, version, &message, header_values, &name);
                check_dispatch(&stored_plain, record.version, version, &plain, header_values, &name);
            }
        }
    }
}

fn check_headers(stored: &Bytes, version: u8, message: &Message, name: &str) {
    let headers = peek_headers(stored, version).unwrap();
    assert_eq!(
        (headers.kind, &headers.destination, &headers.message_id, headers.persistent, headers.priority),
        (message.kind, &message.destination, &message.message_id, message.persistent, message.priority),
        "{name}"
    );
    assert_eq!(
        (headers.expiration_ms, headers.timestamp_ms, headers.redelivery_counter, headers.group_sequence),
        (message.expiration_ms, message.timestamp_ms, message.redelivery_counter, message.group_sequence),
        "{name}"
    );
    assert_eq!(
        (&headers.group_id, &headers.correlation_id, &headers.message_type, &headers.user_id),
        (&message.group_id, &message.correlation_id, &message.message_type, &message.user_id),
        "{name}"
    );
    assert_eq!(
        (&headers.reply_to, &headers.transaction_id, &headers.marshalled_properties, headers.compressed),
        (&message.reply_to, &message.transaction_id, &message.marshalled_properties, message.compressed),
        "{name}"
    );
    assert_eq!(headers.content_bytes, message.content.as_ref().map_or(0, Bytes::len), "{name}");
    assert_eq!(peek_properties(stored, version).unwrap(), message.marshalled_properties, "{name}");
}

fn check_dispatch(
    stored: &Bytes,
    stored_version: u8,
    version: u8,
    message: &Message,
    [sequence, in_time, out_time, arrival]: [i64; 4],
    name: &str,
) {
    use postroad_openwire::codec::{ConsumerId, Destination, DispatchHeader, encode_dispatch};
    let consumer_id = ConsumerId { connection_id: Some("c".into()), session_id: 5, value: 6 };
    let elsewhere = Destination::Queue("elsewhere".into());
    let patch = Patch {
        broker_sequence_id: Some(sequence),
        broker_in_time_ms: Some(in_time),
        broker_out_time_ms: Some(out_time),
        arrival_ms: Some(arrival),
        expiration_ms: Some(11),
        redelivery_counter: Some(7),
        group_first_for_consumer: Some(true),
    };
    let mut want = message.clone();
    if let Some(id) = &mut want.message_id {
        id.broker_sequence_id = sequence;
    }
    if 3 <= stored_version.min(version) {
        (want.broker_in_time_ms, want.broker_out_time_ms) = (in_time, out_time);
    }
    (want.arrival_ms, want.redelivery_counter, want.expiration_ms) = (arrival, 7, 11);
    want.group_first_for_consumer |= 10 <= stored_version.min(version);
    let mut moved = want.clone();
    moved.original_destination = moved.destination.replace(elsewhere.clone());
    let place = |flags| match flags % 3 {
        0 => (None, &want),
        1 => (message.destination.as_ref(), &want),
        _ => (Some(&elsewhere), &moved),
    };
    // The plain form, which is spliced, to each place.
    for (flags, (destination, want)) in
        [(0, place(0)), (0, place(1))].into_iter().chain((0..8).map(|flags| (flags, place(flags + 2))))
    {
        let header =
            DispatchHeader { command_id: 9, consumer_id: &consumer_id, destination, redelivery_counter: 8 };
        let mut ours = format(version, flags);
        let mut out = BytesMut::from(&b"before"[..]);
        encode_dispatch(&mut ours, &header, stored, stored_version, &patch, &mut out).unwrap();
        out.advance(b"before".len() + 4);
        let frame = out.freeze();
        let Command::MessageDispatch(got) = format(version, flags).decode(&frame).unwrap() else { panic!() };
        assert_eq!((got.command_id, got.redelivery_counter), (9, 8), "{name}");
        assert_eq!((&got.consumer_id, &got.destination), (&Some(consumer_id.clone()), &want.destination));
        let same_span = [1..=1, 2..=2, 3..=9, 10..=12]
            .iter()
            .any(|span| span.contains(&stored_version) && span.contains(&version));
        let is_plain = message.data_structure.is_none();
        if stored_version == version || (same_span && is_plain) {
            assert_eq!(*got.message.unwrap(), *want, "{name}, to flags {flags}");
        }
    }
}
