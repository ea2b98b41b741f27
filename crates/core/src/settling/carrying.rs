//! Large bodies that go to another partition with their messages: to the dead letters, or back from
//! there.
//!
//! ```text
//!  here                                              there
//!   │ CarryChunk: read ── Peer::Piece ──────────────▶ record Chunk, which no message names yet
//!   │ ◀────────────────── Peer::PieceTaken ───────── durable: the next piece may come
//!   │ …
//!  the move is a transaction over both, as every move; `Peer::Enlist` says which upload is whose body
//! ```
//! Until then the entries are leaving, and a crash leaves them where they were: pieces that no
//! message names are free again. To each partition a few pieces of one move are on their way at
//! once, whatever waits after it: one that hangs holds up later ones.
//!
//! | obstacle | then |
//! |---|---|
//! | the other partition cannot write | a waiting client gets an error, and all stays; a move without one is tried again |
//! | a piece cannot be read here | its message is set aside like any other that cannot be read: it stays, and is counted once |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use postroad_model::{
    CarriedPiece, Chunks, ConnectionId, Effect, EntryTag, PartitionId, Peer, QueueId, Refusal, Sent,
    SettleCause, Settlement, Ticket,
};

use crate::Partition;
use crate::delivery::dispatch::set_entry_aside;
use crate::entries::entry_at;
use crate::intake::chunks::lend;
use crate::intake::limit::set_state;
use crate::intake::publish::answer_request;
use crate::leader::Leader;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::settle::stays;
use crate::transaction::{move_at_once, tell};

/// Pieces of a body on their way at once: one is read while another is written.
const AHEAD: usize = 2;

/// A move without a waiting client that could not be written is tried again after this time: the
/// other disk may have room then.
const RETRY_MS: u64 = 10_000;

/// Moves whose bodies must be there before them, in order.
#[derive(Debug, Default)]
pub struct Carrying {
    waiting: VecDeque<Move>,
    last_upload: u64,
}

/// See [`move_messages`].
#[derive(Debug)]
struct Move {
    sends: Vec<Sent>,
    settlements: Vec<Settlement>,
    answer: Option<(ConnectionId, Ticket)>,
    bodies: Vec<Body>,
    not_before_ms: u64,
}

/// A body on its way.
#[derive(Debug)]
pub struct Body {
    /// The place of its message among those that move.
    pub index: usize,
    /// Where it goes, and its message too, even if the queue moves meanwhile: that waits for both.
    pub to: PartitionId,
    /// Its number there.
    pub upload: u64,
    chunks: Arc<Chunks>,
    asked: usize,
    taken: usize,
}

impl Carrying {
    /// When something is to be tried again.
    pub fn next_ms(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.not_before_ms).filter(|at_ms| 0 < *at_ms).min()
    }

    /// Requests that wait for moves.
    pub fn waiters(&self) -> Vec<(ConnectionId, Ticket)> {
        self.waiting.iter().filter_map(|one| one.answer).collect()
    }

    /// Nothing waits; numbers go on.
    pub fn successor(&self) -> Carrying {
        Carrying { waiting: VecDeque::new(), last_upload: self.last_upload }
    }

    /// For each other partition, asks for the pieces that the first move to it may have on their
    /// way; the place of a move whose bodies are all there.
    fn ask(&mut self, now_ms: u64, partitions: u16, effects: &mut Vec<Effect>) -> Option<usize> {
        let mut busy = BTreeSet::new();
        for (index, one) in self.waiting.iter_mut().enumerate() {
            if usize::from(partitions) <= busy.len() + 1 {
                break;
            }
            if now_ms < one.not_before_ms {
                continue;
            }
            let is_first = one.bodies.iter().all(|body| !busy.contains(&body.to));
            busy.extend(one.bodies.iter().map(|body| body.to));
            if !is_first {
                continue;
            }
            one.not_before_ms = 0;
            match one.bodies.iter_mut().find(|body| !body.is_complete()) {
                Some(body) => body.ask(&one.sends, effects),
                None => return Some(index),
            }
        }
        None
    }

    /// The move that this body belongs to, by its place.
    fn find(&self, upload: u64) -> Option<usize> {
        self.waiting.iter().position(|one| one.bodies.iter().any(|body| body.upload == upload))
    }

    /// Takes a move back, with its results elsewhere.
    fn give_up_move(&mut self, index: usize, effects: &mut Vec<Effect>) -> Option<Move> {
        let failed = self.waiting.remove(index)?;
        for body in &failed.bodies {
            tell(body.to, Peer::Forsake { upload: body.upload }, effects);
        }
        Some(failed)
    }
}

impl Body {
    fn is_complete(&self) -> bool {
        self.taken == self.chunks.positions.len()
    }

    /// Asks for as many pieces as may be on their way.
    fn ask(&mut self, sends: &[Sent], effects: &mut Vec<Effect>) {
        let Some(sent) = sends.get(self.index) else { return };
        while self.asked < self.chunks.positions.len().min(self.taken + AHEAD) {
            let (upload, index, address) = (self.upload, self.asked as u64, sent.to.clone());
            let (position, piece) =
                (self.chunks.positions[self.asked], CarriedPiece { upload, index, address });
            effects.push(Effect::CarryChunk { position, to: self.to, piece });
            self.asked += 1;
        }
    }
}

impl Partition {
    /// Whether messages wait for their bodies to be in another partition.
    pub fn is_carrying(&self) -> bool {
        !self.leader.settling.carrying.waiting.is_empty()
    }
}

/// The large bodies that go to other partitions, none of which has any of them yet.
fn bodies_to_carry(leader: &mut Leader, settings: &Settings, sends: &[Sent]) -> Vec<Body> {
    let mut bodies = Vec::new();
    for (index, sent) in sends.iter().enumerate() {
        let to = settings.partition_of(&sent.to);
        if let Some(chunks) = sent.message.chunks().filter(|_| to != settings.id).cloned() {
            leader.settling.carrying.last_upload += 1;
            let upload = leader.settling.carrying.last_upload;
            bodies.push(Body { index, to, upload, chunks, asked: 0, taken: 0 });
        }
    }
    bodies
}

/// Entries of one queue leave it, and these messages, which they were, go elsewhere: as
/// [`move_messages`].
pub fn move_entries(
    partition: &mut Partition,
    (queue, tags, cause): (QueueId, &[EntryTag], SettleCause),
    sends: Vec<Sent>,
    leaving: Vec<Settlement>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let mut settlements = leaving;
    for tag in tags {
        // A message in memory alone stays too, until the log has its dead letter.
        set_state(partition, queue, *tag, EntryState::Leaving);
        settlements.push(Settlement { queue, tag: *tag, cause });
    }
    move_messages(partition, sends, settlements, answer, effects);
}

/// Moves messages of this partition to other addresses, all or nothing; whatever else is
/// settled goes with them.
pub fn move_messages(
    partition: &mut Partition,
    sends: Vec<Sent>,
    settlements: Vec<Settlement>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    // The entry lets its body go before the message that it becomes has it, whatever becomes of
    // the queue meanwhile.
    sends.iter().for_each(|sent| lend(&mut partition.leader, partition.now_ms, &sent.message, effects));
    let bodies = bodies_to_carry(&mut partition.leader, &partition.settings, &sends);
    if bodies.is_empty() {
        return move_at_once(partition, sends, &[], settlements, answer, effects);
    }
    partition.leader.settling.carrying.waiting.push_back(Move {
        sends,
        settlements,
        answer,
        bodies,
        not_before_ms: 0,
    });
    go_on_carrying(partition, effects);
}

/// Goes on with the moves that may; makes those whose bodies are there.
pub fn go_on_carrying(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while let Some(index) = partition.leader.settling.carrying.ask(
        partition.now_ms,
        partition.settings.placement.partitions,
        effects,
    ) {
        let Some(Move { sends, settlements, answer, bodies, .. }) =
            partition.leader.settling.carrying.waiting.remove(index)
        else {
            return;
        };
        move_at_once(partition, sends, &bodies, settlements, answer, effects);
    }
}

/// Another partition has a piece in its log, or has not.
pub fn piece_taken(
    partition: &mut Partition,
    from: PartitionId,
    upload: u64,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    let Some(index) = partition.leader.settling.carrying.find(upload) else {
        // Its move was given up while it was on its way.
        return tell(from, Peer::Forsake { upload }, effects);
    };
    match result {
        Ok(()) => {
            let bodies = &mut partition.leader.settling.carrying.waiting[index].bodies;
            bodies.iter_mut().filter(|body| body.upload == upload).for_each(|body| body.taken += 1);
        }
        Err(refusal) => cannot_write(partition, index, refusal, effects),
    }
    go_on_carrying(partition, effects);
}

/// A waiting client gets an error, and everything stays where it was; a move without one is
/// tried again.
fn cannot_write(partition: &mut Partition, index: usize, refusal: Refusal, effects: &mut Vec<Effect>) {
    let Some(failed) = partition.leader.settling.carrying.give_up_move(index, effects) else { return };
    if failed.answer.is_some() {
        stays(partition, &failed.settlements, effects);
        return answer_request(partition, failed.answer, Err(refusal), effects);
    }
    let (bodies, not_before_ms) = (
        bodies_to_carry(&mut partition.leader, &partition.settings, &failed.sends),
        partition.now_ms + RETRY_MS,
    );
    partition.leader.settling.carrying.waiting.push_back(Move { bodies, not_before_ms, ..failed });
}

/// A piece of the body cannot be read here, and never will be: its message is set aside. The
/// rest of the move goes on, unless a client waits for all of it.
pub fn piece_unread(partition: &mut Partition, upload: u64, reason: String, effects: &mut Vec<Effect>) {
    let Some(index) = partition.leader.settling.carrying.find(upload) else { return };
    let Some(mut failed) = partition.leader.settling.carrying.give_up_move(index, effects) else { return };
    let Some(lost) = failed.bodies.iter().find(|body| body.upload == upload) else { return };
    failed.sends.remove(lost.index);
    let (aside, others) =
        failed.settlements.into_iter().partition(|end| has_body(partition, end, &lost.chunks));
    failed.settlements = others;
    set_entries_aside(partition, &aside);
    if failed.answer.is_some() {
        stays(partition, &failed.settlements, effects);
        let reason = format!("a message, {reason}");
        answer_request(partition, failed.answer, Err(Refusal::Unreadable { reason }), effects);
    } else {
        failed.bodies = bodies_to_carry(&mut partition.leader, &partition.settings, &failed.sends);
        partition.leader.settling.carrying.waiting.insert(index, failed);
    }
    go_on_carrying(partition, effects);
}

/// Whether this entry's message has this body.
fn has_body(partition: &mut Partition, of: &Settlement, chunks: &Arc<Chunks>) -> bool {
    let key = entry_at(partition, of.queue, of.tag).map(|entry| entry.key);
    let headers = key.and_then(|key| partition.state.bodies.headers(key));
    headers.and_then(|(message, _)| message.chunks()) == Some(chunks)
}

/// These stay where they are, undelivered, until the process ends. There are none if their
/// queue has ended.
fn set_entries_aside(partition: &mut Partition, aside: &[Settlement]) {
    partition.counters.unreadable += (aside.len() as u64).max(1);
    for Settlement { queue, tag, .. } in aside {
        set_entry_aside(partition, *queue, *tag);
    }
}
