//! Replies: the continuations after the core's answers.

use postroad_model::{Parting, Refusal, Ticket};

use super::channel::ChannelAt;
use super::disposition::Verdict;
use super::incoming::Receipt;
use super::link::{Attaching, LinkAt};
use super::transaction::Discharged;
use super::{AmqpSession, Turn};
use crate::codec::Error;

/// The continuation once the core has answered all parts of a request.
#[derive(Debug)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// A piece of a large message.
    Piece(u64),
    /// The client's open is answered.
    Opened,
    /// The client's close is answered.
    Closed,
    /// The client's end of a channel is answered.
    Ended(ChannelAt),
    /// A link is attached, or refused.
    Attached(Box<Attaching>),
    /// The client's detach is answered.
    Left {
        /// The link.
        at: LinkAt,
        /// Whether it was closed.
        closed: bool,
    },
    /// A message of the client is safe, or refused.
    Received(Receipt),
    /// A verdict of the client is durable, which it wants to know.
    Settled(Box<Verdict>),
    /// A transaction has ended, well or badly.
    Discharged(Box<Discharged>),
}

impl AmqpSession {
    pub(super) fn replied(
        &mut self,
        ticket: Ticket,
        result: Result<(), Refusal>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let Some((then, refusal)) = self.replies.count(ticket, result) else { return Ok(()) };
        let error = refusal.as_ref().map(Error::from);
        match then {
            Then::Nothing => {}
            Then::Piece(upload) => self.piece_answered(upload, refusal, turn),
            Then::Opened => {
                return self.claimed(refusal.map_or(Ok(()), |refusal| Err(refusal.to_string())), turn);
            }
            Then::Closed => return Err(self.closed(turn)),
            Then::Ended(at) => self.ended(at, turn),
            Then::Attached(attaching) => match error {
                None => self.attached(*attaching, turn),
                Some(error) => self.not_attached(*attaching, error, turn),
            },
            Then::Left { at, closed } => self.left(at, closed, error, turn),
            Then::Received(receipt) => self.answered(&receipt, error, turn),
            Then::Settled(verdict) => self.settled(&verdict, error, turn),
            Then::Discharged(discharged) => self.discharged(*discharged, error, turn),
        }
        Ok(())
    }
}
