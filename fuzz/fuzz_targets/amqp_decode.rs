//! Any bytes through the AMQP codec. What decodes must encode, decode to the same value again, and encode to the same
//! bytes from then on; what can be decoded can be walked over.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use postroad_amqp::codec::{Field, Performative, Reader, SaslFrame, Value, take_frame};
use postroad_amqp::message::Sections;

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
