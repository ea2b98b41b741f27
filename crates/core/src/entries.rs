//! Entries: a message comes into a queue, is looked up there, and gives up its claim.

use postroad_model::{Effect, EntryTag, Message, MessageKey, QueueId};

use crate::delivery::group::begin_groups;
use crate::delivery::idle::wake_who_wants;
use crate::flow::Passed;
use crate::intake::blocked::BlockedOn;
use crate::intake::chunks;
use crate::intake::unparking::unpark_held_by;
use crate::leader::Leader;
use crate::leasing::delay_new;
use crate::memory::bodies::{BodyLocation, Gone};
use crate::memory::packing::{open_page, pack_what_is_idle};
use crate::partition::Partition;
use crate::queue::{Entry, EntryState, Lane, LaneNumber, untag};
use crate::state::State;
use crate::traces;

/// Adds an entry at the end of a queue, after all others of its priority; but before messages
/// sent here directly, if it has `moved` here from the queue's former partition. See
/// [`postroad_model::Sent::moved`].
pub fn push_entry(partition: &mut Partition, id: QueueId, key: MessageKey, moved: Option<u32>) {
    let Some(queue) = partition.state.queues.get_mut(&id) else { return };
    let Some((place, message, bytes)) = partition.state.bodies.claim(key) else { return };
    let in_log = matches!(key, MessageKey::Durable { .. }) && !queue.id.is_volatile();
    let lane = LaneNumber::of(message.priority, !in_log);
    let lane = if moved.is_some() { lane.ahead() } else { lane };
    let begins_groups = queue.groups.is_none() && queue.has_groups() && message.group().is_some();
    let entry = Entry {
        key,
        place,
        stamp: queue.next_stamp,
        failed_deliveries: moved.unwrap_or(0),
        uncounted_deliveries: 0,
        state: EntryState::Ready,
    };
    queue.next_stamp += 1;
    partition.counters.enqueued += 1;
    let tag = queue.push(lane, entry);
    let page_entries = queue.lanes.get(lane).map_or(1, Lane::page_entries);
    queue.counts.of_lane(lane).enqueued += 1;
    if partition.leader.is_live {
        partition.leader.flows.note(queue, partition.now_ms, Passed::comes);
    }
    if queue.requests.is_watched {
        partition.leader.leasing.watches.note(id);
    }
    if let Some(value) = message.last_value().filter(|_| queue.keeps_last) {
        queue.note_value(value, key, tag);
    }
    let (_, sequence) = untag(tag);
    partition.state.expiries.insert(message.expires_at_ms, id, tag);
    let visible_at_ms = message.visible_at_ms();
    if let Some(of) = message.deduplication() {
        queue.duplicates.get_or_insert_default().note(of, tag);
    }
    queue.load.add(bytes);
    let in_memory = if matches!(key, MessageKey::Volatile(_)) { message.bytes.len() as u64 } else { 0 };
    queue.volatile_bytes += in_memory;
    partition.leader.intake.accounts.add(queue.owners, bytes, in_memory);
    traces::ready(partition, id, key, tag);
    if begins_groups {
        begin_groups(&mut partition.state, &mut partition.leader, id);
    }
    if !delay_new(partition, id, tag, visible_at_ms) {
        wake_who_wants(partition, id, key, tag);
    }
    // It is the first of a page: the one before is full.
    if sequence.is_multiple_of(page_entries) {
        pack_what_is_idle(partition, id, lane, 0..0);
    }
}

/// A queue gives up its claim on a message.
pub fn drop_reference(partition: &mut Partition, key: MessageKey, effects: &mut Vec<Effect>) {
    let gone = partition.state.bodies.unrefer(key);
    release_gone(partition, key, gone, effects);
}

/// As `drop_reference`, and the message was in hand there.
pub fn put_down(partition: &mut Partition, key: MessageKey, effects: &mut Vec<Effect>) {
    let gone = partition.state.bodies.put_down(key);
    release_gone(partition, key, gone, effects);
}

pub fn release_gone(
    partition: &mut Partition,
    key: MessageKey,
    gone: Option<Gone>,
    effects: &mut Vec<Effect>,
) {
    let Some(Gone { bytes, chunks }) = gone else { return };
    note_released(partition, key, bytes, effects);
    if let Some(chunks) = chunks {
        chunks::release(&chunks, effects);
    }
}

pub fn note_released(partition: &mut Partition, key: MessageKey, bytes: u64, effects: &mut Vec<Effect>) {
    if !partition.leader.traces.is_idle() {
        partition.leader.traces.gone(key);
    }
    match key {
        MessageKey::Durable { position, ordinal } => {
            effects.push(Effect::Release { position, ordinal, bytes });
        }
        MessageKey::Volatile(_) => unpark_held_by(partition, BlockedOn::Memory, effects),
    }
}

/// The entry, if the queue still holds it; its page is open then.
pub fn entry_at(partition: &mut Partition, queue: QueueId, tag: EntryTag) -> Option<&mut Entry> {
    open_page(partition, queue, tag);
    partition.state.queues.get_mut(&queue)?.entry(tag)
}

/// The message and body that the entry refers to, for a lookup.
pub fn sought_at(partition: &mut Partition, queue: QueueId, tag: EntryTag) -> Option<BodyLocation> {
    entry_at(partition, queue, tag).map(|entry| BodyLocation::from(&*entry))
}

pub fn insert_volatile(
    state: &mut State,
    leader: &mut Leader,
    mut message: Message,
    effects: &mut Vec<Effect>,
) -> MessageKey {
    leader.intake.uploads.retain_chunks(&message, effects);
    let key = MessageKey::Volatile(leader.volatile.next_message);
    if let Some(trace) = message.take_trace() {
        leader.traces.begin(key, trace);
    }
    leader.volatile.next_message += 1;
    state.bodies.insert(key, message);
    key
}
