//! Messages taken back from consumers: from slow ones, and those settled in a transaction that was
//! open for too long.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{ConsumerKey, Delivered, Destination, EntryTag, Outcome, Settle, TransactionKey};
use postroad_routing::{Slow, SlowAction};

use super::{AT_ONCE, Ask, Checked, Fate, Hold, MessageCopy, Number, Oracle, Place, Spot};

/// The operators' policies, and their results.
#[derive(Default)]
pub(super) struct Taking {
    slow: Option<(Destination, Slow)>,
    transaction_ms_max: Option<u64>,
    /// Messages that consumers had, and have settled.
    judged: BTreeSet<(ConsumerKey, Spot)>,
    /// Consumers with a verdict that may have been refused as a whole, for another consumer may
    /// have had some of it: whether they had anything left then is unknown outside.
    unsure: BTreeSet<ConsumerKey>,
    /// Second verdicts of a consumer on the same message, without an answer yet: they hold if all
    /// of the first was refused.
    settled_again: BTreeMap<Spot, Vec<Number>>,
    /// The messages of consumers when they were detached for being slow.
    ousted: BTreeMap<ConsumerKey, Vec<(EntryTag, Spot)>>,
    /// Verdicts on more deliveries than these go in slices.
    slice_changes: usize,
    /// Messages of such verdicts: one in memory alone is there until its slice has come.
    in_slices: BTreeMap<Spot, Number>,
}

impl Taking {
    /// Whether anything may be taken back from a consumer that stays.
    pub fn is_possible(&self) -> bool {
        let slow = self.slow.as_ref().is_some_and(|(_, slow)| slow.then == SlowAction::Requeue);
        slow || self.transaction_ms_max.is_some()
    }

    /// These messages end by a verdict, in slices if it is about many.
    pub fn ends_in_slices(&mut self, settle: &Settle, spots: &[Spot], number: Number) {
        if self.is_sliced(settle) && settle.transaction.is_none() {
            self.in_slices.extend(spots.iter().map(|spot| (spot.clone(), number)));
        }
    }

    /// Whether these verdicts go in slices.
    pub fn is_sliced(&self, settle: &Settle) -> bool {
        settle.outcome == Outcome::Accepted && self.slice_changes < settle.tags.len()
    }

    /// The verdict in slices by which a message ends.
    pub fn slices_of(&self, spot: &Spot) -> Option<Number> {
        self.in_slices.get(spot).copied()
    }

    pub fn crashed(&mut self) {
        self.in_slices.clear();
        self.judged.clear();
        self.unsure.clear();
        self.ousted.clear();
    }
}

impl Oracle {
    /// From the start: consumers of this destination must not be slow, transactions may be open for
    /// so long, and verdicts on more deliveries than these go in slices.
    pub fn expect_taking(
        &mut self,
        slow: Option<(Destination, Slow)>,
        transaction_ms_max: Option<u64>,
        slice_changes: usize,
    ) {
        (self.taking.slow, self.taking.transaction_ms_max) = (slow, transaction_ms_max);
        self.taking.slice_changes = slice_changes;
    }

    /// A partition hears of something in a transaction.
    pub(super) fn note_age(&mut self, key: Option<TransactionKey>) {
        if let Some(key) = key {
            let (number, now_ms) = (self.transaction(key), self.now_ms);
            self.operations[number].begun_ms.get_or_insert(now_ms);
        }
    }

    /// Whether a transaction may have been open for too long.
    pub(super) fn is_overdue(&self, number: Number) -> bool {
        let begun_ms = self.operations[number].begun_ms;
        let limit_ms = self.taking.transaction_ms_max;
        begun_ms.zip(limit_ms).is_some_and(|(begun_ms, limit_ms)| begun_ms + limit_ms <= self.now_ms)
    }

    fn slow_policy(&self, key: ConsumerKey) -> Option<(Slow, u64)> {
        let reader = self.readers.get(&key)?;
        let (_, slow) = self.taking.slow.as_ref().filter(|(at, _)| *at == reader.source)?;
        Some((*slow, reader.spoke_ms))
    }

    /// Whether a consumer may have been found slow since it spoke.
    fn may_be_slow(&self, key: ConsumerKey, then: SlowAction) -> bool {
        let Some((slow, spoke_ms)) = self.slow_policy(key) else { return false };
        slow.then == then && slow.after_ms.is_some_and(|after_ms| spoke_ms + after_ms <= self.now_ms)
    }

    /// Whether a consumer may get nothing more until it speaks, as something was taken back from
    /// it.
    pub(super) fn may_be_stopped(&self, key: ConsumerKey) -> bool {
        let is_taken = |(_, spot): &(EntryTag, Spot)| {
            self.copies.get(spot).is_some_and(|copy| match copy.hold {
                Hold::InTransaction(number, by) => {
                    by == key && (self.operations[number].doomed || self.is_overdue(number))
                }
                Hold::Held(by) => by == key && copy.perhaps_taken,
                Hold::Free => false,
            })
        };
        self.may_be_slow(key, SlowAction::Requeue)
            || self.readers.get(&key).is_some_and(|reader| reader.held.iter().any(is_taken))
    }

    /// A consumer settles. Its messages may have been taken back by now, or not.
    pub(super) fn spoken(&mut self, key: ConsumerKey) {
        let taken = self.may_be_slow(key, SlowAction::Requeue);
        let now_ms = self.now_ms;
        let Some(reader) = self.readers.get_mut(&key) else { return };
        reader.spoke_ms = now_ms;
        for (_, spot) in reader.held.iter().filter(|_| taken) {
            if let Some(copy) = self.copies.get_mut(spot).filter(|copy| copy.hold == Hold::Held(key)) {
                copy.perhaps_taken = true;
            }
        }
    }

    /// The consumer has it no more, whatever the result of the verdict.
    pub(super) fn was_judged(&mut self, number: Number) {
        let operation = &mut self.operations[number];
        if let Some(by) = operation.by.take() {
            self.taking.judged.extend(operation.settles.iter().map(|spot| (by, spot.clone())));
        }
    }

    /// A consumer gets a message: if it had nothing its time begins.
    pub(super) fn begins_to_hold(&mut self, key: ConsumerKey, spot: &Spot) {
        self.taking.judged.remove(&(key, spot.clone()));
        self.taking.settled_again.remove(spot);
        let has = |(_, spot): &(EntryTag, Spot)| {
            let hold = self.copies.get(spot).map(|copy| copy.hold);
            matches!(hold, Some(Hold::Held(by) | Hold::InTransaction(_, by)) if by == key)
        };
        let has_something = self.taking.unsure.contains(&key)
            || self.readers.get(&key).is_some_and(|reader| reader.held.iter().any(has));
        let now_ms = self.now_ms;
        if let Some(reader) = self.readers.get_mut(&key).filter(|_| !has_something) {
            reader.spoke_ms = now_ms;
        }
    }

    /// A message in flight is delivered to another consumer: whether it may have been taken back.
    /// Then its holder, or the transaction that it was settled in, has lost it.
    pub(super) fn take_back(&mut self, spot: &Spot) -> bool {
        let Some(copy) = self.copies.get(spot) else { return false };
        let taken = match copy.hold {
            Hold::Free => false,
            Hold::Held(by) => copy.perhaps_taken || self.may_be_slow(by, SlowAction::Requeue),
            Hold::InTransaction(number, _) => {
                let operation = &self.operations[number];
                let taken = operation.fate == Fate::Open && (operation.doomed || self.is_overdue(number));
                self.operations[number].doomed |= taken;
                taken
            }
        };
        if let Some(copy) = self.copies.get_mut(spot).filter(|_| taken) {
            (copy.hold, copy.ended, copy.perhaps_taken) = (Hold::Free, None, false);
            copy.count(0, 1);
        }
        taken
    }

    /// Whether a verdict that would end a message is about one that another consumer has by now.
    pub(super) fn is_lost_to(&self, settle: &Settle) -> bool {
        let Some(reader) = self.readers.get(&settle.consumer).filter(|_| self.taking.is_possible()) else {
            return false;
        };
        self.would_end_what_is_lost(settle, &reader.held)
    }

    fn would_end_what_is_lost(&self, settle: &Settle, held: &[(EntryTag, Spot)]) -> bool {
        let another_has = |(tag, spot): &(EntryTag, Spot)| {
            let judged = self.taking.judged.contains(&(settle.consumer, spot.clone()));
            settle.tags.contains(tag) && !judged && self.surely_has_another(spot, settle.consumer)
        };
        matches!(settle.outcome, Outcome::Accepted | Outcome::Expired) && held.iter().any(another_has)
    }

    /// Whether another consumer has the message, and it cannot have been taken back from that one
    /// too.
    fn surely_has_another(&self, spot: &Spot, than: ConsumerKey) -> bool {
        self.copies.get(spot).is_some_and(|copy| match copy.hold {
            Hold::Free => false,
            Hold::Held(by) => by != than && !copy.perhaps_taken && !self.may_be_slow(by, SlowAction::Requeue),
            Hold::InTransaction(number, by) => {
                let operation = &self.operations[number];
                by != than && operation.fate == Fate::Open && !operation.doomed && !self.is_overdue(number)
            }
        })
    }

    /// A consumer settles messages taken back from it, and perhaps from others since: their owner
    /// is unknown outside.
    pub(super) fn note_disputed(&mut self, settle: &Settle) {
        let Some(reader) = self.readers.get(&settle.consumer).filter(|_| self.taking.is_possible()) else {
            return;
        };
        let spoken_about = reader.held.iter().filter(|(tag, _)| settle.tags.contains(tag));
        let spots: Vec<Spot> = spoken_about.map(|(_, spot)| spot.clone()).collect();
        for spot in spots {
            // Earlier returns of messages that it had more than once may count now: then all of the
            // verdict is refused.
            let was_given_back = self.copies.get(&spot).is_some_and(|copy| copy.hold == Hold::Free);
            if was_given_back || self.may_be_lost_to_all(&spot, settle) {
                self.taking.unsure.insert(settle.consumer);
            }
            let disputed = self.copies.get(&spot).is_some_and(|copy| match copy.hold {
                Hold::Free => copy.ended.is_none_or(|number| self.may_come_back(number)),
                Hold::Held(by) => by != settle.consumer,
                Hold::InTransaction(number, by) => {
                    by != settle.consumer || self.operations[number].doomed || self.is_overdue(number)
                }
            });
            if let Some(copy) = self.copies.get_mut(&spot).filter(|_| disputed) {
                copy.disputed = true;
                self.taking.unsure.insert(settle.consumer);
            }
        }
    }

    /// Whether the message that a consumer settles is perhaps lost to it, though no other consumer
    /// has had it: taken back it may have left by itself, or its body the memory. Then all of the
    /// verdict is refused, and the consumer has the others still.
    fn may_be_lost_to_all(&self, spot: &Spot, settle: &Settle) -> bool {
        let Some(copy) = self.copies.get(spot).filter(|copy| copy.hold == Hold::Held(settle.consumer)) else {
            return false;
        };
        let perhaps_taken = copy.perhaps_taken || self.may_be_slow(settle.consumer, SlowAction::Requeue);
        let expires = self.letters.get(&spot.1).is_some_and(|letter| letter.sent.message.expires_at_ms != 0);
        let may_be_refused = !matches!(settle.outcome, Outcome::Released { .. } | Outcome::Retried);
        let needs_body = settle.transaction.is_some() || settle.outcome != Outcome::Accepted;
        let may_leave = expires || self.may_replace(&spot.0) || self.may_drop(&spot.0);
        perhaps_taken && may_be_refused && (needs_body || may_leave || self.has_perhaps_revived(&spot.0))
    }

    /// A consumer settles a message once more, for it came to the consumer more than once.
    pub(super) fn note_said_again(&mut self, settle: &Settle, operation: Number) {
        let Some(reader) = self.readers.get(&settle.consumer).filter(|_| self.taking.is_possible()) else {
            return;
        };
        let ends = match settle.outcome {
            Outcome::Accepted | Outcome::Expired => true,
            Outcome::Rejected => settle.transaction.is_none(),
            Outcome::Released { .. } | Outcome::Retried => false,
        };
        let is_open = |copy: &MessageCopy| {
            let before = match copy.hold {
                Hold::Free => {
                    copy.ended.filter(|number| self.operations[*number].by == Some(settle.consumer))
                }
                // The outcome of the transaction is unknown, and the consumer may have it again.
                Hold::InTransaction(number, by) => Some(number).filter(|_| by == settle.consumer),
                Hold::Held(_) => None,
            };
            before.is_some_and(|number| self.operations[number].fate == Fate::Asked)
        };
        let spots = reader.held.iter().filter(|(tag, spot)| {
            let copy = self.copies.get(spot).filter(|copy| !copy.disputed);
            ends && settle.tags.contains(tag) && copy.is_some_and(is_open)
        });
        for spot in spots.map(|(_, spot)| spot.clone()).collect::<Vec<_>>() {
            self.operations[operation].settles.push(spot.clone());
            self.taking.settled_again.entry(spot).or_default().push(operation);
        }
    }

    /// Its consumer's verdict on the message was refused: a later verdict counts, if that may hold.
    pub(super) fn said_after(&mut self, spot: &Spot) -> Option<Number> {
        let said = self.taking.settled_again.get_mut(spot)?;
        while !said.is_empty() {
            let number = said.remove(0);
            if self.operations[number].fate != Fate::Aborted {
                return Some(number);
            }
        }
        None
    }

    /// Whether a verdict is under way that moves messages to the dead letters, perhaps of another
    /// partition: if that refuses them who had them has them again, without a notification.
    fn may_come_back(&self, number: Number) -> bool {
        let operation = &self.operations[number];
        operation.fate == Fate::Asked && operation.by.is_some() && !operation.sends.is_empty()
    }

    /// The messages of a verdict that were delivered to its consumer, and that another may have by
    /// now, or none.
    pub(super) fn disputed_by(&self, settle: &Settle, surely: &[Spot]) -> Vec<Spot> {
        let Some(reader) = self.readers.get(&settle.consumer).filter(|_| self.taking.is_possible()) else {
            return Vec::new();
        };
        let named =
            reader.held.iter().filter(|(tag, spot)| settle.tags.contains(tag) && !surely.contains(spot));
        named.map(|(_, spot)| spot.clone()).collect()
    }

    /// A verdict moves a message to the dead letters, if it has that effect. Of several about one
    /// message any may have it.
    pub(super) fn bury(&mut self, spot: &Spot, operation: Number, outcome: Outcome, is_sure: bool) {
        let persistent = self.letters.get(&spot.1).is_some_and(|letter| letter.sent.message.persistent);
        let dead = Place::Queue(self.dead_letters.clone());
        let buried =
            outcome == Outcome::Rejected || outcome == Outcome::Expired && persistent && spot.0 != dead;
        let buried = buried && !self.drops_dead(&spot.0);
        let Some(copy) = self.copies.get(spot).filter(|copy| buried && !copy.volatile) else { return };
        let disputed = copy.disputed || !is_sure;
        let grave = (dead, spot.1);
        // Messages of an earlier run there in memory alone are gone.
        let is_there = |before: &&MessageCopy| before.run == self.run || !before.volatile;
        let before = self.copies.get(&grave).filter(|_| self.taking.is_possible()).filter(is_there);
        let is_refused = |number: Number| self.operations[number].fate == Fate::Aborted;
        match before.map(|before| (is_refused(before.created), before.delivered)) {
            // A message that is not persistent may be in the log all the same (it was due later,
            // say). Among the dead letters it need be in memory only, for as long as this run
            // lasts.
            None | Some((true, _)) => self.copy(grave.clone(), operation, !persistent),
            Some((false, true)) => return,
            Some((false, false)) => {
                if let Some(copy) = self.copies.get_mut(&grave) {
                    (copy.created, copy.disputed) = (AT_ONCE, true);
                }
            }
        }
        if let Some(copy) = self.copies.get_mut(&grave) {
            copy.disputed |= disputed;
        }
    }

    /// A message in memory alone left at once, though the log has not taken the others.
    pub(super) fn left_memory(&mut self, number: Number) {
        for spot in self.operations[number].settles.clone() {
            if let Some(copy) =
                self.copies.get_mut(&spot).filter(|copy| copy.volatile && copy.ended.is_none())
            {
                (copy.ended, copy.hold) = (Some(AT_ONCE), Hold::Free);
            }
        }
    }

    /// A consumer was found slow, and is there no more.
    pub(super) fn detached_as_slow(&mut self, key: ConsumerKey) -> Checked {
        // One that may settle messages taken back from it cannot follow its queue.
        let reader = self.readers.get(&key);
        let stays_behind = self.taking.is_possible()
            && reader.is_some_and(|reader| self.has_perhaps_moved(&Place::Queue(reader.source.clone())));
        if !stays_behind && !self.may_be_slow(key, SlowAction::Detach) {
            return Err(format!("{key:?} was detached for being slow, which it is not"));
        }
        let held = self.readers.get(&key).map(|reader| reader.held.clone()).unwrap_or_default();
        self.taking.ousted.insert(key, held);
        self.leaves(key, Delivered::All);
        Ok(())
    }

    /// A verdict comes from a consumer that is not there. If it was detached it must not count: its
    /// messages are delivered again.
    pub(super) fn settled_too_late(&mut self, settle: &Settle) {
        let (consumer, ousted) = (settle.consumer, self.taking.ousted.get(&settle.consumer));
        let is_lost = ousted.is_some_and(|held| {
            let open = |(tag, spot): &(EntryTag, Spot)| {
                let there = self.copies.get(spot).is_some_and(|copy| copy.ended.is_none());
                settle.tags.contains(tag) && there
            };
            matches!(settle.outcome, Outcome::Accepted | Outcome::Expired) && held.iter().any(open)
        });
        let operation = match settle.transaction {
            Some(key) => self.transaction(key),
            None => self.operation("settle", Fate::Asked),
        };
        self.operations[operation].doomed |= is_lost;
        if let (Some(ticket), None) = (settle.ticket, settle.transaction) {
            let ask = if is_lost { Ask::Operation(operation) } else { Ask::Other };
            self.ask(consumer.connection, ticket, ask);
        }
    }
}

/// Messages are settled in a transaction, unless the answer says otherwise.
pub(super) fn note_settled_in(oracle: &mut Oracle, settle: &Settle, spots: &[Spot], number: Number) {
    let (Some(ticket), Some(_)) = (settle.ticket, settle.transaction) else { return };
    let ask = Ask::SettleIn(number, settle.consumer, spots.to_vec(), oracle.taking.is_sliced(settle));
    oracle.ask(settle.consumer.connection, ticket, ask);
}

/// There was no room for verdicts in their transaction, which can only be undone: their
/// consumer holds the messages as before. Of those in slices some may be settled in it.
pub(super) fn not_settled_in(
    oracle: &mut Oracle,
    (number, by): (Number, ConsumerKey),
    spots: &[Spot],
    in_slices: bool,
) {
    let is_there = oracle.readers.contains_key(&by);
    for spot in spots {
        let Some(copy) = oracle.copies.get_mut(spot) else { continue };
        if copy.hold != Hold::InTransaction(number, by) {
            continue;
        }
        (copy.hold, copy.ended) = (if is_there { Hold::Held(by) } else { Hold::Free }, None);
        if in_slices {
            copy.perhaps_held = true;
            copy.count(0, 1);
        }
        oracle.operations[number].settles.retain(|settled| settled != spot);
    }
}
