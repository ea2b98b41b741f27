//! Memory for large bodies: those of a core's HTTP requests have a bound together, until their
//! answers are written.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postroad_model::{Refusal, Reserved};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of large bodies that the requests of one core have in memory at a time. A reserve has 20
/// MiB of them at most.
const GATHERED_BYTES_MAX: u64 = 64 << 20;

/// Longest wait of a request for memory; then it is refused.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of one permit.
const UNIT_BYTES: u64 = 1 << 10;

/// The memory for large bodies of one core.
#[derive(Clone, Debug)]
pub struct Bodies(Arc<Semaphore>);

/// A share of the memory, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Room(Option<OwnedSemaphorePermit>);

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies(Arc::new(Semaphore::new((GATHERED_BYTES_MAX / UNIT_BYTES) as usize)))
    }
}

impl Bodies {
    /// Memory for the large bodies among these messages, once there is some.
    ///
    /// # Errors
    /// Other requests have all of it, for longer than a request waits.
    pub async fn room_for(&self, messages: &[Reserved]) -> Result<Room, Refusal> {
        let large = messages.iter().filter_map(|reserved| Some(reserved.message.chunks()?.bytes));
        let bytes: u64 = large.sum();
        if bytes == 0 {
            return Ok(Room::default());
        }
        // All of one answer at once: two that have a part each would wait for one another.
        let units = bytes.div_ceil(UNIT_BYTES).min(GATHERED_BYTES_MAX / UNIT_BYTES);
        let permits = self.0.clone().acquire_many_owned(units as u32);
        match tokio::time::timeout(ROOM_WITHIN, permits).await {
            Ok(Ok(permit)) => Ok(Room(Some(permit))),
            _ => {
                let reason = format!(
                    "requests for large messages use the {} MiB that they may use together: try again later",
                    GATHERED_BYTES_MAX >> 20
                );
                Err(Refusal::StoreFailed { reason })
            }
        }
    }
}

impl Room {
    /// These and those.
    pub fn with(self, other: Room) -> Room {
        let (Room(own), Room(other)) = (self, other);
        Room(match (own, other) {
            (Some(mut own), Some(other)) => {
                own.merge(other);
                Some(own)
            }
            (own, other) => own.or(other),
        })
    }

    /// An answer with the bodies, which gives the memory back once it is written.
    pub fn answer(self, text: Vec<u8>) -> Bytes {
        match self.0 {
            Some(_) => Bytes::from_owner(Held { text, _room: self }),
            None => Bytes::from(text),
        }
    }
}

struct Held {
    text: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postroad_model::{
        Chunks, Encoding, EntryTag, Message, NORMAL_PRIORITY, PartitionId, Protocol, QueueId,
    };

    use super::*;

    fn large(bytes: u64) -> Reserved {
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::new(),
        };
        let chunks = Chunks { bytes, piece_bytes: 1 << 18, positions: Box::default() };
        let message = message.with_chunks((0 < bytes).then(|| Arc::new(chunks)));
        let (queue, tag, from) = (QueueId(1), EntryTag(1), PartitionId(0));
        Reserved { queue, tag, lease: None, deliveries: 1, from, message }
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_bound_a_request_waits_for_an_answer_to_be_written_and_is_refused_in_the_end() {
        let bodies = Bodies::default();
        let first = bodies.room_for(&[large(GATHERED_BYTES_MAX - 1), large(0)]).await.unwrap();
        assert!(bodies.room_for(&[large(0)]).await.is_ok(), "small messages need none");
        let refused = bodies.room_for(&[large(2 * UNIT_BYTES)]).await.unwrap_err();
        assert!(refused.to_string().contains("64 MiB"), "{refused}");
        let answer = first.answer(b"{}".to_vec());
        let (waiting, taken) = (bodies.clone(), tokio::spawn(async { tokio::task::yield_now().await }));
        let waits = tokio::spawn(async move { waiting.room_for(&[large(1)]).await.is_ok() });
        taken.await.unwrap();
        drop(answer);
        assert!(waits.await.unwrap());
        assert!(bodies.room_for(&[large(GATHERED_BYTES_MAX * 9)]).await.is_ok(), "alone any size is served");
    }
}
