//! Work on whole queues that goes in steps, one each millisecond: the entries of ended queues, and
//! those beyond the limits of others. Either may be millions of messages.
//!
//! To everybody else a queue is gone at once, and all that it held is discarded; but its messages
//! take memory and disk until their step. A snapshot does not have them any more, so a start lets
//! go of the rest.

use std::collections::{BTreeSet, VecDeque};

use postroad_model::{Effect, QueueId};

use crate::Partition;
use crate::entries::note_released;
use crate::queue::{Entry, LaneNumber, Lanes, Page, TakenPage, tag};
use crate::settling::settle::let_message_go;

/// Entries after which a step ends: less than a millisecond of work.
const STEP_ENTRIES: u64 = 1024;

/// See the head of this file.
#[derive(Default)]
pub struct Endings {
    /// Entries of ended queues.
    gone: VecDeque<(QueueId, Lanes)>,
    /// Queues that hold more than their limit allows after their last step.
    pub over: BTreeSet<QueueId>,
}

impl Endings {
    /// Whether entries of queues that are gone are not released yet.
    pub fn is_ending(&self) -> bool {
        !self.gone.is_empty()
    }

    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.gone.is_empty() || !self.over.is_empty()).then_some(now_ms + 1)
    }

    /// The packed pages of queues that are gone.
    pub fn ending_pages(&self) -> impl Iterator<Item = &Page> {
        let lanes = self.gone.iter().flat_map(|(_, lanes)| lanes.iter());
        lanes.flat_map(|(_, lane)| lane.packed_pages())
    }
}

/// A queue is gone that held this.
pub fn let_go(partition: &mut Partition, id: QueueId, lanes: Lanes, effects: &mut Vec<Effect>) {
    partition.counters.discarded += lanes.iter().map(|(_, lane)| lane.len()).sum::<u64>();
    partition.state.endings.gone.push_back((id, lanes));
    let_go_some(partition, effects);
    // While a log is read no client waits, and there is no time that could pass.
    while !partition.leader.is_live && !partition.state.endings.gone.is_empty() {
        let_go_some(partition, effects);
    }
}

/// Releases some entries of ended queues.
pub fn let_go_some(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut entries = 0;
    while let Some((id, lanes)) = partition.state.endings.gone.front_mut()
        && entries < STEP_ENTRIES
    {
        let id = *id;
        match lanes.take_page() {
            None => drop(partition.state.endings.gone.pop_front()),
            Some((number, TakenPage::Packed(page))) => {
                entries += page.len();
                let_page_go(partition, id, number, &page, effects);
            }
            Some((number, TakenPage::Open(taken))) => {
                entries += taken.len() as u64;
                for (sequence, entry) in taken {
                    let_entry_go(partition, id, number, sequence, &entry, effects);
                }
            }
        }
    }
}

fn let_entry_go(
    partition: &mut Partition,
    id: QueueId,
    number: LaneNumber,
    sequence: u64,
    entry: &Entry,
    effects: &mut Vec<Effect>,
) {
    let at_ms = partition.state.bodies.headers(entry).map_or(0, |(headers, _)| headers.expires_at_ms);
    partition.state.expiries.remove(at_ms, id, tag(number.0, sequence));
    let_message_go(partition, entry, effects);
}

fn let_page_go(
    partition: &mut Partition,
    id: QueueId,
    number: LaneNumber,
    page: &Page,
    effects: &mut Vec<Effect>,
) {
    partition.state.expiries.remove(page.first_expiry_ms(), id, tag(number.0, page.ends().0));
    partition.state.bodies.remove_page(page);
    for (key, bytes) in page.messages().iter().flat_map(|row| row.keys().map(|key| (key, row.body_bytes))) {
        if partition.state.bodies.end_packed(key) {
            note_released(partition, key, bytes, effects);
        }
    }
}
