//! The oracle: rules that must hold, from the clients' answers alone. It shares no code with the
//! core.
//!
//! Every request that may become durable is an [`Operation`]: it makes copies of messages and ends
//! others, all or nothing. A reply shows its fate; after a crash the first delivery that only one
//! fate allows does. Every later observation must agree.

mod branch;
mod copy;
mod delivery;
mod end;
mod fate;
mod feed;
mod lag;
mod last_value;
mod leaving;
mod limit;
mod moving;
mod repeating;
mod resting;
mod reviving;
mod subscription;
mod taking;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{
    BranchId, Command, ConnectionId, ConsumerKey, ConsumerMode, Delivered, Destination, DestinationKind,
    DetachCause, Effect, EntryTag, Event, Message, Outcome, PartitionId, Placement, Refusal, Retain, Sent,
    Settle, Ticket, TransactionKey,
};

use crate::selectors::wants;
use crate::wall::Wall;
use branch::Ends;
use copy::MessageCopy;

/// The name of a message in every place that holds it.
pub type MessageNumber = u64;
type Number = usize;

/// Where a copy of a message lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Queue(Destination),
    Subscription(ConsumerKey),
    /// A subscription that outlives its readers.
    Named(Arc<str>),
}

type Spot = (Place, MessageNumber);

/// By sender, in a transaction or not, place, lane, group.
type OrderedLine = (ConnectionId, bool, Place, u8, Option<Arc<str>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A transaction without a request to commit.
    Open,
    /// Under way, or cut off by a crash.
    Asked,
    Committed,
    Aborted,
}

struct Operation {
    what: &'static str,
    fate: Fate,
    sends: Vec<Spot>,
    settles: Vec<Spot>,
    /// The messages that rest by it, until it is answered.
    rests: Vec<Spot>,
    /// Messages that rest by it or end, each with the operation that ends it.
    given_up: Vec<(Number, Spot)>,
    /// No client waits: within the run it happens all the same.
    unasked: bool,
    /// One of its parts was refused: it must not commit.
    doomed: bool,
    /// The client got the reply that it is done.
    answered: bool,
    /// If it is a branch: the requested ends.
    branch: Option<Ends>,
    /// When a partition first heard of it, if it is a transaction.
    begun_ms: Option<u64>,
    /// Whose verdict it is, if it is one.
    by: Option<ConsumerKey>,
    run: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Free,
    Held(ConsumerKey),
    InTransaction(Number, ConsumerKey),
}

/// The message.
struct Letter {
    sent: Sent,
    from: ConnectionId,
    retained: bool,
    operation: Number,
    run: u64,
    /// How often it was sent without an answer.
    unanswered: u32,
    /// When it was sent.
    asked: u64,
    /// When it was confirmed.
    confirmed: Option<u64>,
    /// It has a body in pieces, unless it is sent once more.
    is_large: bool,
    /// Its client sent it once more, perhaps after later ones: an earlier refusal had not reached
    /// it.
    resent: bool,
}

struct Reader {
    source: Destination,
    /// The partition that it is attached to.
    at: PartitionId,
    /// It follows its queue, and is not there yet.
    follows: bool,
    /// The durable subscription that it reads.
    name: Option<Arc<str>>,
    /// Requests to end that, if all of them had come to the broker before it.
    ends_before: Option<u64>,
    selector: Arc<str>,
    mode: ConsumerMode,
    priority: i8,
    no_local: bool,
    credit: u32,
    attached: bool,
    /// It left before its queue was there: it comes and goes in one turn.
    leaves: Option<Delivered>,
    held: Vec<(EntryTag, Spot)>,
    browsed: BTreeSet<MessageNumber>,
    /// When it last spoke, or began to have something.
    spoke_ms: u64,
}

enum Ask {
    Operation(Number),
    Publish(Number, MessageNumber),
    InTransaction(Number),
    /// Verdicts in a transaction: whose they are, on which messages, and whether in slices.
    SettleIn(Number, ConsumerKey, Vec<Spot>, bool),
    Attach(ConsumerKey),
    Follow(ConsumerKey),
    Declare(Destination, ConnectionId),
    Delete(Destination),
    /// Asked when.
    Unsubscribe(Arc<str>, u64),
    Prepare(Number),
    /// An end of a branch, if the answer is yes. If an operator's decision was known: which.
    Decide(Number, bool, Option<bool>),
    /// An operator's decision.
    Overrule(Number, bool),
    Other,
}

/// See the head of this file.
pub struct Oracle {
    placement: Placement,
    dead_letters: Destination,
    reviving: reviving::Reviving,
    run: u64,
    letters: BTreeMap<MessageNumber, Letter>,
    operations: Vec<Operation>,
    copies: BTreeMap<Spot, MessageCopy>,
    readers: BTreeMap<ConsumerKey, Reader>,
    /// In the order in which they were attached.
    lines: BTreeMap<Destination, Vec<ConsumerKey>>,
    asks: BTreeMap<Ticket, (ConnectionId, Ask)>,
    transactions: BTreeMap<TransactionKey, Number>,
    branches: BTreeMap<BranchId, Number>,
    temporary: BTreeMap<Destination, ConnectionId>,
    /// The newest of each line in which order is kept.
    last: BTreeMap<OrderedLine, MessageNumber>,
    expected: BTreeSet<(ConsumerKey, MessageNumber)>,
    /// The consumer that was last sent a message of the group, unless that ended it.
    groups: BTreeMap<(Destination, Arc<str>), ConsumerKey>,
    names: subscription::Names,
    feeds: feed::Feeds,
    /// Requests and answers so far.
    clock: u64,
    lag: lag::Lag,
    limited: Option<limit::Limited>,
    /// Its messages have values of which it keeps the last.
    last_values: Option<Destination>,
    /// Messages taken back from consumers.
    taking: taking::Taking,
    moves: moving::Moves,
    rests: resting::RedeliveryDelays,
    repeats: repeating::Repeats,
    /// The partition's clock, as it was last heard of.
    now_ms: u64,
    /// The time of day.
    pub wall: Wall,
    /// Consumers select: one gets messages that another passes over, in any order.
    selects: bool,
    /// Deliveries checked, positive and negative replies.
    pub checked: (u64, u64, u64),
}

type Checked = Result<(), String>;

/// The operation of everything that memory alone decides.
const AT_ONCE: Number = 0;

/// The number that a message carries in its first bytes.
pub fn number_of(message: &Message) -> Option<MessageNumber> {
    let head = message.bytes.get(..8)?;
    Some(u64::from_le_bytes(head.try_into().ok()?))
}

impl Oracle {
    /// An oracle that has seen nothing.
    pub fn new(placement: Placement, dead_letters: Destination) -> Oracle {
        let mut oracle = Oracle {
            placement,
            dead_letters,
            reviving: reviving::Reviving::default(),
            run: 1,
            letters: BTreeMap::new(),
            operations: Vec::new(),
            copies: BTreeMap::new(),
            readers: BTreeMap::new(),
            lines: BTreeMap::new(),
            asks: BTreeMap::new(),
            transactions: BTreeMap::new(),
            branches: BTreeMap::new(),
            temporary: BTreeMap::new(),
            last: BTreeMap::new(),
            expected: BTreeSet::new(),
            groups: BTreeMap::new(),
            names: subscription::Names::default(),
            feeds: feed::Feeds::default(),
            clock: 0,
            lag: lag::Lag::default(),
            limited: None,
            last_values: None,
            taking: taking::Taking::default(),
            moves: moving::Moves::default(),
            rests: resting::RedeliveryDelays::default(),
            repeats: repeating::Repeats::default(),
            now_ms: 0,
            wall: Wall::default(),
            selects: false,
            checked: (0, 0, 0),
        };
        let at_once = oracle.operation("at once", Fate::Committed);
        debug_assert_eq!(at_once, AT_ONCE);
        oracle
    }

    /// From the start: clients may read and end these durable subscriptions.
    pub fn expect_subscriptions(&mut self, subscriptions: &[(Arc<str>, Destination, bool)]) {
        subscriptions.iter().for_each(|(name, topic, _)| self.names.add(name.clone(), topic.clone()));
    }

    /// From the start: consumers have selectors.
    pub fn expect_selectors(&mut self) {
        self.selects = true;
    }

    fn operation(&mut self, what: &'static str, fate: Fate) -> Number {
        let (sends, settles, rests, run) = (Vec::new(), Vec::new(), Vec::new(), self.run);
        self.operations.push(Operation {
            what,
            fate,
            sends,
            settles,
            rests,
            given_up: Vec::new(),
            unasked: false,
            doomed: false,
            answered: false,
            branch: None,
            begun_ms: None,
            by: None,
            run,
        });
        self.operations.len() - 1
    }

    // --- actions of clients
    // --------------------------------------------------------------------------------

    /// A client sends something on its way: before it reaches any partition.
    pub fn asked(&mut self, event: &Event) {
        self.clock += 1;
        match event {
            Event::Publish(publish) => {
                let letter = (publish.connection, publish.ticket);
                self.published(letter, &publish.sent, publish.transaction, publish.retain.as_ref());
                let number = number_of(&publish.sent.message);
                let letter = number.and_then(|number| self.letters.get_mut(&number));
                if let Some(letter) = letter.filter(|_| publish.upload.is_some()) {
                    letter.is_large = true;
                }
            }
            Event::Chunk { connection, ticket, .. } => self.ask(*connection, *ticket, Ask::Other),
            Event::Attach(attach) => {
                self.ask(attach.consumer.connection, attach.ticket, Ask::Attach(attach.consumer));
            }
            Event::Detach { consumer, ticket: Some(ticket), .. } => {
                self.ask(consumer.connection, *ticket, Ask::Other);
            }
            Event::Settle(settle) => {
                let (Some(ticket), Some(key)) = (settle.ticket, settle.transaction) else { return };
                let number = self.transaction(key);
                self.ask(settle.consumer.connection, ticket, Ask::InTransaction(number));
            }
            Event::Commit { transaction, ticket, .. } => {
                let number = self.transaction(*transaction);
                self.operations[number].fate = Fate::Asked;
                self.ask(transaction.connection, *ticket, Ask::Operation(number));
            }
            Event::EndBranch { .. }
            | Event::PrepareBranch { .. }
            | Event::DecideBranch { .. }
            | Event::ForgetBranch { .. }
            | Event::ListBranches { .. } => self.asked_about_branch(event),
            Event::Rollback { transaction, ticket: Some(ticket) } => {
                self.ask(transaction.connection, *ticket, Ask::Other);
            }
            Event::Declare { destination, connection, ticket, .. } => {
                self.ask(*connection, *ticket, Ask::Declare(destination.clone(), *connection));
            }
            Event::Follow(attach) => {
                self.ask(attach.consumer.connection, attach.ticket, Ask::Follow(attach.consumer));
            }
            Event::Move { queue, connection, ticket, .. } => {
                self.moves.asked(queue);
                self.ask(*connection, *ticket, Ask::Other);
            }
            Event::Pause { connection, ticket, .. } => self.ask(*connection, *ticket, Ask::Other),
            Event::Redrive { connection, ticket, .. } => self.asked_to_revive(*connection, *ticket),
            Event::Unsubscribe { name, connection, ticket } => {
                self.names.ending(name);
                self.ask(*connection, *ticket, Ask::Unsubscribe(name.clone(), self.clock));
            }
            Event::Delete { destination, connection, ticket } => {
                self.ask(*connection, *ticket, Ask::Delete(destination.clone()));
            }
            _ => {}
        }
    }

    fn ask(&mut self, connection: ConnectionId, ticket: Ticket, ask: Ask) {
        self.asks.insert(ticket, (connection, ask));
    }

    fn transaction(&mut self, key: TransactionKey) -> Number {
        if let Some(number) = self.transactions.get(&key) {
            return *number;
        }
        let number = self.operation("transaction", Fate::Open);
        self.transactions.insert(key, number);
        number
    }

    fn published(
        &mut self,
        (from, ticket): (ConnectionId, Ticket),
        sent: &Sent,
        transaction: Option<TransactionKey>,
        retain: Option<&Retain>,
    ) {
        let Some(message) = number_of(&sent.message) else { return };
        if let Some(letter) = self.letters.get_mut(&message) {
            // Sent again it is the same message, and happens once; an earlier refusal did not reach
            // its client.
            letter.unanswered += 1;
            letter.resent = true;
            let operation = letter.operation;
            if self.operations[operation].fate == Fate::Aborted {
                self.operations[operation].fate = Fate::Asked;
            }
            return self.ask(from, ticket, Ask::Publish(operation, message));
        }
        let operation = match transaction {
            Some(key) => self.transaction(key),
            None => self.operation("send", Fate::Asked),
        };
        let (retained, run) = (retain.is_some(), self.run);
        self.letters.insert(
            message,
            Letter {
                sent: sent.clone(),
                from,
                retained,
                operation,
                run,
                unanswered: 1,
                asked: self.clock,
                confirmed: None,
                is_large: false,
                resent: false,
            },
        );
        let ask = match transaction {
            Some(_) => Ask::InTransaction(operation),
            None => Ask::Publish(operation, message),
        };
        self.ask(from, ticket, ask);
        for to in sent.targets() {
            let volatile = to.temporary || !sent.message.persistent || self.is_forgetful(to);
            match to.kind {
                DestinationKind::Queue => {
                    self.copy((Place::Queue(to.clone()), message), operation, volatile);
                }
                DestinationKind::Topic => {
                    if !volatile {
                        self.names.promise(to, message);
                    }
                    self.feed(to, message, operation, volatile);
                }
            }
        }
    }

    // --- input of partitions
    // -------------------------------------------------------------------------------

    /// A partition whose clock says `now_ms` works on an event.
    pub fn told(&mut self, now_ms: u64, partition: PartitionId, event: &Event) {
        self.now_ms = now_ms;
        match event {
            Event::Publish(publish) => {
                self.note_age(publish.transaction);
                self.may_begin_queue(publish);
            }
            Event::Attach(attach) => {
                self.may_begin_queue_for(attach);
                let reader = Reader {
                    source: attach.source.clone(),
                    at: partition,
                    follows: false,
                    name: attach.subscription.clone(),
                    ends_before: attach.subscription.as_ref().and_then(|name| self.names.ends_before(name)),
                    selector: attach.selector.clone(),
                    mode: attach.mode,
                    priority: attach.priority,
                    no_local: attach.no_local,
                    credit: attach.credit,
                    attached: false,
                    leaves: None,
                    held: Vec::new(),
                    browsed: BTreeSet::new(),
                    spoke_ms: self.now_ms,
                };
                self.readers.insert(attach.consumer, reader);
            }
            Event::Follow(attach) => self.follows(attach.consumer, partition),
            Event::Detach { consumer, delivered, .. } => self.leaves(*consumer, *delivered),
            Event::Unsubscribe { name, .. } => self.names.ends(name),
            Event::Credit { consumer, add } => self.credit_at(partition, *consumer, |credit| *credit += add),
            Event::Settle(settle) => self.settled(settle),
            Event::Rollback { transaction, .. } => self.rolled_back(partition, *transaction),
            Event::Closed { connection } => self.closed(partition, *connection),
            Event::Tick { .. } => self.rests.wakes(partition, now_ms),
            _ => {}
        }
    }

    fn settled(&mut self, settle: &Settle) {
        let (consumer, outcome) = (settle.consumer, settle.outcome);
        self.note_age(settle.transaction);
        let Some(reader) = self.readers.get(&consumer) else {
            return self.settled_too_late(settle);
        };
        let spots: Vec<Spot> = settle
            .tags
            .iter()
            .filter_map(|tag| reader.held.iter().find(|(held, _)| held == tag))
            .map(|(_, spot)| spot.clone())
            .filter(|spot| self.copies.get(spot).is_some_and(|copy| copy.hold == Hold::Held(consumer)))
            .collect();
        let operation = match settle.transaction {
            Some(key) => self.transaction(key),
            None => self.operation("settle", Fate::Asked),
        };
        self.operations[operation].doomed |= self.is_lost_to(settle);
        self.note_disputed(settle);
        self.note_said_again(settle, operation);
        if settle.transaction.is_none() {
            self.operations[operation].by = Some(consumer);
        }
        if let (Some(ticket), None) = (settle.ticket, settle.transaction) {
            self.ask(consumer.connection, ticket, Ask::Operation(operation));
        }
        self.spoken(consumer);
        if settle.transaction.is_none() {
            // If something was taken back all is refused, without a notification.
            self.operations[operation].unasked = settle.ticket.is_none()
                && !self.taking.is_possible()
                && !matches!(outcome, Outcome::Rejected | Outcome::Expired);
        }
        let in_transaction = settle.transaction.is_some();
        let disputed = self.disputed_by(settle, &spots);
        for spot in &spots {
            self.verdict(spot, operation, outcome, in_transaction, consumer);
        }
        self.taking.ends_in_slices(settle, &spots, operation);
        taking::note_settled_in(self, settle, &spots, operation);
        for spot in disputed.iter().filter(|_| !in_transaction) {
            self.bury(spot, operation, outcome, false);
        }
        let stays = in_transaction || outcome == Outcome::Retried || self.taking.is_possible();
        if !stays && let Some(reader) = self.readers.get_mut(&consumer) {
            reader.held.retain(|(_, spot)| !spots.contains(spot));
        }
    }

    fn verdict(
        &mut self,
        spot: &Spot,
        operation: Number,
        outcome: Outcome,
        in_transaction: bool,
        by: ConsumerKey,
    ) {
        let may_be_taken = self.taking.is_possible();
        let verdict = operation;
        let ending =
            if outcome == Outcome::Rejected { self.give_up(spot, verdict, by) } else { Some(verdict) };
        let Some(operation) = ending else { return };
        let Some(copy) = self.copies.get_mut(spot) else { return };
        let volatile = copy.volatile;
        match outcome {
            Outcome::Retried => return copy.count(1, 1),
            Outcome::Released { failed } => {
                copy.hold = Hold::Free;
                return copy.count(u32::from(failed), u32::from(failed));
            }
            Outcome::Accepted | Outcome::Expired if in_transaction => {
                if self.operations[operation].fate == Fate::Aborted {
                    // Its transaction was undone before it: nothing comes of it but that it is
                    // undone once more, when that is heard of here.
                    (copy.perhaps_held, copy.perhaps_taken) = (true, copy.perhaps_taken || may_be_taken);
                    return copy.count(0, 1);
                }
                copy.hold = Hold::InTransaction(operation, by);
                copy.ended = Some(operation);
                return self.operations[operation].settles.push(spot.clone());
            }
            Outcome::Accepted | Outcome::Expired | Outcome::Rejected => copy.hold = Hold::Free,
        }
        if volatile && !may_be_taken && operation == verdict {
            copy.ended = Some(AT_ONCE);
            return;
        }
        copy.ended = Some(operation);
        self.operations[operation].settles.push(spot.clone());
        self.bury(spot, operation, outcome, true);
    }

    fn is_in(&self, spot: &Spot, partition: PartitionId) -> bool {
        if let Some(at) = self.copies.get(spot).and_then(|copy| copy.at) {
            return at == partition;
        }
        let name = match &spot.0 {
            Place::Queue(queue) => &queue.name,
            Place::Named(name) => match self.names.topic_of(name) {
                Some(topic) => &topic.name,
                None => return false,
            },
            Place::Subscription(key) => match self.readers.get(key) {
                Some(reader) => &reader.source.name,
                None => return false,
            },
        };
        self.placement.partition_of(name) == partition
    }

    fn rolled_back(&mut self, partition: PartitionId, key: TransactionKey) {
        let number = self.transaction(key);
        self.operations[number].fate = Fate::Aborted;
        for spot in self.operations[number].settles.clone() {
            let here = self.is_in(&spot, partition);
            let Some(copy) = self.copies.get_mut(&spot).filter(|_| here) else { continue };
            let Hold::InTransaction(by_operation, consumer) = copy.hold else { continue };
            if by_operation == number {
                let attached = self.readers.contains_key(&consumer);
                copy.ended = None;
                copy.hold = if attached { Hold::Held(consumer) } else { Hold::Free };
                copy.perhaps_taken |= self.taking.is_possible();
                copy.count(u32::from(!attached), u32::from(!attached));
            }
        }
    }

    fn deleted(&mut self, destination: &Destination) {
        self.temporary.remove(destination);
        for ((place, _), copy) in &mut self.copies {
            copy.gone |= *place == Place::Queue(destination.clone());
        }
    }

    // --- output of partitions
    // ------------------------------------------------------------------------------

    /// Checks one effect of a partition whose clock says `now_ms`.
    ///
    /// # Errors
    /// The rule that it breaks, in words.
    pub fn observe(&mut self, (now_ms, partition): (u64, PartitionId), effect: &Effect) -> Checked {
        self.now_ms = now_ms;
        match effect {
            Effect::Deliver(delivery) => {
                self.checked.0 += 1;
                self.delivered((now_ms, partition), delivery)
            }
            Effect::Propose { command: Command::Enqueue(sent), .. } => {
                self.feed_by_selectors(sent);
                Ok(())
            }
            Effect::Place { queue, .. } => {
                self.rests.leaves(queue);
                Ok(())
            }
            Effect::Moved { consumer } => self.departs(*consumer, partition),
            Effect::Left { consumer, credit } => self.has_left(*consumer, partition, *credit),
            Effect::Reply { connection, ticket, result } => self.replied(*connection, *ticket, result),
            Effect::Announce(announcement) => match announcement.answer {
                Some((connection, ticket)) => self.replied(connection, ticket, &Ok(())),
                None => Ok(()),
            },
            Effect::Drained { consumer } => {
                let browses = |reader: &Reader| reader.mode == ConsumerMode::Browse;
                if !self.readers.get(consumer).is_some_and(browses) {
                    self.credit_at(partition, *consumer, |credit| *credit = 0);
                }
                Ok(())
            }
            Effect::Prefetch { consumer, messages } => {
                if let Some(reader) = self.readers.get_mut(consumer) {
                    reader.credit = *messages;
                }
                Ok(())
            }
            Effect::Detached { consumer, cause: DetachCause::Slow } => self.detached_as_slow(*consumer),
            Effect::Detached { consumer, cause } => {
                let reader = self.readers.remove(consumer);
                if let Some(name) = reader.and_then(|reader| reader.name) {
                    self.names.check_end(&name, *cause)?;
                }
                self.groups.retain(|_, owner| owner != consumer);
                self.lines.values_mut().for_each(|line| line.retain(|key| key != consumer));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn replied(&mut self, connection: ConnectionId, ticket: Ticket, result: &Result<(), Refusal>) -> Checked {
        self.clock += 1;
        let Some((_, ask)) = self.asks.remove(&ticket) else {
            return Err(format!("{ticket:?} of {connection:?} was answered twice, or never asked"));
        };
        match result {
            Ok(()) => self.checked.1 += 1,
            Err(_) => self.checked.2 += 1,
        }
        let good = result.is_ok();
        match ask {
            Ask::Operation(number) => {
                if good && self.operations[number].doomed {
                    return Err("a transaction with a refused part was committed".to_owned());
                }
                self.operations[number].answered |= good;
                let is_verdict = self.operations[number].by.is_some();
                if *result != Err(Refusal::TakenBack) {
                    self.was_judged(number);
                }
                self.rest_is_answered(number, result);
                self.resolve(number, good, || format!("the reply {result:?}"))?;
                resting::ends_are_answered(self, number, result)?;
                if is_verdict && !good && *result != Err(Refusal::TakenBack) {
                    self.left_memory(number);
                }
                Ok(())
            }
            Ask::Publish(number, message) => self.answered_publish(number, message, result),
            Ask::Prepare(number) => self.prepared(number, result),
            Ask::Decide(number, commit, overruled) => self.decided(number, (commit, overruled), result),
            Ask::Overrule(number, commit) => self.overruled(number, commit, result),
            Ask::InTransaction(number) => {
                self.operations[number].doomed |= !good;
                Ok(())
            }
            Ask::SettleIn(number, by, spots, in_slices) => {
                self.operations[number].doomed |= !good;
                if matches!(result, Err(Refusal::TransactionsFull { .. })) {
                    taking::not_settled_in(self, (number, by), &spots, in_slices);
                }
                Ok(())
            }
            Ask::Attach(key) => {
                self.attached(key, good);
                Ok(())
            }
            Ask::Follow(key) => {
                self.has_followed(key, good);
                Ok(())
            }
            Ask::Declare(destination, owner) if good && destination.temporary => {
                self.temporary.insert(destination, owner);
                Ok(())
            }
            Ask::Delete(destination) if good => {
                self.deleted(&destination);
                Ok(())
            }
            Ask::Unsubscribe(name, asked) => {
                self.unsubscribed(&name, asked, good);
                Ok(())
            }
            Ask::Declare(..) | Ask::Delete(_) | Ask::Other => Ok(()),
        }
    }

    fn answered_publish(
        &mut self,
        number: Number,
        message: MessageNumber,
        result: &Result<(), Refusal>,
    ) -> Checked {
        let good = result.is_ok();
        if good {
            self.expect(message);
        }
        if let Some(letter) = self.letters.get_mut(&message) {
            if good {
                self.feeds.exists(&letter.sent.to);
            }
            letter.confirmed = letter.confirmed.or(good.then_some(self.clock));
            letter.unanswered -= 1;
            if !good && letter.unanswered > 0 {
                return Ok(());
            }
        }
        self.resolve(number, good, || format!("the reply {result:?} for message {message}"))
    }

    fn attached(&mut self, key: ConsumerKey, good: bool) {
        let Some(reader) = self.readers.get_mut(&key) else { return };
        if good {
            reader.attached = true;
            if let Some(name) = &reader.name {
                return self.names.exists(name, reader.ends_before);
            }
            self.feeds.exists(&reader.source);
            self.lines.entry(reader.source.clone()).or_default().push(key);
        } else {
            self.readers.remove(&key);
        }
    }

    /// A topic message was accepted: every subscription of this moment gets it.
    fn expect(&mut self, message: MessageNumber) {
        let now_for_ever =
            |letter: &&Letter| letter.sent.message.expires_at_ms == 0 && letter.sent.schedule.is_none();
        let Some(letter) = self.letters.get(&message).filter(now_for_ever) else { return };
        let topics = letter.sent.targets().filter(|to| to.kind == DestinationKind::Topic);
        for key in topics.filter_map(|topic| self.lines.get(topic)).flatten() {
            let shuts_out = |reader: &Reader| {
                key.connection == letter.from && reader.no_local || !wants(&reader.selector, message)
            };
            let shut_out = self.readers.get(key).is_some_and(shuts_out);
            let place = Place::Subscription(*key);
            let shut_out = shut_out || self.may_drop(&place) || self.may_replace(&place);
            if !shut_out && !self.copies.contains_key(&(Place::Subscription(*key), message)) {
                self.expected.insert((*key, message));
            }
        }
    }
}
