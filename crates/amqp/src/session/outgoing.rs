//! Messages out: credit (2.6.7), windows (2.5.6), and transfers in as many frames as it takes
//! (2.6.14).
//!
//! The core gets as much of a link's credit as the channel's window can carry; the unused part of
//! that is `promised`. Credit that the client takes back is taken back from the core by a drain.
//!
//! A link that reads a pattern reads a [`Part`] of it in each partition, and each part is promised
//! the link's credit: deliveries beyond it go back.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use postroad_model::{ConnectionId, ConsumerKey, Delivery, DetachCause, EntryTag, Event, Outcome, Settle};

use super::disposition::Held;
use super::link::{Link, LinkAt, LinkEnd, Stage};
use super::sequence::Sequence;
use super::{AmqpSession, Turn};
use crate::codec::{DeliveryState, Field, Flow, FrameKind, Performative, Transfer, begin_frame, end_frame};
use crate::message::{MESSAGE_FORMAT, delivery_header};
use crate::portable::in_amqp;

/// Credit that the core gets ahead: enough to keep a link busy, little enough that its deliveries
/// fit in memory.
const PROMISED_MAX: u32 = 2048;

/// Deliveries of one channel that may wait for the client's verdict; it gets no more until it has
/// spoken.
pub const UNSETTLED_MAX: usize = 1 << 16;

/// The state of one partition for a link.
#[derive(Debug, Default)]
pub struct Part {
    /// The core's number for its consumer.
    pub number: u32,
    /// Credit that the core has.
    promised: u32,
    /// The core was asked to give it back.
    taking_back: bool,
    /// It had given none back: there may be more messages.
    used_up: bool,
}

/// Our end of a link by which the client receives.
#[derive(Default)]
pub struct Outgoing {
    /// One, but for a pattern in several partitions.
    pub parts: Vec<Part>,
    /// Messages that the client takes.
    credit: u32,
    /// Messages sent.
    delivery_count: u32,
    /// The client wants to have its credit used up, or ended.
    drain: bool,
    /// The client wants no messages that it would have to settle.
    pub presettled: bool,
    /// Sees, and takes nothing.
    pub browses: bool,
    /// The durable subscription that it reads.
    pub subscription: Option<Arc<str>>,
    /// The outcome if the client settles without a state.
    pub default_outcome: Option<Box<DeliveryState>>,
    /// The largest message that the client takes.
    pub max_message_bytes: u64,
    /// The client has asked how far the link has come, before our attach.
    pub owes_flow: bool,
    /// The client's map of unsettled deliveries is incomplete: nothing new may be sent before it
    /// attaches again (2.7.3).
    pub is_held: bool,
}

/// Deliveries that wait for the client's window.
pub enum Pending {
    /// A message.
    Transfer(Unsent),
    /// A flow that must not overtake it.
    Flow(LinkAt),
}

/// A message that was not sent whole.
pub struct Unsent {
    handle: u32,
    delivery: Sequence,
    settled: bool,
    begun: bool,
    /// The header that belongs to this delivery.
    header: Bytes,
    /// Everything after the header that is there.
    rest: Bytes,
    /// Bytes of a large body that are still to come.
    to_come: u64,
    /// The core's name for it.
    consumer: ConsumerKey,
    tag: EntryTag,
}

impl Outgoing {
    /// Without credit yet; `numbers` are the core's for its consumers.
    pub fn new(numbers: &[u32]) -> Outgoing {
        let parts = numbers.iter().map(|number| Part { number: *number, ..Part::default() }).collect();
        Outgoing { parts, ..Outgoing::default() }
    }

    fn part(&mut self, number: u32) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.number == number)
    }

    /// Whether the core may get more credit.
    fn is_short(&self) -> bool {
        self.parts.iter().any(|part| part.promised < self.credit.min(PROMISED_MAX))
    }

    /// Gives the core the credit, as far as `window` goes.
    fn promise(&mut self, id: ConnectionId, window: u32, events: &mut Vec<Event>) {
        let wanted = if self.is_held { 0 } else { self.credit.min(PROMISED_MAX).min(window) };
        for part in self.parts.iter_mut().filter(|part| !part.taking_back) {
            let consumer = ConsumerKey::new(id, part.number);
            if part.promised < wanted {
                events.push(Event::Credit { consumer, add: wanted - part.promised });
                part.promised = wanted;
            }
            let ends = self.drain && (part.promised > 0 || self.credit == 0 || self.is_held);
            if ends || self.credit < part.promised {
                part.taking_back = true;
                events.push(Event::Drain { consumer });
            }
        }
    }

    /// The client says how far it has come, and how much more it takes.
    pub fn take_credit(&mut self, flow: &Flow) {
        if let Some(link_credit) = flow.link_credit {
            let seen = flow.delivery_count.unwrap_or(0);
            let on_their_way = self.delivery_count.wrapping_sub(seen);
            self.credit = link_credit.saturating_sub(on_their_way);
        }
        self.drain = flow.drain;
    }
}

impl AmqpSession {
    /// The core's name for a consumer of this connection.
    pub(super) fn key(&self, number: u32) -> ConsumerKey {
        ConsumerKey::new(self.id, number)
    }

    /// Gives the core every link's credit, after the channel's window has changed.
    pub(super) fn grant_channel(&mut self, channel: u16, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get(&channel) else { return };
        let short = |link: &Link| match &link.end {
            LinkEnd::Outgoing(outgoing) => outgoing.is_short(),
            _ => false,
        };
        let links = known.links.iter().filter(|(_, link)| short(link));
        let ats: Vec<LinkAt> =
            links.map(|(handle, link)| LinkAt { channel, handle: *handle, number: link.number }).collect();
        for at in ats {
            self.grant(at, turn);
        }
    }

    /// Gives the core a link's credit.
    pub(super) fn grant(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        let id = self.id;
        let Some(known) = self.channels.get(&at.channel) else { return };
        let room = UNSETTLED_MAX.saturating_sub(known.unsettled.len()) as u32;
        let window = known.remote_window.min(room);
        let Some(link) = self.link_at(at).filter(|link| link.stage == Stage::Attached) else { return };
        if let Some(outgoing) = link.end.outgoing() {
            outgoing.promise(id, window, turn.events);
        }
    }

    /// The core has given back its remaining credit.
    pub(super) fn drained(&mut self, number: u32, turn: &mut Turn<'_>) {
        let Some(at) = self.consumers.get(&number).copied() else { return };
        let Some(outgoing) = self.link_at(at).and_then(|link| link.end.outgoing()) else { return };
        let Some(part) = outgoing.part(number) else { return };
        // A browse that is over says so unasked.
        if !std::mem::take(&mut part.taking_back) {
            return;
        }
        part.used_up = part.promised == 0;
        part.promised = 0;
        if outgoing.parts.iter().any(|part| part.taking_back) {
            return;
        }
        let used_up = outgoing.parts.iter_mut().any(|part| std::mem::take(&mut part.used_up));
        if !outgoing.drain || used_up && outgoing.credit > 0 && !outgoing.is_held {
            return self.grant(at, turn);
        }
        outgoing.drain = false;
        outgoing.delivery_count = outgoing.delivery_count.wrapping_add(outgoing.credit);
        outgoing.credit = 0;
        let Some(known) = self.channels.get_mut(&at.channel) else { return };
        if known.pending.is_empty() {
            return self.send_drained(at, turn);
        }
        known.pending.push_back(Pending::Flow(at));
    }

    fn send_drained(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        self.send_flow(at, true, turn);
    }

    /// Sends the flow that the client asked for before our attach.
    pub(super) fn send_owed_flow(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        let Some(outgoing) = self.link_at(at).and_then(|link| link.end.outgoing()) else { return };
        if std::mem::take(&mut outgoing.owes_flow) {
            self.send_link_flow(at, turn);
        }
    }

    /// Sends the client the progress of a link.
    pub(super) fn send_link_flow(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        self.send_flow(at, false, turn);
    }

    fn send_flow(&mut self, at: LinkAt, drain: bool, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get(&at.channel) else { return };
        let (outgoing, windows) = (known.outgoing, known.windows());
        let Some(link) = self.link_at(at) else { return };
        let handle = Some(link.handle);
        let Some(end) = link.end.outgoing() else { return };
        let flow = Flow {
            handle,
            delivery_count: Some(end.delivery_count),
            link_credit: Some(end.credit),
            available: Some(0),
            drain,
            ..windows
        };
        self.send(outgoing, flow, turn);
    }

    /// The core has ended a consumer.
    pub(super) fn ousted(&mut self, number: u32, cause: DetachCause, turn: &mut Turn<'_>) {
        let Some(at) = self.consumers.get(&number).copied() else { return };
        let (condition, text) = match cause {
            DetachCause::Slow => ("amqp:link:detach-forced", "it did not settle its messages in time"),
            DetachCause::Deleted => ("amqp:resource-deleted", "the node was deleted"),
            DetachCause::PatternTooWide => {
                ("amqp:resource-limit-exceeded", "consumers of patterns read too many queues together")
            }
            DetachCause::Stolen => ("amqp:link:stolen", "the link was attached by another connection"),
        };
        let error = super::fault::error(condition, text);
        self.detach_by(at, error, turn);
    }

    /// Sends a message to the client.
    pub(super) fn deliver(&mut self, delivery: Delivery, turn: &mut Turn<'_>) {
        let Delivery { consumer, tag, failed_deliveries, message, .. } = delivery;
        let Some(at) = self.consumers.get(&consumer.number).copied() else { return };
        let translate = self.translate;
        let Some(outgoing) = self.link_at(at).and_then(|link| link.end.outgoing()) else { return };
        let Some(part) = outgoing.part(consumer.number) else { return };
        part.promised = part.promised.saturating_sub(1);
        let promised = part.promised;
        let settle = |outcome, reason: Option<Arc<str>>| {
            let tags = vec![tag];
            Event::Settle(Settle { consumer, tags, outcome, transaction: None, reason, ticket: None })
        };
        if outgoing.credit == 0 {
            // The client has taken its credit back meanwhile.
            turn.events.push(settle(Outcome::Released { failed: false }, None));
            return;
        }
        let in_amqp = in_amqp(&message, translate).map_err(|error| error.to_string());
        let encoded = in_amqp.and_then(|bytes| {
            let header = delivery_header(&bytes, &message, failed_deliveries, turn.now.wall_ms);
            header.map_err(|error| error.to_string())
        });
        let (header, rest) = match encoded {
            Ok(encoded) => encoded,
            Err(reason) => {
                // A dead letter; the client still waits for a message.
                turn.events.push(Event::Settle(Settle::rejected(consumer, tag, &reason)));
                return self.grant(at, turn);
            }
        };
        let bytes = (header.len() + rest.len()) as u64 + message.chunk_bytes();
        if bytes > outgoing.max_message_bytes {
            return self.refuse_too_large(at, bytes, turn);
        }
        outgoing.credit -= 1;
        outgoing.delivery_count = outgoing.delivery_count.wrapping_add(1);
        let (settled, browses) = (outgoing.presettled, outgoing.browses);
        let low = promised <= PROMISED_MAX / 2 && promised < outgoing.credit;
        if settled && !browses {
            turn.events.push(settle(Outcome::Accepted, None));
        }
        let Some(known) = self.channels.get_mut(&at.channel) else { return };
        let Some(handle) = known.links.get(&at.handle).map(|link| link.handle) else { return };
        let sequence = known.next_delivery.take();
        if !settled {
            known.unsettled.insert(sequence, Held { consumer, tag, browses, transaction: None });
        }
        let to_come = message.chunk_bytes();
        let unsent = Unsent {
            handle,
            delivery: sequence,
            settled,
            begun: false,
            header,
            rest,
            to_come,
            consumer,
            tag,
        };
        if 0 < to_come {
            self.streaming = Some(at.channel);
        }
        known.pending.push_back(Pending::Transfer(unsent));
        self.send_pending(at.channel, turn);
        if low {
            self.grant(at, turn);
        }
    }

    /// The link ends, and the message stays for others.
    fn refuse_too_large(&mut self, at: LinkAt, bytes: u64, turn: &mut Turn<'_>) {
        let text = format!("a message of {bytes} bytes is due; the link takes less");
        let error = super::fault::error("amqp:link:message-size-exceeded", text);
        self.detach_by(at, error, turn);
    }

    /// Sends pending deliveries, as far as the client's window goes.
    pub(super) fn send_pending(&mut self, channel: u16, turn: &mut Turn<'_>) {
        let max_bytes = self.peer.frame_bytes_max();
        loop {
            let Some(known) = self.channels.get_mut(&channel) else { return };
            match known.pending.front_mut() {
                Some(Pending::Flow(at)) => {
                    let at = *at;
                    known.pending.pop_front();
                    self.send_drained(at, turn);
                }
                Some(Pending::Transfer(unsent)) if known.remote_window > 0 && !unsent.is_dry() => {
                    let start = begin_frame(FrameKind::Amqp { channel: known.outgoing }, turn.output);
                    let whole = unsent.write(start, max_bytes, turn);
                    end_frame(start, turn.output);
                    if whole {
                        known.pending.pop_front();
                    }
                    known.take_outgoing();
                    self.liveness.wrote(turn.now.ticks_ms);
                }
                _ => return,
            }
        }
    }

    /// The large message that is on its way out, if its link is still there.
    fn streamed(&mut self) -> Option<&mut Unsent> {
        let known = self.channels.get_mut(&self.streaming?)?;
        known.pending.iter_mut().find_map(|pending| match pending {
            Pending::Transfer(unsent) if 0 < unsent.to_come => Some(unsent),
            _ => None,
        })
    }

    /// Bytes of its body that are still to come.
    pub(super) fn streamed_bytes(&self) -> u64 {
        let known = self.streaming.and_then(|channel| self.channels.get(&channel));
        let pending = known.into_iter().flat_map(|known| &known.pending);
        pending
            .map(|pending| match pending {
                Pending::Transfer(unsent) => unsent.to_come,
                Pending::Flow(_) => 0,
            })
            .sum()
    }

    /// Whether the client's window has let out all available bytes of it.
    pub(super) fn wants_piece(&self) -> bool {
        let known = self.streaming.and_then(|channel| self.channels.get(&channel));
        let mut pending = known.into_iter().flat_map(|known| &known.pending);
        pending.any(|pending| matches!(pending, Pending::Transfer(unsent) if unsent.is_dry()))
    }

    /// The next piece of its body.
    pub(super) fn send_piece(&mut self, bytes: &Bytes, turn: &mut Turn<'_>) {
        let Some(unsent) = self.streamed() else { return };
        unsent.to_come = unsent.to_come.saturating_sub(bytes.len() as u64);
        unsent.rest = match unsent.rest.is_empty() {
            true => bytes.clone(),
            false => [&unsent.rest[..], bytes].concat().into(),
        };
        let is_last = unsent.to_come == 0;
        if let Some(channel) = self.streaming {
            self.send_pending(channel, turn);
        }
        if is_last {
            self.streaming = None;
        }
    }

    /// The rest of its body cannot be read: it becomes a dead letter.
    pub(super) fn lose_body(&mut self, reason: &str, events: &mut Vec<Event>) {
        let Some(Unsent { consumer, tag, .. }) = self.streamed() else { return };
        events.push(Event::Settle(Settle::rejected(*consumer, *tag, reason)));
    }

    /// This message cannot be sent by AMQP: a dead letter; the client still waits for a message.
    pub(super) fn reject(&mut self, delivery: &Delivery, reason: &str, turn: &mut Turn<'_>) {
        turn.events.push(Event::Settle(Settle::rejected(delivery.consumer, delivery.tag, reason)));
        let Some(at) = self.consumers.get(&delivery.consumer.number).copied() else { return };
        let Some(outgoing) = self.link_at(at).and_then(|link| link.end.outgoing()) else { return };
        if let Some(part) = outgoing.part(delivery.consumer.number) {
            part.promised = part.promised.saturating_sub(1);
        }
        self.grant(at, turn);
    }

    /// A link is gone: its deliveries are settled by its end, and pending ones are not sent.
    pub(super) fn forget_deliveries(&mut self, channel: u16, gone: &Link) {
        let LinkEnd::Outgoing(outgoing) = &gone.end else { return };
        let is_its = |consumer: ConsumerKey| outgoing.parts.iter().any(|part| part.number == consumer.number);
        let Some(known) = self.channels.get_mut(&channel) else { return };
        known.unsettled.retain(|_, held| !is_its(held.consumer));
        known.pending.retain(|pending| match pending {
            Pending::Transfer(unsent) => !is_its(unsent.consumer),
            Pending::Flow(at) => at.number != gone.number,
        });
    }
}

impl Unsent {
    /// Nothing of it is there to be sent, and more is to come.
    fn is_dry(&self) -> bool {
        0 < self.to_come && self.header.is_empty() && self.rest.is_empty()
    }

    /// Appends the next frame's body; whether it was the last.
    fn write(&mut self, start: usize, max_bytes: usize, turn: &mut Turn<'_>) -> bool {
        let body = turn.output.len();
        self.performative(false).write(turn.output);
        let left_bytes = self.header.len() + self.rest.len();
        let last = self.to_come == 0 && turn.output.len() - start + left_bytes <= max_bytes;
        if !last {
            turn.output.truncate(body);
            self.performative(true).write(turn.output);
        }
        self.begun = true;
        let room = max_bytes - (turn.output.len() - start).min(max_bytes);
        let header = self.header.split_to(self.header.len().min(room));
        turn.output.put_slice(&header);
        let rest = self.rest.split_to(self.rest.len().min(room - header.len()));
        turn.output.put_slice(&rest);
        last
    }

    fn performative(&self, more: bool) -> Performative {
        let transfer = Transfer { handle: self.handle, more, ..Transfer::default() };
        if self.begun {
            return transfer.into();
        }
        let tag = self.delivery.0.to_be_bytes();
        let zeros = tag.iter().take(tag.len() - 1).take_while(|byte| **byte == 0).count();
        Transfer {
            delivery_id: Some(self.delivery.wire()),
            delivery_tag: Some(Bytes::copy_from_slice(&tag[zeros..])),
            message_format: Some(MESSAGE_FORMAT),
            settled: Some(self.settled),
            ..transfer
        }
        .into()
    }
}
