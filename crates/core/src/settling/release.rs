//! Entries that return to their queues, and how often each was delivered without success.

use postroad_model::{Command, ConsumerKey, Effect, EntryTag, QueueId, Urgency};

use crate::Partition;
use crate::entries::entry_at;
use crate::intake::limit::give_back;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::memory::bodies::BodyLocation;
use crate::queue::{EntryState, LaneNumber};

/// Entries that a consumer holds become ready again, in their old places.
pub fn release_entries(
    partition: &mut Partition,
    id: QueueId,
    holder: ConsumerKey,
    tags: &[EntryTag],
    failed: bool,
    effects: &mut Vec<Effect>,
) {
    let mut released = Vec::with_capacity(tags.len());
    for tag in tags {
        let Some(entry) = entry_at(partition, id, *tag) else { continue };
        if entry.state == (EntryState::Held { by: holder, in_transaction: false }) {
            let held = BodyLocation::from(&*entry);
            partition.state.bodies.unpin(held);
            released.push(*tag);
        }
    }
    if failed {
        count_failed(partition, id, &released, effects);
    }
    for tag in released {
        give_back(partition, id, tag);
    }
}

/// The delivery count rises: at once here, and in the log when convenient.
pub fn count_failed(partition: &mut Partition, id: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
    let (mut durable, mut volatile) = (Vec::new(), Vec::new());
    for tag in tags {
        match LaneNumber::of_tag(*tag).is_volatile() {
            true => volatile.push(*tag),
            false => durable.push(*tag),
        }
    }
    count_delivery(partition, id, &volatile);
    for tag in &durable {
        if let Some(entry) = entry_at(partition, id, *tag) {
            entry.uncounted_deliveries += 1;
        }
    }
    if !durable.is_empty() {
        let counted = durable.clone();
        let command = Command::CountDelivery { queue: id, tags: durable };
        propose(partition, command, Urgency::Lazy, Completion::Counted { queue: id, tags: counted }, effects);
    }
}

/// A count that was known here already is in the log now, and replicas know it too.
pub fn counted(partition: &mut Partition, id: QueueId, tags: &[EntryTag]) {
    for tag in tags {
        if let Some(entry) = entry_at(partition, id, *tag) {
            entry.uncounted_deliveries = entry.uncounted_deliveries.saturating_sub(1);
        }
    }
}

/// Adds one failed delivery to each entry.
pub fn count_delivery(partition: &mut Partition, id: QueueId, tags: &[EntryTag]) {
    for tag in tags {
        if let Some(entry) = entry_at(partition, id, *tag) {
            entry.failed_deliveries += 1;
        }
    }
}
