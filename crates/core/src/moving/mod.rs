//! Moving: a queue leaves for another partition while it is in use, as operators want it who have
//! several stores.
//!
//! The partition that it leaves is its *origin*, the other its *target*. The origin's log alone
//! remembers that it is leaving; all else follows from that, in this run or a later one.
//! ```text
//!   origin                                      target                        all who send
//!   Leave is durable: it delivers no more
//!     ──Expect──────────────────────────────▶  takes in, delivers nothing
//!     ◀─────────────────────────────Expecting──
//!     ──Place──────────────────────────────────────────────────────────────▶  send there
//!     ◀──────────────────────────Placed, behind each core's last send to the origin──
//!   its messages go, oldest first, in transactions of some hundred messages:
//!     ──────────────────────────────────────▶  before those sent there
//!   consumers follow, once none of their deliveries is open
//!   Delete is durable
//!     ──Arrived─────────────────────────────▶  delivers
//! ```
//! A delivery in flight at the origin is settled there; a returned message goes too, in its place:
//! nothing behind it goes before it is decided. So for each queue there is one moment before which
//! all deliveries are the origin's and behind which all are the target's: order, groups and
//! exclusive consumers are as if its consumers had been slow for a while.
//!
//! A job that was made where the queue lived before sends there, and its messages go after the
//! queue in a move of its own. Of several moves of a queue that of where it lives comes last.
//!
//! Never here: stores, and who else must know where a queue lives.

mod audit;
mod origin;
mod resends;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{
    ConnectionId, Destination, Effect, EntryTag, Event, MessageKey, PartitionId, Refusal, Ticket,
};

use crate::Partition;
use crate::addresses::address::Addresses;
use crate::leader::Leader;
use crate::moving::origin::{begin_move, list_moves, placed};
use crate::moving::target::follow_queue;
use crate::state::State;

use audit::Handover;
pub use audit::{recorded as audit_recorded, send as send_audit};
pub use origin::{
    about_move, apply_leave, end_move, go_on_moving, lives_here_now, move_failed, own_step_ended,
    pass_move_barrier, passes_on, send_after,
};
use resends::Resends;
pub use resends::{behind_windows, forget_resends, lacks_windows, refuse_waiting, transacted_behind_windows};

/// How far queues on the move are, in this run.
#[derive(Default)]
pub struct Moves {
    /// How far queues are that are leaving this partition: see
    /// [`State::leaving`](crate::state::State::leaving).
    leaving: BTreeMap<Destination, Leaving>,
    /// Queues that come to this partition, and where from. Known to this run alone.
    expected: BTreeMap<Destination, BTreeSet<PartitionId>>,
    /// Resent messages that wait for the duplicate detection of their queue's former partition.
    resends: Resends,
    next: u64,
}

/// A queue that is leaving.
struct Leaving {
    to: PartitionId,
    /// By this its steps are known when they end.
    number: u64,
    stage: Stage,
    /// How many of those who send know its new place.
    placed: u16,
    /// Messages of a step that has not ended.
    moving: u64,
    moved: u64,
    /// Entries whose bodies cannot be read: they stay, and the others go.
    unreadable: BTreeSet<EntryTag>,
    /// The body that the next step waits for.
    awaits: Option<MessageKey>,
    /// Why the last step was refused.
    refused: Option<Refusal>,
    /// The time of the next step; `None`: it waits for an answer.
    next_ms: Option<u64>,
    /// How far the windows of the duplicate detection are.
    audit: Handover,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The target has not said that it waits.
    Announced,
    /// Not all who send know its new place.
    Placing,
    /// Messages go.
    Emptying,
    /// It was empty, and consumers follow. It is empty if nothing comes out of the log any more:
    /// that has to come round once more so often.
    Settling { rounds: u8 },
    /// Its end is on the way to the log.
    Ending,
    /// All readable messages have gone, and the target delivers: only unreadable ones are left.
    Stuck,
}

impl Leaving {
    fn new(to: PartitionId, number: u64) -> Leaving {
        Leaving {
            to,
            number,
            stage: Stage::Announced,
            placed: 0,
            moving: 0,
            moved: 0,
            unreadable: BTreeSet::new(),
            awaits: None,
            refused: None,
            next_ms: Some(0),
            audit: Handover::Due(0),
        }
    }
}

/// Marks the tickets of its steps among all of the partition's own.
const STEP: u64 = 1 << 63;

impl Moves {
    /// Nothing is under way; numbers go on.
    pub fn successor(&self) -> Moves {
        Moves { next: self.next, ..Moves::default() }
    }

    /// Requests that wait, for a leader that stops.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        self.resends.waiters()
    }

    /// When there is something to do, in ms since 1970.
    pub fn next_ms(&self) -> Option<u64> {
        self.leaving.values().filter_map(|leaving| leaving.next_ms).min()
    }

    /// A body came from the disk, or cannot be read.
    pub fn fetched(&mut self, key: MessageKey) {
        for leaving in self.leaving.values_mut().filter(|leaving| leaving.awaits == Some(key)) {
            (leaving.awaits, leaving.next_ms) = (None, Some(0));
        }
    }

    /// The body of this entry cannot be read.
    pub fn set_aside(&mut self, queue: &Destination, entry: EntryTag) {
        if let Some(leaving) = self.leaving.get_mut(queue) {
            leaving.unreadable.insert(entry);
        }
    }

    /// The queue is leaving, from now on or already.
    fn leave(&mut self, queue: Destination, to: PartitionId) {
        let number = STEP | self.next;
        self.next += 1;
        self.leaving.entry(queue).or_insert_with(|| Leaving::new(to, number));
    }

    /// The partitions that the queue comes from, if it is on its way here.
    pub fn origins_of(&self, queue: &Destination) -> Option<&BTreeSet<PartitionId>> {
        self.expected.get(queue)
    }

    /// Which queue a step was of that has ended; `None` if it was none of a move.
    fn of_step(&self, Ticket(number): Ticket) -> Option<Destination> {
        let found = self.leaving.iter().find(|(_, leaving)| leaving.number == number);
        found.map(|(queue, _)| queue.clone())
    }
}

/// At a start: each queue that is leaving a partition, with that partition and the queue's place.
/// The place is a partition that has the queue and is not moving it away, if there is one: a job's
/// later message may be logged with its former target. Otherwise it is the end of the chain of
/// moves.
pub fn places_of_leaving<'p>(
    partitions: impl Iterator<Item = (PartitionId, &'p Partition)>,
) -> Vec<(Destination, PartitionId, PartitionId)> {
    let partitions: Vec<(PartitionId, &Partition)> = partitions.collect();
    let leaving: Vec<(&Destination, PartitionId, PartitionId)> = partitions
        .iter()
        .flat_map(|(from, partition)| partition.leaving().map(|(queue, to)| (queue, *from, to)))
        .collect();
    let mut places = BTreeMap::new();
    for (queue, _, to) in &leaving {
        let goes_to = |at: PartitionId| {
            leaving.iter().find(|(other, from, _)| other == queue && *from == at).map(|(.., to)| *to)
        };
        let holds = |partition: &Partition| partition.state.addresses.own_queue(queue).is_some();
        let stays = partitions.iter().filter(|(id, partition)| goes_to(*id).is_none() && holds(partition));
        let stays: Vec<PartitionId> = stays.map(|(id, _)| *id).collect();
        // Messages of a job may have been on their way when the queue went on.
        let ways = std::iter::successors(Some(*to), |at| goes_to(*at));
        let end = ways.take(leaving.len() + 1).last().unwrap_or(*to);
        let place = stays.first().copied().filter(|_| !stays.contains(&end)).unwrap_or(end);
        places.insert(*queue, place);
    }
    leaving.iter().map(|(queue, from, _)| ((*queue).clone(), *from, places[queue])).collect()
}

impl Partition {
    /// The queues that are leaving this partition, and where to.
    pub fn leaving(&self) -> impl Iterator<Item = (&Destination, PartitionId)> {
        self.state.leaving.iter().map(|(queue, to)| (queue, *to))
    }
}

/// Whether the queue delivers nothing, as it is on the move.
pub fn is_moving(state: &State, leader: &Leader, queue: &Destination) -> bool {
    state.leaving.contains_key(queue) || leader.moves.expected.contains_key(queue)
}

/// The queues that the log says are leaving begin to do so.
pub fn resume_moves(state: &mut State, leader: &mut Leader) {
    for (queue, to) in &state.leaving {
        leader.moves.leave(queue.clone(), *to);
    }
}

impl Addresses {
    pub fn own_queue(&self, queue: &Destination) -> Option<postroad_model::QueueId> {
        self.get(queue)?.bound.own()
    }
}

/// The queue delivers nothing from now on, or again.
fn set_on_the_move(state: &mut State, queue: &Destination, on_the_move: bool) {
    if let Some(queue) = state.addresses.own_queue(queue).and_then(|id| state.queues.get_mut(&id)) {
        queue.on_the_move = on_the_move;
    }
}

/// Events of operators and clients about queues on the move.
pub fn about_moves(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Move { queue, to, connection, ticket } => {
            begin_move(partition, queue, to, (connection, ticket), effects);
        }
        Event::ListMoves { connection, ticket } => {
            list_moves(&partition.state, &partition.leader, connection, ticket, effects)
        }
        Event::Placed { queue, of } => {
            placed(&mut partition.leader, partition.now_ms, &queue, of);
            go_on_moving(partition, effects);
        }
        Event::Follow(attach) => follow_queue(partition, attach, effects),
        Event::Leave { consumer } => partition.leader.connections.leave_for(consumer, effects),
        _ => {}
    }
}
