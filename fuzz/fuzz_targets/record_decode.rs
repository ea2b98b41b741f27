//! Any bytes as a record, or as the compressed body of one: decoding never panics, takes no more memory than the bytes can stand
//! for, and what decodes is written and decodes to the same again, compressed or not.
//!
//! The first byte chooses: raw bytes as a record, or a length (4) and a block in a record that is otherwise sound.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use postroad_core::{decode_record, encode_record, message_in_record};
use postroad_model::Compression;

/// Type, version, address, protocol and version of a message, flags (persistent, compressed), priority, expiry.
const HEAD: [u8; 20] = [3, 2, 0, 1, 0, 0, 0, b'a', 1, 12, 17, 4, 0, 0, 0, 0, 0, 0, 0, 0];

const LZ4: u8 = 1;

/// A byte of a block stands for no more than so many.
const RATIO_MAX: usize = 255;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    match rest.split_first_chunk::<4>() {
        Some((length, block)) if mode % 2 == 1 => {
            let stored = (block.len() as u32).to_le_bytes();
            let record: Bytes = [&HEAD[..], length, &[LZ4], &stored, block].concat().into();
            if let Ok(Some(message)) = message_in_record(&record, 0) {
                assert_eq!(message.bytes.len(), u32::from_le_bytes(*length) as usize);
                assert!(message.bytes.len() <= RATIO_MAX * block.len());
            }
            round_trip(&record);
        }
        _ => round_trip(&Bytes::copy_from_slice(rest)),
    }
});

fn round_trip(record: &Bytes) {
    let Ok(command) = decode_record(record) else { return };
    for compression in [Compression::None, Compression::Lz4] {
        let written: Bytes = encode_record(&command, compression).concat().into();
        assert_eq!(decode_record(&written).as_ref(), Ok(&command));
    }
}
