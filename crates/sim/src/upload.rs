//! Large messages: a client's side of the pieces, and the expected result.
//!
//! The contents of a piece follow from the number of its message, so that a reader knows whether it
//! is right.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use postroad_core::chunk_in_record;
use postroad_model::{Chunks, ConnectionId, Destination, Event, PartitionId, Publish, Ticket};

use crate::oracle::MessageNumber;

/// The pieces of a large message: all of one size, but for the last.
pub fn pieces_of(number: MessageNumber) -> Vec<Bytes> {
    let (count, size) = (1 + number % 4, 500 + number % 3000);
    let piece = |index: u64| {
        let length = if index + 1 == count { size - number % 400 } else { size };
        let filling = (0..length).map(|at| (number.wrapping_mul(13) ^ index.wrapping_mul(101) ^ at) as u8);
        filling.collect::<Vec<u8>>().into()
    };
    (0..count).map(piece).collect()
}

/// A message whose pieces are on their way. Its client says nothing else until they have all
/// arrived.
pub struct Upload {
    partition: PartitionId,
    connection: ConnectionId,
    number: u64,
    waiting: BTreeSet<Ticket>,
    refused: bool,
    publish: Box<Publish>,
}

impl Upload {
    /// Sends the pieces, each with a ticket of its own, before the message.
    pub fn begin(
        partition: PartitionId,
        number: MessageNumber,
        publish: Publish,
        mut ticket: impl FnMut() -> Ticket,
    ) -> (Upload, Vec<(PartitionId, Event)>) {
        let connection = publish.connection;
        let to: Arc<[Destination]> = publish.sent.targets().cloned().collect();
        let mut waiting = BTreeSet::new();
        let piece = |bytes: Bytes| {
            let ticket = ticket();
            waiting.insert(ticket);
            (partition, Event::Chunk { connection, upload: number, to: to.clone(), bytes, ticket })
        };
        let events = pieces_of(number).into_iter().map(piece).collect();
        let publish = Box::new(Publish { upload: Some(number), ..publish });
        (Upload { partition, connection, number, waiting, refused: false, publish }, events)
    }

    /// A piece was answered.
    pub fn answered(&mut self, ticket: Ticket, good: bool) {
        self.refused |= self.waiting.remove(&ticket) && !good;
    }

    /// Whether all pieces were answered.
    pub fn is_complete(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The message, or if a piece was refused or `gives_up` the end of it; the ticket that is not
    /// used then.
    pub fn end(self, gives_up: bool) -> ((PartitionId, Event), Option<Ticket>) {
        let Upload { partition, connection, number, refused, publish, .. } = self;
        if refused || gives_up {
            let ticket = publish.ticket;
            return ((partition, Event::Abandon { connection, upload: number }), Some(ticket));
        }
        ((partition, Event::Publish(*publish)), None)
    }
}

/// Checks one piece of a delivered message as it was read back.
///
/// # Errors
/// The fault.
pub fn check_piece(
    number: MessageNumber,
    index: usize,
    chunks: &Chunks,
    record: &Result<Bytes, String>,
) -> Result<(), String> {
    let want = pieces_of(number);
    let told = want.iter().map(|piece| piece.len() as u64).collect::<Vec<_>>();
    let named: Vec<u64> = chunks.iter().map(|(_, bytes)| bytes).collect();
    if told != named {
        return Err(format!("message {number} has pieces of {named:?} bytes, not {told:?}"));
    }
    let record = record.as_ref().map_err(|error| format!("piece {index} of message {number}: {error}"))?;
    let piece = chunk_in_record(record).map_err(|error| error.to_string())?;
    match piece.as_ref() == want.get(index) {
        true => Ok(()),
        false => Err(format!("piece {index} of message {number} is not what was sent")),
    }
}
