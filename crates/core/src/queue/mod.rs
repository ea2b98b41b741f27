//! One queue: its lanes of entries, and the consumers that wait for them.

mod groups;
mod lane;
mod lanes;
mod line;
mod load;
mod offers;
mod page;
mod seats;
mod table;
mod turns;
mod view;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use postroad_model::{
    ConsumerMode, Destination, DestinationKind, EntryTag, MessageKey, QueueId, QueueOptions, Subscription,
};
use postroad_routing::{LeaseLimit, Limit, Policies, Returning, Slow};

use crate::addresses::binding::TopicFeed;
use crate::delivery::idle::Selecting;
use crate::figures::Counts;
use crate::intake::account::Owners;
use crate::leasing::Duplicates;
use crate::retained::Replay;
use crate::settling::last_value::LastValues;
use crate::settling::redrive::Returns;

pub use groups::Groups;
pub use lane::{Entry, EntryState, Lane, Span, TakenPage};
pub use lanes::{LaneNumber, Lanes, tag, untag};
pub use load::Load;
pub use offers::Offers;
pub use page::{Packed, Page};
pub use seats::{Seat, Seats};
pub use table::Queues;
pub use turns::{Turn, Turns, Waiting};
pub use view::{Look, Verdict, View};

/// Entries from which each goes to one consumer.
pub struct Queue {
    /// Its id.
    pub id: QueueId,
    /// The address that feeds it.
    pub source: Destination,
    /// The durable subscription that it is, if it is one.
    pub subscription: Option<Subscription>,
    /// The topics that feed it, in addition to direct sends.
    pub fed_by: Vec<TopicFeed>,
    /// Its entries.
    pub lanes: Lanes,
    /// The stamp of the next entry; see [`Entry::stamp`].
    pub next_stamp: u64,
    /// All that are attached, in the order of attachment.
    pub consumers: Seats,
    /// Those that can take a message now, in the order of their turns.
    pub waiting: Turns,
    /// Browsers that can take a message now.
    pub browsing: Turns,
    /// Those that select; `None` without any.
    pub selecting: Option<Box<Selecting>>,
    /// Who has which message group; `None` before the first message of a group.
    pub groups: Option<Box<Groups>>,
    /// Bytes of its messages that are only in memory.
    pub volatile_bytes: u64,
    /// Counters of its messages.
    pub counts: Counts,
    /// All that it holds.
    pub load: Load,
    /// The part of it that waits for no consumer: one has it, or it rests, or leaves.
    pub away: Load,
    /// Load of proposals that will become entries of the queue.
    pub incoming: Load,
    /// Retained messages of its topics that it has not read yet.
    pub replay: Option<Box<Replay>>,
    /// How much it may hold.
    pub limit: Limit,
    /// How many messages its first reader is sent ahead, if it is a volatile subscription.
    pub prefetch: u32,
    /// The accounts that count it, with other queues.
    pub owners: Owners,
    /// How long its consumers may say nothing.
    pub slow: Slow,
    /// When its dead letters go back by themselves.
    pub returning: Returning,
    /// State of these returns; `None` without such a policy, or before the first look.
    pub returns: Option<Box<Returns>>,
    /// It keeps the last message of each value alone.
    pub keeps_last: bool,
    /// The entries by their values; `None` before the first that has one.
    pub last_values: Option<Box<LastValues>>,
    /// Its browsers go on with the next tick.
    pub browse_is_due: bool,
    /// Bodies were asked for; nothing is dispatched to consumers until they come.
    pub fetching: bool,
    /// When more bodies are asked for, before those that were.
    pub read_on: Option<ReadOn>,
    /// Its consumers wait for more of them, until then at most.
    pub gathers_until_ms: Option<u64>,
    /// Requests of clients that wait at it.
    pub requests: Requests,
    /// Options that clients have set for it, if any.
    pub options: Option<Box<QueueOptions>>,
    /// The posted messages that it knows again; `None` before the first.
    pub duplicates: Option<Box<Duplicates>>,
    /// It is on the move between partitions, and delivers nothing until it is there.
    pub on_the_move: bool,
}

/// Requests of clients without consumers that wait at a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// How many reserves wait for its messages, or are about to be answered.
    pub reserves: usize,
    /// When a client without a consumer last asked for messages to take.
    pub last_reserve_ms: Option<u64>,
    /// A client waits for a change of its length.
    pub is_watched: bool,
    /// How many leases there may be.
    pub leases_max: LeaseLimit,
}

/// Where bodies were read ahead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOn {
    /// Once this entry is sent, further ones are asked for,
    pub at: EntryTag,
    /// and once more when this one is: while some are read, others are there to be sent.
    pub then: EntryTag,
    /// The last of those that were asked for.
    pub last: EntryTag,
}

impl Queue {
    /// An empty queue, whose lanes have pages of this number of entries.
    pub fn new(id: QueueId, source: Destination, page_entries: u64) -> Queue {
        Queue {
            id,
            source,
            subscription: None,
            fed_by: Vec::new(),
            lanes: Lanes::new(page_entries),
            next_stamp: 0,
            consumers: Seats::default(),
            waiting: Turns::default(),
            browsing: Turns::default(),
            selecting: None,
            groups: None,
            volatile_bytes: 0,
            counts: Counts::default(),
            load: Load::default(),
            away: Load::default(),
            incoming: Load::default(),
            replay: None,
            limit: Limit::default(),
            prefetch: 0,
            owners: Owners::default(),
            slow: Slow::default(),
            returning: Returning::default(),
            returns: None,
            keeps_last: false,
            last_values: None,
            browse_is_due: false,
            fetching: false,
            read_on: None,
            gathers_until_ms: None,
            requests: Requests::default(),
            options: None,
            duplicates: None,
            on_the_move: false,
        }
    }

    /// Does from now on as the policy of its address says.
    pub fn follow(&mut self, policies: &Policies) {
        let policy = policies.of(&self.source);
        (self.limit, self.slow, self.keeps_last) = (policy.limit, policy.slow, policy.last_value.is_some());
        self.requests.leases_max = policy.leases_max;
        if self.id.is_volatile() && self.source.kind == DestinationKind::Topic {
            self.limit = policy.pending.limit(self.prefetch).unwrap_or(policy.limit);
        }
        if self.returning != policy.returning {
            (self.returning, self.returns) = (policy.returning, None);
        }
    }

    /// Whether message groups bind its consumers. A topic's subscription has one reader, or readers
    /// who share as they come.
    pub fn has_groups(&self) -> bool {
        self.source.kind == DestinationKind::Queue
    }

    /// Puts an entry at the end of a lane.
    pub fn push(&mut self, lane: LaneNumber, entry: Entry) -> EntryTag {
        let sequence = self.lanes.get_or_make(lane).push(entry);
        tag(lane.0, sequence)
    }

    /// A new entry has this value: an older one with the same is superseded.
    pub fn note_value(&mut self, value: &Arc<str>, key: MessageKey, tag: EntryTag) {
        let superseded = self.last_values.get_or_insert_default().note(value, key, tag);
        let Some(superseded) = superseded else { return };
        // Packed entries are ready.
        let is_in_hand = self.entry(superseded).is_some_and(|entry| entry.state.is_in_hand());
        if let Some(last_values) = &mut self.last_values {
            last_values.supersede(superseded, is_in_hand);
        }
    }

    /// The entry of this tag, if the queue still holds it and its page is open.
    pub fn entry(&mut self, entry: EntryTag) -> Option<&mut Entry> {
        let (lane, sequence) = untag(entry);
        self.lanes.get_mut(LaneNumber(lane))?.get_mut(sequence)
    }

    /// As [`Queue::entry`], to look at it.
    pub fn entry_ref(&self, entry: EntryTag) -> Option<&Entry> {
        let (lane, sequence) = untag(entry);
        self.lanes.get(LaneNumber(lane))?.get(sequence)
    }

    /// Takes the entry out for good; its page is open.
    pub fn remove(&mut self, entry: EntryTag) -> Option<Entry> {
        let (lane, sequence) = untag(entry);
        self.lanes.get_mut(LaneNumber(lane))?.remove(sequence)
    }

    /// Puts a held entry back to its place, ready again; `bytes` is the size of its body.
    pub fn give_back(&mut self, entry: EntryTag, bytes: u64) {
        if self.entry(entry).is_some_and(|entry| entry.state != EntryState::Ready) {
            self.away.remove(bytes);
        }
        if let Some(last_values) = &mut self.last_values {
            last_values.given_back(entry);
        }
        let (lane, sequence) = untag(entry);
        if let Some(lane) = self.lanes.get_mut(LaneNumber(lane)) {
            lane.give_back(sequence);
        }
    }

    /// The entries of this message that are not leaving, found by a scan of all open pages: for
    /// rare cases. There are several if the message was sent both to the queue and to a topic that
    /// feeds it.
    pub fn find(&self, key: MessageKey) -> Vec<EntryTag> {
        let entries =
            self.lanes.iter().flat_map(|(number, lane)| lane.iter().map(move |found| (number.0, found)));
        let found = entries.filter(|(_, (_, entry))| entry.key == key && entry.state != EntryState::Leaving);
        found.map(|(number, (sequence, _))| tag(number, sequence)).collect()
    }

    /// The entry that is due next: of the highest priority, and there the oldest that is ready.
    pub fn next_ready(&mut self) -> Option<EntryTag> {
        self.lanes.next_ready()
    }

    /// The first entry of these sequences of each lane that is not leaving: the next one for a
    /// browser.
    pub fn next_visible(&self, view: impl Fn(LaneNumber) -> Range<u64>) -> Option<EntryTag> {
        self.lanes.next(|number, lane| {
            let Range { start, end } = view(number);
            // A lane that was seen whole is not looked through.
            let next = if start < end { lane.next_visible(start) } else { None };
            next.filter(|(_, sequence)| *sequence < end)
        })
    }

    /// The first entry at or after the cursor of each lane, in whatever state.
    pub fn next_in_order(&self, cursor: &BTreeMap<u8, u64>) -> Option<EntryTag> {
        self.lanes.next(|number, lane| lane.next_entry(cursor.get(&number.0).copied().unwrap_or(0)))
    }

    /// The line in which consumers of this mode wait.
    pub fn line(&mut self, mode: ConsumerMode) -> &mut Turns {
        if mode == ConsumerMode::Browse { &mut self.browsing } else { &mut self.waiting }
    }

    /// How many entries it holds, in whatever state.
    pub fn len(&self) -> u64 {
        self.lanes.iter().map(|(_, lane)| lane.len()).sum()
    }
}
