//! Uploads: the bodies of large messages, passed on while they come.
//!
//! The bytes before the body are kept, and are the message once all pieces are in the log. No input
//! is taken between the last transfer and then, so that no later input of the client overtakes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{CHUNK_BYTES, Destination, Event, Refusal};

use super::incoming::{Receipt, To, Whole, targets_of_head};
use super::replies::Then;
use super::{AmqpSession, Turn};
use crate::codec::Error;
use crate::message::body_start;

/// Pieces of a connection that wait for the log. No more input is taken then.
const PIECES_MAX: u32 = 4;

/// The bytes before a body are kept in memory: a message with more of them is taken whole.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A body on its way in.
#[derive(Debug)]
pub struct Upload {
    /// See [`Event::Chunk`].
    pub number: u64,
    /// Where its message is sent.
    to: Arc<[Destination]>,
    /// The sections before the body.
    pub head: Bytes,
    /// Bytes of it that are gone already, with the head.
    pub passed_on: u64,
}

/// The uploads of a session.
#[derive(Default)]
pub struct Uploads {
    last: u64,
    /// Pieces that wait for the log.
    waiting: u32,
    /// Those that the log does not take: their rest is passed over.
    refused: BTreeMap<u64, Refusal>,
    /// All of its body is on its way to the log.
    pub ended: Option<(Receipt, Whole, Upload)>,
}

impl Uploads {
    /// Whether more input can be taken.
    pub fn take_input(&self) -> bool {
        self.ended.is_none() && self.waiting < PIECES_MAX
    }

    /// Begins one with the available part of a message by a link that leads `to` somewhere, if the
    /// start of its body is known: `bytes` begin with that then.
    pub fn begin(&mut self, to: &To, bytes: &mut BytesMut) -> Option<Upload> {
        let front = Bytes::copy_from_slice(&bytes[..bytes.len().min(HEAD_BYTES_MAX)]);
        let head = bytes.split_to(body_start(&front)?).freeze();
        self.last += 1;
        let passed_on = head.len() as u64;
        // If it goes nowhere it is refused for that, once it is there.
        let to = targets_of_head(to, &head).into();
        Some(Upload { number: self.last, to, head, passed_on })
    }
}

impl AmqpSession {
    /// Passes on the available part of a body, in whole pieces; to its end, if that `is_end`.
    pub(super) fn pass_on(
        &mut self,
        upload: &mut Upload,
        bytes: &mut BytesMut,
        is_end: bool,
        turn: &mut Turn<'_>,
    ) {
        while CHUNK_BYTES <= bytes.len() || is_end && !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(CHUNK_BYTES)).freeze();
            upload.passed_on += piece.len() as u64;
            if self.uploads.refused.contains_key(&upload.number) {
                continue;
            }
            self.uploads.waiting += 1;
            let ticket = self.replies.wait(1, Then::Piece(upload.number));
            let (connection, upload, to) = (self.id, upload.number, upload.to.clone());
            turn.events.push(Event::Chunk { connection, upload, to, bytes: piece, ticket });
        }
    }

    /// A piece is in the log, or is not taken; the message follows the last one.
    pub(super) fn piece_answered(&mut self, upload: u64, refusal: Option<Refusal>, turn: &mut Turn<'_>) {
        self.uploads.waiting = self.uploads.waiting.saturating_sub(1);
        if let Some(refusal) = refusal {
            self.uploads.refused.insert(upload, refusal);
        }
        if self.uploads.waiting == 0 {
            self.finish_upload(turn);
        }
    }

    /// Takes the message whose body is in the log.
    pub(super) fn finish_upload(&mut self, turn: &mut Turn<'_>) {
        let Some((receipt, whole, upload)) = self.uploads.ended.take_if(|_| self.uploads.waiting == 0) else {
            return;
        };
        let at = receipt.at;
        match self.uploads.refused.remove(&upload.number) {
            Some(refusal) => {
                self.give_up(&upload, turn);
                self.received(&receipt, Some(Error::from(&refusal)), turn);
            }
            None => self.take_message(receipt, whole, Some(&upload), turn),
        }
        self.grant_incoming(at, turn);
    }

    /// The rest of it will not come, or the message has no destination.
    pub(super) fn give_up(&mut self, upload: &Upload, turn: &mut Turn<'_>) {
        self.uploads.refused.remove(&upload.number);
        turn.events.push(Event::Abandon { connection: self.id, upload: upload.number });
    }
}
