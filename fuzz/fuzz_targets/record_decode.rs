//! Any bytes as a record, or as the compressed body of one: decoding never panics, takes no more
//! memory than the bytes can stand for, and a decoded record is written and decodes to the same
//! again, compressed or not.
//!
//! The first byte chooses: raw bytes as a record, or a length (4) and a block or a frame in a
//! record that is otherwise sound.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use postroad_core::{decode_record, encode_record, message_in_record};
use postroad_model::Compression;

/// Type, version, address, protocol and version of a message, flags (persistent, compressed),
/// priority, expiry.
const HEAD: [u8; 20] = [3, 2, 0, 1, 0, 0, 0, b'a', 1, 12, 17, 4, 0, 0, 0, 0, 0, 0, 0, 0];

/// LZ4: the maximum of bytes that one byte stands for.
const LZ4: u8 = 1;
const RATIO_MAX: usize = 255;

/// Zstandard: the maximum size of a body.
const ZSTD: u8 = 2;
const BODY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    match rest.split_first_chunk::<4>() {
        Some((length, block)) if mode % 3 != 0 => {
            let (method, bytes_max) = match mode % 3 {
                1 => (LZ4, RATIO_MAX * block.len()),
                _ => (ZSTD, BODY_BYTES_MAX),
            };
            let stored = (block.len() as u32).to_le_bytes();
            let record: Bytes = [&HEAD[..], length, &[method], &stored, block].concat().into();
            if let Ok(Some(message)) = message_in_record(&record, 0) {
                assert_eq!(message.bytes.len(), u32::from_le_bytes(*length) as usize);
                assert!(message.bytes.len() <= bytes_max);
            }
            round_trip(&record);
        }
        _ => round_trip(&Bytes::copy_from_slice(rest)),
    }
});

fn round_trip(record: &Bytes) {
    let Ok(command) = decode_record(record) else { return };
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let written: Bytes = encode_record(&command, compression).concat().into();
        assert_eq!(decode_record(&written).as_ref(), Ok(&command));
    }
}
