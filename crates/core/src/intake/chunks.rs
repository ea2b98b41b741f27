//! Large bodies: pieces in the log before the message that names them, and how long the log keeps
//! them.
//!
//! ```text
//!   Event::Chunk ──▶ waiting ──▶ Command::Chunk in the log ──▶ Upload ──▶ Publish: the message names all its records
//!                    (few bytes are on their way at once)
//! ```
//! Each message counts its records as live, from when it is carried out until it is gone: so one
//! body may belong to several
//! messages, such as a dead letter and the one that it was. Between its upload and that moment, and
//! while it is being
//! delivered, the pieces are *lent*: they count once more, as long as they are in use outside of
//! this room.
//! A message that moves to another partition takes its body with it in the same way, by
//! [`Peer::Piece`] in the place of the event: see
//! `settling::carrying`.
//! None of this is replicated or in a snapshot: after a start no piece is in use.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{
    CarriedPiece, Chunks, Command, ConnectionId, Destination, Effect, Event, Message, MessageKey,
    PartitionId, Peer, Position, Publish, Refusal, Sent, Ticket, TransactionKey, Urgency,
};

use crate::Partition;
use crate::leader::Leader;
use crate::log::completion::Completion;
use crate::log::propose::propose_for;
use crate::moving::passes_on;
use crate::partition::reply;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::{open_transaction, tell};

/// Bytes of pieces that are on their way to the log at once, of all uploads together: a turn of the
/// journal is not much longer for them. Further pieces of a connection wait in its session.
const UNDER_WAY_BYTES_MAX: u64 = 2 << 20;

/// The interval of checks on lent pieces.
const LOOK_MS: u64 = 1000;

/// Large bodies on their way in or out.
#[derive(Default)]
pub struct Uploads {
    open: BTreeMap<(ConnectionId, u64), Upload>,
    /// Pieces that wait for earlier ones, of any sender.
    waiting: VecDeque<Piece>,
    under_way_bytes: u64,
    lent: Vec<ChunksInUse>,
    next_look_ms: Option<u64>,
}

/// The pieces of one body that are in the log.
struct Upload {
    /// Where its message goes.
    to: Arc<[Destination]>,
    bytes: u64,
    /// How many have come.
    begun: u64,
    /// Those that are in the log, by their places in the body: from another partition they come in
    /// any order.
    pieces: BTreeMap<u64, (Position, u64)>,
}

/// A piece on its way to the log.
#[derive(Debug)]
struct Piece {
    connection: ConnectionId,
    upload: u64,
    to: Arc<[Destination]>,
    /// Its place in the body, from 0.
    index: u64,
    bytes: Bytes,
    ticket: Ticket,
}

/// Pieces that count because they are in use.
struct ChunksInUse {
    chunks: Arc<Chunks>,
    /// They were not sent to a consumer yet: they need not be lent any more once the message is in
    /// the log.
    is_new: bool,
}

impl Uploads {
    /// When it is time to look who has still something in hand.
    pub fn next_look_ms(&self) -> Option<u64> {
        self.next_look_ms.filter(|_| !self.lent.is_empty())
    }

    /// Takes the pieces that are not proposed yet; a piece of another partition is known by its
    /// upload.
    pub fn take_waiting(&mut self) -> Vec<(ConnectionId, Ticket)> {
        let waiting = self.waiting.drain(..).map(|piece| match piece.connection.is_internal() {
            true => (piece.connection, Ticket(piece.upload)),
            false => (piece.connection, piece.ticket),
        });
        waiting.collect()
    }

    /// Releases all pieces of unfinished uploads, and those that are lent.
    pub fn release_all(&mut self, effects: &mut Vec<Effect>) {
        let open =
            std::mem::take(&mut self.open).into_values().flat_map(|upload| upload.pieces.into_values());
        effects.extend(open.map(|(position, bytes)| Effect::Release { position, ordinal: 0, bytes }));
        self.lent.drain(..).for_each(|lent| release(&lent.chunks, effects));
    }

    /// Bodies on their way in whose messages go to this address.
    pub fn sent_to(&self, address: &Destination) -> u64 {
        self.open.values().filter(|upload| upload.to.contains(address)).count() as u64
    }

    /// The rest of an upload will not come. Pieces of it that still wait go nowhere; a session
    /// counts on their answers all the same.
    pub fn abandon(&mut self, connection: ConnectionId, upload: u64, effects: &mut Vec<Effect>) {
        let is_its = |piece: &Piece| (piece.connection, piece.upload) == (connection, upload);
        let (dropped, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_its);
        self.waiting = waiting;
        if !connection.is_internal() {
            let dropped: VecDeque<Piece> = dropped;
            dropped.iter().for_each(|piece| reply(connection, piece.ticket, Ok(()), effects));
        }
        let given_up = self.open.remove(&(connection, upload));
        for (position, bytes) in given_up.into_iter().flat_map(|given_up| given_up.pieces.into_values()) {
            effects.push(Effect::Release { position, ordinal: 0, bytes });
        }
    }

    /// A message refers to its body from now on.
    pub fn retain_chunks(&mut self, message: &Message, effects: &mut Vec<Effect>) {
        let Some(chunks) = message.chunks() else { return };
        retain(chunks, effects);
        let is_it = |lent: &ChunksInUse| lent.is_new && Arc::ptr_eq(&lent.chunks, chunks);
        if let Some(index) = self.lent.iter().position(is_it) {
            release(&self.lent.swap_remove(index).chunks, effects);
        }
    }

    /// A connection is gone, with its unfinished uploads.
    pub fn abandon_all(&mut self, connection: ConnectionId, effects: &mut Vec<Effect>) {
        let of = (connection, 0)..=(connection, u64::MAX);
        let uploads: Vec<u64> = self.open.range(of).map(|((_, upload), _)| *upload).collect();
        for upload in uploads {
            self.abandon(connection, upload, effects);
        }
    }
}

fn retain(chunks: &Chunks, effects: &mut Vec<Effect>) {
    effects.extend(chunks.iter().map(|(position, bytes)| Effect::Retain { position, count: 1, bytes }));
}

/// A message refers to this body no more.
pub fn release(chunks: &Chunks, effects: &mut Vec<Effect>) {
    let release = |(position, bytes)| Effect::Release { position, ordinal: 0, bytes };
    effects.extend(chunks.iter().map(release));
}

/// Answers the sender of the piece: a session, or another partition.
fn answer_piece(
    (connection, upload): (ConnectionId, u64),
    ticket: Ticket,
    result: Result<(), Refusal>,
    effects: &mut Vec<Effect>,
) {
    match connection.partition() {
        Some(to) => tell(to, Peer::PieceTaken { upload, result }, effects),
        None => reply(connection, ticket, result, effects),
    }
}

/// A message that was due later is gone.
pub fn release_scheduled(state: &mut State, key: MessageKey, effects: &mut Vec<Effect>) {
    if let Some(chunks) = state.scheduled_bodies.remove(&key) {
        release(&chunks, effects);
    }
}

fn look_later(leader: &mut Leader, now_ms: u64) {
    leader.intake.uploads.next_look_ms.get_or_insert(now_ms + LOOK_MS);
}

/// Takes back the pieces that are not in use any more.
pub fn look_who_has_pieces(leader: &mut Leader, now_ms: u64, effects: &mut Vec<Effect>) {
    if leader.intake.uploads.next_look_ms.is_none_or(|look_ms| now_ms < look_ms) {
        return;
    }
    leader.intake.uploads.lent.retain(|lent| {
        let is_alone = Arc::strong_count(&lent.chunks) == 1;
        if is_alone {
            release(&lent.chunks, effects);
        }
        !is_alone
    });
    leader.intake.uploads.next_look_ms = (!leader.intake.uploads.lent.is_empty()).then_some(now_ms + LOOK_MS);
}

/// The body that has come, for the message that will name it.
fn take_upload(leader: &mut Leader, now_ms: u64, upload: (ConnectionId, u64)) -> Option<Arc<Chunks>> {
    let Upload { bytes, pieces, .. } = leader.intake.uploads.open.remove(&upload)?;
    let piece_bytes = pieces.get(&0).map_or(0, |(_, bytes)| *bytes as u32);
    debug_assert!(
        pieces.values().rev().skip(1).all(|(_, bytes)| *bytes == u64::from(piece_bytes)),
        "only the last piece is shorter"
    );
    let positions = pieces.into_values().map(|(position, _)| position).collect();
    let chunks = Arc::new(Chunks { bytes, piece_bytes, positions });
    // They count already, each since it is in the log.
    leader.intake.uploads.lent.push(ChunksInUse { chunks: chunks.clone(), is_new: true });
    look_later(leader, now_ms);
    Some(chunks)
}

/// A message that is due later refers to its body from now on.
pub fn schedule_chunks(
    state: &mut State,
    leader: &mut Leader,
    key: MessageKey,
    message: &Message,
    effects: &mut Vec<Effect>,
) {
    leader.intake.uploads.retain_chunks(message, effects);
    if let Some(chunks) = message.chunks() {
        state.scheduled_bodies.insert(key, chunks.clone());
    }
}

/// A message is about to be delivered: its body stays until the delivery is not in use any
/// more, regardless of the message.
pub fn lend(leader: &mut Leader, now_ms: u64, message: &Message, effects: &mut Vec<Effect>) {
    let Some(chunks) = message.chunks() else { return };
    let known = leader.intake.uploads.lent.iter_mut().find(|lent| Arc::ptr_eq(&lent.chunks, chunks));
    match known {
        Some(lent) => lent.is_new = false,
        None => {
            retain(chunks, effects);
            leader.intake.uploads.lent.push(ChunksInUse { chunks: chunks.clone(), is_new: false });
            look_later(leader, now_ms);
        }
    }
}

/// Gives messages that come from another partition their bodies, which came before them.
pub fn finish_peers_uploads(
    leader: &mut Leader,
    settings: &Settings,
    now_ms: u64,
    key: TransactionKey,
    sends: &mut [Sent],
    uploads: Vec<(usize, u64)>,
) {
    for (index, upload) in uploads {
        match (take_upload(leader, now_ms, (key.connection, upload)), sends.get_mut(index)) {
            (Some(chunks), Some(sent)) => {
                sent.message = sent.message.clone().with_chunks(Some(chunks));
            }
            _ => {
                let reason = "the body of a message has not come".to_owned();
                open_transaction(leader, settings, now_ms, key).refuse(Refusal::StoreFailed { reason });
            }
        }
    }
}

/// Gives a message the body that has come before it; `false` if there is none.
pub fn finish_upload(leader: &mut Leader, now_ms: u64, publish: &mut Publish) -> bool {
    let Some(upload) = publish.upload.take() else { return true };
    let Some(chunks) = take_upload(leader, now_ms, (publish.connection, upload)) else { return false };
    publish.sent.message = publish.sent.message.clone().with_chunks(Some(chunks));
    true
}

/// Events of connections about pieces.
pub fn pass_on(partition: &mut Partition, event: Event, effects: &mut Vec<Effect>) {
    match event {
        Event::Chunk { connection, upload, to, bytes, ticket } => {
            let index = partition
                .leader
                .intake
                .uploads
                .open
                .get(&(connection, upload))
                .map_or(0, |upload| upload.begun);
            take_piece(partition, Piece { connection, upload, to, index, bytes, ticket }, effects);
        }
        Event::Abandon { connection, upload } => {
            partition.leader.intake.uploads.abandon(connection, upload, effects)
        }
        Event::WantChunk { consumer, position, .. } => {
            effects.push(Effect::ReadChunk { connection: consumer.connection, position });
        }
        _ => {}
    }
}

/// One more piece of a large body.
fn take_piece(partition: &mut Partition, piece: Piece, effects: &mut Vec<Effect>) {
    let (upload, to) = ((piece.connection, piece.upload), &piece.to);
    let begin = || Upload { to: to.clone(), bytes: 0, begun: 0, pieces: BTreeMap::new() };
    partition.leader.intake.uploads.open.entry(upload).or_insert_with(begin).begun += 1;
    partition.leader.intake.uploads.waiting.push_back(piece);
    propose_pieces(partition, effects);
}

/// Sends pieces on their way, as many as may be.
fn propose_pieces(partition: &mut Partition, effects: &mut Vec<Effect>) {
    while partition.leader.intake.uploads.under_way_bytes < UNDER_WAY_BYTES_MAX
        && let Some(piece) = partition.leader.intake.uploads.waiting.pop_front()
    {
        let Piece { connection, upload, to, index, bytes, ticket } = piece;
        if !partition.leader.log.space_ample {
            let reason = "the disk is full".to_owned();
            let result = Err(Refusal::StoreFailed { reason });
            answer_piece((connection, upload), ticket, result, effects);
            continue;
        }
        let length = bytes.len() as u64;
        partition.leader.intake.uploads.under_way_bytes += length;
        let completion = Completion::Piece { connection, upload, index, bytes: length, ticket };
        propose_for(partition, Some(to), Command::Chunk(bytes), Urgency::Waiting, completion, effects);
    }
}

/// A piece is in the log, as the last record that was applied.
pub fn piece_stored(
    partition: &mut Partition,
    (connection, upload): (ConnectionId, u64),
    (index, bytes): (u64, u64),
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    partition.leader.intake.uploads.under_way_bytes -= bytes;
    // If the upload was given up meanwhile nothing refers to the record, and nothing keeps it.
    if let (Some(open), Some(position)) =
        (partition.leader.intake.uploads.open.get_mut(&(connection, upload)), partition.state.applied)
    {
        open.bytes += bytes;
        open.pieces.insert(index, (position, bytes));
        effects.push(Effect::Retain { position, count: 1, bytes });
    }
    answer_piece((connection, upload), ticket, Ok(()), effects);
    propose_pieces(partition, effects);
}

/// A piece did not get into the log.
pub fn piece_failed(
    partition: &mut Partition,
    upload: (ConnectionId, u64),
    bytes: u64,
    (ticket, refusal): (Ticket, &Refusal),
    effects: &mut Vec<Effect>,
) {
    partition.leader.intake.uploads.under_way_bytes -= bytes;
    answer_piece(upload, ticket, Err(refusal.clone()), effects);
    propose_pieces(partition, effects);
}

/// A piece of a body whose message will come from another partition.
pub fn take_peers_piece(
    partition: &mut Partition,
    from: PartitionId,
    CarriedPiece { upload, index, address }: CarriedPiece,
    bytes: Bytes,
    effects: &mut Vec<Effect>,
) {
    let connection = ConnectionId::internal(from);
    if !partition.leader.intake.uploads.open.contains_key(&(connection, upload))
        && !passes_on(&partition.leader, &partition.settings, &address)
    {
        // It was asked for, or has waited for others, while the queue was here; its message
        // would be the only one that is.
        let result = Err(Refusal::QueueMoving(address));
        return tell(from, Peer::PieceTaken { upload, result }, effects);
    }
    let to = [address].into();
    take_piece(partition, Piece { connection, upload, to, index, bytes, ticket: Ticket(0) }, effects);
}
