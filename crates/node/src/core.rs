//! One core: its partitions, its share of the log, and its ways to the other cores.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use postroad_core::{
    Partition, SnapshotError, UnwrittenPages, chunk_in_record, encode_record, jobs_in_record, tell_together,
};
use postroad_journal::Log2Histogram;
use postroad_model::{
    Announcement, CarriedPiece, ConnectionId, Destination, Effect, Event, MessageKey, Notice, Now,
    PartitionId, PartitionRange, Peer, Position, Publish, Sent, Ticket, ToSession, TracedStep,
    TransactionKey,
};
use postroad_openwire::{Advisories, Advisory};
use postroad_replication::{LogEvent, Proposal, ReplLog};
use postroad_routing::Policies;
use rustc_hash::FxHashMap;

use crate::fair::Fair;
use crate::logs::{LogLink, Logs};
use crate::mailbox::Mailbox;
use crate::outstanding::Share;
use crate::places::{Places, SharedPlaces};
use crate::ring::{Receiver, WakingSender};
use crate::router::Router;
use crate::steps::Steps;
use crate::tracer::SharedTracer;

/// Messages between cores.
pub enum ToCore {
    /// An event for one of your partitions.
    Event(PartitionId, Event),
    /// A message for one of your connections.
    Session(ConnectionId, ToSession),
    /// A queue lives elsewhere now; its former partition gets a confirmation once the receiver
    /// knows.
    Place {
        /// The queue.
        queue: Destination,
        /// Where it lives.
        to: PartitionId,
        /// Where it was.
        from: PartitionId,
    },
}

/// The ways between one core and the rest.
pub struct Links {
    /// To each core; `None` at its own place.
    pub to_cores: Vec<Option<WakingSender<ToCore>>>,
    /// From each other core.
    pub from_cores: Vec<Receiver<ToCore>>,
    /// To each store.
    pub logs: Vec<LogLink>,
}

/// The monotone clock and the wall clock: real, or the simulator's.
pub type Clocks = Rc<dyn Fn() -> Now>;

/// Connections of one protocol on one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections open now.
    pub open: u64,
    /// Connections opened since the start.
    pub opened: u64,
}

/// State of one core, shared by its tasks only.
pub struct Core {
    number: u16,
    cores: u16,
    places: SharedPlaces,
    partitions: BTreeMap<PartitionId, Partition>,
    logs: Logs,
    to_cores: Vec<Option<WakingSender<ToCore>>>,
    from_cores: Vec<Receiver<ToCore>>,
    /// The event that is worked off is a message from a producer.
    publishing: bool,
    mailboxes: FxHashMap<ConnectionId, Rc<Mailbox>>,
    next_connection: u64,
    /// Connections by protocol.
    served: BTreeMap<&'static str, ConnectionCounts>,
    work: VecDeque<(PartitionId, Event)>,
    effects: Vec<Effect>,
    reads: Reads,
    /// Partitions that are being written for a checkpoint, and their pages that are still to be
    /// written ahead.
    snapshots: VecDeque<(PartitionId, UnwrittenPages)>,
    /// Partitions whose last records could not be made durable, and why: logged already.
    failing: BTreeMap<PartitionId, String>,
    advisories: Advisories,
    /// Divides its work among tenants; shared with its connections.
    fair: Rc<Fair>,
    /// Traces messages, if any are traced; shared with its connections.
    tracer: Option<SharedTracer>,
    clock: Clocks,
    /// The time that the partitions know.
    now: Now,
    /// The time for which a turn is expected already, in ticks.
    alarm_ms: Option<u64>,
    /// How long its steps took.
    steps: Steps,
    /// Something waits to be sent on by [`Core::flush`].
    unsent: bool,
}

/// Records that are being read back, and who waits for them.
#[derive(Default)]
struct Reads {
    messages: FxHashMap<(PartitionId, Position), Vec<MessageKey>>,
    /// Pieces of large messages.
    chunks: FxHashMap<(PartitionId, Position), Vec<PieceFor>>,
    /// Records with scheduled messages.
    shelves: HashSet<(PartitionId, Position)>,
}

/// Who waits for a piece of a large message.
enum PieceFor {
    /// A connection that sends it to a consumer.
    Connection(ConnectionId),
    /// Another partition, to which the message moves: see [`Effect::CarryChunk`].
    Partition { to: PartitionId, piece: CarriedPiece },
}

/// So far the wall clock must be from where it would be to have been set; less is drift.
const SET_MS: u64 = 1000;

/// Which core owns a partition.
pub fn owner(partition: PartitionId, cores: u16) -> u16 {
    partition.0 % cores
}

impl Core {
    /// A core with its recovered partitions.
    pub fn new(
        number: u16,
        places: Places,
        partitions: BTreeMap<PartitionId, Partition>,
        links: Links,
        advisories: Advisories,
        clock: Clocks,
    ) -> Core {
        let Links { to_cores, from_cores, logs } = links;
        let cores = to_cores.len() as u16;
        let tracer = places.traces.as_ref().map(|book| Rc::new(RefCell::new(book.tracer(number, cores))));
        let fair = Fair::new(places.tenants.clone());
        let ends: Vec<_> = partitions.iter().map(|(id, partition)| (*id, partition.applied())).collect();
        Core {
            number,
            cores,
            places: places.shared(),
            partitions,
            logs: Logs::new(logs, &ends, to_cores.len() == 1),
            to_cores,
            from_cores,
            publishing: false,
            mailboxes: FxHashMap::default(),
            next_connection: 1,
            served: BTreeMap::new(),
            work: VecDeque::new(),
            effects: Vec::new(),
            reads: Reads::default(),
            advisories,
            fair,
            tracer,
            clock,
            now: Now::default(),
            snapshots: VecDeque::new(),
            failing: BTreeMap::new(),
            alarm_ms: None,
            steps: Steps::default(),
            unsent: false,
        }
    }

    /// Ends recovery in every partition.
    pub fn start(&mut self) {
        for id in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.with(id, |partition, effects| partition.start(effects));
        }
        self.run();
    }

    /// Replaces the policies of destinations in every partition.
    pub fn follow(&mut self, policies: &Arc<Policies>) {
        self.steps.begin();
        Arc::make_mut(&mut self.places.borrow_mut().addressing).routes = policies.routes.clone();
        self.places.borrow_mut().permissions = policies.permissions.clone();
        self.fair.follow();
        for id in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.with(id, |partition, effects| partition.follow(policies.clone(), effects));
        }
    }

    /// Where addresses live.
    pub fn places(&self) -> SharedPlaces {
        self.places.clone()
    }

    /// How its work is divided among tenants.
    pub fn fair(&self) -> Rc<Fair> {
        self.fair.clone()
    }

    /// A connection joins this core.
    pub fn join(&mut self) -> (ConnectionId, Rc<Mailbox>) {
        let id = ConnectionId::new(self.number, self.next_connection);
        self.next_connection += 1;
        let mailbox = Rc::new(Mailbox::default());
        self.mailboxes.insert(id, mailbox.clone());
        (id, mailbox)
    }

    /// The router of a connection that has joined, with its part of the share.
    pub fn router(&self, id: ConnectionId, share: Rc<Share>) -> Router {
        let mut router = Router::new(id, self.places.clone(), share);
        router.trace_by(self.tracer.clone());
        router.share_by(self.fair.clone());
        router
    }

    /// A connection has left.
    pub fn leave(&mut self, id: ConnectionId) {
        self.mailboxes.remove(&id);
    }

    /// A connection of this protocol is served from now on.
    pub fn opened(&mut self, protocol: &'static str) {
        let served = self.served.entry(protocol).or_default();
        *served = ConnectionCounts { open: served.open + 1, opened: served.opened + 1 };
    }

    /// A connection of this protocol is served no more.
    pub fn closed(&mut self, protocol: &'static str) {
        if let Some(served) = self.served.get_mut(protocol) {
            served.open -= 1;
        }
    }

    /// Its connections by protocol.
    pub fn connection_counts(&self) -> impl Iterator<Item = (&'static str, ConnectionCounts)> + '_ {
        self.served.iter().map(|(protocol, counts)| (*protocol, *counts))
    }

    /// Its partitions.
    pub fn partitions(&self) -> impl Iterator<Item = (PartitionId, &Partition)> + '_ {
        self.partitions.iter().map(|(id, partition)| (*id, partition))
    }

    /// How long its steps took, in microseconds.
    pub fn steps(&self) -> &Log2Histogram {
        self.steps.micros()
    }

    /// Which core it is.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The partition of this number, if it is here.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id)
    }

    /// The mailboxes of its connections.
    pub fn mailboxes(&self) -> impl ExactSizeIterator<Item = &Rc<Mailbox>> {
        self.mailboxes.values()
    }

    /// Hands an event to the partition that it is for, on whichever core.
    pub fn submit(&mut self, partition: PartitionId, event: Event) {
        let owner = owner(partition, self.cores);
        match self.to_cores.get_mut(usize::from(owner)) {
            Some(Some(other)) => {
                other.sender.send(ToCore::Event(partition, event));
                self.unsent = true;
            }
            _ => self.work.push_back((partition, event)),
        }
    }

    /// Handles messages from other threads, and all that follows from them.
    pub fn turn(&mut self) {
        self.steps.begin();
        for index in 0..self.from_cores.len() {
            while let Some(message) = self.from_cores[index].pop() {
                match message {
                    ToCore::Event(partition, event) => self.work.push_back((partition, event)),
                    ToCore::Session(connection, message) => self.post(connection, message),
                    ToCore::Place { queue, to, from } => self.place(queue, to, from),
                }
            }
        }
        while let Some((store, event)) = self.logs.poll() {
            self.logged(store, event);
        }
        if let Some(due_ms) = self.due_ms() {
            let now = (self.clock)();
            if due_ms <= now.ticks_ms || self.was_set(now) {
                self.tick();
            }
        }
        self.run();
        self.write_down();
        self.flush();
        self.fair.turn();
    }

    /// Works off the events at hand.
    pub fn run(&mut self) {
        if self.work.is_empty() {
            return;
        }
        self.steps.begin();
        self.tick();
        while let Some((partition, event)) = self.work.pop_front() {
            self.publishing = matches!(event, Event::Publish(_));
            self.trace_taken(&event);
            self.with(partition, |partition, effects| partition.soft(event, effects));
        }
        self.publishing = false;
        // The task that waits for the alarm has to set it again.
        let due_ms = self.due_ms();
        self.unsent |= due_ms.is_some_and(|due| self.alarm_ms.is_none_or(|alarm| due < alarm));
    }

    /// A partition takes a message.
    fn trace_taken(&self, event: &Event) {
        let Some(tracer) = &self.tracer else { return };
        match event {
            Event::Publish(publish) => tracer.borrow_mut().taken(&publish.sent.message),
            Event::Lease(event) => tracer.borrow_mut().taken_post(event),
            _ => {}
        }
    }

    /// When [`Core::turn`] has to be called at the latest, in ticks: until this is asked again it
    /// is taken for granted.
    pub fn alarm_ms(&mut self) -> Option<u64> {
        self.alarm_ms = self.due_ms();
        self.alarm_ms
    }

    /// When the time itself is news to a partition, in ticks.
    fn due_ms(&self) -> Option<u64> {
        self.partitions.values().filter_map(Partition::next_due_ms).min()
    }

    /// Whether the wall clock was set since the partitions got the time: then some messages may be
    /// due by the new time of day.
    fn was_set(&self, now: Now) -> bool {
        let passed_ms = now.ticks_ms.saturating_sub(self.now.ticks_ms);
        SET_MS <= now.wall_ms.abs_diff(self.now.wall_ms.saturating_add(passed_ms))
    }

    fn tick(&mut self) {
        let now = (self.clock)();
        if now.ticks_ms > self.now.ticks_ms {
            self.now = now;
            // Mostly nothing follows.
            let mut followed = Vec::new();
            for (id, partition) in &mut self.partitions {
                partition.soft(Event::Tick { now }, &mut self.effects);
                followed.extend(self.effects.drain(..).map(|effect| (*id, effect)));
                self.steps.end();
            }
            for (id, effect) in followed {
                self.carry_out(id, effect);
            }
        }
    }

    /// Sends the messages that have gathered for the journal and the other cores.
    pub fn flush(&mut self) {
        self.unsent = false;
        self.logs.flush();
        for other in self.to_cores.iter_mut().flatten() {
            other.flush();
        }
        if let Some(tracer) = &self.tracer {
            self.unsent |= !tracer.borrow_mut().flush();
        }
    }

    /// Whether something has gathered that [`Core::turn`] sends on its way.
    pub fn wants_turn(&self) -> bool {
        self.unsent || self.fair.wants_turn()
    }

    /// Sends records that no client waits for before their time has come.
    pub fn flush_lazy(&mut self) {
        self.logs.flush_all();
    }

    /// When records that no client waits for must go, if there are any.
    pub fn lazy_until(&self) -> Option<Instant> {
        self.logs.lazy_until()
    }

    fn logged(&mut self, store: PartitionRange, event: LogEvent) {
        match event {
            LogEvent::Committed { partition, position, command, written } => {
                self.fair.committed(partition);
                if let Some(tracer) = &self.tracer {
                    tracer.borrow_mut().committed(&command, written);
                }
                if !self.failing.is_empty() {
                    self.failing.remove(&partition);
                }
                self.with(partition, |partition, effects| partition.apply(position, command, effects));
            }
            LogEvent::Failed { partition, reason } => {
                self.fair.failed(partition);
                if self.failing.get(&partition) != Some(&reason) {
                    tracing::error!(partition = partition.0, reason, "records could not be made durable");
                    self.failing.insert(partition, reason.clone());
                }
                // Before any other proposal: the log counts from here again.
                self.with(partition, |partition, effects| {
                    partition.soft(Event::ProposalsFailed { reason }, effects);
                });
            }
            LogEvent::Space { ample } => {
                for id in self.partitions.keys().filter(|id| store.contains(**id)) {
                    self.work.push_back((*id, Event::Space { ample }));
                }
            }
            LogEvent::SnapshotWanted { partition: id } => {
                let unwritten = self.partitions.get(&id).map(|partition| (id, partition.unwritten_pages()));
                self.snapshots.extend(unwritten);
            }
            LogEvent::Read { partition, position, record } => {
                self.read_back(partition, position, &record);
                self.chunk_back(partition, position, &record);
                self.shelf_back(partition, position, &record);
            }
        }
    }

    /// Whether a partition is being written down, which each turn does some of.
    pub fn is_writing_down(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// The last turn of the core: sends everything on its way, awaited or not, with the snapshots
    /// of the partitions.
    pub fn end(&mut self) {
        self.turn();
        self.snapshots.clear();
        let partitions: Vec<PartitionId> = self.partitions.keys().copied().collect();
        for id in partitions {
            self.with(id, |partition, effects| partition.finish_records(effects));
            self.snapshot(id);
        }
        self.logs.flush_all();
        self.flush();
    }

    /// This node does not lead its partitions any more: what was reported as durable is applied,
    /// and all requests are answered. The log takes nothing from then on.
    ///
    /// # Errors
    /// A partition must be read again from its log.
    pub fn step_down(&mut self) -> Result<(), SnapshotError> {
        self.steps.begin();
        while let Some((store, event)) = self.logs.poll() {
            self.logged(store, event);
        }
        self.snapshots.clear();
        let mut stopped = Ok(());
        for id in self.partitions.keys().copied().collect::<Vec<_>>() {
            self.with(id, |partition, effects| {
                if let Err(error) = partition.stop(effects) {
                    stopped = Err(error);
                }
            });
        }
        self.run();
        self.flush();
        stopped
    }

    /// Its partitions, which it has no more.
    pub fn take_partitions(&mut self) -> BTreeMap<PartitionId, Partition> {
        std::mem::take(&mut self.partitions)
    }

    fn write_down(&mut self) {
        let Some((id, unwritten)) = self.snapshots.front_mut() else { return };
        let id = *id;
        let partition = self.partitions.get(&id);
        // A large transaction comes to its end first.
        if partition.is_some_and(|it| it.has_unfinished_records() || it.write_pages(unwritten)) {
            return self.steps.end();
        }
        self.snapshots.pop_front();
        self.snapshot(id);
        self.steps.end();
    }

    fn snapshot(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get(&id) else { return };
        if let Some(position) = partition.applied() {
            let began = Instant::now();
            let state = partition.snapshot_pieces();
            let micros = began.elapsed().as_micros();
            tracing::debug!(
                partition = id.0,
                bytes = state.byte_length(),
                micros,
                "a partition's state was written down"
            );
            self.logs.of(id).snapshot(id, position, state);
        }
    }

    fn read_back(&mut self, id: PartitionId, position: Position, record: &Result<bytes::Bytes, String>) {
        let Some(keys) = self.reads.messages.remove(&(id, position)) else { return };
        for event in postroad_core::read_back(position, record, keys) {
            if let Event::Fetched { bodies } = &event {
                for (key, reason) in bodies.iter().filter_map(|(key, read)| Some((key, read.as_ref().err()?)))
                {
                    let of = self.partitions.get(&id).and_then(|partition| partition.awaiting(*key));
                    let Some(of) = of else { continue };
                    let queues = of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    let (partition, position) = (id.0, position.get());
                    tracing::error!(queues, partition, position, reason, "a message cannot be read");
                }
            }
            let last = self.work.back_mut().filter(|(to, _)| *to == id).map(|(_, last)| last);
            let alone = tell_together(last, event);
            self.work.extend(alone.map(|event| (id, event)));
        }
    }

    fn chunk_back(&mut self, id: PartitionId, position: Position, record: &Result<bytes::Bytes, String>) {
        let waiting = self.reads.chunks.remove(&(id, position)).unwrap_or_default();
        if waiting.is_empty() {
            return;
        }
        let bytes = record.as_ref().map_err(Clone::clone).and_then(|record| {
            let chunk = chunk_in_record(record).map_err(|error| error.to_string())?;
            chunk.ok_or_else(|| format!("record {} is no piece of a message", position.get()))
        });
        if let Err(reason) = &bytes {
            tracing::error!(partition = id.0, position = position.get(), reason, "a message cannot be read");
        }
        for whom in waiting {
            match (whom, bytes.clone()) {
                (PieceFor::Connection(connection), bytes) => {
                    self.post(connection, ToSession::Chunk { from: id, position, bytes });
                }
                (PieceFor::Partition { to, piece }, Ok(bytes)) => {
                    self.submit(to, Event::Peer { from: id, peer: Peer::Piece { piece, bytes } });
                }
                (PieceFor::Partition { piece, .. }, Err(reason)) => {
                    self.submit(id, Event::PieceUnread { upload: piece.upload, reason });
                }
            }
        }
    }

    fn shelf_back(&mut self, id: PartitionId, position: Position, record: &Result<bytes::Bytes, String>) {
        if !self.reads.shelves.remove(&(id, position)) {
            return;
        }
        let jobs = record.as_ref().map_err(Clone::clone).and_then(|record| {
            let jobs = jobs_in_record(record).map_err(|error| error.to_string())?;
            jobs.ok_or_else(|| format!("record {} has no scheduled messages", position.get()))
        });
        if let Err(reason) = &jobs {
            let (partition, position) = (id.0, position.get());
            tracing::error!(partition, position, reason, "which messages are scheduled cannot be read");
        }
        self.work.push_back((id, Event::ShelfRead { position, jobs }));
    }

    fn read_shelf(&mut self, id: PartitionId, position: Position) {
        if self.reads.shelves.insert((id, position)) {
            self.logs.of(id).read(id, position);
            self.unsent = true;
        }
    }

    fn read_chunk(&mut self, id: PartitionId, position: Position, whom: PieceFor) {
        let waiting = self.reads.chunks.entry((id, position)).or_default();
        waiting.push(whom);
        if waiting.len() == 1 {
            self.logs.of(id).read(id, position);
            self.unsent = true;
        }
    }

    fn with(&mut self, id: PartitionId, act: impl FnOnce(&mut Partition, &mut Vec<Effect>)) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let mut effects = std::mem::take(&mut self.effects);
        act(partition, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(id, effect);
        }
        self.effects = effects;
        self.steps.end();
    }

    fn carry_out(&mut self, id: PartitionId, effect: Effect) {
        match effect {
            Effect::Propose { .. } => self.propose(id, effect),
            Effect::Reply { connection, ticket, result } => {
                self.post(connection, ToSession::Reply { ticket, result });
            }
            Effect::Deliver(delivery) => {
                if self.publishing {
                    self.logs.passed_the_disk_by();
                }
                self.post(delivery.consumer.connection, ToSession::Deliver(delivery));
            }
            Effect::Drained { consumer } => self.post(consumer.connection, ToSession::Drained { consumer }),
            Effect::Prefetch { consumer, messages } => {
                self.post(consumer.connection, ToSession::Prefetch { consumer, messages });
            }
            Effect::Detached { consumer, cause } => {
                self.post(consumer.connection, ToSession::Detached { consumer, cause });
            }
            Effect::Evict { connection } => self.post(connection, ToSession::Evicted),
            Effect::Ended { transaction: TransactionKey { connection, number }, committed } => {
                self.post(connection, ToSession::Ended { transaction: number, committed });
            }
            Effect::Branches { connection, ticket, branches } => {
                self.post(connection, ToSession::Branches { ticket, branches });
            }
            Effect::Unsettled { connection, ticket, deliveries } => {
                self.post(connection, ToSession::Unsettled { ticket, deliveries });
            }
            Effect::Redriven { connection, ticket, counts } => {
                self.post(connection, ToSession::Redriven { ticket, counts });
            }
            Effect::Lease { .. } => self.answer(effect),
            Effect::Moves { connection, ticket, moves } => {
                self.post(connection, ToSession::Moves { ticket, moves });
            }
            Effect::Answer { connection, ticket, page } => {
                self.post(connection, ToSession::Page { ticket, page });
            }
            Effect::Place { queue, to } => self.place_everywhere(&queue, to, id),
            Effect::Moved { consumer } => self.post(consumer.connection, ToSession::Moved { consumer }),
            Effect::Left { consumer, credit } => {
                self.post(consumer.connection, ToSession::Left { consumer, credit });
            }
            Effect::Fetch { keys } => self.fetch(id, keys),
            Effect::ReadShelf { position } => self.read_shelf(id, position),
            Effect::ReadChunk { connection, position } => {
                self.read_chunk(id, position, PieceFor::Connection(connection));
            }
            Effect::CarryChunk { position, to, piece } => {
                self.read_chunk(id, position, PieceFor::Partition { to, piece });
            }
            Effect::Retain { position, count, bytes } => {
                self.logs.of(id).retain(id, position, count, bytes);
                self.unsent = true;
            }
            Effect::Release { position, ordinal, bytes } => {
                self.logs.of(id).release(id, position, ordinal, bytes);
                self.unsent = true;
            }
            Effect::Announce(announcement) => self.announce(*announcement),
            Effect::Tell { to, peer } => self.submit(to, Event::Peer { from: id, peer }),
            Effect::Trace(step) => self.trace(id, *step),
            Effect::OfflineEnded(ended) => {
                self.places.borrow().offline_ends.add(self.now.wall_ms, *ended);
            }
        }
    }

    fn propose(&mut self, id: PartitionId, effect: Effect) {
        let Effect::Propose { command, urgency, durability, compression, addresses } = effect else { return };
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().proposed(&command);
        }
        let key = self.places.borrow().keys.key_of(&command, addresses.as_deref());
        let record = encode_record(&command, compression);
        self.fair.proposed(id, &command, addresses.as_deref(), &record);
        self.logs.of(id).propose(id, Proposal { command, record, urgency, durability, key });
        self.unsent = true;
    }

    fn trace(&mut self, id: PartitionId, step: TracedStep) {
        if let Some(tracer) = &self.tracer {
            tracer.borrow_mut().step(id, step);
            self.unsent = true;
        }
    }

    /// Gives a session the answer to its question about a queue.
    fn answer(&mut self, effect: Effect) {
        if let Effect::Lease { connection, ticket, answer } = effect {
            self.post(connection, ToSession::Lease { ticket, answer });
        }
    }

    /// A queue lives elsewhere now: all cores are to know.
    fn place_everywhere(&mut self, queue: &Destination, to: PartitionId, from: PartitionId) {
        for other in self.to_cores.iter_mut().flatten() {
            other.sender.send(ToCore::Place { queue: queue.clone(), to, from });
            self.unsent = true;
        }
        self.place(queue.clone(), to, from);
    }

    /// Senders on this core know from here on where the queue lives, and its former partition gets
    /// that confirmation after all earlier messages of this core.
    fn place(&mut self, queue: Destination, to: PartitionId, from: PartitionId) {
        let mut places = self.places.borrow_mut();
        Arc::make_mut(&mut places.addressing).settle(&queue, to);
        for partition in self.partitions.values_mut() {
            partition.address_by(places.addressing.clone());
        }
        drop(places);
        self.submit(from, Event::Placed { queue, of: self.cores });
    }

    /// Publishes a notice of the assembly, for those who listen.
    pub fn publish_notice(&mut self, notice: Notice) {
        self.announce(Announcement { notice, answer: None });
    }

    /// Publishes a partition's notice, for advisory subscribers.
    fn announce(&mut self, announcement: Announcement) {
        let Announcement { notice, answer } = announcement;
        let advisory = self.is_wanted(&notice).then(|| self.advisories.write(&notice)).flatten();
        let Some(Advisory { topic, message, retain }) = advisory else {
            if let Some((connection, ticket)) = answer {
                self.post(connection, ToSession::Reply { ticket, result: Ok(()) });
            }
            return;
        };
        let partition = self.places.borrow().partition_of(&topic);
        let (connection, ticket) = answer.unwrap_or((ConnectionId::internal(partition), Ticket(0)));
        let sent = Sent::new(topic, message);
        let publish = Publish { retain, is_notice: true, ..Publish::plain(connection, ticket, sent) };
        self.submit(partition, Event::Publish(publish));
    }

    /// A message that no topic retains need not be written without subscribers; those of other
    /// cores are not known here.
    fn is_wanted(&self, notice: &Notice) -> bool {
        let Notice::Message { .. } = notice else { return true };
        let Some(topic) = Advisories::topic_of(notice) else { return false };
        let partition = self.partitions.get(&self.places.borrow().partition_of(&topic));
        partition.is_none_or(|partition| partition.is_heard(&topic))
    }

    fn fetch(&mut self, id: PartitionId, keys: Vec<MessageKey>) {
        for key in keys {
            let MessageKey::Durable { position, .. } = key else { continue };
            let waiting = self.reads.messages.entry((id, position)).or_default();
            waiting.push(key);
            if waiting.len() == 1 {
                self.logs.of(id).read(id, position);
                self.unsent = true;
            }
        }
    }

    fn post(&mut self, connection: ConnectionId, message: ToSession) {
        let core = connection.core();
        if core == self.number {
            if let Some(mailbox) = self.mailboxes.get(&connection) {
                mailbox.put(message);
            }
        } else if let Some(Some(other)) = self.to_cores.get_mut(usize::from(core)) {
            other.sender.send(ToCore::Session(connection, message));
            self.unsent = true;
        }
    }
}
