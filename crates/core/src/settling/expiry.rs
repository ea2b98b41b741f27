//! Expiry: entries whose time is over leave their queues, whether or not a consumer looks at them.
//!
//! Every entry with an end stands in one set, by time, so that a look at the clock costs nothing
//! while none is due. There is a set for each era of the wall clock: an entry ends by the clock as
//! it ran when the entry came (see [`Clock`]).

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{Destination, Effect, EntryTag, MessageEvent, MessageKey, QueueId, SettleCause};

use crate::Partition;
use crate::clock::{Clock, ERAS, Era};
use crate::delivery::dispatch::{begin_fetch, set_entry_aside};
use crate::entries::entry_at;
use crate::intake::route_retries::{grave_of_staged, is_staging};
use crate::memory::packing::open_page;
use crate::notice::announce_message;
use crate::protocols::Protocols;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::settle::{bury_expired, settle_held};
use crate::state::State;

/// Work of one tick at most, in entries that end without a grave: many that end at once do not
/// delay other clients for long.
const SWEPT_MAX: usize = 256;

/// The cost of an entry that goes to the dead letters, with a record of its own.
const BURIAL_COST: usize = 4;

/// The cost of opening a page of entries.
const PAGE_COST: usize = 128;

/// An entry that cannot leave yet, for a consumer has it or its body is on the disk, is looked at
/// again after this.
const AGAIN_MS: u64 = 1000;

/// Bodies that are read at once for the dead letters; meanwhile no more is looked at.
const READ_MAX: usize = SWEPT_MAX;

/// When entries end.
#[derive(Default)]
pub struct Expiries {
    due: [BTreeSet<(u64, QueueId, EntryTag)>; ERAS],
    /// The present era.
    era: Era,
    /// Expired entries that go to the dead letters as soon as their bodies are read: an otherwise
    /// unused page may be packed again before another look at it.
    read: BTreeMap<MessageKey, Vec<(QueueId, EntryTag)>>,
}

impl Expiries {
    /// The entry ends then, in ms since 1970; zero is never.
    pub fn insert(&mut self, at_ms: u64, queue: QueueId, tag: EntryTag) {
        self.insert_in(None, at_ms, queue, tag);
    }

    /// The entry or page ends then by the clock of that era, which is known if it stood here before
    /// in another form.
    pub fn insert_in(&mut self, era: Option<Era>, at_ms: u64, queue: QueueId, tag: EntryTag) {
        if at_ms != 0 {
            self.due[era.unwrap_or(self.era).index()].insert((at_ms, queue, tag));
        }
    }

    /// The entry has left before its end, or is packed or unpacked. Returns the era by whose clock
    /// it would have ended.
    pub fn remove(&mut self, at_ms: u64, queue: QueueId, tag: EntryTag) -> Option<Era> {
        if at_ms == 0 {
            return None;
        }
        let mut eras = std::iter::once(self.era).chain(Era::all().filter(|era| *era != self.era));
        eras.find(|era| self.due[era.index()].remove(&(at_ms, queue, tag)))
    }

    /// Whether no entry ends by the clock of that era.
    pub fn is_free(&self, era: Era) -> bool {
        self.due[era.index()].is_empty()
    }

    /// The wall clock was set: later times are of this era.
    pub fn begin_era(&mut self, era: Era) {
        self.era = era;
    }

    /// When the next one ends, in ticks.
    pub fn next_ms(&self, clock: &Clock) -> Option<u64> {
        let first = |era: Era| self.due[era.index()].first().map(|(at_ms, ..)| clock.ticks_at(era, *at_ms));
        Era::all().filter_map(first).min().filter(|_| self.read.len() < READ_MAX)
    }

    fn take_due(&mut self, clock: &Clock) -> Option<(Era, QueueId, EntryTag)> {
        if READ_MAX <= self.read.len() {
            return None;
        }
        let is_due = |era: &Era| {
            self.due[era.index()].first().is_some_and(|(at_ms, ..)| *at_ms <= clock.wall_of(*era))
        };
        let era = Era::all().find(is_due)?;
        self.due[era.index()].pop_first().map(|(_, queue, tag)| (era, queue, tag))
    }

    /// The body of this entry is read, or is about to be.
    fn awaits(&mut self, key: MessageKey, queue: QueueId, tag: EntryTag) {
        let entries = self.read.entry(key).or_default();
        if !entries.contains(&(queue, tag)) {
            entries.push((queue, tag));
        }
    }

    /// The entries that this body was read for.
    pub fn take_read(&mut self, key: MessageKey) -> Vec<(QueueId, EntryTag)> {
        self.read.remove(&key).unwrap_or_default()
    }

    /// The queues in which the message is at its end and is read for it.
    pub fn awaiting(&self, key: MessageKey) -> impl Iterator<Item = &QueueId> {
        self.read.get(&key).into_iter().flatten().map(|(id, _)| id)
    }
}

/// Where the message goes if its time is over in this queue; `None` if it ends. A volatile
/// subscription keeps nothing for later, and an expired message in a dead-letter queue is
/// discarded.
pub fn grave_of(
    state: &State,
    settings: &Settings,
    protocols: &Protocols,
    id: QueueId,
    key: MessageKey,
) -> Option<Destination> {
    let queue = state.queues.get(&id).filter(|_| !id.is_volatile())?;
    if is_staging(&queue.source) {
        let staged = state.bodies.resident(key).map(|message| grave_of_staged(protocols, message));
        // Which one is known once its body is read.
        return staged.unwrap_or_else(|| Some(queue.source.clone()));
    }
    let policy = &settings.policies.of(&queue.source).dead_letters;
    let (headers, _) = state.bodies.headers(key)?;
    let keeps = policy.expired && (headers.persistent || policy.non_persistent);
    policy.queue_of(&queue.source).filter(|grave| keeps && *grave != queue.source)
}

/// Ends due entries.
pub fn sweep(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut absent = Vec::new();
    let mut left = SWEPT_MAX;
    while left > 0
        && let Some((era, id, tag)) = partition.state.expiries.take_due(&partition.clock)
    {
        // It stood for its page: now each of its entries stands for itself.
        if open_page_in(partition, era, id, tag) {
            left = left.saturating_sub(PAGE_COST);
            continue;
        }
        left -= 1;
        let Some(entry) = entry_at(partition, id, tag) else { continue };
        let (key, state) = (entry.key, entry.state);
        // It may be refused by the log, or held: then its turn comes again.
        partition.state.expiries.insert(partition.clock.wall_ms() + AGAIN_MS, id, tag);
        if state != EntryState::Ready && state != EntryState::Resting {
            continue;
        }
        let has_grave =
            grave_of(&partition.state, &partition.settings, &partition.protocols, id, key).is_some();
        if !has_grave || partition.state.bodies.resident(key).is_some() {
            left = left.saturating_sub(if has_grave { BURIAL_COST } else { 0 });
            expire(partition, id, tag, effects);
            continue;
        }
        partition.state.expiries.awaits(key, id, tag);
        if !partition.leader.delivery.fetches.has(key) {
            begin_fetch(&mut partition.state, &mut partition.leader, key.into());
            absent.push(key);
        }
    }
    if !absent.is_empty() {
        effects.push(Effect::Fetch { keys: absent });
    }
}

/// Opens the page of this entry; its entries go on to end by the clock of that era.
fn open_page_in(partition: &mut Partition, era: Era, id: QueueId, tag: EntryTag) -> bool {
    let current = std::mem::replace(&mut partition.state.expiries.era, era);
    let is_open = open_page(partition, id, tag);
    partition.state.expiries.era = current;
    is_open
}

/// The body came that these entries need to go to the dead letters; or it cannot be read, and
/// they stay on disk, undelivered and counted.
pub fn read_for_expiry(
    partition: &mut Partition,
    entries: Vec<(QueueId, EntryTag)>,
    is_there: bool,
    effects: &mut Vec<Effect>,
) {
    for (id, tag) in entries {
        let state = entry_at(partition, id, tag).map(|entry| entry.state);
        match state {
            Some(EntryState::Ready | EntryState::Resting) if is_there => expire(partition, id, tag, effects),
            Some(EntryState::Ready | EntryState::Resting) => {
                partition.counters.unreadable += 1;
                set_entry_aside(partition, id, tag);
            }
            _ => {}
        }
    }
}

/// Ends an expired entry; its body is in memory if it has a grave. No client waits for it.
pub fn expire(partition: &mut Partition, id: QueueId, tag: EntryTag, effects: &mut Vec<Effect>) {
    let Some(key) = entry_at(partition, id, tag).map(|entry| entry.key) else { return };
    announce_message(partition, id, tag, MessageEvent::Expired, None, effects);
    match grave_of(&partition.state, &partition.settings, &partition.protocols, id, key) {
        Some(grave) => bury_expired(partition, (id, &[tag]), Vec::new(), grave, None, effects),
        None => settle_held(partition, id, &[tag], SettleCause::Expired, None, effects),
    }
}
