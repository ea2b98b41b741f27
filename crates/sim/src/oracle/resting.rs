//! Rests: a message that a consumer gives up on comes again after a while, as often as the policy
//! of its queue says. Then it is a dead letter.
//!
//! After a restart, and where its queue lives once that has moved, it comes at once. How often it
//! failed is known there too.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConnectionId, ConsumerKey, Delivery, Destination, EntryTag, PartitionId, Refusal};
use postroad_routing::{Factor, Redelivery};

use crate::scene::Resting;

use super::copy::MessageCopy;
use super::delivery::lane;
use super::{Checked, Fate, Hold, Letter, Number, Oracle, Place, Spot};

/// The operators' policies, and their results.
#[derive(Default)]
pub(super) struct RedeliveryDelays {
    policies: Vec<Resting>,
    /// Each partition has woken the messages due by then.
    woken_ms: BTreeMap<PartitionId, u64>,
    /// In this turn a partition hears of the time.
    waking: Option<(PartitionId, u64)>,
    /// How often each queue has begun to move.
    departures: BTreeMap<Destination, u64>,
    /// Deliveries of rested messages, and messages that surely failed too often.
    pub counted: (u64, u64),
}

/// A message that rests.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    /// The verdict by which it does, and whose that is.
    verdict: Number,
    by: ConsumerKey,
    at: PartitionId,
    tag: EntryTag,
    /// It is due then at the earliest, and at the latest.
    due_ms: (u64, u64),
    departures: u64,
    /// Whether it rests at all is known.
    is_sure: bool,
}

impl RedeliveryDelays {
    /// A partition hears of the time.
    pub fn wakes(&mut self, at: PartitionId, now_ms: u64) {
        self.waking = Some((at, now_ms));
    }

    /// The turn of a partition is over.
    pub fn turned(&mut self) {
        self.woken_ms.extend(self.waking.take());
    }

    /// A queue begins to move: its resting messages need not rest any longer.
    pub fn leaves(&mut self, queue: &Destination) {
        *self.departures.entry(queue.clone()).or_default() += 1;
    }

    fn departures_of(&self, place: &Place) -> u64 {
        match place {
            Place::Queue(queue) => self.departures.get(queue).copied().unwrap_or(0),
            Place::Subscription(_) | Place::Named(_) => 0,
        }
    }
}

/// How long a message rests that failed so often before it failed again.
fn rest_ms(policy: &Redelivery, failed: u32) -> u64 {
    let mut rest_ms = policy.delay_ms;
    for _ in 0..failed {
        if policy.delay_ms_max <= rest_ms || policy.multiplier == Factor::ONE {
            break;
        }
        rest_ms = policy.multiplier.times(rest_ms);
    }
    rest_ms.min(policy.delay_ms_max)
}

impl Oracle {
    /// From the start: failed messages at these destinations rest, and come again.
    pub fn expect_rests(&mut self, policies: &[Resting]) {
        self.rests.policies = policies.to_vec();
    }

    /// How often something rested and came again, and how often something surely failed once too
    /// often.
    pub fn rested(&self) -> (u64, u64) {
        self.rests.counted
    }

    fn redelivery_of(&self, place: &Place) -> Option<Redelivery> {
        self.resting_at(place).map(|resting| resting.redelivery)
    }

    fn resting_at(&self, place: &Place) -> Option<&Resting> {
        let at = self.source_of(place)?;
        self.rests.policies.iter().find(|resting| resting.at == *at)
    }

    /// Whether a message that fails too often there is no dead letter.
    pub(super) fn drops_dead(&self, place: &Place) -> bool {
        self.resting_at(place).is_some_and(|resting| resting.is_dropped)
    }

    /// A consumer gives up on a message: it rests, or the operation is returned that ends it. If it
    /// may do either that is one of its own.
    pub(super) fn give_up(&mut self, spot: &Spot, verdict: Number, by: ConsumerKey) -> Option<Number> {
        let Some(policy) = self.redelivery_of(&spot.0) else { return Some(verdict) };
        let departures = self.rests.departures_of(&spot.0);
        let is_named = |(_, held): &&(EntryTag, Spot)| held == spot;
        let reader = self.readers.get(&by)?;
        let tag = reader.held.iter().find(is_named).map(|(tag, _)| *tag)?;
        let (may_be_taken, now_ms) = (self.taking.is_possible(), self.now_ms);
        let copy = self.copies.get_mut(spot)?;
        let (low, mut high) = copy.failed;
        if copy.perhaps_taken || copy.disputed {
            // The number of its returns is unknown.
            high = u32::MAX;
        }
        if policy.count_max <= low {
            self.rests.counted.1 += 1;
            return Some(verdict);
        }
        let may_end = policy.count_max <= high;
        let is_known = !may_end && !copy.perhaps_held && !copy.disputed;
        copy.rest = Some(Rest {
            verdict,
            by,
            at: copy.at.unwrap_or(reader.at),
            tag,
            due_ms: (now_ms + rest_ms(&policy, low), now_ms + rest_ms(&policy, high)),
            departures,
            // If something was taken back all is refused.
            is_sure: is_known && !may_be_taken,
        });
        copy.hold = Hold::Free;
        copy.count(u32::from(is_known && !may_be_taken), 1);
        if may_end {
            let end = self.operation("verdict", Fate::Asked);
            self.operations[verdict].given_up.push((end, spot.clone()));
            return Some(end);
        }
        self.operations[verdict].rests.push(spot.clone());
        None
    }

    /// The verdict was answered by which something rests.
    pub(super) fn rest_is_answered(&mut self, number: Number, result: &Result<(), Refusal>) {
        for spot in std::mem::take(&mut self.operations[number].rests) {
            let Some(copy) = self.copies.get_mut(&spot) else { continue };
            let Some(rest) = copy.rest.as_mut().filter(|rest| rest.verdict == number) else { continue };
            match result {
                Ok(()) => rest.is_sure |= !copy.perhaps_held && !copy.disputed,
                Err(Refusal::TakenBack) => {
                    let is_there = self.readers.contains_key(&rest.by);
                    copy.hold = if is_there { Hold::Held(rest.by) } else { Hold::Free };
                    (copy.rest, copy.perhaps_taken) = (None, true);
                }
                Err(_) => {}
            }
        }
    }

    /// Whether it does not rest, or has surely been woken.
    pub(super) fn has_rested(&self, copy: &MessageCopy) -> bool {
        copy.rest.is_none_or(|rest| {
            let woken_ms = self.rests.woken_ms.get(&rest.at).copied().unwrap_or(0);
            rest.is_sure && rest.due_ms.1 <= woken_ms
        })
    }

    /// Its rest, if it surely has one, and its queue has not begun to move since.
    fn rest_in(&self, spot: &Spot, partition: PartitionId) -> Option<Rest> {
        let rest = self.copies.get(spot)?.rest?;
        let stays = rest.at == partition && rest.departures == self.rests.departures_of(&spot.0);
        (rest.is_sure && stays).then_some(rest)
    }

    /// A resting message does not come before it is due, and says that it comes by its queue's
    /// policy.
    pub(super) fn check_rest(
        &mut self,
        (now_ms, partition): (u64, PartitionId),
        spot: &Spot,
        delivery: &Delivery,
        what: &str,
    ) -> Checked {
        if let Some(rest) = self.rest_in(spot, partition) {
            if now_ms < rest.due_ms.0 {
                return Err(format!("{what}: delivered at {now_ms}, and rests until {}", rest.due_ms.0));
            }
            self.rests.counted.0 += 1;
        }
        let by_policy = delivery.failed_deliveries > 0 && self.redelivery_of(&spot.0).is_some();
        match by_policy == delivery.by_policy {
            true => Ok(()),
            false => Err(format!("{what}: that it comes by a policy is {}", delivery.by_policy)),
        }
    }

    /// A rested message keeps its place: once it is ready no later message of its producer comes
    /// before it.
    pub(super) fn check_place(
        &self,
        partition: PartitionId,
        spot: &Spot,
        tag: EntryTag,
        what: &str,
    ) -> Checked {
        let may_go = self.may_drop(&spot.0) || self.may_replace(&spot.0);
        if self.rests.policies.is_empty() || self.selects || may_go {
            return Ok(());
        }
        let Some((_, way)) = self.sent_at_once(spot) else { return Ok(()) };
        for (there, copy) in self.copies.range((spot.0.clone(), 0)..spot.clone()) {
            let Some(rest) = self.rest_in(there, partition) else { continue };
            let other = self.sent_at_once(there).filter(|(_, other)| *other == way);
            let Some((other, _)) = other else { continue };
            let waits_for_nobody =
                other.sent.message.group().is_none() && other.sent.message.expires_at_ms == 0;
            if waits_for_nobody && lane(rest.tag) == lane(tag) && self.is_free(copy) {
                return Err(format!("{what}: message {} was sent earlier, and has rested", there.1));
            }
        }
        Ok(())
    }

    /// A message that was sent by itself, once, and came at once; and its way there, on which none
    /// overtakes another: by whom it was sent, whether it waited for the log, and whether a topic
    /// feeds the queue with it.
    fn sent_at_once(&self, spot: &Spot) -> Option<(&Letter, (ConnectionId, bool, bool))> {
        let letter = self.letters.get(&spot.1)?;
        let is_plain = !letter.resent && !letter.retained && letter.sent.schedule.is_none();
        let way = (letter.from, letter.sent.message.persistent, self.is_fed(spot));
        (is_plain && self.operations[letter.operation].what == "send").then_some((letter, way))
    }

    /// A rested message does not wait in a subscription with a reader, unless that one gets nothing
    /// more until it settles.
    pub(super) fn check_woken(&self, connected: &BTreeSet<ConnectionId>) -> Checked {
        for (spot, copy) in &self.copies {
            let is_read = self.readers.iter().find(|(key, reader)| {
                let reads = match &spot.0 {
                    Place::Queue(_) => false,
                    Place::Subscription(own) => own == *key,
                    Place::Named(name) => reader.name.as_ref() == Some(name),
                };
                let gets_more = reader.credit > 0 && !self.may_be_stopped(**key);
                reads && reader.attached && gets_more && connected.contains(&key.connection)
            });
            let expires =
                self.letters.get(&spot.1).is_none_or(|letter| letter.sent.message.expires_at_ms != 0);
            let may_go = expires || self.may_drop(&spot.0) || self.may_replace(&spot.0);
            if let Some((key, _)) = is_read
                && copy.rest.is_some()
                && !may_go
                && self.is_free(copy)
            {
                return Err(format!("message {} has rested, and does not come to {key:?}", spot.1));
            }
        }
        Ok(())
    }
}

/// The verdict was answered by which something rests or ends: refused, it has ended nothing. If
/// it was refused as a whole, its consumer has the message again.
pub(super) fn ends_are_answered(
    oracle: &mut Oracle,
    number: Number,
    result: &Result<(), Refusal>,
) -> Checked {
    for (end, spot) in std::mem::take(&mut oracle.operations[number].given_up) {
        let Err(refusal) = result else { continue };
        let is_of_this = oracle.copies.get(&spot).is_some_and(|copy| copy.ended == Some(end));
        oracle.resolve(end, false, || format!("the reply {result:?}"))?;
        let copy = oracle.copies.get_mut(&spot).filter(|_| is_of_this && *refusal == Refusal::TakenBack);
        let Some(copy) = copy else { continue };
        if let Some(rest) = copy.rest.take() {
            let is_there = oracle.readers.contains_key(&rest.by);
            copy.hold = if is_there { Hold::Held(rest.by) } else { Hold::Free };
            copy.perhaps_taken = true;
        }
    }
    Ok(())
}
