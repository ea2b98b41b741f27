//! The partition: all state of one owner thread, and its two doors.

use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, EntryTag, Event, Message, MessageKey, Now,
    PartitionId, Position, QueueId, Refusal, Ticket, Urgency,
};
use postroad_routing::{Addressing, Policies};
use postroad_selector::Selector;

use crate::addresses::address::Addresses;
use crate::addresses::offline;
use crate::ask;
use crate::clock::Clock;
use crate::delivery::group::begin_groups;
use crate::delivery::selection::PropertiesOf;
use crate::delivery::spread::end_crowded;
use crate::delivery::{backlog, gathering};
use crate::documents;
use crate::explain::messages_of;
use crate::figures::QueueCounts;
use crate::flow::Passed;
use crate::intake::account::is_misaccounted;
use crate::intake::audit::OriginOf;
use crate::intake::blocked::BlockedOn;
use crate::intake::chunks;
use crate::intake::chunks::look_who_has_pieces;
use crate::intake::limit::new_queue;
use crate::intake::link::forget_links;
use crate::intake::policy_round;
use crate::intake::queue_quota;
use crate::intake::waiting;
use crate::intake::waiting::{behind_its_sends, echo};
use crate::leader::Leader;
use crate::leaving;
use crate::log::completion::Completion;
use crate::log::durability;
use crate::log::durability::{compression_of, durability_of};
use crate::memory::bodies::{BodyLocation, Gone};
use crate::memory::packing::leave_what_is_ahead;
use crate::moving::resume_moves;
use crate::notice;
use crate::pausing;
use crate::protocols::{CountRetained, MarkDead, Protocols};
use crate::queue::{Entry, EntryState, Lane, LaneNumber, Load, Queue, untag};
use crate::schedule::WriteDue;
use crate::settings::Settings;
use crate::settling::{doubt, lending};
use crate::state::State;
use crate::traces;
use crate::transaction::{self, Rest, apply_decide, count_prepared, resolve_transactions};

/// Counters of messages since the start; they only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were taken in, whatever became of them.
    pub received: u64,
    /// Selectors installed at the addresses of these messages, counted for each message.
    pub filters: u64,
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
    pub advisories_dropped: u64,
    /// Messages that a topic could not retain, for want of room.
    pub unretained: u64,
    /// Entries set aside because their body could not be read from the disk.
    pub unreadable: u64,
    /// Pages of entries that were packed, to save memory.
    pub packed_pages: u64,
    /// Packed pages that were opened again.
    pub opened_pages: u64,
}

impl Counters {
    /// Counts a message that came in for this address.
    pub(crate) fn receive(&mut self, to: &Destination, addresses: &Addresses) {
        self.received += 1;
        if to.kind == DestinationKind::Topic {
            self.filters += addresses.filters_of(to);
        }
    }
}

/// Memory taken by the messages of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Messages that some queue or prepared transaction refers to, wherever their bodies are.
    pub messages: u64,
    /// How many of them lie in packed pages.
    pub packed_messages: u64,
    /// Bytes of durable messages whose bodies are in memory.
    pub resident_bytes: u64,
    /// Bytes of packed pages.
    pub page_bytes: u64,
    /// Bytes of messages that are only in memory.
    pub volatile_bytes: u64,
}

/// The state machine that owns the addresses whose names hash to it.
pub struct Partition {
    pub(crate) settings: Settings,
    /// The monotone clock, in ms: all waits are counted by it.
    pub(crate) now_ms: u64,
    /// The wall clock, with its earlier settings: for expiry and schedules.
    pub(crate) clock: Clock,
    pub(crate) protocols: Protocols,
    pub(crate) counters: Counters,
    /// The replicated half: a snapshot has all of it.
    pub(crate) state: State,
    /// The volatile half: a snapshot has none of it.
    pub(crate) leader: Leader,
}

impl Partition {
    /// An empty partition.
    pub fn new(settings: Settings) -> Partition {
        Partition {
            state: State::new(&settings),
            leader: Leader::new(&settings),
            settings,
            now_ms: 0,
            clock: Clock::default(),
            protocols: Protocols::default(),
            counters: Counters::default(),
        }
    }

    /// This replica leads from now on: transaction ids and leases are of this run, unlike those of
    /// earlier leaders. To be said before [`Partition::start`].
    pub fn begin_run(&mut self, incarnation: u64) {
        self.settings.incarnation = incarnation;
    }

    /// Says how to read the properties of messages, which only their protocols know. To be said
    /// before the first command; until then messages have none.
    pub fn read_properties_by(&mut self, properties_of: PropertiesOf) {
        self.protocols.properties_of = properties_of;
    }

    /// Says how to read who sent a message, which only its protocol knows. To be said before the
    /// first command; until then no message is known again.
    pub fn read_origins_by(&mut self, origin_of: OriginOf) {
        self.protocols.origin_of = origin_of;
    }

    /// Says how to write a message that is due, which only its protocol knows. Until then it is as
    /// it was sent.
    pub fn write_due_by(&mut self, write_due: WriteDue) {
        self.protocols.write_due = write_due;
    }

    /// Says how to write a dead letter's past into it, which only its protocol knows. Until then it
    /// is as it was sent.
    pub fn mark_dead_letters_by(&mut self, mark_dead: MarkDead) {
        self.protocols.mark_dead = mark_dead;
    }

    /// Says how to write into a message that a topic keeps how many it keeps with it. Until then it
    /// is as it was sent.
    pub fn count_retained_by(&mut self, count_retained: CountRetained) {
        self.protocols.count_retained = count_retained;
    }

    /// Whether a message to this topic would reach a subscriber now.
    pub fn is_heard(&self, topic: &Destination) -> bool {
        self.state.addresses.bounds(topic).iter().any(|bound| !bound.is_empty())
    }

    /// Replaces the operators' policies. Changes to stored state that follow from them go through
    /// the log, so replicas need not know the policies.
    pub fn follow(&mut self, policies: Arc<Policies>, effects: &mut Vec<Effect>) {
        let before = std::mem::replace(&mut self.settings.policies, policies);
        self.leader.log.barrier = self.leader.log.made;
        let first = effects.len();
        self.limit_anew(&before, effects);
        self.return_anew();
        offline::follow(self);
        self.leader.intake.links.note_answers(first, effects);
    }

    /// Replaces the meaning of names. Called before [`Partition::start`]; afterwards only the place
    /// of a queue may change, as [`Effect::Place`] says.
    pub fn address_by(&mut self, addressing: Arc<Addressing>) {
        self.settings.addressing = addressing;
    }

    /// Carries out a durable command. Commands come in log order, without gaps, each once. A leader
    /// carries out a large transaction over several ticks, and then the commands after it.
    pub fn apply(&mut self, position: Position, command: Command, effects: &mut Vec<Effect>) {
        if self.leader.transactions.slices.is_busy() {
            return self.leader.transactions.slices.put_behind(position, command);
        }
        let first = effects.len();
        self.apply_next(position, command, effects);
        end_step(self, first, effects);
    }

    /// Carries out at once the rest of commands that [`Partition::apply`] was given: to be done
    /// before a snapshot.
    pub fn finish_records(&mut self, effects: &mut Vec<Effect>) {
        let first = effects.len();
        while self.leader.transactions.slices.is_busy() {
            transaction::go_on(self, effects);
            end_step(self, first, effects);
        }
    }

    /// Whether the rest of a command waits for the next tick: a snapshot had better wait too.
    pub fn has_unfinished_records(&self) -> bool {
        self.leader.transactions.slices.is_busy()
    }

    /// Whether something is closed or delivered in slices, which goes on with the next tick.
    pub fn has_slices_left(&self) -> bool {
        let is_serving = self.leader.delivery.backlogs.next_ms(self.now_ms).is_some();
        is_serving || self.leader.transactions.closings.is_busy()
    }

    /// Whether the event would wait for transactions of its connection that are being closed.
    pub fn holds_back(&self, event: &Event) -> bool {
        self.leader.transactions.closings.holds_back(event)
    }

    pub(crate) fn apply_next(&mut self, position: Position, command: Command, effects: &mut Vec<Effect>) {
        self.state.apply_at(position);
        let begins = durability::may_begin_binding(&command);
        if durability::may_end_binding(&command) {
            self.leader.log.barrier = self.leader.log.made;
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
            Command::Settle(settlements) => {
                for end in settlements {
                    self.end_entry(end.queue, end.tag, end.cause, effects);
                }
            }
            Command::CountDelivery { queue, tags } => self.count_delivery(queue, &tags),
            Command::Lease { queue, before_first, until, tags } => {
                self.apply_lease(queue, before_first, until, &tags);
            }
            Command::Touch { queue, until, entries } => self.apply_touch(queue, until, &entries),
            Command::Configure { queue, options } => self.apply_configure(&queue, options),
            Command::Transact(changes) => {
                transaction::carry_out(self, Rest::of_record(position, changes, effects), effects);
            }
            Command::Left { sends } => {
                let (ordinals, sends): (Vec<u32>, _) = sends.into_iter().unzip();
                self.enqueue_left(position, ordinals.iter().copied(), sends, effects);
            }
            Command::Prepare { id, changes } => self.apply_prepare(position, id, changes, effects),
            Command::Fire { due, next, sent } => self.apply_fire(position, due, next, sent, effects),
            Command::Unschedule { jobs } => self.apply_unschedule(&jobs, effects),
            Command::Shelve { jobs } => self.state.jobs.apply_shelve(position, &jobs, effects),
            Command::Unshelve { shelf, jobs } => self.state.jobs.apply_unshelve(shelf, &jobs, effects),
            Command::Promise { id, branch, participants } => {
                self.state.branches.apply_promise(id, branch, participants)
            }
            Command::Decide { id, participants } => apply_decide(&mut self.state, id, participants),
            Command::Overrule { id, branch, participants, commit } => {
                self.apply_overrule((id, branch), participants, commit, effects);
            }
            Command::ForgetBranch { branch } => self.state.branches.forget(&branch),
            Command::Pause { queue, paused } => pausing::apply(self, &queue, paused, effects),
            Command::Document(change) => documents::apply(self, *change),
            Command::Leave { queue, to } => {
                self.apply_leave(queue, to);
                self.go_on_moving(effects);
            }
            Command::Remember { known } => {
                let known = crate::log::known::read(&known).unwrap_or_default();
                self.state.audit.remember(known, self.settings.audited_producers_max);
            }
            Command::Commit { id } => self.apply_commit(id, effects),
            Command::Abort { id } => self.apply_abort(id, effects),
            Command::Forget { id } => {
                self.state.decided.remove(&id);
            }
        }
        if !self.leader.transactions.slices.goes_on(begins) {
            transaction::record_ended(self, begins, effects);
        }
    }

    /// Handles an event that is not durable by itself. Never called before recovery has ended.
    pub fn soft(&mut self, event: Event, effects: &mut Vec<Effect>) {
        if self.leader.has_stopped {
            return self.refuse_event(event, effects);
        }
        let first = effects.len();
        if let Some(event) = transaction::behind_its_transactions(self, event, effects) {
            self.take_in_turn(event, effects);
        }
        end_step(self, first, effects);
    }

    /// Takes in an event, unless it has to wait after its consumer's attach or its connection's
    /// sends.
    pub(crate) fn take_in_turn(&mut self, event: Event, effects: &mut Vec<Effect>) {
        let Some(event) = self.leader.intake.waiting.behind_its_attach(event) else { return };
        if let Some(event) = behind_its_sends(&mut self.leader, event) {
            self.take(event, effects);
        }
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
                leaving::detach(self, consumer, (delivered, ticket), effects);
            }
            Event::Credit { consumer, add } => self.credit(consumer, add, effects),
            Event::Drain { consumer } => self.drain(consumer, effects),
            Event::Settle(settle) => transaction::settle(self, settle, effects),
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
            | Event::Redrive { .. }
            | Event::Pause { .. }
            | Event::Document(_) => self.handle_admin_request(event, effects),
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
                let Leader { claims, connections, .. } = &mut self.leader;
                claims.handle(event, (connections, self.now_ms), effects);
            }
            Event::Introduce { .. } | Event::AddProducer { .. } | Event::RemoveProducer { .. } => {
                notice::about_client(&mut self.state, &mut self.leader, event, effects);
            }
            Event::Written { connection, bytes } => self.written(connection, bytes, effects),
            Event::Closed { connection } => leaving::closed(self, connection, effects),
            Event::Fetched { bodies } => self.fetched(bodies, effects),
            Event::EndJobs { wanted, connection, ticket } => {
                self.end_jobs(&wanted, connection, ticket, effects);
            }
            Event::BrowseJobs { wanted, reply_to, connection, ticket } => {
                self.browse_jobs(&wanted, &reply_to, (connection, ticket), effects);
            }
            Event::Ask { .. } | Event::Seek { .. } | Event::Lease(_) => self.about_queues(event, effects),
            Event::Link(event) => self.about_link(event, effects),
            Event::Echo { connection, ticket } => echo(&mut self.leader, connection, ticket, effects),
            Event::Recalled { key, sent } => self.recalled(key, sent, effects),
            Event::ShelfRead { position, jobs } => self.shelf_read(position, jobs, effects),
            Event::ProposalsFailed { reason } => self.proposals_failed(&reason, effects),
            Event::Space { ample } => self.space(ample, effects),
            Event::Tick { now } => self.tick(now, effects),
            Event::Peer { from, peer } => self.peer(from, peer, effects),
        }
    }

    /// Requests of transaction managers and operators.
    fn handle_admin_request(&mut self, event: Event, effects: &mut Vec<Effect>) {
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
            Event::ListBranches { connection, ticket } => {
                self.state.branches.list_branches(connection, ticket, effects)
            }
            Event::Pause { queue, paused, connection, ticket } => {
                pausing::pause(self, queue, paused, (connection, ticket), effects);
            }
            Event::Document(request) => documents::replace(self, *request, effects),
            Event::Redrive { wanted, connection, ticket } => {
                self.redrive(*wanted, (connection, ticket), effects);
                self.go_on_redriving(effects);
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.take_time(now);
        transaction::go_on(self, effects);
        transaction::go_on_closing(self, effects);
        self.leader.transactions.senders.go_on();
        self.pass_time(effects);
        self.sweep(effects);
        self.wake(effects);
        doubt::end_overdue(self, effects);
        lending::record(self, effects);
        self.end_leases(effects);
        self.end_waits(effects);
        self.refuse_late(effects);
        gathering::end_overdue(self, effects);
        self.look_for_slow(effects);
        waiting::go_on_resuming(self, effects);
        policy_round::go_on(self, effects);
        self.go_on_unparking(effects);
        self.end_overdue(effects);
        look_who_has_pieces(&mut self.leader, self.now_ms, effects);
        self.go_on_carrying(effects);
        self.let_go_some(effects);
        backlog::go_on(self, effects);
        ask::go_on(self, effects);
        self.go_on_browsing(effects);
        self.go_on_trimming(effects);
        self.go_on_redriving(effects);
        self.go_on_moving(effects);
        forget_links(&mut self.leader, self.now_ms);
        offline::end_overdue(self, effects);
        self.leader.claims.free_overdue(self.now_ms, effects);
        self.shrink_to_budget();
        leave_what_is_ahead(&mut self.state, &mut self.leader, &self.settings);
    }

    pub(crate) fn take_time(&mut self, now: Now) {
        self.now_ms = self.now_ms.max(now.ticks_ms);
        let (expiries, jobs) = (&self.state.expiries, &self.state.jobs);
        let begun = self.clock.advance(now, |era| expiries.is_free(era) && jobs.is_free(era));
        if let Some(era) = begun {
            self.state.expiries.begin_era(era);
            self.state.jobs.begin_era(era);
        }
    }

    /// Begins to lead: settles transactions that a crash or a former leader left in doubt. Called
    /// after the last command that former leaders have written, or that a restart has replayed.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        self.leader.is_live = true;
        self.leader.has_stopped = false;
        resume_moves(&mut self.state, &mut self.leader);
        self.account_anew();
        count_prepared(&mut self.state, &mut self.leader);
        self.state.addresses.announce_all(effects);
        self.drop_all_superseded(effects);
        self.trim_all(effects);
        self.bind_by_rules(effects);
        resolve_transactions(&mut self.state, &mut self.leader, effects);
        self.return_anew();
        offline::follow(self);
        doubt::find(self);
    }

    /// The position of the last command that was applied.
    pub fn applied(&self) -> Option<Position> {
        self.state.applied
    }

    /// Counters of messages since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Memory taken by its messages.
    pub fn memory(&self) -> Memory {
        self.state.bodies.memory()
    }

    /// Queues with their number of entries, in no particular order.
    pub fn queues(&self) -> impl Iterator<Item = (&Destination, u64)> {
        self.state.queues.values().map(|queue| (&queue.source, queue.len()))
    }

    /// The messages of each queue with a name of its own, in no particular order, for checks: all
    /// are visited.
    pub fn messages(&self) -> impl Iterator<Item = (&Destination, QueueId, EntryTag)> {
        messages_of(self)
    }

    /// Counters and number of entries of each queue, in no particular order.
    pub fn flows(&self) -> impl Iterator<Item = (&Destination, QueueCounts, u64)> {
        self.state.queues.values().map(|queue| (&queue.source, queue.counts.all(), queue.len()))
    }

    /// A queue whose statistics differ from its entries, or any queue if the sums over several
    /// queues differ: there must be none.
    pub fn miscounted(&self) -> Option<&Destination> {
        let wrong = |queue: &&Queue| {
            let (mut load, mut away) = (Load::default(), Load::default());
            for (_, entry) in queue.lanes.iter().flat_map(|(_, lane)| lane.iter()) {
                let bytes = self.state.bodies.headers(entry).map_or(0, |(_, bytes)| bytes);
                load.add(bytes);
                if entry.state != EntryState::Ready {
                    away.add(bytes);
                }
            }
            let pages = queue.lanes.iter().flat_map(|(_, lane)| lane.packed_pages());
            pages.for_each(|page| load.add_all(page.load()));
            (load, away) != (queue.load, queue.away)
                || queue.incoming != Load::default() && self.leader.log.pending.is_empty()
        };
        let wrong = self.state.queues.values().find(wrong);
        let lanes = self.state.queues.values().flat_map(|queue| queue.lanes.iter());
        let pages = lanes.flat_map(|(_, lane)| lane.packed_pages()).chain(self.state.endings.ending_pages());
        let is_off = is_misaccounted(&self.state, &self.leader)
            || !self.leader.transactions.has_counted_open()
            || !self.state.bodies.has_counted(pages);
        wrong.or_else(|| self.state.queues.values().next().filter(|_| is_off)).map(|queue| &queue.source)
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
        self.leader.log.pending.push_back(completion);
        self.leader.log.made += 1;
        queue_quota::expect(self, &command);
        let durability = durability_of(&self.state, &self.settings, &command);
        let compression = compression_of(&self.settings, &command);
        effects.push(Effect::Propose { command, urgency, durability, compression, addresses });
    }

    /// The durable queue of this address, made if it is not there.
    pub(crate) fn declare_queue(&mut self, destination: &Destination) -> QueueId {
        let address = self.state.addresses.get_or_make(destination);
        if let Some(id) = address.bound.own() {
            return id;
        }
        let id = self.state.take_queue_id(self.settings.id);
        self.state.addresses.bound_mut(destination).insert(id, None);
        let queue = new_queue(&self.state, &self.leader, &self.settings, id, destination.clone());
        add_queue(&mut self.state, &mut self.leader, queue);
        self.join_spreads(id, destination);
        id
    }

    /// Adds an entry at the end of a queue, after all others of its priority; but before messages
    /// sent here directly, if it has `moved` here from the queue's former partition. See
    /// [`postroad_model::Sent::moved`].
    pub(crate) fn push_entry(&mut self, id: QueueId, key: MessageKey, moved: Option<u32>) {
        let Some(queue) = self.state.queues.get_mut(&id) else { return };
        let Some((place, message, bytes)) = self.state.bodies.claim(key) else { return };
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
            state: EntryState::Ready,
        };
        queue.next_stamp += 1;
        self.counters.enqueued += 1;
        let tag = queue.push(lane, entry);
        let page_entries = queue.lanes.get(lane).map_or(1, Lane::page_entries);
        queue.counts.of_lane(lane).enqueued += 1;
        if self.leader.is_live {
            self.leader.flows.note(queue, self.now_ms, Passed::comes);
        }
        if queue.requests.is_watched {
            self.leader.leasing.watches.note(id);
        }
        if let Some(value) = message.last_value().filter(|_| queue.keeps_last) {
            queue.note_value(value, key, tag);
        }
        let (_, sequence) = untag(tag);
        self.state.expiries.insert(message.expires_at_ms, id, tag);
        let visible_at_ms = message.visible_at_ms();
        if let Some(of) = message.deduplication() {
            queue.duplicates.get_or_insert_default().note(of, tag);
        }
        queue.load.add(bytes);
        let in_memory = if matches!(key, MessageKey::Volatile(_)) { message.bytes.len() as u64 } else { 0 };
        queue.volatile_bytes += in_memory;
        self.leader.intake.accounts.add(queue.owners, bytes, in_memory);
        traces::ready(self, id, key, tag);
        if begins_groups {
            begin_groups(&mut self.state, &mut self.leader, id);
        }
        if !self.delay_new(id, tag, visible_at_ms) {
            self.wake_who_wants(id, key, tag);
        }
        // It is the first of a page: the one before is full.
        if sequence.is_multiple_of(page_entries) {
            self.pack_what_is_idle(id, lane, 0..0);
        }
    }

    /// A queue gives up its claim on a message.
    pub(crate) fn drop_reference(&mut self, key: MessageKey, effects: &mut Vec<Effect>) {
        let gone = self.state.bodies.unrefer(key);
        self.release_gone(key, gone, effects);
    }

    /// As `drop_reference`, and the message was in hand there.
    pub(crate) fn put_down(&mut self, key: MessageKey, effects: &mut Vec<Effect>) {
        let gone = self.state.bodies.put_down(key);
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
        if !self.leader.traces.is_idle() {
            self.leader.traces.gone(key);
        }
        match key {
            MessageKey::Durable { position, ordinal } => {
                effects.push(Effect::Release { position, ordinal, bytes });
            }
            MessageKey::Volatile(_) => self.unpark_held_by(BlockedOn::Memory, effects),
        }
    }

    /// The entry, if the queue still holds it; its page is open then.
    pub(crate) fn entry(&mut self, queue: QueueId, tag: EntryTag) -> Option<&mut Entry> {
        self.open_page(queue, tag);
        self.state.queues.get_mut(&queue)?.entry(tag)
    }

    /// The message and body that the entry refers to, for a lookup.
    pub(crate) fn sought(&mut self, queue: QueueId, tag: EntryTag) -> Option<BodyLocation> {
        self.entry(queue, tag).map(|entry| BodyLocation::from(&*entry))
    }
}

/// Follows each step, whose effects begin at `first`.
fn end_step(partition: &mut Partition, first: usize, effects: &mut Vec<Effect>) {
    if std::mem::take(&mut partition.leader.intake.has_ended_queues) {
        partition.unpark(effects);
    }
    end_crowded(partition, effects);
    partition.dispatch_freed(effects);
    partition.leader.leasing.watches.answer(&mut partition.state, effects);
    partition.leader.intake.links.note_answers(first, effects);
    partition.state.addresses.announce_addresses(effects);
    partition.leader.traces.report(effects);
}

pub fn reply(
    connection: ConnectionId,
    ticket: Ticket,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    effects.push(Effect::Reply { connection, ticket, result });
}

impl Settings {
    /// Where an address lives.
    pub fn partition_of(&self, destination: &Destination) -> PartitionId {
        self.addressing.partition_of(self.placement, destination)
    }
}

pub fn add_queue(state: &mut State, leader: &mut Leader, queue: Queue) {
    match queue.id.is_volatile() {
        true => state.addresses.passing.insert(queue.id),
        false => state.addresses.lasting.insert(queue.id),
    };
    state.addresses.listed.insert(&queue);
    leader.intake.accounts.begin(&queue);
    state.queues.insert(queue.id, queue);
}

pub fn insert_volatile(
    state: &mut State,
    leader: &mut Leader,
    mut message: Message,
    effects: &mut Vec<Effect>,
) -> MessageKey {
    leader.intake.uploads.retain_chunks(&message, effects);
    let key = MessageKey::Volatile(leader.volatile.next_message);
    if let Some(trace) = message.take_trace() {
        leader.traces.begin(key, trace);
    }
    leader.volatile.next_message += 1;
    state.bodies.insert(key, message);
    key
}

/// A volatile queue bound to this address, for messages that match the selector.
pub fn bind_volatile(
    state: &mut State,
    leader: &mut Leader,
    settings: &Settings,
    destination: &Destination,
    selector: Option<Selector>,
) -> QueueId {
    let id = QueueId::volatile(leader.volatile.next_queue);
    leader.volatile.next_queue += 1;
    state.addresses.bound_mut(destination).insert(id, selector.map(|selector| vec![selector]));
    add_queue(state, leader, new_queue(state, leader, settings, id, destination.clone()));
    id
}
