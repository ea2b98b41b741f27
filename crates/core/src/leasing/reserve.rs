//! Reserves: requests for messages, each a short-lived consumer whose deliveries become leases.
//!
//! So selectors, message groups, priorities, expiry and bodies on the disk apply as for consumers,
//! and both get their turns in one line. A reserve that finds nothing waits in that line until a
//! message comes or its time is over; nothing polls.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    Attach, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Destination, Effect, EntryTag,
    LeaseAnswer, LeaseEnd, LeaseId, Message, MessageKey, QueueId, Refusal, Reserve, Reserved, Share, Take,
    Ticket, Urgency,
};

use crate::Partition;
use crate::delivery::browse::Browse;
use crate::delivery::consumer::{remove_consumer, take_seat};
use crate::delivery::dispatch::dispatch;
use crate::delivery::group::take_group;
use crate::delivery::selection;
use crate::delivery::spread::spend_credit;
use crate::entries::entry_at;
use crate::intake::publish::dispatch_all;
use crate::leader::Leader;
use crate::leasing::end::{begin_lease, end_lease};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::moving::is_moving;
use crate::partition::reply;
use crate::state::State;

/// Messages that one reserve takes at most.
const RESERVED_MAX: u32 = 1000;

/// A reserve takes nothing more once its messages have this number of bytes together. Large bodies
/// count: its reader gathers them.
const RESERVED_BYTES_MAX: u64 = 4 << 20;

/// Reserves that may wait at one queue: each costs some 500 bytes.
const WAITING_MAX: usize = 16_384;

/// Reserves that end in one step; the others with the next ticks.
const ENDED_MAX: usize = 256;

/// Marks the consumer numbers of reserves, which no session uses.
const RESERVE_NUMBER: u32 = 1 << 31;

/// State of a consumer that stands for a reserve.
pub struct Reserving {
    queue: QueueId,
    /// Who waits.
    ticket: Ticket,
    take: Take,
    /// Until then it waits if nothing is there.
    until_ms: u64,
    /// Messages that it has taken.
    taken: Vec<Reserved>,
    bytes: u64,
    /// Bodies were on their way when its time was over: it ends when they are here.
    is_overdue: bool,
    /// Others had all leases that there may be when a message came.
    refusal: Option<Refusal>,
}

/// How many more leases there may be in the queue; refused if there may be none.
pub(crate) fn leases_left(partition: &Partition, id: QueueId) -> Result<u64, Refusal> {
    let Some(queue) = partition.state.queues.get(&id) else { return Ok(0) };
    let max = queue.requests.leases_max.0;
    let left = max.saturating_sub(partition.state.leases.counts(id).leased);
    if left == 0 {
        return Err(Refusal::TooManyLeases { queue: queue.source.clone(), max });
    }
    Ok(left.min(partition.leader.intake.accounts.leases_left(queue.owners)?))
}

/// Whether a reserve whose turn it is may lease nothing, as others that waited beside it have all
/// leases that there may be: then it ends, and is refused if it has got nothing.
pub(crate) fn ends_at_bound(partition: &mut Partition, id: QueueId, key: ConsumerKey) -> bool {
    if !is_reserving(&partition.leader, key) {
        return false;
    }
    let leases = |reserving: &Reserving| matches!(reserving.take, Take::Lease { .. });
    let consumer = partition.leader.delivery.consumers.get(&key);
    let reserving = consumer.and_then(|consumer| consumer.reserving.as_ref());
    let Some(refusal) =
        reserving.filter(|reserving| leases(reserving)).and_then(|_| leases_left(partition, id).err())
    else {
        return false;
    };
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return false };
    consumer.credit = 0;
    let Some(reserving) = &mut consumer.reserving else { return false };
    reserving.refusal = Some(refusal);
    if reserving.taken.is_empty() {
        partition.leader.leasing.reserves.fed.push(key);
    }
    true
}

/// The reserves of a partition that need attention.
#[derive(Default)]
pub struct Reserves {
    /// Those that wait, by the end of their time.
    waits: BTreeSet<(u64, ConsumerKey)>,
    /// Those whose time was over while bodies were on their way, by queue.
    overdue: BTreeSet<(QueueId, ConsumerKey)>,
    /// Those that have not been answered, by their request.
    asked: BTreeMap<(ConnectionId, Ticket), ConsumerKey>,
    /// Those that got something, or have seen all, and are to be answered.
    fed: Vec<ConsumerKey>,
    last_number: u32,
}

impl Reserving {
    /// The ticket of the request.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Answering {
    /// The request.
    pub fn waiter(&self) -> (ConnectionId, Ticket) {
        (self.connection, self.ticket)
    }
}

impl Reserves {
    /// Nothing waits; numbers go on.
    pub fn successor(&self) -> Reserves {
        Reserves { last_number: self.last_number, ..Reserves::default() }
    }

    /// It does not wait any more.
    fn forget(&mut self, key: ConsumerKey, reserving: &Reserving) {
        self.waits.remove(&(reserving.until_ms, key));
        self.overdue.remove(&(reserving.queue, key));
        let asked = (key.connection, reserving.ticket);
        if self.asked.get(&asked) == Some(&key) {
            self.asked.remove(&asked);
        }
    }

    /// When the next one has waited long enough.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.waits.first().map(|(until_ms, _)| (now_ms + 1).max(*until_ms))
    }
}

/// Messages on their way to who reserved them.
#[derive(Debug)]
pub struct Answering {
    /// Who waits.
    connection: ConnectionId,
    /// Its request.
    ticket: Ticket,
    messages: Vec<Reserved>,
}

fn next_reserve_key(leader: &mut Leader, connection: ConnectionId) -> ConsumerKey {
    loop {
        leader.leasing.reserves.last_number = leader.leasing.reserves.last_number.wrapping_add(1);
        let key = ConsumerKey::new(connection, RESERVE_NUMBER | leader.leasing.reserves.last_number);
        if !leader.delivery.consumers.contains_key(&key) {
            return key;
        }
    }
}

/// Whether the consumer stands for a reserve.
pub fn is_reserving(leader: &Leader, key: ConsumerKey) -> bool {
    key.number & RESERVE_NUMBER != 0
        && leader.delivery.consumers.get(&key).is_some_and(|consumer| consumer.reserving.is_some())
}

/// Whether the consumer only looks at waiting messages.
pub fn peeks(leader: &Leader, key: ConsumerKey) -> bool {
    let reserving = leader.delivery.consumers.get(&key).and_then(|consumer| consumer.reserving.as_ref());
    reserving.is_some_and(|reserving| reserving.take == Take::Peek)
}

/// A browse that is over is answered, if it is a reserve's.
pub fn has_looked_at_all(leader: &mut Leader, key: ConsumerKey) -> bool {
    let Some(consumer) = leader.delivery.consumers.get(&key) else { return false };
    let Some(reserving) = &consumer.reserving else { return false };
    if reserving.taken.is_empty() {
        leader.leasing.reserves.fed.push(key);
    }
    true
}

/// Whether the reserve may get more without anything else happening: bodies are on their way,
/// or it has not looked at all.
fn has_more_coming(state: &State, leader: &Leader, id: QueueId, key: ConsumerKey) -> bool {
    let Some(consumer) = leader.delivery.consumers.get(&key).filter(|consumer| 0 < consumer.credit) else {
        return false;
    };
    match &consumer.browse {
        Some(browse) => !browse.is_over,
        None => state.queues.get(&id).is_some_and(|queue| queue.fetching),
    }
}

fn forget_reserve(
    state: &mut State,
    leader: &mut Leader,
    id: QueueId,
    key: ConsumerKey,
    reserving: &Reserving,
) {
    leader.leasing.reserves.forget(key, reserving);
    if let Some(queue) = state.queues.get_mut(&id) {
        queue.requests.reserves = queue.requests.reserves.saturating_sub(1);
    }
}

/// The leases of the reserve are in the log, or need not be.
pub fn answer_reserve(answering: Answering, effects: &mut Vec<Effect>) {
    let Answering { connection, ticket, messages } = answering;
    let answer = LeaseAnswer::Reserved(messages);
    effects.push(Effect::Lease { connection, ticket, answer });
    reply(connection, ticket, Ok(()), effects);
}

pub fn refuse_reserve(answering: &Answering, refusal: &Refusal, effects: &mut Vec<Effect>) {
    reply(answering.connection, answering.ticket, Err(refusal.clone()), effects);
}

/// The queue of a reserve was deleted.
pub fn refuse_reserve_of_deleted(
    leader: &mut Leader,
    key: ConsumerKey,
    reserving: &Reserving,
    queue: &Destination,
    effects: &mut Vec<Effect>,
) {
    leader.leasing.reserves.forget(key, reserving);
    reply(key.connection, reserving.ticket, Err(Refusal::NoSuchQueue(queue.clone())), effects);
}

pub fn take_reserve(partition: &mut Partition, reserve: Reserve, effects: &mut Vec<Effect>) {
    let (connection, ticket) = (reserve.connection, reserve.ticket);
    match check_reserve(partition, &reserve) {
        Ok((id, credit)) => begin_reserve(partition, id, credit, reserve, effects),
        Err(refusal) => reply(connection, ticket, Err(refusal), effects),
    }
}

/// The queue, and how many messages may be taken.
fn check_reserve(partition: &Partition, reserve: &Reserve) -> Result<(QueueId, u32), Refusal> {
    let queue = &reserve.queue;
    selection::parse(&reserve.selector)?;
    let id = partition.state.addresses.own_queue(queue).ok_or_else(|| Refusal::NoSuchQueue(queue.clone()))?;
    if is_moving(&partition.state, &partition.leader, queue) {
        return Err(Refusal::QueueMoving(queue.clone()));
    }
    let waiting = partition.state.queues.get(&id).map_or(0, |queue| queue.requests.reserves);
    if WAITING_MAX <= waiting {
        return Err(Refusal::TooManyWaiting { queue: queue.clone(), max: WAITING_MAX });
    }
    let wanted = reserve.messages_max.clamp(1, RESERVED_MAX);
    let Take::Lease { .. } = reserve.take else { return Ok((id, wanted)) };
    let left = leases_left(partition, id)?;
    Ok((id, u32::try_from(left).unwrap_or(u32::MAX).min(wanted)))
}

fn begin_reserve(
    partition: &mut Partition,
    id: QueueId,
    credit: u32,
    reserve: Reserve,
    effects: &mut Vec<Effect>,
) {
    let Reserve { connection, ticket, queue, selector, wait_ms, take, .. } = reserve;
    let key = next_reserve_key(&mut partition.leader, connection);
    let mode = match take {
        Take::Lease { .. } => ConsumerMode::Shared,
        Take::Peek | Take::Get(_) => ConsumerMode::Browse,
    };
    let attach = Attach {
        consumer: key,
        source: queue,
        at: None,
        mode,
        credit,
        credit_by_default: false,
        priority: 0,
        no_local: false,
        client: None,
        selector,
        subscription: None,
        share: Share::No,
        steals: None,
        retroactive: false,
        notice: None,
        ticket,
    };
    partition.leader.connections.get_or_make(connection).consumers.insert(key);
    if mode == ConsumerMode::Shared
        && let Some(queue) = partition.state.queues.get_mut(&id)
    {
        queue.requests.last_reserve_ms = Some(partition.now_ms);
    }
    let until_ms = partition.now_ms.saturating_add(wait_ms);
    let reserving = Reserving {
        queue: id,
        ticket,
        take,
        until_ms,
        taken: Vec::new(),
        bytes: 0,
        is_overdue: wait_ms == 0,
        refusal: None,
    };
    seat_reserve(partition, id, key, &attach, reserving);
    dispatch(partition, id, effects);
    end_or_wait(partition, id, key, effects);
}

fn seat_reserve(
    partition: &mut Partition,
    id: QueueId,
    key: ConsumerKey,
    attach: &Attach,
    reserving: Reserving,
) {
    if let Some(queue) = partition.state.queues.get_mut(&id) {
        queue.requests.reserves += 1;
    }
    take_seat(partition, id, key, attach);
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return };
    if let Take::Get(tag) = reserving.take {
        consumer.browse = partition.state.queues.get(&id).map(|queue| Browse::of_one(queue, tag));
    }
    partition.leader.leasing.reserves.asked.insert((key.connection, reserving.ticket), key);
    consumer.reserving = Some(Box::new(reserving));
}

/// A reserve that was just begun and has got nothing waits, unless it is not to.
fn end_or_wait(partition: &mut Partition, id: QueueId, key: ConsumerKey, effects: &mut Vec<Effect>) {
    let is_fetching = has_more_coming(&partition.state, &partition.leader, id, key);
    let Some(reserving) =
        partition.leader.delivery.consumers.get(&key).and_then(|consumer| consumer.reserving.as_ref())
    else {
        return;
    };
    match (reserving.is_overdue, is_fetching) {
        (true, true) => drop(partition.leader.leasing.reserves.overdue.insert((id, key))),
        (true, false) => finish_reserve(partition, key, effects),
        (false, _) => drop(partition.leader.leasing.reserves.waits.insert((reserving.until_ms, key))),
    }
}

/// The reserve gets an entry, which is leased, or looks at it. Returns whether a message group
/// has ended.
pub fn feed_reserve(
    partition: &mut Partition,
    id: QueueId,
    tag: EntryTag,
    key: ConsumerKey,
    message: Message,
) -> bool {
    spend_credit(&mut partition.leader, key);
    let Some(take) = partition.leader.delivery.consumers.get_mut(&key).and_then(|consumer| {
        if let Some(browse) = &mut consumer.browse {
            browse.pass(tag);
        }
        consumer.reserving.as_ref().map(|reserving| reserving.take)
    }) else {
        return false;
    };
    let (mut lease, mut ended) = (None, false);
    match take {
        Take::Lease { lasts_ms } => {
            ended = take_group(partition, id, key, &message).ended;
            lease = Some(lease_entry(partition, id, tag, lasts_ms, &message));
            partition.counters.delivered += 1;
        }
        Take::Peek | Take::Get(_) => {}
    }
    let deliveries = entry_at(partition, id, tag).map_or(0, |entry| entry.deliveries());
    let (bytes, from) = (message.size(), partition.settings.id);
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return ended };
    let Some(reserving) = &mut consumer.reserving else { return ended };
    if reserving.taken.is_empty() {
        partition.leader.leasing.reserves.fed.push(key);
    }
    reserving.taken.push(Reserved { queue: id, tag, lease, deliveries, from, message });
    reserving.bytes += bytes;
    if RESERVED_BYTES_MAX <= reserving.bytes {
        consumer.credit = 0;
    }
    ended
}

/// The entry is leased from now on; the log learns it with the rest of the batch.
fn lease_entry(
    partition: &mut Partition,
    id: QueueId,
    tag: EntryTag,
    lasts_ms: u64,
    message: &Message,
) -> LeaseId {
    let lease = partition.leader.leasing.next_lease(&partition.settings);
    let end = LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(lasts_ms), lasts_ms };
    let group = message.group().map(|group| group.id.clone());
    begin_lease(partition, id, tag, (Some(lease), end), group);
    if let Some(entry) = entry_at(partition, id, tag) {
        match matches!(entry.key, MessageKey::Durable { .. }) && !id.is_volatile() {
            true => entry.uncounted_deliveries += 1,
            false => entry.failed_deliveries += 1,
        }
    }
    lease
}

/// Answers the reserves that got something, unless bodies of more are on their way.
pub fn finish_fed(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut keep = Vec::new();
    for key in std::mem::take(&mut partition.leader.leasing.reserves.fed) {
        let Some(consumer) = partition.leader.delivery.consumers.get(&key) else { continue };
        match has_more_coming(&partition.state, &partition.leader, consumer.queue, key) {
            true => keep.push(key),
            false => finish_reserve(partition, key, effects),
        }
    }
    partition.leader.leasing.reserves.fed.append(&mut keep);
}

/// Those whose time was over while bodies were on their way: these are here, or cannot be read.
pub fn finish_overdue(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    if partition.leader.leasing.reserves.overdue.is_empty()
        || partition.state.queues.get(&id).is_none_or(|queue| queue.fetching)
    {
        return;
    }
    let first = ConsumerKey::new(ConnectionId::new(0, 0), 0);
    let of_queue = partition.leader.leasing.reserves.overdue.range((id, first)..);
    let of_queue = of_queue.take_while(|(queue, _)| *queue == id).map(|(_, key)| *key);
    let ended: Vec<ConsumerKey> =
        of_queue.filter(|key| !has_more_coming(&partition.state, &partition.leader, id, *key)).collect();
    for (number, key) in ended.into_iter().enumerate() {
        match number < ENDED_MAX {
            true => finish_reserve(partition, key, effects),
            // Its turn comes with a later tick.
            false => drop(partition.leader.leasing.reserves.waits.insert((partition.now_ms, key))),
        }
    }
}

/// Answers the reserves whose time is over.
pub fn end_waits(partition: &mut Partition, effects: &mut Vec<Effect>) {
    for _ in 0..ENDED_MAX {
        let Some((until_ms, key)) = partition.leader.leasing.reserves.waits.first().copied() else { return };
        if partition.now_ms < until_ms {
            return;
        }
        partition.leader.leasing.reserves.waits.pop_first();
        let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { continue };
        let id = consumer.queue;
        let is_fetching = partition.state.queues.get(&id).is_some_and(|queue| queue.fetching);
        match &mut consumer.reserving {
            Some(reserving) if is_fetching => {
                reserving.is_overdue = true;
                partition.leader.leasing.reserves.overdue.insert((id, key));
            }
            Some(_) => finish_reserve(partition, key, effects),
            None => {}
        }
    }
}

/// The reserve ends: its client is answered once its leases are in the log.
pub fn finish_reserve(partition: &mut Partition, key: ConsumerKey, effects: &mut Vec<Effect>) {
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return };
    let (id, Some(reserving)) = (consumer.queue, consumer.reserving.take()) else { return };
    forget_reserve(&mut partition.state, &mut partition.leader, id, key, &reserving);
    remove_consumer(partition, key, Delivered::None, effects);
    let Reserving { ticket, take, taken, refusal, .. } = *reserving;
    let connection = key.connection;
    if let Some(refusal) = refusal.filter(|_| taken.is_empty()) {
        return reply(connection, ticket, Err(refusal), effects);
    }
    let answering = Answering { connection, ticket, messages: taken };
    match take {
        Take::Lease { lasts_ms } => propose_lease(partition, id, lasts_ms, answering, effects),
        Take::Peek | Take::Get(_) => answer_reserve(answering, effects),
    }
}

fn propose_lease(
    partition: &mut Partition,
    id: QueueId,
    lasts_ms: u64,
    answering: Answering,
    effects: &mut Vec<Effect>,
) {
    let mut tags = Vec::with_capacity(answering.messages.len());
    let mut first = None;
    let leased: Vec<(EntryTag, Option<LeaseId>)> =
        answering.messages.iter().map(|message| (message.tag, message.lease)).collect();
    // The leases of one batch follow one another, but another batch may have been filled at the
    // same time.
    let mut touched = Vec::new();
    for (tag, lease) in leased {
        let key = entry_at(partition, id, tag).map(|entry| entry.key);
        if !matches!(key, Some(MessageKey::Durable { .. })) || id.is_volatile() {
            continue;
        }
        let held = partition.state.leases.get(id, tag).and_then(|held| held.id);
        // Others ended while it waited for bodies.
        let Some(lease) = lease.filter(|lease| held == Some(*lease)) else { continue };
        let expected = first.map(|first: LeaseId| first.plus(tags.len() as u64));
        match expected {
            None => {
                first = Some(lease);
                tags.push(tag);
            }
            Some(expected) if expected == lease => tags.push(tag),
            Some(_) => touched.push((tag, lease)),
        }
    }
    let end = LeaseEnd { wall_ms: partition.clock.wall_ms().saturating_add(lasts_ms), lasts_ms };
    // Those out of order get a record each: rare.
    for (tag, lease) in touched {
        propose_leases(partition, id, lease, end, vec![tag], Completion::Nothing, effects);
    }
    match first {
        Some(first) => {
            propose_leases(partition, id, first, end, tags, Completion::Leased(answering), effects);
        }
        None => answer_reserve(answering, effects),
    }
}

fn propose_leases(
    partition: &mut Partition,
    queue: QueueId,
    first: LeaseId,
    until: LeaseEnd,
    tags: Vec<EntryTag>,
    completion: Completion,
    effects: &mut Vec<Effect>,
) {
    let before_first = LeaseId(first.0.wrapping_sub(1));
    let command = Command::Lease { queue, before_first, until, tags };
    propose(partition, command, Urgency::Waiting, completion, effects);
}

/// The log failed: the reserved messages go back. Returns the queues that are to be dispatched.
pub fn take_back_reserved(partition: &mut Partition, answering: &Answering) -> Vec<QueueId> {
    let mut touched = Vec::new();
    for message in &answering.messages {
        if partition
            .state
            .leases
            .get(message.queue, message.tag)
            .is_some_and(|lease| lease.id == message.lease)
        {
            end_lease(partition, message.queue, message.tag);
            touched.push(message.queue);
        }
    }
    touched
}

/// The client of a reserve is gone, with its connection or alone: messages that it took and did
/// not report go back.
pub fn drop_reserve(partition: &mut Partition, id: QueueId, key: ConsumerKey, reserving: Reserving) {
    forget_reserve(&mut partition.state, &mut partition.leader, id, key, &reserving);
    for Reserved { tag, lease, .. } in reserving.taken {
        if lease.is_some() && partition.state.leases.get(id, tag).is_some_and(|held| held.id == lease) {
            end_lease(partition, id, tag);
        }
    }
}

/// The client of a waiting reserve does not wait any more.
pub fn cancel_reserve(
    partition: &mut Partition,
    queue: &Destination,
    connection: ConnectionId,
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let Some(id) = partition.state.addresses.own_queue(queue) else { return };
    let asked = partition.leader.leasing.reserves.asked.get(&(connection, ticket)).copied();
    let of_queue = |key: &ConsumerKey| {
        partition.leader.delivery.consumers.get(key).is_some_and(|consumer| consumer.queue == id)
    };
    if let Some(key) = asked.filter(of_queue) {
        let queues = remove_consumer(partition, key, Delivered::None, effects);
        dispatch_all(partition, queues, effects);
    }
}
