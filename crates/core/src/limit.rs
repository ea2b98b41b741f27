//! Limits: how much a queue may hold, and what becomes of what is more.
//!
//! | at the limit | what happens |
//! |---|---|
//! | block | a send waits, and its producer with it, until there is room |
//! | fail | it waits so long as the policy says, then it is refused |
//! | drop the oldest | it is taken in, and the oldest of the lowest priority that waits for a consumer leaves |
//! | drop the newest | the same, but it is the newest that leaves |
//!
//! Sends wait for what the queue holds, in consumers' hands or not; what drops is what waits for consumers alone.
//! Whoever waits, waits in line by the address: what was sent later does not overtake. What the broker itself moves (dead
//! letters, messages that are due) waits for nobody. What is sent in a transaction cannot wait: it is refused at once.
//!
//! A drop is decided here and in the log like an expiry, so that a replay knows of it; until it is, the entry is leaving.

use std::collections::VecDeque;

use postroad_model::{
    ConnectionId, Destination, Effect, EntryTag, MessageEvent, Notice, Publish, QueueId, Refusal, Sent,
    SettleCause,
};
use postroad_routing::AtLimit;

use crate::Partition;
use crate::queue::{Queue, State};

/// A send that waits.
#[derive(Debug)]
pub struct Parked {
    /// The message.
    pub publish: Publish,
    /// When it is refused, in ms since 1970; `None` for never.
    pub until_ms: Option<u64>,
}

/// What the first send to an address waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldBy {
    /// Room in this queue.
    Queue(QueueId),
    /// Memory.
    Memory,
    /// The disk.
    Disk,
}

impl Partition {
    /// A queue that has nothing yet, under the policy of its address.
    pub(crate) fn new_queue(&self, id: QueueId, source: Destination) -> Queue {
        let mut queue = Queue::new(id, source, self.settings.page_entries);
        queue.follow(&self.settings.policies);
        queue
    }

    /// Policies have changed: queues that hold too much now lose it, and whoever waits may have room.
    pub(crate) fn limit_anew(&mut self, effects: &mut Vec<Effect>) {
        for queue in self.queues.values_mut() {
            queue.follow(&self.settings.policies);
        }
        self.trim_all(effects);
        self.unpark(effects);
        if self.settings.policies.any_slow() {
            self.next_look_ms.get_or_insert(self.now_ms);
        }
    }

    pub(crate) fn trim_all(&mut self, effects: &mut Vec<Effect>) {
        let over = self.queues.values().filter(|queue| queue.limit.drops() && queue.is_over());
        let mut over: Vec<QueueId> = over.map(|queue| queue.id).collect();
        over.sort_unstable();
        for id in over {
            self.trim(id, effects);
        }
    }

    /// How long a send has to wait for room in one of these queues; `None` if it need not, `Some(None)` for as long as
    /// it takes.
    ///
    /// Those behind others that wait at a limit wait too.
    pub(crate) fn wait_for_room(
        &self,
        sent: &Sent,
        receivers: &[QueueId],
        is_behind: bool,
    ) -> Option<Option<u64>> {
        if !self.settings.policies.any_limit() {
            return None;
        }
        let full = self.full_queues(sent, receivers, is_behind).map(|queue| match queue.limit.action {
            AtLimit::Fail => Some(self.now_ms.saturating_add(queue.limit.wait_ms)),
            _ => None,
        });
        full.reduce(|one, other| one.into_iter().chain(other).min())
    }

    /// Of these queues those at whose limit the send waits.
    fn full_queues<'p>(
        &'p self,
        sent: &Sent,
        receivers: &'p [QueueId],
        is_behind: bool,
    ) -> impl Iterator<Item = &'p Queue> {
        let bytes = sent.message.size();
        let queues = receivers.iter().filter_map(|id| self.queues.get(id));
        let holding = queues.filter(|queue| !queue.limit.drops() && !queue.limit.is_none());
        holding.filter(move |queue| is_behind || !queue.has_room_for(bytes))
    }

    /// Remembers what the first send to this address waits for, if one waits.
    pub(crate) fn note_what_holds(&mut self, to: &Destination) {
        let Some(first) = self.parked.get(to).and_then(VecDeque::front) else { return };
        let admitted = self.admit(&first.publish.sent);
        let receivers = self.receivers_if_needed(&first.publish, &admitted);
        let held_by = match (admitted, self.full_queues(&first.publish.sent, &receivers, false).next()) {
            (Err(_), _) => HeldBy::Disk,
            (Ok(_), Some(queue)) => HeldBy::Queue(queue.id),
            (Ok(_), None) => HeldBy::Memory,
        };
        self.held_by.entry(held_by).or_default().insert(to.clone());
    }

    /// Whether a message that cannot wait would have to.
    pub(crate) fn is_full_for(&self, sent: &Sent, from: ConnectionId) -> bool {
        let is_behind = self.parked.contains_key(&sent.to);
        self.settings.policies.any_limit()
            && self.wait_for_room(sent, &self.receivers_of(sent, Some(from)), is_behind).is_some()
    }

    /// What is refused if it cannot wait, or has waited long enough.
    pub(crate) fn full(&self, sent: &Sent) -> Refusal {
        Refusal::QueueFull { to: sent.to.clone() }
    }

    /// The send waits behind others for the same address.
    pub(crate) fn park(&mut self, publish: Publish, until_ms: Option<u64>, effects: &mut Vec<Effect>) {
        if until_ms.is_some_and(|until_ms| until_ms <= self.now_ms) {
            let refusal = self.full(&publish.sent);
            return self.reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        let destination = publish.sent.to.clone();
        if !self.parked.contains_key(&destination) {
            self.announce(Notice::Full { destination: destination.clone() }, effects);
        }
        self.announce_fast_producer(publish.connection, &destination, effects);
        self.next_refusal_ms = self.next_refusal_ms.into_iter().chain(until_ms).min();
        let line = self.parked.entry(destination.clone()).or_default();
        line.push_back(Parked { publish, until_ms });
        if line.len() == 1 {
            self.note_what_holds(&destination);
        }
    }

    /// Refuses those that have waited long enough.
    pub(crate) fn refuse_late(&mut self, effects: &mut Vec<Effect>) {
        if self.next_refusal_ms.is_none_or(|until_ms| self.now_ms < until_ms) {
            return;
        }
        let now_ms = self.now_ms;
        let mut late = Vec::new();
        for line in self.parked.values_mut() {
            let is_late = |parked: &Parked| parked.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
            let (gone, left): (VecDeque<Parked>, VecDeque<Parked>) = line.drain(..).partition(is_late);
            late.extend(gone);
            *line = left;
        }
        self.parked.retain(|_, line| !line.is_empty());
        self.next_refusal_ms = self.parked.values().flatten().filter_map(|parked| parked.until_ms).min();
        for Parked { publish, .. } in late {
            let refusal = self.full(&publish.sent);
            self.reply(publish.connection, publish.ticket, Err(refusal), effects);
        }
        // Others may have waited behind them alone.
        self.unpark(effects);
    }

    /// A queue that drops what is more than its limit does so.
    pub(crate) fn trim(&mut self, id: QueueId, effects: &mut Vec<Effect>) {
        let mut dropped = Vec::new();
        while let Some(tag) = self.surplus(id) {
            self.announce_message(id, tag, MessageEvent::Discarded, None, effects);
            dropped.extend(self.leave(id, &[tag], SettleCause::Dropped, effects));
        }
        self.settle_leaving(dropped, None, effects);
    }

    /// The entry that the queue drops next; `None` if it holds no more than it may, or if somebody holds all of it.
    fn surplus(&mut self, id: QueueId) -> Option<EntryTag> {
        let is_live = self.is_live;
        let queue = self.queues.get_mut(&id).filter(|queue| is_live && queue.is_over())?;
        match queue.limit.action {
            AtLimit::DropOldest => queue.lanes.oldest_of_lowest(),
            AtLimit::DropNewest => queue.lanes.newest_of_lowest(),
            AtLimit::Block | AtLimit::Fail => None,
        }
    }

    /// The entry waits for no consumer any more, or still does not.
    pub(crate) fn set_state(&mut self, id: QueueId, tag: EntryTag, state: State) {
        let Some(entry) = self.entry(id, tag) else { return };
        let (key, was_ready) = (entry.key, entry.state == State::Ready);
        entry.state = state;
        let bytes = self.bodies.headers(key).map_or(0, |(_, bytes)| bytes);
        if let Some(queue) = self.queues.get_mut(&id).filter(|_| was_ready) {
            queue.away.add(bytes);
        }
    }

    /// The entry is ready again, in its old place.
    pub(crate) fn give_back(&mut self, id: QueueId, tag: EntryTag) {
        let Some(key) = self.entry(id, tag).map(|entry| entry.key) else { return };
        let bytes = self.bodies.headers(key).map_or(0, |(_, bytes)| bytes);
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.give_back(tag, bytes);
        }
        self.wake_who_wants(id, key, tag);
    }

    /// What is on its way to the log counts already.
    pub(crate) fn expect(&mut self, sent: &Sent, receivers: &[QueueId]) -> Vec<QueueId> {
        if !self.settings.policies.any_limit() {
            return Vec::new();
        }
        let bytes = sent.message.size();
        let mut expecting = Vec::new();
        for id in receivers {
            let limited = |queue: &&mut Queue| !queue.limit.is_none() && !queue.limit.drops();
            if let Some(queue) = self.queues.get_mut(id).filter(limited) {
                queue.incoming.add(bytes);
                expecting.push(*id);
            }
        }
        expecting
    }

    /// These queues may have room again.
    pub(crate) fn unpark_held_by_any(&mut self, queues: &[QueueId], effects: &mut Vec<Effect>) {
        for queue in queues {
            self.unpark_held_by(HeldBy::Queue(*queue), effects);
        }
    }

    /// It has reached the log, or never will.
    pub(crate) fn expected(&mut self, expecting: &[QueueId], bytes: u64) {
        for id in expecting {
            if let Some(queue) = self.queues.get_mut(id) {
                queue.incoming.remove(bytes);
            }
        }
    }
}
