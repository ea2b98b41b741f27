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
use crate::addresses::binding::bind_failed;
use crate::addresses::offline;
use crate::addresses::subscription::tell_of_subscription;
use crate::intake::limit::{Expecting, expected};
use crate::intake::waiting;
use crate::leasing::{Answering, Handling, Posting, answer_reserve, refuse_reserve, take_back_handled};
use crate::moving::{audit_recorded, move_failed, send_audit};
use crate::partition::reply;
use crate::schedule::{not_fired, not_unshelved};
use crate::settling::lending;
use crate::transaction::{VolatileChanges, resolve_transactions, shares_ended, spread_decision, tell};

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

impl Partition {
    /// The proposal is durable and was applied.
    pub(crate) fn complete(&mut self, completion: Completion, effects: &mut Vec<Effect>) {
        match completion {
            Completion::Reply { connection, ticket }
            | Completion::Leaves { connection, ticket, .. }
            | Completion::Document { connection, ticket, .. } => {
                reply(connection, ticket, Ok(()), effects);
            }
            Completion::Sent { connection, ticket, expecting, bytes } => {
                expected(&mut self.state, &mut self.leader, &expecting, bytes);
                reply(connection, ticket, Ok(()), effects);
                self.unpark_held_by_any(&expecting, effects);
            }
            Completion::Piece { connection, upload, index, bytes, ticket } => {
                self.piece_stored((connection, upload), (index, bytes), ticket, effects);
            }
            Completion::Declared { queue } => {
                waiting::resume_for_queue(self, &queue, effects);
            }
            Completion::Settled { answer, .. } => self.answer(answer, Ok(()), effects),
            Completion::Counted { queue, tags } => self.counted(queue, &tags),
            Completion::Leased(answering) => answer_reserve(answering, effects),
            Completion::Handled(handling) => self.handled(handling, effects),
            Completion::Asked(asked) => self.handle_entries(*asked, effects),
            Completion::Posted(posting) => self.has_posted(posting, effects),
            Completion::Lent(deliveries) => lending::recorded(self, deliveries, effects),
            Completion::Transacted { volatile, shares, answer, .. } => {
                volatile.carry_out(self, effects);
                shares_ended(shares, true, effects);
                self.answer(answer, Ok(()), effects);
            }
            Completion::Prepared { id, .. } => {
                tell(id.coordinator, Peer::Prepared { id, result: Ok(()) }, effects);
            }
            Completion::Decided { id } => spread_decision(&mut self.state, id, effects),
            Completion::Promised { id } => self.promised(id, effects),
            Completion::Withdrawn { id } => self.leader.transactions.withdrawn(id, effects),
            Completion::Ended { id } => tell(id.coordinator, Peer::Done { id }, effects),
            Completion::Subscribed { name } => {
                let first = self.leader.intake.waiting.first_for_subscription(&name);
                if let Some(Event::Attach(attach)) = first.cloned() {
                    self.begin_subscription(&attach, effects);
                }
                tell_of_subscription(&self.state, &self.settings, &name, effects);
                waiting::resume_for_subscription(self, &name, effects);
            }
            Completion::Deleted { address, answer } => {
                self.answer(Some(answer), Ok(()), effects);
                waiting::resume_for_queue(self, &address, effects);
            }
            Completion::Unsubscribed { name, answer } => self.unsubscribed(&name, answer, Ok(()), effects),
            Completion::OfflineEnded { ended, .. } => offline::ended(self, ended, effects),
            Completion::Resent(publish) => self.resent(*publish, effects),
            Completion::Shelved { jobs } => self.has_left(jobs, false, effects),
            Completion::Unshelved { .. } => {
                self.pass_time(effects);
                self.search_on(effects);
            }
            Completion::Expecting { queue, from } => tell(from, Peer::Expecting { queue }, effects),
            Completion::AuditGoes { queue } => send_audit(self, queue, effects),
            Completion::Remembers { queue, from } => audit_recorded(self, queue, from, effects),
            Completion::MoveBarrier { queue } => self.pass_move_barrier(&queue, effects),
            Completion::LeftFor { queue, to } => tell(to, Peer::Arrived { queue }, effects),
            Completion::Bound { .. } | Completion::Fired { .. } | Completion::Nothing => {}
        }
    }

    /// Every outstanding proposal failed: each waiter gets an error, and none of the proposals took
    /// effect.
    pub(crate) fn proposals_failed(&mut self, reason: &str, effects: &mut Vec<Effect>) {
        // Records that are durable come to their end. Proposals that follow from it are behind the
        // failure.
        let made = self.leader.log.made;
        self.leader.intake.recent.clear();
        self.leader.intake.homes.clear();
        self.finish_records(effects);
        let log = &mut self.leader.log;
        let failed = log.pending.len() - (log.made - made) as usize;
        let mut failed: Vec<Completion> = log.pending.drain(..failed).collect();
        let refusal = Refusal::StoreFailed { reason: reason.to_owned() };
        self.fail_searches(reason, effects);
        // Nothing is served before all has come back: else a later message could be sent ahead of
        // an earlier one.
        let touched = failed.iter_mut().flat_map(|completion| self.take_back_what_left(completion)).collect();
        self.dispatch_all(touched, effects);
        for completion in failed {
            self.fail(completion, &refusal, effects);
        }
        // Sends that waited for the log, or for a send that was refused now.
        self.unpark(effects);
        self.resume_behind_sends(effects);
    }

    /// Leaving entries go back to their place or their holder; the returned queues are to be
    /// dispatched.
    fn take_back_what_left(&mut self, completion: &mut Completion) -> Vec<QueueId> {
        match completion {
            Completion::Settled { settlements, answer: Some(_) } => self.give_back_all(settlements),
            Completion::Leased(answering) => self.take_back_reserved(answering),
            Completion::Handled(handling) => take_back_handled(self, handling),
            Completion::Transacted { settlements, volatile, .. } => {
                self.return_to_holders(settlements, std::mem::take(volatile))
            }
            Completion::Prepared { id, settlements } => {
                self.leader.transactions.end_prepared(*id);
                let volatile = self.leader.transactions.prepared_volatile.remove(id).unwrap_or_default();
                self.return_to_holders(settlements, volatile)
            }
            _ => Vec::new(),
        }
    }

    fn fail(&mut self, completion: Completion, refusal: &Refusal, effects: &mut Vec<Effect>) {
        let no = || Err(refusal.clone());
        match completion {
            Completion::Reply { connection, ticket }
            | Completion::Leaves { connection, ticket, .. }
            | Completion::Document { connection, ticket, .. } => {
                reply(connection, ticket, no(), effects);
            }
            Completion::Sent { connection, ticket, expecting, bytes } => {
                expected(&mut self.state, &mut self.leader, &expecting, bytes);
                reply(connection, ticket, no(), effects);
                self.unpark_held_by_any(&expecting, effects);
            }
            Completion::Piece { connection, upload, bytes, ticket, .. } => {
                self.piece_failed((connection, upload), bytes, (ticket, refusal), effects);
            }
            Completion::Bound { queue } => bind_failed(&mut self.state, &mut self.leader, queue),
            Completion::Declared { queue } => self.queue_failed(&queue, refusal, effects),
            Completion::Settled { settlements, answer: None } => {
                self.leader.settling.unsaved.extend(settlements)
            }
            Completion::Settled { answer, .. } => self.answer(answer, no(), effects),
            Completion::Transacted { shares, answer, .. } => {
                shares_ended(shares, false, effects);
                self.answer(answer, no(), effects);
            }
            Completion::Prepared { id, .. } => {
                tell(id.coordinator, Peer::Prepared { id, result: no() }, effects);
            }
            Completion::Decided { id } | Completion::Promised { id } | Completion::Withdrawn { id } => {
                self.decision_failed(id, refusal, effects);
            }
            Completion::Subscribed { name } => {
                let waiting = self.leader.intake.waiting.take_for_subscription(&name);
                self.refuse_waiting(waiting, refusal, effects);
            }
            // The address is there as before, for readers that wait for it.
            Completion::Deleted { address, answer } => {
                self.answer(Some(answer), no(), effects);
                waiting::resume_for_queue(self, &address, effects);
            }
            Completion::Unsubscribed { name, answer } => self.unsubscribed(&name, answer, no(), effects),
            Completion::OfflineEnded { queue, ended } => {
                offline::note(self, queue);
                self.unsubscribed(&ended.name, None, no(), effects);
            }
            Completion::Resent(publish) => self.resend_failed(&publish, refusal, effects),
            Completion::Fired { due } => not_fired(&mut self.state, self.now_ms, due),
            Completion::Shelved { jobs } => self.has_left(jobs, true, effects),
            Completion::Unshelved { shelf } => not_unshelved(&mut self.state, self.now_ms, shelf),
            // Known here for this run; the log learns the next count.
            Completion::Counted { .. } => {}
            Completion::Leased(answering) => refuse_reserve(&answering, refusal, effects),
            Completion::Lent(deliveries) => lending::recorded(self, deliveries, effects),
            Completion::Handled(handling) => {
                reply(handling.connection, handling.ticket, no(), effects);
            }
            Completion::Asked(asked) => reply(asked.connection, asked.ticket, no(), effects),
            Completion::Posted(posting) => self.post_failed(&posting, refusal, effects),
            Completion::MoveBarrier { queue } | Completion::LeftFor { queue, .. } => {
                move_failed(&mut self.leader, self.now_ms, &queue)
            }
            // Asked for again when the log recovers, or after a while.
            Completion::AuditGoes { .. } | Completion::Remembers { .. } => {}
            Completion::Ended { .. } | Completion::Expecting { .. } | Completion::Nothing => {}
        }
    }

    /// Whether the disk has room; when it has room again, waiting commands are proposed again.
    pub(crate) fn space(&mut self, ample: bool, effects: &mut Vec<Effect>) {
        self.leader.log.space_ample = ample;
        if !ample {
            return;
        }
        let unsaved = std::mem::take(&mut self.leader.settling.unsaved);
        for settlements in unsaved.chunks(self.settings.slice_changes.max(1)).map(<[_]>::to_vec) {
            let command = postroad_model::Command::Settle(settlements.clone());
            let completion = Completion::Settled { settlements, answer: None };
            self.propose(command, postroad_model::Urgency::Lazy, completion, effects);
        }
        self.bind_again(effects);
        resolve_transactions(&mut self.state, &mut self.leader, effects);
        self.pass_time(effects);
        self.unpark(effects);
    }
}
