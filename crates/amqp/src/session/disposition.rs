//! Verdicts: the client's outcomes of deliveries (2.7.6, 3.4), and the outcomes of its own
//! messages.

use std::sync::Arc;

use bytes::BytesMut;
use postroad_model::{ConsumerKey, EntryTag, Event, Outcome, Settle};

use super::channel::ChannelAt;
use super::fault::Fault;
use super::link::LinkEnd;
use super::outgoing::UNSETTLED_MAX;
use super::replies::Then;
use super::sequence::Sequence;
use super::{AmqpSession, Turn};
use crate::codec::{
    Accepted, DeliveryState, Disposition, Error, Field, FrameKind, Modified, Performative, Rejected,
    Released, Role, begin_frame, end_frame,
};

/// A delivery that the client has not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The consumer that the core sent it to.
    pub consumer: ConsumerKey,
    /// The core's name for it.
    pub tag: EntryTag,
    /// Nothing was taken from the queue.
    pub browses: bool,
    /// The transaction that decides about it.
    pub transaction: Option<u64>,
}

/// A verdict that the client wants to know of, once it is durable.
#[derive(Debug)]
pub struct Verdict {
    channel: ChannelAt,
    first: Sequence,
    last: Sequence,
    state: DeliveryState,
    shares: Vec<Share>,
}

/// One consumer's share of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The core's name for the consumer.
    pub consumer: ConsumerKey,
    /// Its entries.
    pub tags: Vec<EntryTag>,
}

/// The meaning of a state for the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The outcome of the message.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Arc<str>>,
}

impl Meaning {
    /// `None`: no outcome, the delivery goes on.
    pub fn of(state: &DeliveryState) -> Option<Meaning> {
        let plain = |outcome| Some(Meaning { outcome, reason: None });
        match state {
            DeliveryState::Accepted(_) => plain(Outcome::Accepted),
            DeliveryState::Released(_) => plain(Outcome::Released { failed: false }),
            DeliveryState::Rejected(Rejected { error }) => {
                let reason = error.as_ref().map(|error| reason(error).into());
                Some(Meaning { outcome: Outcome::Rejected, reason })
            }
            // It must not come to this link again, and no queue can promise that to one of its
            // consumers.
            DeliveryState::Modified(Modified { undeliverable_here: true, .. }) => {
                let reason = Some("the consumer cannot process it (undeliverable-here)".into());
                Some(Meaning { outcome: Outcome::Rejected, reason })
            }
            DeliveryState::Modified(Modified { delivery_failed, .. }) => {
                plain(Outcome::Released { failed: *delivery_failed })
            }
            _ => None,
        }
    }
}

fn reason(error: &Error) -> String {
    match &error.description {
        Some(description) => format!("{}: {description}", error.condition),
        None => error.condition.to_string(),
    }
}

impl AmqpSession {
    pub(super) fn dispose(
        &mut self,
        channel: u16,
        disposition: Disposition,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        if disposition.role == Role::Sender {
            self.settled_by_sender(channel, &disposition, turn);
            return Ok(());
        }
        let Some(known) = self.channels.get(&channel) else { return Ok(()) };
        let next = known.next_delivery;
        let first = next.nearest(disposition.first);
        let last = next.nearest(disposition.last.unwrap_or(disposition.first));
        let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
        if last < first || next <= first {
            return Ok(());
        }
        let at = ChannelAt { channel, number: known.number };
        let was_full = known.unsettled.len() >= UNSETTLED_MAX / 2;
        let last = last.min(Sequence(next.0 - 1));
        match (disposition.state, disposition.settled) {
            (Some(DeliveryState::TransactionalState(state)), settled) => {
                let number = self.transactions.find(&state.txn_id);
                let number =
                    number.map_err(|error| Fault { reach: super::fault::Reach::Channel(channel), error })?;
                let meaning = state.outcome.as_deref().and_then(Meaning::of);
                let meaning = meaning.unwrap_or(Meaning { outcome: Outcome::Accepted, reason: None });
                if self.is_of_another(at, (first, last), number) {
                    self.end_coordinator(number, turn);
                    return Ok(());
                }
                self.settle_in_transaction(at, (first, last), number, &meaning, settled, turn);
            }
            (state, true) => self.settle_now(at, (first, last), state.as_ref(), turn),
            (Some(state), false) => {
                if let Some(meaning) = Meaning::of(&state) {
                    self.settle_and_tell(at, (first, last), state, &meaning, turn);
                }
            }
            (None, false) => {}
        }
        if was_full {
            self.grant_channel(channel, turn);
        }
        Ok(())
    }

    /// Takes deliveries out of a channel, by consumer; those that a transaction decides about stay.
    fn take_held(&mut self, at: ChannelAt, (first, last): (Sequence, Sequence)) -> Vec<Share> {
        let Some(known) = self.channel_at(at) else { return Vec::new() };
        let in_range = known.unsettled.range(first..=last);
        let free = in_range.filter(|(_, held)| held.transaction.is_none());
        let sequences: Vec<Sequence> = free.map(|(sequence, _)| *sequence).collect();
        let mut shares: Vec<Share> = Vec::with_capacity(1);
        for sequence in sequences {
            let Some(held) = known.unsettled.remove(&sequence).filter(|held| !held.browses) else { continue };
            add_to(&mut shares, held.consumer, held.tag);
        }
        shares
    }

    /// The client has settled: it does not wait for a word.
    fn settle_now(
        &mut self,
        at: ChannelAt,
        range: (Sequence, Sequence),
        state: Option<&DeliveryState>,
        turn: &mut Turn<'_>,
    ) {
        for share in self.take_held(at, range) {
            let default = self.default_outcome(share.consumer);
            let meaning = state.and_then(Meaning::of).or(default.as_ref().and_then(Meaning::of));
            let meaning =
                meaning.unwrap_or(Meaning { outcome: Outcome::Released { failed: false }, reason: None });
            self.push_settle(share, &meaning, None, turn);
        }
    }

    pub(super) fn default_outcome(&mut self, consumer: ConsumerKey) -> Option<DeliveryState> {
        let at = self.consumers.get(&consumer.number).copied()?;
        match &self.link_at(at)?.end {
            LinkEnd::Outgoing(outgoing) => outgoing.default_outcome.as_deref().cloned(),
            _ => None,
        }
    }

    pub(super) fn push_settle(
        &mut self,
        share: Share,
        meaning: &Meaning,
        transaction: Option<u64>,
        turn: &mut Turn<'_>,
    ) {
        let transaction = transaction.map(|number| self.transactions.key(self.id, number));
        turn.events.push(Event::Settle(Settle {
            consumer: share.consumer,
            tags: share.tags,
            outcome: meaning.outcome,
            transaction,
            reason: meaning.reason.clone(),
            ticket: None,
        }));
    }

    /// The client waits for us to settle, which is once the verdict is durable.
    fn settle_and_tell(
        &mut self,
        at: ChannelAt,
        (first, last): (Sequence, Sequence),
        state: DeliveryState,
        meaning: &Meaning,
        turn: &mut Turn<'_>,
    ) {
        let shares = self.take_held(at, (first, last));
        let verdict = Verdict { channel: at, first, last, state, shares: shares.clone() };
        let ticket = self.replies.wait(0, Then::Settled(Box::new(verdict)));
        for Share { consumer, tags } in shares.iter().cloned() {
            turn.events.push(Event::Settle(Settle {
                consumer,
                tags,
                outcome: meaning.outcome,
                transaction: None,
                reason: meaning.reason.clone(),
                ticket: Some(ticket),
            }));
        }
        if !self.replies.expect(ticket, shares.len() as u32) {
            self.tell_settled(at, (first, last), state_of(meaning), turn);
        }
    }

    /// A verdict is durable, or could not be made so.
    pub(super) fn settled(&mut self, verdict: &Verdict, error: Option<Error>, turn: &mut Turn<'_>) {
        let range = (verdict.first, verdict.last);
        if error.is_none() {
            return self.tell_settled(verdict.channel, range, verdict.state.clone(), turn);
        }
        let back = Meaning { outcome: Outcome::Released { failed: true }, reason: None };
        for share in verdict.shares.clone() {
            self.push_settle(share, &back, None, turn);
        }
        self.tell_settled(verdict.channel, range, DeliveryState::Released(Released {}), turn);
    }

    /// Notifies the client that deliveries are settled.
    pub(super) fn tell_settled(
        &mut self,
        at: ChannelAt,
        (first, last): (Sequence, Sequence),
        state: DeliveryState,
        turn: &mut Turn<'_>,
    ) {
        let Some(outgoing) = self.channel_at(at).map(|known| known.outgoing) else { return };
        let disposition = Disposition {
            role: Role::Sender,
            first: first.wire(),
            last: (first != last).then(|| last.wire()),
            settled: true,
            state: Some(state),
            batchable: false,
        };
        self.send(outgoing, disposition, turn);
    }

    /// Notifies the client that its message is safe; one frame for those that follow one another.
    pub(super) fn confirm(&mut self, outgoing: u16, delivery: u32, turn: &mut Turn<'_>) {
        self.confirmation.extend(outgoing, delivery, turn.output);
        self.liveness.wrote(turn.now.ticks_ms);
    }
}

/// Adds an entry to its consumer's share.
pub fn add_to(shares: &mut Vec<Share>, consumer: ConsumerKey, tag: EntryTag) {
    match shares.iter_mut().find(|share| share.consumer == consumer) {
        Some(share) => share.tags.push(tag),
        None => shares.push(Share { consumer, tags: vec![tag] }),
    }
}

/// The state for a meaning.
fn state_of(meaning: &Meaning) -> DeliveryState {
    match meaning.outcome {
        Outcome::Accepted | Outcome::Expired => DeliveryState::Accepted(Accepted {}),
        Outcome::Rejected => DeliveryState::Rejected(Rejected::default()),
        Outcome::Released { .. } | Outcome::Retried => DeliveryState::Released(Released {}),
    }
}

/// The last frame that was written, if it confirms messages.
#[derive(Debug, Default)]
pub struct Confirmation {
    outgoing: u16,
    first: u32,
    last: u32,
    frame: BytesMut,
}

impl Confirmation {
    /// Confirms one more message, in the frame that `output` ends with if that can be.
    fn extend(&mut self, outgoing: u16, delivery: u32, output: &mut BytesMut) {
        let follows = self.outgoing == outgoing && delivery == self.last.wrapping_add(1);
        if follows && !self.frame.is_empty() && output.ends_with(&self.frame) {
            output.truncate(output.len() - self.frame.len());
        } else {
            (self.outgoing, self.first) = (outgoing, delivery);
        }
        self.last = delivery;
        self.frame.clear();
        let start = begin_frame(FrameKind::Amqp { channel: outgoing }, &mut self.frame);
        let disposition = Disposition {
            role: Role::Receiver,
            first: self.first,
            last: (self.first != self.last).then_some(self.last),
            settled: true,
            state: Some(DeliveryState::Accepted(Accepted {})),
            batchable: false,
        };
        Performative::from(disposition).write(&mut self.frame);
        end_frame(start, &mut self.frame);
        output.extend_from_slice(&self.frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Reader, take_frame};

    #[test]
    fn confirmations_that_follow_one_another_share_a_frame() {
        let mut confirmation = Confirmation::default();
        let mut output = BytesMut::from(&b"before"[..]);
        let mut extend = |outgoing, delivery, output: &mut BytesMut| {
            confirmation.extend(outgoing, delivery, output);
        };
        for delivery in [u32::MAX, 0, 1, 5] {
            extend(0, delivery, &mut output);
        }
        // Output written in between keeps its place; so does another channel.
        output.extend_from_slice(&[0, 0, 0, 8, 2, 0, 0, 0]);
        for (outgoing, delivery) in [(0, 6), (1, 7)] {
            extend(outgoing, delivery, &mut output);
        }
        let mut rest = output.split_off(b"before".len());
        let mut ranges = Vec::new();
        while let Some(frame) = take_frame(&mut rest, 512).unwrap() {
            if frame.body.is_empty() {
                continue;
            }
            let Performative::Disposition(it) = Performative::read(&mut Reader::new(&frame.body)).unwrap()
            else {
                panic!("a disposition")
            };
            ranges.push((it.first, it.last));
        }
        assert_eq!(ranges, [(u32::MAX, Some(1)), (5, None), (6, None), (7, None)]);
    }

    #[test]
    fn states_have_their_meaning() {
        let modified = |delivery_failed, undeliverable_here| {
            DeliveryState::Modified(Modified {
                delivery_failed,
                undeliverable_here,
                message_annotations: None,
            })
        };
        let rejected = Rejected { error: Some(super::super::fault::error("amqp:decode-error", "no XML")) };
        let outcome = |outcome| Some((outcome, None));
        for (case, state, want) in [
            ("accepted", DeliveryState::Accepted(Accepted {}), outcome(Outcome::Accepted)),
            ("released", DeliveryState::Released(Released {}), outcome(Outcome::Released { failed: false })),
            ("modified", modified(false, false), outcome(Outcome::Released { failed: false })),
            ("failed", modified(true, false), outcome(Outcome::Released { failed: true })),
            (
                "undeliverable",
                modified(true, true),
                Some((Outcome::Rejected, Some("the consumer cannot process it (undeliverable-here)"))),
            ),
            (
                "rejected",
                DeliveryState::Rejected(rejected),
                Some((Outcome::Rejected, Some("amqp:decode-error: no XML"))),
            ),
            ("not yet", DeliveryState::Received(Default::default()), None),
        ] {
            let got = Meaning::of(&state);
            let got = got.as_ref().map(|meaning| (meaning.outcome, meaning.reason.as_deref()));
            assert_eq!(got, want, "case: {case}");
        }
    }
}
