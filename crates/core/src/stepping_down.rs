//! The end of leadership: each client that waits is answered, and the leader's half of the
//! partition is dropped.
//!
//! | request | answer |
//! |---|---|
//! | its command was not proposed | [`Refusal::NotLeader`]: it had no effect |
//! | its command is on the way to the log | [`Refusal::OutcomeUnknown`]: another leader may commit it |
//! | it comes later, until the next start | [`Refusal::NotLeader`] |
//!
//! The client of an unknown outcome finds out by sending again: duplicate detection knows a message
//! that got into the log. A coordinator that is deposed sends no decision. A participant that could
//! not prepare says so, as only the coordinator's own log decides.
//!
//! Entries in consumers' hands return to their queues, as after a restart: the state is read again
//! from its own snapshot. That takes as long as reading a snapshot does, and takes no disk, except
//! for pages that were spilled.

use postroad_model::{
    ConnectionId, Effect, Event, LeaseEvent, LinkEvent, MessageKey, Now, PartitionId, Peer, Piece, Refusal,
    Ticket,
};

use crate::Partition;
use crate::addresses::ending::let_go_some;
use crate::intake::chunks;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::snapshot::SnapshotError;
use crate::partition::{reply, take_time};
use crate::state::State;
use crate::transaction::{finish_decided, tell};

/// A request that has no answer yet.
type Waiter = (ConnectionId, Ticket);

impl Partition {
    /// This node does not lead the partition any more. Commands are applied from then on as a
    /// replica does. [`Partition::start`] makes it lead again: to be called once all commands of
    /// former leaders are applied.
    ///
    /// # Errors
    /// [`SnapshotError`]: spilled pages could not be read. All requests are answered, but the
    /// partition must be read again from its log.
    pub fn stop(&mut self, effects: &mut Vec<Effect>) -> Result<(), SnapshotError> {
        if !self.leader.is_live {
            return Ok(());
        }
        self.finish_records(effects);
        finish_decided(self, effects);
        answer_unknown(self, effects);
        answer_not_done(self, effects);
        release_volatile_bodies(&mut self.state, &mut self.leader, effects);
        let connections = self.leader.connections.iter().map(|(connection, _)| connection);
        let of_clients = connections.filter(|connection| !connection.is_internal());
        effects.extend(of_clients.map(|connection| Effect::Evict { connection }));
        self.leader = self.leader.successor(&self.settings);
        finish_endings(self, effects);
        return_to_log(self)
    }
}

impl Leader {
    /// A leader that has nothing yet. Numbers go on, as some may be known elsewhere.
    fn successor(&self, settings: &crate::Settings) -> Leader {
        let mut next = Leader::new(settings);
        next.has_stopped = true;
        next.log.space_ample = self.log.space_ample;
        next.transactions.next_transaction = self.transactions.next_transaction;
        next.volatile.next_queue = self.volatile.next_queue;
        next.volatile.next_message = self.volatile.next_message;
        next.leasing = self.leasing.successor();
        next.moves = self.moves.successor();
        next.settling.redrives = self.settling.redrives.successor();
        next.settling.carrying = self.settling.carrying.successor();
        next
    }
}

impl Completion {
    /// The request that its end answers.
    fn waiter(&self) -> Option<Waiter> {
        match self {
            Completion::Reply { connection, ticket }
            | Completion::Sent { connection, ticket, .. }
            | Completion::Leaves { connection, ticket, .. }
            | Completion::Document { connection, ticket, .. } => Some((*connection, *ticket)),
            Completion::Piece { connection, upload, ticket, .. } => {
                Some((*connection, if connection.is_internal() { Ticket(*upload) } else { *ticket }))
            }
            Completion::Settled { answer, .. }
            | Completion::Transacted { answer, .. }
            | Completion::Unsubscribed { answer, .. } => *answer,
            Completion::Deleted { answer, .. } => Some(*answer),
            Completion::Leased(answering) => Some(answering.waiter()),
            Completion::Handled(handling) => Some((handling.connection, handling.ticket)),
            Completion::Posted(posting) => Some(posting.waiter()),
            Completion::Cleared(clearing) => Some(clearing.waiter()),
            Completion::Resent(publish) => Some((publish.connection, publish.ticket)),
            Completion::Asked(asked) => Some((asked.connection, asked.ticket)),
            // Those that wait for these are known elsewhere.
            Completion::Bound { .. }
            | Completion::Declared { .. }
            | Completion::Counted { .. }
            | Completion::Prepared { .. }
            | Completion::Decided { .. }
            | Completion::Promised { .. }
            | Completion::Withdrawn { .. }
            | Completion::Ended { .. }
            | Completion::Subscribed { .. }
            | Completion::OfflineEnded { .. }
            | Completion::Fired { .. }
            | Completion::Shelved { .. }
            | Completion::Unshelved { .. }
            | Completion::Expecting { .. }
            | Completion::AuditGoes { .. }
            | Completion::Remembers { .. }
            | Completion::MoveBarrier { .. }
            | Completion::LeftFor { .. }
            | Completion::Lent(_)
            | Completion::Nothing => None,
        }
    }
}

/// The request that an event is, if its client waits for an answer.
pub fn waiter_of(event: &Event) -> Option<Waiter> {
    match event {
        Event::Publish(publish) => Some((publish.connection, publish.ticket)),
        Event::Attach(attach) | Event::Follow(attach) => Some((attach.consumer.connection, attach.ticket)),
        Event::Detach { consumer, ticket, .. } => Some((consumer.connection, (*ticket)?)),
        Event::Settle(settle) => Some((settle.consumer.connection, settle.ticket?)),
        Event::Commit { transaction, ticket, .. } | Event::EndBranch { transaction, ticket, .. } => {
            Some((transaction.connection, *ticket))
        }
        Event::Rollback { transaction, ticket } => Some((transaction.connection, (*ticket)?)),
        Event::Chunk { connection, ticket, .. }
        | Event::PrepareBranch { connection, ticket, .. }
        | Event::DecideBranch { connection, ticket, .. }
        | Event::ForgetBranch { connection, ticket, .. }
        | Event::ListBranches { connection, ticket }
        | Event::Redrive { connection, ticket, .. }
        | Event::Pause { connection, ticket, .. }
        | Event::Move { connection, ticket, .. }
        | Event::ListMoves { connection, ticket }
        | Event::Ask { connection, ticket, .. }
        | Event::Declare { connection, ticket, .. }
        | Event::Unsubscribe { connection, ticket, .. }
        | Event::Delete { connection, ticket, .. }
        | Event::Claim { connection, ticket, .. }
        | Event::Disclaim { connection, ticket, .. }
        | Event::EndJobs { connection, ticket, .. }
        | Event::BrowseJobs { connection, ticket, .. }
        | Event::Echo { connection, ticket } => Some((*connection, *ticket)),
        Event::Document(request) => Some((request.connection, request.ticket)),
        Event::Lease(event) => waiter_of_lease(event),
        Event::Peer { peer: Peer::Handle(asked), .. } => Some((asked.connection, asked.ticket)),
        Event::Link(LinkEvent::Resume(resume)) => Some((resume.connection(), resume.ticket)),
        _ => None,
    }
}

fn waiter_of_lease(event: &LeaseEvent) -> Option<Waiter> {
    match event {
        LeaseEvent::Cancel { .. } => None,
        LeaseEvent::Post(post) => Some((post.connection, post.ticket)),
        LeaseEvent::Reserve(reserve) => Some((reserve.connection, reserve.ticket)),
        LeaseEvent::Handle(handle) => Some((handle.connection, handle.ticket)),
        LeaseEvent::Watch(watch) => Some((watch.connection, watch.ticket)),
        LeaseEvent::Configure { connection, ticket, .. }
        | LeaseEvent::Describe { connection, ticket, .. }
        | LeaseEvent::List { connection, ticket, .. }
        | LeaseEvent::Configured { connection, ticket, .. }
        | LeaseEvent::Clear { connection, ticket, .. } => Some((*connection, *ticket)),
    }
}

/// Requests that wait for exclusive names.
fn claimants(leader: &Leader) -> Vec<Waiter> {
    let connections = leader.connections.iter();
    let names = connections.flat_map(|(id, connection)| connection.claims.iter().map(move |name| (id, name)));
    let mut waiting: Vec<Waiter> = names.filter_map(|(id, name)| leader.claims.waiter(name, id)).collect();
    waiting.sort_unstable();
    waiting
}

/// Records that only volatile messages and uploads refer to are needed no more.
fn release_volatile_bodies(state: &mut State, leader: &mut Leader, effects: &mut Vec<Effect>) {
    for (_, message) in state.bodies.volatile() {
        message.chunks().into_iter().for_each(|chunks| chunks::release(chunks, effects));
    }
    leader.intake.uploads.release_all(effects);
}

fn prepared_keys(state: &State) -> Vec<MessageKey> {
    let sends = state.prepared.values().flat_map(|prepared| &prepared.sends);
    let mut keys: Vec<MessageKey> = sends.map(|(key, _)| *key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// A coordinator hears that nothing was prepared. Where a decision is needed, the next start
/// asks for it.
fn refuse_peer(state: &mut State, from: PartitionId, peer: Peer, effects: &mut Vec<Effect>) {
    match peer {
        Peer::Prepare { id, .. } => {
            tell(from, Peer::Prepared { id, result: Err(Refusal::NotLeader) }, effects);
        }
        Peer::Discard { id, .. } => tell(from, Peer::Done { id }, effects),
        Peer::Decided { id, commit: false } if !state.prepared.contains_key(&id) => {
            tell(from, Peer::Done { id }, effects);
        }
        Peer::Piece { piece, .. } => {
            let (upload, result) = (piece.upload, Err(Refusal::NotLeader));
            tell(from, Peer::PieceTaken { upload, result }, effects);
        }
        _ => {}
    }
}

/// Answers the requests whose commands are on the way to the log.
fn answer_unknown(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let mut waiting: Vec<Waiter> = Vec::new();
    for completion in std::mem::take(&mut partition.leader.log.pending) {
        match completion {
            // The coordinator has not decided, and decides against it now, whatever becomes of
            // the record.
            Completion::Prepared { id, .. } => {
                let result = Err(Refusal::NotLeader);
                tell(id.coordinator, Peer::Prepared { id, result }, effects);
            }
            // They were to be carried out behind a barrier.
            Completion::Resent(publish) => {
                refuse_not_led(partition, (publish.connection, publish.ticket), effects);
            }
            Completion::Asked(asked) => {
                refuse_not_led(partition, (asked.connection, asked.ticket), effects);
            }
            completion => waiting.extend(completion.waiter()),
        }
    }
    let transactions = &mut partition.leader.transactions;
    waiting.extend(transactions.coordinating.values_mut().flat_map(|known| known.take_answers()));
    waiting.extend(partition.leader.settling.redrives.waiters());
    for waiter in waiting {
        refuse(partition, waiter, Refusal::OutcomeUnknown, effects);
    }
}

/// Answers the requests that have not led to a command.
fn answer_not_done(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let intake = &mut partition.leader.intake;
    let parked = intake.parked.take_all();
    let mut waiting: Vec<Waiter> =
        parked.into_iter().map(|parked| (parked.publish.connection, parked.publish.ticket)).collect();
    waiting.extend(intake.waiting.take_all().iter().filter_map(waiter_of));
    waiting.extend(intake.waiting.take_echoes());
    waiting.extend(intake.uploads.take_waiting());
    waiting.extend(intake.links.waiters());
    waiting.extend(claimants(&partition.leader));
    waiting.extend(partition.leader.ended.coordinated.waiters());
    waiting.extend(partition.leader.settling.carrying.waiters());
    waiting.extend(partition.leader.leasing.waiters());
    waiting.extend(partition.state.jobs.waiters());
    waiting.extend(partition.leader.lists.waiters());
    waiting.extend(partition.leader.transactions.closings.waiters());
    waiting.extend(partition.leader.moves.waiters());
    let consumers = &partition.leader.delivery.consumers;
    let reserves = consumers
        .iter()
        .filter_map(|(key, consumer)| Some((key.connection, consumer.reserving.as_ref()?.ticket())));
    let mut reserves: Vec<Waiter> = reserves.collect();
    reserves.sort_unstable();
    waiting.extend(reserves);
    for waiter in waiting {
        refuse_not_led(partition, waiter, effects);
    }
    let open = partition.leader.transactions.open.values();
    let asked = open.filter_map(|open| open.asked_to_prepare());
    let mut asked: Vec<_> = asked.chain(partition.leader.transactions.closings.preparing()).collect();
    asked.sort_unstable();
    asked.dedup();
    for id in asked {
        tell(id.coordinator, Peer::Prepared { id, result: Err(Refusal::NotLeader) }, effects);
    }
}

fn refuse_not_led(partition: &Partition, waiter: Waiter, effects: &mut Vec<Effect>) {
    refuse(partition, waiter, Refusal::NotLeader, effects);
}

/// Refuses a request of a client, or a piece of a large body that another partition sends. Its
/// own requests end with the leader.
fn refuse(partition: &Partition, (connection, ticket): Waiter, refusal: Refusal, effects: &mut Vec<Effect>) {
    match connection.partition() {
        Some(to) if to != partition.settings.id => {
            let (upload, result) = (ticket.0, Err(refusal));
            tell(to, Peer::PieceTaken { upload, result }, effects);
        }
        Some(_) => {}
        None => reply(connection, ticket, Err(refusal), effects),
    }
}

/// Entries of deleted queues are released at once: no snapshot knows them.
fn finish_endings(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while partition.state.endings.is_ending() {
        let_go_some(partition, effects);
    }
}

/// The state as the log has it: without volatile messages and queues, and with no entry in the
/// hands of a consumer.
fn return_to_log(partition: &mut Partition) -> Result<(), SnapshotError> {
    let snapshot = partition.snapshot_pieces();
    let mut pieces = snapshot.pieces().iter().map(Piece::bytes);
    let mut state = Partition::restore_pieces(partition.settings.clone(), &mut pieces)?.state;
    // Bodies of prepared messages stay in memory: which subscriptions take them may depend on
    // them.
    for key in prepared_keys(&partition.state) {
        if let Some(message) = partition.state.bodies.resident(key) {
            state.bodies.restore(key, message.clone());
            state.bodies.pin(key);
        }
    }
    let now = Now { ticks_ms: partition.now_ms, wall_ms: partition.clock.wall_ms() };
    partition.state = state;
    partition.clock = crate::clock::Clock::default();
    take_time(partition, now);
    Ok(())
}

/// An event for a leader comes to a replica.
pub fn refuse_event(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Tick { now } => take_time(partition, now),
        Event::Space { ample } => partition.leader.log.space_ample = ample,
        Event::Peer { from, peer } => refuse_peer(&mut partition.state, from, peer, effects),
        event => waiter_of(&event).into_iter().for_each(|waiter| refuse_not_led(partition, waiter, effects)),
    }
}
