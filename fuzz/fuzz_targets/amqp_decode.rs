//! Any bytes through the AMQP codec. Decoded values must encode, decode to the same value again,
//! and encode to the same bytes from then on; decodable bytes can be walked over. A body says the
//! same in one piece and in many.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use postroad_amqp::codec::{Field, Performative, Reader, SaslFrame, Value, take_frame};
use postroad_amqp::message::{BodyKind, Sections};
use postroad_amqp::portable::read_large;
use postroad_model::{Chunks, Encoding, Message, NORMAL_PRIORITY, Protocol};

const FRAME_BYTES_MAX: u32 = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let mut stream = BytesMut::from(input);
    while let Ok(Some(frame)) = take_frame(&mut stream, FRAME_BYTES_MAX) {
        composite(&frame.body);
    }
    let input = Bytes::copy_from_slice(input);
    composite(&input);
    value(&input);
    sections(&input);
    body(&input);
});

fn composite(bytes: &Bytes) {
    round_trip::<Performative>(bytes);
    round_trip::<SaslFrame>(bytes);
}

/// Compared as bytes, for a NaN is not equal to itself.
fn round_trip<T: Field>(bytes: &Bytes) {
    let mut reader = Reader::new(bytes);
    let Ok(value) = T::read(&mut reader) else { return };
    let mut first = BytesMut::new();
    value.write(&mut first);
    let first = first.freeze();
    let again = T::read(&mut Reader::new(&first)).expect("what was encoded can be decoded");
    let mut second = BytesMut::new();
    again.write(&mut second);
    assert_eq!(first, second);
}

fn value(bytes: &Bytes) {
    let mut reader = Reader::new(bytes);
    let Ok(value) = reader.value() else { return };
    let mut walker = Reader::new(bytes);
    walker.skip().expect("what can be decoded can be walked over");
    assert_eq!(walker.offset(), reader.offset());
    if let Value::Array(array) = &value {
        let _ = array.elements();
    }
    round_trip::<Value>(bytes);
}

fn sections(message: &Bytes) {
    let Ok(sections) = Sections::scan(message) else { return };
    let _ = sections.header(message);
    let _ = sections.properties(message);
    let _ = sections.delivery_annotations(message);
    let _ = sections.message_annotations(message);
    let _ = sections.application_properties(message);
    let _ = sections.body_values(message);
    let _ = sections.footer(message);
    // The bare message alone is a message too, with the same body.
    let bare = message.slice(sections.bare..);
    let again = Sections::scan(&bare).expect("a part of what was scanned");
    let body = |sections: &Sections| sections.body.as_ref().map(|body| (body.kind, body.count));
    assert_eq!(body(&again), body(&sections));
}

fn body(bytes: &Bytes) {
    let whole = in_pieces(bytes, usize::MAX);
    for piece_bytes in [1, 7] {
        // The first piece of a real one has all of a section's header.
        assert_eq!(in_pieces(bytes, piece_bytes).map(Result::ok), whole.clone().map(Result::ok));
    }
    let Ok(sections) = Sections::scan(bytes) else { return };
    let starts =
        sections.body.as_ref().is_some_and(|body| body.span.start == 0 && body.kind != BodyKind::Sequence);
    let (Some(Ok(held)), true) = (whole, starts) else { return };
    let Ok(values) = sections.body_values(bytes) else {
        // Writing it as text shows that it is none.
        assert!(std::str::from_utf8(&held).is_err());
        return;
    };
    let joined = values.into_iter().flat_map(|value| match value {
        Value::Binary(bytes) => bytes,
        Value::String(text) => text.as_bytes().clone(),
        other => panic!("no bytes, and read as some: {other:?}"),
    });
    assert_eq!(joined.collect::<Vec<_>>(), held);
}

/// The content of a body that is read in pieces of this size; `None` if it is not read in pieces.
fn in_pieces(body: &Bytes, piece_bytes: usize) -> Option<Result<BytesMut, String>> {
    let chunks = Chunks { bytes: body.len() as u64, piece_bytes: 1, positions: Box::default() };
    let message = Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: None,
        bytes: Bytes::new(),
    };
    let message = message.with_chunks(Some(chunks.into()));
    let mut read = read_large(&message, body, false)?;
    let mut out = BytesMut::new();
    let mut taken = body.chunks(piece_bytes).try_for_each(|piece| read.step.take(piece, &mut out));
    taken = taken.and_then(|()| read.step.end(&mut out));
    if let (Ok(()), Some(bytes)) = (&taken, read.bytes) {
        assert_eq!(bytes, out.len() as u64);
    }
    Some(taken.map(|()| out))
}
