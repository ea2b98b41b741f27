//! Policies have changed: each queue takes its own from them, in steps.
//!
//! A partition may have hundreds of thousands of queues. Those that have not had their turn keep
//! the former policy meanwhile; new queues have the latest one. A later change does not begin the
//! round again, or the last queues might never have a turn: one more round follows it.

use std::ops::Bound;

use postroad_model::{Effect, QueueId};

use crate::Partition;
use crate::intake::limit::go_on_trimming;
use crate::intake::unparking::unpark;

/// Queues that one step looks at.
const QUEUES_MAX: usize = 2048;

/// How far the round is.
#[derive(Debug, Default)]
pub struct PolicyRound {
    /// It is under way, and goes on after this queue if there is one.
    at: Option<Option<QueueId>>,
    /// Policies have changed since it began.
    is_outdated: bool,
}

impl PolicyRound {
    /// When the next step is due.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.at.map(|_| now_ms + 1)
    }

    /// All queues have had their turn; whether one more round follows.
    fn end(&mut self) -> bool {
        let goes_on = std::mem::take(&mut self.is_outdated);
        self.at = goes_on.then_some(None);
        goes_on
    }
}

/// Policies have changed.
pub fn begin(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let round = &mut partition.leader.intake.policy_round;
    if round.at.is_some() {
        round.is_outdated = true;
        return;
    }
    round.at = Some(None);
    go_on(partition, effects);
}

/// The next queues of the round, if one is under way. Beyond their limits they drop messages now.
/// At its end sends that wait may have room.
pub fn go_on(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let Partition { settings, state, leader, .. } = partition;
    let Some(after) = leader.intake.policy_round.at else { return };
    let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let addresses = &state.addresses;
    let ids = addresses.lasting.range(from).chain(addresses.passing.range(from));
    let (mut last, mut looked_at) = (after, 0);
    for id in ids.take(QUEUES_MAX) {
        (last, looked_at) = (Some(*id), looked_at + 1);
        let Some(queue) = state.queues.get_mut(id) else { continue };
        queue.follow(&settings.policies);
        if queue.limit.drops() && queue.is_over() {
            state.endings.over.insert(*id);
        }
    }
    leader.intake.policy_round.at = Some(last);
    let has_ended = looked_at < QUEUES_MAX && !leader.intake.policy_round.end();
    go_on_trimming(partition, effects);
    if has_ended {
        unpark(partition, effects);
    }
}
