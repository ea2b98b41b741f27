//! Unparking: all addresses at which sends wait are looked at again, some in each step.
//!
//! A round goes through them in their order. Another cause that comes meanwhile begins one more
//! round after it, so none keeps those at its end from their turn.

use std::collections::BTreeSet;

use postroad_model::{ConnectionId, Destination, Effect, Publish, QueueId, Refusal};

use crate::Partition;
use crate::intake::blocked::BlockedOn;
use crate::intake::limit::{FirstParked, first_parked, note_what_holds, what_holds};
use crate::intake::parked::Parked;
use crate::intake::publish::{Admitted, must_wait, take_in};
use crate::intake::waiting::awaits_queue;

/// Addresses that one step looks at, and sends that it lets in.
pub const LOOKED_MAX: usize = 256;

/// See the head of this file.
#[derive(Default)]
pub struct Unparking {
    /// The last address of the round that was looked at, with `None` before the first.
    at: Option<Option<Destination>>,
    /// One more round follows.
    again: bool,
}

impl Unparking {
    /// Begins a round, at once or after the one that is under way.
    pub fn begin(&mut self) {
        match &self.at {
            Some(Some(_)) => self.again = true,
            _ => self.at = Some(None),
        }
    }

    /// Where the round is, if one is under way.
    pub fn at(&self) -> Option<Option<&Destination>> {
        self.at.as_ref().map(Option::as_ref)
    }

    /// This address was looked at.
    pub fn pass(&mut self, to: Destination) {
        self.at = Some(Some(to));
    }

    /// The round is over.
    pub fn end(&mut self) {
        self.at = std::mem::take(&mut self.again).then_some(None);
    }

    /// When it goes on.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.at.is_some().then_some(now_ms + 1)
    }
}

/// Lets parked sends in, as far as there is room; with many addresses also in the next ticks.
pub fn unpark(partition: &mut Partition, effects: &mut Vec<Effect>) {
    if partition.leader.intake.parked.is_empty() {
        return;
    }
    let goes_on = partition.leader.intake.unparking.at().is_some();
    partition.leader.intake.unparking.begin();
    if !goes_on {
        go_on_unparking(partition, effects);
    }
}

/// The next addresses of the round, if one is under way.
pub fn go_on_unparking(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let (mut left, mut moved) = (LOOKED_MAX, BTreeSet::new());
    while let Some(after) = partition.leader.intake.unparking.at() {
        let Some(to) = partition.leader.intake.parked.next_address(after).cloned() else {
            partition.leader.intake.unparking.end();
            break;
        };
        left -= 1;
        while 0 < left
            && let Some((publish, admitted, receivers)) = next_parked(partition, &to)
        {
            left -= 1;
            moved.insert(BlockedOn::Own(publish.connection));
            take_in(partition, publish, admitted, &receivers, effects);
        }
        if left == 0 {
            // This one is looked at once more: more of its sends may go on.
            break;
        }
        note_what_holds(partition, &to);
        partition.leader.intake.unparking.pass(to);
    }
    unpark_held_by_all(partition, moved, effects);
}

/// As `unpark`, after sends of this connection that waited at these addresses went away.
pub fn unpark_at(
    partition: &mut Partition,
    addresses: BTreeSet<Destination>,
    connection: ConnectionId,
    effects: &mut Vec<Effect>,
) {
    unpark_first(partition, addresses, BTreeSet::from([BlockedOn::Own(connection)]), effects);
}

/// Sends that waited at these addresses went away: the next ones there go on, and what waited
/// for this.
pub fn unpark_first(
    partition: &mut Partition,
    addresses: impl IntoIterator<Item = Destination>,
    mut moved: BTreeSet<BlockedOn>,
    effects: &mut Vec<Effect>,
) {
    for to in addresses {
        while let Some((publish, admitted, receivers)) = next_parked(partition, &to) {
            moved.insert(BlockedOn::Own(publish.connection));
            take_in(partition, publish, admitted, &receivers, effects);
        }
        note_what_holds(partition, &to);
    }
    unpark_held_by_all(partition, moved, effects);
}

/// As `unpark`, where it was this that held sends up: others need not be asked.
pub fn unpark_held_by(partition: &mut Partition, held_by: BlockedOn, effects: &mut Vec<Effect>) {
    if !partition.leader.intake.lines.is_empty() {
        unpark_held_by_all(partition, BTreeSet::from([held_by]), effects);
    }
}

pub fn unpark_held_by_all(
    partition: &mut Partition,
    mut moved: BTreeSet<BlockedOn>,
    effects: &mut Vec<Effect>,
) {
    while let Some(held_by) = moved.pop_first().filter(|_| !partition.leader.intake.lines.is_empty()) {
        unpark_line(partition, held_by, &mut moved, effects);
    }
}

/// A send that leaves this line moves the sends that wait after it in other lines.
pub fn unpark_line(
    partition: &mut Partition,
    held_by: BlockedOn,
    moved: &mut BTreeSet<BlockedOn>,
    effects: &mut Vec<Effect>,
) {
    let mut stay = Vec::new();
    while let Some(to) = partition.leader.intake.lines.take_first(held_by) {
        if LOOKED_MAX <= stay.len() {
            // All are looked at, in steps.
            partition.leader.intake.lines.put(to, held_by, true);
            partition.leader.intake.unparking.begin();
            break;
        }
        if let Some((publish, admitted, receivers)) = next_parked(partition, &to) {
            moved.insert(BlockedOn::Own(publish.connection));
            take_in(partition, publish, admitted, &receivers, effects);
            // Its next one, which may wait for nothing any more, has its turn after those of
            // the others.
            if let Some(next) = partition.leader.intake.parked.first(&to) {
                let own = BlockedOn::Own(next.publish.connection);
                moved.insert(own);
                partition.leader.intake.lines.put(to, own, false);
            }
            continue;
        }
        match (what_holds(partition, &to), held_by) {
            // Each waits for something of its own.
            (Some(still), BlockedOn::Own(_) | BlockedOn::Log) if still == held_by => stay.push(to),
            // There is no room for the oldest send: later ones wait after it.
            (Some(still), _) if still == held_by => {
                return partition.leader.intake.lines.put(to, held_by, true);
            }
            (Some(other), _) => partition.leader.intake.lines.put(to, other, false),
            (None, _) => {}
        }
    }
    stay.into_iter().for_each(|to| partition.leader.intake.lines.put(to, held_by, false));
}

/// Takes the oldest send to this address out of the waiting room, if it need not wait any
/// longer.
#[allow(clippy::type_complexity, reason = "what take_in needs")]
pub fn next_parked(
    partition: &mut Partition,
    to: &Destination,
) -> Option<(Publish, Result<Admitted, Refusal>, Vec<QueueId>)> {
    let FirstParked { first, admitted, receivers, ahead } = first_parked(partition, to)?;
    if awaits_queue(&partition.state, &partition.leader, &first.sent, &admitted) {
        return None;
    }
    if let Some(until_ms) = must_wait(partition, first, &admitted, &receivers, ahead) {
        // The cause of its wait may have another deadline than the former cause.
        partition.leader.intake.parked.end_first(to, until_ms);
        return None;
    }
    let Parked { publish, .. } = partition.leader.intake.parked.take_first(to)?;
    Some((publish, admitted, receivers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_is_under_way_ends_before_the_next_begins() {
        let mut unparking = Unparking::default();
        assert_eq!((unparking.at(), unparking.next_ms(3)), (None, None));
        unparking.begin();
        unparking.begin();
        assert_eq!(unparking.at(), Some(None));
        let to = Destination::queue("a");
        unparking.pass(to.clone());
        unparking.begin();
        assert_eq!((unparking.at(), unparking.next_ms(3)), (Some(Some(&to)), Some(4)));
        unparking.end();
        assert_eq!(unparking.at(), Some(None));
        unparking.end();
        assert_eq!(unparking.at(), None);
    }
}
