//! The contents of prepared transactions: each is bounded by the total of all of them.

use std::collections::BTreeMap;

use postroad_model::{Refusal, TransactionId, TransactionKey};

use super::open::{SENT_BYTES, SETTLED_BYTES};
use super::senders::SentTo;
use crate::leader::{Leader, Transactions};
use crate::memory::bodies::Bodies;
use crate::settings::Settings;
use crate::state::State;
use crate::transaction::Prepared;

/// Bytes of a prepared transaction beside its messages and settlements.
const PREPARED_BYTES: u64 = 512;

/// The bytes that each prepared transaction holds in memory here, and where its messages go, from
/// its preparation to its end.
#[derive(Debug, Default)]
pub struct HeldByPrepared {
    by_id: BTreeMap<TransactionId, Held>,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    /// Of each session that has a part in it; known once all of them are closed.
    sent_to: Vec<SentTo>,
}

impl HeldByPrepared {
    fn begin(&mut self, id: TransactionId, held: Held) {
        self.bytes += held.bytes;
        self.by_id.insert(id, held);
    }

    fn end(&mut self, id: TransactionId) -> Vec<SentTo> {
        let Some(held) = self.by_id.remove(&id) else { return Vec::new() };
        self.bytes -= held.bytes;
        held.sent_to
    }

    /// All of them together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where they send, for a check.
    pub fn sent_to(&self) -> impl Iterator<Item = &SentTo> {
        self.by_id.values().flat_map(|held| &held.sent_to)
    }
}

impl Transactions {
    /// The transaction is being prepared, and holds so much.
    pub fn begin_prepared(&mut self, id: TransactionId, bytes: u64) {
        self.end_prepared(id);
        self.branches.held_by_prepared.begin(id, Held { bytes, sent_to: Vec::new() });
    }

    /// The transaction's messages go there, until it ends.
    pub fn keep_sent_to(&mut self, id: TransactionId, sent_to: Vec<SentTo>) {
        match self.branches.held_by_prepared.by_id.get_mut(&id) {
            Some(held) => held.sent_to.extend(sent_to),
            None => self.senders.end_all(sent_to),
        }
    }

    /// The transaction has ended here, or is carried out.
    pub fn end_prepared(&mut self, id: TransactionId) {
        let sent_to = self.take_prepared(id);
        self.senders.end_all(sent_to);
    }

    /// As [`Transactions::end_prepared`], where its messages are still to come.
    pub fn take_prepared(&mut self, id: TransactionId) -> Vec<SentTo> {
        self.branches.held_by_prepared.end(id)
    }
}

/// The size of these open transactions once they are prepared together; refused if there is no
/// room for that. Moves of the broker (dead letters) are never refused: they are decided at
/// once, whereas branches in doubt may fill the room for days.
pub fn room_to_prepare(
    leader: &Leader,
    settings: &Settings,
    keys: &[TransactionKey],
) -> Result<u64, Refusal> {
    let open = keys.iter().filter_map(|key| leader.transactions.open.get(key));
    let bytes = PREPARED_BYTES + open.map(|open| open.held_bytes()).sum::<u64>();
    let max_bytes = settings.open_bytes_max;
    let is_own_move = keys.iter().all(|key| key.connection.is_internal());
    match is_own_move || leader.transactions.branches.held_by_prepared.bytes() + bytes <= max_bytes {
        true => Ok(bytes),
        false => Err(Refusal::PreparedFull { max_bytes }),
    }
}

impl Bodies {
    fn bytes_of_prepared(&self, prepared: &Prepared) -> u64 {
        let bodies = prepared.sends.iter().filter_map(|(key, _)| self.headers(*key));
        let bodies = bodies.map(|(_, bytes)| bytes).sum::<u64>();
        let sends = (prepared.sends.len() + prepared.scheduled.len()) as u64;
        PREPARED_BYTES + bodies + sends * SENT_BYTES + prepared.settlements.len() as u64 * SETTLED_BYTES
    }
}

/// After a start: the size of those that were prepared before.
pub fn count_prepared(state: &mut State, leader: &mut Leader) {
    for (id, prepared) in &state.prepared {
        let (bytes, mut sent_to) = (state.bodies.bytes_of_prepared(prepared), SentTo::default());
        let transactions = &mut leader.transactions;
        prepared.sends.iter().for_each(|(_, to)| transactions.senders.add(&mut sent_to, to));
        transactions.begin_prepared(*id, bytes);
        transactions.keep_sent_to(*id, vec![sent_to]);
    }
}
