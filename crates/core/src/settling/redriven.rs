//! The messages of a redrive that an undo cannot move: consumers, leases or transactions have them.
//!
//! They are counted in steps, as all entries of the open pages are looked at.

use std::collections::VecDeque;

use postroad_model::{QueueId, RedriveId};

use crate::Partition;
use crate::queue::{EntryState, LaneNumber};

/// Entries that one step looks at, to the end of a page: some ten microseconds.
const STEP_ENTRIES: u64 = 4096;

/// A count that has begun.
pub struct HeldCount {
    queue: QueueId,
    id: RedriveId,
    /// Open pages that were not looked at; a page with an entry in flight is open.
    pages: VecDeque<(LaneNumber, u64)>,
    messages: u64,
}

impl HeldCount {
    /// Of messages of this redrive in the queue.
    pub fn begin(partition: &Partition, queue: QueueId, id: RedriveId) -> HeldCount {
        let lanes = partition.state.queues.get(&queue).into_iter().flat_map(|queue| queue.lanes.iter());
        let pages = lanes.flat_map(|(number, lane)| lane.open_pages().map(move |page| (number, page)));
        HeldCount { queue, id, pages: pages.collect(), messages: 0 }
    }

    /// How many were found.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Looks at some more; returns whether that was all.
    pub fn go_on(&mut self, partition: &Partition) -> bool {
        let Some(queue) = partition.state.queues.get(&self.queue) else { return true };
        let mut left = STEP_ENTRIES;
        while 0 < left
            && let Some((number, page)) = self.pages.pop_front()
        {
            let Some(lane) = queue.lanes.get(number) else { continue };
            left = left.saturating_sub(lane.page_entries());
            let held = lane.page(page).filter(|(_, entry)| entry.state != EntryState::Ready);
            let is_of =
                |headers: &postroad_model::Message| headers.redriven().is_some_and(|mark| mark.id == self.id);
            let of_redrive = held.filter(|(_, entry)| {
                partition.state.bodies.headers(entry.key).is_some_and(|(headers, _)| is_of(headers))
            });
            self.messages += of_redrive.count() as u64;
        }
        self.pages.is_empty()
    }
}
