//! Messages confirmed before their sync may be lost: at a power failure alone, and only the last of
//! them.

use std::collections::BTreeSet;

use postroad_model::{Destination, DestinationKind};

use super::{Checked, Fate, Number, Oracle, Place};

/// Operations that touch no queue but those that wait for no sync.
#[derive(Default)]
pub(super) struct Lag {
    /// Queues whose policy is not to wait for it.
    queues: BTreeSet<Destination>,
    /// One of these keeps even persistent messages in memory, unless another queue has them too.
    forgetful: Option<Destination>,
    /// Confirmed and perhaps not synced, in the order of confirmation.
    unsynced: Vec<Number>,
    /// The unsynced operations at each power failure.
    tails: Vec<Vec<Number>>,
}

impl Oracle {
    /// From the start: operations on these queues alone are confirmed before they are synced.
    pub fn expect_lag(&mut self, queue: Destination) {
        self.lag.queues.insert(queue);
    }

    /// From the start: messages to this queue alone are in memory alone. Records in the log for
    /// another's sake need not be synced for this one's.
    pub fn expect_memory(&mut self, queue: Destination) {
        self.lag.queues.insert(queue.clone());
        self.lag.forgetful = Some(queue);
    }

    /// Whether it is a queue in memory.
    pub(super) fn is_forgetful(&self, to: &Destination) -> bool {
        self.lag.forgetful.as_ref() == Some(to)
    }

    /// Everything that was confirmed so far is synced.
    pub fn synced(&mut self) {
        self.lag.unsynced.clear();
    }

    /// How many operations power cuts have put in doubt.
    pub fn doubted(&self) -> u64 {
        self.lag.tails.iter().map(|tail| tail.len() as u64).sum()
    }

    pub(super) fn note_lagging(&mut self, number: Number) {
        // Sent again and confirmed again: a power cut before that says nothing about it any more.
        self.lag.tails.iter_mut().for_each(|tail| tail.retain(|doubted| *doubted != number));
        let operation = &self.operations[number];
        let mut durable = operation.sends.iter().chain(&operation.settles).filter(|(place, message)| {
            let volatile = self.copies.get(&(place.clone(), *message)).is_none_or(|copy| copy.volatile);
            matches!(place, Place::Queue(_)) && !volatile
        });
        let lags = |place: &Place| matches!(place, Place::Queue(queue) if self.lag.queues.contains(queue));
        let is_prepared = operation.branch.is_some_and(|ends| ends.unprepared || ends.promised);
        if !is_prepared && durable.all(|(place, _)| lags(place)) {
            self.lag.unsynced.push(number);
        }
    }

    pub(super) fn doubt_lagging(&mut self, power_cut: bool) {
        let tail = std::mem::take(&mut self.lag.unsynced);
        if !power_cut {
            return;
        }
        // That a job has sent its message may be lost too: then it sends it again.
        for ((place, message), copy) in &mut self.copies {
            let lags = matches!(place, Place::Queue(queue) if self.lag.queues.contains(queue));
            let is_later = self.letters.get(message).is_some_and(|letter| letter.sent.schedule.is_some());
            copy.delivered &= !(lags && is_later);
        }
        for number in &tail {
            let operation = &mut self.operations[*number];
            (operation.fate, operation.answered) = (Fate::Asked, false);
        }
        self.lag.tails.push(tail);
    }

    /// Every queue was emptied: after a message that a power cut took nothing has come that was
    /// confirmed later.
    pub(super) fn check_tails(&self) -> Checked {
        for tail in &self.lag.tails {
            let mut lost = None;
            for number in tail {
                let operation = &self.operations[*number];
                let [(Place::Queue(queue), message)] = &operation.sends[..] else { continue };
                let Some(letter) = self.letters.get(message) else { continue };
                let plain = operation.what == "send"
                    && queue.kind == DestinationKind::Queue
                    && letter.sent.message.expires_at_ms == 0
                    && letter.sent.schedule.is_none();
                let copy = self.copies.get(&operation.sends[0]);
                if !plain || copy.is_none_or(|copy| copy.gone || copy.volatile) {
                    continue;
                }
                match (operation.fate, lost) {
                    (Fate::Committed, Some(lost)) => {
                        return Err(format!(
                            "message {message} outlived a power cut, {lost} ahead of it did not"
                        ));
                    }
                    (Fate::Asked, _) if copy.is_some_and(|copy| copy.ended.is_none()) => {
                        lost = Some(*message)
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
