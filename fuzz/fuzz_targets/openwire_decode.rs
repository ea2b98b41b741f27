//! Any bytes through the OpenWire codec. Decoded commands must encode, decode to
//! the same value again, and encode to the same bytes from then on. A text
//! says the same in one piece and in many.
//!
//! The first byte selects: bits 0 to 3 version, 4 tight, 5 cached, 6 stack traces.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use postroad_model::{Chunks, Encoding, NORMAL_PRIORITY, Protocol};
use postroad_openwire::codec::{
    Command, DataStructure, FrameReader, Message, MessageKind, Primitive, PrimitiveMap, VERSION_MAX,
    WireError, WireFormat, decode_text_body, find_property, from_stored, peek_headers, peek_properties,
    to_stored,
};
use postroad_openwire::portable::{read_large, write_large};

/// Frames one after the other, as on a connection, so that caches fill.
const FRAME_BYTES_MAX: u64 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Some((selector, stream)) = input.split_first() else { return };
    let mut peer = format(*selector);
    let mut frames = FrameReader::new(FRAME_BYTES_MAX);
    frames.push(stream);
    while let Ok(Some(frame)) = frames.next_frame() {
        let Ok(value) = peer.decode_structure(&frame) else { break };
        round_trip(*selector, &value);
        if let Some(message) = message(&value) {
            primitives(message);
            stored(message, peer.version);
        }
    }
    let rest = Bytes::copy_from_slice(stream);
    if let Ok(value) = format(*selector).decode_structure(&rest) {
        round_trip(*selector, &value);
    }
    primitive_map(&rest);
    text_body(&rest);
});

fn format(selector: u8) -> WireFormat {
    let mut format = WireFormat::loose((selector & 0x0F).clamp(1, VERSION_MAX));
    format.tight_encoding = selector & 0x10 != 0;
    format.stack_traces = selector & 0x40 != 0;
    if selector & 0x20 != 0 { format.with_cache_slots(128) } else { format }
}

fn round_trip(selector: u8, value: &DataStructure) {
    let mut first = BytesMut::new();
    match format(selector).encode_structure(value, &mut first) {
        // Text that was Latin-1 on the wire may grow beyond its length field.
        Err(WireError::TextTooLong { .. }) => return,
        result => result.expect("what was decoded can be encoded"),
    }
    let frame = first.freeze().slice(4..);
    let again = format(selector).decode_structure(&frame).expect("what was encoded can be decoded");
    assert_eq!(&again, value);
    let mut second = BytesMut::new();
    format(selector).encode_structure(&again, &mut second).expect("encodes once more");
    assert_eq!(second[4..], frame);
}

fn message(value: &DataStructure) -> Option<&Message> {
    match value {
        DataStructure::Command(command) => match &**command {
            Command::Message(message) => Some(message),
            Command::MessageDispatch(dispatch) => dispatch.message.as_deref(),
            _ => None,
        },
        _ => None,
    }
}

fn stored(message: &Message, version: u8) {
    let Ok(stored) = to_stored(message, version) else { return };
    let headers = peek_headers(&stored, version).expect("a stored message can be peeked");
    assert_eq!((&headers.destination, &headers.message_id), (&message.destination, &message.message_id));
    assert_eq!(peek_properties(&stored, version).as_ref(), Ok(&message.marshalled_properties));
    let again = from_stored(&stored, version).expect("a stored message can be read");
    assert_eq!(to_stored(&again, version).as_ref(), Ok(&stored));
}

fn primitives(message: &Message) {
    for bytes in [&message.marshalled_properties, &message.content].into_iter().flatten() {
        primitive_map(bytes);
        let _ = Primitive::decode_all(bytes);
    }
}

/// Compared as bytes, for a NaN is not equal to itself.
fn primitive_map(bytes: &Bytes) {
    let Ok(map) = PrimitiveMap::decode(bytes) else { return };
    let _ = find_property(bytes, "a").expect("what can be decoded can be searched");
    let mut first = BytesMut::new();
    match map.encode(&mut first) {
        Err(WireError::TextTooLong { .. }) => return,
        result => result.expect("what was decoded can be encoded"),
    }
    let again = PrimitiveMap::decode(&first.clone().freeze()).expect("what was encoded can be decoded");
    let mut second = BytesMut::new();
    again.encode(&mut second).expect("encodes once more");
    assert_eq!(first, second);
}

fn text_body(content: &Bytes) {
    let text = decode_text_body(content).ok().flatten().map(|text| text.to_str().into_owned());
    for piece_bytes in [1, 5, usize::MAX] {
        assert_eq!(in_pieces(content, piece_bytes).ok(), text.as_ref().map(|text| text.as_bytes().into()));
    }
    let Some(text) = text else { return };
    let body = postroad_model::portable::Body::Text(Some(text.as_str().into()));
    let mut written = write_large(&body).expect("text can be written in pieces");
    let mut out = BytesMut::new();
    text.as_bytes().chunks(3).for_each(|piece| written.step.take(piece, &mut out).expect("it is UTF-8"));
    written.step.end(&mut out).expect("it is whole");
    let front = (written.front)(out.len() as u64).expect("it is short");
    let again = decode_text_body(&[&front[..], &out].concat().into()).expect("what was written can be read");
    assert_eq!(again.map(|again| again.to_str().into_owned()), Some(text));
}

/// The text read in pieces of this size.
fn in_pieces(content: &Bytes, piece_bytes: usize) -> Result<BytesMut, String> {
    let message = Message { kind: MessageKind::Text, content: Some(Bytes::new()), ..Message::default() };
    let chunks = Chunks { bytes: content.len() as u64, piece_bytes: 1, positions: Box::default() };
    let message = postroad_model::Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: VERSION_MAX },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: to_stored(&message, VERSION_MAX).expect("an empty message can be stored"),
    };
    let read = read_large(&message.with_chunks(Some(chunks.into()))).expect("it was stored just now");
    let mut read = read.expect("text can be read in pieces");
    let mut out = BytesMut::new();
    content.chunks(piece_bytes).try_for_each(|piece| read.step.take(piece, &mut out))?;
    read.step.end(&mut out).map(|()| out)
}
