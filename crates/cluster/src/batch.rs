//! The payload of a batch: the records of one journal group, as they go to other nodes.
//!
//! ```text
//! count u32, then for each record:
//! partition u16 │ position u64 │ flags u8: 1 may use the reserve │ length u32 │ payload
//! ```
//! Little endian. Keys are not sent: each node encrypts with its own.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postroad_journal::{Payload, Record};
use postroad_model::{PartitionId, Position};

/// Why a payload is no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Shorter or longer than its fields say.
    #[error("batch is not as long as its fields say")]
    Length,
    /// A position of zero, or a flag that this version does not have.
    #[error("batch has an invalid field")]
    Field,
    /// No record.
    #[error("batch is empty")]
    Empty,
}

const RECORD_HEAD_BYTES: usize = 15;
const RESERVE: u8 = 1;

/// The payload for these records.
pub fn encode_batch(records: &[Record]) -> Bytes {
    let payloads: u64 = records.iter().map(|record| record.payload.byte_length()).sum();
    let mut out = BytesMut::with_capacity(4 + records.len() * RECORD_HEAD_BYTES + payloads as usize);
    out.put_u32_le(records.len() as u32);
    for record in records {
        out.put_u16_le(record.partition.0);
        out.put_u64_le(record.position.get());
        out.put_u8(if record.reserve { RESERVE } else { 0 });
        out.put_u32_le(record.payload.byte_length() as u32);
        record.payload.pieces().iter().for_each(|piece| out.put_slice(piece));
    }
    out.freeze()
}

/// The records of a payload, which share its bytes.
///
/// # Errors
/// See [`BatchError`].
pub fn decode_batch(mut payload: Bytes) -> Result<Vec<Record>, BatchError> {
    let count = payload.try_get_u32_le().map_err(|_| BatchError::Length)? as usize;
    if count == 0 {
        return Err(BatchError::Empty);
    }
    let mut records = Vec::with_capacity(count.min(payload.len() / RECORD_HEAD_BYTES));
    for _ in 0..count {
        if payload.len() < RECORD_HEAD_BYTES {
            return Err(BatchError::Length);
        }
        let partition = PartitionId(payload.get_u16_le());
        let position = Position::new(payload.get_u64_le()).ok_or(BatchError::Field)?;
        let flags = payload.get_u8();
        let length = payload.get_u32_le() as usize;
        if flags & !RESERVE != 0 {
            return Err(BatchError::Field);
        }
        if length > payload.len() {
            return Err(BatchError::Length);
        }
        let payload = Payload::from(payload.split_to(length));
        records.push(Record { partition, position, payload, reserve: flags == RESERVE, key: None });
    }
    if payload.is_empty() { Ok(records) } else { Err(BatchError::Length) }
}
