//! Time limits: a transaction that is open for too long is rolled back, though its connection
//! lives.
//!
//! | open too long | checked by | effect |
//! |---|---|---|
//! | the share of a session that goes on | each partition with a part of it | its part ends; all later work is refused, its commit too |
//! | ended, and neither prepared nor decided | the branch's coordinator | all parts end; a later decision is answered so |
//! | prepared | - | it waits for its manager, or for an operator |
//!
//! Messages that a consumer had settled in it go to others, as from one that is slow: see `slow`.
//! Known to this run alone.

use std::collections::BTreeMap;

use postroad_model::{BranchId, ConsumerKey, Effect, EntryTag, QueueId, Refusal, Settlement, TransactionKey};

use super::open::OpenTransaction;
use crate::Partition;
use crate::delivery::dispatch::dispatch;
use crate::delivery::slow::take_back;
use crate::entries::entry_at;
use crate::leader::Leader;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::release::release_entries;
use crate::transaction::branch::undo_shares;
use crate::transaction::open::take_open;

/// Interval of checks for transactions that time out, while any is open.
const LOOK_MS: u64 = 200;

/// Transactions that end in one step, as they were open for too long.
const ENDED_MAX: usize = 256;

/// A transaction or a branch is open from now on.
pub fn watch_age(leader: &mut Leader, settings: &Settings, now_ms: u64) {
    if let Some(limit_ms) = settings.transaction_ms_max {
        leader.transactions.next_timeout_ms.get_or_insert(now_ms.saturating_add(limit_ms));
    }
}

/// The answer about a transaction that was open for too long.
pub fn timed_out(settings: &Settings) -> Refusal {
    Refusal::TransactionTimedOut { limit_ms: settings.transaction_ms_max.unwrap_or_default() }
}

/// Rolls back transactions that are open for too long.
pub fn end_overdue(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let Some(limit_ms) = partition.settings.transaction_ms_max else { return };
    if partition.leader.transactions.next_timeout_ms.is_none_or(|at_ms| partition.now_ms < at_ms) {
        return;
    }
    for _ in 0..ENDED_MAX {
        let Some((begun_ms, key)) = partition.leader.transactions.by_age.first().copied() else { break };
        if partition.now_ms < begun_ms.saturating_add(limit_ms) {
            break;
        }
        partition.leader.transactions.by_age.pop_first();
        // The end of others was requested: that waits for their clients.
        if partition.leader.transactions.open.get(&key).is_some_and(OpenTransaction::ages) {
            end_overdue_share(partition, key, effects);
        }
    }
    let (overdue, first_branch_ms) =
        partition.leader.transactions.branches.overdue(partition.now_ms, limit_ms);
    for branch in overdue {
        end_overdue_branch(partition, &branch, effects);
    }
    let first = partition.leader.transactions.by_age.first();
    let first_ms = first.map(|(begun_ms, _)| begun_ms.saturating_add(limit_ms));
    let is_more = first_ms.is_some_and(|at_ms| at_ms <= partition.now_ms);
    let wait_ms = if is_more { 1 } else { LOOK_MS };
    let first_ms: Option<u64> = first_ms.into_iter().chain(first_branch_ms).min();
    partition.leader.transactions.next_timeout_ms =
        first_ms.map(|at_ms| at_ms.max(partition.now_ms + wait_ms));
}

fn end_overdue_share(partition: &mut Partition, key: TransactionKey, effects: &mut Vec<Effect>) {
    let refusal = timed_out(&partition.settings);
    partition.leader.transactions.refuse_open(key, refusal);
    let Some(settled) = partition.leader.transactions.take_settled_of(key) else { return };
    partition.counters.timed_out_transactions += 1;
    take_back_settled(partition, settled, effects);
}

fn end_overdue_branch(partition: &mut Partition, branch: &BranchId, effects: &mut Vec<Effect>) {
    let shares = partition.leader.transactions.branches.time_out(branch);
    partition.counters.timed_out_transactions += 1;
    undo_shares(partition, shares, None, true, effects);
}

/// The work here is undone, and its consumers do not have their settled messages again.
pub fn discard_overdue(partition: &mut Partition, key: TransactionKey, effects: &mut Vec<Effect>) {
    if let Some(mut open) = take_open(&mut partition.leader, key) {
        partition.leader.transactions.senders.end(std::mem::take(&mut open.sent_to));
        take_back_settled(partition, open.take_settled(), effects);
    }
}

fn take_back_settled(
    partition: &mut Partition,
    settled: Vec<(ConsumerKey, Settlement)>,
    effects: &mut Vec<Effect>,
) {
    let mut shares: BTreeMap<(QueueId, ConsumerKey), Vec<EntryTag>> = BTreeMap::new();
    for (consumer, Settlement { queue, tag, .. }) in settled {
        let Some(entry) = entry_at(partition, queue, tag) else { continue };
        if entry.state == (EntryState::Held { by: consumer, in_transaction: true }) {
            entry.state = EntryState::Held { by: consumer, in_transaction: false };
            shares.entry((queue, consumer)).or_default().push(tag);
        }
    }
    for ((queue, consumer), tags) in shares {
        match partition.leader.delivery.consumers.contains_key(&consumer) {
            // A member of a pattern's consumer keeps its messages, as one that is slow does.
            true if consumer.member != 0 => {}
            true => take_back(partition, queue, consumer, tags, effects),
            false => {
                release_entries(partition, queue, consumer, &tags, true, effects);
                dispatch(partition, queue, effects);
            }
        }
    }
}
