//! Memory of queues between two looks, for values that are measured in time.
//!
//! A queue does not know when a message came, but numbers its messages in order of arrival. So each
//! look notes the number of the next message: the oldest message was there at the first look at
//! which that number was higher than its own.

use std::collections::{HashMap, VecDeque};

use crate::figures::WatchedQueue;

/// Queues that are remembered; of others no age is known.
pub const HISTORIES_MAX: usize = 10_000;

/// Looks that are kept of one queue: an age of an hour is known with an error of a third.
const LOOKS_MAX: usize = 32;

/// Dead letters are counted over this time.
const DEAD_LETTERS_WITHIN_MS: u64 = 300_000;

/// Counts of dead letters are kept at this distance.
const DEAD_LETTERS_EVERY_MS: u64 = DEAD_LETTERS_WITHIN_MS / 10;

/// Which queue: the number of its partition, and its id there.
pub type QueueKey = (u16, u64);

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Histories {
    /// The number of the present round over all queues.
    round: u64,
    all: HashMap<QueueKey, History>,
}

#[derive(Debug, Default)]
struct History {
    round: u64,
    /// When the number of the next message was this, oldest first.
    looks: Vec<(u64, u64)>,
    /// The oldest message, and since when it is.
    oldest: Option<(u64, u64)>,
    /// When the count of dead letters was this, oldest first.
    dead: VecDeque<(u64, u64)>,
}

/// Values that are measured in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Milliseconds that the oldest message is in the queue, at least.
    pub age_ms: u64,
    /// Milliseconds that it is the oldest.
    pub oldest_for_ms: u64,
    /// Dead letters in the last minutes.
    pub dead_letters: u64,
}

impl Histories {
    /// Notes a queue, and gives its values.
    pub fn note(&mut self, key: QueueKey, queue: &WatchedQueue, now_ms: u64) -> Times {
        if HISTORIES_MAX <= self.all.len() && !self.all.contains_key(&key) {
            return Times::default();
        }
        // Dead letters from before the first round may be old.
        let dead_before = if self.round == 0 { queue.dead_lettered } else { 0 };
        let history = self.all.entry(key).or_insert_with(|| History {
            dead: VecDeque::from([(now_ms, dead_before)]),
            ..History::default()
        });
        history.round = self.round;
        history.note(queue, now_ms)
    }

    /// A round over all queues is over: those that were not seen in it are forgotten.
    pub fn end_round(&mut self) {
        let round = self.round;
        self.all.retain(|_, history| history.round == round);
        self.round += 1;
    }

    /// No further queue is remembered.
    pub fn is_full(&self) -> bool {
        HISTORIES_MAX <= self.all.len()
    }
}

impl History {
    fn note(&mut self, queue: &WatchedQueue, now_ms: u64) -> Times {
        if self.looks.last().is_none_or(|(_, next)| *next < queue.next) {
            self.looks.push((now_ms, queue.next));
        }
        if let Some(oldest) = queue.oldest {
            // Everything that was there at these looks is gone.
            let gone = self.looks.iter().take_while(|(_, next)| *next <= oldest).count();
            self.looks.drain(..gone);
        }
        if LOOKS_MAX < self.looks.len() {
            self.thin(now_ms);
        }
        if self.oldest.map(|(oldest, _)| oldest) != queue.oldest {
            self.oldest = queue.oldest.map(|oldest| (oldest, now_ms));
        }
        self.note_dead(queue.dead_lettered, now_ms);
        let first = self.looks.first().filter(|_| queue.oldest.is_some());
        Times {
            age_ms: first.map_or(0, |(at_ms, _)| now_ms.saturating_sub(*at_ms)),
            oldest_for_ms: self.oldest.map_or(0, |(_, since_ms)| now_ms.saturating_sub(since_ms)),
            dead_letters: queue.dead_lettered - self.dead.front().map_or(0, |(_, count)| *count),
        }
    }

    /// Forgets the look whose absence changes ages least: the gap between its neighbours is small
    /// next to their age.
    fn thin(&mut self, now_ms: u64) {
        let gap = |at: usize| {
            let (before, after) = (self.looks[at - 1].0, self.looks[at + 1].0);
            // In thousandths of the age, so that looks are dense where they are young.
            (after - before) * 1000 / (now_ms.saturating_sub(before)).max(1)
        };
        if let Some(least) = (1..self.looks.len() - 1).min_by_key(|at| gap(*at)) {
            self.looks.remove(least);
        }
    }

    fn note_dead(&mut self, count: u64, now_ms: u64) {
        // A queue that moved away and came back counts from zero.
        self.dead.retain(|(_, before)| *before <= count);
        let is_due = |(at_ms, _): &(u64, u64)| DEAD_LETTERS_EVERY_MS <= now_ms.saturating_sub(*at_ms);
        if self.dead.back().is_none_or(is_due) {
            self.dead.push_back((now_ms, count));
        }
        while 1 < self.dead.len()
            && self.dead.front().is_some_and(|(at_ms, _)| at_ms + DEAD_LETTERS_WITHIN_MS < now_ms)
        {
            self.dead.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Destination;

    use super::*;

    fn queue(oldest: Option<u64>, next: u64, dead_lettered: u64) -> WatchedQueue {
        WatchedQueue {
            partition: 0,
            queue: 1,
            destination: Destination::queue("a"),
            subscription: None,
            messages: oldest.map_or(0, |oldest| next - oldest),
            consumers: 1,
            dead_lettered,
            oldest,
            next,
            difference: 0,
        }
    }

    #[test]
    fn the_oldest_message_ages_while_others_come_and_go() {
        let mut histories = Histories::default();
        for (case, at_ms, oldest, next, age_ms, oldest_for_ms) in [
            ("the first look", 1000, Some(0), 1, 0, 0),
            ("another came", 2000, Some(0), 2, 1000, 1000),
            ("the first left, the second came between the looks", 3000, Some(1), 2, 1000, 0),
            ("one more came at once", 4000, Some(1), 3, 2000, 1000),
            ("only that is left", 5000, Some(2), 3, 1000, 0),
            ("empty", 6000, None, 3, 0, 0),
            ("a new one", 7000, Some(3), 4, 0, 0),
        ] {
            let times = histories.note((0, 1), &queue(oldest, next, 0), at_ms);
            assert_eq!((times.age_ms, times.oldest_for_ms), (age_ms, oldest_for_ms), "case: {case}");
        }
    }

    #[test]
    fn few_looks_are_kept_and_ages_stay_near_the_truth() {
        let mut histories = Histories::default();
        // A message a second, and each leaves after ten minutes.
        for second in 0..5000_u64 {
            let oldest = second.saturating_sub(600);
            let times = histories.note((0, 1), &queue(Some(oldest), second + 1, 0), second * 1000);
            let truth_ms = second.min(600) * 1000;
            assert!(times.age_ms <= truth_ms, "never more than the truth: {times:?} at {second} s");
            assert!(truth_ms * 2 / 3 <= times.age_ms, "{times:?} at {second} s");
            assert!(histories.all[&(0, 1)].looks.len() <= LOOKS_MAX);
        }
    }

    #[test]
    fn dead_letters_are_counted_over_five_minutes() {
        let mut histories = Histories::default();
        let mut count = |at_ms, dead| histories.note((0, 1), &queue(None, 9, dead), at_ms).dead_letters;
        assert_eq!(count(0, 5), 0, "before the first look");
        assert_eq!(count(10_000, 8), 3);
        assert_eq!(count(200_000, 8), 3);
        assert_eq!(count(300_001 + 30_000, 8), 0, "they are older");
        assert!(histories.all[&(0, 1)].dead.len() < 13);
        histories.end_round();
        assert_eq!(histories.note((0, 2), &queue(None, 9, 4), 0).dead_letters, 4, "it was without before");
    }

    #[test]
    fn queues_beyond_the_bound_have_no_age_until_others_are_gone() {
        let mut histories = Histories::default();
        for id in 0..HISTORIES_MAX as u64 {
            histories.note((0, id), &queue(Some(0), 1, 0), 0);
        }
        assert!(histories.is_full());
        let late = (0, HISTORIES_MAX as u64);
        histories.note(late, &queue(Some(0), 1, 0), 0);
        assert_eq!(histories.note(late, &queue(Some(0), 1, 0), 5000), Times::default());
        histories.end_round();
        histories.end_round();
        assert!(!histories.is_full());
        histories.note(late, &queue(Some(0), 1, 0), 6000);
        assert_eq!(histories.note(late, &queue(Some(0), 1, 0), 7000).age_ms, 1000);
    }
}
