//! A view: how far a consumer that does not take everything has looked into a lane.
//!
//! Such a consumer judges each entry once on its way through the lane, and each that was given back
//! after it once more. So it finds its next entry at any depth without going through the backlog
//! again.

use std::collections::BTreeSet;

use super::lane::{Entry, EntryState, Lane};

/// See the head of this file.
#[derive(Clone, Default)]
pub struct View {
    /// Everything before it was judged.
    cursor: u64,
    /// The first return that was not judged.
    returns: u64,
    /// Matching entries that came back after the cursor.
    wanted: BTreeSet<u64>,
}

/// Whether a consumer takes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Wanted,
    /// It does not.
    Refused,
    /// Its body must be read first.
    Unknown,
}

/// The result of a look into a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Stamp and sequence of the first entry that is wanted.
    Found(u64, u64),
    /// The entry of this sequence must be read, and its page opened, before anything after it can
    /// be judged.
    Unknown(u64),
    /// Nothing that is there is wanted.
    Nothing,
}

impl View {
    /// The first ready entry that is wanted.
    pub fn look(&mut self, lane: &Lane, mut judge: impl FnMut(&Entry) -> Verdict) -> Look {
        for (number, sequence, entry) in lane.returned_since(self.returns) {
            if sequence < self.cursor && entry.state == EntryState::Ready {
                match judge(entry) {
                    Verdict::Wanted => drop(self.wanted.insert(sequence)),
                    Verdict::Refused => {}
                    Verdict::Unknown => return Look::Unknown(sequence),
                }
            }
            self.returns = number + 1;
        }
        while let Some(sequence) = self.wanted.first().copied() {
            let entry = lane.get(sequence).filter(|entry| entry.state == EntryState::Ready);
            match entry.map(|entry| (judge(entry), entry.stamp)) {
                Some((Verdict::Wanted, stamp)) => return Look::Found(stamp, sequence),
                Some((Verdict::Unknown, _)) => return Look::Unknown(sequence),
                Some((Verdict::Refused, _)) | None => drop(self.wanted.remove(&sequence)),
            }
        }
        while let Some((sequence, entry)) = lane.ready_from(self.cursor) {
            self.cursor = sequence;
            let Some(entry) = entry else { return Look::Unknown(sequence) };
            match judge(entry) {
                Verdict::Wanted => return Look::Found(entry.stamp, sequence),
                Verdict::Unknown => return Look::Unknown(sequence),
                Verdict::Refused => self.cursor = sequence + 1,
            }
        }
        Look::Nothing
    }

    /// The consumer was sent this entry.
    pub fn pass(&mut self, sequence: u64) {
        self.cursor = self.cursor.max(sequence + 1);
        self.wanted.remove(&sequence);
    }

    /// No entry before `cursor` matches, except those that came back after it from this return
    /// on.
    pub fn go_to(&mut self, cursor: u64, returns: u64) {
        (self.cursor, self.returns) = (self.cursor.max(cursor), self.returns.max(returns));
    }

    /// Whether this entry of the lane, which is ready, was judged and not wanted.
    pub fn has_refused(&self, lane: &Lane, sequence: u64) -> bool {
        let is_judged = lane.returned_at(sequence).is_none_or(|number| number < self.returns);
        sequence < self.cursor && is_judged && !self.wanted.contains(&sequence)
    }

    /// Where it looks next.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Entries that this consumer skipped because they were another's are free again: those from
    /// this cursor on, and those that came back.
    pub fn step_back(&mut self, cursor: u64) {
        self.cursor = self.cursor.min(cursor);
        self.returns = 0;
        // Entries before the cursor again are found there, after the others.
        self.wanted.split_off(&self.cursor);
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::MessageKey;

    use super::*;
    use crate::memory::shelf::Place;

    #[test]
    fn what_came_back_keeps_its_place_when_the_view_steps_back() {
        let mut lane = Lane::new(4);
        for number in 0..2 {
            lane.push(Entry {
                key: MessageKey::Volatile(number),
                place: Place::NONE,
                stamp: number,
                failed_deliveries: 0,
                uncounted_deliveries: 0,
                state: EntryState::Ready,
            });
        }
        let mut view = View::default();
        view.pass(1);
        // The second is back already; the first comes back once the view has stepped back.
        lane.get_mut(0).expect("the first").state = EntryState::Leaving;
        lane.give_back(1);
        assert_eq!(view.look(&lane, |_| Verdict::Wanted), Look::Found(1, 1));
        view.step_back(0);
        lane.give_back(0);
        assert_eq!(view.look(&lane, |_| Verdict::Wanted), Look::Found(0, 0));
    }
}
