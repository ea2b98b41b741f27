//! The contents of prepared transactions: each is bounded by the total of all of them.

use std::collections::BTreeMap;

use postroad_model::{Refusal, TransactionId, TransactionKey};

use super::open::{SENT_BYTES, SETTLED_BYTES};
use crate::Partition;
use crate::transaction::Prepared;

/// Bytes of a prepared transaction beside its messages and settlements.
const PREPARED_BYTES: u64 = 512;

/// The bytes that each prepared transaction holds in memory here, from its preparation to its end.
#[derive(Debug, Default)]
pub struct HeldByPrepared {
    by_id: BTreeMap<TransactionId, u64>,
    bytes: u64,
}

impl HeldByPrepared {
    /// The transaction is being prepared, or is prepared, and holds so much.
    pub fn begin(&mut self, id: TransactionId, bytes: u64) {
        self.end(id);
        self.by_id.insert(id, bytes);
        self.bytes += bytes;
    }

    /// The transaction has ended.
    pub fn end(&mut self, id: TransactionId) {
        self.bytes -= self.by_id.remove(&id).unwrap_or(0);
    }

    /// All of them together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Partition {
    /// The size of these open transactions once they are prepared together; refused if there is no
    /// room for that. Moves of the broker (dead letters) are never refused: they are decided at
    /// once, whereas branches in doubt may fill the room for days.
    pub(super) fn room_to_prepare(&self, keys: &[TransactionKey]) -> Result<u64, Refusal> {
        let open = keys.iter().filter_map(|key| self.leader.transactions.open.get(key));
        let bytes = PREPARED_BYTES + open.map(|open| open.held_bytes()).sum::<u64>();
        let max_bytes = self.settings.open_bytes_max;
        let is_own_move = keys.iter().all(|key| key.connection.is_internal());
        match is_own_move || self.leader.transactions.branches.held_by_prepared.bytes() + bytes <= max_bytes {
            true => Ok(bytes),
            false => Err(Refusal::PreparedFull { max_bytes }),
        }
    }

    /// After a start: the size of those that were prepared before.
    pub(crate) fn count_prepared(&mut self) {
        let held: Vec<(TransactionId, u64)> = self
            .state
            .prepared
            .iter()
            .map(|(id, prepared)| (*id, self.bytes_of_prepared(prepared)))
            .collect();
        held.into_iter()
            .for_each(|(id, bytes)| self.leader.transactions.branches.held_by_prepared.begin(id, bytes));
    }

    fn bytes_of_prepared(&self, prepared: &Prepared) -> u64 {
        let bodies = prepared.sends.iter().filter_map(|(key, _)| self.state.bodies.headers(*key));
        let bodies = bodies.map(|(_, bytes)| bytes).sum::<u64>();
        let sends = (prepared.sends.len() + prepared.scheduled.len()) as u64;
        PREPARED_BYTES + bodies + sends * SENT_BYTES + prepared.settlements.len() as u64 * SETTLED_BYTES
    }
}
