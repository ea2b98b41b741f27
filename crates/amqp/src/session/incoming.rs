//! Messages in: transfers put together, and published (2.6.12, 2.6.14).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{
    Destination, DestinationKind, Encoding, Event, Group, Message, Now, ProducerNotice, Protocol, Publish,
    RareHeaders, Sent,
};

use super::channel::ChannelAt;
use super::delay::schedule_of;
use super::fault::{Fault, error};
use super::link::{LinkAt, Stage, source_of, unattached};
use super::recovery::{Kept, not_yet};
use super::replies::Then;
use super::upload::Upload;
use super::{AmqpSession, Turn, address};
use crate::codec::{
    Accepted, Attach, DeliveryState, Disposition, Error, Flow, Properties, ReceiverSettleMode, Rejected,
    Role, Timestamp, TransactionalState, Transfer, ValueMap,
};
use crate::message::{MESSAGE_FORMAT, Sections, without_end};

/// Messages of one link that may be on their way to us, or wait for their verdicts: where a queue
/// is at its limit, a link gets no more credit, and the others of its connection go on.
const LINK_CREDIT: u32 = 1000;

/// Bytes of the client's name for a message (2.8.7).
pub const TAG_BYTES_MAX: usize = 32;

/// Messages from this size on stay in the buffer that they were read into. Half of one read: such a
/// message keeps little more alive than itself.
const SHARED_MESSAGE_BYTES_MIN: usize = 8 << 10;

/// Our end of a link by which the client sends.
pub struct Incoming {
    to: To,
    /// The client waits for a verdict, and settles after it.
    second: bool,
    credit: u32,
    /// Messages without a verdict yet.
    unanswered: u32,
    delivery_count: u32,
    partial: Option<Partial>,
    /// Rejected is an outcome that the client knows.
    knows_rejected: bool,
    /// The client may come back to it.
    pub kept: Option<Box<Kept>>,
    /// Its notice.
    pub notice: Option<Arc<ProducerNotice>>,
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To one address.
    Destination(Destination),
    /// To each of several.
    List(Arc<[Destination]>),
    /// Wherever each message says.
    Anywhere,
    /// To the coordinator of transactions.
    Coordinator,
}

/// A message of which the end is still to come.
pub(super) struct Partial {
    delivery: u32,
    /// Of a link that is recovered.
    tag: Option<Bytes>,
    /// It was sent over another connection, and only its end is talked about.
    resumed: bool,
    /// The client settles after us.
    second: bool,
    settled: bool,
    state: Option<DeliveryState>,
    format: u32,
    bytes: BytesMut,
    /// Its body is passed on while it comes.
    upload: Option<Upload>,
    /// It is taken whole, though it is large.
    is_whole: bool,
}

/// A message that waits for its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    /// Its channel.
    pub channel: ChannelAt,
    /// Its link.
    pub at: LinkAt,
    /// The client's number for it.
    pub delivery: u32,
    /// The client's name for it, if its link is recovered.
    pub tag: Option<Bytes>,
    /// The client does not wait.
    pub settled: bool,
    /// The client settles after us.
    pub second: bool,
    /// Its transaction.
    pub transaction: Option<Bytes>,
}

impl Receipt {
    /// Its transaction, if the client hears of no outcome: without the message it can only be
    /// rolled back.
    fn settled_transaction(&self) -> Option<Bytes> {
        self.transaction.clone().filter(|_| self.settled)
    }
}

impl Incoming {
    /// Without credit yet.
    pub fn new(to: To, attach: &Attach, notice: Option<Arc<ProducerNotice>>) -> Incoming {
        let second = attach.rcv_settle_mode == ReceiverSettleMode::Second;
        // The client counts from where it likes (2.6.7).
        let delivery_count = attach.initial_delivery_count.unwrap_or(0);
        Incoming {
            to,
            second,
            credit: 0,
            unanswered: 0,
            delivery_count,
            partial: None,
            knows_rejected: knows_rejected(attach),
            kept: None,
            notice,
        }
    }

    /// Whether the client accepts rejected as an outcome of its sends.
    pub fn knows_rejected(&self) -> bool {
        self.knows_rejected
    }

    /// Whether it leads to the coordinator.
    pub fn is_coordinator(&self) -> bool {
        self.to == To::Coordinator
    }

    /// Bytes of a message of which the end is still to come.
    pub fn partial_bytes(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.bytes.len() as u64)
    }

    /// Bytes of such a message that are in the log already, or on their way there.
    fn passed_on(&self) -> u64 {
        let upload = self.partial.as_ref().and_then(|partial| partial.upload.as_ref());
        upload.map_or(0, |upload| upload.passed_on)
    }

    /// The body that is being passed on.
    pub fn take_upload(&mut self) -> Option<Upload> {
        self.partial.as_mut()?.upload.take()
    }

    /// The client sets the delivery count: it may skip some, which takes the credit for them
    /// (2.6.7). A client that counts back has no more credit for that.
    pub fn take_count(&mut self, delivery_count: u32) {
        let limit = self.delivery_count.wrapping_add(self.credit);
        let left = limit.wrapping_sub(delivery_count);
        self.delivery_count = delivery_count;
        self.credit = if left <= LINK_CREDIT { left.min(self.credit) } else { 0 };
    }

    /// Whether a part of a message that belongs to the transaction has come, and its end has not.
    pub fn has_part_of(&self, txn_id: &Bytes) -> bool {
        let state = self.partial.as_ref().and_then(|partial| partial.state.as_ref());
        matches!(state, Some(DeliveryState::TransactionalState(state)) if state.txn_id == *txn_id)
    }

    /// The transaction of a settled message of which the end is still to come.
    pub fn unfinished_in(&self) -> Option<Bytes> {
        settled_transaction(self.partial.as_ref(), None)
    }

    /// Whether this transfer may come now: while not all old deliveries are known, no new ones.
    fn takes(&self, transfer: &Transfer) -> bool {
        let is_begun = transfer.resume || self.partial.is_some();
        is_begun || self.kept.as_ref().is_none_or(|kept| !kept.is_incomplete)
    }

    /// Whether the client settles a delivery after us: the link's mode, or the delivery's own
    /// (2.7.5).
    fn settles_second(&self, transfer: &Transfer) -> Result<bool, Broken> {
        match transfer.rcv_settle_mode {
            None => Ok(self.second),
            Some(ReceiverSettleMode::First) => Ok(false),
            // Who has settled already settles neither first nor second.
            Some(ReceiverSettleMode::Second) if self.second || transfer.settled == Some(true) => {
                Ok(self.second)
            }
            Some(ReceiverSettleMode::Second) => Err(Broken::SettlesSecond),
        }
    }

    /// Puts the parts of a message together; the whole once its last part is there.
    fn collect(&mut self, transfer: Transfer, payload: Bytes) -> Result<Option<Whole>, Broken> {
        let first = self.partial.is_none();
        if first {
            let tag_bytes = transfer.delivery_tag.as_ref().map_or(0, Bytes::len);
            if TAG_BYTES_MAX < tag_bytes {
                return Err(Broken::LongTag(tag_bytes));
            }
            self.credit = self.credit.checked_sub(1).ok_or(Broken::NoCredit)?;
            self.delivery_count = self.delivery_count.wrapping_add(1);
        }
        let mut partial = match self.partial.take() {
            Some(partial) if transfer.delivery_id.is_none_or(|id| id == partial.delivery) => partial,
            Some(_) => return Err(Broken::OtherDelivery),
            None => Partial {
                delivery: transfer.delivery_id.ok_or(Broken::NoDeliveryId)?,
                // A copy, because it outlives the buffer that it was read with.
                tag: match &self.kept {
                    Some(_) => transfer.delivery_tag.as_deref().map(Bytes::copy_from_slice),
                    None => None,
                },
                resumed: transfer.resume,
                second: self.settles_second(&transfer)?,
                settled: false,
                state: None,
                format: transfer.message_format.unwrap_or(MESSAGE_FORMAT),
                bytes: BytesMut::new(),
                upload: None,
                is_whole: false,
            },
        };
        if transfer.aborted {
            return Ok(None);
        }
        partial.settled |= transfer.settled.unwrap_or(false);
        partial.state = transfer.state.or(partial.state);
        let payload = if partial.resumed { Bytes::new() } else { payload };
        if transfer.more {
            partial.bytes.extend_from_slice(&payload);
            self.partial = Some(partial);
            return Ok(None);
        }
        let bytes = match partial.bytes.is_empty() {
            true if payload.len() < SHARED_MESSAGE_BYTES_MIN => Bytes::copy_from_slice(&payload),
            true => payload,
            false => {
                partial.bytes.extend_from_slice(&payload);
                partial.bytes.freeze()
            }
        };
        let Partial { delivery, tag, resumed, second, settled, state, format, upload, .. } = partial;
        Ok(Some(Whole { delivery, tag, resumed, second, settled, state, format, bytes, upload }))
    }
}

/// A whole message.
pub struct Whole {
    delivery: u32,
    tag: Option<Bytes>,
    resumed: bool,
    second: bool,
    settled: bool,
    state: Option<DeliveryState>,
    format: u32,
    bytes: Bytes,
    /// All before `bytes` is on its way to the log.
    upload: Option<Upload>,
}

/// Why a transfer cannot be.
enum Broken {
    NoCredit,
    NoDeliveryId,
    OtherDelivery,
    SettlesSecond,
    LongTag(usize),
}

impl Broken {
    fn fault(self, at: LinkAt) -> Fault {
        match self {
            Broken::NoCredit => {
                Fault::link(at, "amqp:link:transfer-limit-exceeded", "a transfer without credit".to_owned())
            }
            Broken::NoDeliveryId => {
                let text = "the first transfer of a delivery has no delivery-id".to_owned();
                Fault::channel(at.channel, "amqp:invalid-field", text)
            }
            Broken::LongTag(bytes) => {
                let text = format!("a delivery-tag has {bytes} bytes; it has at most {TAG_BYTES_MAX}");
                Fault::channel(at.channel, "amqp:invalid-field", text)
            }
            Broken::SettlesSecond => {
                let text = "rcv-settle-mode second, on a link that was attached with first".to_owned();
                Fault::link(at, "amqp:invalid-field", text)
            }
            Broken::OtherDelivery => {
                let text = "a transfer of another delivery before the end of the previous one".to_owned();
                Fault::channel(at.channel, "amqp:not-allowed", text)
            }
        }
    }
}

impl AmqpSession {
    pub(super) fn transfer(
        &mut self,
        channel: u16,
        transfer: Transfer,
        payload: Bytes,
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        self.count_incoming(channel, turn)?;
        let (handle, max_bytes) = (transfer.handle, self.options.max_message_bytes);
        let partial_bytes = self.partial_bytes;
        let Some(known) = self.channels.get_mut(&channel) else { return Ok(()) };
        let at_channel = ChannelAt { channel, number: known.number };
        let Some(link) = known.links.get_mut(&handle) else {
            self.transactions.doom_any(settled_transaction(None, Some(&transfer)));
            return Err(unattached(channel, handle));
        };
        let at = LinkAt { channel, handle, number: link.number };
        let partial = link.end.incoming().and_then(|incoming| incoming.partial.as_ref());
        // If the transfer is not taken, committing the rest would do half of its transaction.
        let dropped = settled_transaction(partial, Some(&transfer));
        if matches!(link.stage, Stage::DetachSent | Stage::Leaving) {
            self.transactions.doom_any(dropped);
            return Ok(());
        }
        let Some(incoming) = link.end.incoming() else {
            let text = "a transfer on a link by which the client receives".to_owned();
            return Err(Fault::link(at, "amqp:not-allowed", text));
        };
        if !incoming.takes(&transfer) {
            self.transactions.doom_any(dropped);
            return Err(not_yet(at));
        }
        let (before, aborted) = (incoming.partial_bytes(), transfer.aborted);
        let got_bytes = before + incoming.passed_on() + payload.len() as u64;
        let unfinished_bytes = if transfer.more { partial_bytes + payload.len() as u64 } else { 0 };
        if let Err(fault) = check_bytes(at, got_bytes, unfinished_bytes, max_bytes) {
            self.transactions.doom_any(dropped);
            return Err(fault);
        }
        let given_up = if aborted { incoming.take_upload() } else { None };
        let whole = incoming.collect(transfer, payload);
        let after = incoming.partial_bytes();
        self.partial_bytes = self.partial_bytes - before + after;
        if let Some(upload) = given_up {
            self.give_up(&upload, turn);
        }
        match whole {
            Err(broken) => {
                self.transactions.doom_any(dropped);
                return Err(broken.fault(at));
            }
            Ok(Some(whole)) => take_whole(self, at_channel, at, whole, turn),
            Ok(None) if aborted => self.grant_incoming(at, turn),
            Ok(None) => self.pass_on_partial(at, turn),
        }
        Ok(())
    }

    /// Passes on the available part of a large message.
    fn pass_on_partial(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        let large_bytes = self.options.large_message_bytes;
        let Some(incoming) = self.link_at(at).and_then(|link| link.end.incoming()) else { return };
        let is_message = !incoming.is_coordinator();
        let Some(mut partial) = incoming.partial.take_if(|partial| {
            is_message
                && !partial.is_whole
                && (partial.upload.is_some() || large_bytes <= partial.bytes.len() as u64)
        }) else {
            return;
        };
        let to = incoming.to.clone();
        let before = partial.bytes.len() as u64;
        let upload = partial.upload.take().or_else(|| self.uploads.begin(&to, &mut partial.bytes));
        partial.is_whole = upload.is_none();
        if let Some(mut upload) = upload {
            self.pass_on(&mut upload, &mut partial.bytes, false, turn);
            partial.upload = Some(upload);
        }
        self.partial_bytes = self.partial_bytes - before + partial.bytes.len() as u64;
        if let Some(incoming) = self.link_at(at).and_then(|link| link.end.incoming()) {
            incoming.partial = Some(partial);
        }
    }

    /// Takes a message; of a large one the body is in the log.
    pub(super) fn take_message(
        &mut self,
        receipt: Receipt,
        whole: Whole,
        upload: Option<&Upload>,
        turn: &mut Turn<'_>,
    ) {
        let Some(incoming) = self.link_at(receipt.at).and_then(|link| link.end.incoming()) else {
            return self.transactions.doom_any(receipt.settled_transaction());
        };
        let to = incoming.to.clone();
        if to == To::Coordinator {
            return self.coordinate(receipt, &whole.bytes, turn);
        }
        let transaction = match &receipt.transaction {
            Some(id) => self.transactions.find(id).map(Some),
            None => Ok(None),
        };
        let client = &self.peer.container;
        let sent = transaction.and_then(|number| Ok((number, message(to, whole, turn.now, client)?)));
        match sent {
            Err(error) => {
                if let Some(upload) = upload {
                    self.give_up(upload, turn);
                }
                self.received(&receipt, Some(error), turn);
            }
            Ok((number, sent)) => {
                if let Some(incoming) = self.link_at(receipt.at).and_then(|link| link.end.incoming()) {
                    incoming.unanswered += 1;
                }
                let delivery = self.delivery_of(&receipt);
                let ticket = self.replies.wait(1, Then::Received(receipt));
                let transaction = number.map(|number| self.transactions.key(self.id, number));
                let upload = upload.map(|upload| upload.number);
                let plain = Publish::plain(self.id, ticket, sent);
                let publish = Publish { transaction, upload, delivery, ..plain };
                turn.events.push(Event::Publish(publish));
            }
        }
    }

    /// The core has spoken about a message: its link may send another one.
    pub(super) fn answered(&mut self, receipt: &Receipt, error: Option<Error>, turn: &mut Turn<'_>) {
        self.received(receipt, error, turn);
        let Some(incoming) = self.link_at(receipt.at).and_then(|link| link.end.incoming()) else { return };
        incoming.unanswered = incoming.unanswered.saturating_sub(1);
        self.grant_incoming(receipt.at, turn);
    }

    /// A message has its verdict.
    pub(super) fn received(&mut self, receipt: &Receipt, error: Option<Error>, turn: &mut Turn<'_>) {
        if error.is_some() {
            self.transactions.doom_any(receipt.settled_transaction());
        }
        let Some(outgoing) = self.channel_at(receipt.channel).map(|known| known.outgoing) else { return };
        if receipt.settled {
            let Some(error) = error else { return };
            return self.detach_by(receipt.at, error, turn);
        }
        let outcome = match error {
            None => DeliveryState::Accepted(Accepted {}),
            Some(error) => DeliveryState::Rejected(Rejected { error: Some(error) }),
        };
        let simple = !receipt.second && receipt.transaction.is_none();
        if simple && matches!(outcome, DeliveryState::Accepted(_)) {
            return self.confirm(outgoing, receipt.delivery, turn);
        }
        let state = match receipt.transaction.clone() {
            None => outcome,
            Some(txn_id) => {
                let outcome = Some(Box::new(outcome));
                DeliveryState::TransactionalState(TransactionalState { txn_id, outcome })
            }
        };
        self.answer_receipt(receipt, state, turn);
        self.await_settlement(receipt);
    }

    /// Sends the client the state of its message.
    pub(super) fn answer_receipt(&mut self, receipt: &Receipt, state: DeliveryState, turn: &mut Turn<'_>) {
        let Some(outgoing) = self.channel_at(receipt.channel).map(|known| known.outgoing) else { return };
        let disposition = Disposition {
            role: Role::Receiver,
            first: receipt.delivery,
            settled: !receipt.second,
            state: Some(state),
            ..Disposition::default()
        };
        self.send(outgoing, disposition, turn);
    }

    /// The client has stated its progress: it gets credit again if it needs any, and our view if it
    /// asks for that.
    pub(super) fn answer_sender_flow(&mut self, at: LinkAt, echo: bool, turn: &mut Turn<'_>) {
        let before = turn.output.len();
        self.grant_incoming(at, turn);
        if echo && turn.output.len() == before {
            self.send_incoming_flow(at, turn);
        }
    }

    /// Gives the client credit again, in good time.
    pub(super) fn grant_incoming(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        let Some(incoming) = self.link_at(at).and_then(|link| link.end.incoming()) else { return };
        let awaited = incoming.kept.as_ref().map_or(0, |kept| kept.awaited());
        let room = LINK_CREDIT.saturating_sub(incoming.unanswered.saturating_add(awaited));
        if room < incoming.credit + LINK_CREDIT / 2 {
            return;
        }
        incoming.credit = room;
        self.send_incoming_flow(at, turn);
    }

    pub(super) fn send_incoming_flow(&mut self, at: LinkAt, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get_mut(&at.channel) else { return };
        let (outgoing, windows) = (known.outgoing, known.windows());
        let Some(link) = self.link_at(at) else { return };
        let handle = Some(link.handle);
        let Some(incoming) = link.end.incoming() else { return };
        let delivery_count = Some(incoming.delivery_count);
        let flow = Flow { handle, delivery_count, link_credit: Some(incoming.credit), ..windows };
        self.send(outgoing, flow, turn);
    }
}

/// All parts of a message have come.
fn take_whole(
    session: &mut AmqpSession,
    channel: ChannelAt,
    at: LinkAt,
    mut whole: Whole,
    turn: &mut Turn<'_>,
) {
    let transaction = match &whole.state {
        Some(DeliveryState::TransactionalState(state)) => Some(state.txn_id.clone()),
        _ => None,
    };
    let Whole { delivery, second, settled, resumed, .. } = whole;
    let tag = whole.tag.take();
    let receipt = Receipt { channel, at, delivery, tag, settled, second, transaction };
    if resumed {
        session.resumed(&receipt, whole.state, turn);
        session.grant_incoming(at, turn);
        return;
    }
    if let Some(mut upload) = whole.upload.take() {
        let mut rest = BytesMut::from(std::mem::replace(&mut whole.bytes, upload.head.clone()));
        session.pass_on(&mut upload, &mut rest, true, turn);
        session.uploads.ended = Some((receipt, whole, upload));
        session.finish_upload(turn);
        return;
    }
    session.take_message(receipt, whole, None, turn);
    session.grant_incoming(at, turn);
}

/// The transaction of a message that its client sends settled, of which a part may have come
/// before: the client hears of no outcome.
pub(super) fn settled_transaction(partial: Option<&Partial>, transfer: Option<&Transfer>) -> Option<Bytes> {
    let is_settled = partial.is_some_and(|partial| partial.settled)
        || transfer.is_some_and(|transfer| transfer.settled == Some(true));
    if !is_settled || transfer.is_some_and(|transfer| transfer.aborted) {
        return None;
    }
    let state = transfer.and_then(|transfer| transfer.state.as_ref());
    match state.or(partial.and_then(|partial| partial.state.as_ref()))? {
        DeliveryState::TransactionalState(state) => Some(state.txn_id.clone()),
        _ => None,
    }
}

/// Refuses a message that is too large, and unfinished ones that are so together: those that have
/// begun on many links at once must not take more than the largest one may.
fn check_bytes(at: LinkAt, message_bytes: u64, unfinished_bytes: u64, max_bytes: u64) -> Result<(), Fault> {
    if message_bytes > max_bytes {
        let text = format!("the message has more than {max_bytes} bytes");
        return Err(Fault::link(at, "amqp:link:message-size-exceeded", text));
    }
    if unfinished_bytes > max_bytes {
        let text = format!("unfinished messages have more than {max_bytes} bytes together");
        return Err(Fault::link(at, "amqp:resource-limit-exceeded", text));
    }
    Ok(())
}

/// Whether rejected is among the outcomes that a source names; it need not name any (3.5.3).
fn knows_rejected(attach: &Attach) -> bool {
    let outcomes = source_of(attach).ok().flatten().map_or(&[][..], |source| &source.outcomes);
    outcomes.is_empty() || outcomes.iter().any(|outcome| *outcome == "amqp:rejected:list")
}

/// The message as the core keeps it, and its address.
fn message(to: To, whole: Whole, now: Now, client: &Arc<str>) -> Result<Sent, Error> {
    if whole.format != MESSAGE_FORMAT {
        let text = format!("message-format {:#x} is not supported; 0 is", whole.format);
        return Err(error("amqp:not-implemented", text));
    }
    let mut bytes = whole.bytes;
    let malformed =
        |wire: crate::codec::WireError| error("amqp:decode-error", format!("the message: {wire}"));
    let sections = Sections::scan(&bytes).map_err(malformed)?;
    let header = sections.header(&bytes).map_err(malformed)?;
    let properties = sections.properties(&bytes).map_err(malformed)?;
    let annotations = sections.message_annotations(&bytes).map_err(malformed)?;
    let schedule = schedule_of(&mut bytes, &annotations, &properties, now)?.map(Box::new);
    // Clients look at the end themselves, and would take the message for one that is over.
    if properties.absolute_expiry_time.is_some_and(|Timestamp(at_ms)| at_ms < 0) {
        bytes = without_end(bytes).map_err(malformed)?;
    }
    let mut targets = targets(&to, &properties, &annotations)?.into_iter();
    let to = targets.next().ok_or_else(|| error("amqp:invalid-field", "the address has no name"))?;
    let also: Vec<Destination> = targets.collect();
    let reaches_topic =
        to.kind == DestinationKind::Topic || also.iter().any(|to| to.kind == DestinationKind::Topic);
    let message = Message {
        encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
        persistent: header.durable,
        priority: header.priority.min(9),
        expires_at_ms: expires_at_ms(header.ttl, &properties, now),
        rare: rare_headers(&properties, Some(client).filter(|_| reaches_topic)),
        bytes,
    };
    Ok(Sent { schedule, also, ..Sent::new(to, message) })
}

/// Where a message goes that came by a link which leads `to` somewhere.
fn targets(to: &To, properties: &Properties, annotations: &ValueMap) -> Result<Vec<Destination>, Error> {
    match to {
        To::Destination(destination) => return Ok(vec![destination.clone()]),
        To::List(list) => return Ok(list.to_vec()),
        To::Anywhere | To::Coordinator => {}
    }
    let no_address = || error("amqp:invalid-field", "neither link nor message has an address");
    let address = properties.to.as_ref().ok_or_else(no_address)?;
    let kind = AmqpSession::number_in(Some(annotations), "x-opt-jms-dest");
    let kind = kind.and_then(address::kind_of_annotation).unwrap_or(address::kind_of(&[]));
    address::destinations(address.as_str(), kind)
}

/// As [`targets`], of a message of which only the sections before the body are there; none if
/// they cannot be known.
pub fn targets_of_head(to: &To, head: &Bytes) -> Vec<Destination> {
    let read = || {
        let sections = Sections::scan(head).ok()?;
        targets(to, &sections.properties(head).ok()?, &sections.message_annotations(head).ok()?).ok()
    };
    match to {
        To::Destination(destination) => vec![destination.clone()],
        _ => read().unwrap_or_default(),
    }
}

/// A time to live counts from now (3.2.1); without one the message's own absolute time holds
/// (3.2.4). JMS clients write 1970 for no end, and a time before it if the time to live overflows
/// the calendar: no end either.
fn expires_at_ms(ttl_ms: Option<u32>, properties: &Properties, now: Now) -> u64 {
    match (ttl_ms.filter(|ttl| *ttl > 0), properties.absolute_expiry_time) {
        (Some(ttl), _) => now.wall_ms + u64::from(ttl),
        (None, Some(Timestamp(at_ms))) => u64::try_from(at_ms).unwrap_or(0),
        (None, None) => 0,
    }
}

/// The group of a message, and the client that sent it to a topic: a subscription may skip its own
/// client's messages.
fn rare_headers(properties: &Properties, client: Option<&Arc<str>>) -> Option<Arc<RareHeaders>> {
    let id = properties.group_id.as_ref().filter(|id| !id.is_empty());
    let sequence = properties.group_sequence.unwrap_or(0) as i32;
    let group = id.map(|id| Group { id: id.as_str().into(), sequence });
    let rare = RareHeaders { group, client: client.cloned(), ..RareHeaders::default() };
    (rare != RareHeaders::default()).then(|| Arc::new(rare))
}
