//! The partition: all state of one owner thread, and its two doors.

use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, Destination, DestinationKind, Effect, EntryTag, Event, Now, PartitionId, Position,
    QueueId, Refusal, Ticket,
};
use postroad_routing::{Addressing, Policies};
use postroad_selector::Selector;

use crate::addresses::address::Addresses;
use crate::addresses::binding::{apply_bind, apply_unbind, bind_by_rules};
use crate::addresses::destination::{begin_declaring, begin_deleting, delete_address};
use crate::addresses::ending::let_go_some;
use crate::addresses::offline;
use crate::addresses::subscription::{apply_subscribe, apply_unsubscribe, begin_unsubscribing};
use crate::ask::{self, about_queues};
use crate::clock::Clock;
use crate::connection::note_written;
use crate::delivery::browse::go_on_browsing;
use crate::delivery::consumer::{add_credit, begin_attach, begin_drain};
use crate::delivery::dispatch::bodies_fetched;
use crate::delivery::selection::PropertiesOf;
use crate::delivery::slow::look_for_slow;
use crate::delivery::spread::{end_crowded, join_spreads};
use crate::delivery::{backlog, gathering};
use crate::explain::messages_of;
use crate::figures::QueueCounts;
use crate::intake::account::{account_anew, is_misaccounted};
use crate::intake::audit::OriginOf;
use crate::intake::chunks::{look_who_has_pieces, pass_on};
use crate::intake::limit::{go_on_trimming, limit_anew, new_queue, refuse_late, trim_all};
use crate::intake::link::{about_link, forget_links};
use crate::intake::policy_round;
use crate::intake::publish::{enqueue_durable, enqueue_left, take_publish};
use crate::intake::unparking::{go_on_unparking, unpark};
use crate::intake::waiting::{self, behind_its_sends, echo};
use crate::leader::Leader;
use crate::leasing::{apply_configure, apply_lease, apply_touch, dispatch_freed, end_leases, end_waits};
use crate::log::completion::{note_space, proposals_failed};
use crate::log::durability;
use crate::memory::packing::{leave_what_is_ahead, shrink_to_budget};
use crate::moving::{about_moves, apply_leave, go_on_moving, resume_moves};
use crate::protocols::{CountRetained, MarkDead, Protocols};
use crate::queue::{EntryState, Load, Queue};
use crate::schedule::{
    WriteDue, apply_fire, apply_unschedule, browse_jobs, end_jobs, pass_time, recalled, shelf_read,
};
use crate::settings::Settings;
use crate::settling::carrying::{go_on_carrying, piece_unread};
use crate::settling::expiry::sweep;
use crate::settling::last_value::drop_all_superseded;
use crate::settling::release::count_delivery;
use crate::settling::rest::wake_rested;
use crate::settling::settle::end_entry;
use crate::settling::{doubt, lending};
use crate::state::State;
use crate::stepping_down::refuse_event;
use crate::transaction::{
    self, Rest, apply_abort, apply_commit, apply_decide, apply_overrule, apply_prepare, begin_commit,
    count_prepared, decide_branch, end_branch, end_overdue, forget_branch, hear, prepare_branch,
    resolve_transactions, roll_back, seal,
};
use crate::{documents, leaving, notice, pausing};

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
        limit_anew(self, &before, effects);
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
        apply_next(self, position, command, effects);
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

    /// Handles an event that is not durable by itself. Never called before recovery has ended.
    pub fn soft(&mut self, event: Event, effects: &mut Vec<Effect>) {
        if self.leader.has_stopped {
            return refuse_event(self, event, effects);
        }
        let first = effects.len();
        if let Some(event) = transaction::behind_its_transactions(self, event, effects) {
            take_in_turn(self, event, effects);
        }
        end_step(self, first, effects);
    }

    /// Begins to lead: settles transactions that a crash or a former leader left in doubt. Called
    /// after the last command that former leaders have written, or that a restart has replayed.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        self.leader.is_live = true;
        self.leader.has_stopped = false;
        resume_moves(&mut self.state, &mut self.leader);
        account_anew(&mut self.state, &mut self.leader, &self.settings);
        count_prepared(&mut self.state, &mut self.leader);
        self.state.addresses.announce_all(effects);
        drop_all_superseded(self, effects);
        trim_all(self, effects);
        bind_by_rules(self, effects);
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
}

/// Follows each step, whose effects begin at `first`.
fn end_step(partition: &mut Partition, first: usize, effects: &mut Vec<Effect>) {
    if std::mem::take(&mut partition.leader.intake.has_ended_queues) {
        unpark(partition, effects);
    }
    end_crowded(partition, effects);
    dispatch_freed(partition, effects);
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

/// A decision about a branch of a distributed transaction is durable.
fn apply_to_branch(partition: &mut Partition, command: Command, effects: &mut Vec<Effect>) {
    match command {
        Command::Promise { id, branch, participants } => {
            partition.state.branches.apply_promise(id, branch, participants)
        }
        Command::Decide { id, participants } => apply_decide(&mut partition.state, id, participants),
        Command::Overrule { id, branch, participants, commit } => {
            apply_overrule(partition, (id, branch), participants, commit, effects);
        }
        Command::ForgetBranch { branch } => partition.state.branches.forget(&branch),
        _ => {}
    }
}

pub fn apply_next(
    partition: &mut Partition,
    position: Position,
    command: Command,
    effects: &mut Vec<Effect>,
) {
    partition.state.apply_at(position);
    let begins = durability::may_begin_binding(&command);
    if durability::may_end_binding(&command) {
        partition.leader.log.barrier = partition.leader.log.made;
    }
    match command {
        Command::Declare { queue } => {
            declare_queue(partition, &queue);
        }
        Command::Subscribe(subscription) => apply_subscribe(partition, subscription, effects),
        Command::Unsubscribe { name } => apply_unsubscribe(partition, &name, effects),
        Command::Delete { queue } => delete_address(partition, &queue, effects),
        Command::Bind(binding) => apply_bind(partition, binding),
        Command::Unbind { topic, queue } => apply_unbind(partition, &topic, &queue, effects),
        Command::Chunk(_) => {}
        Command::Enqueue(sent) => enqueue_durable(partition, position, vec![sent], effects),
        Command::Settle(settlements) => {
            for end in settlements {
                end_entry(partition, end.queue, end.tag, end.cause, effects);
            }
        }
        Command::CountDelivery { queue, tags } => count_delivery(partition, queue, &tags),
        Command::Lease { queue, before_first, until, tags } => {
            apply_lease(partition, queue, before_first, until, &tags);
        }
        Command::Touch { queue, until, entries } => apply_touch(partition, queue, until, &entries),
        Command::Configure { queue, options } => apply_configure(partition, &queue, options),
        Command::Transact(changes) => {
            transaction::carry_out(partition, Rest::of_record(position, changes, effects), effects);
        }
        Command::Left { sends } => {
            let (ordinals, sends): (Vec<u32>, _) = sends.into_iter().unzip();
            enqueue_left(partition, position, ordinals.iter().copied(), sends, effects);
        }
        Command::Prepare { id, changes } => apply_prepare(partition, position, id, changes, effects),
        Command::Fire { due, next, sent } => apply_fire(partition, position, due, next, sent, effects),
        Command::Unschedule { jobs } => apply_unschedule(partition, &jobs, effects),
        Command::Shelve { jobs } => partition.state.jobs.apply_shelve(position, &jobs, effects),
        Command::Unshelve { shelf, jobs } => partition.state.jobs.apply_unshelve(shelf, &jobs, effects),
        Command::Promise { .. }
        | Command::Decide { .. }
        | Command::Overrule { .. }
        | Command::ForgetBranch { .. } => apply_to_branch(partition, command, effects),
        Command::Pause { queue, paused } => pausing::apply(partition, &queue, paused, effects),
        Command::Document(change) => documents::apply(partition, *change),
        Command::Leave { queue, to } => {
            apply_leave(partition, queue, to);
            go_on_moving(partition, effects);
        }
        Command::Remember { known } => {
            let known = crate::log::known::read(&known).unwrap_or_default();
            partition.state.audit.remember(known, partition.settings.audited_producers_max);
        }
        Command::Commit { id } => apply_commit(partition, id, effects),
        Command::Abort { id } => apply_abort(partition, id, effects),
        Command::Forget { id } => {
            partition.state.decided.remove(&id);
        }
    }
    if !partition.leader.transactions.slices.goes_on(begins) {
        transaction::record_ended(partition, begins, effects);
    }
}

/// Takes in an event, unless it has to wait after its consumer's attach or its connection's
/// sends.
pub fn take_in_turn(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    let Some(event) = partition.leader.intake.waiting.behind_its_attach(event) else { return };
    if let Some(event) = behind_its_sends(&mut partition.leader, event) {
        take_event(partition, event, effects);
    }
}

pub fn take_event(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Publish(publish) => take_publish(partition, publish, effects),
        Event::Chunk { .. } | Event::Abandon { .. } | Event::WantChunk { .. } => {
            pass_on(partition, event, effects);
        }
        Event::PieceUnread { upload, reason } => piece_unread(partition, upload, reason, effects),
        Event::Attach(attach) => begin_attach(partition, attach, effects),
        Event::Detach { consumer, delivered, ticket } => {
            leaving::detach(partition, consumer, (delivered, ticket), effects);
        }
        Event::Credit { consumer, add } => add_credit(partition, consumer, add, effects),
        Event::Drain { consumer } => begin_drain(partition, consumer, effects),
        Event::Settle(settle) => transaction::settle(partition, settle, effects),
        Event::Seal { transaction } => seal(partition, transaction, effects),
        Event::Commit { transaction, participants, ticket } => {
            begin_commit(partition, transaction, &participants, ticket, effects);
        }
        Event::Rollback { transaction, ticket } => roll_back(partition, transaction, ticket, effects),
        Event::EndBranch { .. }
        | Event::PrepareBranch { .. }
        | Event::DecideBranch { .. }
        | Event::ForgetBranch { .. }
        | Event::ListBranches { .. }
        | Event::Redrive { .. }
        | Event::Pause { .. }
        | Event::Document(_) => handle_admin_request(partition, event, effects),
        Event::Move { .. }
        | Event::ListMoves { .. }
        | Event::Placed { .. }
        | Event::Follow(_)
        | Event::Leave { .. } => about_moves(partition, event, effects),
        Event::Declare { destination, connection, steals, ticket } => {
            begin_declaring(partition, destination, (connection, ticket), steals, effects);
        }
        Event::Unsubscribe { name, connection, ticket } => {
            begin_unsubscribing(partition, name, connection, ticket, effects);
        }
        Event::Delete { destination, connection, ticket } => {
            begin_deleting(partition, destination, connection, ticket, effects);
        }
        Event::Claim { .. } | Event::Disclaim { .. } | Event::Concluded { .. } => {
            let Leader { claims, connections, .. } = &mut partition.leader;
            claims.handle(event, (connections, partition.now_ms), effects);
        }
        Event::Introduce { .. } | Event::AddProducer { .. } | Event::RemoveProducer { .. } => {
            notice::about_client(&mut partition.state, &mut partition.leader, event, effects);
        }
        Event::Written { connection, bytes } => note_written(partition, connection, bytes, effects),
        Event::Closed { connection } => leaving::closed(partition, connection, effects),
        Event::Fetched { bodies } => bodies_fetched(partition, bodies, effects),
        Event::EndJobs { wanted, connection, ticket } => {
            end_jobs(partition, &wanted, connection, ticket, effects);
        }
        Event::BrowseJobs { wanted, reply_to, connection, ticket } => {
            browse_jobs(partition, &wanted, &reply_to, (connection, ticket), effects);
        }
        Event::Ask { .. } | Event::Seek { .. } | Event::Lease(_) => about_queues(partition, event, effects),
        Event::Link(event) => about_link(partition, event, effects),
        Event::Echo { connection, ticket } => echo(&mut partition.leader, connection, ticket, effects),
        Event::Recalled { key, sent } => recalled(partition, key, sent, effects),
        Event::ShelfRead { position, jobs } => shelf_read(partition, position, jobs, effects),
        Event::ProposalsFailed { reason } => proposals_failed(partition, &reason, effects),
        Event::Space { ample } => note_space(partition, ample, effects),
        Event::Tick { now } => pass_tick(partition, now, effects),
        Event::Peer { from, peer } => hear(partition, from, peer, effects),
    }
}

/// Requests of transaction managers and operators.
fn handle_admin_request(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::EndBranch { branch, transaction, participants, ticket } => {
            end_branch(partition, branch, transaction, participants, ticket, effects);
        }
        Event::PrepareBranch { branch, connection, ticket } => {
            prepare_branch(partition, branch, connection, ticket, effects);
        }
        Event::DecideBranch { branch, decision, connection, ticket } => {
            decide_branch(partition, &branch, decision, (connection, ticket), effects);
        }
        Event::ForgetBranch { branch, connection, ticket } => {
            forget_branch(partition, branch, connection, ticket, effects);
        }
        Event::ListBranches { connection, ticket } => {
            partition.state.branches.list_branches(connection, ticket, effects)
        }
        Event::Pause { queue, paused, connection, ticket } => {
            pausing::pause(partition, queue, paused, (connection, ticket), effects);
        }
        Event::Document(request) => documents::replace(partition, *request, effects),
        Event::Redrive { wanted, connection, ticket } => {
            partition.redrive(*wanted, (connection, ticket), effects);
            partition.go_on_redriving(effects);
        }
        _ => {}
    }
}

fn pass_tick(partition: &mut Partition, now: Now, effects: &mut Vec<Effect>) {
    take_time(partition, now);
    transaction::go_on(partition, effects);
    transaction::go_on_closing(partition, effects);
    partition.leader.transactions.senders.go_on();
    pass_time(partition, effects);
    sweep(partition, effects);
    wake_rested(partition, effects);
    doubt::end_overdue(partition, effects);
    lending::record(partition, effects);
    end_leases(partition, effects);
    end_waits(partition, effects);
    refuse_late(partition, effects);
    gathering::end_overdue(partition, effects);
    look_for_slow(partition, effects);
    waiting::go_on_resuming(partition, effects);
    policy_round::go_on(partition, effects);
    go_on_unparking(partition, effects);
    end_overdue(partition, effects);
    look_who_has_pieces(&mut partition.leader, partition.now_ms, effects);
    go_on_carrying(partition, effects);
    let_go_some(partition, effects);
    backlog::go_on(partition, effects);
    ask::go_on(partition, effects);
    go_on_browsing(partition, effects);
    go_on_trimming(partition, effects);
    partition.go_on_redriving(effects);
    go_on_moving(partition, effects);
    forget_links(&mut partition.leader, partition.now_ms);
    offline::end_overdue(partition, effects);
    partition.leader.claims.free_overdue(partition.now_ms, effects);
    shrink_to_budget(partition);
    leave_what_is_ahead(&mut partition.state, &mut partition.leader, &partition.settings);
}

pub fn take_time(partition: &mut Partition, now: Now) {
    partition.now_ms = partition.now_ms.max(now.ticks_ms);
    let (expiries, jobs) = (&partition.state.expiries, &partition.state.jobs);
    let begun = partition.clock.advance(now, |era| expiries.is_free(era) && jobs.is_free(era));
    if let Some(era) = begun {
        partition.state.expiries.begin_era(era);
        partition.state.jobs.begin_era(era);
    }
}

/// The durable queue of this address, made if it is not there.
pub fn declare_queue(partition: &mut Partition, destination: &Destination) -> QueueId {
    let address = partition.state.addresses.get_or_make(destination);
    if let Some(id) = address.bound.own() {
        return id;
    }
    let id = partition.state.take_queue_id(partition.settings.id);
    partition.state.addresses.bound_mut(destination).insert(id, None);
    let queue = new_queue(&partition.state, &partition.leader, &partition.settings, id, destination.clone());
    add_queue(&mut partition.state, &mut partition.leader, queue);
    join_spreads(partition, id, destination);
    id
}
