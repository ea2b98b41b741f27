//! When the last groups of a journal were written: traces say how long a message waited for its
//! sync, and for the other replicas after that.

use std::collections::VecDeque;

use postroad_model::{PartitionId, Position};
use postroad_replication::WrittenTimes;

/// Groups that are written here and not committed yet. Of more, the oldest are forgotten: their
/// messages have no times.
const GROUPS_MAX: usize = 1024;

/// See the head of this file.
#[derive(Default)]
pub struct WrittenGroups {
    /// The end of each: see [`postroad_replication::Gathered`].
    groups: VecDeque<(PartitionId, Position, WrittenTimes)>,
}

impl WrittenGroups {
    /// A group with this end was written.
    pub fn add(&mut self, (partition, last): (PartitionId, Position), times: WrittenTimes) {
        if GROUPS_MAX <= self.groups.len() {
            self.groups.pop_front();
        }
        self.groups.push_back((partition, last, times));
    }

    /// The times of the group whose records of this partition end with `through`. Groups are asked
    /// for in their order.
    pub fn of(&mut self, partition: PartitionId, through: Position) -> Option<WrittenTimes> {
        // Those before were void, or were committed with this one.
        while self.groups.front().is_some_and(|(of, last, _)| *of == partition && *last < through) {
            self.groups.pop_front();
        }
        let (of, last, times) = *self.groups.front()?;
        if (of, last) == (partition, through) {
            self.groups.pop_front();
        }
        Some(times)
    }

    /// The records of all these groups are void.
    pub fn clear(&mut self) {
        self.groups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> Position {
        Position::new(number).unwrap()
    }

    fn times(at: u64) -> WrittenTimes {
        WrittenTimes { began_us: at, ended_us: at + 1 }
    }

    #[test]
    fn each_record_has_the_times_of_its_group() {
        let mut groups = WrittenGroups::default();
        for (partition, last, at) in [(0, 5, 10), (1, 3, 20), (1, 6, 30), (1, 9, 40)] {
            groups.add((PartitionId(partition), position(last)), times(at));
        }
        for (name, partition, through, want) in [
            ("a group of one partition", 0, 5, Some(10)),
            ("the first partition of a group of two", 0, 7, Some(20)),
            ("the second one, in two parts", 1, 2, Some(20)),
            ("its end", 1, 3, Some(20)),
            ("two groups that are committed together", 1, 9, Some(40)),
            ("unknown", 1, 12, None),
        ] {
            let got = groups.of(PartitionId(partition), position(through));
            assert_eq!(got.map(|times| times.began_us), want, "case: {name}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_at_the_bound() {
        let mut groups = WrittenGroups::default();
        for number in 1..=GROUPS_MAX as u64 + 1 {
            groups.add((PartitionId(0), position(number)), times(number));
        }
        assert_eq!(groups.groups.len(), GROUPS_MAX);
        assert_eq!(groups.of(PartitionId(0), position(1)), Some(times(2)), "the first that is known");
        groups.clear();
        assert_eq!(groups.of(PartitionId(0), position(9)), None);
    }
}
