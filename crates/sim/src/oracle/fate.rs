//! The fate of operations: how it becomes known, and the doubts that a crash leaves.

use super::{Checked, Fate, Hold, Number, Oracle, Place, Spot};

impl Oracle {
    /// A fate that is known now must agree with earlier knowledge.
    pub(super) fn resolve(&mut self, number: Number, commit: bool, by: impl Fn() -> String) -> Checked {
        let fate = if commit { Fate::Committed } else { Fate::Aborted };
        let (before, what) = (self.operations[number].fate, self.operations[number].what);
        if before == fate {
            return Ok(());
        }
        if before != Fate::Asked {
            return Err(format!("{} says that a {what} is {fate:?}, but it was {before:?}", by()));
        }
        if let Some(ends) = self.operations[number].branch {
            let too_old = !ends.promised && self.is_overdue(number);
            let asked_for = if commit { ends.commit } else { ends.undo || ends.unprepared || too_old };
            if !asked_for {
                return Err(format!(
                    "{} says that a branch is {fate:?}, which nobody decided: {ends:?}",
                    by()
                ));
            }
        }
        self.operations[number].fate = fate;
        if commit {
            self.note_lagging(number);
        }
        if !commit {
            for spot in self.operations[number].settles.clone() {
                self.undone(&spot, number);
            }
        }
        Ok(())
    }

    /// The operation's messages stay.
    fn undone(&mut self, spot: &Spot, number: Number) {
        let ended_by_it = self.copies.get(spot).is_some_and(|copy| copy.ended == Some(number));
        let after = if ended_by_it { self.said_after(spot) } else { None };
        let Some(copy) = self.copies.get_mut(spot) else { return };
        if let Hold::InTransaction(by, consumer) = copy.hold
            && by == number
        {
            // Its consumer holds it again, or has left before.
            let attached = self.readers.contains_key(&consumer);
            copy.hold = if attached { Hold::Held(consumer) } else { Hold::Free };
            (copy.again, copy.perhaps_held) = (attached, true);
            copy.perhaps_taken |= self.taking.is_possible();
            copy.count(0, u32::from(!attached));
        }
        if !ended_by_it {
            return;
        }
        let operation = &self.operations[number];
        // A message in memory alone may have left at once, whatever the rest of the operation.
        copy.disputed |= copy.volatile && operation.what == "settle";
        // Over several partitions the news may still be on its way to this one.
        (copy.ended, copy.perhaps_held) = (None, true);
        let by = operation.by.filter(|by| self.readers.contains_key(by));
        let by = by.filter(|_| self.taking.is_possible() && copy.hold == Hold::Free);
        match (after, by) {
            (Some(after), _) => {
                (copy.ended, copy.hold) = (Some(after), Hold::Free);
                // A verdict in a transaction, or after one, holds if it came after the failure;
                // otherwise the message is delivered again.
                let in_transaction = |number: Number| self.operations[number].what == "transaction";
                copy.disputed |= in_transaction(after) || in_transaction(number);
            }
            (None, Some(by)) => (copy.hold, copy.perhaps_taken) = (Hold::Held(by), true),
            (None, None) => {}
        }
    }

    /// The process ends: memory is gone, and operations under way may have happened or not. If the
    /// machine ended with it, so may those that were confirmed before they were synced.
    pub fn crashed(&mut self, power_cut: bool) {
        self.run += 1;
        self.doubt_lagging(power_cut);
        for operation in &mut self.operations {
            if operation.fate == Fate::Open {
                operation.fate = Fate::Aborted;
            }
        }
        self.copies.retain(|(place, _), _| !matches!(place, Place::Subscription(_)));
        for ((place, _), copy) in &mut self.copies {
            // Its transaction may have been undone without an answer: the messages left behind by
            // its consumer were counted then.
            if let Hold::InTransaction(number, consumer) = copy.hold
                && self.operations[number].fate == Fate::Asked
                && !self.readers.contains_key(&consumer)
            {
                copy.count(0, 1);
            }
            (copy.hold, copy.perhaps_held, copy.perhaps_taken) = (Hold::Free, false, false);
            copy.rest = None;
            copy.failed.0 = copy.floor;
            copy.gone = copy.gone && (copy.volatile || matches!(place, Place::Named(_)));
        }
        self.readers.clear();
        self.taking.crashed();
        self.moves.crashed();
        self.lines.clear();
        self.asks.clear();
        self.temporary.clear();
        self.expected.clear();
        self.groups.clear();
        self.names.crashed();
    }
}
