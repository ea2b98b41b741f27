//! Deliveries in doubt: the connection of a link to another broker was cut, or this broker has
//! crashed, and the peer may have stored messages that it did not confirm.
//!
//! They stay in flight. The next consumer of the same name (see [`postroad_model::Attach::steals`])
//! gets them first, whatever its credit, and its peer recognises the ones that it has. A consumer
//! of a pattern that comes without credit gets those of all queues. Without such a consumer they
//! are ready again after a time.
//!
//! ```text
//!   Held by a consumer ──detach, in doubt──▶ kept in flight ──attach by the same name──▶ Held by the new consumer
//!   lent, found at a start ──────────────────▲     └──after a time──▶ Ready
//! ```
//! After a start their bodies are on the disk: the new consumer gets them as they come, and nothing
//! of the queue is delivered before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{
    Attach, ConnectionId, ConsumerKey, Delivery, Destination, DestinationKind, Effect, EntryTag, LeaseId,
    QueueId,
};

use crate::delivery::dispatch::{begin_fetch, dispatch};
use crate::delivery::fetches::Waiter;
use crate::entries::{entry_at, sought_at};
use crate::intake::chunks::lend;
use crate::intake::limit::set_state;
use crate::leader::Leader;
use crate::memory::bodies::BodyLocation;
use crate::queue::EntryState;
use crate::settling::release::release_entries;
use crate::state::State;
use crate::{Partition, traces};

/// Deliveries of a partition that are kept: their bodies stay in memory.
const KEPT_MAX: usize = 1 << 16;

/// Those found at a start are kept for so long: a link has come back by then, or its peer is down.
pub const FOUND_KEPT_MS: u64 = 60_000;

/// Until the first tick after a start says what time it is.
const UNDATED: u64 = u64::MAX;

/// Bodies that are read back at a time for one consumer.
const READ_MAX: usize = 64;

/// Deliveries of one queue to the links of one name.
type Of = (QueueId, LeaseId);

/// See the head of this file.
#[derive(Default)]
pub struct Doubts {
    kept: BTreeMap<Of, Kept>,
    due: BTreeSet<(u64, QueueId, LeaseId)>,
    deliveries: usize,
    /// Consumers that wait for bodies.
    reading: BTreeSet<(QueueId, ConsumerKey)>,
    /// Some were found at a start, before the time was known.
    has_undated: bool,
}

/// Deliveries of one queue and name.
#[derive(Default)]
struct Kept {
    until_ms: u64,
    /// In the order in which they were sent.
    held: Vec<(ConsumerKey, EntryTag)>,
}

impl Doubts {
    /// When the next ones are ready again.
    pub fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(until_ms, ..)| *until_ms)
    }

    /// When those of this queue are ready again, the first of them.
    pub fn due_of(&self, queue: QueueId) -> Option<u64> {
        let of_queue = (queue, LeaseId(0))..=(queue, LeaseId(u64::MAX));
        self.kept.range(of_queue).map(|(_, kept)| kept.until_ms).filter(|until_ms| *until_ms != UNDATED).min()
    }

    /// Whether bodies of this queue are on their way to consumers that take over deliveries.
    pub fn are_read_for(&self, queue: QueueId) -> bool {
        !self.reading.is_empty() && self.reading.iter().any(|(of, _)| *of == queue)
    }

    /// Whether bodies are on their way to this consumer.
    pub fn are_read_by(&self, queue: QueueId, consumer: ConsumerKey) -> bool {
        self.reading.contains(&(queue, consumer))
    }

    /// Keeps these after others of the same queue and name; `false` if there are too many.
    fn add(&mut self, of: Of, held: Vec<(ConsumerKey, EntryTag)>, until_ms: u64) -> bool {
        if KEPT_MAX < self.deliveries + held.len() {
            return false;
        }
        let mut kept = self.take(&of).unwrap_or_default();
        self.deliveries += kept.held.len() + held.len();
        kept.held.extend(held);
        kept.until_ms = until_ms;
        self.due.insert((until_ms, of.0, of.1));
        self.kept.insert(of, kept);
        true
    }

    fn take(&mut self, of: &Of) -> Option<Kept> {
        let kept = self.kept.remove(of)?;
        self.deliveries -= kept.held.len();
        self.due.remove(&(kept.until_ms, of.0, of.1));
        Some(kept)
    }

    /// The time is known: those that were found at a start are kept from now on.
    fn date(&mut self, until_ms: u64) {
        if !std::mem::take(&mut self.has_undated) {
            return;
        }
        let undated: Vec<Of> =
            self.kept.iter().filter(|(_, kept)| kept.until_ms == UNDATED).map(|(of, _)| *of).collect();
        for of in undated {
            let held = self.take(&of).map(|kept| kept.held).unwrap_or_default();
            self.add(of, held, until_ms);
        }
    }

    fn take_due(&mut self, now_ms: u64) -> Option<(QueueId, Kept)> {
        let (_, id, link) = self.due.first().filter(|(until_ms, ..)| *until_ms <= now_ms).copied()?;
        let kept = self.take(&(id, link))?;
        Some((id, kept))
    }
}

/// Keeps the deliveries of a consumer of this name that has gone; `false` if there are too many.
pub fn keep(
    leader: &mut Leader,
    now_ms: u64,
    (id, name): (QueueId, Arc<str>),
    (holder, tags): (ConsumerKey, &[EntryTag]),
    keep_ms: u32,
) -> bool {
    let until_ms = now_ms.saturating_add(u64::from(keep_ms));
    let held = tags.iter().map(|tag| (holder, *tag)).collect();
    leader.settling.doubts.add((id, LeaseId::of_link(&name)), held, until_ms)
}

/// A start: the links may have sent what is lent to them.
pub fn find(partition: &mut Partition) {
    let mut found: BTreeMap<Of, Vec<(ConsumerKey, EntryTag)>> = BTreeMap::new();
    let holder = ConsumerKey::new(ConnectionId::internal(partition.settings.id), 0);
    for (id, tag, link) in partition.state.lent.iter().collect::<Vec<_>>() {
        if entry_at(partition, id, tag).is_some_and(|entry| entry.state == EntryState::Ready) {
            found.entry((id, link)).or_default().push((holder, tag));
        }
    }
    partition.leader.settling.doubts.has_undated = true;
    for ((id, link), held) in found {
        let tags: Vec<EntryTag> = held.iter().map(|(_, tag)| *tag).collect();
        if partition.leader.settling.doubts.add((id, link), held, UNDATED) {
            let state = EntryState::Held { by: holder, in_transaction: false };
            tags.into_iter().for_each(|tag| set_state(partition, id, tag, state));
        }
    }
}

/// Whose deliveries in doubt a consumer takes over in all queues that have some, if it is one of a
/// pattern that does.
pub fn heir_of_all(attach: &Attach) -> Option<LeaseId> {
    attach
        .steals
        .as_deref()
        .filter(|_| attach.credit == 0 && attach.source.is_pattern())
        .map(LeaseId::of_link)
}

/// The queues with deliveries in doubt to these links, up to a number.
pub fn queues_of(state: &State, leader: &Leader, link: LeaseId, most: usize) -> Vec<Destination> {
    let kept = leader.settling.doubts.kept.keys().filter(|(_, of)| *of == link);
    let queues = kept.filter_map(|(id, _)| state.queues.get(id));
    // A subscription has a consumer of its own.
    let queues = queues.filter(|queue| queue.source.kind == DestinationKind::Queue);
    queues.map(|queue| queue.source.clone()).take(most).collect()
}

/// A consumer of this name has come: it gets the deliveries in doubt.
pub fn hand_on(
    partition: &mut Partition,
    (id, name): (QueueId, &str),
    to: ConsumerKey,
    effects: &mut Vec<Effect>,
) {
    let of = (id, LeaseId::of_link(name));
    let Some(kept) = partition.leader.settling.doubts.take(&of) else { return };
    let mut absent = Vec::new();
    for (holder, tag) in kept.held {
        let held = EntryState::Held { by: holder, in_transaction: false };
        let Some(entry) = entry_at(partition, id, tag).filter(|entry| entry.state == held) else { continue };
        let (sought, failed_deliveries) = (BodyLocation::from(&*entry), entry.deliveries());
        let message = partition.state.bodies.resident(sought).cloned();
        // In their order: later ones wait, too.
        let Some(message) = message.filter(|_| absent.is_empty()) else {
            absent.push((holder, tag));
            continue;
        };
        set_state(partition, id, tag, EntryState::Held { by: to, in_transaction: false });
        let delivery = &mut partition.leader.delivery;
        let Some(consumer) = delivery.consumers.get_mut(&to) else { continue };
        consumer.held.push(delivery.next_hold, tag, partition.now_ms);
        delivery.next_hold += 1;
        if let Some(connection) = partition.leader.connections.get_mut(&to.connection) {
            connection.unwritten_bytes += message.bytes.len() as u64;
        }
        lend(&mut partition.leader, partition.now_ms, &message, effects);
        let trace = traces::delivered(&mut partition.leader, (id, tag), sought.key, to);
        let source = partition.state.queues.get(&id).filter(|_| to.member != 0);
        effects.push(Effect::Deliver(Delivery {
            consumer: to,
            source: source.map(|queue| queue.source.clone()),
            tag,
            queue: (partition.settings.id, id),
            failed_deliveries,
            by_policy: false,
            first_of_group: false,
            trace,
            message,
        }));
    }
    if !absent.is_empty() {
        read_back(partition, of, (to, absent), kept.until_ms, effects);
    }
}

/// Has the bodies of the first of these read back; all of them stay in doubt until then.
fn read_back(
    partition: &mut Partition,
    of: Of,
    (to, absent): (ConsumerKey, Vec<(ConsumerKey, EntryTag)>),
    until_ms: u64,
    effects: &mut Vec<Effect>,
) {
    let mut keys = Vec::new();
    let waiter = Waiter::Heir(of.0, to);
    for (_, tag) in absent.iter().take(READ_MAX) {
        let Some(sought) = sought_at(partition, of.0, *tag) else { continue };
        if partition.state.bodies.resident(sought).is_some() {
            continue;
        }
        if !partition.leader.delivery.fetches.has(sought.key) {
            keys.push(sought.key);
        }
        let waiting = &mut begin_fetch(&mut partition.state, &mut partition.leader, sought).waiting;
        if !waiting.contains(&waiter) {
            waiting.push(waiter);
        }
    }
    let doubts = &mut partition.leader.settling.doubts;
    doubts.reading.insert((of.0, to));
    doubts.add(of, absent, until_ms);
    if !keys.is_empty() {
        effects.push(Effect::Fetch { keys });
    }
}

/// Bodies for a consumer that takes over deliveries are here.
pub fn read(partition: &mut Partition, id: QueueId, to: ConsumerKey, effects: &mut Vec<Effect>) {
    partition.leader.settling.doubts.reading.remove(&(id, to));
    let consumer = partition.leader.delivery.consumers.get(&to);
    if let Some(name) = consumer.and_then(|consumer| consumer.steals.clone()) {
        hand_on(partition, (id, &name), to, effects);
    }
    dispatch(partition, id, effects);
}

/// Deliveries that no consumer of their name has come for are ready again.
pub fn end_overdue(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let now_ms = partition.now_ms;
    partition.leader.settling.doubts.date(now_ms.saturating_add(FOUND_KEPT_MS));
    while let Some((id, kept)) = partition.leader.settling.doubts.take_due(now_ms) {
        for (holder, tag) in kept.held {
            release_entries(partition, id, holder, &[tag], false, effects);
        }
        dispatch(partition, id, effects);
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::ConnectionId;

    use super::*;

    #[test]
    fn deliveries_in_doubt_are_bounded_and_end() {
        let of = |queue, name: &str| (QueueId(queue), LeaseId::of_link(name));
        let holder = ConsumerKey::new(ConnectionId::new(0, 1), 1);
        let some = |count: usize| (0..count as u64).map(|tag| (holder, EntryTag(tag))).collect::<Vec<_>>();
        let mut doubts = Doubts::default();
        assert!(doubts.add(of(1, "east"), some(KEPT_MAX - 1), 10));
        assert!(!doubts.add(of(2, "east"), some(2), 20));
        assert!(doubts.add(of(1, "east"), some(1), 30), "behind the others, and as long as they");
        assert_eq!((doubts.next_ms(), doubts.take_due(29).is_none()), (Some(30), true));
        assert_eq!(doubts.take(&of(1, "east")).map(|kept| kept.held.len()), Some(KEPT_MAX));
        assert!(doubts.add(of(2, "west"), some(1), 40));
        assert_eq!(doubts.take_due(40).map(|(id, kept)| (id, kept.held.len())), Some((QueueId(2), 1)));
        assert_eq!((doubts.deliveries, doubts.next_ms()), (0, None));
    }
}
