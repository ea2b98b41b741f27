//! Slow consumers: those that hold messages and have settled none of them for as long as their
//! policy allows.
//!
//! | policy | effect |
//! |---|---|
//! | tell | subscribers of advisories are notified
//! | detach | the consumer ends; its messages are delivered again |
//! | take back | its messages are delivered to others; it gets nothing more until it settles |
//!
//! Volatile state. A slow pattern consumer is reported by the queue where it is slow; nothing is
//! taken back from it.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    ConnectionId, ConsumerKey, ConsumerMode, DetachCause, Effect, EntryTag, Notice, Outcome, QueueId,
};
use postroad_routing::{Slow, SlowAction};

use crate::Partition;
use crate::delivery::consumer::{Consumer, add_credit, oust};
use crate::delivery::dispatch::dispatch;
use crate::delivery::line::leave_line;
use crate::delivery::spread::next_reader;
use crate::entries::entry_at;
use crate::intake::limit::set_state;
use crate::intake::publish::dispatch_all;
use crate::leader::Leader;
use crate::leaving::is_leaving;
use crate::notice::announce;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::release::release_entries;
use crate::settling::settle::forget_held;

/// Interval of checks for slow consumers, while any has messages.
const LOOK_MS: u64 = 200;

/// Consumers that one tick looks at, and messages that those hold that are slow, about.
const LOOKED_MAX: usize = 2048;

/// The search for slow consumers: over all of them, in ticks that follow one another, and again
/// after a while as long as any has messages.
#[derive(Default)]
pub struct SlowSearch {
    due_ms: Option<u64>,
    /// Where it goes on.
    at: Option<(ConnectionId, Option<ConsumerKey>)>,
    /// There is a consumer that may become slow.
    watches: bool,
}

impl SlowSearch {
    /// A consumer may become slow: it is looked for at this time, if not before.
    pub fn begin_at(&mut self, at_ms: u64) {
        self.watches = true;
        self.due_ms.get_or_insert(at_ms);
    }

    /// When the next step is due.
    pub fn next_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

/// The pace of a consumer.
#[derive(Default)]
pub struct Pace {
    /// When it last spoke, or began to have something.
    pub spoke_ms: u64,
    /// It was found slow since.
    pub is_slow: bool,
    /// It ends: its deliveries are about to return. See `leaving`.
    pub ends: bool,
    /// Credit that it has, and cannot use until it speaks.
    pub withheld: u32,
    /// The messages taken back from it since.
    pub taken: BTreeSet<EntryTag>,
    /// Those delivered to it once more after that, and how often: it may still settle each earlier
    /// delivery.
    pub again: BTreeMap<EntryTag, u32>,
}

impl Pace {
    /// It gets this.
    pub fn gets(&mut self, tag: EntryTag) {
        if self.taken.remove(&tag) {
            *self.again.entry(tag).or_default() += 1;
        }
    }

    /// It gives these back. A message delivered to it more than once may be given back for an
    /// earlier time, and settled again.
    fn gives_back(&mut self, tags: &[EntryTag]) {
        for tag in tags {
            let Some(times) = self.again.get_mut(tag) else { continue };
            *times -= 1;
            if *times == 0 {
                self.again.remove(tag);
            }
            self.taken.insert(*tag);
        }
    }

    /// These end.
    fn ends(&mut self, tags: &[EntryTag]) {
        if !self.again.is_empty() {
            self.again.retain(|tag, _| !tags.contains(tag));
        }
    }
}

/// The consumer, if it may become slow: after how long, and the consequence.
fn watched(partition: &Partition, key: ConsumerKey) -> Option<(u64, SlowAction, &Consumer)> {
    let consumer = partition.leader.delivery.consumers.get(&key)?;
    let Slow { after_ms, then } = partition.state.queues.get(&consumer.queue)?.slow;
    let is_free = consumer.held.is_empty() || consumer.mode == ConsumerMode::Browse;
    // Its deliveries are about to return.
    let returns = consumer.pace.ends || is_leaving(&partition.leader, key.connection);
    let may = !is_free && !consumer.pace.is_slow && !returns;
    after_ms.filter(|_| may).map(|after_ms| (after_ms, then, consumer.as_ref()))
}

/// A consumer is about to get a message.
pub fn pace_begins(leader: &mut Leader, settings: &Settings, now_ms: u64, key: ConsumerKey) {
    if !settings.policies.any_slow() {
        return;
    }
    if let Some(consumer) = leader.delivery.consumers.get_mut(&key)
        && consumer.held.is_empty()
    {
        consumer.pace.spoke_ms = now_ms;
    }
    leader.delivery.slow.begin_at(now_ms + LOOK_MS);
}

/// A verdict on a message that was delivered to the consumer more than once may be meant for
/// any of these times.
pub fn note_what_came_again(leader: &mut Leader, key: ConsumerKey, tags: &[EntryTag], outcome: Outcome) {
    let Some(consumer) = leader.delivery.consumers.get_mut(&key).filter(|_| leader.delivery.has_taken_back)
    else {
        return;
    };
    match outcome {
        Outcome::Accepted | Outcome::Expired => consumer.pace.ends(tags),
        Outcome::Released { .. } | Outcome::Rejected => consumer.pace.gives_back(tags),
        Outcome::Retried => {}
    }
}

/// A consumer settles messages. Those that were taken back from it are its own again if no
/// other consumer has had them: `false` if one of them is lost to it, so that the others must
/// not be confirmed either; these it holds again. If the verdict `needs_body`, now or later,
/// one whose body has left memory meanwhile is lost too.
pub fn has_spoken(partition: &mut Partition, key: ConsumerKey, tags: &[EntryTag], needs_body: bool) -> bool {
    if !partition.settings.policies.any_slow() && !partition.leader.delivery.has_taken_back {
        return true;
    }
    let now_ms = partition.now_ms;
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return true };
    let (queue, pace) = (consumer.queue, &mut consumer.pace);
    (pace.spoke_ms, pace.is_slow) = (now_ms, false);
    let mut taken: Vec<EntryTag> = tags.iter().filter(|tag| pace.taken.contains(tag)).copied().collect();
    if partition.settings.policies.any_slow() {
        partition.leader.delivery.slow.begin_at(now_ms + LOOK_MS);
    }
    let asked = taken.len();
    taken.retain(|tag| hold_once_more(partition, queue, key, *tag, needs_body));
    let lost = taken.len() < asked;
    // Lost messages stay lost, however often the consumer settles them.
    if let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) {
        for tag in &taken {
            consumer.pace.taken.remove(tag);
        }
    }
    !lost
}

/// A consumer that has settled may use its credit again, after the result of its verdicts:
/// returned messages are before the rest.
pub fn give_withheld(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    if !partition.leader.delivery.has_taken_back {
        return;
    }
    let consumer = partition.leader.delivery.consumers.get_mut(&key);
    let withheld = consumer.map_or(0, |consumer| std::mem::take(&mut consumer.pace.withheld));
    if withheld > 0 {
        add_credit(partition, key, withheld, effects);
    }
}

fn hold_once_more(
    partition: &mut Partition,
    queue: QueueId,
    by: ConsumerKey,
    tag: EntryTag,
    needs_body: bool,
) -> bool {
    let order = partition.leader.delivery.next_hold;
    let ready = entry_at(partition, queue, tag).filter(|entry| entry.state == EntryState::Ready);
    let Some(key) = ready.map(|entry| entry.key) else { return false };
    if needs_body && partition.state.bodies.resident(key).is_none() {
        return false;
    }
    partition.leader.delivery.next_hold += 1;
    set_state(partition, queue, tag, EntryState::Held { by, in_transaction: false });
    if let Some(consumer) = partition.leader.delivery.consumers.get_mut(&by) {
        consumer.held.push(order, tag, partition.now_ms);
    }
    true
}

/// Looks for consumers that have become slow.
pub fn look_for_slow(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let now_ms = partition.now_ms;
    if partition.leader.delivery.slow.due_ms.is_none_or(|at_ms| now_ms < at_ms) {
        return;
    }
    let (mut slow, mut weight) = (Vec::new(), 0);
    let (mut connection, mut after) = match partition.leader.delivery.slow.at.take() {
        Some(at) => at,
        None => {
            partition.leader.delivery.slow.watches = false;
            (ConnectionId::new(0, 0), None)
        }
    };
    let (mut watches, mut goes_on) = (false, false);
    'search: for (id, of) in partition.leader.connections.from(connection) {
        if id != connection {
            (connection, after) = (id, None);
        }
        weight += 1;
        if LOOKED_MAX <= weight {
            goes_on = true;
            break;
        }
        while let Some(key) = next_reader(&partition.leader, of, after) {
            if LOOKED_MAX <= weight {
                goes_on = true;
                break 'search;
            }
            after = Some(key);
            weight += 1;
            let Some((after_ms, then, consumer)) = watched(partition, key) else { continue };
            watches = true;
            if consumer.pace.spoke_ms + after_ms <= now_ms {
                weight += consumer.held.len();
                slow.push((key, then));
            }
        }
    }
    partition.leader.delivery.slow.watches |= watches;
    for (key, then) in slow {
        is_too_slow(partition, key, then, effects);
    }
    let search = &mut partition.leader.delivery.slow;
    search.at = goes_on.then_some((connection, after));
    let pause_ms = if goes_on { 1 } else { LOOK_MS };
    search.due_ms = (goes_on || search.watches).then_some(now_ms + pause_ms);
}

fn is_too_slow(partition: &mut Partition, key: ConsumerKey, then: SlowAction, effects: &mut Vec<Effect>) {
    let unsettled = unsettled_of(partition, key);
    let now_ms = partition.now_ms;
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return };
    if unsettled.is_empty() {
        // It has spoken about all of it, in a transaction: until it gets more it has nothing to
        // say, and must not wait for that.
        consumer.pace.spoke_ms = now_ms;
        return;
    }
    consumer.pace.is_slow = true;
    let (id, notice) = (consumer.queue, consumer.notice.clone());
    let at = partition.state.queues.get(&id).map(|queue| queue.source.clone());
    let notice = notice.or_else(|| partition.leader.delivery.spreads.get(&key.whole())?.notice().cloned());
    if let (Some(consumer), Some(at)) = (notice, at) {
        announce(Notice::SlowConsumer { consumer, at }, effects);
    }
    partition.counters.slow_consumers += 1;
    match then {
        SlowAction::Advise => {}
        SlowAction::Detach => {
            let touched = oust(partition, key, DetachCause::Slow, effects);
            dispatch_all(partition, touched, effects);
        }
        SlowAction::Requeue if key.member == 0 => take_back(partition, id, key, unsettled, effects),
        SlowAction::Requeue => {}
    }
}

/// A consumer's unsettled deliveries without a verdict on their way.
fn unsettled_of(partition: &mut Partition, key: ConsumerKey) -> Vec<EntryTag> {
    let held = EntryState::Held { by: key, in_transaction: false };
    let Some(consumer) = partition.leader.delivery.consumers.get(&key) else { return Vec::new() };
    let (id, mut tags) = (consumer.queue, consumer.held.tags().collect::<Vec<EntryTag>>());
    tags.retain(|tag| entry_at(partition, id, *tag).is_some_and(|entry| entry.state == held));
    tags
}

/// A consumer's messages go to others. It gets nothing until it settles, for it would get the
/// same again.
pub fn take_back(
    partition: &mut Partition,
    id: QueueId,
    key: ConsumerKey,
    mut tags: Vec<EntryTag>,
    effects: &mut Vec<Effect>,
) {
    tags.sort_unstable();
    partition.leader.delivery.has_taken_back = true;
    forget_held(&mut partition.leader, key, &tags);
    release_entries(partition, id, key, &tags, true, effects);
    leave_line(&mut partition.state, &mut partition.leader, key);
    if let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) {
        consumer.pace.withheld += std::mem::take(&mut consumer.credit);
        consumer.pace.taken.extend(tags);
    }
    dispatch(partition, id, effects);
}
