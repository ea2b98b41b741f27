//! Work that follows once a proposal is durable, or once it has failed.
//!
//! Proposals of a partition come back in the order in which they were made, so their completions
//! wait in one line. Replicas and recovery have none.

use std::sync::Arc;

use postroad_model::{
    ConnectionId, Delivery, Destination, Due, Effect, EntryTag, Event, HandleEntries, OfflineEnd,
    PartitionId, Peer, Position, Publish, QueueId, Refusal, Settlement, Ticket, TransactionId,
    TransactionKey,
};

use crate::Partition;
use crate::addresses::binding::{bind_again, bind_failed};
use crate::addresses::offline;
use crate::addresses::subscription::{begin_subscription, tell_of_subscription};
use crate::intake::audit::{note_resent, resend_failed};
use crate::intake::chunks::{piece_failed, piece_stored};
use crate::intake::limit::{Expecting, expected, unpark_held_by_any};
use crate::intake::publish::{answer_request, dispatch_all};
use crate::intake::unparking::unpark;
use crate::intake::waiting::{self, queue_failed, refuse_waiting, resume_behind_sends, unsubscribed};
use crate::leasing::{
    Answering, Clearing, Handling, Posting, answer_reserve, clear_on, handle_entries, handled, has_posted,
    post_failed, refuse_reserve, take_back_handled, take_back_reserved,
};
use crate::log::propose::propose;
use crate::moving::{audit_recorded, move_failed, pass_move_barrier, send_audit};
use crate::partition::reply;
use crate::schedule::{fail_searches, has_left, not_fired, not_unshelved, pass_time, search_on};
use crate::settling::lending;
use crate::settling::release::counted;
use crate::settling::settle::{give_back_all, leave_by, leaving_max};
use crate::transaction::{
    VolatileChanges, decision_failed, promised, resolve_transactions, return_to_holders, shares_ended,
    spread_decision, tell,
};

/// Work that follows one proposal.
#[derive(Debug)]
pub enum Completion {
    /// A client waits for it.
    Reply {
        /// Who.
        connection: ConnectionId,
        /// Its request.
        ticket: Ticket,
    },
    /// As `Reply`, for a message to queues that have a limit.
    Sent {
        /// Who.
        connection: ConnectionId,
        /// Its request.
        ticket: Ticket,
        /// Where it counts.
        expecting: Expecting,
        /// The size of the message.
        bytes: u64,
    },
    /// A piece of a large body.
    Piece {
        /// Who sends it.
        connection: ConnectionId,
        /// See [`Event::Chunk`].
        upload: u64,
        /// Its place in the body.
        index: u64,
        /// Its size.
        bytes: u64,
        /// Who waits.
        ticket: Ticket,
    },
    /// Topics are to feed a queue.
    Bound {
        /// Which.
        queue: Destination,
    },
    /// Events could not go on without their queue.
    Declared {
        /// Which.
        queue: Destination,
    },
    /// Entries were leaving.
    Settled {
        /// Which.
        settlements: Vec<Settlement>,
        /// The waiting request, if there is one.
        answer: Option<(ConnectionId, Ticket)>,
    },
    /// A delivery count was known here ahead of the log.
    Counted {
        /// The queue.
        queue: QueueId,
        /// Its entries.
        tags: Vec<EntryTag>,
    },
    /// A transaction within this partition.
    Transacted {
        /// Its entries were leaving.
        settlements: Vec<Settlement>,
        /// Its changes of volatile state.
        volatile: VolatileChanges,
        /// Sessions' shares of it, if it is a branch: each is notified of its end.
        shares: Vec<TransactionKey>,
        /// The waiting request, if there is one.
        answer: Option<(ConnectionId, Ticket)>,
    },
    /// This partition's share of a transaction.
    Prepared {
        /// The transaction.
        id: TransactionId,
        /// Its entries were leaving.
        settlements: Vec<Settlement>,
    },
    /// The coordinator's decision.
    Decided {
        /// The transaction.
        id: TransactionId,
    },
    /// A branch that all participants have prepared.
    Promised {
        /// The transaction.
        id: TransactionId,
    },
    /// A promise that is withdrawn.
    Withdrawn {
        /// The transaction.
        id: TransactionId,
    },
    /// A participant's commit or abort.
    Ended {
        /// The transaction.
        id: TransactionId,
    },
    /// Readers could not go on without their subscription.
    Subscribed {
        /// Name of the subscription.
        name: Arc<str>,
    },
    /// An address ends, and readers may be waiting to begin one of its name.
    Deleted {
        /// Which.
        address: Destination,
        /// Who has ended it and waits.
        answer: (ConnectionId, Ticket),
    },
    /// A subscription ends, and readers may be waiting to begin one of its name.
    Unsubscribed {
        /// Name of the subscription.
        name: Arc<str>,
        /// The client that ended it and waits, if there is one.
        answer: Option<(ConnectionId, Ticket)>,
    },
    /// A subscription was without a reader for too long; others may be waiting to begin one of its
    /// name.
    OfflineEnded {
        /// Its queue.
        queue: QueueId,
        /// The facts for operators.
        ended: Box<OfflineEnd>,
    },
    /// A possible resend, after all proposals that were outstanding when it arrived.
    Resent(Box<Publish>),
    /// A job was due.
    Fired {
        /// Which firing.
        due: Due,
    },
    /// Jobs were leaving memory.
    Shelved {
        /// How many.
        jobs: usize,
    },
    /// The jobs of a shelf were coming back.
    Unshelved {
        /// Which.
        shelf: Position,
    },
    /// A queue is there that comes from another partition.
    Expecting {
        /// Which.
        queue: Destination,
        /// Where from.
        from: PartitionId,
    },
    /// A client asked to move a queue to another partition.
    Leaves {
        /// Which.
        queue: Destination,
        /// Who.
        connection: ConnectionId,
        /// Its request.
        ticket: Ticket,
    },
    /// Duplicate detection goes along with a queue that leaves.
    AuditGoes {
        /// Which.
        queue: Destination,
    },
    /// Windows of another partition's producers are recorded.
    Remembers {
        /// The queue that comes from there.
        queue: Destination,
        /// Where from.
        from: PartitionId,
    },
    /// A barrier for a moving queue: all proposals made before it have completed.
    MoveBarrier {
        /// Which.
        queue: Destination,
    },
    /// A queue has left.
    LeftFor {
        /// Which.
        queue: Destination,
        /// Where it lives now.
        to: PartitionId,
    },
    /// A document was replaced.
    Document {
        /// Which.
        name: Arc<str>,
        /// Who asks.
        connection: ConnectionId,
        /// Who waits for it.
        ticket: Ticket,
    },
    /// Messages were reserved.
    Leased(Answering),
    /// Entries were deleted, extended or released by their handles.
    Handled(Handling),
    /// A slice of a queue that is cleared was leaving.
    Cleared(Box<Clearing>),
    /// A request by handles of entries that leave or are touched, after the records that decide.
    Asked(Box<HandleEntries>),
    /// Several messages for one queue.
    Posted(Posting),
    /// Deliveries to links were being recorded.
    Lent(Vec<Delivery>),
    /// Nothing follows.
    Nothing,
}

impl Completion {
    /// Who has sent a message of the command.
    pub(crate) fn sender(&self, ordinal: usize) -> Option<ConnectionId> {
        match self {
            Completion::Reply { connection, .. } | Completion::Sent { connection, .. } => Some(*connection),
            Completion::Transacted { volatile, .. } => volatile.senders.get(ordinal).copied(),
            _ => None,
        }
    }

    /// Its changes of volatile state, if it is a transaction.
    pub(crate) fn volatile(&self) -> Option<&VolatileChanges> {
        match self {
            Completion::Transacted { volatile, .. } => Some(volatile),
            _ => None,
        }
    }
}

/// The proposal is durable and was applied.
pub fn complete_proposal(partition: &mut Partition, completion: Completion, effects: &mut Vec<Effect>) {
    match completion {
        Completion::Reply { connection, ticket }
        | Completion::Leaves { connection, ticket, .. }
        | Completion::Document { connection, ticket, .. } => {
            reply(connection, ticket, Ok(()), effects);
        }
        Completion::Sent { connection, ticket, expecting, bytes } => {
            expected(&mut partition.state, &mut partition.leader, &expecting, bytes);
            reply(connection, ticket, Ok(()), effects);
            unpark_held_by_any(partition, &expecting, effects);
        }
        Completion::Piece { connection, upload, index, bytes, ticket } => {
            piece_stored(partition, (connection, upload), (index, bytes), ticket, effects);
        }
        Completion::Declared { queue } => {
            waiting::resume_for_queue(partition, &queue, effects);
        }
        Completion::Settled { answer, .. } => answer_request(partition, answer, Ok(()), effects),
        Completion::Counted { queue, tags } => counted(partition, queue, &tags),
        Completion::Leased(answering) => answer_reserve(answering, effects),
        Completion::Handled(handling) => handled(partition, handling, effects),
        Completion::Cleared(clearing) => clear_on(partition, *clearing, effects),
        Completion::Asked(asked) => handle_entries(partition, *asked, effects),
        Completion::Posted(posting) => has_posted(partition, posting, effects),
        Completion::Lent(deliveries) => lending::recorded(partition, deliveries, effects),
        Completion::Transacted { volatile, shares, answer, .. } => {
            volatile.carry_out(partition, effects);
            shares_ended(shares, true, effects);
            answer_request(partition, answer, Ok(()), effects);
        }
        Completion::Prepared { id, .. } => {
            tell(id.coordinator, Peer::Prepared { id, result: Ok(()) }, effects);
        }
        Completion::Decided { id } => spread_decision(&mut partition.state, id, effects),
        Completion::Promised { id } => promised(partition, id, effects),
        Completion::Withdrawn { id } => partition.leader.transactions.withdrawn(id, effects),
        Completion::Ended { id } => tell(id.coordinator, Peer::Done { id }, effects),
        Completion::Subscribed { name } => {
            let first = partition.leader.intake.waiting.first_for_subscription(&name);
            if let Some(Event::Attach(attach)) = first.cloned() {
                begin_subscription(partition, &attach, effects);
            }
            tell_of_subscription(&partition.state, &partition.settings, &name, effects);
            waiting::resume_for_subscription(partition, &name, effects);
        }
        Completion::Deleted { address, answer } => {
            answer_request(partition, Some(answer), Ok(()), effects);
            waiting::resume_for_queue(partition, &address, effects);
        }
        Completion::Unsubscribed { name, answer } => unsubscribed(partition, &name, answer, Ok(()), effects),
        Completion::OfflineEnded { ended, .. } => offline::ended(partition, ended, effects),
        Completion::Resent(publish) => note_resent(partition, *publish, effects),
        Completion::Shelved { jobs } => has_left(partition, jobs, false, effects),
        Completion::Unshelved { .. } => {
            pass_time(partition, effects);
            search_on(partition, effects);
        }
        Completion::Expecting { queue, from } => tell(from, Peer::Expecting { queue }, effects),
        Completion::AuditGoes { queue } => send_audit(partition, queue, effects),
        Completion::Remembers { queue, from } => audit_recorded(partition, queue, from, effects),
        Completion::MoveBarrier { queue } => pass_move_barrier(partition, &queue, effects),
        Completion::LeftFor { queue, to } => tell(to, Peer::Arrived { queue }, effects),
        Completion::Bound { .. } | Completion::Fired { .. } | Completion::Nothing => {}
    }
}

/// Every outstanding proposal failed: each waiter gets an error, and none of the proposals took
/// effect.
pub fn proposals_failed(partition: &mut Partition, reason: &str, effects: &mut Vec<Effect>) {
    // Records that are durable come to their end. Proposals that follow from it are behind the
    // failure.
    let made = partition.leader.log.made;
    partition.leader.intake.recent.clear();
    partition.leader.intake.homes.clear();
    partition.finish_records(effects);
    let log = &mut partition.leader.log;
    let failed = log.pending.len() - (log.made - made) as usize;
    let mut failed: Vec<Completion> = log.pending.drain(..failed).collect();
    let refusal = Refusal::StoreFailed { reason: reason.to_owned() };
    fail_searches(&mut partition.state, reason, effects);
    // Nothing is served before all has come back: else a later message could be sent ahead of
    // an earlier one.
    let touched =
        failed.iter_mut().flat_map(|completion| take_back_what_left(partition, completion)).collect();
    dispatch_all(partition, touched, effects);
    for completion in failed {
        fail_completion(partition, completion, &refusal, effects);
    }
    // Sends that waited for the log, or for a send that was refused now.
    unpark(partition, effects);
    resume_behind_sends(partition, effects);
}

/// Leaving entries go back to their place or their holder; the returned queues are to be
/// dispatched.
fn take_back_what_left(partition: &mut Partition, completion: &mut Completion) -> Vec<QueueId> {
    match completion {
        Completion::Settled { settlements, answer: Some(_) } => give_back_all(partition, settlements),
        Completion::Cleared(clearing) => give_back_all(partition, clearing.settlements()),
        Completion::Leased(answering) => take_back_reserved(partition, answering),
        Completion::Handled(handling) => take_back_handled(partition, handling),
        Completion::Transacted { settlements, volatile, .. } => {
            return_to_holders(partition, settlements, std::mem::take(volatile))
        }
        Completion::Prepared { id, settlements } => {
            partition.leader.transactions.end_prepared(*id);
            let volatile = partition.leader.transactions.prepared_volatile.remove(id).unwrap_or_default();
            return_to_holders(partition, settlements, volatile)
        }
        _ => Vec::new(),
    }
}

fn fail_completion(
    partition: &mut Partition,
    completion: Completion,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    let no = || Err(refusal.clone());
    match completion {
        Completion::Reply { connection, ticket }
        | Completion::Leaves { connection, ticket, .. }
        | Completion::Document { connection, ticket, .. } => {
            reply(connection, ticket, no(), effects);
        }
        Completion::Sent { connection, ticket, expecting, bytes } => {
            expected(&mut partition.state, &mut partition.leader, &expecting, bytes);
            reply(connection, ticket, no(), effects);
            unpark_held_by_any(partition, &expecting, effects);
        }
        Completion::Piece { connection, upload, bytes, ticket, .. } => {
            piece_failed(partition, (connection, upload), bytes, (ticket, refusal), effects);
        }
        Completion::Bound { .. }
        | Completion::Declared { .. }
        | Completion::Subscribed { .. }
        | Completion::Deleted { .. }
        | Completion::Unsubscribed { .. }
        | Completion::OfflineEnded { .. } => fail_address(partition, completion, refusal, effects),
        Completion::Settled { settlements, answer: None } => {
            partition.leader.settling.unsaved.extend(settlements)
        }
        Completion::Settled { answer, .. } => answer_request(partition, answer, no(), effects),
        Completion::Transacted { shares, answer, .. } => {
            shares_ended(shares, false, effects);
            answer_request(partition, answer, no(), effects);
        }
        Completion::Prepared { id, .. } => {
            tell(id.coordinator, Peer::Prepared { id, result: no() }, effects);
        }
        Completion::Decided { id } | Completion::Promised { id } | Completion::Withdrawn { id } => {
            decision_failed(partition, id, refusal, effects);
        }
        Completion::Resent(publish) => resend_failed(
            &mut partition.state,
            &mut partition.leader,
            &partition.protocols,
            &publish,
            refusal,
            effects,
        ),
        Completion::Fired { due } => not_fired(&mut partition.state, partition.now_ms, due),
        Completion::Shelved { jobs } => has_left(partition, jobs, true, effects),
        Completion::Unshelved { shelf } => not_unshelved(&mut partition.state, partition.now_ms, shelf),
        // Known here for this run; the log learns the next count.
        Completion::Counted { .. } => {}
        Completion::Leased(answering) => refuse_reserve(&answering, refusal, effects),
        Completion::Lent(deliveries) => lending::recorded(partition, deliveries, effects),
        Completion::Handled(handling) => {
            reply(handling.connection, handling.ticket, no(), effects);
        }
        Completion::Asked(asked) => reply(asked.connection, asked.ticket, no(), effects),
        Completion::Cleared(clearing) => answer_request(partition, Some(clearing.waiter()), no(), effects),
        Completion::Posted(posting) => post_failed(partition, &posting, refusal, effects),
        Completion::MoveBarrier { queue } | Completion::LeftFor { queue, .. } => {
            move_failed(&mut partition.leader, partition.now_ms, &queue)
        }
        // Asked for again when the log recovers, or after a while.
        Completion::AuditGoes { .. } | Completion::Remembers { .. } => {}
        Completion::Ended { .. } | Completion::Expecting { .. } | Completion::Nothing => {}
    }
}

/// As [`fail_completion`], for addresses and their queues.
fn fail_address(
    partition: &mut Partition,
    completion: Completion,
    refusal: &Refusal,
    effects: &mut Vec<Effect>,
) {
    let no = || Err(refusal.clone());
    match completion {
        Completion::Bound { queue } => bind_failed(&mut partition.state, &mut partition.leader, queue),
        Completion::Declared { queue } => queue_failed(partition, &queue, refusal, effects),
        Completion::Subscribed { name } => {
            let waiting = partition.leader.intake.waiting.take_for_subscription(&name);
            refuse_waiting(partition, waiting, refusal, effects);
        }
        // The address is there as before, for readers that wait for it.
        Completion::Deleted { address, answer } => {
            answer_request(partition, Some(answer), no(), effects);
            waiting::resume_for_queue(partition, &address, effects);
        }
        Completion::Unsubscribed { name, answer } => unsubscribed(partition, &name, answer, no(), effects),
        Completion::OfflineEnded { queue, ended } => {
            offline::note(partition, queue);
            unsubscribed(partition, &ended.name, None, no(), effects);
        }
        _ => {}
    }
}

/// Whether the disk has room; when it has room again, waiting commands are proposed again.
pub fn note_space(partition: &mut Partition, ample: bool, effects: &mut Vec<Effect>) {
    partition.leader.log.space_ample = ample;
    if !ample {
        return;
    }
    let unsaved = std::mem::take(&mut partition.leader.settling.unsaved);
    // What was one record is one again.
    for settlements in unsaved.chunks(leaving_max(&partition.settings)).map(<[_]>::to_vec) {
        let command = leave_by(&partition.settings, settlements.clone());
        let completion = Completion::Settled { settlements, answer: None };
        propose(partition, command, postroad_model::Urgency::Lazy, completion, effects);
    }
    bind_again(partition, effects);
    resolve_transactions(&mut partition.state, &mut partition.leader, effects);
    pass_time(partition, effects);
    unpark(partition, effects);
}
