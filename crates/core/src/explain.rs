//! Why a message is not delivered: its holder, and the verdict on each consumer of its queue.
//!
//! Only looks: nothing is read from the disk, and no selector's place in the queue moves.

use std::sync::Arc;

use postroad_model::{
    Ask, ConsumerKey, ConsumerMode, Destination, EntryTag, Message, Page, QueueId, Row, Verdict, VerdictRow,
};

use crate::Partition;
use crate::delivery::consumer::Consumer;
use crate::memory::bodies::BodyLocation;
use crate::queue::{Entry, EntryState, LaneNumber, Load, Queue, untag};

impl Partition {
    /// The verdicts on a message; on the next one to be delivered, if none is named.
    pub(crate) fn explain(&self, of: &Destination, entry: Option<EntryTag>, ask: &Ask) -> Page {
        let id = self.state.addresses.get(of).and_then(|address| address.bound.own());
        let Some((id, queue)) = id.and_then(|id| Some((id, self.state.queues.get(&id)?))) else {
            return Page::default();
        };
        let tag = entry.or_else(|| next_of(queue));
        let found = tag.and_then(|tag| entry_of(queue, tag));
        let message = found.as_ref().and_then(|found| self.message_of(found));
        let about_message = match (tag, &found) {
            (Some(tag), Some(found)) => self.state_of((id, tag), found),
            (Some(tag), None) if is_packed(queue, tag) => Verdict::Ready,
            _ => Verdict::NoMessage,
        };
        let is_ready = about_message == Verdict::Ready;
        let of_queue = self.about_queue(queue).into_iter().chain([about_message]);
        let of_queue = of_queue.map(|verdict| VerdictRow { consumer: None, name: "".into(), verdict });
        let failed = found.as_ref().map_or(0, |found| found.deliveries);
        let of_consumers = queue.consumers.iter().filter(|_| is_ready || entry.is_none()).filter_map(|key| {
            let consumer = self.leader.delivery.consumers.get(key)?;
            let verdict = self.about_consumer((*key, consumer), queue, message, failed);
            Some(VerdictRow { consumer: Some(*key), name: self.name_of(*key, consumer), verdict })
        });
        Page::first(of_queue.chain(of_consumers).map(Row::Verdict), ask)
    }

    /// Causes that keep the whole queue from delivering.
    fn about_queue(&self, queue: &Queue) -> Vec<Verdict> {
        let consumes = |key: &ConsumerKey| {
            let consumer = self.leader.delivery.consumers.get(key);
            consumer.is_some_and(|consumer| consumer.mode != ConsumerMode::Browse)
        };
        let all = [
            (queue.on_the_move, Verdict::Moving),
            (self.state.paused.contains(queue.id), Verdict::Paused),
            (!queue.consumers.iter().any(consumes), Verdict::NoConsumer),
            (queue.gathers_until_ms.is_some(), Verdict::Gathering),
            (queue.fetching, Verdict::Reading),
            (!queue.has_room_for(1, true, Load::default()), Verdict::Full),
        ];
        all.into_iter().filter(|(holds, _)| *holds).map(|(_, verdict)| verdict).collect()
    }

    fn state_of(&self, (id, tag): (QueueId, EntryTag), found: &Found) -> Verdict {
        match found.state {
            EntryState::Ready => Verdict::Ready,
            EntryState::Held { by, in_transaction } => {
                let consumer = self.leader.delivery.consumers.get(&by);
                let name = consumer.map_or_else(|| "".into(), |consumer| self.name_of(by, consumer));
                Verdict::Held { by: name, in_transaction }
            }
            EntryState::Resting => {
                let due_ms = self.leader.settling.rests.due_of(id, tag).unwrap_or(self.now_ms);
                Verdict::Resting { for_ms: due_ms.saturating_sub(self.now_ms) }
            }
            EntryState::Leased => {
                let lease = self.state.leases.get(id, tag);
                Verdict::Leased { is_reserved: lease.is_some_and(|lease| lease.id.is_some()) }
            }
            EntryState::Leaving => Verdict::Leaving,
        }
    }

    fn about_consumer(
        &self,
        (key, consumer): (ConsumerKey, &Consumer),
        queue: &Queue,
        message: Option<Judged<'_>>,
        failed_deliveries: u32,
    ) -> Verdict {
        if consumer.browse.is_some() {
            return Verdict::Browses;
        }
        if !self.is_chosen(key, consumer) {
            return Verdict::NotExclusive;
        }
        let selector = consumer.selection.as_ref().and_then(|selection| selection.selector());
        match (selector, message) {
            (Some(_), None | Some(Judged { is_resident: false, .. })) => return Verdict::NotJudged,
            (Some(selector), Some(Judged { message, .. })) => {
                if let Some(facts) = selector.why_not(&self.at_delivery(message, failed_deliveries)) {
                    let facts = facts.into_iter().map(|fact| (fact.property, fact.value)).collect();
                    return Verdict::Selector { selector: selector.text().into(), facts };
                }
            }
            _ => {}
        }
        let group = message.and_then(|judged| judged.message.group()).filter(|_| queue.has_groups());
        let is_exclusive = consumer.mode == ConsumerMode::Exclusive;
        if let (Some(group), Some(groups), false) = (group, &queue.groups, is_exclusive)
            && !groups.admits(&group.id, key)
        {
            return Verdict::Group { group: group.id.as_ref().into() };
        }
        if self.outbox_is_full(key.connection) {
            let connection = self.leader.connections.get(&key.connection);
            return Verdict::OutboxFull {
                bytes: connection.map_or(0, |connection| connection.unwritten_bytes),
            };
        }
        if !self.has_credit(key) {
            return Verdict::NoCredit { held: consumer.held.len() as u64 };
        }
        Verdict::Takes
    }

    fn message_of(&self, found: &Found) -> Option<Judged<'_>> {
        let (message, _) = self.state.bodies.headers(found.sought)?;
        Some(Judged { message, is_resident: self.state.bodies.resident(found.sought).is_some() })
    }

    fn name_of(&self, key: ConsumerKey, consumer: &Consumer) -> Arc<str> {
        let whole = self.leader.delivery.consumers.get(&key.whole()).unwrap_or(consumer);
        let notice = consumer.notice.as_deref().or(whole.notice.as_deref());
        notice.map(|notice| notice.name.clone()).unwrap_or_default()
    }
}

/// A message as a selector sees it.
#[derive(Clone, Copy)]
struct Judged<'m> {
    message: &'m Message,
    /// Its body is in memory, and with it the properties.
    is_resident: bool,
}

/// An entry in an open page.
struct Found {
    sought: BodyLocation,
    state: EntryState,
    deliveries: u32,
}

fn entry_of(queue: &Queue, tag: EntryTag) -> Option<Found> {
    let (_, sequence) = untag(tag);
    let lane = queue.lanes.get(LaneNumber::of_tag(tag))?;
    let entry: &Entry = lane.get(sequence)?;
    Some(Found { sought: BodyLocation::from(entry), state: entry.state, deliveries: entry.deliveries() })
}

/// In a page that was packed to save memory; all that is there is ready.
fn is_packed(queue: &Queue, tag: EntryTag) -> bool {
    let (_, sequence) = untag(tag);
    queue.lanes.get(LaneNumber::of_tag(tag)).is_some_and(|lane| lane.packed(sequence).is_some())
}

/// The next one to be delivered; without any that is ready, the first that is in the hands of a
/// consumer, or waits.
fn next_of(queue: &Queue) -> Option<EntryTag> {
    let ready = queue.lanes.next(|_, lane| {
        let (sequence, entry) = lane.ready_from(0)?;
        Some((entry.map_or(0, |entry| entry.stamp), sequence))
    });
    ready.or_else(|| queue.lanes.next(|_, lane| lane.next_entry(0)))
}
