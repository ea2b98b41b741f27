//! The lanes of a queue in the order in which they are served: high priorities first, within a
//! priority entries from where the queue lived before, and then the older of those in the log and
//! those in memory.
//!
//! A queue has the lanes that it has needed so far: one, as long as all messages are alike.

use postroad_model::{EntryTag, HIGHEST_PRIORITY, NORMAL_PRIORITY};

use super::lane::{EntryState, Lane, TakenPage};

/// The top byte of an [`EntryTag`].
///
/// ```text
///   bit 0       volatile: durable entries have lanes of their own, for only they are numbered by records
///   bits 1-4    priority, exclusive-or the normal one: so the lane of most messages is 0, where entries lay before
///               there was an order of priorities
///   bit 5       ahead: from where the queue lived before, and older than messages sent to it here
///   bits 6-7    zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneNumber(pub u8);

impl LaneNumber {
    /// The lane of this priority; one beyond the highest counts as the highest.
    pub fn of(priority: u8, volatile: bool) -> LaneNumber {
        LaneNumber((priority.min(HIGHEST_PRIORITY) ^ NORMAL_PRIORITY) << 1 | u8::from(volatile))
    }

    /// The lane of a tag.
    pub fn of_tag(tag: EntryTag) -> LaneNumber {
        LaneNumber(untag(tag).0)
    }

    /// Whether its entries live in memory only.
    pub fn is_volatile(self) -> bool {
        self.0 & 1 != 0
    }

    /// The lane that is served before this one and of its like.
    pub fn ahead(self) -> LaneNumber {
        LaneNumber(self.0 | AHEAD)
    }

    /// Whether it is such a lane.
    pub fn is_ahead(self) -> bool {
        self.0 & AHEAD != 0
    }

    /// The priority of its entries.
    pub fn priority(self) -> u8 {
        (self.0 & !AHEAD) >> 1 ^ NORMAL_PRIORITY
    }

    /// Whether it is the number of a lane that may exist.
    pub fn is_known(self) -> bool {
        self.priority() <= HIGHEST_PRIORITY
    }

    /// Lanes are served in the order of their ranks.
    fn rank(self) -> (u8, bool, u8) {
        (u8::MAX - self.priority(), !self.is_ahead(), self.0 & 1)
    }

    /// The rank shared by the lanes among which the oldest entry is served first.
    fn level(self) -> (u8, bool) {
        (self.priority(), self.is_ahead())
    }
}

const AHEAD: u8 = 1 << 5;

/// Bits of a tag that are the entry's sequence.
pub const SEQUENCE_BITS: u32 = EntryTag::SEQUENCE_BITS;

/// The tag of the entry with this sequence in this lane.
pub fn tag(lane: u8, sequence: u64) -> EntryTag {
    EntryTag(u64::from(lane) << SEQUENCE_BITS | sequence)
}

/// The lane and sequence of a tag.
pub fn untag(tag: EntryTag) -> (u8, u64) {
    ((tag.0 >> SEQUENCE_BITS) as u8, tag.0 & ((1 << SEQUENCE_BITS) - 1))
}

/// See the head of this file.
pub struct Lanes {
    ranked: Vec<(LaneNumber, Lane)>,
    page_entries: u64,
}

impl Lanes {
    /// No lanes yet; those to come have pages of this many entries.
    pub fn new(page_entries: u64) -> Lanes {
        Lanes { ranked: Vec::new(), page_entries }
    }

    /// The lane of this number, if there is one.
    pub fn get(&self, lane: LaneNumber) -> Option<&Lane> {
        self.ranked.iter().find(|(number, _)| *number == lane).map(|(_, lane)| lane)
    }

    /// The lane of this number, if there is one, to change it.
    pub fn get_mut(&mut self, lane: LaneNumber) -> Option<&mut Lane> {
        self.ranked.iter_mut().find(|(number, _)| *number == lane).map(|(_, lane)| lane)
    }

    /// The lane of this number, made on first use.
    pub fn get_or_make(&mut self, lane: LaneNumber) -> &mut Lane {
        let place = self.ranked.partition_point(|(number, _)| number.rank() < lane.rank());
        if self.ranked.get(place).is_none_or(|(number, _)| *number != lane) {
            self.ranked.insert(place, (lane, Lane::new(self.page_entries)));
        }
        &mut self.ranked[place].1
    }

    /// Takes out some page of some lane; `None` once nothing is left. For lanes that end: their
    /// order is not kept up.
    pub fn take_page(&mut self) -> Option<(LaneNumber, TakenPage)> {
        while let Some((number, lane)) = self.ranked.last_mut() {
            if let Some(page) = lane.take_page() {
                return Some((*number, page));
            }
            self.ranked.pop();
        }
        None
    }

    /// All lanes in the order in which they are served.
    pub fn iter(&self) -> impl Iterator<Item = (LaneNumber, &Lane)> {
        self.ranked.iter().map(|(number, lane)| (*number, lane))
    }

    /// As [`Lanes::iter`], to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (LaneNumber, &mut Lane)> {
        self.ranked.iter_mut().map(|(number, lane)| (*number, lane))
    }

    /// The entry that is due next: of the highest priority, and there the oldest.
    pub fn next_ready(&mut self) -> Option<EntryTag> {
        first(self.iter_mut(), |_, lane| lane.next_ready())
    }

    /// The oldest ready entry of the lowest priority that has any.
    pub fn oldest_of_lowest(&mut self) -> Option<EntryTag> {
        first(self.ranked.iter_mut().rev().map(|(number, lane)| (*number, lane)), |_, lane| lane.next_ready())
    }

    /// The oldest ready entry of all.
    pub fn oldest(&mut self) -> Option<EntryTag> {
        let lanes = self.ranked.iter_mut().filter_map(|(number, lane)| Some((lane.next_ready()?, number.0)));
        lanes.min().map(|((_, sequence), lane)| tag(lane, sequence))
    }

    /// The newest ready entry of the lowest priority that has any; one that is ready again after it
    /// was delivered may be passed over.
    pub fn newest_of_lowest(&self) -> Option<EntryTag> {
        let newest = |lane: &Lane| {
            let end = lane.next_sequence();
            let sequences = (end.saturating_sub(NEWEST_LOOK)..end).rev();
            let ready =
                |sequence: &u64| lane.get(*sequence).is_some_and(|entry| entry.state == EntryState::Ready);
            // Packed entries are ready, and older than those in memory only.
            let sequence = sequences.into_iter().find(|at| ready(at) || lane.packed(*at).is_some())?;
            let stamp = lane.get(sequence).map_or(0, |entry| entry.stamp);
            Some((u64::MAX - stamp, sequence))
        };
        first(self.ranked.iter().rev().map(|(number, lane)| (*number, lane)), |_, lane| newest(lane))
    }

    /// As `next_ready`, of whatever `each` finds in a lane: stamp and sequence.
    pub fn next(&self, each: impl FnMut(LaneNumber, &Lane) -> Option<(u64, u64)>) -> Option<EntryTag> {
        first(self.iter(), each)
    }
}

/// How far back a lane is looked through for its newest entry: further back all is in the hands of
/// consumers.
const NEWEST_LOOK: u64 = 4096;

/// The first of the results of `each`. Lanes come in the order of their ranks, or in the opposite
/// one: once one of a level has something, those of other levels are not asked.
fn first<L>(
    lanes: impl Iterator<Item = (LaneNumber, L)>,
    mut each: impl FnMut(LaneNumber, L) -> Option<(u64, u64)>,
) -> Option<EntryTag> {
    let mut best: Option<(u64, EntryTag)> = None;
    for (number, lane) in lanes {
        let other = |(_, best): (u64, EntryTag)| LaneNumber::of_tag(best).level() != number.level();
        if best.is_some_and(other) {
            break;
        }
        if let Some((stamp, sequence)) = each(number, lane)
            && best.is_none_or(|(oldest, _)| stamp < oldest)
        {
            best = Some((stamp, tag(number.0, sequence)));
        }
    }
    best.map(|(_, entry)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_numbered_so_that_old_entries_keep_their_tags() {
        for (priority, volatile, want) in
            [(4, false, 0), (4, true, 1), (5, false, 2), (0, false, 8), (9, true, 27), (200, true, 27)]
        {
            let lane = LaneNumber::of(priority, volatile);
            assert_eq!(lane, LaneNumber(want), "priority {priority}");
            assert_eq!((lane.priority(), lane.is_volatile()), (priority.min(9), volatile));
        }
        assert_eq!(
            (LaneNumber(27).is_known(), LaneNumber(28).is_known(), LaneNumber(64).is_known()),
            (true, false, false)
        );
        let ahead = LaneNumber::of(9, true).ahead();
        assert_eq!((ahead, ahead.priority(), ahead.is_volatile()), (LaneNumber(59), 9, true));
        assert_eq!((ahead.is_known(), LaneNumber(60).is_known()), (true, false));
    }
}
