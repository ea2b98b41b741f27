//! Uploads: large messages whose body is passed on while it arrives, so that it is never in memory
//! as a whole.
//!
//! ```text
//!   size │ type … content: 1, length │ ..... content ..... │ properties …
//!        └── head, kept ─────────────┘└─ Event::Chunk each ─┘└── tail ──┘
//! ```
//! Head and tail make a frame with an empty body. It is taken as any other message once all pieces
//! are in the log: their replies have come, and nothing that the client sent later can have
//! overtaken them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{CHUNK_BYTES, Destination, Event, Parting, Refusal};

use super::replies::Then;
use super::{OpenWireSession, Turn, names};
use crate::codec::{SIZE_BYTES, announced_bytes, content_at, destination_of};

/// Pieces that wait for the log. No more are read then: with the buffer of the next ones, a
/// connection has some 2 MiB of a message in memory.
const PIECES_MAX: u32 = 4;

/// The bytes before and after the body are kept in memory: a message with more of them is taken
/// whole.
const ENDS_BYTES_MAX: usize = 1 << 20;

/// As [`ENDS_BYTES_MAX`], of the bytes before the body alone.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A message on its way in.
#[derive(Debug)]
pub struct Upload {
    /// Its number: see [`Event::Chunk`].
    pub number: u64,
    /// Bytes of the body.
    pub bytes: u64,
    /// Why the log does not take it, if it does not: the rest is read and passed over.
    pub refusal: Option<Refusal>,
    /// Where its message is sent.
    to: Arc<[Destination]>,
    head: BytesMut,
    left: usize,
    tail: usize,
    /// Pieces whose replies are outstanding.
    waiting: u32,
}

/// The uploads of a session.
#[derive(Debug, Default)]
pub struct Uploads {
    last: u64,
    /// The frame that is coming.
    pub current: Option<Upload>,
    /// Its body is in the log; the next taken message takes this too.
    pub arrived: Option<Upload>,
    /// The frame that is coming is taken whole, though it is large.
    is_whole: bool,
}

impl Upload {
    /// Whether the next bytes can be taken.
    pub fn takes_input(&self) -> bool {
        if self.left == 0 { self.waiting == 0 } else { self.waiting < PIECES_MAX }
    }

    /// As much as is to be read next.
    fn missing_bytes(&self, there: usize) -> usize {
        (self.left + self.tail).saturating_sub(there).min(CHUNK_BYTES)
    }
}

impl OpenWireSession {
    /// Takes the available part of a large message; `false` if the next frame is to be taken whole,
    /// or more has to come first.
    pub(super) fn take_large(&mut self, input: &mut BytesMut, turn: &mut Turn<'_>) -> Result<bool, Parting> {
        let Some(upload) = &mut self.uploads.current else { return Ok(self.begin_upload(input)) };
        if 0 < upload.left {
            let length = upload.left.min(CHUNK_BYTES);
            if input.len() < length {
                return Ok(false);
            }
            upload.left -= length;
            let (bytes, number, to) = (input.split_to(length).freeze(), upload.number, upload.to.clone());
            if upload.refusal.is_none() {
                upload.waiting += 1;
                let ticket = self.wait(1, None, Then::Piece);
                turn.events.push(Event::Chunk { connection: self.id, upload: number, to, bytes, ticket });
            }
            return Ok(true);
        }
        if input.len() < upload.tail {
            return Ok(false);
        }
        let Some(mut upload) = self.uploads.current.take() else { return Ok(false) };
        let mut frame = std::mem::take(&mut upload.head);
        frame.extend_from_slice(&input.split_to(upload.tail));
        self.uploads.arrived = Some(upload);
        let taken = self.take(&self.stamped(frame, turn.now), turn);
        // The message was not taken.
        if let Some(Upload { number, .. }) = self.uploads.arrived.take() {
            turn.events.push(Event::Abandon { connection: self.id, upload: number });
        }
        taken.map(|()| true)
    }

    /// Whether the frame that `input` begins with is a large message; if so, its head is taken.
    fn begin_upload(&mut self, input: &mut BytesMut) -> bool {
        let Some((at, bytes, frame_bytes)) = self.find_body(input) else { return false };
        let mut head = BytesMut::from(&input.split_to(SIZE_BYTES + at)[SIZE_BYTES..]);
        head.extend_from_slice(&[1, 0, 0, 0, 0]);
        let length = input.split_to(BODY_FRONT_BYTES);
        debug_assert_eq!(length.first(), Some(&1), "there is a body");
        self.uploads.last += 1;
        let tail = frame_bytes - at - BODY_FRONT_BYTES - bytes;
        let (number, left) = (self.uploads.last, bytes);
        let (bytes, waiting, refusal) = (bytes as u64, 0, None);
        let to = targets_of(&head, self.format.version);
        self.uploads.current = Some(Upload { number, bytes, refusal, to, head, left, tail, waiting });
        true
    }

    /// Of the frame that `input` begins with: where the body's length stands, the bytes of the
    /// body, and those of the frame; `None` if it is to be taken whole, or if that is not known
    /// yet.
    fn find_body(&mut self, input: &BytesMut) -> Option<(usize, usize, usize)> {
        let format = &self.format;
        let is_plain = !format.tight_encoding && !format.has_cache() && !format.size_prefix_disabled;
        if !self.negotiated || !is_plain || self.uploads.is_whole {
            return None;
        }
        let frame_bytes = announced_bytes(input, self.frame_bytes_max()).ok().flatten()?;
        if (frame_bytes as u64) < self.options.large_message_bytes {
            return None;
        }
        let frame = &input[SIZE_BYTES..];
        match content_at(frame, self.format.version) {
            Ok(at) => {
                let front: Option<[u8; BODY_FRONT_BYTES]> =
                    frame.get(at..at + BODY_FRONT_BYTES).and_then(|front| front.try_into().ok());
                let Some([flag, length @ ..]) = front else { return self.whole_if_long(frame) };
                let bytes = usize::try_from(i32::from_be_bytes(length)).unwrap_or(0);
                let ends = frame_bytes.checked_sub(bytes).filter(|ends| at + BODY_FRONT_BYTES < *ends);
                match ends.filter(|ends| flag == 1 && CHUNK_BYTES <= bytes && *ends <= ENDS_BYTES_MAX) {
                    Some(_) => Some((at, bytes, frame_bytes)),
                    None => self.whole(),
                }
            }
            Err(error) if error.is_truncated() => self.whole_if_long(frame),
            // The decoder reports the fault.
            Err(_) => self.whole(),
        }
    }

    fn whole_if_long<T>(&mut self, frame: &[u8]) -> Option<T> {
        if HEAD_BYTES_MAX <= frame.len() { self.whole() } else { None }
    }

    fn whole<T>(&mut self) -> Option<T> {
        self.uploads.is_whole = true;
        None
    }

    /// A piece is in the log, or is not taken.
    pub(super) fn piece_answered(&mut self, refusal: Option<Refusal>) {
        if let Some(upload) = &mut self.uploads.current {
            upload.waiting = upload.waiting.saturating_sub(1);
            upload.refusal = upload.refusal.take().or(refusal);
        }
    }
}

impl Uploads {
    /// Whether the next bytes can be taken.
    pub fn take_input(&self) -> bool {
        self.current.as_ref().is_none_or(Upload::takes_input)
    }

    /// How much is to be read next of a large message; `None` if none is coming.
    pub fn missing_bytes(&self, there: usize) -> Option<usize> {
        self.current.as_ref().map(|upload| upload.missing_bytes(there))
    }

    /// A frame was taken whole.
    pub fn took_frame(&mut self) {
        self.is_whole = false;
    }
}

/// Where the message of this head is sent; nowhere if it does not say so, for which it is refused
/// once it is there.
fn targets_of(head: &[u8], version: u8) -> Arc<[Destination]> {
    let named = destination_of(&Bytes::copy_from_slice(head), version).ok().flatten();
    let mut targets = named.map(|named| names::targets(&named)).unwrap_or_default();
    targets.truncate(names::LIST_MAX);
    targets.into()
}

/// A flag that there is a body, and its length.
const BODY_FRONT_BYTES: usize = 5;
