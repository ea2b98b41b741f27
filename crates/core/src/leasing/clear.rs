//! Clearing a queue: the entries that are there now, but for those that consumers hold, a slice at
//! a time. Each slice follows the record of the one before, so that neither a turn nor memory grows
//! with the queue.

use std::collections::BTreeMap;

use postroad_model::{
    Changes, Command, ConnectionId, Destination, Effect, QueueId, Refusal, SettleCause, Settlement, Ticket,
    Urgency,
};

use crate::Partition;
use crate::entries::entry_at;
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::partition::reply;
use crate::queue::{EntryState, untag};
use crate::settling::settle::begin_leaving;

/// Entries that one slice looks at.
const SLICE_ENTRIES: usize = 1024;

/// A clear that is under way.
#[derive(Debug)]
pub struct Clearing {
    queue: QueueId,
    /// How far it has looked, and where it ends, by lane.
    lanes: BTreeMap<u8, (u64, u64)>,
    /// Entries of this slice, which leave with its record.
    settlements: Vec<Settlement>,
    connection: ConnectionId,
    ticket: Ticket,
}

impl Clearing {
    /// The request that its end answers.
    pub fn waiter(&self) -> (ConnectionId, Ticket) {
        (self.connection, self.ticket)
    }

    /// The entries that come back if the log does not take the record.
    pub fn settlements(&self) -> &[Settlement] {
        &self.settlements
    }
}

/// Begins a clear; answered once all is durable.
pub fn clear_queue(
    partition: &mut Partition,
    name: &Destination,
    (connection, ticket): (ConnectionId, Ticket),
    effects: &mut Vec<Effect>,
) {
    let id = partition.state.addresses.own_queue(name);
    let Some(queue) = id.and_then(|id| partition.state.queues.get(&id)) else {
        let refusal = Refusal::NoSuchQueue(name.clone());
        return reply(connection, ticket, Err(refusal), effects);
    };
    let lanes = queue.lanes.iter().map(|(number, lane)| (number.0, (0, lane.next_sequence()))).collect();
    let clearing = Clearing { queue: queue.id, lanes, settlements: Vec::new(), connection, ticket };
    clear_on(partition, clearing, effects);
}

/// The record of a slice is durable: the next slice, or the answer.
pub fn clear_on(partition: &mut Partition, mut clearing: Clearing, effects: &mut Vec<Effect>) {
    let id = clearing.queue;
    clearing.settlements.clear();
    for looked in 0.. {
        let next = partition.state.queues.get(&id).and_then(|queue| {
            queue.next_visible(|lane| {
                let (from, to) = clearing.lanes.get(&lane.0).copied().unwrap_or_default();
                from..to
            })
        });
        let Some(tag) = next else {
            if looked == 0 {
                return reply(clearing.connection, clearing.ticket, Ok(()), effects);
            }
            break;
        };
        if looked == SLICE_ENTRIES {
            break;
        }
        let (lane, sequence) = untag(tag);
        clearing.lanes.entry(lane).and_modify(|(from, _)| *from = sequence + 1);
        let state = entry_at(partition, id, tag).map(|entry| entry.state);
        if matches!(state, Some(EntryState::Ready | EntryState::Resting | EntryState::Leased)) {
            let leaving = begin_leaving(partition, id, &[tag], SettleCause::Consumed, effects);
            clearing.settlements.extend(leaving);
        }
    }
    // Messages in memory alone are gone at once; the next slice still waits for its turn.
    let command = match clearing.settlements.is_empty() {
        true => Command::Transact(Changes::default()),
        false => Command::Settle(clearing.settlements.clone()),
    };
    propose(partition, command, Urgency::Waiting, Completion::Cleared(Box::new(clearing)), effects);
}
