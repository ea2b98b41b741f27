//! Routers: where each of a connection's events goes, and how much of it is outstanding.

mod routes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use postroad_model::{
    Attach, ConnectionId, ConsumerKey, Delivered, Destination, DestinationKind, DetachCause, Event,
    LeaseEvent, LinkEvent, LinkName, PartitionId, Principal, Publish, Refusal, Sent, Ticket, ToSession,
    TransactionKey,
};
use postroad_trace::TraceTime;
use rustc_hash::FxHashMap;

use crate::draining;
use crate::fair::{Fair, Seat};
use crate::fair_share::MESSAGE_COST;
use crate::gate::Gate;
use crate::mailbox::Mailbox;
use crate::outstanding::{Outstanding, Share};
use crate::places::SharedPlaces;
use crate::tracer::{SharedTracer, Traced};

use routes::Targets;

/// Messages and pieces of them are answered one by one. For other events of a connection its
/// partition is asked once this much has been sent, and that much is outstanding until it answers:
/// as much as one read brings, mostly.
const ECHO_BYTES: u64 = 16 << 10;

/// After this number of bytes of deliveries a partition is notified that the outbox has room again:
/// no outbox may be smaller, or it would never have.
pub const WRITTEN_STEP_BYTES: u64 = 256 << 10;

/// The runtime's state of one connection. Its keys are numbers that the broker gives, so no client
/// can choose some that collide.
pub struct Router {
    connection: ConnectionId,
    places: SharedPlaces,
    consumers: FxHashMap<u32, PartitionId>,
    /// Apart, as most connections have none of it.
    movable: Option<Box<Movable>>,
    /// Consumers that leave, by the ticket of their detaching: deliveries on their way are still
    /// accounted for.
    detaching: FxHashMap<Ticket, Vec<u32>>,
    touched: BTreeSet<PartitionId>,
    /// Exclusive names that it has claimed.
    claims: Vec<Arc<str>>,
    transactions: FxHashMap<u64, BTreeSet<PartitionId>>,
    outstanding: Outstanding,
    /// Bytes sent to each partition since it was last asked for an echo: see [`ECHO_BYTES`].
    unanswered: Vec<(PartitionId, u64)>,
    /// How many echoes are to come.
    echoes: usize,
    written: BTreeMap<PartitionId, u64>,
    /// The partitions that have the pieces of a large message on its way in, by its number: all
    /// that it may be for, each with where it may go there.
    uploads: FxHashMap<u64, BTreeMap<PartitionId, Arc<[Destination]>>>,
    /// Questions to all partitions.
    asked: FxHashMap<Ticket, Asked>,
    /// A message on its way to several partitions, by the ticket of its sending.
    spreading: Option<Ticket>,
    /// Later events of the session: they must not overtake that message.
    held_up: VecDeque<Event>,
    spread: u64,
    /// How often the router has asked for something itself.
    asked_itself: u64,
    /// The principal whose permissions count, and where refusals go; without it everything is
    /// permitted.
    guarded: Option<(Principal, Rc<Mailbox>)>,
    /// Made once permissions are configured: most brokers have none, and a connection should cost
    /// little.
    guard: Option<Box<Guard>>,
    /// Divides the work of its core among tenants.
    fair: Option<Rc<Fair>>,
    /// Its place there, once it is known for which tenant it works.
    seat: Option<Rc<Seat>>,
    /// Traces messages, if any are traced.
    tracer: Option<SharedTracer>,
    /// When the last input was read, if messages are traced.
    read_at: Option<TraceTime>,
}

/// Refuses events without a permission.
struct Guard {
    gate: Gate,
    /// Open transactions with a refused message: without it they must not commit.
    doomed: FxHashMap<u64, Refusal>,
}

/// The state for following queues that may move to another store.
#[derive(Default)]
struct Movable {
    /// How those were attached whose queue may move.
    attached: FxHashMap<u32, Attach>,
    /// Consumers that follow their queue, by the ticket of that.
    following: FxHashMap<Ticket, ConsumerKey>,
    /// Partitions that remember links whose queues may move: the new place does not know earlier
    /// sends.
    links: BTreeMap<Arc<LinkName>, PartitionId>,
}

struct Asked {
    missing: u16,
    result: Option<Result<(), Refusal>>,
    /// All have to say yes; otherwise it is enough that one does.
    all: bool,
}

/// Marks the numbers of transactions that the router begins, which no session uses.
const OWN_TRANSACTION: u64 = 1 << 63;

/// Marks the tickets of the router's own requests, which no session uses.
const OWN_TICKET: u64 = 1 << 63;

/// Marks those of them that are answered by an echo.
const ECHO: u64 = 1 << 62;

/// Whether this is the answer to [`Event::Echo`], of which no session knows.
pub fn is_echo(ticket: Ticket) -> bool {
    ticket.0 & (OWN_TICKET | ECHO) == OWN_TICKET | ECHO
}

/// Bytes of an event until its partition is done with it, unless it is counted by its ticket.
fn weight(event: &Event) -> u64 {
    let more = match event {
        Event::Publish(_) | Event::Chunk { .. } => return 0,
        Event::Lease(event) => event.byte_length() as usize,
        Event::Document(request) => request.change.content.len(),
        Event::Settle(settle) => size_of_val(&settle.tags[..]),
        Event::Attach(attach) => attach.selector.len() + attach.source.name.len(),
        _ => 0,
    };
    (size_of::<Event>() + more) as u64
}

/// What an event takes of the fair share of its tenant.
fn cost(event: &Event) -> u64 {
    match event {
        Event::Publish(publish) => publish.sent.message.bytes.len() as u64 + MESSAGE_COST,
        Event::Chunk { bytes, .. } => bytes.len() as u64,
        event => weight(event),
    }
}

/// The bytes sent to the partition, with these added.
fn added(said: &mut Vec<(PartitionId, u64)>, partition: PartitionId, bytes: u64) -> u64 {
    match said.iter_mut().find(|(other, _)| *other == partition) {
        Some((_, sum)) => {
            *sum += bytes;
            *sum
        }
        None => {
            // Mostly there is one partition.
            said.reserve_exact(1);
            said.push((partition, bytes));
            bytes
        }
    }
}

impl Router {
    /// A router for a new connection, which has its part of the share.
    pub fn new(connection: ConnectionId, places: SharedPlaces, share: Rc<Share>) -> Router {
        Router {
            connection,
            places,
            consumers: FxHashMap::default(),
            movable: None,
            detaching: FxHashMap::default(),
            touched: BTreeSet::new(),
            claims: Vec::new(),
            transactions: FxHashMap::default(),
            outstanding: Outstanding::new(share),
            unanswered: Vec::new(),
            echoes: 0,
            written: BTreeMap::new(),
            uploads: FxHashMap::default(),
            asked: FxHashMap::default(),
            spreading: None,
            held_up: VecDeque::new(),
            spread: 0,
            asked_itself: 0,
            guarded: None,
            guard: None,
            fair: None,
            seat: None,
            tracer: None,
            read_at: None,
        }
    }

    /// From now on messages are traced by the tracer of its core, if that has one.
    pub fn trace_by(&mut self, tracer: Option<SharedTracer>) {
        self.tracer = tracer;
    }

    /// From now on its work counts in the fair share of its tenant.
    pub fn share_by(&mut self, fair: Rc<Fair>) {
        self.fair = Some(fair);
    }

    /// Its place among those who share the core, if work is divided.
    pub fn fair_seat(&self) -> Option<&Rc<Seat>> {
        self.seat.as_ref()
    }

    /// Whether its tenant has a turn, so that it may read and be sent deliveries.
    pub fn has_turn(&self) -> bool {
        self.seat.as_ref().is_none_or(|seat| seat.has_turn())
    }

    /// Ready once its tenant has a turn; until then it keeps its place.
    pub fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        self.seat.as_ref().map_or(Poll::Ready(()), |seat| seat.poll_turn(context))
    }

    /// Waits until its tenant has a turn.
    pub async fn turn_comes(&self) {
        if let Some(seat) = &self.seat {
            seat.comes().await;
        }
    }

    /// Its work has this cost.
    pub fn charge(&self, cost: u64) {
        if let Some(seat) = &self.seat {
            seat.charge(cost);
        }
    }

    /// It works for the tenant of its user, or else for the owner of the first destination that it
    /// sends to or reads from. The broker's own work is not divided.
    fn take_seat(&mut self, event: &Event) {
        let Some(fair) = self.fair.as_ref().filter(|fair| fair.is_on()) else { return };
        if self.seat.is_none() {
            let principal = self.guarded.as_ref().map(|(principal, _)| principal);
            let Some(principal) = principal.filter(|principal| **principal != Principal::Operator) else {
                return;
            };
            let membership = self.places.borrow().permissions.membership_of(principal);
            let first = match event {
                Event::Publish(publish) => Some(&publish.sent.to),
                Event::Attach(attach) => Some(&attach.source),
                Event::Lease(about) => about.queue(),
                Event::Chunk { to, .. } => to.first(),
                _ => None,
            };
            let tenant = match (membership, first) {
                (Some(membership), _) => Some(membership.tenant),
                (None, Some(destination)) => fair.owner_of(destination),
                (None, None) => return,
            };
            self.seat = Some(Rc::new(fair.seat(tenant.as_ref())));
        }
        self.charge(cost(event));
    }

    /// Input was read, from which the next events come.
    pub fn note_read(&mut self) {
        if let Some(tracer) = &self.tracer {
            self.read_at = Some(tracer.borrow().now());
        }
    }

    /// This traced delivery was written to its socket, or a client inside the process has it.
    pub fn note_written(&self, delivery: &Traced) {
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().written(delivery);
        }
    }

    /// Whether more may be read from the connection.
    pub fn may_read(&self) -> bool {
        self.spreading.is_none() && self.outstanding.has_room()
    }

    /// Waits until the other connections of the core have less outstanding, if nothing is read for
    /// their sake.
    pub async fn others_have_less(&self) {
        self.outstanding.others_have_less().await;
    }

    /// From now on events need the permissions of this principal. Refusals go into the connection's
    /// mailbox.
    pub fn guard(&mut self, principal: Principal, mailbox: &Rc<Mailbox>) {
        self.guarded = Some((principal, mailbox.clone()));
    }

    /// The client has logged in as this principal.
    pub fn set_principal(&mut self, principal: Principal) {
        if let Some((known, _)) = &mut self.guarded {
            *known = principal;
            (self.guard, self.seat) = (None, None);
        }
    }

    fn is_refused(&mut self, event: &Event, to: &mut impl FnMut(PartitionId, Event)) -> bool {
        let Some((principal, mailbox)) = &self.guarded else { return false };
        let drains = self.places.borrow().draining.refuses(principal);
        if !drains && self.guard.is_none() && self.places.borrow().permissions.permit_all() {
            return false;
        }
        let permissions = self.places.borrow().permissions.clone();
        let guard = self.guard.get_or_insert_with(|| {
            let gate = Gate::new(principal.clone(), permissions.clone());
            Box::new(Guard { gate, doomed: FxHashMap::default() })
        });
        match event {
            Event::Rollback { transaction, .. } => {
                guard.doomed.remove(&transaction.number);
                return false;
            }
            Event::Commit { transaction, ticket, .. } | Event::EndBranch { transaction, ticket, .. } => {
                let Some(refusal) = guard.doomed.remove(&transaction.number) else { return false };
                mailbox.put(ToSession::Reply { ticket: *ticket, result: Err(refusal) });
                self.rollback(*transaction, None, to);
                return true;
            }
            _ => {}
        }
        let drained = if drains { draining::refusal(event) } else { None };
        let refusal = drained.or_else(|| guard.gate.refusal(event, &permissions));
        let Some((ticket, refusal)) = refusal else { return false };
        if let Event::Publish(Publish { transaction: Some(transaction), .. }) = event {
            guard.doomed.insert(transaction.number, refusal.clone());
        }
        mailbox.put(ToSession::Reply { ticket, result: Err(refusal) });
        true
    }

    /// Sends an event to the partitions that it concerns.
    pub fn route(&mut self, mut event: Event, mut to: impl FnMut(PartitionId, Event)) {
        self.take_seat(&event);
        if self.is_refused(&event, &mut to) {
            return;
        }
        if let Event::Redrive { wanted, .. } = &mut event {
            wanted.by = self.guarded.as_ref().map(|(principal, _)| principal.clone());
        }
        match self.spreading {
            // The reply that is waited for may be after the message whose pieces these are.
            Some(_) if !matches!(event, Event::WantChunk { .. }) => self.held_up.push_back(event),
            _ => self.send(event, &mut to),
        }
    }

    /// Sends events held up on their way, once nothing holds them up any more.
    pub fn resume(&mut self, mut to: impl FnMut(PartitionId, Event)) {
        while self.spreading.is_none()
            && let Some(event) = self.held_up.pop_front()
        {
            self.send(event, &mut to);
        }
    }

    /// Passes an event on, and asks for an echo if it is time.
    fn send(&mut self, event: Event, to: &mut impl FnMut(PartitionId, Event)) {
        let (mut unanswered, mut due) = (std::mem::take(&mut self.unanswered), None);
        self.pass(event, &mut |partition, event: Event| {
            let bytes = weight(&event);
            if 0 < bytes && ECHO_BYTES <= added(&mut unanswered, partition, bytes) {
                due = Some(partition);
            }
            to(partition, event);
        });
        self.unanswered = unanswered;
        if let Some(partition) = due {
            self.ask_for_echo(partition, to);
        }
    }

    fn ask_for_echo(&mut self, partition: PartitionId, to: &mut impl FnMut(PartitionId, Event)) {
        let said = self.unanswered.iter().position(|(other, _)| *other == partition);
        let bytes = said.map_or(0, |index| self.unanswered.swap_remove(index).1);
        let ticket = Ticket(ECHO | self.own_ticket().0);
        self.outstanding.add(ticket, bytes);
        self.echoes += 1;
        to(partition, Event::Echo { connection: self.connection, ticket });
    }

    /// A reply has come, wherever it waits now: the broker is done with its request.
    pub fn answered(&mut self, ticket: Ticket) {
        self.outstanding.end(ticket);
        self.echoes = self.echoes.saturating_sub(usize::from(is_echo(ticket)));
    }

    /// Whether an echo is to come.
    pub fn awaits_echo(&self) -> bool {
        0 < self.echoes
    }

    fn pass(&mut self, mut event: Event, to: &mut impl FnMut(PartitionId, Event)) {
        let partition = match event {
            Event::Publish(publish) => return self.publish(publish, to),
            Event::Attach(ref attach) => self.seat(attach),
            Event::Lease(about) => return self.pass_lease(about, to),
            Event::Link(ref event) => self.place_of_link(event),
            Event::AddProducer { ref producer, .. } | Event::RemoveProducer { ref producer, .. } => {
                self.places.borrow().partition_of(&producer.to)
            }
            Event::Introduce { .. } => PartitionId(0),
            Event::Chunk { .. } => return self.pass_piece(event, to),
            Event::Abandon { upload, .. } => return self.use_upload(Some(upload), |_| false, to),
            Event::Claim { ref name, .. } => self.place_of_name(name, true),
            Event::Disclaim { ref name, .. } => self.place_of_name(name, false),
            Event::Declare { ref destination, .. } | Event::Delete { ref destination, .. } => {
                self.places.borrow().partition_of(destination)
            }
            Event::Detach { consumer, ref mut ticket, .. } => {
                let ticket = *ticket.get_or_insert_with(|| self.own_ticket());
                self.leaves(consumer, ticket)
            }
            Event::Pause { ref queue, .. } | Event::Move { ref queue, .. } => {
                self.places.borrow().partition_of(queue)
            }
            Event::Redrive { ref wanted, .. } => self.places.borrow().partition_of(&wanted.from),
            Event::Credit { consumer, .. } | Event::Drain { consumer } | Event::Seek { consumer, .. } => {
                self.partition_of(consumer)
            }
            Event::WantChunk { from, .. } => from,
            Event::Settle(ref settle) => {
                let partition = self.partition_of(settle.consumer);
                self.enlist(settle.transaction, partition);
                partition
            }
            Event::Commit { transaction, ticket, .. } => {
                let event = self.commit(transaction, ticket);
                let Event::Commit { ref participants, .. } = event else { return };
                if participants.len() > 1 {
                    for participant in participants {
                        to(*participant, Event::Seal { transaction });
                    }
                }
                let first = participants.first().copied().unwrap_or(PartitionId(0));
                return to(first, event);
            }
            Event::EndBranch { ref branch, transaction, ref mut participants, .. } => {
                let touched = self.transactions.remove(&transaction.number).unwrap_or_default();
                for participant in &touched {
                    to(*participant, Event::Seal { transaction });
                }
                *participants = touched.into_iter().collect();
                self.places.borrow().placement.coordinator_of(branch)
            }
            Event::PrepareBranch { ref branch, .. }
            | Event::DecideBranch { ref branch, .. }
            | Event::ForgetBranch { ref branch, .. } => self.places.borrow().placement.coordinator_of(branch),
            Event::EndJobs { ticket, .. }
            | Event::BrowseJobs { ticket, .. }
            | Event::ListBranches { ticket, .. }
            | Event::ListMoves { ticket, .. }
            | Event::Ask { ticket, .. }
            | Event::Unsubscribe { ticket, .. } => {
                return self.ask_all(&event, ticket, to);
            }
            Event::Rollback { transaction, ticket } => return self.rollback(transaction, ticket, to),
            other => return to(PartitionId(0), other),
        };
        self.touched.insert(partition);
        to(partition, event);
    }

    /// The partition that knows who has this exclusive name, which the connection claims or gives
    /// up.
    fn place_of_name(&mut self, name: &Arc<str>, is_claimed: bool) -> PartitionId {
        self.claims.retain(|claimed| claimed != name);
        if is_claimed {
            self.claims.push(name.clone());
        }
        self.places.borrow().placement.partition_of(name)
    }

    /// To the partition of the queue, or to all partitions.
    fn pass_lease(&mut self, mut about: Box<LeaseEvent>, to: &mut impl FnMut(PartitionId, Event)) {
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().route_post(&mut about, self.read_at);
        }
        let Some(queue) = about.queue() else {
            let ticket = about.ticket();
            return self.ask_all(&Event::Lease(about), ticket, to);
        };
        let partition = self.places.borrow().partition_of(queue);
        self.touched.insert(partition);
        to(partition, Event::Lease(about));
    }

    /// The partition that remembers the link, for as long as this connection has it.
    fn place_of_link(&mut self, event: &LinkEvent) -> PartitionId {
        let place = self.places.borrow().partition_of(&event.link().to);
        match event {
            LinkEvent::Resume(resume) if self.places.borrow().placement.has_further() => {
                self.movable.get_or_insert_default().links.insert(resume.link.clone(), place);
                place
            }
            LinkEvent::Resume(_) => place,
            LinkEvent::Forget { link, .. } => self.noted_place_of(link).unwrap_or(place),
            LinkEvent::Leave { link, .. } => {
                let noted = self.movable.as_mut().and_then(|movable| movable.links.remove(link));
                noted.unwrap_or(place)
            }
        }
    }

    fn noted_place_of(&self, link: &Arc<LinkName>) -> Option<PartitionId> {
        self.movable.as_ref()?.links.get(link).copied()
    }

    /// Where the consumer is attached, from now on.
    fn seat(&mut self, attach: &Attach) -> PartitionId {
        let partition = attach.at.unwrap_or_else(|| self.places.borrow().partition_of(&attach.source));
        self.consumers.insert(attach.consumer.number, partition);
        self.note_attached(attach);
        partition
    }

    fn note_attached(&mut self, attach: &Attach) {
        let may_move = attach.source.kind == DestinationKind::Queue && !attach.source.temporary;
        if may_move && attach.at.is_none() && self.places.borrow().placement.has_further() {
            self.movable.get_or_insert_default().attached.insert(attach.consumer.number, attach.clone());
        }
    }

    fn own_ticket(&mut self) -> Ticket {
        self.asked_itself += 1;
        Ticket(OWN_TICKET | self.asked_itself)
    }

    /// The consumer leaves, and is forgotten once that is answered; where it was attached.
    fn leaves(&mut self, consumer: ConsumerKey, ticket: Ticket) -> PartitionId {
        self.movable.as_mut().map(|movable| movable.attached.remove(&consumer.number));
        self.detaching.entry(ticket).or_default().push(consumer.number);
        self.partition_of(consumer)
    }

    /// The consumer's queue has moved, and it is gone at the old place: it is attached at the new
    /// one. It gets its credit when that is known.
    fn follow(&mut self, consumer: ConsumerKey, to: &mut impl FnMut(PartitionId, Event)) {
        let here = self.partition_of(consumer);
        let ticket = self.own_ticket();
        let Some(movable) = &mut self.movable else { return };
        let Some(attach) = movable.attached.get(&consumer.number) else { return };
        let there = self.places.borrow().partition_of(&attach.source);
        let attach = Attach { credit: 0, credit_by_default: false, ticket, ..attach.clone() };
        movable.following.insert(ticket, consumer);
        self.consumers.insert(consumer.number, there);
        self.touched.insert(there);
        // The two are one if the queue has come back meanwhile.
        to(here, Event::Leave { consumer });
        to(there, Event::Follow(attach));
    }

    fn publish(&mut self, mut publish: Publish, to: &mut impl FnMut(PartitionId, Event)) {
        self.outstanding.add(publish.ticket, publish.sent.message.bytes.len() as u64);
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().route(&mut publish, self.read_at);
        }
        let targets = self.find_targets(&mut publish);
        if let Targets::Several(versions) = targets {
            return self.send_versions(&publish, versions, to);
        }
        if matches!(targets, Targets::None) {
            self.use_upload(publish.upload, |_| false, to);
            // It is not needed, and so it is done: like a transaction without any work.
            let transaction = TransactionKey { connection: publish.connection, number: OWN_TRANSACTION };
            let event = Event::Commit { transaction, participants: Vec::new(), ticket: publish.ticket };
            return to(PartitionId(0), event);
        }
        let upload = publish.upload;
        let partition = self.home_of(&publish.sent.to, upload);
        // Forwarded messages are not remembered.
        publish.delivery.take_if(|delivery| {
            let place = self.noted_place_of(&delivery.link);
            place.unwrap_or_else(|| self.places.borrow().partition_of(&delivery.link.to)) != partition
        });
        let is_there = |also: &Destination| self.home_of(also, upload) == partition;
        if !publish.sent.also.iter().all(is_there) {
            return self.spread(publish, to);
        }
        self.use_upload(upload, |has_it| has_it == partition, to);
        self.enlist(publish.transaction, partition);
        self.touched.insert(partition);
        to(partition, Event::Publish(publish));
    }

    /// A piece goes to every partition that the message may be for: each has a body of its own.
    fn pass_piece(&mut self, event: Event, to: &mut impl FnMut(PartitionId, Event)) {
        let Event::Chunk { connection, upload, to: addresses, bytes, ticket } = event else { return };
        self.outstanding.add(ticket, bytes.len() as u64);
        let find = || self.places.borrow().possible_homes(&addresses);
        let homes = self.uploads.entry(upload).or_insert_with(find);
        if 1 < homes.len() {
            let missing = homes.len() as u16;
            self.asked.insert(ticket, Asked { missing, result: None, all: true });
        }
        for (home, targets) in homes {
            self.touched.insert(*home);
            let (targets, bytes) = (targets.clone(), bytes.clone());
            to(*home, Event::Chunk { connection, upload, to: targets, bytes, ticket });
        }
    }

    /// The partition for sends to this address: where it lives; or where the message's body has
    /// come to, whose queue may have moved meanwhile, and takes it along.
    fn home_of(&self, address: &Destination, upload: Option<u64>) -> PartitionId {
        let mut homes = upload.and_then(|upload| self.uploads.get(&upload)).into_iter().flatten();
        let home = homes.find(|(_, targets)| targets.contains(address));
        home.map_or_else(|| self.places.borrow().partition_of(address), |(home, _)| *home)
    }

    /// The message has come whose pieces these are: who is not to have it gives its own back.
    fn use_upload(
        &mut self,
        upload: Option<u64>,
        keeps: impl Fn(PartitionId) -> bool,
        to: &mut impl FnMut(PartitionId, Event),
    ) {
        let Some(upload) = upload else { return };
        let homes = self.uploads.remove(&upload).unwrap_or_default();
        for home in homes.into_keys().filter(|home| !keeps(*home)) {
            to(home, Event::Abandon { connection: self.connection, upload });
        }
    }

    /// A message for several partitions reaches all of them or none: in the transaction that it
    /// belongs to, or in one of its own, and then nothing that the session says later overtakes it.
    fn spread(&mut self, publish: Publish, to: &mut impl FnMut(PartitionId, Event)) {
        let Publish { connection, ticket, ref sent, transaction, resent, upload, .. } = publish;
        let mut shares: BTreeMap<PartitionId, Vec<Destination>> = BTreeMap::new();
        for target in sent.targets() {
            shares.entry(self.home_of(target, upload)).or_default().push(target.clone());
        }
        let own = TransactionKey { connection, number: OWN_TRANSACTION | self.spread };
        let key = transaction.unwrap_or(own);
        let missing = shares.len() as u16 + u16::from(transaction.is_none());
        self.asked.insert(ticket, Asked { missing, result: None, all: true });
        self.use_upload(upload, |has_it| shares.contains_key(&has_it), to);
        for (partition, mut targets) in shares {
            let first = targets.remove(0);
            let sent = Sent { to: first, also: targets, ..sent.clone() };
            let transaction = Some(key);
            let routed = publish.routed.clone();
            let share =
                Publish { transaction, resent, upload, routed, ..Publish::plain(connection, ticket, sent) };
            self.enlist(Some(key), partition);
            self.touched.insert(partition);
            to(partition, Event::Publish(share));
        }
        if transaction.is_none() {
            self.spread += 1;
            self.pass(Event::Commit { transaction: own, participants: Vec::new(), ticket }, to);
            self.spreading = Some(ticket);
        }
    }

    /// The partition of the consumer's attachment: its deliveries come from there.
    pub fn partition_of(&self, consumer: ConsumerKey) -> PartitionId {
        self.consumers.get(&consumer.number).copied().unwrap_or(PartitionId(0))
    }

    fn enlist(&mut self, transaction: Option<TransactionKey>, partition: PartitionId) {
        if let Some(transaction) = transaction {
            self.transactions.entry(transaction.number).or_default().insert(partition);
        }
    }

    fn commit(&mut self, transaction: TransactionKey, ticket: Ticket) -> Event {
        let participants = self.transactions.remove(&transaction.number).unwrap_or_default();
        Event::Commit { transaction, participants: participants.into_iter().collect(), ticket }
    }

    /// Every partition that the transaction touched drops its share; the last one answers.
    fn rollback(
        &mut self,
        transaction: TransactionKey,
        ticket: Option<Ticket>,
        to: &mut impl FnMut(PartitionId, Event),
    ) {
        let touched = self.transactions.remove(&transaction.number).unwrap_or_default();
        let last = touched.last().copied().unwrap_or(PartitionId(0));
        for partition in touched.iter().filter(|partition| **partition != last) {
            to(*partition, Event::Rollback { transaction, ticket: None });
        }
        to(last, Event::Rollback { transaction, ticket });
    }

    /// The end of the connection, for every partition that knows it. Echoes tell when they are done
    /// with it.
    pub fn close(&mut self, mut to: impl FnMut(PartitionId, Event)) {
        for event in std::mem::take(&mut self.held_up) {
            self.pass(event, &mut to);
        }
        for partition in std::mem::take(&mut self.touched) {
            to(partition, Event::Closed { connection: self.connection });
            self.ask_for_echo(partition, &mut to);
        }
    }

    /// All partitions have finished with the connection, or the time for it is up: its exclusive
    /// names are free.
    pub fn conclude(&mut self, mut to: impl FnMut(PartitionId, Event)) {
        for name in std::mem::take(&mut self.claims) {
            let partition = self.places.borrow().placement.partition_of(&name);
            to(partition, Event::Concluded { name, connection: self.connection });
        }
    }

    /// Every partition is asked, for only one knows; see [`Router::merge`].
    fn ask_all(&mut self, event: &Event, ticket: Ticket, to: &mut impl FnMut(PartitionId, Event)) {
        let partitions = self.places.borrow().placement.partitions;
        self.asked.insert(ticket, Asked { missing: partitions, result: None, all: false });
        for partition in (0..partitions).map(PartitionId) {
            to(partition, event.clone());
        }
    }

    /// Makes one answer of those of all partitions: yes if one says so, otherwise the no that says
    /// most. `None` while answers are missing.
    pub fn merge(&mut self, message: ToSession) -> Option<ToSession> {
        let (ticket, result) = match message {
            ToSession::Reply { ticket, result } => (ticket, result),
            ToSession::Moved { .. } | ToSession::Left { .. } => return None,
            other => return Some(other),
        };
        if let Some(consumer) = self.movable.as_mut().and_then(|movable| movable.following.remove(&ticket)) {
            return result.err().map(|_| ToSession::Detached { consumer, cause: DetachCause::Deleted });
        }
        if ticket.0 & OWN_TICKET != 0 {
            return None;
        }
        let Some(asked) = self.asked.get_mut(&ticket) else {
            return Some(ToSession::Reply { ticket, result });
        };
        asked.missing = asked.missing.saturating_sub(1);
        let counts = match asked.all {
            true => !matches!(asked.result, Some(Err(_))),
            false => {
                !matches!(result, Err(Refusal::NoSuchSubscription { .. } | Refusal::NoSuchSchedule { .. }))
            }
        };
        if asked.result.is_none() || counts {
            asked.result = Some(result);
        }
        if asked.missing > 0 {
            return None;
        }
        self.spreading = self.spreading.filter(|spreading| *spreading != ticket);
        let result = self.asked.remove(&ticket)?.result?;
        Some(ToSession::Reply { ticket, result })
    }

    /// Keeps account of the core's output. A delivery that leaves the mailbox makes room for
    /// another.
    pub fn note(&mut self, message: &ToSession, mut to: impl FnMut(PartitionId, Event)) {
        match message {
            ToSession::Reply { ticket, .. } => {
                for number in self.detaching.remove(ticket).unwrap_or_default() {
                    self.consumers.remove(&number);
                }
            }
            ToSession::Deliver(delivery) => {
                self.charge(delivery.message.bytes.len() as u64 + MESSAGE_COST);
                // Its consumer may be gone: a reply passes deliveries that wait for their turn.
                let partition = delivery.queue.0;
                let written = self.written.entry(partition).or_default();
                *written += delivery.message.bytes.len() as u64;
                if *written >= WRITTEN_STEP_BYTES {
                    let bytes = std::mem::take(written);
                    to(partition, Event::Written { connection: self.connection, bytes });
                }
            }
            ToSession::Moved { consumer } => self.follow(*consumer, &mut to),
            // Its session may say no more of it.
            ToSession::Detached { consumer, .. } => {
                let ticket = self.own_ticket();
                let (consumer, delivered) = (*consumer, Delivered::All);
                let partition = self.leaves(consumer, ticket);
                to(partition, Event::Detach { consumer, delivered, ticket: Some(ticket) });
            }
            ToSession::Left { consumer, credit } if 0 < *credit => {
                to(self.partition_of(*consumer), Event::Credit { consumer: *consumer, add: *credit });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postroad_model::{
        Action, Encoding, Message, NORMAL_PRIORITY, Placement, Protocol, Redrive, RedriveWay,
    };
    use postroad_routing::{DestinationPattern, Grantee, Permission, Permissions};

    use super::*;
    use crate::places::Places;

    const CONNECTION: ConnectionId = ConnectionId::new(0, 1);

    fn share() -> Rc<Share> {
        Rc::new(Share::new(1 << 30))
    }

    fn router(partitions: u16) -> Router {
        let places = Places {
            placement: Placement::over(partitions),
            addressing: Arc::default(),
            keys: Arc::default(),
            permissions: Arc::default(),
            draining: Default::default(),
            tenants: Default::default(),
            traces: None,
            offline_ends: Default::default(),
        };
        Router::new(CONNECTION, places.shared(), share())
    }

    fn publish(ticket: u64, names: &[&str], transaction: Option<u64>) -> Event {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        let message = Message {
            encoding,
            persistent: true,
            priority: NORMAL_PRIORITY,
            expires_at_ms: 0,
            rare: None,
            bytes: Bytes::from_static(b"body"),
        };
        let mut targets = names.iter().map(|name| Destination::queue(name));
        let to = targets.next().expect("a name");
        let sent = Sent { also: targets.collect(), ..Sent::new(to, message) };
        let transaction = transaction.map(|number| TransactionKey { connection: CONNECTION, number });
        Event::Publish(Publish { transaction, ..Publish::plain(CONNECTION, Ticket(ticket), sent) })
    }

    /// The events for each partition: `0: a,b in 7`, `0: seal`, `0: commit over 2`.
    fn told(partition: PartitionId, event: &Event) -> String {
        let what = match event {
            Event::Publish(publish) => {
                let names: Vec<&str> = publish.sent.targets().map(|target| &*target.name).collect();
                let own = |key: TransactionKey| match key.number & OWN_TRANSACTION {
                    0 => format!(" in {}", key.number),
                    _ => " in its own".to_owned(),
                };
                format!("{}{}", names.join(","), publish.transaction.map(own).unwrap_or_default())
            }
            Event::Seal { .. } => "seal".to_owned(),
            Event::Chunk { to, .. } => {
                let names: Vec<&str> = to.iter().map(|target| &*target.name).collect();
                format!("piece for {}", names.join(","))
            }
            Event::Abandon { upload, .. } => format!("not {upload}"),
            Event::Commit { participants, .. } => format!("commit over {}", participants.len()),
            _ => "other".to_owned(),
        };
        format!("{}: {what}", partition.0)
    }

    fn reply(router: &mut Router, ticket: u64, result: Result<(), Refusal>) -> Option<Result<(), Refusal>> {
        match router.merge(ToSession::Reply { ticket: Ticket(ticket), result }) {
            Some(ToSession::Reply { result, .. }) => Some(result),
            _ => None,
        }
    }

    /// Two names in partition 0 of two, and one in partition 1.
    fn names() -> (String, String, String) {
        let placement = Placement::over(2);
        let mut names = [Vec::new(), Vec::new()];
        for number in 0..100 {
            let name = format!("q{number}");
            names[usize::from(placement.partition_of(&name).0)].push(name);
        }
        let [mut here, mut there] = names;
        (here.remove(0), here.remove(0), there.remove(0))
    }

    #[test]
    fn a_message_for_several_partitions_is_a_transaction_that_nothing_overtakes() {
        let (a, b, c) = names();
        let mut router = router(2);
        let mut said = Vec::new();
        router.route(publish(1, &[&a, &b], None), |to, event| said.push(told(to, &event)));
        assert_eq!(said, [format!("0: {a},{b}")], "one partition needs no transaction");
        said.clear();
        router.route(publish(2, &[&a, &c, &b], None), |to, event| said.push(told(to, &event)));
        router.route(publish(3, &[&a], None), |to, event| said.push(told(to, &event)));
        let want = [
            format!("0: {a},{b} in its own"),
            format!("1: {c} in its own"),
            "0: seal".to_owned(),
            "1: seal".to_owned(),
            "0: commit over 2".to_owned(),
        ];
        assert_eq!((&said[..], router.may_read()), (&want[..], false));
        said.clear();
        assert_eq!([reply(&mut router, 2, Ok(())), reply(&mut router, 2, Ok(()))], [None, None]);
        router.resume(|to, event| said.push(told(to, &event)));
        assert_eq!(said, [""; 0], "the commit is outstanding");
        assert_eq!(reply(&mut router, 2, Ok(())), Some(Ok(())));
        router.resume(|to, event| said.push(told(to, &event)));
        assert_eq!((&said[..], router.may_read()), (&[format!("0: {a}")][..], true));
    }

    #[test]
    fn in_a_transaction_each_partition_has_its_share_and_one_refusal_refuses_all() {
        let (a, _, c) = names();
        let mut router = router(2);
        let mut said = Vec::new();
        router.route(publish(1, &[&a, &c], Some(7)), |to, event| said.push(told(to, &event)));
        assert_eq!(said, [format!("0: {a} in 7"), format!("1: {c} in 7")]);
        let refusal = Refusal::StoreFull { to: Destination::queue(&a) };
        assert_eq!(reply(&mut router, 1, Err(refusal.clone())), None);
        assert_eq!(reply(&mut router, 1, Ok(())), Some(Err(refusal)));
        said.clear();
        let transaction = TransactionKey { connection: CONNECTION, number: 7 };
        let commit = Event::Commit { transaction, participants: Vec::new(), ticket: Ticket(2) };
        router.route(commit, |to, event| said.push(told(to, &event)));
        assert_eq!(said, ["0: seal", "1: seal", "0: commit over 2"]);
    }

    fn piece(ticket: u64, upload: u64, names: &[&str]) -> Event {
        let to = names.iter().map(|name| Destination::queue(name)).collect();
        let bytes = Bytes::from_static(b"piece");
        Event::Chunk { connection: CONNECTION, upload, to, bytes, ticket: Ticket(ticket) }
    }

    fn with_upload(event: Event, upload: u64) -> Event {
        match event {
            Event::Publish(publish) => Event::Publish(Publish { upload: Some(upload), ..publish }),
            other => other,
        }
    }

    fn run(router: &mut Router, event: Event) -> Vec<String> {
        let mut said = Vec::new();
        router.route(event, |to, event| said.push(told(to, &event)));
        said
    }

    #[test]
    fn what_nobody_waits_for_has_a_bound() {
        let consumer = ConsumerKey::new(CONNECTION, 7);
        let settle = |tags: usize| {
            let (tags, outcome) =
                (vec![postroad_model::EntryTag(1); tags], postroad_model::Outcome::Accepted);
            let (transaction, reason, ticket) = (None, None, None);
            Event::Settle(postroad_model::Settle { consumer, tags, outcome, transaction, reason, ticket })
        };
        let credit = || Event::Credit { consumer, add: 1 };
        for (case, event) in [
            ("credit", &credit as &dyn Fn() -> Event),
            ("a verdict", &|| settle(1)),
            ("a verdict on many", &|| settle(1000)),
        ] {
            let mut router = router(2);
            router.consumers.insert(consumer.number, PartitionId(1));
            let (mut echoes, mut said_bytes) = (Vec::new(), 0);
            while router.may_read() {
                said_bytes += weight(&event());
                router.route(event(), |to, event| match event {
                    Event::Echo { ticket, .. } => echoes.push((to, ticket)),
                    _ => assert_eq!(to, PartitionId(1), "case: {case}"),
                });
            }
            assert!(said_bytes <= (4 << 20) + 2 * ECHO_BYTES, "case: {case}: {said_bytes}");
            assert!(
                echoes.iter().all(|(to, ticket)| *to == PartitionId(1) && is_echo(*ticket)),
                "case: {case}"
            );
            router.answered(echoes[0].1);
            assert!(router.may_read(), "case: {case}: each answer makes room");
            echoes[1..].iter().for_each(|(_, ticket)| router.answered(*ticket));
            assert!(!router.awaits_echo(), "case: {case}");
        }
    }

    #[test]
    fn the_end_of_a_connection_is_known_when_all_partitions_are_done_with_it() {
        let (a, _, c) = names();
        let mut router = router(2);
        run(&mut router, publish(1, &[&a], None));
        run(&mut router, publish(2, &[&c], None));
        let (mut said, mut echoes) = (Vec::new(), Vec::new());
        router.close(|to, event| match event {
            Event::Echo { ticket, .. } => echoes.push(ticket),
            Event::Closed { .. } => said.push(to.0),
            other => panic!("{other:?}"),
        });
        assert_eq!((&said[..], echoes.len(), router.awaits_echo()), (&[0, 1][..], 2, true));
        router.answered(echoes[0]);
        assert!(router.awaits_echo());
        router.answered(echoes[1]);
        assert!(!router.awaits_echo());
    }

    #[test]
    fn a_redrive_is_by_the_principal_of_its_connection_whatever_it_says_itself() {
        let user = |name: &str| Principal::User(name.into());
        let mut granted = Permissions::default();
        granted.add(Permission {
            grantees: vec![Grantee::User("ann".into())],
            destinations: vec![DestinationPattern::parse("queue://dead").expect("a pattern")],
            actions: [Action::Manage].into_iter().collect(),
        });
        for (case, permissions, principal, want) in [
            ("without permissions", Permissions::default(), Some(user("ann")), Some(user("ann"))),
            ("with permissions", granted, Some(user("ann")), Some(user("ann"))),
            ("an operator", Permissions::default(), Some(Principal::Operator), Some(Principal::Operator)),
            ("the broker itself", Permissions::default(), None, None),
        ] {
            for claimed in [None, Some(user("root")), Some(Principal::Operator)] {
                let mut router = router(2);
                router.places.borrow_mut().permissions = Arc::new(permissions.clone());
                if principal.is_some() {
                    router.guard(Principal::Anonymous, &Rc::default());
                }
                principal.iter().for_each(|principal| router.set_principal(principal.clone()));
                let (to, origin, selector, way) = (None, None, "".into(), RedriveWay::Back(None));
                let (from, by) = (Destination::queue("dead"), claimed.clone());
                let wanted = Redrive { from, to, origin, selector, messages_max: 1, way, by };
                let wanted = Box::new(wanted);
                let event = Event::Redrive { wanted, connection: CONNECTION, ticket: Ticket(1) };
                let mut found = Vec::new();
                router.route(event, |_, event| match event {
                    Event::Redrive { wanted, .. } => found.push(wanted.by),
                    other => panic!("case: {case}: {other:?}"),
                });
                assert_eq!(found, std::slice::from_ref(&want), "case: {case}, claimed: {claimed:?}");
            }
        }
    }

    #[test]
    fn exclusive_names_are_free_once_a_connection_is_concluded() {
        let (a, _, c) = names();
        let mut router = router(2);
        let claim = |name: &str| {
            let (name, user, holder) = (name.into(), "".into(), "h".into());
            Event::Claim { name, user, holder, connection: CONNECTION, ticket: Ticket(1) }
        };
        for name in [&a, &c, &a] {
            run(&mut router, claim(name));
        }
        run(&mut router, Event::Disclaim { name: (*a).into(), connection: CONNECTION, ticket: Ticket(2) });
        let mut concluded = Vec::new();
        for _ in 0..2 {
            router.conclude(|to, event| match event {
                Event::Concluded { name, connection: CONNECTION } => concluded.push((to.0, name)),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(concluded, [(1, (*c).into())], "once, and only what it has");
    }

    #[test]
    fn a_consumer_is_forgotten_whoever_ends_it() {
        let consumer = ConsumerKey::new(CONNECTION, 7);
        let (delivered, cause) = (Delivered::None, DetachCause::Deleted);
        for (case, ends_itself) in [("its attaching was refused", true), ("the core has ended it", false)] {
            let mut router = router(2);
            router.consumers.insert(consumer.number, PartitionId(1));
            let mut said = Vec::new();
            let to = |to, event: Event| match event {
                Event::Detach { ticket: Some(ticket), .. } => said.push((to, ticket)),
                _ => panic!("case: {case}: {event:?}"),
            };
            match ends_itself {
                true => router.route(Event::Detach { consumer, delivered, ticket: None }, to),
                false => router.note(&ToSession::Detached { consumer, cause }, to),
            }
            let [(PartitionId(1), ticket)] = said[..] else { panic!("case: {case}: {said:?}") };
            assert_eq!(
                router.partition_of(consumer),
                PartitionId(1),
                "case: {case}: deliveries may be on their way"
            );
            let answer = ToSession::Reply { ticket, result: Ok(()) };
            router.note(&answer, |_, _| ());
            assert!(router.merge(answer).is_none(), "case: {case}: the session has not asked");
            assert!(router.consumers.is_empty() && router.detaching.is_empty(), "case: {case}");
        }
    }

    #[test]
    fn a_delivery_that_comes_after_the_end_of_its_consumer_makes_room_where_it_came_from() {
        let Event::Publish(Publish { sent, .. }) = publish(1, &["a"], None) else { panic!("a message") };
        let message = Message { bytes: vec![0; WRITTEN_STEP_BYTES as usize].into(), ..sent.message };
        let delivery = postroad_model::Delivery {
            consumer: ConsumerKey::new(CONNECTION, 7),
            source: None,
            tag: postroad_model::EntryTag(1),
            queue: (PartitionId(1), postroad_model::QueueId(1)),
            failed_deliveries: 0,
            by_policy: false,
            first_of_group: false,
            trace: None,
            message,
        };
        let mut said = Vec::new();
        router(2).note(&ToSession::Deliver(delivery), |to, event| match event {
            Event::Written { bytes, .. } => said.push((to, bytes)),
            _ => panic!("{event:?}"),
        });
        assert_eq!(said, [(PartitionId(1), WRITTEN_STEP_BYTES)]);
    }

    #[test]
    fn a_message_goes_where_its_pieces_are_and_others_where_their_queue_is_now() {
        let (a, _, c) = names();
        let addressing = Arc::default();
        let places = Places {
            placement: Placement::over(2),
            addressing,
            keys: Arc::default(),
            permissions: Arc::default(),
            draining: Default::default(),
            tenants: Default::default(),
            traces: None,
            offline_ends: Default::default(),
        }
        .shared();
        let mut router = Router::new(CONNECTION, places.clone(), share());
        assert_eq!(run(&mut router, piece(1, 7, &[&a])), [format!("0: piece for {a}")]);
        Arc::make_mut(&mut places.borrow_mut().addressing).settle(&Destination::queue(&a), PartitionId(1));
        assert_eq!(run(&mut router, piece(2, 7, &[&a])), [format!("0: piece for {a}")]);
        assert_eq!(run(&mut router, with_upload(publish(3, &[&a], None), 7)), [format!("0: {a}")]);
        assert_eq!(run(&mut router, publish(4, &[&a], None)), [format!("1: {a}")]);
        assert_eq!(run(&mut router, piece(5, 8, &[&a, &c])), [format!("1: piece for {a},{c}")]);
    }

    #[test]
    fn the_pieces_of_a_body_go_to_every_partition_that_may_have_its_message() {
        let (a, b, c) = names();
        let target = |name: &str, selector: Option<&str>| postroad_routing::Target {
            destination: Destination::queue(name),
            selector: selector.map(|text| postroad_selector::Selector::parse(text).expect("a selector")),
        };
        let composites = vec![postroad_routing::Composite {
            address: postroad_routing::DestinationPattern::parse("queue://all").expect("a pattern"),
            targets: vec![target(&a, None), target(&c, Some("FALSE"))],
            forward_only: true,
        }];
        let addressing = postroad_routing::Addressing { composites, ..Default::default() };
        let places = Places {
            placement: Placement::over(2),
            addressing: Arc::new(addressing),
            keys: Arc::default(),
            permissions: Arc::default(),
            draining: Default::default(),
            tenants: Default::default(),
            traces: None,
            offline_ends: Default::default(),
        };
        let mut router = Router::new(CONNECTION, places.shared(), share());
        assert_eq!(run(&mut router, piece(1, 7, &[&a, &b])), [format!("0: piece for {a},{b}")]);
        assert_eq!(reply(&mut router, 1, Ok(())), Some(Ok(())), "one answers");
        assert_eq!(run(&mut router, with_upload(publish(2, &[&a, &b], None), 7)), [format!("0: {a},{b}")]);
        let both = [format!("0: piece for {a}"), format!("1: piece for {c}")];
        assert_eq!(run(&mut router, piece(3, 8, &[&a, &c])), both);
        let full = Refusal::StoreFailed { reason: "full".to_owned() };
        assert_eq!(reply(&mut router, 3, Err(full.clone())), None);
        assert_eq!(reply(&mut router, 3, Ok(())), Some(Err(full)), "all must have it");
        let abandon = Event::Abandon { connection: CONNECTION, upload: 8 };
        assert_eq!(run(&mut router, abandon), ["0: not 8", "1: not 8"]);
        assert_eq!(run(&mut router, piece(4, 9, &["all"])), both, "selectors are asked later");
        let sent = run(&mut router, with_upload(publish(5, &["all"], None), 9));
        assert_eq!(sent, ["1: not 9".to_owned(), format!("0: {a}")], "only one has it after all");
        assert_eq!(run(&mut router, piece(6, 10, &[])), ["0: piece for "]);
    }

    #[test]
    fn a_composite_destination_is_replaced_by_its_targets_and_without_any_the_send_is_done() {
        let target = |name: &str, selector: Option<&str>| postroad_routing::Target {
            destination: Destination::queue(name),
            selector: selector.map(|text| postroad_selector::Selector::parse(text).expect("a selector")),
        };
        let rule = |address: &str, targets| postroad_routing::Composite {
            address: postroad_routing::DestinationPattern::parse(address).expect("a pattern"),
            targets,
            forward_only: true,
        };
        let composites = vec![
            rule("queue://all", vec![target("a", None), target("b", None)]),
            rule("queue://none", vec![target("a", Some("FALSE"))]),
        ];
        let addressing = postroad_routing::Addressing { composites, ..Default::default() };
        let places = Places {
            placement: Placement::over(1),
            addressing: Arc::new(addressing),
            keys: Arc::default(),
            permissions: Arc::default(),
            draining: Default::default(),
            tenants: Default::default(),
            traces: None,
            offline_ends: Default::default(),
        };
        let mut router = Router::new(CONNECTION, places.shared(), share());
        for (name, want) in [("all", "0: a,b"), ("none", "0: commit over 0"), ("other", "0: other")] {
            let mut said = Vec::new();
            router.route(publish(1, &[name], None), |to, event| said.push(told(to, &event)));
            assert_eq!(said, [want], "{name}");
        }
    }
}
