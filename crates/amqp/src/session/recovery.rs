//! Link recovery (2.6.13): links by which a client sends, and which it may come back to after it
//! has lost its connection.
//!
//! The core remembers the outcomes of its deliveries, by their tags, as long as the target's expiry
//! policy and timeout say. An attach is answered with those that the client may not know; then the
//! client resumes these deliveries, to settle them, and sends the missing ones again. Links by
//! which it receives are not recovered: their deliveries are repeated.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{
    ConsumerKey, Destination, Event, LinkDelivery, LinkEvent, LinkName, Refusal, ResumeLink, Ticket,
};

use super::channel::ChannelAt;
use super::disposition::Meaning;
use super::fault::Fault;
use super::incoming::{Receipt, TAG_BYTES_MAX};
use super::link::{Attaching, LinkAt};
use super::replies::Then;
use super::{AmqpSession, Turn};
use crate::codec::{
    Accepted, Attach, DeliveryState, Disposition, Error, Field, Performative, Rejected, Target,
    TargetTerminus, TerminusDurability, TerminusExpiry, Value, ValueMap,
};

/// The longest that a link is remembered without a connection, in seconds: a client that comes back
/// at all has done so by then.
const KEPT_S_MAX: u32 = 3600;

/// Links with longer names, of their container and address too, are not remembered: it would take
/// the memory of others.
const NAME_BYTES_MAX: usize = 1024;

/// Of every frame, before its body (2.3.1).
const FRAME_HEADER_BYTES: usize = 8;

/// The state of a recovered link.
#[derive(Debug)]
pub struct Kept {
    /// The core's name of it.
    pub link: Arc<LinkName>,
    policy: TerminusExpiry,
    /// Deliveries of earlier connections that the client may resume, and why they were refused if
    /// they were.
    resumable: BTreeMap<Bytes, Option<Error>>,
    /// Not all of them fit into our attach: nothing new may come before the link is attached again.
    pub is_incomplete: bool,
    /// Deliveries that have our verdict and that the client has not settled.
    awaited: VecDeque<(u32, Bytes)>,
}

impl Kept {
    /// Deliveries that the client has not settled, though it knows their outcomes.
    pub fn awaited(&self) -> u32 {
        u32::try_from(self.awaited.len()).unwrap_or(u32::MAX)
    }
}

/// How long a target lasts here, which its answer says whatever was wished for (3.5.4): as wished,
/// but for no more than [`KEPT_S_MAX`] seconds, and not over a restart. A target without a lifetime
/// beyond its connection lasts no longer than its link.
fn kept(target: &Target) -> Option<(TerminusExpiry, u32)> {
    match (target.expiry_policy, target.timeout) {
        (TerminusExpiry::Never, _) => Some((TerminusExpiry::ConnectionClose, KEPT_S_MAX)),
        (_, 0) => None,
        (policy, timeout) => Some((policy, timeout.min(KEPT_S_MAX))),
    }
}

/// The tags of the deliveries that a client is in doubt about; `None` if it has not named them all.
fn in_doubt(attach: &Attach) -> Option<Vec<Bytes>> {
    if attach.incomplete_unsettled {
        return None;
    }
    let tags = attach.unsettled.iter().flat_map(|unsettled| &unsettled.0);
    let own = |(tag, _): &(Value, Value)| match tag {
        Value::Binary(tag) if tag.len() <= TAG_BYTES_MAX => Some(Bytes::copy_from_slice(tag)),
        _ => None,
    };
    Some(tags.filter_map(own).collect())
}

/// The state of a delivery, as it stands in a map.
fn state_value(error: Option<&Error>) -> Value {
    let mut bytes = BytesMut::new();
    state(error.cloned()).write(&mut bytes);
    let bytes = bytes.freeze();
    Value::read(&mut crate::codec::Reader::new(&bytes)).unwrap_or_default()
}

fn state(error: Option<Error>) -> DeliveryState {
    match error {
        None => DeliveryState::Accepted(Accepted {}),
        error => DeliveryState::Rejected(Rejected { error }),
    }
}

/// Says in an answer how long the target lasts.
fn answer_kept(answer: &mut Attach, kept: Option<(TerminusExpiry, u32)>) {
    if let Some(TargetTerminus::Target(target)) = &mut answer.target {
        target.durable = TerminusDurability::None;
        (target.expiry_policy, target.timeout) = kept.unwrap_or((TerminusExpiry::LinkDetach, 0));
    }
}

impl AmqpSession {
    /// Whether the client's wish for recovery is met: the state of the link then, and the request
    /// to the core.
    pub(super) fn keep_link(
        &self,
        at: LinkAt,
        attach: &Attach,
        to: Option<&Destination>,
        answer: &mut Attach,
    ) -> Option<(Kept, ResumeLink)> {
        let Some(TargetTerminus::Target(target)) = &attach.target else { return None };
        let user = self.peer.user.clone().unwrap_or_default();
        let own_bytes = user.len() + self.peer.container.len() + attach.name.as_str().len();
        let name_bytes = |to: &Destination| to.name.len() + own_bytes;
        let to = to.filter(|to| !to.temporary && name_bytes(to) <= NAME_BYTES_MAX);
        let kept = to.and_then(|_| kept(target));
        answer_kept(answer, kept);
        let ((policy, timeout_s), to) = (kept?, to?.clone());
        let (container, name) = (self.peer.container.clone(), attach.name.as_str().into());
        let link = Arc::new(LinkName { user, container, name, to });
        let resume = ResumeLink {
            link: link.clone(),
            holder: ConsumerKey::new(self.id, at.number),
            kept_ms: u64::from(timeout_s) * 1000,
            in_doubt: in_doubt(attach),
            ticket: Ticket(0),
        };
        let (resumable, awaited) = (BTreeMap::new(), VecDeque::new());
        Some((Kept { link, policy, resumable, is_incomplete: false, awaited }, resume))
    }

    /// Asks the core for the state of a link.
    pub(super) fn resume_link(&mut self, attaching: Attaching, resume: ResumeLink, turn: &mut Turn<'_>) {
        self.consumers.insert(resume.holder.number, attaching.at);
        for known in self.channels.values_mut() {
            known.left.retain(|left| *left != resume.link);
        }
        let ticket = self.replies.wait(1, Then::Attached(Box::new(attaching)));
        turn.events.push(Event::Link(LinkEvent::Resume(Box::new(ResumeLink { ticket, ..resume }))));
    }

    /// The core's state of the link; its reply follows.
    pub(super) fn unsettled(&mut self, ticket: Ticket, deliveries: Vec<(Bytes, Option<Refusal>)>) {
        let max_bytes = self.peer.frame_bytes_max();
        let Some(Then::Attached(attaching)) = self.replies.then(ticket) else { return };
        let (at, answer) = (attaching.at, &mut attaching.answer);
        let known: Vec<(Bytes, Option<Error>)> =
            deliveries.into_iter().map(|(tag, refusal)| (tag, refusal.as_ref().map(Error::from))).collect();
        let is_incomplete = fill(answer, &known, max_bytes);
        if let Some(kept) = self.kept_at(at) {
            kept.is_incomplete = is_incomplete;
            kept.resumable = known.into_iter().collect();
        }
    }

    fn kept_at(&mut self, at: LinkAt) -> Option<&mut Kept> {
        self.link_at(at)?.end.incoming()?.kept.as_deref_mut()
    }

    /// The core does not remember the link: it is attached as one that ends with its connection.
    /// Given back if it is none.
    pub(super) fn attached_unkept(&mut self, attaching: Attaching, turn: &mut Turn<'_>) -> Option<Attaching> {
        let Attaching { at, mut answer } = attaching;
        let incoming = self.link_at(at).and_then(|link| link.end.incoming());
        if incoming.and_then(|incoming| incoming.kept.take()).is_none() {
            return Some(Attaching { at, answer });
        }
        self.consumers.remove(&at.number);
        answer_kept(&mut answer, None);
        self.attached(Attaching { at, answer }, turn);
        None
    }

    /// The client resumes a delivery, which is settled by that, or will be (2.6.13). One that we do
    /// not know is passed over (2.7.5). If it names an outcome of its own, that holds, and is
    /// echoed (3.4.7).
    pub(super) fn resumed(&mut self, receipt: &Receipt, own: Option<DeliveryState>, turn: &mut Turn<'_>) {
        let Some(tag) = receipt.tag.clone() else { return };
        let Some(kept) = self.kept_at(receipt.at) else { return };
        let Some(error) = kept.resumable.remove(&tag) else { return };
        if receipt.settled {
            return self.forget_tags(receipt.at, vec![tag], turn);
        }
        if let Some(own) = own.filter(|own| Meaning::of(own).is_some()) {
            self.answer_receipt(&Receipt { second: false, ..receipt.clone() }, own, turn);
            return self.forget_tags(receipt.at, vec![tag], turn);
        }
        self.answer_receipt(receipt, state(error), turn);
        self.await_settlement(receipt);
    }

    /// The core's tag of a message, if its link is recovered. Messages that are settled already, or
    /// in a transaction, are not in doubt.
    pub(super) fn delivery_of(&mut self, receipt: &Receipt) -> Option<Box<LinkDelivery>> {
        let tag = receipt.tag.clone().filter(|_| !receipt.settled && receipt.transaction.is_none())?;
        let link = self.kept_at(receipt.at)?.link.clone();
        Some(Box::new(LinkDelivery { link, tag }))
    }

    /// A delivery has our verdict, which the client may be to settle.
    pub(super) fn await_settlement(&mut self, receipt: &Receipt) {
        let Some(tag) = receipt.tag.clone().filter(|_| receipt.second && !receipt.settled) else { return };
        if let Some(kept) = self.kept_at(receipt.at) {
            kept.awaited.push_back((receipt.delivery, tag));
        }
    }

    /// The client has settled its sends (2.7.6): they need not be remembered any more.
    pub(super) fn settled_by_sender(&mut self, channel: u16, it: &Disposition, turn: &mut Turn<'_>) {
        let Some(known) = self.channels.get_mut(&channel).filter(|_| it.settled) else { return };
        let span = it.last.unwrap_or(it.first).wrapping_sub(it.first);
        let mut settled = Vec::new();
        for (handle, link) in &mut known.links {
            let at = LinkAt { channel, handle: *handle, number: link.number };
            let Some(kept) = link.end.incoming().and_then(|incoming| incoming.kept.as_deref_mut()) else {
                continue;
            };
            let mut tags = Vec::new();
            kept.awaited.retain(|(delivery, tag)| {
                let is_it = delivery.wrapping_sub(it.first) <= span;
                if is_it {
                    tags.push(tag.clone());
                }
                !is_it
            });
            if !tags.is_empty() {
                settled.push((at, tags));
            }
        }
        for (at, tags) in settled {
            self.forget_tags(at, tags, turn);
            self.grant_incoming(at, turn);
        }
    }

    fn forget_tags(&mut self, at: LinkAt, tags: Vec<Bytes>, turn: &mut Turn<'_>) {
        let connection = self.id;
        if let Some(kept) = self.kept_at(at) {
            let link = kept.link.clone();
            turn.events.push(Event::Link(LinkEvent::Forget { link, connection, tags }));
        }
    }

    /// A link is gone: whether its client may come back to it, and from when on its time runs, is
    /// as its expiry policy says.
    pub(super) fn leave_link(&mut self, at: LinkAt, kept: &Kept, closed: bool, turn: &mut Turn<'_>) {
        self.consumers.remove(&at.number);
        let (link, connection) = (kept.link.clone(), self.id);
        match (closed, kept.policy) {
            (false, TerminusExpiry::ConnectionClose | TerminusExpiry::Never) => {}
            (false, TerminusExpiry::SessionEnd) => {
                if let Some(known) = self.channels.get_mut(&at.channel) {
                    known.left.push(link);
                }
            }
            _ => turn.events.push(Event::Link(LinkEvent::Leave { link, connection, is_kept: !closed })),
        }
    }

    /// A channel ends, and with it the links that last no longer.
    pub(super) fn leave_links_of(&mut self, at: ChannelAt, turn: &mut Turn<'_>) {
        let connection = self.id;
        let left = self.channel_at(at).map(|known| std::mem::take(&mut known.left));
        for link in left.into_iter().flatten() {
            turn.events.push(Event::Link(LinkEvent::Leave { link, connection, is_kept: true }));
        }
    }
}

/// Writes the known deliveries into our attach, as many as a frame takes; whether some are missing.
fn fill(answer: &mut Attach, known: &[(Bytes, Option<Error>)], max_bytes: usize) -> bool {
    let mut count = known.len();
    loop {
        let pairs = known[..count].iter();
        let pairs = pairs.map(|(tag, error)| (Value::Binary(tag.clone()), state_value(error.as_ref())));
        answer.unsettled = Some(ValueMap(pairs.collect())).filter(|map| !map.is_empty());
        answer.incomplete_unsettled = count < known.len();
        let mut bytes = BytesMut::new();
        Performative::Attach(answer.clone()).write(&mut bytes);
        if count == 0 || bytes.len() + FRAME_HEADER_BYTES <= max_bytes {
            return count < known.len();
        }
        count /= 2;
    }
}

/// The fault of a new delivery while not all old ones are known.
pub fn not_yet(at: LinkAt) -> Fault {
    let text = "our map of unsettled deliveries was incomplete: attach again before you send anything new"
        .to_owned();
    Fault::link(at, "amqp:not-allowed", text)
}
