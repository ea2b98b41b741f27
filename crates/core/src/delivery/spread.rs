//! Consumers of every queue that a pattern matches: a member in each, in queues that come later
//! too.
//!
//! A member stands in its queue like any other consumer, with its deliveries and its position.
//! Credit alone belongs to the whole. A member whose turn comes while there is none leaves its line
//! and is noted as starved; when credit comes, the starved are served in the order in which they
//! ran out, so that no queue keeps the others from it.
//!
//! Members have a bound, by memory. At the bound a consumer of a pattern is refused, and one that
//! would have to read a queue that was made later is ended: its client learns that, whereas a queue
//! that is not read would go unnoticed.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use postroad_model::{
    Attach, ConsumerKey, ConsumerMode, ConsumerNotice, Destination, DestinationKind, DetachCause, Effect,
    QueueId, Refusal, Urgency,
};
use postroad_routing::Pattern;

use crate::Partition;
use crate::addresses::binding::missing_bindings;
use crate::connection::Connection;
use crate::delivery::consumer::{check_new, may_get_more, oust, take_seat};
use crate::delivery::dispatch::dispatch;
use crate::delivery::line::{leave_line, line_up};
use crate::delivery::selection;
use crate::intake::publish::dispatch_all;
use crate::intake::waiting::declare_first;
use crate::leader::Leader;
use crate::leasing::refuse_reserve_of_deleted;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::notice::announce_consumer;
use crate::partition::reply;
use crate::settings::Settings;
use crate::settling::doubt;
use crate::state::State;

/// A consumer of a pattern of queues, as a whole.
pub struct Spread {
    pattern: Pattern,
    /// How each member reads.
    attach: Attach,
    /// How many more messages its members may be sent together.
    pub credit: u32,
    /// Its credit ends as soon as the bodies that are being read have been sent.
    pub draining: bool,
    /// Its members, each a consumer of one queue.
    pub members: BTreeSet<u32>,
    last_member: u32,
    starved: VecDeque<u32>,
}

impl Spread {
    /// Its notice.
    pub fn notice(&self) -> Option<&Arc<ConsumerNotice>> {
        self.attach.notice.as_ref()
    }
}

/// The first element of a pattern, empty if it has a wildcard: queues that match have the same one.
fn first_of_pattern(name: &str) -> &str {
    let first = name.split('.').next().unwrap_or_default();
    if first.contains(['*', '>']) { "" } else { first }
}

/// A consumer of a pattern ends.
pub fn forget_spread(leader: &mut Leader, key: ConsumerKey) -> Option<Spread> {
    let delivery = &mut leader.delivery;
    let spread = delivery.spreads.remove(&key)?;
    delivery.members -= spread.members.len();
    delivery.draining_wholes.remove(&key);
    let first = first_of_pattern(&spread.attach.source.name);
    if let Some(wholes) = delivery.spreads_by_first.get_mut(first) {
        wholes.remove(&key);
        if wholes.is_empty() {
            delivery.spreads_by_first.remove(first);
        }
    }
    Some(spread)
}

/// Whether a consumer of a pattern may read this number of queues.
fn check_width(leader: &Leader, settings: &Settings, attach: &Attach, queues: usize) -> Result<(), Refusal> {
    let (read, max) = (leader.delivery.members, settings.members_max());
    match queues == 0 || read + queues <= max {
        true => Ok(()),
        false => Err(Refusal::PatternTooWide { pattern: attach.source.clone(), queues, read, max }),
    }
}

/// Ends the consumers of patterns that have no room to read one more queue.
pub fn end_crowded(partition: &mut Partition, effects: &mut Vec<Effect>) {
    for whole in std::mem::take(&mut partition.leader.delivery.crowded) {
        if partition.leader.delivery.spreads.contains_key(&whole) {
            let touched = oust(partition, whole, DetachCause::PatternTooWide, effects);
            dispatch_all(partition, touched, effects);
        }
    }
}

/// The pattern of queues that a consumer is to read, if it is to read one.
fn pattern_of(attach: &Attach) -> Option<Pattern> {
    let Destination { kind, temporary, name } = &attach.source;
    let may = *kind == DestinationKind::Queue && !temporary && attach.at.is_some();
    Pattern::parse(name).ok().filter(|pattern| may && pattern.is_wildcard())
}

/// The consumer of the connection after this one. A consumer of a pattern has members instead, or
/// stands for itself as long as there are none.
pub(crate) fn next_reader(
    leader: &Leader,
    connection: &Connection,
    after: Option<ConsumerKey>,
) -> Option<ConsumerKey> {
    let spreads = &leader.delivery.spreads;
    if let Some(after) = after
        && let Some(spread) = spreads.get(&after.whole())
        && let Some(member) = spread.members.range((Bound::Excluded(after.member), Bound::Unbounded)).next()
    {
        return Some(after.with_member(*member));
    }
    let whole = next_consumer(connection, after.map(ConsumerKey::whole))?;
    let member = spreads.get(&whole).and_then(|spread| spread.members.first());
    Some(member.map_or(whole, |member| whole.with_member(*member)))
}

/// The consumer of the connection after this one, each as a whole.
pub(crate) fn next_consumer(connection: &Connection, after: Option<ConsumerKey>) -> Option<ConsumerKey> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    connection.consumers.range((from, Bound::Unbounded)).next().copied()
}

/// Whether a consumer may be sent a message, as far as its credit goes.
pub fn has_credit(leader: &Leader, key: ConsumerKey) -> bool {
    match leader.delivery.spreads.get(&key.whole()).filter(|_| key.member != 0) {
        Some(spread) => spread.credit > 0,
        None => leader.delivery.consumers.get(&key).is_some_and(|consumer| consumer.credit > 0),
    }
}

/// One message is sent to it.
pub fn spend_credit(leader: &mut Leader, key: ConsumerKey) {
    let of_whole = leader.delivery.spreads.get_mut(&key.whole()).filter(|_| key.member != 0);
    let credit = match of_whole {
        Some(spread) => &mut spread.credit,
        None => match leader.delivery.consumers.get_mut(&key) {
            Some(consumer) => &mut consumer.credit,
            None => return,
        },
    };
    *credit -= 1;
}

/// The consumers that stand in queues for this one: itself, or its members.
pub fn readers_of(leader: &Leader, key: ConsumerKey) -> Vec<ConsumerKey> {
    match leader.delivery.spreads.get(&key) {
        Some(spread) => spread.members.iter().map(|member| key.with_member(*member)).collect(),
        None => vec![key],
    }
}

/// A member has its turn while the whole has no credit: its next turn comes with credit.
pub fn starve(state: &mut State, leader: &mut Leader, key: ConsumerKey) {
    leave_line(state, leader, key);
    let Some(consumer) = leader.delivery.consumers.get_mut(&key) else { return };
    if !std::mem::replace(&mut consumer.starved, true)
        && let Some(spread) = leader.delivery.spreads.get_mut(&key.whole())
    {
        spread.starved.push_back(key.member);
    }
}

/// Ends the credit of a draining whole, unless something may still be a member's.
pub fn finish_drain_of_members(
    state: &mut State,
    leader: &mut Leader,
    whole: ConsumerKey,
    effects: &mut Vec<Effect>,
) {
    if !leader.delivery.spreads.get(&whole).is_some_and(|spread| spread.draining) {
        return;
    }
    if readers_of(leader, whole).iter().any(|key| may_get_more(state, leader, *key)) {
        return;
    }
    leader.delivery.draining_wholes.remove(&whole);
    if let Some(spread) = leader.delivery.spreads.get_mut(&whole) {
        spread.draining = false;
        spread.credit = 0;
        effects.push(Effect::Drained { consumer: whole });
    }
}

/// Attaches a consumer of a pattern of queues; gives back any other.
pub fn attach_to_pattern(
    partition: &mut Partition,
    attach: Attach,
    effects: &mut Vec<Effect>,
) -> Option<Attach> {
    let Some(pattern) = pattern_of(&attach) else { return Some(attach) };
    let (key, ticket) = (attach.consumer, attach.ticket);
    if let Err(refusal) =
        check_new(&partition.leader, key).and_then(|()| selection::parse(&attach.selector).map(drop))
    {
        reply(key.connection, ticket, Err(refusal), effects);
        return None;
    }
    let heir_of = doubt::heir_of_all(&attach);
    let room = partition.settings.members_max().saturating_sub(partition.leader.delivery.members);
    let queues = match heir_of {
        Some(link) => doubt::queues_of(&partition.state, &partition.leader, link, room),
        None => partition.state.addresses.queues_matching(&pattern),
    };
    if let Err(refusal) = check_width(&partition.leader, &partition.settings, &attach, queues.len()) {
        reply(key.connection, ticket, Err(refusal), effects);
        return None;
    }
    // As in ActiveMQ: where no queue matches yet, a queue of the pattern's own name collects
    // messages of the topics.
    let is_fed = !partition.settings.addressing.feeds_of(&attach.source).is_empty();
    if queues.is_empty() && is_fed && attach.mode != ConsumerMode::Browse && heir_of.is_none() {
        declare_first(partition, attach.source.clone(), attach, effects);
        return None;
    }
    if heir_of.is_none() {
        bind_for_reader(partition, &queues, &attach, effects);
    }
    let steals = attach.steals.clone().filter(|_| heir_of.is_some());
    reply(key.connection, ticket, Ok(()), effects);
    let spread = Spread {
        pattern,
        credit: attach.credit,
        attach,
        draining: false,
        members: BTreeSet::new(),
        last_member: 0,
        starved: VecDeque::new(),
    };
    let first = first_of_pattern(&spread.attach.source.name).to_owned();
    partition.leader.delivery.spreads_by_first.entry(first).or_default().insert(key);
    partition.leader.delivery.spreads.insert(key, spread);
    partition.leader.connections.get_or_make(key.connection).consumers.insert(key);
    let notice = partition.leader.delivery.spreads.get(&key).and_then(Spread::notice).cloned();
    announce_consumer(notice.as_ref(), true, effects);
    let queues: Vec<QueueId> =
        queues.iter().filter_map(|queue| partition.state.addresses.get(queue)?.bound.own()).collect();
    for id in &queues {
        let member = join_queue(partition, key, *id);
        if let (Some(name), Some(member)) = (&steals, member) {
            doubt::hand_on(partition, (*id, name), member, effects);
        }
    }
    for id in &queues {
        dispatch(partition, *id, effects);
    }
    if queues.is_empty() {
        end_browse_of_members(partition, key, effects);
    }
    None
}

/// The bindings of the queues of a pattern respect the selector of the new reader.
fn bind_for_reader(
    partition: &mut Partition,
    queues: &[Destination],
    attach: &Attach,
    effects: &mut Vec<Effect>,
) {
    for queue in queues {
        for binding in missing_bindings(&partition.state, &partition.settings, queue, Some(attach)) {
            let command = postroad_model::Command::Bind(binding);
            propose(partition, command, Urgency::Waiting, Completion::Nothing, effects);
        }
    }
}

fn join_queue(partition: &mut Partition, whole: ConsumerKey, id: QueueId) -> Option<ConsumerKey> {
    let spread = partition.leader.delivery.spreads.get_mut(&whole)?;
    spread.last_member += 1;
    spread.members.insert(spread.last_member);
    partition.leader.delivery.members += 1;
    let (member, attach) = (whole.with_member(spread.last_member), spread.attach.clone());
    take_seat(partition, id, member, &attach);
    Some(member)
}

/// A queue was made: readers of a matching pattern read it too. A browser sees the queues that
/// existed when it came.
pub fn join_spreads(partition: &mut Partition, id: QueueId, queue: &Destination) {
    if partition.leader.delivery.spreads.is_empty() || queue.temporary {
        return;
    }
    let wants = |spread: &Spread| {
        spread.attach.mode != ConsumerMode::Browse
            && spread.pattern.matches(&queue.name)
            && doubt::heir_of_all(&spread.attach).is_none()
    };
    let delivery = &partition.leader.delivery;
    let first = queue.name.split('.').next().unwrap_or_default();
    let firsts = [first, ""].into_iter().filter_map(|first| delivery.spreads_by_first.get(first));
    let wholes = firsts.flatten().filter(|key| delivery.spreads.get(key).is_some_and(wants));
    let mut wholes: Vec<ConsumerKey> = wholes.copied().collect();
    wholes.sort_unstable();
    wholes.dedup();
    let mut room = partition.settings.members_max().saturating_sub(partition.leader.delivery.members);
    for whole in wholes {
        match room {
            0 => partition.leader.delivery.crowded.push(whole),
            _ => drop(join_queue(partition, whole, id)),
        }
        room = room.saturating_sub(1);
    }
}

/// Serves the starved, as long as there is credit.
pub fn feed_starved(partition: &mut Partition, whole: ConsumerKey, effects: &mut Vec<Effect>) {
    while let Some(spread) =
        partition.leader.delivery.spreads.get_mut(&whole).filter(|spread| spread.credit > 0)
        && let Some(member) = spread.starved.pop_front()
    {
        let key = whole.with_member(member);
        let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { continue };
        consumer.starved = false;
        let id = consumer.queue;
        line_up(&mut partition.state, &mut partition.leader, &partition.settings, key);
        dispatch(partition, id, effects);
    }
}

/// Notifies the client of a pattern browser once, when all its members have seen everything.
pub fn end_browse_of_members(partition: &mut Partition, whole: ConsumerKey, effects: &mut Vec<Effect>) {
    let browses = partition
        .leader
        .delivery
        .spreads
        .get(&whole)
        .is_some_and(|spread| spread.attach.mode == ConsumerMode::Browse);
    let is_over = |key: &ConsumerKey| {
        let browse =
            partition.leader.delivery.consumers.get(key).and_then(|consumer| consumer.browse.as_ref());
        browse.is_none_or(|browse| browse.is_over)
    };
    if browses && readers_of(&partition.leader, whole).iter().all(is_over) {
        effects.push(Effect::Drained { consumer: whole });
    }
}

/// A queue has ended under one of its consumers; whether a session has to know.
pub fn forget_reader(
    partition: &mut Partition,
    key: ConsumerKey,
    source: &Destination,
    effects: &mut Vec<Effect>,
) {
    let consumer = partition.leader.delivery.consumers.remove(&key);
    if let Some(consumer) = &consumer {
        partition.leader.delivery.drains.end(consumer.queue, key);
    }
    let notice = consumer.as_ref().and_then(|consumer| consumer.notice.as_ref());
    announce_consumer(notice, false, effects);
    if let Some(spread) = partition.leader.delivery.spreads.get_mut(&key.whole()).filter(|_| key.member != 0)
    {
        partition.leader.delivery.members -= usize::from(spread.members.remove(&key.member));
        if consumer.and_then(|consumer| consumer.browse).is_some_and(|browse| !browse.is_over) {
            end_browse_of_members(partition, key.whole(), effects);
        }
        // It may have been the last whose body was on its way.
        finish_drain_of_members(&mut partition.state, &mut partition.leader, key.whole(), effects);
        return;
    }
    if let Some(connection) = partition.leader.connections.get_mut(&key.connection) {
        connection.consumers.remove(&key);
    }
    if let Some(reserving) = consumer.and_then(|consumer| consumer.reserving) {
        return refuse_reserve_of_deleted(&mut partition.leader, key, &reserving, source, effects);
    }
    effects.push(Effect::Detached { consumer: key, cause: DetachCause::Deleted });
}
