//! Packing: unused parts of a backlog take a few bytes, and are opened before use.
//!
//! Each message that waits costs some 200 bytes for its entry and its headers, wherever its body
//! is. Beyond the budget for durable messages, full pages of entries are packed (see
//! `queue::page`), the newest first, as the newest bodies are left to the disk; nothing is read or
//! written for it. Where consumers, browsers and cursors with selectors are, pages stay open. No
//! record depends on packing.

use std::ops::Range;

use postroad_model::{ConsumerKey, EntryTag, Message, MessageKey, QueueId};

use crate::Partition;
use crate::leader::Leader;
use crate::memory::packed_counts::PACKED_COUNT_MAX;
use crate::queue::{Entry, EntryState, Lane, LaneNumber, Load, Packed, Page, Queue, ReadOn, tag, untag};
use crate::settings::Settings;
use crate::state::State;

/// Limit of the pages that are packed in one attempt, so that it does not hold up other work for
/// long.
const PACKED_MAX: usize = 8;

/// Pages that are looked at for that: some cannot be packed, and that is found at the first such
/// entry of each.
const LOOKED_AT_MAX: usize = 256;

/// This fraction of the share of durable messages is for bodies that were read back and are not yet
/// in flight.
const AHEAD_SHARE: u64 = 4;

/// This fraction of that is kept free.
const KEPT_FREE: u64 = 4;

/// This fraction of the share of durable messages stays theirs, whatever else is in memory.
const OWN_SHARE: u64 = 4;

/// Consumers of a queue whose pages stay open. Those of others may be packed under them, and are
/// opened again before use.
const READERS_MAX: usize = 2048;

/// They shrink once their share has fallen by this fraction: the excess goes at once.
const SHRINK_SHARE: u64 = 16;

/// The interval of looking for the excess: its reader may take it meanwhile.
const STAY_MS: u64 = 100;

impl Partition {
    /// The excess of durable bodies that are not in flight after a tick, or whether they are
    /// miscounted: there must be neither.
    pub fn overstayed(&self) -> Option<String> {
        let (loose_bytes, are_counted) = self.state.bodies.loose_bytes();
        let may_take = durable_bytes_max(&self.state, &self.leader, &self.settings)
            + self.settings.resident_bytes_max / SHRINK_SHARE;
        let bytes_max = may_take + ahead_bytes_kept(&self.state, &self.leader, &self.settings);
        let is_over = bytes_max < loose_bytes;
        (is_over || !are_counted).then(|| {
            format!("bodies that nobody has take {loose_bytes} of {bytes_max} bytes, counted: {are_counted}")
        })
    }
}

/// The last of the entries that are wanted.
fn last_wanted(entries: &[Packed], wanted: &Range<u64>, within: Load) -> u64 {
    let mut rest = within;
    let behind = entries.iter().skip_while(|entry| entry.sequence < wanted.start);
    let behind = behind.take_while(|entry| entry.sequence < wanted.end);
    let within = behind.take_while(|entry| {
        let is_within = 0 < rest.messages && 0 < rest.bytes;
        rest.remove(entry.body_bytes);
        is_within
    });
    within.last().map_or(wanted.start, |entry| entry.sequence)
}

/// All packed pages.
pub(crate) fn packed_pages<'p>(
    queues: impl Iterator<Item = &'p Queue> + 'p,
) -> impl Iterator<Item = &'p Page> + 'p {
    queues.flat_map(|queue| queue.lanes.iter()).flat_map(|(_, lane)| lane.packed_pages())
}

/// Makes a wide page of the packed page of this sequence and those beside it, if all of them
/// are packed, and a wider one of that and those beside it.
fn widen(state: &mut State, settings: &Settings, id: QueueId, number: LaneNumber, sequence: u64) {
    let Some(lane) = state.queues.get_mut(&id).and_then(|queue| queue.lanes.get_mut(number)) else {
        return;
    };
    loop {
        let row = lane.row_of_packed(sequence);
        let entries: Vec<Packed> = row.iter().flat_map(|page| page.entries()).collect();
        let Some(wide) = Page::of(&entries) else { return };
        let wide = wide.shared(row.iter().any(|page| page.is_shared()));
        let mut era = None;
        for page in row {
            era = era.or(state.expiries.remove(page.first_expiry_ms(), id, tag(number.0, page.ends().0)));
            state.bodies.remove_page(page);
        }
        state.expiries.insert_in(era, wide.first_expiry_ms(), id, tag(number.0, wide.ends().0));
        let wide = state.bodies.keep_page(wide, settings);
        lane.widen(wide);
    }
}

/// How many entries from the page on at which a reader is are as good as its own: bodies are
/// read ahead.
pub fn entries_ahead(settings: &Settings, lane: &Lane) -> u64 {
    2 * settings.page_entries.max(lane.page_entries())
}

/// If the lane has become deep, leaves the bodies of these pages of it to the disk. Those few
/// that found room now and then would lie apart from each other, and each hold a part of memory
/// that no other size of body can have.
fn leave_bodies(state: &mut State, id: QueueId, number: LaneNumber, pages: &[u64]) {
    let lane = state.queues.get(&id).and_then(|queue| queue.lanes.get(number));
    let Some(lane) = lane.filter(|lane| lane.is_deep()) else { return };
    for (_, entry) in pages.iter().flat_map(|page| lane.page(*page)) {
        state.bodies.evict(entry.key);
    }
}

/// Whether the latest messages of these queues are not due for long: all of them have packed
/// pages, and no readers.
pub fn are_deep(state: &State, queues: &[QueueId]) -> bool {
    let is_deep = |id| {
        let queue: Option<&Queue> = state.queues.get(id).filter(|queue| queue.consumers.is_empty());
        queue.is_some_and(|queue| queue.lanes.iter().any(|(_, lane)| lane.is_deep()))
    };
    !queues.is_empty() && queues.iter().all(is_deep)
}

/// The share of durable messages: the rest after those in memory alone, open transactions and
/// retroactive messages, of the memory for all.
pub fn durable_bytes_max(state: &State, leader: &Leader, settings: &Settings) -> u64 {
    let Settings { resident_bytes_max: most, messages_bytes_max, .. } = settings;
    let others =
        state.bodies.volatile_bytes + leader.transactions.open_bytes + leader.retained.overhead_bytes();
    messages_bytes_max.saturating_sub(others).clamp(most / OWN_SHARE, *most)
}

/// Lanes that have pages which can be packed if they are not in use.
fn lanes_with_full_pages(state: &State) -> Vec<(QueueId, LaneNumber)> {
    let lanes = state.queues.values().flat_map(|queue| {
        let lanes = queue.lanes.iter().map(|(number, lane)| (queue.id, number, lane));
        lanes.filter(|(_, number, lane)| !number.is_volatile() && lane.full_pages().next().is_some())
    });
    lanes.map(|(id, number, _)| (id, number)).collect()
}

/// How many hold that message of this open page which most hold.
fn holders(state: &State, lane: &Lane, page: u64) -> u32 {
    lane.page(page).map(|(_, entry)| state.bodies.holders(entry)).max().unwrap_or(0)
}

fn as_packed(state: &State, sequence: u64, entry: &Entry) -> Option<Packed> {
    let Entry { key, stamp, failed_deliveries, .. } = *entry;
    let MessageKey::Durable { position, ordinal } = key else { return None };
    // Which records hold the body of a large message is known at all times: they are few, and
    // stay open.
    let (headers, body_bytes) =
        state.bodies.headers(entry).filter(|(headers, _)| headers.chunks().is_none())?;
    let headers = Message { bytes: bytes::Bytes::new(), ..headers.clone() };
    Some(Packed { sequence, stamp, position, ordinal, failed_deliveries, headers, body_bytes })
}

/// Whether the budget of durable messages is lower than when they last shrank.
fn must_shrink(state: &State, leader: &Leader, settings: &Settings) -> bool {
    let step = settings.resident_bytes_max / SHRINK_SHARE;
    durable_bytes_max(state, leader, settings) < leader.memory.shrink_bytes.saturating_sub(step)
}

/// Bodies read ahead for coming deliveries take no more than this, unless there is room for
/// more.
pub fn ahead_bytes_max(state: &State, leader: &Leader, settings: &Settings) -> u64 {
    durable_bytes_max(state, leader, settings) / AHEAD_SHARE
}

/// Whether durable messages take more than they may.
pub fn is_short_of_memory(state: &State, leader: &Leader, settings: &Settings) -> bool {
    state.bodies.taken() > durable_bytes_max(state, leader, settings)
}

/// Pages of the lane at which some reader of the queue is, with those after them that it soon
/// comes to: bodies are read ahead.
fn pages_in_use(
    leader: &Leader,
    settings: &Settings,
    queue: &Queue,
    number: LaneNumber,
    lane: &Lane,
) -> Vec<Range<u64>> {
    let at = |key: &ConsumerKey| {
        // One that is idle goes on where the next entry is that it wants.
        let consumer = leader.delivery.consumers.get(key).filter(|_| !queue.is_idle(*key))?;
        let browse = consumer.browse.as_ref();
        let browse = browse.and_then(|browse| Some((*browse.cursor.get(&number.0)?, browse.read_on)));
        let view = consumer.selection.as_ref().and_then(|selection| selection.views().get(&number.0));
        Some([browse, view.map(|view| (view.cursor(), queue.read_on))])
    };
    let cursors = queue.consumers.iter().take(READERS_MAX).filter_map(at).flatten().flatten();
    // The first ones are due for any of them.
    let first = (!queue.consumers.is_empty()).then(|| (lane.cursor(), queue.read_on));
    let ahead = entries_ahead(settings, lane);
    let reach = |(cursor, read_on): (u64, Option<ReadOn>)| {
        let asked_for = read_on.map(|on| untag(on.last)).filter(|(of, _)| *of == number.0);
        let page = lane.page_of(cursor);
        let asked_for = asked_for.map(|(_, last)| lane.page_of(last) + lane.page_entries());
        let end = asked_for.filter(|end| *end <= page + 2 * ahead).unwrap_or(0);
        page..end.max(page + ahead)
    };
    let mut pages: Vec<Range<u64>> = cursors.chain(first).map(reach).collect();
    pages.sort_unstable_by_key(|pages| pages.start);
    pages.dedup();
    pages
}

/// The entry as it lies in a page; `None` if it cannot, because it is in use.
fn packed(state: &State, leader: &Leader, sequence: u64, entry: &Entry) -> Option<Packed> {
    let is_idle = entry.state == EntryState::Ready && entry.uncounted_deliveries == 0;
    if !is_idle || leader.delivery.fetches.has(entry.key) || !state.bodies.is_packable(entry) {
        return None;
    }
    as_packed(state, sequence, entry)
}

/// The form of an open page in a snapshot: the use of its entries is no part of that.
pub fn written_page<'l>(state: &State, lane: &'l Lane, page: u64) -> Option<&'l Page> {
    lane.written(page, || {
        let holders = holders(state, lane, page);
        if u32::from(PACKED_COUNT_MAX) < holders {
            return None;
        }
        let entries = lane.page(page).map(|(sequence, entry)| as_packed(state, sequence, entry));
        let written = Page::of(&entries.collect::<Option<Vec<Packed>>>()?)?;
        Some(written.shared(1 < holders))
    })
}

/// When they shrink next, if they do.
pub fn shrinks_ms(state: &State, leader: &Leader, settings: &Settings, now_ms: u64) -> Option<u64> {
    leader.memory.shrink_due_ms.or_else(|| must_shrink(state, leader, settings).then_some(now_ms + STAY_MS))
}

/// The part of that which may stay.
fn ahead_bytes_kept(state: &State, leader: &Leader, settings: &Settings) -> u64 {
    ahead_bytes_max(state, leader, settings) - ahead_bytes_max(state, leader, settings) / KEPT_FREE
}

/// If memory is short, bodies read back or returned beyond that go to the log again, the oldest
/// first: their readers may be gone, or have no use for them now. A part is kept free, so that
/// there is room for active ones.
pub fn leave_what_is_ahead(state: &mut State, leader: &mut Leader, settings: &Settings) {
    state
        .bodies
        .leave_ahead(ahead_bytes_kept(state, leader, settings), durable_bytes_max(state, leader, settings));
}

/// When that is next, if there is anything of that kind.
pub fn leaves_ahead_ms(state: &State, leader: &Leader, settings: &Settings, now_ms: u64) -> Option<u64> {
    let is_over = ahead_bytes_kept(state, leader, settings) < state.bodies.ahead_bytes()
        && is_short_of_memory(state, leader, settings);
    is_over.then_some(now_ms + STAY_MS)
}

/// Opens the page of this entry, if it is packed; returns whether it was.
pub fn open_page(partition: &mut Partition, id: QueueId, entry: EntryTag) -> bool {
    let (number, sequence) = untag(entry);
    let number = LaneNumber(number);
    let alone = Load { messages: 1, bytes: 0 };
    let Some(opened) = unpack_pages(partition, id, number, sequence..sequence + 1, alone) else {
        return false;
    };
    pack_what_is_idle(partition, id, number, opened);
    true
}

/// Of the packed page that has the first of these sequences, if there is one, opens those pages
/// that have the requested entries: the first, and those after it as long as there are not too
/// many messages, or bytes of bodies. Returns which pages these are.
pub fn unpack_pages(
    partition: &mut Partition,
    id: QueueId,
    number: LaneNumber,
    wanted: Range<u64>,
    within: Load,
) -> Option<Range<u64>> {
    let lane = partition.state.queues.get_mut(&id)?.lanes.get_mut(number)?;
    let page = lane.take_packed(wanted.start)?;
    partition.state.bodies.remove_page(&page);
    let era = partition.state.expiries.remove(page.first_expiry_ms(), id, tag(number.0, page.ends().0));
    let (mut entries, is_shared) = (page.entries(), page.is_shared());
    let last = last_wanted(&entries, &wanted, within);
    let pages = lane.page_of(wanted.start)..lane.page_of(last) + lane.page_entries();
    let [first, end] =
        [pages.start, pages.end].map(|end| entries.partition_point(|entry| entry.sequence < end));
    // Their neighbours stay packed, in pages as wide as can be without them.
    for (mut rest, near) in [(&entries[..first], pages.start), (&entries[end..], pages.end - 1)] {
        while let Some(begin) = rest.first() {
            let block_end = lane.end_of_block_beside(begin.sequence, near);
            let block;
            (block, rest) = rest.split_at(rest.partition_point(|entry| entry.sequence < block_end));
            let page = Page::of(block);
            debug_assert!(page.is_some(), "they made a page with others");
            let Some(page) = page else { continue };
            partition.state.expiries.insert_in(era, page.first_expiry_ms(), id, tag(number.0, page.ends().0));
            let page = partition.state.bodies.keep_page(page.shared(is_shared), &partition.settings);
            let restored = lane.restore_packed(page);
            debug_assert!(restored, "its place was its own until now");
        }
    }
    partition.counters.opened_pages += (pages.end - pages.start) / lane.page_entries();
    for packed in entries.drain(first..end) {
        let Packed { sequence, stamp, position, ordinal, failed_deliveries, headers, body_bytes } = packed;
        let key = MessageKey::Durable { position, ordinal };
        partition.state.expiries.insert_in(era, headers.expires_at_ms, id, tag(number.0, sequence));
        let place = partition.state.bodies.unpack(key, headers, body_bytes);
        let state = EntryState::Ready;
        let entry = Entry { key, place, stamp, failed_deliveries, uncounted_deliveries: 0, state };
        lane.restore(sequence, entry);
    }
    Some(pages)
}

/// Packs full pages of the lane while messages take more memory than they may, but for those
/// that were just `opened`, which are about to be used.
pub fn pack_what_is_idle(partition: &mut Partition, id: QueueId, number: LaneNumber, opened: Range<u64>) {
    if number.is_volatile()
        || id.is_volatile()
        || !is_short_of_memory(&partition.state, &partition.leader, &partition.settings)
    {
        return;
    }
    let Some(queue) = partition.state.queues.get(&id) else { return };
    let Some(lane) = queue.lanes.get(number) else { return };
    let in_use = pages_in_use(&partition.leader, &partition.settings, queue, number, lane);
    let is_in_use = |page: &u64| in_use.iter().any(|pages| pages.contains(page));
    let idle = lane.full_pages().filter(|page| !is_in_use(page) && !opened.contains(page));
    let (idle, was_deep) = (idle.collect::<Vec<_>>(), lane.is_deep());
    let mut packed = 0;
    for page in idle.iter().take(LOOKED_AT_MAX) {
        if !is_short_of_memory(&partition.state, &partition.leader, &partition.settings)
            || packed == PACKED_MAX
        {
            break;
        }
        packed += usize::from(pack_page(partition, id, number, *page));
    }
    if !was_deep {
        leave_bodies(&mut partition.state, id, number, &idle);
    }
}

/// Packs idle pages, if memory is short: after a start.
pub fn pack_all(partition: &mut Partition) {
    for (id, number) in lanes_with_full_pages(&partition.state) {
        let lane = partition.state.queues.get(&id).and_then(|queue| queue.lanes.get(number));
        for page in lane.map(|lane| lane.full_pages().collect::<Vec<_>>()).unwrap_or_default() {
            if !is_short_of_memory(&partition.state, &partition.leader, &partition.settings) {
                return;
            }
            pack_page(partition, id, number, page);
        }
    }
}

/// The excess is released: unused pages, some at a time, and bodies, those that came last
/// before the others.
pub fn shrink_to_budget(partition: &mut Partition) {
    if must_shrink(&partition.state, &partition.leader, &partition.settings) {
        partition.leader.memory.shrink_due_ms.get_or_insert(partition.now_ms);
        partition.leader.memory.shrink_bytes =
            durable_bytes_max(&partition.state, &partition.leader, &partition.settings);
    }
    partition.leader.memory.shrink_bytes = partition.leader.memory.shrink_bytes.max(durable_bytes_max(
        &partition.state,
        &partition.leader,
        &partition.settings,
    ));
    if partition.leader.memory.shrink_due_ms.is_none_or(|due_ms| partition.now_ms < due_ms) {
        return;
    }
    let before = partition.counters.packed_pages;
    pack_some(partition);
    partition.state.bodies.leave(durable_bytes_max(&partition.state, &partition.leader, &partition.settings));
    let goes_on = is_short_of_memory(&partition.state, &partition.leader, &partition.settings)
        && before < partition.counters.packed_pages;
    partition.leader.memory.shrink_due_ms = goes_on.then_some(partition.now_ms + STAY_MS);
}

/// Packs unused pages of each lane, as many as one attempt looks at, while memory is short.
fn pack_some(partition: &mut Partition) {
    if is_short_of_memory(&partition.state, &partition.leader, &partition.settings) {
        for (id, number) in lanes_with_full_pages(&partition.state) {
            pack_what_is_idle(partition, id, number, 0..0);
        }
    }
}

/// Whether it can be packed, and is.
fn pack_page(partition: &mut Partition, id: QueueId, number: LaneNumber, page: u64) -> bool {
    let Some(lane) = partition.state.queues.get(&id).and_then(|queue| queue.lanes.get(number)) else {
        return false;
    };
    if lane.has_returned(page) {
        return false;
    }
    let entries =
        lane.page(page).map(|(sequence, entry)| packed(&partition.state, &partition.leader, sequence, entry));
    let Some(entries) = entries.collect::<Option<Vec<Packed>>>() else { return false };
    let is_shared = 1 < holders(&partition.state, lane, page);
    let Some(page) = Page::of(&entries) else { return false };
    let mut era = None;
    for Packed { sequence, position, ordinal, headers, .. } in entries {
        era = era.or(partition.state.expiries.remove(headers.expires_at_ms, id, tag(number.0, sequence)));
        partition.state.bodies.pack(MessageKey::Durable { position, ordinal });
    }
    // The first of them to expire stands for the page.
    partition.state.expiries.insert_in(era, page.first_expiry_ms(), id, tag(number.0, page.ends().0));
    let page = partition.state.bodies.keep_page(page.shared(is_shared), &partition.settings);
    partition.counters.packed_pages += 1;
    let first = page.ends().0;
    if let Some(lane) = partition.state.queues.get_mut(&id).and_then(|queue| queue.lanes.get_mut(number)) {
        lane.pack(page);
    }
    widen(&mut partition.state, &partition.settings, id, number, first);
    true
}
