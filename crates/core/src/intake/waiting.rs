//! Events that cannot go on before the log has made the needed queue or durable subscription, or
//! has ended the present that is there. Sends that need a queue wait where other sends do
//! (`parked`), so that none of their producer overtakes them.
//!
//! Events about a consumer that waits here wait after it. The log's answer then goes to each in
//! turn.
//!
//! A reader of a queue right after sends of its own connection waits until these are there, or wait
//! for something else than the log: so a client never misses its own sends, confirmed or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::{
    Attach, Command, ConnectionId, ConsumerKey, Destination, DestinationKind, Effect, Event, Publish,
    Refusal, Sent, Ticket, Urgency,
};

use crate::Partition;
use crate::addresses::address::Addresses;
use crate::addresses::binding::propose_queue;
use crate::clock::Clock;
use crate::intake::blocked::BlockedOn;
use crate::intake::parked::Parked;
use crate::intake::publish::{Admitted, admit, answer_request};
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::{reply, take_event};
use crate::settings::Settings;
use crate::state::State;
use crate::stepping_down::waiter_of;

/// Consumers and drains that wait for sends at once, far more than look after their sends while the
/// log writes one group; who comes then does not wait.
const FOR_SENDS_MAX: usize = 1024;

/// Events that go on in one step once their queue or subscription is there; the others follow with
/// later ticks.
const RESUMED_MAX: usize = 512;

/// See the head of this file.
#[derive(Default)]
pub struct Waiting {
    /// The line of each queue or subscription for which events wait.
    places: BTreeMap<Place, u64>,
    /// Lines whose queue or subscription is there: their events go on with the next ticks.
    resumed: VecDeque<u64>,
    /// Events that wait, by line.
    lines: BTreeMap<u64, Line>,
    /// Where events of each consumer wait, in their order: the line, and the number there.
    consumers: BTreeMap<ConsumerKey, VecDeque<(u64, u64)>>,
    next_number: u64,
    /// Events that wait for sends of their own connection, with the number of proposals that must
    /// have come back; these only rise. Behind an attach are the events of its consumer.
    for_sends: VecDeque<(u64, Vec<Event>)>,
    /// Who asked for an echo, with the number of proposals that must have come back; these only
    /// rise.
    echoes: VecDeque<(u64, ConnectionId, Ticket)>,
}

impl Waiting {
    /// Whether the queue is on its way into the log, or out of it.
    pub fn is_for_queue(&self, queue: &Destination) -> bool {
        !self.places.is_empty() && self.places.contains_key(&Place::Queue(queue.clone()))
    }

    /// Whether the subscription is on its way into the log, or out of it.
    pub fn is_for_subscription(&self, name: &Arc<str>) -> bool {
        !self.places.is_empty() && self.places.contains_key(&Place::Subscription(name.clone()))
    }

    /// Puts an event after those that wait for the address; `false` if there are none.
    pub fn wait_for_address(&mut self, address: &Destination, event: &Event) -> bool {
        let is_waited_for = self.is_for_queue(address);
        if is_waited_for {
            self.push(Place::Queue(address.clone()), event.clone());
        }
        is_waited_for
    }

    /// Puts an event after those that wait for the subscription; `false` if there are none.
    pub fn wait_for_subscription(&mut self, name: &Arc<str>, event: &Event) -> bool {
        let is_waited_for = self.is_for_subscription(name);
        if is_waited_for {
            self.push(Place::Subscription(name.clone()), event.clone());
        }
        is_waited_for
    }

    /// Events may wait at this place from now on. Returns its line.
    fn begin(&mut self, place: Place) -> u64 {
        let Waiting { places, lines, next_number, .. } = self;
        *places.entry(place).or_insert_with(|| {
            *next_number += 1;
            lines.insert(*next_number, Line::default());
            *next_number
        })
    }

    fn push(&mut self, place: Place, event: Event) {
        let line = self.begin(place);
        self.push_to(line, event);
    }

    fn push_to(&mut self, line: u64, event: Event) {
        let Some(waiting) = self.lines.get_mut(&line) else { return };
        self.next_number += 1;
        if let Some(consumer) = consumer_of(&event) {
            self.consumers.entry(consumer).or_default().push_back((line, self.next_number));
        }
        waiting.events.insert(self.next_number, event);
    }

    /// The event waits no more: its consumer's others are left.
    fn forget(&mut self, event: &Event, number: u64) {
        let Some(consumer) = consumer_of(event) else { return };
        let Some(places) = self.consumers.get_mut(&consumer) else { return };
        // Those of one line leave in their order.
        if let Some(at) = places.iter().position(|(_, other)| *other == number) {
            places.remove(at);
        }
        if places.is_empty() {
            self.consumers.remove(&consumer);
        }
    }

    fn take_line(&mut self, place: &Place) -> Vec<Event> {
        let line = self.places.remove(place).and_then(|line| self.lines.remove(&line)).unwrap_or_default();
        line.events.iter().for_each(|(number, event)| self.forget(event, *number));
        line.events.into_values().collect()
    }

    /// The events that waited for the queue, in order.
    pub fn take_for_queue(&mut self, queue: &Destination) -> Vec<Event> {
        self.take_line(&Place::Queue(queue.clone()))
    }

    /// The events that waited for the subscription, in order.
    pub fn take_for_subscription(&mut self, name: &Arc<str>) -> Vec<Event> {
        self.take_line(&Place::Subscription(name.clone()))
    }

    /// The first event that waits for the subscription.
    pub fn first_for_subscription(&self, name: &Arc<str>) -> Option<&Event> {
        let line = self.places.get(&Place::Subscription(name.clone()))?;
        self.lines.get(line)?.events.first_key_value().map(|(_, event)| event)
    }

    /// The events that waited at this place go on in their turn.
    fn resume(&mut self, place: &Place) {
        let Some(number) = self.places.remove(place) else { return };
        match self.lines.get_mut(&number) {
            Some(line) if !line.events.is_empty() => {
                line.is_resumed = true;
                self.resumed.push_back(number);
            }
            _ => drop(self.lines.remove(&number)),
        }
    }

    /// The next event of those that go on.
    fn take_resumed(&mut self) -> Option<Event> {
        while let Some(line) = self.resumed.front().copied() {
            let next = self.lines.get_mut(&line).and_then(|line| line.events.pop_first());
            if let Some((number, event)) = next {
                self.forget(&event, number);
                return Some(event);
            }
            self.lines.remove(&line);
            self.resumed.pop_front();
        }
        None
    }

    /// When the next events go on.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.resumed.is_empty()).then_some(now_ms + 1)
    }

    /// Events about a waiting consumer wait after it; any other is given back.
    pub fn behind_its_attach(&mut self, event: Event) -> Option<Event> {
        // A number that was given up may be attached again: not before it was given up here.
        let attaches = matches!(event, Event::Attach(_));
        self.behind(event, |line| line.is_resumed || !attaches)
    }

    /// As `behind_its_attach`, of an event that has waited for its turn: its consumer's attach may
    /// wait for something else now.
    fn behind_its_attach_again(&mut self, event: Event) -> Option<Event> {
        let attaches = matches!(event, Event::Attach(_));
        self.behind(event, |line| !line.is_resumed && !attaches)
    }

    fn behind(&mut self, event: Event, waits_in: impl Fn(&Line) -> bool) -> Option<Event> {
        let Some(consumer) = consumer_of(&event) else { return Some(event) };
        let lines = self.consumers.get(&consumer).into_iter().flatten().rev().map(|(line, _)| *line);
        let line = lines.into_iter().find(|line| self.lines.get(line).is_some_and(&waits_in));
        if let Some(line) = line {
            self.push_to(line, event);
            return None;
        }
        if matches!(event, Event::Attach(_)) {
            return Some(event);
        }
        // An attach is the first of those that wait with it.
        let attaches = |event: &Event| matches!(event, Event::Attach(attach) if attach.consumer == consumer);
        let mut for_sends = self.for_sends.iter_mut().map(|(_, waiting)| waiting);
        match for_sends.find(|waiting| waiting.first().is_some_and(attaches)) {
            Some(waiting) => {
                waiting.push(event);
                None
            }
            None => Some(event),
        }
    }

    /// Puts an event off until this number of proposals has come back, after all that wait for as
    /// many or fewer.
    fn wait_for_sends(&mut self, proposals: u64, event: Event) {
        let last = self.for_sends.back().map_or(0, |(last, _)| *last);
        self.for_sends.push_back((proposals.max(last), vec![event]));
    }

    /// The events that have waited for sends long enough, in order, now that this number of
    /// proposals has come back.
    fn take_for_sends(&mut self, proposals: u64) -> Vec<Event> {
        let due = self.for_sends.partition_point(|(needed, _)| *needed <= proposals);
        self.for_sends.drain(..due).flat_map(|(_, waiting)| waiting).collect()
    }

    /// Takes all that waits, but for echoes.
    pub fn take_all(&mut self) -> Vec<Event> {
        (self.consumers, self.places, self.resumed) = Default::default();
        let lines = std::mem::take(&mut self.lines).into_values();
        let lines = lines.flat_map(|line| line.events.into_values());
        lines.chain(self.for_sends.drain(..).flat_map(|(_, waiting)| waiting)).collect()
    }

    /// Takes the echoes that wait.
    pub fn take_echoes(&mut self) -> Vec<(ConnectionId, Ticket)> {
        self.echoes.drain(..).map(|(_, connection, ticket)| (connection, ticket)).collect()
    }

    /// The oldest echo that is due, now that this number of proposals has come back.
    fn take_echo(&mut self, proposals: u64) -> Option<(ConnectionId, Ticket)> {
        let (_, connection, ticket) = self.echoes.pop_front_if(|(needed, ..)| *needed <= proposals)?;
        Some((connection, ticket))
    }

    /// The connection has ended: its consumers come no more.
    pub fn forget_consumers_of(&mut self, connection: ConnectionId) {
        let first = ConsumerKey::new(connection, 0);
        let own = self.consumers.range(first..).take_while(|(key, _)| key.connection == connection);
        for key in own.map(|(key, _)| *key).collect::<Vec<_>>() {
            for (line, number) in self.consumers.remove(&key).unwrap_or_default() {
                // A line without events is there as long as its queue is on the way.
                self.lines.get_mut(&line).map(|line| line.events.remove(&number));
            }
        }
        let stays = |event: &Event| consumer_of(event).is_none_or(|own| own.connection != connection);
        self.for_sends.iter_mut().for_each(|(_, waiting)| waiting.retain(stays));
    }
}

/// Where events wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// For this queue.
    Queue(Destination),
    /// For this subscription.
    Subscription(Arc<str>),
}

/// Events that wait together.
#[derive(Default)]
struct Line {
    /// By number, which is their order.
    events: BTreeMap<u64, Event>,
    /// Their queue or subscription is there.
    is_resumed: bool,
}

/// The consumer that an event begins, ends or lets have messages.
fn consumer_of(event: &Event) -> Option<ConsumerKey> {
    match event {
        Event::Attach(attach) => Some(attach.consumer),
        Event::Detach { consumer, .. } | Event::Credit { consumer, .. } | Event::Drain { consumer } => {
            Some(*consumer)
        }
        _ => None,
    }
}

/// The client of an event that reads or ends the contents of queues or the schedule, and should
/// find its earlier sends there.
fn looker(event: &Event) -> Option<ConnectionId> {
    match event {
        Event::Attach(Attach { consumer, .. }) | Event::Drain { consumer } => Some(consumer.connection),
        Event::Delete { connection, .. }
        | Event::BrowseJobs { connection, .. }
        | Event::EndJobs { connection, .. } => Some(*connection),
        _ => None,
    }
}

/// Ends a subscription, and this follows. Readers that come meanwhile wait.
pub fn end_subscription(
    partition: &mut Partition,
    name: Arc<str>,
    completion: Completion,
    effects: &mut Vec<Effect>,
) {
    partition.leader.intake.waiting.begin(Place::Subscription(name.clone()));
    propose(partition, Command::Unsubscribe { name }, Urgency::Waiting, completion, effects);
}

/// The log has made the queue for which events wait, or has ended it.
pub fn resume_for_queue(partition: &mut Partition, queue: &Destination, effects: &mut Vec<Effect>) {
    resume(partition, &Place::Queue(queue.clone()), effects);
}

/// The log has made the subscription for which events wait, or has ended it.
pub fn resume_for_subscription(partition: &mut Partition, name: &Arc<str>, effects: &mut Vec<Effect>) {
    resume(partition, &Place::Subscription(name.clone()), effects);
}

/// Events go on that were too many for the step in which their queue or subscription came.
pub fn go_on_resuming(partition: &mut Partition, effects: &mut Vec<Effect>) {
    for _ in 0..RESUMED_MAX {
        let Some(event) = partition.leader.intake.waiting.take_resumed() else { return };
        resume_one(partition, event, effects);
    }
}

/// Events that waited at this place go on: beyond [`RESUMED_MAX`] with the next ticks, and later
/// events of their consumers after them.
fn resume(partition: &mut Partition, place: &Place, effects: &mut Vec<Effect>) {
    let goes_on = !partition.leader.intake.waiting.resumed.is_empty();
    partition.leader.intake.waiting.resume(place);
    if !goes_on {
        go_on_resuming(partition, effects);
    }
}

/// An event has waited long enough, unless its consumer waits for something else now.
fn resume_one(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    if let Some(event) = partition.leader.intake.waiting.behind_its_attach_again(event) {
        take_event(partition, event, effects);
    }
}

impl Addresses {
    /// The queues among its addresses that do not exist.
    fn queues_needed<'a>(&'a self, sent: &'a Sent) -> impl Iterator<Item = &'a Destination> {
        let queues = sent.targets().filter(|to| to.kind == DestinationKind::Queue);
        queues.filter(|queue| self.get(queue).is_none())
    }
}

/// This number of proposals must have come back before the connection's sends are in their
/// queues, or wait for something else than the log.
fn proposals_of_sends(leader: &Leader, connection: ConnectionId) -> u64 {
    if leader.intake.parked.has_any_of(connection) {
        return leader.log.made;
    }
    leader.connections.get(&connection).map_or(0, |connection| connection.sends)
}

/// How many proposals have come back, durable or not.
pub fn proposals_ended(leader: &Leader) -> u64 {
    leader.log.made - leader.log.pending.len() as u64
}

/// Whether the send waits for queues that are on their way into the log.
pub fn awaits_queue(
    state: &State,
    leader: &Leader,
    sent: &Sent,
    admitted: &Result<Admitted, Refusal>,
) -> bool {
    matches!(admitted, Ok(Admitted::NeedsQueue))
        && state.addresses.queues_needed(sent).all(|queue| leader.intake.waiting.is_for_queue(queue))
}

/// Puts an event off that reads sends of its connection, as long as the log has not all of
/// them; any other is given back.
pub fn behind_its_sends(leader: &mut Leader, event: Event) -> Option<Event> {
    let needed = looker(&event).map_or(0, |connection| proposals_of_sends(leader, connection));
    if needed <= proposals_ended(leader) || leader.intake.waiting.for_sends.len() >= FOR_SENDS_MAX {
        return Some(event);
    }
    leader.intake.waiting.wait_for_sends(needed, event);
    None
}

fn answer_echoes(leader: &mut Leader, effects: &mut Vec<Effect>) {
    while let Some((connection, ticket)) = leader.intake.waiting.take_echo(proposals_ended(leader)) {
        reply(connection, ticket, Ok(()), effects);
    }
}

/// See [`Event::Echo`].
pub fn echo(leader: &mut Leader, connection: ConnectionId, ticket: Ticket, effects: &mut Vec<Effect>) {
    if leader.ended.coordinated.holds_up(connection, ticket) {
        return;
    }
    leader.intake.waiting.echoes.push_back((leader.log.made, connection, ticket));
    answer_echoes(leader, effects);
}

/// The connection's sends that need nothing but queues, and events that wait after them: they
/// come in even if the connection ends, as they would if the queues were there.
pub fn parked_for_queues(
    state: &State,
    leader: &Leader,
    settings: &Settings,
    clock: &Clock,
    connection: ConnectionId,
) -> BTreeSet<i64> {
    let (mut staying, mut ways) = (BTreeSet::new(), BTreeSet::new());
    for parked in leader.intake.parked.of(connection) {
        let Sent { message, .. } = &parked.publish.sent;
        let admitted = admit(state, leader, settings, clock, &parked.publish.sent);
        let way = |to: &Destination| (message.persistent, to.clone());
        let is_behind = parked.publish.sent.targets().any(|to| ways.contains(&way(to)));
        if matches!(admitted, Ok(Admitted::NeedsQueue)) || is_behind && admitted == Ok(Admitted::Volatile) {
            staying.insert(parked.number());
            ways.extend(parked.publish.sent.targets().map(way));
        }
    }
    staying
}

/// Puts a reader off until its queue is in the log; later events for that reader wait after it.
pub fn declare_first(
    partition: &mut Partition,
    queue: Destination,
    attach: Attach,
    effects: &mut Vec<Effect>,
) {
    begin_queue(partition, &queue, Some(&attach), effects);
    partition.leader.intake.waiting.push(Place::Queue(queue), Event::Attach(attach));
}

/// Has the log make a queue, or bind it as the reader wants it, unless that is under way: the
/// waiting events then ask for the rest.
fn begin_queue(
    partition: &mut Partition,
    queue: &Destination,
    attach: Option<&Attach>,
    effects: &mut Vec<Effect>,
) {
    // A line is there as long as its queue is on the way, even if everybody has left it.
    if !partition.leader.intake.waiting.is_for_queue(queue) {
        partition.leader.intake.waiting.begin(Place::Queue(queue.clone()));
        let completion = Completion::Declared { queue: queue.clone() };
        propose_queue(partition, queue.clone(), attach, completion, effects);
    }
}

/// A send in memory waits, before all others at its address, until the log has made the
/// queues that it needs.
pub fn park_until_declared(partition: &mut Partition, publish: Publish, effects: &mut Vec<Effect>) {
    let needed: Vec<Destination> = partition.state.addresses.queues_needed(&publish.sent).cloned().collect();
    for queue in needed {
        begin_queue(partition, &queue, None, effects);
    }
    let to = publish.sent.to.clone();
    partition.leader.intake.parked.push_first(publish);
    partition.leader.intake.lines.put(to, BlockedOn::Log, false);
}

/// The log has not made the queue: events that need it are refused.
pub fn queue_failed(
    partition: &mut Partition,
    queue: &Destination,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    let waiting = partition.leader.intake.waiting.take_for_queue(queue);
    refuse_waiting(partition, waiting, refusal, effects);
    let needs = |parked: &&Parked| {
        let sent = &parked.publish.sent;
        let is_needed = partition.state.addresses.queues_needed(sent).any(|needed| needed == queue);
        is_needed
            && matches!(
                admit(&partition.state, &partition.leader, &partition.settings, &partition.clock, sent),
                Ok(Admitted::NeedsQueue)
            )
    };
    let parked = partition.leader.intake.parked.sent_to(queue).filter(needs);
    let failed: Vec<i64> = parked.map(Parked::number).collect();
    for Parked { publish, .. } in partition.leader.intake.parked.take_out_to(queue, &failed) {
        reply(publish.connection, publish.ticket, Err(refusal.clone()), effects);
    }
}

/// Puts a reader off until its durable subscription is in the log; later events for that
/// subscription wait after it.
pub fn subscribe_first(
    partition: &mut Partition,
    name: &Arc<str>,
    attach: Attach,
    effects: &mut Vec<Effect>,
) {
    if partition.leader.intake.waiting.is_for_subscription(name) {
        let place = Place::Subscription(name.clone());
        return partition.leader.intake.waiting.push(place, Event::Attach(attach));
    }
    let wanted = crate::addresses::subscription::wanted(&attach, name);
    if !wanted.shared {
        let now = (partition.now_ms, partition.clock.wall_ms());
        partition.leader.intake.homes.begin(wanted.own_name(), &wanted.topic, now);
    }
    let command = Command::Subscribe(wanted);
    partition.leader.intake.waiting.push(Place::Subscription(name.clone()), Event::Attach(attach));
    let completion = Completion::Subscribed { name: name.clone() };
    propose(partition, command, Urgency::Waiting, completion, effects);
}

/// Ends a durable subscription. Later events for it wait: they are not for the one that ends.
pub fn end_named_subscription(
    partition: &mut Partition,
    name: Arc<str>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let completion = Completion::Unsubscribed { name: name.clone(), answer };
    end_subscription(partition, name, completion, effects);
}

/// A subscription has ended, or its end has failed: readers that wait may begin one.
pub fn unsubscribed(
    partition: &mut Partition,
    name: &Arc<str>,
    answer: Option<(ConnectionId, Ticket)>,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    answer_request(partition, answer, result, effects);
    resume_for_subscription(partition, name, effects);
}

/// Deletes an address. Later attaches to it wait, and attach to the new one after that.
pub fn end_address(
    partition: &mut Partition,
    address: Destination,
    answer: (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    partition.leader.intake.waiting.begin(Place::Queue(address.clone()));
    let completion = Completion::Deleted { address: address.clone(), answer };
    propose(partition, Command::Delete { queue: address }, Urgency::Waiting, completion, effects);
}

/// Proposals have come back: events that waited for sends among them go on.
pub fn resume_behind_sends(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let waiting = partition.leader.intake.waiting.take_for_sends(proposals_ended(&partition.leader));
    waiting.into_iter().for_each(|event| resume_one(partition, event, effects));
    answer_echoes(&mut partition.leader, effects);
}

/// The log has not made it.
pub fn refuse_waiting(
    partition: &mut Partition,
    waiting: Vec<Event>,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    for event in waiting {
        match event {
            // Its consumer was never attached: there is nothing to undo.
            Event::Detach { .. } => partition.soft(event, effects),
            event => answer_request(partition, waiter_of(&event), Err(refusal.clone()), effects),
        }
    }
}
