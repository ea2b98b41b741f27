//! Any bytes as a message between replicas, with and without a checksum that fits. Decoded messages
//! must encode to the same bytes, and its batches decode or are refused.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use postroad_cluster::{Body, decode, decode_batch, encode, encode_batch};

fuzz_target!(|input: &[u8]| {
    let _ = decode(Bytes::copy_from_slice(input));
    let _ = decode_batch(Bytes::copy_from_slice(input));
    let mut whole = input.to_vec();
    whole.extend_from_slice(&crc32c::crc32c(input).to_le_bytes());
    let Ok(message) = decode(whole.clone().into()) else { return };
    assert_eq!(encode(&message).as_deref(), Ok(&whole[..]));
    let Body::Append { entries, .. } = message.body else { return };
    for entry in entries {
        if let Ok(records) = decode_batch(entry.payload.clone()) {
            assert_eq!(encode_batch(&records), entry.payload);
        }
    }
});
