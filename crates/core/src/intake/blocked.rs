//! The reasons why one send waits, in one table and one order.
//!
//! A send is blocked on the first reason of [`BlockedOn`] that applies; once that is gone it is
//! looked at again, from the first on. The page docs/features/blocked-sends.md lists the same
//! reasons for operators.
//!
//! Never here: who wakes it, and in which order (`lines`); when it is refused instead (`limit`).

use std::fmt;

use postroad_model::{ConnectionId, Destination, Publish, QueueId, Refusal};

use crate::Partition;
use crate::intake::account::{AccountNumber, full_accounts};
use crate::intake::limit::{full_queues, full_unborn, what_holds};
use crate::intake::parked::SendObstacle;
use crate::intake::publish::{Admitted, follows_the_log, lacks_memory_for};
use crate::intake::waiting::awaits_queue;

/// The reason of a waiting send. The order of the variants is the order in which the reasons are
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedOn {
    /// The disk is full, and a policy of the address has persistent sends wait for it.
    Disk,
    /// An earlier send of the same connection, to several addresses of which this is one, is
    /// blocked.
    Own(ConnectionId),
    /// This queue is at the limit of its policy.
    Queue(QueueId),
    /// A tenant, or the broker, is at its limit.
    Account(AccountNumber),
    /// An earlier send to the same address is blocked.
    Line,
    /// The log has not confirmed earlier sends that this one, which bypasses it, must not overtake;
    /// or the queue is being made, and as many messages as it may have are on their way to it.
    Log,
    /// This queue holds its share of the memory for non-persistent messages.
    Share(QueueId),
    /// Non-persistent messages hold all the memory that they may.
    Memory,
}

impl BlockedOn {
    /// The name in answers and metrics, as docs/features/blocked-sends.md has it.
    pub fn name(self) -> &'static str {
        match self {
            BlockedOn::Disk => "disk",
            BlockedOn::Own(_) => "own-send",
            BlockedOn::Queue(_) => "queue-limit",
            BlockedOn::Account(_) => "quota",
            BlockedOn::Line => "line",
            BlockedOn::Log => "log",
            BlockedOn::Share(_) => "queue-memory",
            BlockedOn::Memory => "memory",
        }
    }
}

impl fmt::Display for BlockedOn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            BlockedOn::Disk => "the disk is full",
            BlockedOn::Own(_) => "an earlier send of the same connection is blocked",
            BlockedOn::Queue(_) => "the queue is at its limit",
            BlockedOn::Account(_) => "the tenant or the broker is at its limit",
            BlockedOn::Line => "an earlier send to the same address is blocked",
            BlockedOn::Log => "earlier sends, or the queue, are not in the log yet",
            BlockedOn::Share(_) => "the queue holds its share of the memory for non-persistent messages",
            BlockedOn::Memory => "the memory for non-persistent messages is full",
        })
    }
}

impl Partition {
    /// Why sends to this address are blocked, and how many are; `None` if none is.
    pub fn blocked_sends(&self, to: &Destination) -> Option<(BlockedOn, usize)> {
        Some((what_holds(self, to)?, self.leader.intake.parked.count_at(to)))
    }
}

/// The reason why this send, after those `ahead` of it, has to wait; `None` if it need not.
pub fn blocked_on(
    partition: &Partition,
    publish: &Publish,
    admitted: &Result<Admitted, Refusal>,
    receivers: &[QueueId],
    ahead: SendObstacle,
) -> Option<BlockedOn> {
    let sent = &publish.sent;
    let admitted_as = match admitted {
        Ok(admitted_as) => admitted_as,
        Err(Refusal::StoreFull { .. }) => {
            let waits = |to: &Destination| partition.settings.policies.of(to).limit.waits_for_disk;
            return sent.targets().any(waits).then_some(BlockedOn::Disk);
        }
        Err(_) => return None,
    };
    if ahead.own {
        return Some(BlockedOn::Own(publish.connection));
    }
    let limit = || {
        if !partition.settings.policies.any_limit() {
            return None;
        }
        let queue = full_queues(partition, sent, receivers, ahead.here).next();
        let queue = queue.map(|queue| BlockedOn::Queue(queue.id));
        let unborn = || full_unborn(partition, sent, ahead.here).next().map(|_| BlockedOn::Log);
        queue.or_else(unborn).or_else(|| {
            full_accounts(partition, sent, receivers, ahead.here).first().copied().map(BlockedOn::Account)
        })
    };
    match admitted_as {
        // Sends before it may wait for memory, if nothing durable was bound when they came:
        // those it may overtake.
        Admitted::Durable => limit(),
        Admitted::Volatile => limit()
            .or_else(|| ahead.here.then_some(BlockedOn::Line))
            .or_else(|| follows_the_log(&partition.leader, publish, admitted).then_some(BlockedOn::Log))
            .or_else(|| {
                lacks_memory_for(&partition.state, &partition.leader, &partition.settings, sent, receivers)
            }),
        Admitted::NeedsQueue if ahead.here => Some(BlockedOn::Line),
        Admitted::NeedsQueue => {
            awaits_queue(&partition.state, &partition.leader, sent, admitted).then_some(BlockedOn::Log)
        }
    }
}
