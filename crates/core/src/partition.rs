//! The partition: all state of one owner thread, and its two doors.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, ConsumerKey, DeadLetter, Destination, Effect, EntryTag, Event, LookupMap, Message,
    MessageKey, Now, PartitionId, Position, QueueId, Refusal, Revived, Ticket, TransactionId, TransactionKey,
    Urgency,
};
use postroad_routing::{Addressing, Policies};
use postroad_selector::Selector;
use rustc_hash::FxBuildHasher;

use crate::addresses::address::Addresses;
use crate::addresses::ending::Endings;
use crate::claims::Claims;
use crate::clock::Clock;
use crate::connection::{Connection, Ended};
use crate::delivery::browse::Browses;
use crate::delivery::consumer::Consumer;
use crate::delivery::fetches::Fetches;
use crate::delivery::gathering::Gatherings;
use crate::delivery::selection::{self, PropertiesOf};
use crate::delivery::spread::Spread;
use crate::figures::QueueCounts;
use crate::intake::account::Accounts;
use crate::intake::audit::{Audit, OriginOf};
use crate::intake::chunks::{self, Uploads};
use crate::intake::limit::HeldBy;
use crate::intake::lines::WaitingLines;
use crate::intake::link::Links;
use crate::intake::parked::ParkedSends;
use crate::intake::waiting::Waiting;
use crate::leasing::Leases;
use crate::log::completion::Completion;
use crate::log::durability;
use crate::memory::bodies::{Bodies, Gone, Sought};
use crate::moving::Moves;
use crate::queue::{Entry, Lane, LaneNumber, Load, Queue, State, untag};
use crate::retained::Retained;
use crate::schedule::{Jobs, WriteDue};
use crate::settings::Settings;
use crate::settling::carrying::Carrying;
use crate::settling::expiry::Expiries;
use crate::settling::redrive::{Redrives, Revive};
use crate::settling::rest::Rests;
use crate::transaction::{Branches, Coordination, OpenTransaction, Prepared, VolatileChanges};

/// How the assembly writes a dead letter's past into a message, whatever its protocol.
pub type MarkDead = fn(&Message, &DeadLetter) -> Message;

/// How the assembly writes into a message that a topic keeps how many it keeps with it.
pub type CountRetained = fn(&Message, u64) -> Message;

/// What happened to messages since the start; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries that were put into queues.
    pub enqueued: u64,
    /// Deliveries sent to consumers.
    pub delivered: u64,
    /// Entries that consumers accepted.
    pub consumed: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries that moved to the dead-letter queue.
    pub dead_lettered: u64,
    /// Dead letters that went back to where they were.
    pub redriven: u64,
    /// Entries of deleted queues and ended subscriptions.
    pub discarded: u64,
    /// Sends that were confirmed and not taken in, because the message had come before.
    pub duplicates: u64,
    /// Non-persistent messages that could never be processed and so ended.
    pub dropped: u64,
    /// Entries that left because their queue held more than its policy allows.
    pub overflowed: u64,
    /// Entries that a newer message with the same value took the place of.
    pub replaced: u64,
    /// Entries that have gone with their queue to another partition.
    pub moved: u64,
    /// How often a consumer was found slow.
    pub slow_consumers: u64,
    /// Transactions and branches that were open for too long.
    pub timed_out_transactions: u64,
    /// Notices that a subscription went without, for want of room.
    pub missed_notices: u64,
    /// Messages that a topic could not retain, for want of room.
    pub unretained: u64,
    /// Entries set aside because their body could not be read from the disk.
    pub unreadable: u64,
    /// Pages of entries that were folded, to save memory.
    pub folded_pages: u64,
    /// Folded pages that were opened again.
    pub opened_pages: u64,
}

/// What the messages of a partition take in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Messages that some queue or prepared transaction refers to, wherever their bodies are.
    pub messages: u64,
    /// How many of them lie in folded pages.
    pub folded_messages: u64,
    /// Bytes of durable messages whose bodies are in memory.
    pub resident_bytes: u64,
    /// What folded pages take.
    pub page_bytes: u64,
    /// Bytes of messages that are only in memory.
    pub volatile_bytes: u64,
}

/// The state machine that owns the addresses whose names hash to it.
pub struct Partition {
    pub(crate) settings: Settings,
    /// The monotone clock, in ms: what all waits are counted by.
    pub(crate) now_ms: u64,
    /// The wall clock, and what it was before it was set: for expiry and schedules.
    pub(crate) clock: Clock,
    pub(crate) applied: Option<Position>,
    pub(crate) addresses: Addresses,
    pub(crate) queues: HashMap<QueueId, Queue, FxBuildHasher>,
    pub(crate) next_queue: u64,
    pub(crate) next_volatile_queue: u64,
    pub(crate) next_volatile_message: u64,
    pub(crate) bodies: Bodies,
    /// Large bodies on their way in or out.
    pub(crate) uploads: Uploads,
    /// What queues held that are gone.
    pub(crate) endings: Endings,
    /// When entries end.
    pub(crate) expiries: Expiries,
    /// When entries are delivered again that failed.
    pub(crate) rests: Rests,
    /// Queues whose browsers go on with the next tick.
    pub(crate) browses: Browses,
    /// Entries that are delivered to a deadline.
    pub(crate) leases: Leases,
    /// Bodies that are on their way from the log.
    pub(crate) fetches: Fetches,
    pub(crate) consumers: HashMap<ConsumerKey, Consumer, FxBuildHasher>,
    /// Consumers of patterns of queues, by their whole.
    pub(crate) spreads: BTreeMap<ConsumerKey, Spread>,
    /// Counts what consumers came to hold, over all of them.
    pub(crate) next_hold: u64,
    pub(crate) connections: HashMap<ConnectionId, Connection, FxBuildHasher>,
    pub(crate) ended: Ended,
    /// Exclusive names.
    pub(crate) claims: Claims,
    /// Sends that wait for memory, or for room in a queue, by address, in order.
    pub(crate) parked: ParkedSends,
    /// The addresses of these, by what the first of each waits for.
    pub(crate) lines: WaitingLines,
    /// What tenants and the broker hold.
    pub(crate) accounts: Accounts,
    /// Queues whose consumers wait for more of them.
    pub(crate) gatherings: Gatherings,
    /// When it is time to look for slow consumers.
    pub(crate) next_look_ms: Option<u64>,
    /// When it is time to look for transactions that are open for too long.
    pub(crate) next_timeout_ms: Option<u64>,
    /// Something was taken back from a consumer in this run.
    pub(crate) has_taken_back: bool,
    /// When the first of them is refused, or left before that.
    pub(crate) next_refusal_ms: Option<u64>,
    pub(crate) links: Links,
    /// Recovery has ended: what is decided now gets into the log.
    pub(crate) is_live: bool,
    /// What topics keep for subscribers that come later.
    pub(crate) retained: Retained,
    pub(crate) proposals: VecDeque<Completion>,
    /// How many proposals there were in this run.
    pub(crate) proposals_made: u64,
    /// So many of them had been made when something durable last ended: see `follows_the_log`.
    pub(crate) follows: u64,
    /// Durable subscriptions by name.
    pub(crate) subscriptions: LookupMap<Arc<str>, QueueId>,
    /// Subscriptions that end with the last of their readers, by name.
    pub(crate) shared_volatile: LookupMap<Arc<str>, QueueId>,
    /// How many of them take nothing that their own client sends.
    pub(crate) skipping_subscriptions: u64,
    /// How to write a dead letter's past into it.
    pub(crate) mark_dead: MarkDead,
    /// How to take a dead letter's past out of it.
    pub(crate) revive: Revive,
    /// Dead letters that are going back.
    pub(crate) redrives: Redrives,
    /// Queues that are on the move to or from other partitions.
    pub(crate) moves: Moves,
    /// Large bodies on their way to other partitions.
    pub(crate) carrying: Carrying,
    /// How to write into a message that a topic keeps how many it keeps.
    pub(crate) count_retained: CountRetained,
    /// How to read what selectors ask for.
    pub(crate) properties_of: PropertiesOf,
    /// How to read who sent a message.
    pub(crate) origin_of: OriginOf,
    pub(crate) audit: Audit,
    /// How to write a message that is due now.
    pub(crate) write_due: WriteDue,
    /// Messages that are due later.
    pub(crate) jobs: Jobs,
    /// What waits for queues and subscriptions that are on their way into the log.
    pub(crate) waiting: Waiting,
    /// Settlements that nobody waits for and that the log refused: proposed again when it recovers.
    pub(crate) unsaved: Vec<postroad_model::Settlement>,
    /// Queues that no topic feeds yet, as the log could not take that.
    pub(crate) unbound: BTreeSet<Destination>,
    pub(crate) space_ample: bool,
    pub(crate) open: HashMap<TransactionKey, OpenTransaction, FxBuildHasher>,
    /// What those hold.
    pub(crate) open_bytes: u64,
    /// What durable messages could take when they last made way.
    pub(crate) way_bytes: u64,
    /// When they go on making way.
    pub(crate) way_due_ms: Option<u64>,
    pub(crate) next_transaction: u64,
    pub(crate) coordinating: BTreeMap<TransactionId, Coordination>,
    pub(crate) prepared: BTreeMap<TransactionId, Prepared>,
    /// What prepared transactions do to volatile state here; not replicated.
    pub(crate) prepared_volatile: BTreeMap<TransactionId, VolatileChanges>,
    pub(crate) decided: BTreeMap<TransactionId, Vec<PartitionId>>,
    pub(crate) branches: Branches,
    pub(crate) counters: Counters,
}

impl Partition {
    /// An empty partition.
    pub fn new(settings: Settings) -> Partition {
        Partition {
            jobs: Jobs::new(jobs_per_page(&settings), settings.resident_bytes_max),
            way_bytes: settings.resident_bytes_max,
            settings,
            now_ms: 0,
            clock: Clock::default(),
            applied: None,
            addresses: Addresses::default(),
            queues: HashMap::default(),
            next_queue: 0,
            next_volatile_queue: 0,
            next_volatile_message: 0,
            bodies: Bodies::default(),
            endings: Endings::default(),
            uploads: Uploads::default(),
            expiries: Expiries::default(),
            rests: Rests::default(),
            browses: Browses::default(),
            leases: Leases::default(),
            fetches: Fetches::default(),
            consumers: HashMap::default(),
            spreads: BTreeMap::new(),
            next_hold: 1,
            connections: HashMap::default(),
            ended: Ended::default(),
            claims: Claims::default(),
            parked: ParkedSends::default(),
            lines: WaitingLines::default(),
            accounts: Accounts::default(),
            retained: Retained::default(),
            gatherings: Gatherings::default(),
            next_look_ms: None,
            next_timeout_ms: None,
            has_taken_back: false,
            next_refusal_ms: None,
            links: Links::default(),
            is_live: false,
            proposals: VecDeque::new(),
            proposals_made: 0,
            follows: 0,
            subscriptions: LookupMap::default(),
            shared_volatile: LookupMap::default(),
            skipping_subscriptions: 0,
            mark_dead: |message, _| message.clone(),
            revive: |message| Revived { origin: None, message: message.clone() },
            redrives: Redrives::default(),
            moves: Moves::default(),
            carrying: Carrying::default(),
            count_retained: |message, _| message.clone(),
            properties_of: selection::no_properties,
            origin_of: |_| None,
            audit: Audit::default(),
            write_due: |message, _| message.clone(),
            waiting: Waiting::default(),
            unsaved: Vec::new(),
            unbound: BTreeSet::new(),
            space_ample: true,
            open: HashMap::default(),
            open_bytes: 0,
            way_due_ms: None,
            next_transaction: 0,
            coordinating: BTreeMap::new(),
            prepared: BTreeMap::new(),
            prepared_volatile: BTreeMap::new(),
            decided: BTreeMap::new(),
            branches: Branches::default(),
            counters: Counters::default(),
        }
    }

    /// Says how to read the properties of messages, which only their protocols know. To be said before the first
    /// command; until then messages have none.
    pub fn read_properties_by(&mut self, properties_of: PropertiesOf) {
        self.properties_of = properties_of;
    }

    /// Says how to read who sent a message, which only its protocol knows. To be said before the first command; until
    /// then no message is known again.
    pub fn read_origins_by(&mut self, origin_of: OriginOf) {
        self.origin_of = origin_of;
    }

    /// Says how to write a message that is due, which only its protocol knows. Until then it is as it was sent.
    pub fn write_due_by(&mut self, write_due: WriteDue) {
        self.write_due = write_due;
    }

    /// Says how to write a dead letter's past into it, which only its protocol knows. Until then it is as it was sent.
    pub fn mark_dead_letters_by(&mut self, mark_dead: MarkDead) {
        self.mark_dead = mark_dead;
    }

    /// Says how to write into a message that a topic keeps how many it keeps with it. Until then it is as it was sent.
    pub fn count_retained_by(&mut self, count_retained: CountRetained) {
        self.count_retained = count_retained;
    }

    /// Whether anybody gets what is sent to this topic now.
    pub fn is_heard(&self, topic: &Destination) -> bool {
        self.addresses.bounds(topic).iter().any(|bound| !bound.is_empty())
    }

    /// Says what operators decide about destinations from now on. What follows from it for state that is kept goes
    /// through the log, so replicas need not know it.
    pub fn follow(&mut self, policies: Arc<Policies>, effects: &mut Vec<Effect>) {
        self.settings.policies = policies;
        self.follows = self.proposals_made;
        let first = effects.len();
        self.limit_anew(effects);
        self.return_anew();
        self.note_answers(first, effects);
    }

    /// Says what names mean from now on. To be said before [`Partition::start`]; afterwards only where a queue lives may change, as
    /// [`Effect::Place`] says.
    pub fn address_by(&mut self, addressing: Arc<Addressing>) {
        self.settings.addressing = addressing;
    }

    /// Carries out a durable command. Commands come in log order, without gaps, each once.
    pub fn apply(&mut self, position: Position, command: Command, effects: &mut Vec<Effect>) {
        debug_assert!(
            self.applied.is_none_or(|applied| applied.next() == position),
            "gap before {position:?}"
        );
        self.applied = Some(position);
        let first = effects.len();
        let begins = durability::may_begin_binding(&command);
        if durability::may_end_binding(&command) {
            self.follows = self.proposals_made;
        }
        match command {
            Command::Declare { queue } => {
                self.declare_queue(&queue);
            }
            Command::Subscribe(subscription) => self.apply_subscribe(subscription, effects),
            Command::Unsubscribe { name } => self.apply_unsubscribe(&name, effects),
            Command::Delete { queue } => self.delete_address(&queue, effects),
            Command::Bind(binding) => self.apply_bind(binding),
            Command::Unbind { topic, queue } => self.apply_unbind(&topic, &queue, effects),
            Command::Chunk(_) => {}
            Command::Enqueue(sent) => self.enqueue_durable(position, vec![sent], effects),
            Command::Settle(settlements) => self.settle_durable(&settlements, effects),
            Command::CountDelivery { queue, tags } => self.count_delivery(queue, &tags),
            Command::Lease { queue, before_first, until, tags } => {
                self.apply_lease(queue, before_first, until, &tags);
            }
            Command::Touch { queue, until, entries } => self.apply_touch(queue, until, &entries),
            Command::Configure { queue, options } => self.apply_configure(&queue, options),
            Command::Transact(changes) => self.carry_out(position, changes, effects),
            Command::Left { sends } => {
                let (ordinals, sends): (Vec<u32>, _) = sends.into_iter().unzip();
                self.enqueue_left(position, ordinals.iter().copied(), sends, effects);
            }
            Command::Prepare { id, changes } => self.apply_prepare(position, id, changes, effects),
            Command::Fire { due, next, sent } => self.apply_fire(position, due, next, sent, effects),
            Command::Unschedule { jobs } => self.apply_unschedule(&jobs, effects),
            Command::Shelve { jobs } => self.apply_shelve(position, &jobs, effects),
            Command::Unshelve { shelf, jobs } => self.apply_unshelve(shelf, &jobs, effects),
            Command::Promise { id, branch, participants } => self.apply_promise(id, branch, participants),
            Command::Decide { id, participants } => self.apply_decide(id, participants),
            Command::Overrule { id, branch, participants, commit } => {
                self.apply_overrule((id, branch), participants, commit, effects);
            }
            Command::ForgetBranch { branch } => self.branches.forget(&branch),
            Command::Leave { queue, to } => {
                self.apply_leave(queue, to);
                self.go_on_moving(effects);
            }
            Command::Commit { id } => self.apply_commit(id, effects),
            Command::Abort { id } => self.apply_abort(id, effects),
            Command::Forget { id } => {
                self.decided.remove(&id);
            }
        }
        if let Some(completion) = self.proposals.pop_front() {
            self.complete(completion, effects);
            if begins {
                // What waited for memory may go through the log now.
                self.unpark(effects);
            }
            self.unpark_held_by(HeldBy::Log, effects);
            self.resume_behind_sends(effects);
        }
        self.dispatch_freed(effects);
        self.note_answers(first, effects);
        self.announce_addresses(effects);
    }

    /// Takes in what is not durable by itself. Never called before recovery has ended.
    pub fn soft(&mut self, event: Event, effects: &mut Vec<Effect>) {
        let Some(event) = self.waiting.behind_its_attach(event) else { return };
        let Some(event) = self.behind_its_sends(event) else { return };
        let first = effects.len();
        self.take(event, effects);
        self.dispatch_freed(effects);
        self.note_answers(first, effects);
        self.announce_addresses(effects);
    }

    pub(crate) fn take(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Publish(publish) => self.publish(publish, effects),
            Event::Chunk { .. } | Event::Abandon { .. } | Event::WantChunk { .. } => {
                self.pass_on(event, effects);
            }
            Event::PieceUnread { upload, reason } => self.piece_unread(upload, reason, effects),
            Event::Attach(attach) => self.attach(attach, effects),
            Event::Detach { consumer, delivered, ticket } => {
                self.detach(consumer, delivered, ticket, effects)
            }
            Event::Credit { consumer, add } => self.credit(consumer, add, effects),
            Event::Drain { consumer } => self.drain(consumer, effects),
            Event::Settle(settle) => self.settle(settle, effects),
            Event::Seal { transaction } => self.seal(transaction, effects),
            Event::Commit { transaction, participants, ticket } => {
                self.commit(transaction, &participants, ticket, effects);
            }
            Event::Rollback { transaction, ticket } => self.rollback(transaction, ticket, effects),
            Event::EndBranch { .. }
            | Event::PrepareBranch { .. }
            | Event::DecideBranch { .. }
            | Event::ForgetBranch { .. }
            | Event::ListBranches { .. }
            | Event::Redrive { .. } => self.take_order(event, effects),
            Event::Move { .. }
            | Event::ListMoves { .. }
            | Event::Placed { .. }
            | Event::Follow(_)
            | Event::Leave { .. } => self.about_moves(event, effects),
            Event::Declare { destination, connection, steals, ticket } => {
                self.declare(destination, (connection, ticket), steals, effects);
            }
            Event::Unsubscribe { name, connection, ticket } => {
                self.unsubscribe(name, connection, ticket, effects);
            }
            Event::Delete { destination, connection, ticket } => {
                self.delete(destination, connection, ticket, effects);
            }
            Event::Claim { .. } | Event::Disclaim { .. } | Event::Concluded { .. } => {
                self.about_claims(event, effects);
            }
            Event::Introduce { connection, client } => self.introduce(connection, client, effects),
            Event::AddProducer { connection, producer } => self.add_producer(connection, producer, effects),
            Event::RemoveProducer { connection, producer } => {
                self.remove_producer(connection, &producer, effects);
            }
            Event::Written { connection, bytes } => self.written(connection, bytes, effects),
            Event::Closed { connection } => self.closed(connection, effects),
            Event::Fetched { bodies } => self.fetched(bodies, effects),
            Event::EndJobs { wanted, connection, ticket } => {
                self.end_jobs(&wanted, connection, ticket, effects);
            }
            Event::BrowseJobs { wanted, reply_to, connection, ticket } => {
                self.browse_jobs(&wanted, &reply_to, (connection, ticket), effects);
            }
            Event::Ask { .. } | Event::Seek { .. } | Event::Lease(_) => self.about_queues(event, effects),
            Event::Link(event) => self.about_link(event, effects),
            Event::Echo { connection, ticket } => self.echo(connection, ticket, effects),
            Event::Recalled { key, sent } => self.recalled(key, sent, effects),
            Event::ShelfRead { position, jobs } => self.shelf_read(position, jobs, effects),
            Event::ProposalsFailed { reason } => self.proposals_failed(&reason, effects),
            Event::Space { ample } => self.space(ample, effects),
            Event::Tick { now } => self.tick(now, effects),
            Event::Peer { from, peer } => self.peer(from, peer, effects),
        }
    }

    /// What managers of transactions and operators say.
    fn take_order(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::EndBranch { branch, transaction, participants, ticket } => {
                self.end_branch(branch, transaction, participants, ticket, effects);
            }
            Event::PrepareBranch { branch, connection, ticket } => {
                self.prepare_branch(branch, connection, ticket, effects);
            }
            Event::DecideBranch { branch, decision, connection, ticket } => {
                self.decide_branch(&branch, decision, (connection, ticket), effects);
            }
            Event::ForgetBranch { branch, connection, ticket } => {
                self.forget_branch(branch, connection, ticket, effects);
            }
            Event::ListBranches { connection, ticket } => self.list_branches(connection, ticket, effects),
            Event::Redrive { wanted, connection, ticket } => {
                self.redrive(*wanted, (connection, ticket), effects);
                self.go_on_redriving(effects);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.take_time(now);
        self.pass_time(effects);
        self.sweep(effects);
        self.wake(effects);
        self.end_leases(effects);
        self.end_waits(effects);
        self.refuse_late(effects);
        self.end_gatherings(effects);
        self.look_for_slow(effects);
        self.end_overdue(effects);
        self.look_who_has_pieces(effects);
        self.go_on_carrying(effects);
        self.let_go_some(effects);
        self.go_on_browsing(effects);
        self.go_on_trimming(effects);
        self.go_on_redriving(effects);
        self.go_on_moving(effects);
        self.forget_links();
        self.free_overdue_names(effects);
        self.make_way();
        self.leave_what_is_ahead();
    }

    fn take_time(&mut self, now: Now) {
        self.now_ms = self.now_ms.max(now.ticks_ms);
        let (expiries, jobs) = (&self.expiries, &self.jobs);
        let begun = self.clock.advance(now, |era| expiries.is_free(era) && jobs.is_free(era));
        if let Some(era) = begun {
            self.expiries.begin_era(era);
            self.jobs.begin_era(era);
        }
    }

    /// Ends recovery: settles what a crash left in doubt. Called once, after the last replayed command.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        self.is_live = true;
        self.account_anew();
        self.count_prepared();
        self.announce_all(effects);
        self.drop_all_superseded(effects);
        self.trim_all(effects);
        self.bind_by_rules(effects);
        self.resolve_transactions(effects);
        self.return_anew();
    }

    /// The position of the last command that was applied.
    pub fn applied(&self) -> Option<Position> {
        self.applied
    }

    /// What happened to messages since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What its messages take.
    pub fn memory(&self) -> Memory {
        self.bodies.memory()
    }

    /// Queues with their number of entries, in no particular order.
    pub fn queues(&self) -> impl Iterator<Item = (&Destination, u64)> {
        self.queues.values().map(|queue| (&queue.source, queue.len()))
    }

    /// What came into each queue and left it, and how many entries are there, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = (&Destination, QueueCounts, u64)> {
        self.queues.values().map(|queue| (&queue.source, queue.counts, queue.len()))
    }

    /// A queue whose account of what it holds is not what it holds, or any if those of several are not their sums: there must be
    /// none.
    pub fn miscounted(&self) -> Option<&Destination> {
        let wrong = |queue: &&Queue| {
            let (mut load, mut away) = (Load::default(), Load::default());
            for (_, entry) in queue.lanes.iter().flat_map(|(_, lane)| lane.iter()) {
                let bytes = self.bodies.headers(entry).map_or(0, |(_, bytes)| bytes);
                load.add(bytes);
                if entry.state != State::Ready {
                    away.add(bytes);
                }
            }
            let pages = queue.lanes.iter().flat_map(|(_, lane)| lane.folded_pages());
            pages.for_each(|page| load.add_all(page.load()));
            (load, away) != (queue.load, queue.away)
                || queue.incoming != Load::default() && self.proposals.is_empty()
        };
        let wrong = self.queues.values().find(wrong);
        let lanes = self.queues.values().flat_map(|queue| queue.lanes.iter());
        let pages = lanes.flat_map(|(_, lane)| lane.folded_pages()).chain(self.ending_pages());
        let is_off = self.is_misaccounted() || !self.has_counted_open() || !self.bodies.has_counted(pages);
        wrong.or_else(|| self.queues.values().next().filter(|_| is_off)).map(|queue| &queue.source)
    }

    pub(crate) fn propose(
        &mut self,
        command: Command,
        urgency: Urgency,
        completion: Completion,
        effects: &mut Vec<Effect>,
    ) {
        self.propose_for(None, command, urgency, completion, effects);
    }

    /// As `propose`, for the message that is sent to these addresses.
    pub(crate) fn propose_for(
        &mut self,
        addresses: Option<Arc<[Destination]>>,
        command: Command,
        urgency: Urgency,
        completion: Completion,
        effects: &mut Vec<Effect>,
    ) {
        self.proposals.push_back(completion);
        self.proposals_made += 1;
        let durability = self.durability_of(&command);
        let compression = self.compression_of(&command);
        effects.push(Effect::Propose { command, urgency, durability, compression, addresses });
    }

    /// Where an address lives.
    pub(crate) fn partition_of(&self, destination: &Destination) -> PartitionId {
        self.settings.addressing.partition_of(self.settings.placement, destination)
    }

    /// The durable queue of this address, made if it is not there.
    pub(crate) fn declare_queue(&mut self, destination: &Destination) -> QueueId {
        let address = self.addresses.get_or_make(destination);
        if let Some(id) = address.bound.own() {
            return id;
        }
        let id = QueueId(self.next_queue);
        self.next_queue += 1;
        address.bound.insert(id, None);
        self.add_queue(self.new_queue(id, destination.clone()));
        self.join_spreads(id, destination);
        id
    }

    pub(crate) fn add_queue(&mut self, queue: Queue) {
        if !queue.id.is_volatile() {
            self.addresses.lasting.insert(queue.id);
        }
        self.queues.insert(queue.id, queue);
    }

    /// A volatile queue bound to this address, for what matches the selector.
    pub(crate) fn bind_volatile(&mut self, destination: &Destination, selector: Option<Selector>) -> QueueId {
        let id = QueueId::volatile(self.next_volatile_queue);
        self.next_volatile_queue += 1;
        self.addresses.bound_mut(destination).insert(id, selector.map(|selector| vec![selector]));
        self.add_queue(self.new_queue(id, destination.clone()));
        id
    }

    /// One more entry at the end of a queue, behind all others of its priority; but ahead of what was sent here, if it has `moved`
    /// here from where the queue lived before. See [`postroad_model::Sent::moved`].
    pub(crate) fn push_entry(&mut self, id: QueueId, key: MessageKey, moved: Option<u32>) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let Some((place, message, bytes)) = self.bodies.claim(key) else { return };
        let in_log = matches!(key, MessageKey::Durable { .. }) && !queue.id.is_volatile();
        let lane = LaneNumber::of(message.priority, !in_log);
        let lane = if moved.is_some() { lane.ahead() } else { lane };
        let begins_groups = queue.groups.is_none() && queue.has_groups() && message.group().is_some();
        let entry = Entry {
            key,
            place,
            stamp: queue.next_stamp,
            failed_deliveries: moved.unwrap_or(0),
            uncounted_deliveries: 0,
            state: State::Ready,
        };
        queue.next_stamp += 1;
        self.counters.enqueued += 1;
        let tag = queue.push(lane, entry);
        let page_entries = queue.lanes.get(lane).map_or(1, Lane::page_entries);
        queue.counts.enqueued += 1;
        if let Some(value) = message.last_value().filter(|_| queue.keeps_last) {
            queue.note_value(value, key, tag);
        }
        let (_, sequence) = untag(tag);
        self.expiries.insert(message.expires_at_ms, id, tag);
        let visible_at_ms = message.visible_at_ms();
        queue.load.add(bytes);
        let in_memory = if matches!(key, MessageKey::Volatile(_)) { message.bytes.len() as u64 } else { 0 };
        queue.volatile_bytes += in_memory;
        self.accounts.add(queue.owners, bytes, in_memory);
        if begins_groups {
            self.begin_groups(id);
        }
        if !self.delay_new(id, tag, visible_at_ms) {
            self.wake_who_wants(id, key, tag);
        }
        // It is the first of a page: the one before is full.
        if sequence.is_multiple_of(page_entries) {
            self.fold_what_is_idle(id, lane, 0..0);
        }
    }

    /// A queue gives up its claim on a message.
    pub(crate) fn drop_reference(&mut self, key: MessageKey, effects: &mut Vec<Effect>) {
        let gone = self.bodies.unrefer(key);
        self.release_gone(key, gone, effects);
    }

    /// As `drop_reference`, and the message was in hand there.
    pub(crate) fn put_down(&mut self, key: MessageKey, effects: &mut Vec<Effect>) {
        let gone = self.bodies.put_down(key);
        self.release_gone(key, gone, effects);
    }

    pub(crate) fn release_gone(&mut self, key: MessageKey, gone: Option<Gone>, effects: &mut Vec<Effect>) {
        let Some(Gone { bytes, chunks }) = gone else { return };
        self.released(key, bytes, effects);
        if let Some(chunks) = chunks {
            chunks::release(&chunks, effects);
        }
    }

    pub(crate) fn released(&mut self, key: MessageKey, bytes: u64, effects: &mut Vec<Effect>) {
        match key {
            MessageKey::Durable { position, ordinal } => {
                effects.push(Effect::Release { position, ordinal, bytes });
            }
            MessageKey::Volatile(_) => self.unpark_held_by(HeldBy::Memory, effects),
        }
    }

    pub(crate) fn insert_volatile(&mut self, message: Message, effects: &mut Vec<Effect>) -> MessageKey {
        self.retain_chunks(&message, effects);
        let key = MessageKey::Volatile(self.next_volatile_message);
        self.next_volatile_message += 1;
        self.bodies.insert(key, message);
        key
    }

    pub(crate) fn reply(
        &self,
        connection: ConnectionId,
        ticket: Ticket,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Reply { connection, ticket, result });
    }

    /// The entry, if the queue still holds it; its page is open then.
    pub(crate) fn entry(&mut self, queue: QueueId, tag: EntryTag) -> Option<&mut Entry> {
        self.open_page(queue, tag);
        self.queues.get_mut(&queue)?.entry(tag)
    }

    /// What the entry claims, to be looked up.
    pub(crate) fn sought(&mut self, queue: QueueId, tag: EntryTag) -> Option<Sought> {
        self.entry(queue, tag).map(|entry| Sought::from(&*entry))
    }
}

/// Jobs that lie in one page: they are small beside entries.
fn jobs_per_page(settings: &Settings) -> usize {
    usize::try_from(settings.page_entries).unwrap_or(usize::MAX).saturating_mul(4)
}
