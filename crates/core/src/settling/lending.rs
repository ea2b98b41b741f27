//! Deliveries to links are recorded before they leave: after a crash it is known which messages a
//! peer may have.
//!
//! ```text
//!   given to the link ──record: lent──▶ delivered ──accepted──▶ (removed)
//!                                           └──given back──▶ record: lent no more
//!   start: entries that are lent ──▶ in doubt, until the link to that peer takes them over
//! ```
//! The record is a `Touch` with the lease of the link's name. It outlives the process, and the
//! machine once a later group is synced, like that of a lease. While one is on its way to the log
//! further deliveries gather for the next one.
//!
//! Never here: deliveries in doubt, and who takes them over (`doubt`).

use std::collections::BTreeMap;

use postroad_model::{
    Command, ConsumerKey, Delivery, DestinationKind, Effect, EntryTag, LeaseEnd, LeaseId, MessageKey,
    QueueId, Subscription, Urgency,
};

use crate::Partition;
use crate::connection::note_written;
use crate::entries::entry_at;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::queue::{EntryState, Queue};
use crate::settling::doubt;
use crate::state::State;

/// Entries that links may have sent, each with the lease of the link. As many as links may have in
/// flight.
#[derive(Default)]
pub struct Lent(BTreeMap<(QueueId, EntryTag), LeaseId>);

impl Lent {
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (QueueId, EntryTag, LeaseId)> {
        self.0.iter().map(|((queue, tag), link)| (*queue, *tag, *link))
    }

    /// The link that has the entry.
    pub fn get(&self, queue: QueueId, tag: EntryTag) -> Option<LeaseId> {
        self.0.get(&(queue, tag)).copied()
    }

    /// The link has the entry.
    pub fn insert(&mut self, queue: QueueId, tag: EntryTag, link: LeaseId) {
        self.0.insert((queue, tag), link);
    }

    /// No link has the entry, or it has left its queue.
    pub fn remove(&mut self, queue: QueueId, tag: EntryTag) {
        self.0.remove(&(queue, tag));
    }

    /// The queue has ended.
    pub fn forget_queue(&mut self, queue: QueueId) {
        let range = (queue, EntryTag(0))..=(queue, EntryTag(u64::MAX));
        let keys: Vec<_> = self.0.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            self.0.remove(&key);
        }
    }
}

/// Deliveries around their records.
#[derive(Default)]
pub struct Lending {
    /// They leave when their record is in the log.
    outgoing: Vec<Delivery>,
    /// Entries that came back, and whose record says that they are lent.
    returned: Vec<(QueueId, EntryTag)>,
    /// A record is on its way to the log.
    is_recording: bool,
}

/// The lease of the link that this consumer stands for.
fn link_of(leader: &Leader, consumer: ConsumerKey) -> Option<LeaseId> {
    let consumer = leader.delivery.consumers.get(&consumer)?;
    consumer.steals.as_deref().map(LeaseId::of_link)
}

/// The delivery leaves, once its record is in the log if it needs one.
pub fn send(partition: &mut Partition, delivery: Delivery, key: MessageKey, effects: &mut Vec<Effect>) {
    match lends(&partition.state, &partition.leader, delivery.queue.1, delivery.consumer, key) {
        true => partition.leader.settling.lending.outgoing.push(delivery),
        false => effects.push(Effect::Deliver(delivery)),
    }
}

/// Whether a delivery of this message to the consumer is to be recorded before it leaves.
fn lends(state: &State, leader: &Leader, id: QueueId, to: ConsumerKey, key: MessageKey) -> bool {
    let is_recognised = |queue: &Queue| {
        let is_aside = queue.subscription.as_ref().is_some_and(Subscription::is_aside);
        is_aside || queue.source.kind == DestinationKind::Queue
    };
    let consumer = leader.delivery.consumers.get(&to);
    consumer.is_some_and(|consumer| consumer.steals.is_some() && consumer.browse.is_none())
        && matches!(key, MessageKey::Durable { .. })
        && !id.is_volatile()
        && state.queues.get(&id).is_some_and(is_recognised)
}

/// The entry waits for a consumer again.
pub fn given_back(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    if partition.leader.is_live && partition.state.lent.get(id, tag).is_some() {
        partition.leader.settling.lending.returned.push((id, tag));
    }
}

/// Proposes the records of what has gathered, unless one is on its way.
pub fn record(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let lending = &mut partition.leader.settling.lending;
    if lending.is_recording || lending.outgoing.is_empty() && lending.returned.is_empty() {
        return;
    }
    let (outgoing, returned) = (std::mem::take(&mut lending.outgoing), std::mem::take(&mut lending.returned));
    // An entry that came back may be lent again.
    let mut back: BTreeMap<QueueId, Vec<_>> = BTreeMap::new();
    for (id, tag) in returned {
        if let Some(link) = partition.state.lent.get(id, tag) {
            back.entry(id).or_default().push((tag, Some(link)));
        }
    }
    for (queue, entries) in back {
        let command = Command::Touch { queue, until: None, entries };
        propose(partition, command, Urgency::Lazy, Completion::Nothing, effects);
    }
    let mut lent: BTreeMap<QueueId, Vec<_>> = BTreeMap::new();
    for Delivery { queue: (_, id), tag, consumer, .. } in &outgoing {
        // One that has gone meanwhile gets nothing.
        if let Some(link) = link_of(&partition.leader, *consumer) {
            lent.entry(*id).or_default().push((*tag, Some(link)));
        }
    }
    let lasts_ms = doubt::FOUND_KEPT_MS;
    let until = Some(LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(lasts_ms), lasts_ms });
    let last = lent.keys().next_back().copied();
    let mut deliveries = Some(outgoing);
    for (queue, entries) in lent {
        let of_all = if Some(queue) == last { deliveries.take() } else { None };
        let completion = of_all.map_or(Completion::Nothing, Completion::Lent);
        partition.leader.settling.lending.is_recording = true;
        propose(partition, Command::Touch { queue, until, entries }, Urgency::Waiting, completion, effects);
    }
    // None of their consumers is there.
    if let Some(outgoing) = deliveries.take() {
        recorded(partition, outgoing, effects);
    }
}

/// The log has the record, or will not: the deliveries leave, but for those whose consumers have
/// gone. One without a record is only delivered as if there were none.
pub fn recorded(partition: &mut Partition, deliveries: Vec<Delivery>, effects: &mut Vec<Effect>) {
    partition.leader.settling.lending.is_recording = false;
    for delivery in deliveries {
        let ((_, id), tag, consumer) = (delivery.queue, delivery.tag, delivery.consumer);
        let is_there = partition.leader.delivery.consumers.contains_key(&consumer);
        let state = entry_at(partition, id, tag).map(|entry| entry.state);
        match state {
            Some(EntryState::Held { by, .. }) if by == consumer && is_there => {
                effects.push(Effect::Deliver(delivery));
                continue;
            }
            // Its link keeps it in doubt, or has taken it over.
            Some(EntryState::Held { by, .. })
                if by == consumer || link_of(&partition.leader, by).is_some() => {}
            Some(_) => given_back(partition, id, tag),
            None => {}
        }
        note_written(partition, consumer.connection, delivery.message.bytes.len() as u64, effects);
    }
    record(partition, effects);
}

/// The log has the record of entries that are lent, or are not any more.
pub fn apply(partition: &mut Partition, id: QueueId, is_lent: bool, entries: &[(EntryTag, Option<LeaseId>)]) {
    for (tag, link) in entries {
        match link {
            Some(link) if is_lent && entry_at(partition, id, *tag).is_some() => {
                partition.state.lent.insert(id, *tag, *link);
            }
            _ => partition.state.lent.remove(id, *tag),
        }
    }
}
