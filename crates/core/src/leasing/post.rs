//! Posts: several messages for one queue, in one record, and the entries that they become.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    Changes, Command, ConnectionId, Destination, Duplicate, Effect, EntryTag, LeaseAnswer, LeaseEnd, Message,
    NORMAL_PRIORITY, Post, QueueId, Refusal, Sent, Ticket, Urgency,
};

use super::duplicates::REMEMBERED_MAX;
use crate::Partition;
use crate::addresses::binding::bind_new_queues;
use crate::clock::Clock;
use crate::entries::entry_at;
use crate::intake::limit::{
    Expecting, expect_message, expected, full_refusal, is_full_for, unpark_held_by_any,
};
use crate::intake::publish::receivers_of;
use crate::intake::queue_quota;
use crate::leader::Leader;
use crate::leasing::end::begin_lease;
use crate::leasing::handle::group_of;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::reply;
use crate::protocols::Protocols;
use crate::queue::{EntryState, LaneNumber, tag};
use crate::settings::Settings;
use crate::settling::last_value::note_last_value;
use crate::state::State;

/// A post on its way to the log.
#[derive(Debug)]
pub struct Posting {
    connection: ConnectionId,
    ticket: Ticket,
    to: Destination,
    count: u64,
    duplicates: Vec<Duplicate>,
    /// Messages like an earlier one of the same post: the place of each, the place of that one in
    /// the queue, and its id.
    repeats: Vec<(usize, u64, u128)>,
    /// The keys that it occupies until it is in the log.
    keys: Vec<u128>,
    /// Where each message counts, and its size.
    expecting: Vec<(Expecting, u64)>,
}

impl Posting {
    /// The request.
    pub fn waiter(&self) -> (ConnectionId, Ticket) {
        (self.connection, self.ticket)
    }
}

impl Posts {
    /// Posts that wait for others.
    pub(super) fn waiters(&self) -> impl Iterator<Item = (ConnectionId, Ticket)> {
        self.parked.iter().map(|post| (post.connection, post.ticket))
    }
}

/// Posts of messages that are to be taken in once.
#[derive(Default)]
pub(super) struct Posts {
    /// The keys of messages on their way to the log.
    keys: BTreeSet<u128>,
    /// Posts with one of these keys: they wait until it is known whether they are duplicates.
    /// Bounded, as all that waits for the log, by the bytes that each connection may have
    /// outstanding.
    parked: Vec<Post>,
}

/// The messages of a post that its queue does not know, and the others.
#[derive(Default)]
struct SplitPost {
    messages: Vec<Message>,
    duplicates: Vec<Duplicate>,
    repeats: Vec<(usize, u64, u128)>,
    keys: Vec<u128>,
}

fn post_ended(state: &mut State, leader: &mut Leader, expecting: &[(Expecting, u64)]) {
    expecting.iter().for_each(|(expecting, bytes)| expected(state, leader, expecting, *bytes));
}

/// Takes messages in, all or none. At a limit they are refused, and do not wait in line.
pub fn begin_post(partition: &mut Partition, post: Post, effects: &mut Vec<Effect>) {
    let is_on_its_way = |message: &Message| {
        message.deduplication().is_some_and(|of| partition.leader.leasing.posts.keys.contains(&of.key))
    };
    if post.messages.iter().any(is_on_its_way) {
        return partition.leader.leasing.posts.parked.push(post);
    }
    let Post { connection, ticket, to, messages } = post;
    let parted = without_duplicates(partition, &to, messages);
    let SplitPost { messages, duplicates, repeats, keys } = match parted {
        Ok(parted) => parted,
        Err(refusal) => return reply(connection, ticket, Err(refusal), effects),
    };
    if let (true, Some(queue)) = (messages.is_empty(), partition.state.addresses.own_queue(&to)) {
        let answer = LeaseAnswer::Posted { queue, first: EntryTag(0), duplicates };
        effects.push(Effect::Lease { connection, ticket, answer });
        return reply(connection, ticket, Ok(()), effects);
    }
    let sends: Vec<Sent> = messages
        .into_iter()
        .map(|message| posted(&partition.settings, &partition.clock, &partition.protocols, &to, message))
        .collect();
    let quota = queue_quota::check_sends(partition, &sends);
    let expecting = match quota.and_then(|()| admit_post(partition, &to, &sends, connection)) {
        Ok(expecting) => expecting,
        Err(refusal) => return reply(connection, ticket, Err(refusal), effects),
    };
    bind_new_queues(partition, &sends, effects);
    let count = sends.len() as u64;
    sends.iter().for_each(|sent| partition.counters.receive(&sent.to, &partition.state.addresses));
    let command = Command::Transact(Changes { sends, settlements: Vec::new() });
    partition.leader.leasing.posts.keys.extend(&keys);
    let posting = Posting { connection, ticket, to, count, duplicates, repeats, keys, expecting };
    propose(partition, command, Urgency::Waiting, Completion::Posted(posting), effects);
}

/// Leaves those out that the queue knows, and those that are like an earlier one of the same
/// post.
fn without_duplicates(
    partition: &Partition,
    to: &Destination,
    messages: Vec<Message>,
) -> Result<SplitPost, Refusal> {
    let known = partition
        .state
        .addresses
        .own_queue(to)
        .and_then(|id| partition.state.queues.get(&id)?.duplicates.as_ref());
    let now_ms = partition.clock.wall_ms();
    let mut parted = SplitPost::default();
    let mut fresh: BTreeMap<u128, (u64, u128)> = BTreeMap::new();
    for (index, message) in messages.into_iter().enumerate() {
        if let Some(of) = message.deduplication() {
            if let Some(first) = known.and_then(|known| known.find(of.key, now_ms)) {
                parted.duplicates.push(Duplicate { index, tag: first.tag, id: first.id });
                continue;
            }
            if let Some((place, id)) = fresh.get(&of.key) {
                parted.repeats.push((index, *place, *id));
                continue;
            }
            fresh.insert(of.key, (parted.messages.len() as u64, of.id));
            parted.keys.push(of.key);
        }
        parted.messages.push(message);
    }
    if !parted.keys.is_empty() && known.is_some_and(|known| known.is_full(now_ms)) {
        return Err(Refusal::TooManyDeduplicationIds { queue: to.clone(), max: REMEMBERED_MAX });
    }
    Ok(parted)
}

/// Posts that waited for these keys are looked at again.
fn free_keys(partition: &mut Partition, keys: &[u128], effects: &mut Vec<Effect>) {
    if keys.is_empty() {
        return;
    }
    for key in keys {
        partition.leader.leasing.posts.keys.remove(key);
    }
    for post in std::mem::take(&mut partition.leader.leasing.posts.parked) {
        begin_post(partition, post, effects);
    }
}

fn posted(
    settings: &Settings,
    clock: &Clock,
    protocols: &Protocols,
    to: &Destination,
    message: Message,
) -> Sent {
    let mut sent = Sent::new(to.clone(), Message { priority: NORMAL_PRIORITY, persistent: true, ..message });
    let end_ms = settings.policies.end_ms(sent.targets(), sent.message.expires_at_ms, clock.wall_ms());
    sent.message.expires_at_ms = end_ms;
    note_last_value(settings, protocols, &mut sent);
    sent
}

fn admit_post(
    partition: &mut Partition,
    to: &Destination,
    sends: &[Sent],
    from: ConnectionId,
) -> Result<Vec<(Expecting, u64)>, Refusal> {
    if !partition.leader.log.space_ample {
        return Err(Refusal::StoreFull { to: to.clone() });
    }
    let mut expecting = Vec::new();
    for sent in sends {
        if is_full_for(partition, sent, from) {
            post_ended(&mut partition.state, &mut partition.leader, &expecting);
            return Err(full_refusal(partition, sent, from));
        }
        let receivers = receivers_of(partition, sent, Some(from));
        expecting.push((expect_message(partition, sent, &receivers), sent.message.size()));
    }
    Ok(expecting)
}

/// The log has the messages, and the queue their entries.
pub fn has_posted(partition: &mut Partition, posting: Posting, effects: &mut Vec<Effect>) {
    post_ended(&mut partition.state, &mut partition.leader, &posting.expecting);
    let Posting { connection, ticket, to, count, mut duplicates, repeats, keys, expecting } = posting;
    let lane = LaneNumber::of(NORMAL_PRIORITY, false);
    let id = partition.state.addresses.own_queue(&to);
    let next =
        id.and_then(|id| partition.state.queues.get(&id)?.lanes.get(lane)).map(|lane| lane.next_sequence());
    if let (Some(queue), Some(next)) = (id, next) {
        let first: EntryTag = tag(lane.0, next.saturating_sub(count));
        let repeat = |(index, place, id)| Duplicate { index, tag: EntryTag(first.0 + place), id };
        duplicates.extend(repeats.into_iter().map(repeat));
        let answer = LeaseAnswer::Posted { queue, first, duplicates };
        effects.push(Effect::Lease { connection, ticket, answer });
    }
    reply(connection, ticket, Ok(()), effects);
    for (expecting, _) in &expecting {
        unpark_held_by_any(partition, expecting, effects);
    }
    free_keys(partition, &keys, effects);
}

/// The log has not.
pub fn post_failed(
    partition: &mut Partition,
    posting: &Posting,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    post_ended(&mut partition.state, &mut partition.leader, &posting.expecting);
    reply(posting.connection, posting.ticket, Err(refusal.clone()), effects);
    for (expecting, _) in &posting.expecting {
        unpark_held_by_any(partition, expecting, effects);
    }
    free_keys(partition, &posting.keys, effects);
}

/// The message of a new entry says when it may be delivered: until then it is delayed. Returns
/// whether it is.
pub fn delay_new(partition: &mut Partition, id: QueueId, entry: EntryTag, visible_at_ms: u64) -> bool {
    if visible_at_ms == 0 {
        return false;
    }
    let mut left_ms = visible_at_ms.saturating_sub(partition.clock.wall_ms());
    // The time is not known while the log is read.
    if partition.leader.is_live {
        let former = &mut partition.leader.leasing.delayed;
        left_ms = former.lasts_ms((id, visible_at_ms), partition.now_ms, left_ms);
        if left_ms == 0 {
            return false;
        }
    }
    let end = LeaseEnd { wall_ms: visible_at_ms, lasts_ms: left_ms };
    // The group keeps its order: later messages of it wait too.
    let group = group_of(partition, id, entry);
    begin_lease(partition, id, entry, (None, end), group);
    debug_assert!(entry_at(partition, id, entry).is_some_and(|entry| entry.state == EntryState::Leased));
    true
}

/// The wall clock and ticks are cut to milliseconds at different moments, so that the difference of
/// the two changes by this.
const TRUNCATED_MS: u64 = 1;

/// The message that was delayed last.
#[derive(Debug, Default)]
pub struct Delayed(Option<(QueueId, u64, u64)>);

impl Delayed {
    /// How long the next one is delayed: it does not overtake a former one of its queue that is due
    /// at the same time of day, or earlier.
    fn lasts_ms(&mut self, (id, visible_at_ms): (QueueId, u64), now_ms: u64, left_ms: u64) -> u64 {
        let mut until_ms = now_ms.saturating_add(left_ms);
        if let Some((of, wall_ms, former_ms)) = self.0
            && of == id
            && wall_ms <= visible_at_ms
            && former_ms.saturating_sub(until_ms) <= TRUNCATED_MS
        {
            until_ms = until_ms.max(former_ms);
        }
        if now_ms < until_ms {
            self.0 = Some((id, visible_at_ms, until_ms));
        }
        until_ms - now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_message_does_not_overtake_one_that_is_due_as_early() {
        let (queue, other) = (QueueId(1), QueueId(2));
        for (name, next, left_ms, lasts_ms) in [
            ("the clocks are as before", (queue, 5000), 990, 990),
            ("the wall clock has ticked, and ticks have not", (queue, 5000), 989, 990),
            ("a later time of day", (queue, 5001), 990, 990),
            ("an earlier time of day", (queue, 4999), 989, 989),
            ("another queue", (other, 5000), 989, 989),
            ("the wall clock was set forward", (queue, 5000), 500, 500),
            ("it is due, the former one is not", (queue, 5000), 0, 0),
        ] {
            let mut delayed = Delayed::default();
            assert_eq!(delayed.lasts_ms((queue, 5000), 10, 1000), 1000);
            assert_eq!(delayed.lasts_ms(next, 20, left_ms), lasts_ms, "{name}");
        }
        let mut delayed = Delayed::default();
        assert_eq!(delayed.lasts_ms((queue, 5000), 10, 1), 1);
        assert_eq!(delayed.lasts_ms((queue, 5000), 10, 0), 1, "it waits for the former one");
        assert_eq!(delayed.lasts_ms((queue, 5000), 11, 0), 0);
    }
}
