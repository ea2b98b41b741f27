//! Browsing: browsers see the contents of a queue, and take nothing of it.
//!
//! Consumers come first. Browsers of a queue are served in steps of a bounded number of entries,
//! one step for each event that concerns the queue; the rest is due with the next tick, where the
//! browsers of all queues share a bound. A browser whose body is on its way from the log waits by
//! itself: neither consumers nor other browsers wait with it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use postroad_model::{ConsumerKey, Effect, EntryTag, Message, MessageKey, QueueId};

use crate::Partition;
use crate::delivery::consumer::finish_drains;
use crate::delivery::dispatch::{Step, send_next, takes_more};
use crate::delivery::line::{leave_line, line_up};
use crate::delivery::selection::at_delivery;
use crate::delivery::spread::{end_browse_of_members, has_credit, starve};
use crate::leader::Leader;
use crate::leasing::{finish_fed, has_looked_at_all};
use crate::memory::packing::is_short_of_memory;
use crate::queue::{LaneNumber, Queue, ReadOn, untag};
use crate::settings::Settings;
use crate::state::State;

/// Entries that a browser looks at before the next one has its turn.
const TURN_ENTRIES: usize = 16;

/// Entries that the browsers of one queue look at in one step: some 0.1 ms of work.
const STEP_ENTRIES: usize = 64;

/// Entries that all browsers look at in one tick: they come every millisecond.
const TICK_ENTRIES: usize = 256;

/// The progress of a browser, and the end of its view.
#[derive(Clone, Debug, Default)]
pub struct Browse {
    pub(crate) cursor: BTreeMap<u8, u64>,
    end: BTreeMap<u8, u64>,
    /// It has seen all, and its client was notified.
    pub(crate) is_over: bool,
    /// The body that is next is on its way from the log.
    pub(crate) is_fetching: bool,
    /// How far bodies were read ahead for it.
    pub(crate) read_on: Option<ReadOn>,
}

/// Queues whose browsers go on with the next tick.
#[derive(Default)]
pub struct Browses {
    due: VecDeque<QueueId>,
}

impl Browse {
    /// Nothing is left to be seen.
    pub(crate) fn go_to_end(&mut self) {
        self.cursor.clone_from(&self.end);
    }

    /// A view of the queue's present contents.
    pub(crate) fn of(queue: &Queue) -> Browse {
        let end = queue.lanes.iter().map(|(number, lane)| (number.0, lane.next_sequence())).collect();
        Browse { end, ..Browse::default() }
    }

    /// A view of one entry alone.
    pub(crate) fn of_one(queue: &Queue, entry: EntryTag) -> Browse {
        let mut browse = Browse::of(queue);
        browse.go_to_end();
        let (lane, sequence) = untag(entry);
        if let Some(end) = browse.end.get_mut(&lane).filter(|end| sequence < **end) {
            *end = sequence + 1;
            browse.cursor.insert(lane, sequence);
        }
        browse
    }

    /// Sequences of this lane that it has not come to. Of one that was made since there are none.
    pub(crate) fn view(&self, lane: LaneNumber) -> Range<u64> {
        let at = |sequences: &BTreeMap<u8, u64>| sequences.get(&lane.0).copied().unwrap_or(0);
        at(&self.cursor)..at(&self.end)
    }

    pub(crate) fn pass(&mut self, tag: EntryTag) {
        let (lane, sequence) = untag(tag);
        self.cursor.insert(lane, sequence + 1);
    }
}

impl Browses {
    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.due.is_empty()).then_some(now_ms + 1)
    }
}

/// Whether it browses.
pub fn browses(leader: &Leader, key: ConsumerKey) -> bool {
    leader.delivery.consumers.get(&key).is_some_and(|consumer| consumer.browse.is_some())
}

/// A body that was read back for a browser leaves memory again, if that is short: it must not
/// push out bodies read ahead for consumers.
pub fn forget_browsed(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    id: QueueId,
    tag: EntryTag,
    key: MessageKey,
) {
    let last_ahead = state.queues.get(&id).and_then(|queue| queue.read_on).map(|on| untag(on.last));
    let (lane, sequence) = untag(tag);
    let is_for_consumers = last_ahead.is_some_and(|(of, last)| of == lane && sequence <= last);
    if !is_for_consumers && is_short_of_memory(state, leader, settings) {
        state.bodies.evict_read_back(key);
    }
}

/// Serves the browsers of the queue one step, unless they go on with the next tick anyway.
pub fn serve_browsers(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    if partition.state.queues.get(&id).is_some_and(|queue| !queue.browse_is_due) {
        browse_step(partition, id, effects);
    }
}

/// Goes on where steps ended before all was seen, queue by queue.
pub fn go_on_browsing(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut looked = 0;
    while looked < TICK_ENTRIES
        && let Some(id) = partition.leader.delivery.browses.due.pop_front()
    {
        // A queue that has ended is passed over.
        let Some(queue) = partition.state.queues.get_mut(&id) else { continue };
        queue.browse_is_due = false;
        looked += browse_step(partition, id, effects);
        finish_drains(&mut partition.state, &mut partition.leader, id, effects);
    }
    finish_fed(partition, effects);
}

/// Returns how many entries were looked at.
fn browse_step(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) -> usize {
    let mut looked = 0;
    while let Some((_, key)) = partition.state.queues.get(&id).and_then(|queue| queue.browsing.next(None)) {
        if STEP_ENTRIES <= looked {
            if let Some(queue) = partition.state.queues.get_mut(&id) {
                queue.browse_is_due = true;
                partition.leader.delivery.browses.due.push_back(id);
            }
            break;
        }
        looked += browse_turn(partition, id, key, effects);
    }
    looked
}

/// One browser's turn; returns how many entries it looked at, its end counted as one.
fn browse_turn(partition: &mut Partition, id: QueueId, key: ConsumerKey, effects: &mut Vec<Effect>) -> usize {
    for looked in 1..=TURN_ENTRIES {
        if key.member != 0 && !has_credit(&partition.leader, key) {
            starve(&mut partition.state, &mut partition.leader, key);
            return looked;
        }
        match send_next(partition, id, key, effects) {
            Step::Sent | Step::SentLast | Step::Skipped
                if takes_more(&partition.leader, &partition.settings, key) => {}
            Step::Sent | Step::SentLast | Step::Skipped => {
                leave_line(&mut partition.state, &mut partition.leader, key);
                return looked;
            }
            Step::Nothing => {
                finish_browse(partition, key, effects);
                return looked;
            }
            Step::Waits => return looked,
        }
    }
    if let Some(queue) = partition.state.queues.get_mut(&id)
        && let Some((turn, _)) = queue.browsing.next(None).filter(|(_, first)| *first == key)
        && let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key)
    {
        queue.browsing.take(turn);
        consumer.turn = queue.browsing.push(consumer.waiting(key));
    }
    TURN_ENTRIES
}

/// The body is here that a browser waited for: it has a turn at once, before the body may leave
/// memory again.
pub fn browse_fetched(partition: &mut Partition, id: QueueId, key: ConsumerKey, effects: &mut Vec<Effect>) {
    let browse =
        partition.leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut());
    let Some(browse) = browse.filter(|browse| browse.is_fetching) else { return };
    browse.is_fetching = false;
    line_up(&mut partition.state, &mut partition.leader, &partition.settings, key);
    if partition.leader.delivery.consumers.get(&key).is_some_and(|consumer| consumer.in_line) {
        browse_turn(partition, id, key, effects);
    }
    serve_browsers(partition, id, effects);
    finish_fed(partition, effects);
}

/// A browser with a selector sees matching messages only.
pub fn passes_over(
    partition: &mut Partition,
    key: ConsumerKey,
    tag: EntryTag,
    message: &Message,
    failed_deliveries: u32,
) -> bool {
    let properties = at_delivery(&partition.clock, &partition.protocols, message, failed_deliveries);
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return false };
    let Some(selection) = &consumer.selection else { return false };
    let passes = !selection.wants(&properties);
    if let Some(browse) = consumer.browse.as_mut().filter(|_| passes) {
        browse.pass(tag);
    }
    passes
}

/// Notifies the client of a browser that has seen everything, and takes the browser out of the
/// line.
fn finish_browse(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    leave_line(&mut partition.state, &mut partition.leader, key);
    if let Some(browse) =
        partition.leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.browse.as_mut())
    {
        browse.is_over = true;
    }
    if has_looked_at_all(&mut partition.leader, key) {
        return;
    }
    match key.member {
        0 => effects.push(Effect::Drained { consumer: key }),
        _ => end_browse_of_members(partition, key.whole(), effects),
    }
}
