//! Transactions: the coordinator (part 4).
//!
//! The core applies accepted deliveries of a transaction at its commit. Other outcomes wait here
//! for it.

use std::collections::BTreeMap;

use bytes::Bytes;
use postroad_model::{ConnectionId, ConsumerKey, EntryTag, Event, Outcome, TransactionKey};

use super::channel::ChannelAt;
use super::disposition::{Meaning, Share, add_to};
use super::fault::{TIMED_OUT, error};
use super::incoming::Receipt;
use super::link::LinkAt;
use super::replies::Then;
use super::sequence::Sequence;
use super::{AmqpSession, Turn};
use crate::codec::{
    Accepted, Declared, DeliveryState, Error, Field, Reader, Rejected, TransactionStep, WireError,
};
use crate::message::{BodyKind, Sections};

/// Open transactions of one connection: a session has one at a time, and pools have hundreds of
/// sessions.
const OPEN_MAX: usize = 16_384;

/// Open transactions, by number.
#[derive(Default)]
pub struct Transactions {
    last: u64,
    open: BTreeMap<u64, Open>,
}

/// One open transaction.
#[derive(Debug, Default)]
pub struct Open {
    /// The coordinator link that it was declared on.
    link: u32,
    /// A part of it could not be done, so nothing of it may be.
    doomed: bool,
    /// Something was done in it: clients declare the next one as soon as one has ended.
    is_used: bool,
    /// Deliveries that the client has settled in it.
    settled: Vec<(ConsumerKey, EntryTag)>,
    /// Deliveries that we settle at its end.
    unsettled: Vec<(ChannelAt, Sequence)>,
    /// Outcomes that the core does not know in transactions.
    later: Vec<(Share, Meaning)>,
}

/// A transaction whose end the core decides.
#[derive(Debug)]
pub struct Discharged {
    receipt: Receipt,
    open: Open,
    commit: bool,
}

impl Transactions {
    /// The number of an open transaction.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn find(&self, id: &Bytes) -> Result<u64, Error> {
        let number = id.as_ref().try_into().map(u64::from_be_bytes).ok();
        number.filter(|number| self.open.contains_key(number)).ok_or_else(|| {
            error("amqp:transaction:unknown-id", "the transaction was not declared, or has ended")
        })
    }

    /// A part of the transaction failed without an answer to the client.
    pub fn doom(&mut self, id: &Bytes) {
        if let Ok(number) = self.find(id)
            && let Some(open) = self.open.get_mut(&number)
        {
            open.doomed = true;
        }
    }

    /// As [`Transactions::doom`], if there is one.
    pub fn doom_any(&mut self, id: Option<Bytes>) {
        if let Some(id) = id {
            self.doom(&id);
        }
    }

    /// Whether something was done in one that is open.
    pub fn is_any_used(&self) -> bool {
        self.open.values().any(|open| open.is_used || !open.settled.is_empty())
    }

    /// The core's id of it, for something that is done in it.
    pub fn key(&mut self, connection: ConnectionId, number: u64) -> TransactionKey {
        if let Some(open) = self.open.get_mut(&number) {
            open.is_used = true;
        }
        TransactionKey { connection, number }
    }
}

/// Decodes a message to the coordinator.
fn step(message: &Bytes) -> Result<TransactionStep, WireError> {
    let sections = Sections::scan(message)?;
    let body = sections.body.filter(|body| body.kind == BodyKind::Value);
    let mut reader = Reader::at(message, body.map_or(message.len(), |body| body.span.start));
    reader.descriptor()?;
    TransactionStep::read(&mut reader)
}

impl AmqpSession {
    /// A message for the coordinator.
    pub(super) fn coordinate(&mut self, receipt: Receipt, message: &Bytes, turn: &mut Turn<'_>) {
        let refused = |error| DeliveryState::Rejected(Rejected { error: Some(error) });
        if receipt.settled {
            let error = error("amqp:not-allowed", "the coordinator's answer must be waited for (4.2)");
            return self.detach_by(receipt.at, error, turn);
        }
        let state = match step(message) {
            Err(wire) => refused(error("amqp:decode-error", wire.to_string())),
            Ok(TransactionStep::Declare(declare)) if declare.global_id.is_some() => {
                refused(error("amqp:not-implemented", "distributed transactions are not supported"))
            }
            Ok(TransactionStep::Declare(_)) if self.transactions.open.len() >= OPEN_MAX => {
                let text = format!("the limit is {OPEN_MAX} open transactions on a connection");
                refused(error("amqp:resource-limit-exceeded", text))
            }
            Ok(TransactionStep::Declare(_)) => {
                self.transactions.last += 1;
                let number = self.transactions.last;
                self.transactions.open.insert(number, Open { link: receipt.at.number, ..Open::default() });
                let txn_id = Bytes::copy_from_slice(&number.to_be_bytes());
                DeliveryState::Declared(Declared { txn_id })
            }
            Ok(TransactionStep::Discharge(discharge)) => match self.transactions.find(&discharge.txn_id) {
                Ok(number) => return self.discharge(number, discharge.fail, receipt, turn),
                Err(error) => refused(error),
            },
        };
        self.answer_controller(&receipt, state, turn);
    }

    /// A client without support for rejected loses its link by one (4.2).
    fn answer_controller(&mut self, receipt: &Receipt, state: DeliveryState, turn: &mut Turn<'_>) {
        let incoming = self.link_at(receipt.at).and_then(|link| link.end.incoming());
        match state {
            DeliveryState::Rejected(Rejected { error: Some(error) })
                if incoming.is_some_and(|incoming| !incoming.knows_rejected()) =>
            {
                self.detach_by(receipt.at, error, turn);
            }
            state => self.answer_receipt(receipt, state, turn),
        }
    }

    fn discharge(&mut self, number: u64, fail: bool, receipt: Receipt, turn: &mut Turn<'_>) {
        if self.has_part_of(number) {
            let text = "a part of a message was sent in the transaction, and not its end (4.4.1)";
            return self.detach_by(receipt.at, error("amqp:transaction:rollback", text), turn);
        }
        let Some(open) = self.transactions.open.remove(&number) else { return };
        if !fail && open.doomed {
            self.roll_back(number, open, turn);
            let error = error("amqp:transaction:rollback", "a message of the transaction was refused");
            return self.answer_controller(&receipt, rejected(error), turn);
        }
        let transaction = self.transactions.key(self.id, number);
        let discharged = Discharged { receipt, open, commit: !fail };
        let ticket = self.replies.wait(1, Then::Discharged(Box::new(discharged)));
        turn.events.push(match fail {
            true => Event::Rollback { transaction, ticket: Some(ticket) },
            false => Event::Commit { transaction, participants: Vec::new(), ticket },
        });
    }

    /// Whether the end of a message is still to come that was begun in a transaction.
    fn has_part_of(&mut self, number: u64) -> bool {
        let txn_id = Bytes::copy_from_slice(&number.to_be_bytes());
        let mut links = self.channels.values_mut().flat_map(|known| known.links.values_mut());
        links.any(|link| link.end.incoming().is_some_and(|incoming| incoming.has_part_of(&txn_id)))
    }

    /// The core has ended a transaction.
    pub(super) fn discharged(&mut self, discharged: Discharged, refusal: Option<Error>, turn: &mut Turn<'_>) {
        let Discharged { receipt, open, commit } = discharged;
        let state = match refusal {
            Some(refusal) if commit => {
                let timed_out = refusal.condition == *TIMED_OUT;
                let condition = if timed_out { TIMED_OUT } else { "amqp:transaction:rollback" };
                rejected(error(condition, refusal.description.unwrap_or_default()))
            }
            _ => DeliveryState::Accepted(Accepted {}),
        };
        match (&state, commit) {
            (DeliveryState::Accepted(_), true) => self.committed(open, turn),
            _ => self.rolled_back(open, turn),
        }
        self.answer_controller(&receipt, state, turn);
    }

    fn committed(&mut self, open: Open, turn: &mut Turn<'_>) {
        for (share, meaning) in open.later {
            self.push_settle(share, &meaning, None, turn);
        }
        for (at, sequence) in open.unsettled {
            let known = self.channel_at(at).and_then(|known| known.unsettled.remove(&sequence));
            if known.is_some() {
                let accepted = DeliveryState::Accepted(Accepted {});
                self.tell_settled(at, (sequence, sequence), accepted, turn);
            }
        }
    }

    /// Deliveries that the client had settled have their source's default outcome (4.4.4.2):
    /// without one they go back to their queue, counted as delivered. Unsettled ones stay with the
    /// client.
    fn rolled_back(&mut self, open: Open, turn: &mut Turn<'_>) {
        let mut shares = Vec::new();
        for (consumer, tag) in open.settled {
            add_to(&mut shares, consumer, tag);
        }
        let back = Meaning { outcome: Outcome::Released { failed: true }, reason: None };
        for share in shares {
            let default = self.default_outcome(share.consumer);
            let meaning = default.as_ref().and_then(Meaning::of);
            self.push_settle(share, meaning.as_ref().unwrap_or(&back), None, turn);
        }
        for (at, sequence) in open.unsettled {
            if let Some(held) = self.channel_at(at).and_then(|known| known.unsettled.get_mut(&sequence)) {
                held.transaction = None;
            }
        }
    }

    fn roll_back(&mut self, number: u64, open: Open, turn: &mut Turn<'_>) {
        let transaction = self.transactions.key(self.id, number);
        turn.events.push(Event::Rollback { transaction, ticket: None });
        self.rolled_back(open, turn);
    }

    /// A coordinator link is gone: its open transactions fail (4.3).
    pub(super) fn abandon_transactions(&mut self, link: u32, turn: &mut Turn<'_>) {
        let is_its = |(number, open): (&u64, &Open)| (open.link == link).then_some(*number);
        let numbers: Vec<u64> = self.transactions.open.iter().filter_map(is_its).collect();
        for number in numbers {
            if let Some(open) = self.transactions.open.remove(&number) {
                self.roll_back(number, open, turn);
            }
        }
    }

    /// Whether another transaction decides already about one of these deliveries.
    pub(super) fn is_of_another(
        &mut self,
        at: ChannelAt,
        (first, last): (Sequence, Sequence),
        transaction: u64,
    ) -> bool {
        let Some(known) = self.channel_at(at) else { return false };
        let mut deciding = known.unsettled.range(first..=last).filter_map(|(_, held)| held.transaction);
        deciding.any(|number| number != transaction)
    }

    /// A delivery was to be settled in two transactions: the later one's coordinator ends, with its
    /// transactions (4.4.2).
    pub(super) fn end_coordinator(&mut self, transaction: u64, turn: &mut Turn<'_>) {
        let Some(number) = self.transactions.open.get(&transaction).map(|open| open.link) else { return };
        let at = self.channels.iter().find_map(|(channel, known)| {
            let (handle, _) = known.links.iter().find(|(_, link)| link.number == number)?;
            Some(LinkAt { channel: *channel, handle: *handle, number })
        });
        if let Some(at) = at {
            let text = "the delivery belongs to another transaction already (4.4.2)";
            self.detach_by(at, error("amqp:transaction:rollback", text), turn);
        }
    }

    /// A verdict that holds only if its transaction commits.
    pub(super) fn settle_in_transaction(
        &mut self,
        at: ChannelAt,
        (first, last): (Sequence, Sequence),
        transaction: u64,
        meaning: &Meaning,
        settled: bool,
        turn: &mut Turn<'_>,
    ) {
        let Some(known) = self.channels.get_mut(&at.channel).filter(|known| known.number == at.number) else {
            return;
        };
        let Some(open) = self.transactions.open.get_mut(&transaction) else { return };
        let mut shares: Vec<Share> = Vec::new();
        let (mut gone, free) = (Vec::new(), known.unsettled.range_mut(first..=last));
        for (sequence, held) in free.filter(|(_, held)| held.transaction.is_none()) {
            held.transaction = Some(transaction);
            if settled {
                gone.push(*sequence);
                open.settled.push((held.consumer, held.tag));
            } else {
                open.unsettled.push((at, *sequence));
            }
            if !held.browses {
                add_to(&mut shares, held.consumer, held.tag);
            }
        }
        for sequence in gone {
            known.unsettled.remove(&sequence);
        }
        let accepts = meaning.outcome == Outcome::Accepted;
        if !accepts {
            open.later.extend(shares.iter().cloned().map(|share| (share, meaning.clone())));
            return;
        }
        for share in shares {
            self.push_settle(share, meaning, Some(transaction), turn);
        }
    }
}

fn rejected(error: Error) -> DeliveryState {
    DeliveryState::Rejected(Rejected { error: Some(error) })
}
