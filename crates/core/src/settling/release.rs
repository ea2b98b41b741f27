//! Entries that return to their queues, and how often each was delivered without success.

use postroad_model::{Command, ConsumerKey, Effect, EntryTag, QueueId, Urgency};

use crate::Partition;
use crate::log::completion::Completion;
use crate::memory::bodies::BodyLocation;
use crate::queue::{EntryState, LaneNumber};

impl Partition {
    /// Entries that a consumer holds become ready again, in their old places.
    pub(crate) fn release(
        &mut self,
        id: QueueId,
        holder: ConsumerKey,
        tags: &[EntryTag],
        failed: bool,
        effects: &mut Vec<Effect>,
    ) {
        let mut released = Vec::with_capacity(tags.len());
        for tag in tags {
            let Some(entry) = self.entry(id, *tag) else { continue };
            if entry.state == (EntryState::Held { by: holder, in_transaction: false }) {
                let held = BodyLocation::from(&*entry);
                self.state.bodies.unpin(held);
                released.push(*tag);
            }
        }
        if failed {
            self.count_failed(id, &released, effects);
        }
        for tag in released {
            self.give_back(id, tag);
        }
    }

    /// The delivery count rises: at once here, and in the log when convenient.
    pub(crate) fn count_failed(&mut self, id: QueueId, tags: &[EntryTag], effects: &mut Vec<Effect>) {
        let (mut durable, mut volatile) = (Vec::new(), Vec::new());
        for tag in tags {
            match LaneNumber::of_tag(*tag).is_volatile() {
                true => volatile.push(*tag),
                false => durable.push(*tag),
            }
        }
        self.count_delivery(id, &volatile);
        for tag in &durable {
            if let Some(entry) = self.entry(id, *tag) {
                entry.uncounted_deliveries += 1;
            }
        }
        if !durable.is_empty() {
            let counted = durable.clone();
            let command = Command::CountDelivery { queue: id, tags: durable };
            self.propose(command, Urgency::Lazy, Completion::Counted { queue: id, tags: counted }, effects);
        }
    }

    /// A count that was known here already is in the log now, and replicas know it too.
    pub(crate) fn counted(&mut self, id: QueueId, tags: &[EntryTag]) {
        for tag in tags {
            if let Some(entry) = self.entry(id, *tag) {
                entry.uncounted_deliveries = entry.uncounted_deliveries.saturating_sub(1);
            }
        }
    }

    /// Adds one failed delivery to each entry.
    pub(crate) fn count_delivery(&mut self, id: QueueId, tags: &[EntryTag]) {
        for tag in tags {
            if let Some(entry) = self.entry(id, *tag) {
                entry.failed_deliveries += 1;
            }
        }
    }
}
