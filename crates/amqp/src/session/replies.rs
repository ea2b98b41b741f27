//! Replies: what follows once the core has answered.

use std::collections::HashMap;

use postroad_model::{Parting, Refusal, Ticket};

use super::channel::ChannelAt;
use super::disposition::Verdict;
use super::incoming::Receipt;
use super::link::{Attaching, LinkAt};
use super::transaction::Discharged;
use super::{AmqpSession, Turn};
use crate::codec::Error;

/// Questions of one connection that may wait for the core. No more input is taken then until answers have come; sends
/// alone are held back earlier.
const WAITING_MAX: usize = 16_384;

/// What follows once the core has answered everything that belongs to a question.
#[derive(Debug)]
pub enum Then {
    /// Nothing.
    Nothing,
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

#[derive(Debug)]
struct Waiting {
    /// Answers that are outstanding.
    missing: u32,
    refusal: Option<Refusal>,
    then: Then,
}

/// All questions that wait.
#[derive(Default)]
pub struct Replies {
    last: u64,
    waiting: HashMap<Ticket, Waiting>,
}

impl Replies {
    /// A ticket for `answers` questions that belong together.
    pub fn wait(&mut self, answers: u32, then: Then) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.waiting.insert(ticket, Waiting { missing: answers, refusal: None, then });
        ticket
    }

    /// Says how many answers there will be; `false`, and forgotten, if none.
    pub fn expect(&mut self, ticket: Ticket, answers: u32) -> bool {
        if answers == 0 {
            self.waiting.remove(&ticket);
        } else if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.missing = answers;
        }
        answers > 0
    }

    /// Whether another question may wait.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// One answer has come; the question, if it was the last.
    fn count(&mut self, ticket: Ticket, result: Result<(), Refusal>) -> Option<Waiting> {
        let waiting = self.waiting.get_mut(&ticket)?;
        if let Err(refusal) = result {
            waiting.refusal.get_or_insert(refusal);
        }
        waiting.missing = waiting.missing.saturating_sub(1);
        if waiting.missing > 0 { None } else { self.waiting.remove(&ticket) }
    }
}

impl AmqpSession {
    pub(super) fn replied(
        &mut self,
        ticket: Ticket,
        result: Result<(), Refusal>,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let Some(Waiting { refusal, then, .. }) = self.replies.count(ticket, result) else { return Ok(()) };
        let error = refusal.as_ref().map(Error::from);
        match then {
            Then::Nothing => {}
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
            Then::Received(receipt) => self.received(&receipt, error, turn),
            Then::Settled(verdict) => self.settled(&verdict, error, turn),
            Then::Discharged(discharged) => self.discharged(*discharged, error, turn),
        }
        Ok(())
    }
}
