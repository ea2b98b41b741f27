//! Clients: their random actions, and their knowledge from the answers.

mod changing;
mod following;
mod redriving;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    Attach, BranchId, ConnectionId, ConsumerKey, ConsumerMode, Decision, Delivered, Destination,
    DestinationKind, Encoding, EntryTag, Event, Group, Message, Origin, Outcome, PartitionId, Protocol,
    Publish, RareHeaders, Refusal, Retain, Schedule, Sent, Settle, Share, Ticket, ToSession, TransactionKey,
};

use crate::places::Places;
use crate::random::Random;
use crate::repeating::{again, is_fired};
use crate::scene::Scene;
use crate::selectors::SELECTORS;
use crate::upload::Upload;
use changing::notice_of;
use verdict::any_outcome;

pub use changing::name_of;

/// Numbers that rise through the whole run.
#[derive(Debug, Default)]
pub struct Numbers {
    last: u64,
}

impl Numbers {
    /// The newest.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// One that was never given before.
    pub fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The clients' knowledge of the world.
pub struct World<'a> {
    /// The seed's choices.
    pub random: &'a mut Random,
    /// Tickets, messages and connections.
    pub numbers: &'a mut Numbers,
    /// Where addresses live, as far as the client's side knows.
    pub places: &'a Places,
    /// The time of day.
    pub wall_ms: u64,
    /// The destinations.
    pub scene: &'a Scene,
    /// Every temporary destination that some client has made.
    pub temporary: &'a [Destination],
    /// Branches with a request to prepare.
    pub branches: &'a mut Vec<BranchId>,
}

/// An event on its way to a partition.
pub type Outgoing = Vec<(PartitionId, Event)>;

struct Reader {
    /// How it was attached, and where.
    attach: Box<Attach>,
    at: PartitionId,
    source: Destination,
    browses: bool,
    attached: bool,
    /// With the transaction in which each was settled, 0 for none.
    held: Vec<(EntryTag, u64)>,
}

#[derive(Default)]
struct Transaction {
    number: u64,
    touched: BTreeSet<PartitionId>,
    /// Requests within it that are not answered: it commits only after them.
    unanswered: BTreeSet<Ticket>,
    /// One of them was refused: the transaction can only be rolled back.
    is_refused: bool,
}

/// One connection.
pub struct Client {
    /// Its id.
    pub connection: ConnectionId,
    readers: BTreeMap<u32, Reader>,
    attaching: BTreeMap<Ticket, u32>,
    /// Readers that follow their queue.
    following: BTreeMap<Ticket, u32>,
    touched: BTreeSet<PartitionId>,
    open: Option<Transaction>,
    committing: Option<(Ticket, u64)>,
    next_reader: u32,
    next_transaction: u64,
    own: Vec<Destination>,
    declaring: BTreeMap<Ticket, Destination>,
    /// Its verdicts on a consumer's messages, outside of transactions.
    settling: BTreeMap<Ticket, (u32, Vec<EntryTag>)>,
    unwritten: BTreeMap<PartitionId, u64>,
    /// The branches that were reported to it as in doubt.
    in_doubt: Vec<BranchId>,
    /// The large message that it is sending.
    upload: Option<Upload>,
    /// Branches whose work it has handed over, and neither prepared nor decided.
    left_open: Vec<BranchId>,
    /// It has introduced itself, and names its consumers.
    is_named: bool,
    /// May a commit overtake sends of its transaction on other ways?
    hasty: bool,
}

impl Client {
    /// A client that has just connected.
    pub fn new(connection: ConnectionId, hasty: bool) -> Client {
        Client {
            connection,
            readers: BTreeMap::new(),
            attaching: BTreeMap::new(),
            following: BTreeMap::new(),
            touched: BTreeSet::new(),
            open: None,
            committing: None,
            next_reader: 1,
            next_transaction: 1,
            own: Vec::new(),
            declaring: BTreeMap::new(),
            settling: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            in_doubt: Vec::new(),
            upload: None,
            left_open: Vec::new(),
            is_named: false,
            hasty,
        }
    }

    /// Temporary destinations that it has made.
    pub fn own(&self) -> &[Destination] {
        &self.own
    }

    /// Does something, whatever chance says.
    pub fn act(&mut self, world: &mut World<'_>) -> Outgoing {
        if self.upload.is_some() {
            let gives_up = world.random.one_in(20);
            return self.end_upload(gives_up);
        }
        if world.scene.moves && world.random.one_in(40) {
            return self.move_any(world);
        }
        if world.scene.revived.is_some() && world.random.one_in(40) {
            return self.redrive(world);
        }
        if !world.scene.rests.is_empty() && world.random.one_in(4) {
            return self.give_up_any(world);
        }
        match world.random.below(100) {
            0..34 => self.publish(world),
            34..44 => self.attach(world),
            44..50 => self.credit(world),
            50..72 => self.settle(world),
            72..78 => self.end_transaction(world),
            78..81 => self.detach(world),
            81..83 => self.drain(world),
            83 => self.decide_any(world),
            84..87 => self.declare(world),
            87 => self.delete(world),
            88 => self.unsubscribe(world),
            _ => self.written(world, 1),
        }
    }

    fn to(&mut self, world: &World<'_>, name: &str) -> PartitionId {
        let partition = world.places.partition_of(name);
        self.touched.insert(partition);
        partition
    }

    fn any_destination(world: &mut World<'_>) -> Option<Destination> {
        if !world.temporary.is_empty() && world.random.one_in(6) {
            return world.random.pick(world.temporary).cloned();
        }
        world.random.pick(&world.scene.destinations).cloned()
    }

    /// The transaction in which the next thing is done, by chance; none while one commits.
    fn maybe_in_transaction(&mut self, world: &mut World<'_>) -> Option<&mut Transaction> {
        if self.committing.is_some() {
            return None;
        }
        if self.open.is_none() && world.random.one_in(3) {
            let number = self.next_transaction;
            self.next_transaction += 1;
            self.open = Some(Transaction { number, ..Transaction::default() });
        }
        self.open.as_mut().filter(|_| world.random.one_in(2))
    }

    fn publish(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some(to) = Client::any_destination(world) else { return Vec::new() };
        let partition = self.to(world, &to.name);
        let number = world.numbers.next();
        let ticket = Ticket(number);
        let connection = self.connection;
        let transaction = self.maybe_in_transaction(world).map(|open| {
            open.touched.insert(partition);
            open.unanswered.insert(ticket);
            TransactionKey { connection, number: open.number }
        });
        let spreads = !world.scene.names.is_empty();
        let expires = transaction.is_none() && !spreads && world.random.one_in(8);
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 1 + world.random.below(12) as u8 },
            persistent: !world.random.one_in(4),
            priority: world.random.below(10) as u8,
            expires_at_ms: if expires { world.wall_ms + 1 + world.random.below(60) } else { 0 },
            rare: group(world.random),
            bytes: body(number, connection.core(), world.random),
        };
        let topic = to.kind == DestinationKind::Topic && transaction.is_none();
        let retain = (topic && world.random.one_in(3)).then(|| {
            let key = if world.random.one_in(2) { "a" } else { "b" };
            Retain { key: key.into(), keep: !world.random.one_in(4) }
        });
        let (of_ten, within_ms) = if world.scene.plans_ahead { (8, 9000) } else { (1, 40) };
        let later = to.kind == DestinationKind::Queue && !to.temporary && world.random.below(10) < of_ten;
        let mut schedule =
            later.then(|| Schedule::once("job".into(), world.wall_ms + world.random.below(within_ms)));
        if let Some(schedule) = &mut schedule {
            schedule.again = again(world.random, world.scene, &to, &message);
        }
        let repeats = schedule.as_ref().is_some_and(|schedule| schedule.again.is_some());
        let is_fed = world.scene.fed.iter().any(|(queue, _)| *queue == to);
        let also = match spreads && !repeats && !is_fed && !to.temporary && world.random.one_in(3) {
            true => self.others(world, &to),
            false => Vec::new(),
        };
        let sent = Sent { also, schedule: schedule.map(Box::new), ..Sent::new(to, message) };
        let publish = Publish { transaction, retain, ..Publish::plain(connection, ticket, sent) };
        let may_be_large = publish.retain.is_none() && (publish.transaction.is_none() || !self.hasty);
        // A client says nothing else until its pieces have arrived: where there is more to see
        // between partitions they are few.
        let share = if world.places.partitions() == 1 { 6 } else { 30 };
        if may_be_large && world.random.one_in(share) {
            let (upload, events) = Upload::begin(partition, number, publish, || Ticket(world.numbers.next()));
            self.upload = Some(upload);
            return events;
        }
        vec![(partition, Event::Publish(publish))]
    }

    /// Some of the other destinations that live with this one: those elsewhere are in a share of
    /// their own.
    fn others(&self, world: &mut World<'_>, to: &Destination) -> Vec<Destination> {
        let home = world.places.partition_of(&to.name);
        let mut others = world.scene.destinations.to_vec();
        others.retain(|other| other != to && world.places.partition_of(&other.name) == home);
        others.retain(|other| world.scene.fed.iter().all(|(queue, _)| queue != other));
        others.retain(|_| world.random.one_in(2));
        others
    }

    /// The pieces have arrived, or the client does not want to wait for it.
    fn end_upload(&mut self, gives_up: bool) -> Outgoing {
        let Some(upload) = self.upload.take_if(|upload| gives_up || upload.is_complete()) else {
            return Vec::new();
        };
        let (event, unused) = upload.end(gives_up);
        if let (Some(open), Some(ticket)) = (&mut self.open, unused) {
            open.unanswered.remove(&ticket);
        }
        vec![event]
    }

    /// Sends the unanswered messages of the slot's last connection again, over this one.
    pub fn send_again(&mut self, world: &mut World<'_>, unanswered: Vec<Sent>) -> Outgoing {
        let mut outgoing = Vec::new();
        for sent in unanswered {
            let (partition, ticket) = (self.to(world, &sent.to.name), Ticket(world.numbers.next()));
            let publish = Publish { resent: true, ..Publish::plain(self.connection, ticket, sent) };
            outgoing.push((partition, Event::Publish(publish)));
        }
        outgoing
    }

    /// A persistent message that must be accepted.
    pub fn probe(&mut self, world: &mut World<'_>, to: &Destination) -> (Ticket, Outgoing) {
        let partition = self.to(world, &to.name);
        let number = world.numbers.next();
        let message = Message {
            encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
            persistent: true,
            priority: 4,
            expires_at_ms: 0,
            rare: None,
            bytes: body(number, self.connection.core(), world.random),
        };
        let sent = Sent::new(to.clone(), message);
        let (connection, ticket) = (self.connection, Ticket(number));
        let publish = Publish::plain(connection, ticket, sent);
        let mut events = self.end_upload(true);
        events.push((partition, Event::Publish(publish)));
        (ticket, events)
    }

    fn attach(&mut self, world: &mut World<'_>) -> Outgoing {
        if world.random.one_in(3)
            && let Some((name, topic, shared)) = world.random.pick(&world.scene.names).cloned()
        {
            let credit = world.random.below(6) as u32;
            return self.read(world, (name, topic, shared), credit);
        }
        let own = self.own.clone();
        let source = match world.random.one_in(5) {
            true => world.random.pick(&own).cloned(),
            false => world.random.pick(&world.scene.destinations).cloned(),
        };
        let Some(source) = source else { return Vec::new() };
        let mode = match world.random.below(10) {
            0 | 1 => ConsumerMode::Exclusive,
            2 if source.kind == DestinationKind::Queue => ConsumerMode::Browse,
            _ => ConsumerMode::Shared,
        };
        let credit = world.random.below(6) as u32;
        let mut events = self.attach_to(world, source, mode, credit);
        for (_, event) in &mut events {
            let Event::Attach(attach) = event else { continue };
            if world.scene.selects && world.random.one_in(2) {
                attach.selector = world.random.pick(&SELECTORS).map_or("", |(text, _)| *text).into();
                if let Some(reader) = self.readers.get_mut(&attach.consumer.number) {
                    reader.attach.selector = attach.selector.clone();
                }
            }
        }
        events
    }

    /// Attaches a reader of a durable subscription, which begins by that unless it is there.
    pub fn read(
        &mut self,
        world: &mut World<'_>,
        (name, topic, shared): (Arc<str>, Destination, bool),
        credit: u32,
    ) -> Outgoing {
        let mut events = self.attach_to(world, topic, ConsumerMode::Shared, credit);
        for (_, event) in &mut events {
            let Event::Attach(attach) = event else { continue };
            (attach.subscription, attach.no_local) = (Some(name.clone()), false);
            attach.share = if shared { Share::Durable } else { Share::No };
        }
        events
    }

    fn unsubscribe(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some((name, topic, _)) = world.random.pick(&world.scene.names).cloned() else {
            return Vec::new();
        };
        let (partition, ticket) = (self.to(world, &topic.name), Ticket(world.numbers.next()));
        vec![(partition, Event::Unsubscribe { name, connection: self.connection, ticket })]
    }

    /// Attaches a consumer.
    pub fn attach_to(
        &mut self,
        world: &mut World<'_>,
        source: Destination,
        mode: ConsumerMode,
        credit: u32,
    ) -> Outgoing {
        let partition = self.to(world, &source.name);
        let ticket = Ticket(world.numbers.next());
        let number = self.next_reader;
        self.next_reader += 1;
        self.attaching.insert(ticket, number);
        let attach = Attach {
            consumer: ConsumerKey::new(self.connection, number),
            source: source.clone(),
            mode,
            credit,
            credit_by_default: false,
            priority: world.random.below(3) as i8,
            no_local: world.random.one_in(4),
            share: Share::No,
            steals: None,
            at: None,
            retroactive: false,
            client: None,
            notice: None,
            ticket,
            selector: "".into(),
            subscription: None,
        };
        let notice = self.is_named.then(|| Arc::new(notice_of(&attach)));
        let attach = Attach { notice, ..attach };
        let browses = mode == ConsumerMode::Browse;
        let (held, copy) = (Vec::new(), Box::new(attach.clone()));
        let reader = Reader { attach: copy, at: partition, source, browses, attached: false, held };
        self.readers.insert(number, reader);
        vec![(partition, Event::Attach(attach))]
    }

    fn any_reader(&self, world: &mut World<'_>) -> Option<(ConsumerKey, PartitionId)> {
        let attached: Vec<u32> =
            self.readers.iter().filter(|(_, reader)| reader.attached).map(|(number, _)| *number).collect();
        let number = *world.random.pick(&attached)?;
        let reader = self.readers.get(&number)?;
        Some((ConsumerKey::new(self.connection, number), reader.at))
    }

    fn credit(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some((consumer, partition)) = self.any_reader(world) else { return Vec::new() };
        let add = 1 + world.random.below(8) as u32;
        vec![(partition, Event::Credit { consumer, add })]
    }

    /// All the credit that a consumer can use, for every consumer.
    pub fn credit_all(&self, add: u32) -> Outgoing {
        let attached = self.readers.iter().filter(|(_, reader)| reader.attached);
        let credit = |(number, reader): (&u32, &Reader)| {
            let consumer = ConsumerKey::new(self.connection, *number);
            (reader.at, Event::Credit { consumer, add })
        };
        attached.map(credit).collect()
    }

    fn drain(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some((consumer, partition)) = self.any_reader(world) else { return Vec::new() };
        let mut events = Vec::new();
        if world.random.one_in(2) {
            events.push((partition, Event::Credit { consumer, add: 1 }));
        }
        events.push((partition, Event::Drain { consumer }));
        events
    }

    fn detach(&mut self, world: &mut World<'_>) -> Outgoing {
        let numbers: Vec<u32> = self.readers.keys().copied().collect();
        let Some(number) = world.random.pick(&numbers).copied() else { return Vec::new() };
        let Some(reader) = self.readers.remove(&number) else { return Vec::new() };
        self.attaching.retain(|_, attaching| *attaching != number);
        let last = reader.held.iter().filter(|(_, tied)| *tied == 0).map(|(tag, _)| *tag);
        let last: Vec<EntryTag> = last.collect();
        let delivered = match (world.random.below(3), world.random.pick(&last)) {
            (0, Some(tag)) => Delivered::Through { member: 0, tag: *tag },
            (1, _) => Delivered::None,
            _ => Delivered::All,
        };
        let consumer = ConsumerKey::new(self.connection, number);
        let ticket = world.random.one_in(2).then(|| Ticket(world.numbers.next()));
        vec![(reader.at, Event::Detach { consumer, delivered, ticket })]
    }

    fn settle(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some((consumer, partition)) = self.any_reader(world) else { return Vec::new() };
        let Some(reader) = self.readers.get(&consumer.number) else { return Vec::new() };
        let free: Vec<EntryTag> =
            reader.held.iter().filter(|(_, tied)| *tied == 0).map(|(tag, _)| *tag).collect();
        if reader.browses || free.is_empty() {
            return Vec::new();
        }
        let first = world.random.below(free.len() as u64) as usize;
        let count = 1 + world.random.below((free.len() - first) as u64) as usize;
        let tags = free[first..first + count].to_vec();
        let outcome = any_outcome(world, &reader.source);
        self.settle_as(world, (consumer, partition), tags, outcome)
    }

    fn settle_as(
        &mut self,
        world: &mut World<'_>,
        (consumer, partition): (ConsumerKey, PartitionId),
        tags: Vec<EntryTag>,
        outcome: Outcome,
    ) -> Outgoing {
        let ends = matches!(outcome, Outcome::Accepted | Outcome::Expired);
        let connection = self.connection;
        let fresh = Ticket(world.numbers.next());
        let transaction = match ends {
            true => self.maybe_in_transaction(world).map(|open| {
                open.touched.insert(partition);
                open.unanswered.insert(fresh);
                TransactionKey { connection, number: open.number }
            }),
            false => None,
        };
        let ticket = (transaction.is_some() || !world.random.one_in(3)).then_some(fresh);
        if let Some(reader) = self.readers.get_mut(&consumer.number) {
            match (transaction, outcome) {
                (Some(key), _) => {
                    let mine = reader.held.iter_mut().filter(|(tag, _)| tags.contains(tag));
                    mine.for_each(|(_, tied)| *tied = key.number);
                }
                (None, Outcome::Retried) => {}
                (None, _) => {
                    reader.held.retain(|(tag, _)| !tags.contains(tag));
                    let said = ticket.filter(|_| matches!(outcome, Outcome::Accepted | Outcome::Expired));
                    self.settling.extend(said.map(|ticket| (ticket, (consumer.number, tags.clone()))));
                }
            }
        }
        let settle = Settle { consumer, tags, outcome, transaction, reason: None, ticket };
        vec![(partition, Event::Settle(settle))]
    }

    /// Accepts everything at hand.
    pub fn accept_all(&mut self, world: &mut World<'_>) -> Outgoing {
        let mut events = Vec::new();
        for (number, reader) in &mut self.readers {
            let tags = reader.held.extract_if(.., |(_, tied)| *tied == 0);
            let tags: Vec<EntryTag> = tags.map(|(tag, _)| tag).collect();
            if tags.is_empty() || reader.browses {
                continue;
            }
            let consumer = ConsumerKey::new(self.connection, *number);
            let ticket = Some(Ticket(world.numbers.next()));
            let settle = Settle {
                consumer,
                tags,
                outcome: Outcome::Accepted,
                transaction: None,
                reason: None,
                ticket,
            };
            events.push((reader.at, Event::Settle(settle)));
        }
        events
    }

    fn end_transaction(&mut self, world: &mut World<'_>) -> Outgoing {
        let ready = self.open.as_ref().is_some_and(|open| self.hasty || open.unanswered.is_empty());
        if !ready || self.committing.is_some() {
            return Vec::new();
        }
        let Some(open) = self.open.take() else { return Vec::new() };
        let transaction = TransactionKey { connection: self.connection, number: open.number };
        let ticket = Ticket(world.numbers.next());
        if world.random.one_in(3) {
            return self.end_branch(world, transaction, open.touched, ticket);
        }
        let participants: Vec<PartitionId> = open.touched.into_iter().collect();
        match world.random.one_in(4) {
            true => self.roll_back(transaction, participants, ticket),
            false => self.commit(transaction, participants, ticket),
        }
    }

    fn commit(
        &mut self,
        transaction: TransactionKey,
        participants: Vec<PartitionId>,
        ticket: Ticket,
    ) -> Outgoing {
        self.committing = Some((ticket, transaction.number));
        let first = participants.first().copied().unwrap_or(PartitionId(0));
        let seals = participants.iter().filter(|_| participants.len() > 1);
        let mut outgoing: Outgoing = seals.map(|id| (*id, Event::Seal { transaction })).collect();
        outgoing.push((first, Event::Commit { transaction, participants, ticket }));
        outgoing
    }

    fn roll_back(
        &mut self,
        transaction: TransactionKey,
        participants: Vec<PartitionId>,
        ticket: Ticket,
    ) -> Outgoing {
        self.ended(transaction.number, false);
        let last = participants.len().saturating_sub(1);
        let rollback = |(index, partition): (usize, &PartitionId)| {
            let ticket = (index == last).then_some(ticket);
            (*partition, Event::Rollback { transaction, ticket })
        };
        participants.iter().enumerate().map(rollback).collect()
    }

    /// The work is a branch's: it is handed over, and then prepared, ended at once, or left alone.
    fn end_branch(
        &mut self,
        world: &mut World<'_>,
        transaction: TransactionKey,
        touched: BTreeSet<PartitionId>,
        ticket: Ticket,
    ) -> Outgoing {
        let number = world.numbers.next();
        let (qualifier, whole) = (number.to_le_bytes().as_slice().into(), b"branch".as_slice().into());
        let branch = BranchId { format: 1, transaction: whole, qualifier };
        let coordinator = world.places.coordinator_of(&branch);
        self.touched.insert(coordinator);
        let mut outgoing: Outgoing = touched.iter().map(|id| (*id, Event::Seal { transaction })).collect();
        let (participants, connection) = (touched.into_iter().collect(), self.connection);
        let event = Event::EndBranch { branch: branch.clone(), transaction, participants, ticket };
        outgoing.push((coordinator, event));
        let ticket = Ticket(world.numbers.next());
        let decide = |decision| Event::DecideBranch { branch: branch.clone(), decision, connection, ticket };
        match world.random.below(10) {
            0 => self.left_open.push(branch),
            1 => outgoing.push((coordinator, decide(Decision::Rollback))),
            2 | 3 => outgoing.push((coordinator, decide(Decision::CommitOnePhase))),
            _ => {
                world.branches.push(branch.clone());
                outgoing.push((coordinator, Event::PrepareBranch { branch, connection, ticket }));
            }
        }
        outgoing
    }

    /// Decides a branch with a request to prepare.
    fn decide_any(&mut self, world: &mut World<'_>) -> Outgoing {
        let index = world.random.below(world.branches.len().max(1) as u64) as usize;
        let Some(branch) = world.branches.get(index).cloned() else { return Vec::new() };
        let decision = match world.random.below(12) {
            0..4 => Decision::Rollback,
            4 => Decision::Overrule { commit: true },
            5 => Decision::Overrule { commit: false },
            6 => return self.forget(world, branch),
            _ => Decision::Commit,
        };
        self.decide(world, branch, decision)
    }

    fn decide(&mut self, world: &mut World<'_>, branch: BranchId, decision: Decision) -> Outgoing {
        let (connection, ticket) = (self.connection, Ticket(world.numbers.next()));
        let coordinator = world.places.coordinator_of(&branch);
        vec![(coordinator, Event::DecideBranch { branch, decision, connection, ticket })]
    }

    /// The operator's decision is forgotten.
    fn forget(&mut self, world: &mut World<'_>, branch: BranchId) -> Outgoing {
        let (connection, ticket) = (self.connection, Ticket(world.numbers.next()));
        let coordinator = world.places.coordinator_of(&branch);
        vec![(coordinator, Event::ForgetBranch { branch, connection, ticket })]
    }

    /// Asks every partition which branches are in doubt.
    pub fn recover(&mut self, world: &mut World<'_>) -> Outgoing {
        let mut ask = |id| {
            let ticket = Ticket(world.numbers.next());
            (PartitionId(id), Event::ListBranches { connection: self.connection, ticket })
        };
        (0..world.places.partitions()).map(&mut ask).collect()
    }

    /// Decides all that was in doubt.
    pub fn decide_all(&mut self, world: &mut World<'_>) -> Outgoing {
        let mut outgoing = Vec::new();
        for branch in std::mem::take(&mut self.in_doubt) {
            let decision = if world.random.one_in(2) { Decision::Rollback } else { Decision::Commit };
            outgoing.extend(self.decide(world, branch, decision));
        }
        outgoing
    }

    /// A transaction has ended: its settled messages are gone, or held again.
    fn ended(&mut self, number: u64, committed: bool) {
        for reader in self.readers.values_mut() {
            reader.held.retain(|(_, tied)| !committed || *tied != number);
            reader.held.iter_mut().filter(|(_, tied)| *tied == number).for_each(|(_, tied)| *tied = 0);
        }
    }

    fn declare(&mut self, world: &mut World<'_>) -> Outgoing {
        let number = world.numbers.next();
        let kind = if world.random.one_in(3) { DestinationKind::Topic } else { DestinationKind::Queue };
        let name: Arc<str> = format!("temporary.{number}").into();
        let destination = Destination { kind, temporary: true, name };
        let partition = self.to(world, &destination.name);
        let (connection, ticket) = (self.connection, Ticket(number));
        self.declaring.insert(ticket, destination.clone());
        vec![(partition, Event::Declare { destination, connection, steals: None, ticket })]
    }

    fn delete(&mut self, world: &mut World<'_>) -> Outgoing {
        let Some(destination) = world.random.pick(&self.own).cloned() else { return Vec::new() };
        let partition = self.to(world, &destination.name);
        let (connection, ticket) = (self.connection, Ticket(world.numbers.next()));
        vec![(partition, Event::Delete { destination, connection, ticket })]
    }

    /// The bytes that left the outbox, if there are at least this many.
    pub fn written(&mut self, _: &World<'_>, bytes_min: u64) -> Outgoing {
        let connection = self.connection;
        let enough = self.unwritten.iter_mut().filter(|(_, bytes)| **bytes >= bytes_min);
        let written = |(partition, bytes): (&PartitionId, &mut u64)| {
            (*partition, Event::Written { connection, bytes: std::mem::take(bytes) })
        };
        enough.map(written).collect()
    }

    /// The connection ends.
    pub fn close(&mut self) -> Outgoing {
        let connection = self.connection;
        std::mem::take(&mut self.touched)
            .into_iter()
            .map(|partition| (partition, Event::Closed { connection }))
            .collect()
    }

    /// Takes a partition's output.
    pub fn receive(&mut self, from: PartitionId, message: &ToSession) {
        match message {
            ToSession::Deliver(delivery) => {
                *self.unwritten.entry(from).or_default() += delivery.message.bytes.len() as u64;
                if let Some(reader) = self.readers.get_mut(&delivery.consumer.number) {
                    reader.held.push((delivery.tag, 0));
                }
            }
            ToSession::Reply { ticket, result } => {
                if *result != Err(Refusal::TakenBack) {
                    self.settling.remove(ticket);
                }
                self.answered(*ticket, result.is_ok());
            }
            ToSession::Ended { transaction, committed } => self.ended(*transaction, *committed),
            ToSession::Branches { branches, .. } => {
                self.in_doubt.extend(branches.iter().map(|(branch, _)| branch.clone()))
            }
            ToSession::Detached { consumer, .. } => {
                self.readers.remove(&consumer.number);
            }
            _ => {}
        }
    }

    fn answered(&mut self, ticket: Ticket, good: bool) {
        if let Some(number) = self.following.remove(&ticket).filter(|_| !good) {
            self.readers.remove(&number);
        }
        if let Some(upload) = &mut self.upload {
            upload.answered(ticket, good);
        }
        if let Some(open) = &mut self.open {
            open.is_refused |= open.unanswered.remove(&ticket) && !good;
        }
        if let Some((number, tags)) = self.settling.remove(&ticket)
            && let Some(reader) = self.readers.get_mut(&number)
        {
            // It may say so once more.
            reader.held.extend(tags.into_iter().map(|tag| (tag, 0)));
        }
        if let Some(number) = self.attaching.remove(&ticket) {
            match self.readers.get_mut(&number) {
                Some(reader) if good => reader.attached = true,
                _ => {
                    self.readers.remove(&number);
                }
            }
        }
        if let Some(destination) = self.declaring.remove(&ticket) {
            self.own.push(destination);
        }
        if let Some((_, number)) = self.committing.filter(|(committing, _)| *committing == ticket) {
            self.committing = None;
            self.ended(number, good);
        }
    }
}

/// A message group for some messages; some of these end it.
fn group(random: &mut Random) -> Option<Arc<RareHeaders>> {
    let id = *random.pick(&["", "", "", "g", "h", "i"])?;
    let sequence = if random.one_in(4) { -1 } else { 0 };
    let group = Group { id: id.into(), sequence };
    (!id.is_empty()).then(|| Arc::new(RareHeaders { group: Some(group), ..RareHeaders::default() }))
}

/// The producer of a message, which is its slot through all connections, and its number.
pub fn origin_of(message: &Message) -> Option<Origin> {
    let number = crate::oracle::number_of(message).filter(|number| !is_fired(*number))?;
    Some(Origin { producer: u128::from(*message.bytes.get(8)?), sequence: number, from_link: false })
}

/// The number, the producer, and bytes that follow from the number.
fn body(number: u64, producer: u16, random: &mut Random) -> Bytes {
    let length = match random.below(30) {
        0 => 6000 + random.below(20_000),
        1..5 => 1000 + random.below(2000),
        _ => random.below(300),
    };
    let filling = (0..length).map(|index| (number.wrapping_mul(31) ^ index) as u8);
    number.to_le_bytes().into_iter().chain([producer as u8]).chain(filling).collect::<Vec<u8>>().into()
}
