//! Deliveries in doubt: the connection of a link to another broker was cut, and the peer may have
//! stored messages that it did not confirm.
//!
//! They stay in flight. The next consumer of the same name (see [`postroad_model::Attach::steals`])
//! gets them first, whatever its credit, and its peer recognises the ones that it has. Without such
//! a consumer they are ready again after a time. Known to this run alone: after a restart they are
//! ready at once.
//!
//! ```text
//!   Held by a consumer ──detach, in doubt──▶ kept in flight ──attach by the same name──▶ Held by the new consumer
//!                                              └──after a time──▶ Ready
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{ConsumerKey, Delivery, Effect, EntryTag, QueueId};

use crate::Partition;
use crate::memory::bodies::BodyLocation;
use crate::queue::EntryState;

/// Deliveries of a partition that are kept: their bodies stay in memory.
const KEPT_MAX: usize = 1 << 16;

/// See the head of this file.
#[derive(Default)]
pub struct Doubts {
    kept: BTreeMap<(QueueId, Arc<str>), Kept>,
    due: BTreeSet<(u64, QueueId, Arc<str>)>,
    deliveries: usize,
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

    /// Keeps these after others of the same queue and name; `false` if there are too many.
    fn add(&mut self, of: (QueueId, Arc<str>), held: Vec<(ConsumerKey, EntryTag)>, until_ms: u64) -> bool {
        if KEPT_MAX < self.deliveries + held.len() {
            return false;
        }
        let mut kept = self.take(&of).unwrap_or_default();
        self.deliveries += kept.held.len() + held.len();
        kept.held.extend(held);
        kept.until_ms = until_ms;
        self.due.insert((until_ms, of.0, of.1.clone()));
        self.kept.insert(of, kept);
        true
    }

    fn take(&mut self, of: &(QueueId, Arc<str>)) -> Option<Kept> {
        let kept = self.kept.remove(of)?;
        self.deliveries -= kept.held.len();
        self.due.remove(&(kept.until_ms, of.0, of.1.clone()));
        Some(kept)
    }

    fn take_due(&mut self, now_ms: u64) -> Option<(QueueId, Kept)> {
        let (_, id, name) = self.due.first().filter(|(until_ms, ..)| *until_ms <= now_ms).cloned()?;
        let kept = self.take(&(id, name))?;
        Some((id, kept))
    }
}

/// Keeps the deliveries of a consumer of this name that has gone; `false` if there are too many.
pub fn keep(
    partition: &mut Partition,
    (id, name): (QueueId, Arc<str>),
    (holder, tags): (ConsumerKey, &[EntryTag]),
    keep_ms: u32,
) -> bool {
    let until_ms = partition.now_ms.saturating_add(u64::from(keep_ms));
    let held = tags.iter().map(|tag| (holder, *tag)).collect();
    partition.leader.settling.doubts.add((id, name), held, until_ms)
}

/// A consumer of this name has come: it gets the deliveries in doubt.
pub fn hand_on(
    partition: &mut Partition,
    (id, name): (QueueId, Arc<str>),
    to: ConsumerKey,
    effects: &mut Vec<Effect>,
) {
    let Some(kept) = partition.leader.settling.doubts.take(&(id, name)) else { return };
    for (holder, tag) in kept.held {
        let held = EntryState::Held { by: holder, in_transaction: false };
        let Some(entry) = partition.entry(id, tag).filter(|entry| entry.state == held) else { continue };
        let (sought, failed_deliveries) = (BodyLocation::from(&*entry), entry.deliveries());
        // In flight until now, so its body is in memory.
        let Some(message) = partition.state.bodies.resident(sought).cloned() else {
            partition.release(id, holder, &[tag], false, effects);
            continue;
        };
        partition.set_state(id, tag, EntryState::Held { by: to, in_transaction: false });
        let delivery = &mut partition.leader.delivery;
        let Some(consumer) = delivery.consumers.get_mut(&to) else { continue };
        consumer.held.push(delivery.next_hold, tag);
        delivery.next_hold += 1;
        if let Some(connection) = partition.leader.connections.get_mut(&to.connection) {
            connection.unwritten_bytes += message.bytes.len() as u64;
        }
        partition.lend(&message, effects);
        effects.push(Effect::Deliver(Delivery {
            consumer: to,
            source: None,
            tag,
            queue: (partition.settings.id, id),
            failed_deliveries,
            by_policy: false,
            first_of_group: false,
            message,
        }));
    }
}

/// Deliveries that no consumer of their name has come for are ready again.
pub fn end_overdue(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let now_ms = partition.now_ms;
    while let Some((id, kept)) = partition.leader.settling.doubts.take_due(now_ms) {
        for (holder, tag) in kept.held {
            partition.release(id, holder, &[tag], false, effects);
        }
        partition.dispatch(id, effects);
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::ConnectionId;

    use super::*;

    #[test]
    fn deliveries_in_doubt_are_bounded_and_end() {
        let of = |queue, name: &str| (QueueId(queue), Arc::<str>::from(name));
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
