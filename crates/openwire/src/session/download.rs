//! Downloads: large messages whose body goes out as it is read from the log.
//!
//! The dispatch is written up to the body; the runtime brings that piece by piece, and nothing else
//! is written until the end of the frame: OpenWire has no way to say two things at once.

use bytes::{BufMut, Bytes, BytesMut};
use postroad_model::{ConsumerKey, EntryTag, Event, Settle};

use super::OpenWireSession;

/// A message on its way out.
#[derive(Debug)]
pub struct Download {
    /// Who gets it.
    pub consumer: ConsumerKey,
    /// The core's name for it.
    pub tag: EntryTag,
    /// Bytes of the body that are still to come.
    pub left: u64,
    /// The bytes after it.
    pub tail: Bytes,
}

impl OpenWireSession {
    /// Whether the client's frames look like those in the log.
    pub(super) fn can_stream(&self) -> bool {
        !self.format.tight_encoding && !self.format.has_cache() && !self.format.size_prefix_disabled
    }

    pub(super) fn write_body(&mut self, bytes: &Bytes, ticks_ms: u64, output: &mut BytesMut) {
        let Some(download) = &mut self.download else { return };
        output.put_slice(bytes);
        download.left = download.left.saturating_sub(bytes.len() as u64);
        if download.left == 0 {
            output.put_slice(&download.tail);
            self.download = None;
        }
        self.liveness.wrote(ticks_ms);
    }

    /// The message can never be sent whole: it becomes a dead letter.
    pub(super) fn lose_body(&mut self, reason: &str, events: &mut Vec<Event>) {
        let Some(Download { consumer, tag, .. }) = self.download.take() else { return };
        events.push(Event::Settle(Settle::rejected(consumer, tag, reason)));
    }
}
