//! Deliveries out and verdicts back: the message of a client's acknowledgement, and the credit that
//! it returns.
//!
//! Deliveries are numbered over the connection. The number travels as the message id's broker
//! sequence, which clients send back in every acknowledgement, so finding a message is a binary
//! search. A client that has reconnected may still acknowledge deliveries of another connection:
//! then the message id itself is looked up.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::portable::{Translate, TranslationError};
use postroad_model::{
    ConsumerKey, Delivered, Delivery, EntryTag, Event, Message, Outcome, Parting, Protocol, Settle,
    TransactionKey,
};

use super::consumer::ConsumerNumber;
use super::dead_letter::redelivered_by_policy;
use super::download::Download;
use super::exception::Exception;
use super::producer::own_producer;
use super::replies::Then;
use super::{Done, OpenWireSession, Turn};
use crate::codec::{
    Destination, DispatchHeader, MessageAck, MessageId, Patch, WireError, WireString, encode_dispatch,
    open_content,
};
use crate::portable::{TranslatedId, write_portable};

/// One delivery that the client has not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub sequence: u64,
    /// Which part of the consumer it came to.
    pub part: ConsumerNumber,
    /// Of a part that reads a pattern of queues, the member; see [`ConsumerKey::member`].
    pub member: u32,
    /// The core's name for it.
    pub tag: EntryTag,
    /// The client's name for it.
    message_id: Option<MessageId>,
    /// The client got credit for it already.
    credited: bool,
    /// The transaction in which it was acknowledged.
    transaction: Option<u64>,
}

/// A consumer's unsettled deliveries, in order of sending.
#[derive(Default)]
pub struct Window {
    held: VecDeque<Held>,
    /// The client has said that everything up to this number arrived, and got credit for it.
    arrived_through: u64,
}

/// One part's share of an acknowledgement.
struct Share {
    part: ConsumerNumber,
    member: u32,
    tags: Vec<EntryTag>,
    credit: u32,
}

impl Held {
    /// It was delivered, with all before it.
    pub fn through(&self) -> Delivered {
        Delivered::Through { member: self.member, tag: self.tag }
    }
}

impl Window {
    /// All that is held, in order.
    pub fn held(&self) -> impl Iterator<Item = &Held> {
        self.held.iter()
    }

    /// The last delivery to a part.
    fn last(&self, part: u32) -> Option<&Held> {
        self.held.iter().rev().find(|held| held.part.0 == part)
    }

    /// A transaction was committed: its acknowledgements are final.
    pub fn committed(&mut self, transaction: u64) {
        self.held.retain(|held| held.transaction != Some(transaction));
    }

    /// A transaction was rolled back: its acknowledged messages are held again.
    pub fn rolled_back(&mut self, transaction: u64) {
        for held in &mut self.held {
            if held.transaction == Some(transaction) {
                held.transaction = None;
            }
        }
    }

    /// Indexes of the first and after the last delivery that an acknowledgement covers.
    ///
    /// # Errors
    /// Its last one is not held. Or it consumes a range whose first one was dispatched after its
    /// last: a client that reorders its prefetch means others than those between the two.
    fn range(&self, ack: &MessageAck) -> Result<(usize, usize), &'static str> {
        let last = ack.last_message_id.as_ref().and_then(|last| self.find(last)).ok_or(NOT_HELD)?;
        let first = match (ack.ack_type, &ack.first_message_id) {
            (MessageAck::INDIVIDUAL, _) | (_, None) => None,
            (_, Some(first)) => self.find(first),
        };
        match ack.ack_type {
            MessageAck::INDIVIDUAL => Ok((last, last + 1)),
            MessageAck::STANDARD | MessageAck::POISON if first.is_some_and(|first| last < first) => {
                Err(REVERSED)
            }
            _ => Ok((first.unwrap_or(0).min(last), last + 1)),
        }
    }

    fn find(&self, id: &MessageId) -> Option<usize> {
        let is_meant = |held: &Held| {
            held.message_id.as_ref().is_some_and(|known| {
                known.producer_sequence_id == id.producer_sequence_id && known.producer_id == id.producer_id
            })
        };
        let sequence = u64::try_from(id.broker_sequence_id).ok()?;
        let index = self.held.binary_search_by_key(&sequence, |held| held.sequence);
        index
            .ok()
            .filter(|index| is_meant(&self.held[*index]))
            .or_else(|| self.held.iter().position(is_meant))
    }

    /// The client has the deliveries before index `end`: returns credit for those that had not
    /// given any yet.
    fn arrived(&mut self, end: usize) -> Vec<Share> {
        let first = self.held.partition_point(|held| held.sequence <= self.arrived_through);
        if end <= first {
            return Vec::new();
        }
        self.arrived_through = self.held[end - 1].sequence;
        self.settle((first, end), |_| Keep::Credited)
    }

    /// Goes through a range: `each` decides about a delivery that is in no transaction yet.
    fn settle(
        &mut self,
        (first, end): (usize, usize),
        mut each: impl FnMut(&mut Held) -> Keep,
    ) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::with_capacity(1);
        let mut gone = 0;
        for held in self.held.range_mut(first..end).filter(|held| held.transaction.is_none()) {
            let credit = u32::from(!held.credited);
            let keep = each(held);
            let (part, member, tag) = (held.part, held.member, held.tag);
            let of_same = |share: &Share| share.part == part && share.member == member;
            let index = shares.iter().position(of_same).unwrap_or_else(|| {
                shares.push(Share { part, member, tags: Vec::with_capacity(end - first), credit: 0 });
                shares.len() - 1
            });
            shares[index].tags.push(tag);
            match keep {
                Keep::Gone => {
                    held.transaction = Some(GONE);
                    gone += 1;
                    shares[index].credit += credit;
                }
                Keep::Credited => {
                    held.credited = true;
                    shares[index].credit += credit;
                }
            }
        }
        if gone == end - first {
            self.held.drain(first..end);
        } else if gone > 0 {
            self.committed(GONE);
        }
        shares
    }
}

/// Why an acknowledgement is refused.
const NOT_HELD: &str = "MessageAck for a message that this consumer does not hold";
const REVERSED: &str = "MessageAck whose first message was dispatched after its last: a range goes in \
     the order of the dispatch; acknowledge messages that the client has reordered one by one";

/// Marks deliveries that leave the window; no transaction has this number.
const GONE: u64 = u64::MAX;

enum Keep {
    Gone,
    Credited,
}

impl OpenWireSession {
    /// Sends a message to the client.
    ///
    /// # Errors
    /// [`Parting::Fault`]: the client has agreed to frames too small for it, and would never get
    /// it.
    pub(super) fn deliver(&mut self, delivery: Delivery, turn: &mut Turn<'_>) -> Result<(), Parting> {
        let Delivery { consumer: key, source, tag, failed_deliveries, by_policy, .. } = delivery;
        let (first_of_group, message) = (delivery.first_of_group, delivery.message);
        let Some(consumer) = self.consumers.by_number(key.number) else { return Ok(()) };
        let Some(part) = consumer.parts.iter().find(|part| part.number.0 == key.number) else {
            return Ok(());
        };
        let source = source.map(|queue| Destination::Queue((*queue.name).into()));
        let known = source.as_ref().or((!part.is_pattern).then_some(&part.destination));
        let at = known.unwrap_or(&part.destination);
        let stored = in_openwire(&message, tag, at, self.translate, self.format.version);
        let (bytes, version) = match stored {
            Ok((bytes, version)) if by_policy => (redelivered_by_policy(&bytes, version), version),
            Ok(stored) => stored,
            Err(error) => {
                self.reject(key, tag, &error.to_string(), turn);
                return Ok(());
            }
        };
        self.next_command_id = self.next_command_id.wrapping_add(1);
        self.next_delivery += 1;
        let sequence = self.next_delivery;
        let header = DispatchHeader {
            command_id: self.next_command_id,
            consumer_id: &consumer.id,
            destination: known,
            redelivery_counter: i32::try_from(failed_deliveries).unwrap_or(i32::MAX),
        };
        let is_own = message.encoding.protocol == Protocol::OpenWire;
        let patch = Patch {
            broker_sequence_id: Some(sequence as i64),
            broker_out_time_ms: Some(turn.now.wall_ms as i64),
            // A policy may have made it another than the producer's; a translated message says it
            // already.
            expiration_ms: i64::try_from(message.expires_at_ms).ok().filter(|_| is_own),
            group_first_for_consumer: message.group().map(|_| first_of_group),
            ..Patch::default()
        };
        let part = part.number;
        let start = turn.output.len();
        let sent = encode_dispatch(&mut self.format, &header, &bytes, version, &patch, turn.output);
        let sent = match message.chunks() {
            Some(chunks) => sent.and_then(|message_id| {
                let left = chunks.bytes;
                let tail = open_content(&self.format, turn.output, start, left)?;
                self.download = Some(Download { consumer: key, tag, left, tail });
                Ok(message_id)
            }),
            None => sent,
        };
        let message_id = match sent {
            Ok(message_id) if is_own => message_id,
            // The translated copy must not live as long as the client keeps the message.
            Ok(message_id) => message_id.map(own_id),
            Err(error) => return self.undeliverable((key, tag, is_own), &error, turn),
        };
        if !consumer.browses {
            let member = key.member;
            let held = Held { sequence, part, member, tag, message_id, credited: false, transaction: None };
            consumer.window.held.push_back(held);
        }
        self.pull_satisfied(key.number);
        self.liveness.wrote(turn.now.ticks_ms);
        Ok(())
    }

    /// A message that only this client cannot receive goes back, untouched; one that no client can
    /// receive, such as one that came by a protocol with larger frames, would come again and again.
    fn undeliverable(
        &mut self,
        (consumer, tag, is_own): (ConsumerKey, EntryTag, bool),
        error: &WireError,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let fits_nobody = match error {
            WireError::FrameTooLarge { got_bytes, .. } => {
                !is_own && self.options.max_frame_bytes < *got_bytes
            }
            _ => true,
        };
        if fits_nobody {
            self.reject(consumer, tag, &error.to_string(), turn);
            return Ok(());
        }
        // It leaves the queue too: a returned message would come again at once, and count as
        // delivered.
        let sent =
            self.consumers.by_number(consumer.number).and_then(|known| known.window.last(consumer.number));
        let delivered = sent.map_or(Delivered::None, Held::through);
        turn.events.push(Event::Detach { consumer: consumer.whole(), delivered, ticket: None });
        let text = format!("a message is too large for the MaxFrameSize that the client agreed to: {error}");
        self.send_connection_error(&Exception::io(&text), turn);
        Err(Parting::Fault(text))
    }

    /// This message cannot be encoded in OpenWire: it becomes a dead letter, and the consumer gets
    /// another one for it.
    pub(super) fn reject(&mut self, consumer: ConsumerKey, tag: EntryTag, reason: &str, turn: &mut Turn<'_>) {
        turn.events.push(Event::Settle(Settle::rejected(consumer, tag, reason)));
        if self.consumers.by_number(consumer.number).is_some_and(|known| known.wants_another()) {
            turn.events.push(Event::Credit { consumer: consumer.whole(), add: 1 });
        }
    }

    /// The client's verdict on one or several deliveries.
    pub(super) fn acknowledge(&mut self, ack: &MessageAck, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let Some(consumer) = ack.consumer_id.as_ref().and_then(|id| self.consumers.get_mut(id)) else {
            self.doom_by(ack)?;
            return Err(Exception::jms("MessageAck for a consumer that does not exist"));
        };
        if consumer.browses {
            return self.browsed(ack, turn);
        }
        let transaction = match &ack.transaction_id {
            Some(id) => Some(self.transactions.find(id)?),
            None => None,
        };
        let range = match consumer.window.range(ack) {
            Ok(range) => range,
            // Applications acknowledge one message several times: it is done.
            Err(_) if transaction.is_none() && ack.ack_type == MessageAck::INDIVIDUAL => {
                return Ok(Done::Now);
            }
            Err(why) => {
                // Committing the rest of the transaction without this would do half of it.
                self.transactions.doom(transaction);
                return Err(Exception::jms(why));
            }
        };
        let (outcome, shares) = match ack.ack_type {
            MessageAck::DELIVERED => {
                let shares = consumer.window.arrived(range.1);
                self.grant(&shares, turn);
                return Ok(Done::Now);
            }
            // The client delivers them to the application again by itself; the count rises when it
            // gives them back.
            MessageAck::REDELIVERED => return Ok(Done::Now),
            MessageAck::POISON => (Outcome::Rejected, consumer.window.settle(range, |_| Keep::Gone)),
            MessageAck::STANDARD | MessageAck::INDIVIDUAL | MessageAck::UNMATCHED | MessageAck::EXPIRED => {
                let expired = ack.ack_type == MessageAck::EXPIRED;
                let shares = consumer.window.settle(range, |held| in_transaction(held, transaction));
                (if expired { Outcome::Expired } else { Outcome::Accepted }, shares)
            }
            other => return Err(Exception::jms(&format!("acknowledgement type {other} is unknown"))),
        };
        let key = transaction.map(|number| self.transactions.key(self.id, number));
        Ok(self.settle(outcome, shares, key, ack, turn))
    }

    /// The broker may have closed the consumer, and its messages are delivered again: to commit the
    /// rest would do half of it.
    fn doom_by(&mut self, ack: &MessageAck) -> Result<(), Exception> {
        if let Some(id) = &ack.transaction_id
            && !matches!(ack.ack_type, MessageAck::DELIVERED | MessageAck::REDELIVERED)
        {
            let transaction = self.transactions.find(id)?;
            self.transactions.doom(Some(transaction));
        }
        Ok(())
    }

    fn settle(
        &mut self,
        outcome: Outcome,
        shares: Vec<Share>,
        transaction: Option<TransactionKey>,
        ack: &MessageAck,
        turn: &mut Turn<'_>,
    ) -> Done {
        self.grant(&shares, turn);
        let reason = reason(ack);
        let ticket = (ack.response_required && !shares.is_empty())
            .then(|| self.wait(shares.len() as u32, None, Then::Respond));
        for Share { part, member, tags, .. } in shares {
            let consumer = self.key(part).with_member(member);
            turn.events.push(Event::Settle(Settle {
                consumer,
                tags,
                outcome,
                transaction,
                reason: reason.clone(),
                ticket,
            }));
        }
        ticket.map_or(Done::Now, Done::Later)
    }

    /// Settled messages make room for more; with prefetch 0 the client asks for each message
    /// instead.
    fn grant(&mut self, shares: &[Share], turn: &mut Turn<'_>) {
        for share in shares.iter().filter(|share| share.credit > 0) {
            let pulls = self.consumers.by_number(share.part.0).is_none_or(|consumer| consumer.prefetch == 0);
            if !pulls {
                let consumer = self.key(share.part);
                turn.events.push(Event::Credit { consumer, add: share.credit });
            }
        }
    }

    /// A browser takes nothing; messages that it has seen make room for more.
    fn browsed(&mut self, ack: &MessageAck, turn: &mut Turn<'_>) -> Result<Done, Exception> {
        let consumer = ack.consumer_id.as_ref().and_then(|id| self.consumers.get_mut(id));
        let add = u32::try_from(ack.message_count).unwrap_or(0);
        let numbers: Vec<_> = consumer
            .iter()
            .flat_map(|consumer| &consumer.parts)
            .map(|part| part.number)
            .filter(|_| add > 0)
            .collect();
        for number in numbers {
            turn.events.push(Event::Credit { consumer: self.key(number), add });
        }
        Ok(Done::Now)
    }
}

/// The message in its stored form, and the version of that; a message of another protocol is
/// translated.
pub fn in_openwire(
    message: &Message,
    tag: EntryTag,
    at: &Destination,
    translate: Translate,
    version: u8,
) -> Result<(Bytes, u8), TranslationError> {
    if message.encoding.protocol == Protocol::OpenWire {
        return Ok((message.bytes.clone(), message.encoding.version));
    }
    let id = TranslatedId { tag, stored: &message.bytes };
    Ok((write_portable(&translate(message)?, id, at, version)?, version))
}

/// As much of an id as finds the delivery again, in memory of its own.
fn own_id(id: MessageId) -> MessageId {
    MessageId { text_view: None, producer_id: id.producer_id.as_ref().map(own_producer), ..id }
}

/// Why the client rejects a message: its exception as Java shows it.
fn reason(ack: &MessageAck) -> Option<Arc<str>> {
    let cause = ack.poison_cause.as_ref()?;
    let text = |text: &Option<WireString>| text.as_ref().map(|text| text.to_str().into_owned());
    let parts = [text(&cause.class_name), text(&cause.message)];
    Some(parts.into_iter().flatten().collect::<Vec<_>>().join(": ").into())
}

/// In a transaction a delivery stays in the window until the end of it, but makes room at once.
fn in_transaction(held: &mut Held, transaction: Option<u64>) -> Keep {
    match transaction {
        Some(number) => {
            held.transaction = Some(number);
            Keep::Credited
        }
        None => Keep::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: ConsumerNumber = ConsumerNumber(1);

    fn id(sequence: i64) -> MessageId {
        MessageId { producer_sequence_id: sequence, broker_sequence_id: sequence, ..MessageId::default() }
    }

    fn window(sequences: impl IntoIterator<Item = u64>) -> Window {
        let held = |sequence| Held {
            sequence,
            part: PART,
            member: 0,
            tag: EntryTag(sequence * 10),
            message_id: Some(id(sequence as i64)),
            credited: false,
            transaction: None,
        };
        Window { held: sequences.into_iter().map(held).collect(), ..Window::default() }
    }

    fn ack(ack_type: u8, first: Option<i64>, last: i64) -> MessageAck {
        let (first_message_id, last_message_id) = (first.map(id), Some(id(last)));
        MessageAck { ack_type, first_message_id, last_message_id, ..MessageAck::default() }
    }

    #[test]
    fn a_message_is_found_by_its_id_where_its_number_is_another_connections() {
        let renumbered = MessageId { broker_sequence_id: 3, ..id(5) };
        assert_eq!(window([1, 3, 5]).find(&renumbered), Some(2));
    }

    #[test]
    fn acknowledgements_cover_what_was_sent_between_their_ends() {
        for (case, ack, want) in [
            ("range", ack(MessageAck::STANDARD, Some(3), 5), Ok((1, 3))),
            ("from the beginning", ack(MessageAck::STANDARD, None, 5), Ok((0, 3))),
            ("one", ack(MessageAck::INDIVIDUAL, Some(1), 5), Ok((2, 3))),
            ("the first is the last", ack(MessageAck::STANDARD, Some(5), 5), Ok((2, 3))),
            ("first is settled already", ack(MessageAck::STANDARD, Some(2), 3), Ok((0, 2))),
            ("last is not held", ack(MessageAck::STANDARD, Some(3), 6), Err(NOT_HELD)),
            ("first after last", ack(MessageAck::STANDARD, Some(5), 3), Err(REVERSED)),
            ("poison, first after last", ack(MessageAck::POISON, Some(5), 3), Err(REVERSED)),
            ("one, first after it", ack(MessageAck::INDIVIDUAL, Some(5), 3), Ok((1, 2))),
            ("delivered, first after last", ack(MessageAck::DELIVERED, Some(5), 3), Ok((1, 2))),
            ("redelivered, first after last", ack(MessageAck::REDELIVERED, Some(5), 3), Ok((1, 2))),
        ] {
            assert_eq!(window([1, 3, 5, 7]).range(&ack), want, "case: {case}");
        }
    }

    #[test]
    fn credit_is_returned_once() {
        let mut window = window([1, 2, 3]);
        let credit = |shares: Vec<Share>| shares.iter().map(|share| share.credit).sum::<u32>();
        assert_eq!(
            (credit(window.arrived(1)), credit(window.arrived(2)), credit(window.arrived(2))),
            (1, 1, 0)
        );
        assert_eq!(credit(window.settle((0, 3), |held| in_transaction(held, Some(7)))), 1);
        window.rolled_back(7);
        assert_eq!(credit(window.settle((0, 3), |_| Keep::Gone)), 0);
        assert_eq!(window.held().count(), 0);
    }

    #[test]
    fn a_commit_ends_what_was_acknowledged_in_it_and_nothing_else() {
        let mut window = window([1, 2, 3]);
        window.settle((0, 1), |held| in_transaction(held, Some(7)));
        window.settle((1, 2), |held| in_transaction(held, Some(8)));
        window.committed(7);
        window.rolled_back(8);
        let held: Vec<_> = window.held().map(|held| (held.sequence, held.transaction)).collect();
        assert_eq!(held, [(2, None), (3, None)]);
    }
}
