//! Why a message is not delivered: its holder, and the verdict on each consumer of its queue.
//!
//! Only looks: nothing is read from the disk, and no selector's place in the queue moves. One
//! answer looks at a bounded number of messages and consumers.
//! Never here: which verdict decides, and which change would help (`postroad_model::decisive`).

mod on_the_way;

use std::sync::Arc;

use postroad_model::{
    Ask, ConsumerKey, ConsumerMode, Destination, EntryTag, Explained, Message, Page, QueueId, Refusal, Row,
    Verdict, VerdictRow,
};

use crate::connection::outbox_is_full;
use crate::delivery::consumer::Consumer;
use crate::delivery::dispatch::is_over;
use crate::delivery::line::is_chosen;
use crate::delivery::selection::at_delivery;
use crate::delivery::spread::has_credit;
use crate::flow::flow_of;
use crate::leasing::{is_reserving, leases_left};
use crate::memory::bodies::BodyLocation;
use crate::memory::packing::open_page;
use crate::queue::{Entry, EntryState, LaneNumber, Load, Queue, tag as tag_of, untag};
use crate::{Partition, pausing};

/// Messages of a consumer that are looked at: with as many consumers as an answer has rows, some
/// milliseconds.
const HELD_LOOKED_AT_MAX: usize = 256;

/// Consumers of a queue, from the first that came on, that one answer looks at: a millisecond, and
/// more than a page has rows.
const CONSUMERS_MAX: usize = 2048;

/// Looks at a partition.
pub(crate) struct Explainer<'p>(pub &'p Partition);

impl<'p> Explainer<'p> {
    /// The verdicts on a message; on the next one to be delivered, if none is named.
    pub(crate) fn explain(&self, queue: &Destination, of: &Explained, ask: &Ask) -> Page {
        let rows = match of {
            Explained::Transaction(id) => return Page::first(self.branch_of(*id).into_iter(), ask),
            Explained::Connection(id) => return Page::first(self.client_of(*id).into_iter(), ask),
            Explained::Flow => {
                let flow = flow_of(self.0, queue);
                return Page::first(flow.into_iter().map(|flow| Row::Flow(Box::new(flow))), ask);
            }
            Explained::Id(id) => self.explain_id(queue, id),
            Explained::Next => self.explain_entry(queue, None),
            Explained::Entry(tag) => self.explain_entry(queue, Some(*tag)),
        };
        Page::first(rows.into_iter().map(Row::Verdict), ask)
    }

    fn explain_entry(&self, of: &Destination, entry: Option<EntryTag>) -> Vec<VerdictRow> {
        let id = self.0.state.addresses.get(of).and_then(|address| address.bound.own());
        let found = id.and_then(|id| Some((id, self.0.state.queues.get(&id)?)));
        let on_the_way = self.on_the_way_to(of, entry.is_some()).into_iter().map(about_queue);
        let Some((id, queue)) = found else {
            return on_the_way.collect();
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
        let mut prepared = if entry.is_none() { self.prepared_ends(id) } else { Vec::new() };
        // The branch of the next message comes with all that it has of the queue.
        let of_next = |ends: &Verdict| is_same_branch(ends, &about_message);
        let about_message = match prepared.iter().position(of_next) {
            Some(place) => prepared.remove(place),
            None => about_message,
        };
        let behind = tag.filter(|_| is_ready).and_then(|tag| behind(queue, tag));
        let of_queue =
            self.about_queue(queue).into_iter().chain([about_message]).chain(behind).chain(prepared);
        let of_message = Of { tag, message, failed: found.as_ref().map_or(0, |found| found.deliveries) };
        // The consumers matter to a message that waits for one, and to the queue.
        let consumers = queue.consumers.iter().take(CONSUMERS_MAX).filter(|_| is_ready || entry.is_none());
        let of_consumers = consumers.filter_map(|key| {
            let consumer = self.0.leader.delivery.consumers.get(key)?;
            let verdict = self.about_consumer((*key, consumer), queue, of_message);
            let notice = self.notice_of(*key, consumer);
            let is_link = notice.is_some_and(|notice| notice.network.is_some());
            Some(VerdictRow { consumer: Some(*key), name: self.name_of(*key, consumer), is_link, verdict })
        });
        of_queue.map(about_queue).chain(on_the_way).chain(of_consumers).collect()
    }

    /// Causes that keep the whole queue from delivering.
    fn about_queue(&self, queue: &Queue) -> Vec<Verdict> {
        let (id, has_consumer) = (queue.id, 0 < queue.consumers.takers());
        let is_returning = self.0.leader.transactions.closings.holds_up(id);
        let is_reading = queue.fetching || self.0.leader.settling.doubts.are_read_for(id);
        let gathers_ms = queue.gathers_until_ms.map(|until_ms| until_ms.saturating_sub(self.0.now_ms));
        // Clients without consumers are refused at that limit.
        let lease_limit = if has_consumer { None } else { self.lease_limit(id) };
        let all = [
            queue.on_the_move.then(|| Verdict::Moving {
                held: queue.away.messages,
                transactions: self.0.leader.transactions.transactions_for(&queue.source),
            }),
            self.0.state.paused.contains(id).then_some(Verdict::Paused),
            is_returning.then_some(Verdict::Returning),
            (!has_consumer).then_some(Verdict::NoConsumer),
            lease_limit,
            gathers_ms.map(|for_ms| Verdict::Gathering { for_ms }),
            is_reading.then_some(Verdict::Reading),
            (!queue.has_room_for(1, true, Load::default())).then_some(Verdict::Full),
        ];
        all.into_iter().flatten().collect()
    }

    fn lease_limit(&self, id: QueueId) -> Option<Verdict> {
        match leases_left(self.0, id).err()? {
            Refusal::TooManyLeases { max, .. } | Refusal::TooManyTenantLeases { max, .. } => {
                Some(Verdict::LeaseLimit { max })
            }
            _ => None,
        }
    }

    fn state_of(&self, (id, tag): (QueueId, EntryTag), found: &Found) -> Verdict {
        let headers = self.0.state.bodies.headers(found.sought).map(|(headers, _)| headers);
        match found.state {
            EntryState::Ready => match headers.filter(|headers| is_over(&self.0.clock, headers)) {
                Some(headers) => {
                    let for_ms = self.0.clock.wall_ms().saturating_sub(headers.expires_at_ms);
                    Verdict::Expired { for_ms }
                }
                None => Verdict::Ready,
            },
            EntryState::Held { by, in_transaction } => self.holder_of((id, tag), by, in_transaction),
            EntryState::Resting => {
                let due_ms = self.0.leader.settling.rests.due_of(id, tag).unwrap_or(self.0.now_ms);
                Verdict::Resting { for_ms: due_ms.saturating_sub(self.0.now_ms) }
            }
            EntryState::Leased => {
                let for_ms = self.0.state.leases.lasts_ms((id, tag), self.0.now_ms);
                match self.0.state.leases.get(id, tag).and_then(|lease| lease.id) {
                    Some(lease) => Verdict::Reserved { lease: lease.0, for_ms },
                    None => Verdict::Delayed { for_ms },
                }
            }
            EntryState::Leaving => self.settled_by_prepared(id, tag).unwrap_or(Verdict::Leaving),
        }
    }

    fn holder_of(&self, (id, tag): (QueueId, EntryTag), by: ConsumerKey, in_transaction: bool) -> Verdict {
        if let Some(prepared) = self.settled_by_prepared(id, tag).filter(|_| in_transaction) {
            return prepared;
        }
        let Some(consumer) = self.0.leader.delivery.consumers.get(&by) else {
            if in_transaction {
                return self.settled_in_open((id, tag), by);
            }
            // Its consumer has gone: it was kept for the next one of a link.
            let due_ms = self.0.leader.settling.doubts.due_of(id).unwrap_or(self.0.now_ms);
            return Verdict::InDoubt { for_ms: due_ms.saturating_sub(self.0.now_ms) };
        };
        let sent_ms = consumer.held.sent_ms(tag).unwrap_or(self.0.now_ms);
        let for_ms = self.0.now_ms.saturating_sub(sent_ms);
        Verdict::Held { by: self.name_of(by, consumer), in_transaction, for_ms }
    }

    fn about_consumer(
        &self,
        (key, consumer): (ConsumerKey, &Consumer),
        queue: &Queue,
        of: Of<'_>,
    ) -> Verdict {
        if consumer.browse.is_some() {
            return Verdict::Browses;
        }
        if self.0.state.paused.contains(queue.id) && !pausing::serves(&self.0.leader, key) {
            return Verdict::Paused;
        }
        if !is_chosen(&self.0.state, key, consumer) {
            return Verdict::NotExclusive { owner: self.chosen_of(queue) };
        }
        // Of a message on the disk only the group is known for sure.
        let is_resident = of.message.is_some_and(|judged| judged.is_resident);
        let by_group = || self.about_group((key, consumer), queue, of);
        let by_selector = || self.about_selector((key, consumer), queue, of);
        let barred =
            if is_resident { by_selector().or_else(by_group) } else { by_group().or_else(by_selector) };
        if let Some(verdict) = barred {
            return verdict;
        }
        if outbox_is_full(&self.0.leader, &self.0.settings, key.connection) {
            let connection = self.0.leader.connections.get(&key.connection);
            return Verdict::OutboxFull {
                bytes: connection.map_or(0, |connection| connection.unwritten_bytes),
            };
        }
        if !has_credit(&self.0.leader, key) {
            // A message that it has settled since is no obstacle, if it came too late for that.
            let taken_back = if consumer.pace.is_slow { consumer.pace.taken.len() as u64 } else { 0 };
            if 0 < taken_back {
                return Verdict::TooSlow { taken_back };
            }
            let oldest_ms = consumer.held.oldest_ms().unwrap_or(self.0.now_ms);
            let for_ms = self.0.now_ms.saturating_sub(oldest_ms);
            let (held, in_transaction) = (consumer.held.len() as u64, self.has_settled_all(consumer));
            return Verdict::NoCredit { held, in_transaction, for_ms };
        }
        let limit = self.lease_limit(queue.id).filter(|_| is_reserving(&self.0.leader, key));
        // A selector has to see the message first, which is read for that.
        let selects = consumer.selection.as_ref().is_some_and(|selection| selection.has_selector());
        let is_judged = is_resident || !selects;
        limit.unwrap_or(if is_judged { Verdict::Takes } else { Verdict::NotJudged })
    }

    /// Whether it has messages, and waits with all of them for the end of transactions.
    fn has_settled_all(&self, consumer: &Consumer) -> bool {
        let Some(queue) = self.0.state.queues.get(&consumer.queue) else { return false };
        let in_transaction = |tag| {
            let state = entry_of(queue, tag).map(|entry| entry.state);
            matches!(state, Some(EntryState::Held { in_transaction: true, .. }))
        };
        !consumer.held.is_empty() && consumer.held.tags().take(HELD_LOOKED_AT_MAX).all(in_transaction)
    }

    fn about_selector(
        &self,
        (key, consumer): (ConsumerKey, &Consumer),
        queue: &Queue,
        of: Of<'_>,
    ) -> Option<Verdict> {
        let selection = consumer.selection.as_ref()?;
        let selector = selection.selector()?;
        let has_refused = |tag| queue.is_idle(key) || selection.has_refused(&queue.lanes, tag);
        let facts = match of.message {
            Some(Judged { message, is_resident: true }) => {
                selector.why_not(&at_delivery(&self.0.clock, &self.0.protocols, message, of.failed))?
            }
            // The body is on the disk: a message that the consumer has passed over does not match.
            _ if of.tag.is_some_and(has_refused) => Vec::new(),
            _ => return None,
        };
        let facts = facts.into_iter().map(|fact| (fact.property, fact.value)).collect();
        let is_exclusive = consumer.mode == ConsumerMode::Exclusive;
        Some(Verdict::Selector { selector: selector.text().into(), facts, is_exclusive })
    }

    fn about_group(
        &self,
        (key, consumer): (ConsumerKey, &Consumer),
        queue: &Queue,
        of: Of<'_>,
    ) -> Option<Verdict> {
        // An exclusive consumer gets everything.
        let binds = queue.has_groups() && consumer.mode != ConsumerMode::Exclusive;
        let groups = queue.groups.as_ref().filter(|_| binds)?;
        let Some(judged) = of.message else { return Some(Verdict::NotJudged) };
        let group = judged.message.group()?;
        if groups.admits(&group.id, key) {
            return None;
        }
        let owner = groups.owner(&group.id).and_then(|owner| Some((owner, self.consumer(owner)?)));
        let owner = owner.map(|(key, consumer)| self.name_of(key, consumer));
        Some(Verdict::Group { group: group.id.as_ref().into(), owner })
    }

    /// The name of the exclusive consumer that the queue serves.
    fn chosen_of(&self, queue: &Queue) -> Arc<str> {
        let chosen = queue.consumers.chosen().and_then(|key| Some((key, self.consumer(key)?)));
        chosen.map(|(key, consumer)| self.name_of(key, consumer)).unwrap_or_default()
    }

    fn message_of(&self, found: &Found) -> Option<Judged<'p>> {
        let (message, _) = self.0.state.bodies.headers(found.sought)?;
        Some(Judged { message, is_resident: self.0.state.bodies.resident(found.sought).is_some() })
    }

    fn consumer(&self, key: ConsumerKey) -> Option<&'p Consumer> {
        self.0.leader.delivery.consumers.get(&key).map(AsRef::as_ref)
    }

    pub(crate) fn notice_of<'c>(
        &'c self,
        key: ConsumerKey,
        consumer: &'c Consumer,
    ) -> Option<&'c postroad_model::ConsumerNotice> {
        let of_whole = || {
            let spread = self.0.leader.delivery.spreads.get(&key.whole()).and_then(|spread| spread.notice());
            spread.map(AsRef::as_ref)
        };
        consumer.notice.as_deref().or_else(of_whole)
    }

    fn name_of(&self, key: ConsumerKey, consumer: &Consumer) -> Arc<str> {
        self.notice_of(key, consumer).map(|notice| notice.name.clone()).unwrap_or_default()
    }
}

/// The page of the message is opened, if it was packed to save memory: consumers are judged by its
/// headers.
pub(crate) fn open_explained(partition: &mut Partition, of: &Destination, explained: &Explained) {
    let own = partition.state.addresses.get(of).and_then(|address| address.bound.own());
    let Some(queue) = own.and_then(|id| partition.state.queues.get(&id)) else { return };
    let tag = match explained {
        Explained::Next => next_of(queue),
        Explained::Entry(tag) => Some(*tag),
        _ => None,
    };
    if let Some(tag) = tag.filter(|tag| is_packed(queue, *tag)) {
        open_page(partition, queue.id, tag);
    }
}

/// See [`Partition::messages`].
pub(crate) fn messages_of(partition: &Partition) -> impl Iterator<Item = (&Destination, QueueId, EntryTag)> {
    let own = |queue: &&Queue| {
        let address = partition.state.addresses.get(&queue.source);
        address.is_some_and(|address| address.bound.own() == Some(queue.id))
    };
    partition.state.queues.values().filter(own).flat_map(|queue| {
        let tags = queue.lanes.iter().flat_map(|(number, lane)| {
            let sequences = std::iter::successors(lane.next_entry(0), |(_, sequence)| {
                lane.next_entry(sequence.saturating_add(1))
            });
            sequences.map(move |(_, sequence)| tag_of(number.0, sequence))
        });
        tags.map(move |tag| (&queue.source, queue.id, tag))
    })
}

/// Whether both are about the same prepared transaction.
fn is_same_branch(one: &Verdict, other: &Verdict) -> bool {
    match (one, other) {
        (Verdict::Prepared { transaction: one, .. }, Verdict::Prepared { transaction: other, .. }) => {
            one == other
        }
        _ => false,
    }
}

/// A verdict on the queue, or on the message.
fn about_queue(verdict: Verdict) -> VerdictRow {
    VerdictRow::new(None, verdict)
}

/// The message that consumers are judged by.
#[derive(Clone, Copy)]
struct Of<'m> {
    tag: Option<EntryTag>,
    message: Option<Judged<'m>>,
    /// Its deliveries without success.
    failed: u32,
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

/// The messages that are delivered before this one, if there are any.
fn behind(queue: &Queue, tag: EntryTag) -> Option<Verdict> {
    let (number, sequence) = (LaneNumber::of_tag(tag), untag(tag).1);
    let of_higher_priority = queue.lanes.iter().filter(|(other, _)| number.priority() < other.priority());
    let of_higher_priority = of_higher_priority.map(|(_, lane)| lane.len()).sum();
    let is_first = |other: LaneNumber| other.is_ahead() && !number.is_ahead();
    let equals = queue.lanes.iter().filter(|(other, _)| other.priority() == number.priority());
    let of_its_own = equals.map(|(other, lane)| match other == number {
        true => lane.before(sequence),
        false if is_first(other) => lane.len(),
        // Durable and volatile ones take turns by their arrival.
        false => 0,
    });
    let messages = of_higher_priority + of_its_own.sum::<u64>();
    (0 < messages).then_some(Verdict::Behind { messages, of_higher_priority })
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
