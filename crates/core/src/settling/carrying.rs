//! Large bodies that go to another partition with their messages: to the dead letters, or back from there.
//!
//! ```text
//!  here                                              there
//!   │ CarryChunk: read ── Peer::Piece ──────────────▶ record Chunk, which no message names yet
//!   │ ◀────────────────── Peer::PieceTaken ───────── durable: the next piece may come
//!   │ …
//!  the move is a transaction over both, as every move; `Peer::Enlist` says which upload is whose body
//! ```
//! Until then the entries are leaving, and a crash leaves them where they were: pieces that no message names are free again.
//! A few pieces of one move are on their way at once, whatever waits behind it.

use std::collections::VecDeque;
use std::sync::Arc;

use postroad_model::{Chunks, ConnectionId, Effect, PartitionId, Peer, Refusal, Sent, Settlement, Ticket};

use crate::Partition;

/// Pieces of a body on their way at once: one is read while another is written.
const AHEAD: usize = 2;

/// A move that nobody waits for and that could not be made is tried again after so long: the other disk may have room then.
const RETRY_MS: u64 = 10_000;

/// Moves whose bodies must be there before them, in order.
#[derive(Debug, Default)]
pub struct Carrying {
    waiting: VecDeque<Move>,
    last_upload: u64,
}

/// See [`Partition::move_messages`].
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
struct Body {
    /// The place of its message among those that move.
    index: usize,
    to: PartitionId,
    upload: u64,
    chunks: Arc<Chunks>,
    asked: usize,
    taken: usize,
}

impl Carrying {
    /// When something is to be tried again.
    pub fn next_ms(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.not_before_ms).filter(|at_ms| 0 < *at_ms).min()
    }

    fn next_upload(&mut self) -> u64 {
        self.last_upload += 1;
        self.last_upload
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
            let (to, upload, address) = (self.to, self.upload, sent.to.clone());
            let position = self.chunks.positions[self.asked];
            effects.push(Effect::CarryChunk { position, to, upload, address });
            self.asked += 1;
        }
    }
}

impl Partition {
    /// Moves messages of this partition to other addresses, all or nothing; whatever else is settled goes with them.
    pub(crate) fn move_messages(
        &mut self,
        sends: Vec<Sent>,
        settlements: Vec<Settlement>,
        answer: Option<(ConnectionId, Ticket)>,
        effects: &mut Vec<Effect>,
    ) {
        let here = self.settings.id;
        let mut bodies = Vec::new();
        for (index, sent) in sends.iter().enumerate() {
            let to = self.partition_of(&sent.to);
            if let Some(chunks) = sent.message.chunks().filter(|_| to != here).cloned() {
                let upload = self.carrying.next_upload();
                bodies.push(Body { index, to, upload, chunks, asked: 0, taken: 0 });
                // Whatever becomes of the queue meanwhile.
                self.lend(&sent.message, effects);
            }
        }
        if bodies.is_empty() {
            return self.move_at_once(sends, Vec::new(), settlements, answer, effects);
        }
        self.carrying.waiting.push_back(Move { sends, settlements, answer, bodies, not_before_ms: 0 });
        self.go_on_carrying(effects);
    }

    /// Goes on with the first move that may; makes those whose bodies are there.
    pub(crate) fn go_on_carrying(&mut self, effects: &mut Vec<Effect>) {
        let now_ms = self.now_ms;
        while let Some(index) = self.carrying.waiting.iter().position(|one| one.not_before_ms <= now_ms) {
            let Some(first) = self.carrying.waiting.get_mut(index) else { return };
            first.not_before_ms = 0;
            if let Some(body) = first.bodies.iter_mut().find(|body| !body.is_complete()) {
                return body.ask(&first.sends, effects);
            }
            let Some(Move { sends, settlements, answer, bodies, .. }) = self.carrying.waiting.remove(index)
            else {
                return;
            };
            let uploads = bodies.iter().map(|body| (body.index, body.upload)).collect();
            self.move_at_once(sends, uploads, settlements, answer, effects);
        }
    }

    /// Another partition has a piece in its log, or has not.
    pub(crate) fn piece_taken(
        &mut self,
        from: PartitionId,
        upload: u64,
        result: Result<(), Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        let is_it = |body: &Body| body.upload == upload;
        let Some(index) = self.carrying.waiting.iter().position(|one| one.bodies.iter().any(is_it)) else {
            // Its move was given up while it was on its way.
            return self.tell(from, Peer::Forsake { upload }, effects);
        };
        match result {
            Ok(()) => {
                let bodies = &mut self.carrying.waiting[index].bodies;
                bodies.iter_mut().filter(|body| is_it(body)).for_each(|body| body.taken += 1);
            }
            Err(refusal) => self.cannot_carry(index, &refusal, effects),
        }
        self.go_on_carrying(effects);
    }

    /// Whoever waits is told, and everything stays where it was; what nobody waits for is tried again.
    fn cannot_carry(&mut self, index: usize, refusal: &Refusal, effects: &mut Vec<Effect>) {
        let Some(mut failed) = self.carrying.waiting.remove(index) else { return };
        for body in &mut failed.bodies {
            self.tell(body.to, Peer::Forsake { upload: body.upload }, effects);
            (body.upload, body.asked, body.taken) = (self.carrying.next_upload(), 0, 0);
        }
        if failed.answer.is_some() {
            self.stay(&failed.settlements, effects);
            return self.answer(failed.answer, Err(refusal.clone()), effects);
        }
        failed.not_before_ms = self.now_ms + RETRY_MS;
        self.carrying.waiting.push_back(failed);
    }
}
