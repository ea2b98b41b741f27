//! The part of a snapshot that is made before it, in steps: between them the partition goes on
//! with its work, so that a checkpoint stops it for the changes during the steps alone.

use postroad_model::QueueId;

use crate::Partition;
use crate::memory::packing::written_page;
use crate::queue::LaneNumber;

/// Entries after which a step ends: less than a millisecond of work.
const STEP_ENTRIES: u64 = 2048;

/// Pages that the next snapshot needs and that are not written yet: see
/// [`Partition::unwritten_pages`].
#[derive(Debug)]
pub struct UnwrittenPages(Vec<(QueueId, LaneNumber, u64)>);

impl Partition {
    /// Full pages that are not written as they are now. Later changes may add to them: that is left
    /// to [`Partition::snapshot`].
    pub fn unwritten_pages(&self) -> UnwrittenPages {
        let queues = self.state.queues.values().filter(|queue| !queue.id.is_volatile());
        let lanes =
            queues.flat_map(|queue| queue.lanes.iter().map(|(number, lane)| (queue.id, number, lane)));
        let durable = lanes.filter(|(_, number, _)| !number.is_volatile());
        let pages = durable.flat_map(|(id, number, lane)| {
            let pages = lane.full_pages().filter(|page| !lane.is_written(*page));
            pages.map(move |page| (id, number, page))
        });
        UnwrittenPages(pages.collect())
    }

    /// Writes some of them, as many as take little time; returns whether there are more. No record
    /// depends on it.
    pub fn write_pages(&self, unwritten: &mut UnwrittenPages) -> bool {
        let mut entries = 0;
        while let Some((id, number, page)) = unwritten.0.pop() {
            // It may be gone, or packed, by now.
            if let Some(lane) = self.state.queues.get(&id).and_then(|queue| queue.lanes.get(number)) {
                written_page(&self.state, lane, page);
                entries += lane.page_entries();
            }
            if STEP_ENTRIES <= entries {
                break;
            }
        }
        !unwritten.0.is_empty()
    }
}
