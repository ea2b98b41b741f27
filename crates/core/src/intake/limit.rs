//! Limits: how much a queue may hold, and the action at the limit.
//!
//! | at the limit | effect |
//! |---|---|
//! | block | a send waits, and its producer with it, until there is room |
//! | fail | it waits for the time of the policy, then it is refused |
//! | drop the oldest | it is taken in, and the oldest of the lowest priority that waits for a consumer leaves |
//! | drop the newest | the same, but it is the newest that leaves |
//!
//! For each volatile subscriber of a topic operators may set another limit: how much may wait for
//! it, beyond its prefetch, and whether the oldest leaves whatever its priority.
//!
//! Sends wait for all of the queue's contents, in flight or not; only messages that wait for
//! consumers are dropped. Sends wait in line by the address: later ones of the same producer do not
//! overtake. Moves by the broker (dead letters, due messages) do not wait. A send in a transaction
//! cannot wait: it is refused at once.
//!
//! Messages beyond a limit leave in steps of a fixed number, each a record of its own: a limit that
//! is put on a backlog of millions stops no client. Until the last step consumers may still get
//! messages beyond it.
//!
//! A drop is decided here and in the log like an expiry, so that a replay knows of it; until it is,
//! the entry is leaving.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    ConnectionId, Destination, Effect, EntryTag, MessageEvent, Notice, Publish, QueueId, Refusal, Sent,
    SettleCause,
};
use postroad_routing::{AtLimit, Limit, Policies};

use crate::Partition;
use crate::delivery::idle::wake_who_wants;
use crate::entries::entry_at;
use crate::intake::account::{
    AccountNumber, Owners, full_accounts, limit_accounts, owners_of, owners_of_unborn,
};
use crate::intake::blocked::{BlockedOn, blocked_on};
use crate::intake::parked::{Parked, SendObstacle};
use crate::intake::policy_round;
use crate::intake::publish::{Admitted, admit, receivers_if_needed, receivers_of};
use crate::intake::unparking::{unpark_first, unpark_held_by};
use crate::leader::Leader;
use crate::memory::bodies::BodyLocation;
use crate::moving::is_moving;
use crate::notice::{announce, announce_fast_producer, announce_message};
use crate::partition::reply;
use crate::queue::{EntryState, Load, Queue};
use crate::settings::Settings;
use crate::settling::lending;
use crate::settling::settle::{begin_leaving, settle_leaving};
use crate::state::State;

/// Messages that leave by limits in one step, in one record for each queue: a millisecond of work.
const TRIM_MAX: usize = 256;

/// Sends that are refused in one step, as they have waited long enough; the others with later
/// ticks.
const LATE_MAX: usize = 1024;

/// Where a message counts that is on its way to the log.
#[derive(Debug, Default)]
pub struct Expecting {
    /// In these queues.
    queues: Vec<QueueId>,
    /// In these accounts too, by queues that its record makes.
    unborn: Vec<Owners>,
    /// The queues with a limit among those.
    unborn_queues: Vec<Destination>,
}

impl Expecting {
    /// Whether it counts nowhere.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.unborn.is_empty() && self.unborn_queues.is_empty()
    }
}

/// Messages on their way to the log that will be in queues made for them, by queue: as many as the
/// proposals that have not come back.
#[derive(Debug, Default)]
pub struct UnbornQueues(BTreeMap<Destination, Load>);

impl UnbornQueues {
    fn add(&mut self, queue: &Destination, bytes: u64) {
        self.0.entry(queue.clone()).or_default().add(bytes);
    }

    fn remove(&mut self, queue: &Destination, bytes: u64) {
        let Some(load) = self.0.get_mut(queue) else { return };
        load.remove(bytes);
        if load.messages == 0 {
            self.0.remove(queue);
        }
    }

    fn load(&self, queue: &Destination) -> Load {
        self.0.get(queue).copied().unwrap_or_default()
    }

    /// Whether the queue may have one more, beside those that are on their way.
    fn has_room_for(&self, queue: &Destination, bytes: u64, limit: &Limit) -> bool {
        let Some(mut load) = self.0.get(queue).copied() else { return true };
        load.add(bytes);
        load.is_within(limit, load.bytes)
    }
}

/// Of the queues that the record of this message would make those at whose limit it waits: earlier
/// messages that make them are on their way to the log.
pub fn full_unborn<'s>(
    partition: &Partition,
    sent: &'s Sent,
    is_behind: bool,
) -> impl Iterator<Item = (&'s Destination, Limit)> {
    let bytes = sent.message.size();
    // Scheduled messages count when they are due.
    let queues = partition.state.addresses.new_queues(sent).filter(|_| sent.schedule.is_none());
    let limited = queues.map(|queue| (queue, partition.settings.policies.of(queue).limit));
    limited.filter(move |(queue, limit)| {
        let has_room = || partition.leader.intake.unborn_queues.has_room_for(queue, bytes, limit);
        !limit.drops() && !limit.is_none() && (is_behind || !has_room())
    })
}

/// The entry that the queue drops next; `None` if it is within its limit, or if all of its
/// entries are in flight.
fn surplus(state: &mut State, leader: &mut Leader, id: QueueId) -> Option<EntryTag> {
    let is_live = leader.is_live;
    let queue = state.queues.get_mut(&id).filter(|queue| is_live && queue.is_over())?;
    match queue.limit.action {
        AtLimit::DropOldest => queue.lanes.oldest_of_lowest(),
        AtLimit::DropFirst => queue.lanes.oldest(),
        AtLimit::DropNewest => queue.lanes.newest_of_lowest(),
        AtLimit::Block | AtLimit::Fail => None,
    }
}

/// It has reached the log, or never will.
pub fn expected(state: &mut State, leader: &mut Leader, expecting: &Expecting, bytes: u64) {
    expecting.unborn.iter().for_each(|owners| leader.intake.accounts.expected_unborn(*owners, bytes));
    let unborn_queues = expecting.unborn_queues.iter();
    unborn_queues.for_each(|queue| leader.intake.unborn_queues.remove(queue, bytes));
    for id in &expecting.queues {
        if let Some(queue) = state.queues.get_mut(id) {
            queue.incoming.remove(bytes);
            leader.intake.accounts.expected(queue.owners, bytes);
        }
    }
}

/// A queue that has nothing yet, under the policy of its address.
pub fn new_queue(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    id: QueueId,
    source: Destination,
) -> Queue {
    let mut queue = Queue::new(id, source, settings.queue_page_entries());
    queue.follow(&settings.policies);
    queue.owners = owners_of(leader, settings, &queue.source);
    queue.on_the_move = !id.is_volatile() && is_moving(state, leader, &queue.source);
    queue
}

/// Policies have changed: queues beyond their limits drop messages, and waiting sends may have
/// room.
pub fn limit_anew(partition: &mut Partition, before: &Policies, effects: &mut Vec<Effect>) {
    limit_accounts(&mut partition.state, &mut partition.leader, &partition.settings, before);
    policy_round::begin(partition, effects);
    if partition.settings.policies.any_slow() {
        partition.leader.delivery.slow.begin_at(partition.now_ms);
    }
}

pub fn trim_all(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let over = partition.state.queues.values().filter(|queue| queue.limit.drops() && queue.is_over());
    partition.state.endings.over.extend(over.map(|queue| queue.id));
    go_on_trimming(partition, effects);
}

/// The next step of queues that hold more than their limits allow.
pub fn go_on_trimming(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut left = TRIM_MAX;
    while left > 0
        && let Some(id) = partition.state.endings.over.pop_first()
    {
        // One that has nothing to drop costs a look.
        left -= trim_some(partition, id, left, effects).max(1);
    }
}

/// How long a send has to wait for room in one of these queues, or in an account that one is
/// in; `None` if it need not, `Some(None)` for as long as it takes.
///
/// Those after others that wait at a limit wait too.
pub fn wait_for_room(
    partition: &Partition,
    sent: &Sent,
    receivers: &[QueueId],
    ahead: SendObstacle,
) -> Option<Option<u64>> {
    if !partition.settings.policies.any_limit() {
        return None;
    }
    let queues = full_queues(partition, sent, receivers, ahead.here).map(|queue| queue.limit);
    let accounts = full_accounts(partition, sent, receivers, ahead.here);
    let accounts = accounts.into_iter().map(|number| partition.leader.intake.accounts.account(number).limit);
    let unborn = full_unborn(partition, sent, ahead.here).map(|(_, limit)| limit);
    let full = queues.chain(accounts).chain(unborn).map(|limit| match limit.action {
        AtLimit::Fail => Some(partition.now_ms.saturating_add(limit.wait_ms)),
        _ => None,
    });
    full.reduce(|one, other| one.into_iter().chain(other).min())
}

/// Of these queues those at whose limit the send waits.
pub fn full_queues<'p>(
    partition: &'p Partition,
    sent: &Sent,
    receivers: &'p [QueueId],
    is_behind: bool,
) -> impl Iterator<Item = &'p Queue> {
    let (bytes, persistent) = (sent.message.size(), sent.message.persistent);
    let queues = receivers.iter().filter_map(|id| partition.state.queues.get(id));
    let holding = queues.filter(|queue| !queue.limit.drops() && !queue.limit.is_none());
    // The first record has made the queue, and others that were to make it are on their way.
    let coming = |queue: &Queue| partition.leader.intake.unborn_queues.load(&queue.source);
    holding.filter(move |queue| is_behind || !queue.has_room_for(bytes, persistent, coming(queue)))
}

/// The first send that waits for an address, and the facts that decide whether it goes on.
pub struct FirstParked<'p> {
    /// The send.
    pub first: &'p Publish,
    /// Whether it is let in.
    pub admitted: Result<Admitted, Refusal>,
    /// Its queues, if they matter.
    pub receivers: Vec<QueueId>,
    /// The sends that go before it.
    pub ahead: SendObstacle,
}

/// The first send that waits for this address, as it is judged now.
pub fn first_parked<'p>(partition: &'p Partition, to: &Destination) -> Option<FirstParked<'p>> {
    let Partition { state, leader, settings, clock, .. } = partition;
    let parked = leader.intake.parked.first(to)?;
    let first = &parked.publish;
    let admitted = admit(state, leader, settings, clock, &first.sent);
    let receivers = receivers_if_needed(partition, first, &admitted);
    Some(FirstParked { first, admitted, receivers, ahead: leader.intake.parked.ahead_of_first(parked) })
}

/// The reason for which the first send to this address waits, if one waits.
pub fn what_holds(partition: &Partition, to: &Destination) -> Option<BlockedOn> {
    let FirstParked { first, admitted, receivers, ahead } = first_parked(partition, to)?;
    let blocked_on = blocked_on(partition, first, &admitted, &receivers, ahead);
    // Without a reason it goes on with the next that looks at it.
    Some(blocked_on.unwrap_or(if admitted.is_err() { BlockedOn::Disk } else { BlockedOn::Memory }))
}

/// Remembers the reason for which the first send to this address waits, if one waits.
pub fn note_what_holds(partition: &mut Partition, to: &Destination) {
    match what_holds(partition, to) {
        Some(held_by) => partition.leader.intake.lines.put(to.clone(), held_by, false),
        None => partition.leader.intake.lines.forget(to),
    }
}

/// Whether a message that cannot wait would have to. One that is due later counts then.
pub fn is_full_for(partition: &Partition, sent: &Sent, from: ConnectionId) -> bool {
    if sent.schedule.is_some() {
        return false;
    }
    let ahead = SendObstacle { here: partition.leader.intake.parked.is_at(&sent.to), own: false };
    partition.settings.policies.any_limit()
        && wait_for_room(partition, sent, &receivers_of(partition, sent, Some(from)), ahead).is_some()
}

/// The refusal of a send that cannot wait, or has waited long enough.
pub fn full_refusal(partition: &Partition, sent: &Sent, from: ConnectionId) -> Refusal {
    let (to, receivers) = (sent.to.clone(), receivers_of(partition, sent, Some(from)));
    let of_queue = |limit: Limit| Refusal::QueueFull { to: to.clone(), limit: limit.to_string().into() };
    let of_account = |number: AccountNumber| {
        let owner = partition.leader.intake.accounts.account(number).owner.clone();
        let limit = partition.settings.policies.limit_of(owner.as_deref());
        Refusal::QuotaFull { to: to.clone(), owner, limit: limit.to_string().into() }
    };
    // Behind others it may have waited at a limit that has room now.
    let refusal = [false, true].into_iter().find_map(|is_behind| {
        let queue =
            full_queues(partition, sent, &receivers, is_behind).next().map(|queue| of_queue(queue.limit));
        let unborn = || full_unborn(partition, sent, is_behind).next().map(|(_, limit)| of_queue(limit));
        let account =
            || full_accounts(partition, sent, &receivers, is_behind).first().copied().map(of_account);
        queue.or_else(unborn).or_else(account)
    });
    refusal.unwrap_or_else(|| of_queue(Limit::default()))
}

/// The send waits after others for the same address.
pub fn park_send(
    partition: &mut Partition,
    publish: Publish,
    until_ms: Option<u64>,
    effects: &mut Vec<Effect>,
) {
    if until_ms.is_some_and(|until_ms| until_ms <= partition.now_ms) {
        let refusal = full_refusal(partition, &publish.sent, publish.connection);
        return reply(publish.connection, publish.ticket, Err(refusal), effects);
    }
    let destination = publish.sent.to.clone();
    let is_first = !partition.leader.intake.parked.is_at(&destination);
    if is_first {
        announce(Notice::Full { destination: destination.clone() }, effects);
    }
    announce_fast_producer(&partition.leader, &partition.settings, publish.connection, &destination, effects);
    partition.leader.intake.parked.push(publish, until_ms);
    if is_first {
        note_what_holds(partition, &destination);
    }
}

/// Refuses those that have waited long enough.
pub fn refuse_late(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let late = partition.leader.intake.parked.take_late(partition.now_ms, LATE_MAX);
    let mut freed = BTreeSet::new();
    let mut moved = BTreeSet::new();
    for Parked { publish, .. } in late {
        let refusal = full_refusal(partition, &publish.sent, publish.connection);
        reply(publish.connection, publish.ticket, Err(refusal), effects);
        moved.insert(BlockedOn::Own(publish.connection));
        freed.insert(publish.sent.to);
    }
    // Others may have waited after them alone.
    unpark_first(partition, freed, moved, effects);
}

/// A queue drops messages beyond its limit, in one step or more.
pub fn trim(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    if !partition.state.endings.over.contains(&id) {
        trim_some(partition, id, TRIM_MAX, effects);
    }
}

/// Drops at most this number; returns how many.
fn trim_some(partition: &mut Partition, id: QueueId, most: usize, effects: &mut Vec<Effect>) -> usize {
    let (mut dropped, mut count) = (Vec::new(), 0);
    while count < most
        && let Some(tag) = surplus(&mut partition.state, &mut partition.leader, id)
    {
        announce_message(partition, id, tag, MessageEvent::Discarded, None, effects);
        dropped.extend(begin_leaving(partition, id, &[tag], SettleCause::Dropped, effects));
        count += 1;
    }
    settle_leaving(partition, dropped, None, effects);
    if count == most && partition.state.queues.get(&id).is_some_and(Queue::is_over) {
        partition.state.endings.over.insert(id);
    }
    count
}

/// The entry waits for no consumer any more, or still does not.
pub fn set_state(partition: &mut Partition, id: QueueId, tag: EntryTag, state: EntryState) {
    let Some(entry) = entry_at(partition, id, tag) else { return };
    let (body, was_ready) = (BodyLocation::from(&*entry), entry.state == EntryState::Ready);
    let is_taken = !entry.state.is_in_hand() && state.is_in_hand();
    entry.state = state;
    if is_taken {
        partition.state.bodies.pin(body);
    }
    if matches!(state, EntryState::Resting | EntryState::Leased) {
        lending::given_back(partition, id, tag);
    }
    if !was_ready {
        return;
    }
    let bytes = partition.state.bodies.headers(body).map_or(0, |(_, bytes)| bytes);
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.away.add(bytes);
    }
}

/// The entry is ready again, in its old place.
pub fn give_back(partition: &mut Partition, id: QueueId, tag: EntryTag) {
    let Some(entry) = entry_at(partition, id, tag) else { return };
    let (body, state) = (BodyLocation::from(&*entry), entry.state);
    // It was to leave, and its lease is not over.
    if state == EntryState::Leaving && partition.state.leases.get(id, tag).is_some() {
        partition.state.leases.resume(id, tag);
        return set_state(partition, id, tag, EntryState::Leased);
    }
    lending::given_back(partition, id, tag);
    let bytes = partition.state.bodies.headers(body).map_or(0, |(_, bytes)| bytes);
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.give_back(tag, bytes);
    }
    wake_who_wants(partition, id, body.key, tag);
}

/// Messages on their way to the log count already.
pub fn expect_message(partition: &mut Partition, sent: &Sent, receivers: &[QueueId]) -> Expecting {
    if !partition.settings.policies.any_limit() {
        return Expecting::default();
    }
    let bytes = sent.message.size();
    let unborn: Vec<Owners> =
        owners_of_unborn(partition, sent).filter(|owners| *owners != Owners::default()).collect();
    unborn.iter().for_each(|owners| partition.leader.intake.accounts.expect_unborn(*owners, bytes));
    let mut queues = Vec::new();
    for id in receivers {
        let counted = |queue: &&mut Queue| {
            queue.owners != Owners::default() || !queue.limit.is_none() && !queue.limit.drops()
        };
        if let Some(queue) = partition.state.queues.get_mut(id).filter(counted) {
            queue.incoming.add(bytes);
            partition.leader.intake.accounts.expect(queue.owners, bytes);
            queues.push(*id);
        }
    }
    let limited = |queue: &&Destination| {
        let limit = partition.settings.policies.of(queue).limit;
        sent.schedule.is_none() && !limit.is_none() && !limit.drops()
    };
    let unborn_queues: Vec<Destination> =
        partition.state.addresses.new_queues(sent).filter(limited).cloned().collect();
    unborn_queues.iter().for_each(|queue| partition.leader.intake.unborn_queues.add(queue, bytes));
    Expecting { queues, unborn, unborn_queues }
}

/// There may be room again where it counted.
pub fn unpark_held_by_any(partition: &mut Partition, expecting: &Expecting, effects: &mut Vec<Effect>) {
    let mut accounts: Vec<AccountNumber> = expecting.unborn.iter().flatten().flatten().copied().collect();
    for id in &expecting.queues {
        accounts.extend(partition.state.queues.get(id).into_iter().flat_map(|queue| queue.owners).flatten());
        unpark_held_by(partition, BlockedOn::Queue(*id), effects);
    }
    if !expecting.unborn_queues.is_empty() {
        unpark_held_by(partition, BlockedOn::Log, effects);
    }
    accounts.sort_unstable();
    accounts.dedup();
    for account in accounts {
        unpark_held_by(partition, BlockedOn::Account(account), effects);
    }
}
