//! Any bytes as a snapshot: reading never panics, and the length of the pieces makes no difference.
//! A snapshot that was read and written, and can be read again, is written as the same.
//!
//! The first byte chooses: raw bytes, or edits of a kept snapshot; the second how long the pieces
//! are.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use postroad_core::{Partition, Settings};
use postroad_model::{PartitionId, Placement};

const KEPT: [&[u8]; 11] = [
    include_bytes!("../../fixtures/records/snapshot.bin"),
    include_bytes!("../../fixtures/records/snapshot-bindings.bin"),
    include_bytes!("../../fixtures/records/snapshot-jobs.bin"),
    include_bytes!("../../fixtures/records/snapshot-pages.bin"),
    include_bytes!("../../fixtures/records/snapshot-wide-pages.bin"),
    include_bytes!("../../fixtures/records/snapshot-large.bin"),
    include_bytes!("../../fixtures/records/snapshot-many-jobs.bin"),
    include_bytes!("../../fixtures/records/snapshot-shelves.bin"),
    include_bytes!("../../fixtures/records/snapshot-moving.bin"),
    include_bytes!("../../fixtures/records/snapshot-transactions.bin"),
    include_bytes!("../../fixtures/records/snapshot-shared.bin"),
];

fuzz_target!(|input: &[u8]| {
    let [mode, piece_bytes, rest @ ..] = input else { return };
    let snapshot = match KEPT.get(usize::from(*mode) % (KEPT.len() + 1)) {
        Some(kept) => edited(kept, rest),
        None => Bytes::copy_from_slice(rest),
    };
    let settings =
        || Settings { page_entries: 2, ..Settings::at_rest(PartitionId(2), Placement::over(8), 1) };
    let whole = Partition::restore(settings(), &snapshot);
    let mut pieces = snapshot.chunks(1 + usize::from(*piece_bytes)).map(Bytes::copy_from_slice);
    let in_pieces = Partition::restore_pieces(settings(), &mut pieces);
    match (whole, in_pieces) {
        (Ok(whole), Ok(in_pieces)) => {
            let written = whole.snapshot();
            assert_eq!(in_pieces.snapshot(), written);
            // Whether a page's messages may be shared is known better the second time. Edited bytes
            // may have values that no writer produces, and need not be readable a third time.
            if let Ok(second) = Partition::restore(settings(), &written)
                && let Ok(third) = Partition::restore(settings(), &second.snapshot())
            {
                assert_eq!(third.snapshot(), second.snapshot());
            } else {
                assert!(KEPT.iter().all(|kept| *snapshot != **kept), "Postroad wrote this");
            }
        }
        (whole, in_pieces) => assert_eq!(whole.err(), in_pieces.err()),
    }
});

/// Edits of three bytes each: where, and the new value; the rest is put at the end.
fn edited(kept: &[u8], edits: &[u8]) -> Bytes {
    let mut bytes = kept.to_vec();
    let edits = edits.chunks_exact(3);
    let rest = edits.remainder();
    for edit in edits.take(16) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[at] = edit[2];
    }
    bytes.extend_from_slice(rest);
    bytes.into()
}
