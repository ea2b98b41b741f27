//! The nodes of a group: which vote, where they are, and how that changes, one node at a time.
//!
//! ```text
//! payload of an entry: version u8 │ level u8 │ era u32 │ highest u64 │ count u8 │ nodes
//! node:                number u64 │ flags u8 │ replaces u64 │ name, address, identity, zone: length u8, UTF-8
//!                      │ stores u16
//! ```
//! Little endian. Each entry has the whole list, so the last one says everything. `highest` is the
//! highest number that a member ever had: one up to it that is not in the list was removed.
//! Flags: 1 for a vote, 2 for one that is to be removed once another node leads, 4 for a mirror.
//! The era rises when a mirror takes the place of all others: lists of earlier eras do not count.
//! Zones are there from [`Level::ZONES`] on, stores from [`Level::CHOSEN_STORES`] on.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::chosen_stores::ChosenStores;
use crate::codec::NUMBER_MAX;
use crate::entry::{Index, NodeId};
use crate::level::Level;

const VERSION: u8 = 4;

/// Flags of a node.
const VOTES: u8 = 1;
const RETIRES: u8 = 2;
const MIRRORS: u8 = 4;

/// Nodes of a list. A majority of more voters would be slow.
pub const MEMBERS_MAX: usize = 16;
/// Bytes of a node's name.
pub const NODE_NAME_BYTES_MAX: usize = 64;
/// Bytes of a node's address: the longest DNS name has 253.
pub const NODE_ADDRESS_BYTES_MAX: usize = 255;
/// Bytes of the name of a node's zone.
pub const NODE_ZONE_BYTES_MAX: usize = 64;
/// Bytes of the identity of a node's store.
const IDENTITY_BYTES_MAX: usize = 64;
/// Bytes of the longest list.
pub(crate) const MEMBERS_BYTES_MAX: usize = HEAD_BYTES + MEMBERS_MAX * (NODE_BYTES + TEXT_BYTES_MAX);
const HEAD_BYTES: usize = 15;
/// Bytes of a node without its texts.
const NODE_BYTES: usize = 23;
const TEXT_BYTES_MAX: usize =
    NODE_NAME_BYTES_MAX + NODE_ADDRESS_BYTES_MAX + IDENTITY_BYTES_MAX + NODE_ZONE_BYTES_MAX;

/// A change of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It gets the log from now on, and has no vote.
    Add(NodeId),
    /// A learner gets a vote.
    Promote(NodeId),
    /// It gets nothing any more, and never comes back under this number.
    Remove(NodeId),
    /// It is to be removed by the next leader, as it leads itself.
    Retire(NodeId),
    /// All nodes speak this level, which is in force from now on.
    Raise(Level),
}

/// Why members do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeRefused {
    /// It is a member already.
    #[error("node {} is a member already", .0.get())]
    Member(NodeId),
    /// It is none, or has its vote already.
    #[error("node {} is not a learner", .0.get())]
    NoLearner(NodeId),
    /// It is none.
    #[error("node {} is not a member", .0.get())]
    NoMember(NodeId),
    /// It was removed: what it had promised under this number is unknown.
    #[error("node {} was removed; a node that comes back needs a new number", .0.get())]
    Former(NodeId),
    /// No voter would be left.
    #[error("node {} is the last with a vote", .0.get())]
    Last(NodeId),
    /// It never gets a vote.
    #[error("node {} is a mirror", .0.get())]
    Mirror(NodeId),
    /// The list is full.
    #[error("there are {MEMBERS_MAX} nodes already")]
    Full,
    /// Levels rise by one, up to the last that this program speaks.
    #[error("the level cannot be raised to {0}")]
    Level(Level),
}

/// A member, for those who connect to it and those who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// How it calls itself; empty if that is not known.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// The store with which it joined; empty for those of a new group.
    pub identity: String,
    /// The node that is removed once this one has caught up.
    pub replaces: Option<NodeId>,
    /// It is to be removed once another one leads.
    pub retires: bool,
    /// It gets the log and never a vote: it is elsewhere, for the day on which all others are lost.
    pub mirrors: bool,
    /// A room, a site: it may be lost at once with others there; empty if it has not said so.
    pub zone: String,
    /// The stores of the cluster that it has.
    pub stores: ChosenStores,
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The formats and decisions that all of them have in common.
    pub level: Level,
    /// How often a mirror has taken the place of all others.
    pub era: u32,
    /// The entry that says so; 0 for the members of a new group.
    pub since: Index,
    /// Those with a vote, in order.
    pub voters: Vec<NodeId>,
    /// Those that get the log alone, in order.
    pub learners: Vec<NodeId>,
    /// The highest number of a member so far.
    pub highest: u64,
    /// More about the members, as far as it is known.
    pub records: BTreeMap<NodeId, NodeRecord>,
}

impl Members {
    /// The members of a new group.
    pub fn first(voters: impl IntoIterator<Item = NodeId>) -> Members {
        let mut voters: Vec<NodeId> = voters.into_iter().collect();
        voters.sort_unstable();
        voters.dedup();
        let highest = voters.last().map_or(0, |node| node.get());
        Members { voters, highest, ..Members::default() }
    }

    /// Those of a new group whose nodes listen at these addresses: the first is node 1.
    pub fn founders<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Members {
        let at = |address: &str| NodeRecord { address: address.to_owned(), ..NodeRecord::default() };
        let numbered = (1..).filter_map(NodeId::new).zip(addresses);
        let records: BTreeMap<_, _> = numbered.map(|(node, address)| (node, at(address))).collect();
        Members {
            voters: records.keys().copied().collect(),
            highest: records.len() as u64,
            records,
            ..Members::default()
        }
    }

    /// Whether this list counts where both are known.
    pub fn is_later_than(&self, other: &Members) -> bool {
        (other.era, other.since) < (self.era, self.since)
    }

    /// Whether it gets the log and never a vote.
    pub fn is_mirror(&self, node: NodeId) -> bool {
        self.record(node).is_some_and(|record| record.mirrors)
    }

    /// The members once a mirror, whose log ends at this entry, has taken the place of all others:
    /// later entries of theirs do not count.
    ///
    /// # Errors
    /// It is no mirror.
    pub fn taken_over(&self, mirror: NodeId, last: Index) -> Result<Members, ChangeRefused> {
        let record = self.record(mirror).filter(|record| record.mirrors && self.learners.contains(&mirror));
        let record = record.ok_or(ChangeRefused::NoLearner(mirror))?;
        Ok(Members {
            level: self.level,
            era: self.era + 1,
            since: last,
            voters: vec![mirror],
            learners: Vec::new(),
            highest: self.highest,
            records: [(mirror, NodeRecord { mirrors: false, replaces: None, ..record.clone() })].into(),
        })
    }

    /// Whether it was removed. One with a higher number is not known yet.
    pub fn is_former(&self, node: NodeId) -> bool {
        node.get() <= self.highest && !self.contains(node)
    }

    /// Where a member listens, and more.
    pub fn record(&self, node: NodeId) -> Option<&NodeRecord> {
        self.records.get(&node)
    }

    /// The number of the next node that is added.
    pub fn next(&self) -> Option<NodeId> {
        NodeId::new(self.highest + 1).filter(|node| node.get() < NUMBER_MAX)
    }

    /// Voters without which nothing is committed.
    pub fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// Takes over what is known of members.
    pub fn describe(&mut self, records: &BTreeMap<NodeId, NodeRecord>) {
        let known = records.iter().filter(|(node, _)| self.contains(**node));
        let retires = |node| self.record(node).is_some_and(|record| record.retires);
        let kept = |(node, record): (&NodeId, &NodeRecord)| {
            (*node, NodeRecord { retires: record.retires || retires(*node), ..record.clone() })
        };
        let known: Vec<_> = known.map(kept).collect();
        self.records.extend(known);
    }

    /// Whether it gets the log.
    pub fn contains(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }

    /// All that get the log, in order.
    pub fn all(&self) -> Vec<NodeId> {
        let mut all = [&self.voters[..], &self.learners].concat();
        all.sort_unstable();
        all
    }

    /// The members after a change.
    ///
    /// # Errors
    /// See [`ChangeRefused`].
    pub fn after(&self, change: MemberChange) -> Result<Members, ChangeRefused> {
        let mut after = self.clone();
        match change {
            MemberChange::Add(node) if self.contains(node) => return Err(ChangeRefused::Member(node)),
            MemberChange::Add(node) if self.is_former(node) => return Err(ChangeRefused::Former(node)),
            MemberChange::Add(_) if MEMBERS_MAX <= self.all().len() => return Err(ChangeRefused::Full),
            MemberChange::Add(node) => {
                insert(&mut after.learners, node);
                after.highest = node.get();
            }
            MemberChange::Promote(node) if !self.learners.contains(&node) => {
                return Err(ChangeRefused::NoLearner(node));
            }
            MemberChange::Promote(node) if self.is_mirror(node) => return Err(ChangeRefused::Mirror(node)),
            MemberChange::Promote(node) => {
                after.learners.retain(|other| *other != node);
                insert(&mut after.voters, node);
            }
            MemberChange::Remove(node) | MemberChange::Retire(node) if !self.contains(node) => {
                return Err(ChangeRefused::NoMember(node));
            }
            MemberChange::Remove(node) | MemberChange::Retire(node) if self.voters == [node] => {
                return Err(ChangeRefused::Last(node));
            }
            MemberChange::Retire(node) => after.records.entry(node).or_default().retires = true,
            MemberChange::Raise(level) if level != self.level.next() || !level.is_known() => {
                return Err(ChangeRefused::Level(level));
            }
            MemberChange::Raise(level) => after.level = level,
            MemberChange::Remove(node) => {
                after.voters.retain(|other| *other != node);
                after.learners.retain(|other| *other != node);
                after.records.remove(&node);
            }
        }
        Ok(after)
    }

    /// The change that leads to `after`, if it is one.
    pub(crate) fn change_to(&self, after: &Members) -> Option<MemberChange> {
        let (before, now) = (self.all(), after.all());
        let changes = [
            now.iter().find(|node| !before.contains(node)).map(|node| MemberChange::Add(*node)),
            before.iter().find(|node| !now.contains(node)).map(|node| MemberChange::Remove(*node)),
            after
                .voters
                .iter()
                .find(|node| self.learners.contains(node))
                .map(|node| MemberChange::Promote(*node)),
        ];
        let same = |change: &MemberChange| {
            self.after(*change).is_ok_and(|it| (&it.voters, &it.learners) == (&after.voters, &after.learners))
        };
        changes.into_iter().flatten().find(same)
    }

    /// The payload of an entry.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u8(self.level.get());
        out.put_u32_le(self.era);
        out.put_u64_le(self.highest);
        let (all, unknown) = (self.all(), NodeRecord::default());
        out.put_u8(all.len() as u8);
        for node in all {
            let NodeRecord { name, address, identity, replaces, retires, mirrors, zone, stores } =
                self.record(node).unwrap_or(&unknown);
            out.put_u64_le(node.get());
            let (retires, mirrors) = (if *retires { RETIRES } else { 0 }, if *mirrors { MIRRORS } else { 0 });
            out.put_u8(u8::from(self.voters.contains(&node)) | retires | mirrors);
            out.put_u64_le(replaces.map_or(0, NodeId::get));
            put_text(&mut out, name, NODE_NAME_BYTES_MAX);
            put_text(&mut out, address, NODE_ADDRESS_BYTES_MAX);
            put_text(&mut out, identity, IDENTITY_BYTES_MAX);
            if Level::ZONES <= self.level {
                put_text(&mut out, zone, NODE_ZONE_BYTES_MAX);
            }
            if Level::CHOSEN_STORES <= self.level {
                out.put_u16_le(stores.bits());
            }
        }
        out.freeze()
    }

    /// Reads the payload of an entry; `None` if it is not a list of members of a level that this
    /// program speaks.
    pub fn decode(since: Index, mut bytes: &[u8]) -> Option<Members> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let level = Level::new(bytes.try_get_u8().ok()?).filter(|level| level.is_known())?;
        let era = bytes.try_get_u32_le().ok()?;
        let highest = bytes.try_get_u64_le().ok().filter(|highest| *highest <= NUMBER_MAX)?;
        let count = usize::from(bytes.try_get_u8().ok()?);
        let mut members = Members { level, era, since, highest, ..Members::default() };
        let mut before = 0;
        for _ in 0..count {
            let number =
                bytes.try_get_u64_le().ok().filter(|number| before < *number && *number <= highest)?;
            let (node, flags) = (NodeId::new(number)?, bytes.try_get_u8().ok()?);
            let replaces = bytes.try_get_u64_le().ok().filter(|number| *number <= NUMBER_MAX)?;
            let name = text(&mut bytes, NODE_NAME_BYTES_MAX)?;
            let address = text(&mut bytes, NODE_ADDRESS_BYTES_MAX)?;
            let identity = text(&mut bytes, IDENTITY_BYTES_MAX)?;
            let zone = match Level::ZONES <= level {
                true => text(&mut bytes, NODE_ZONE_BYTES_MAX)?,
                false => String::new(),
            };
            let stores = match Level::CHOSEN_STORES <= level {
                true => ChosenStores::of_bits(bytes.try_get_u16_le().ok()?)?,
                false => ChosenStores::ALL,
            };
            let (replaces, retires) = (NodeId::new(replaces), flags & RETIRES != 0);
            let mirrors = flags & MIRRORS != 0;
            let record = NodeRecord { name, address, identity, replaces, retires, mirrors, zone, stores };
            match flags & !(RETIRES | MIRRORS) {
                0 => members.learners.push(node),
                VOTES => members.voters.push(node),
                _ => return None,
            }
            if record != NodeRecord::default() {
                members.records.insert(node, record);
            }
            before = number;
        }
        (bytes.is_empty() && count <= MEMBERS_MAX && !members.voters.is_empty()).then_some(members)
    }
}

/// The text, or as much of it as fits.
fn put_text(out: &mut BytesMut, text: &str, bytes_max: usize) {
    let text = &text[..text.floor_char_boundary(bytes_max)];
    out.put_u8(text.len() as u8);
    out.put_slice(text.as_bytes());
}

fn text(bytes: &mut &[u8], bytes_max: usize) -> Option<String> {
    let length = usize::from(bytes.try_get_u8().ok()?);
    let text = bytes.get(..length).filter(|_| length <= bytes_max)?;
    let text = std::str::from_utf8(text).ok()?.to_owned();
    bytes.advance(length);
    Some(text)
}

fn insert(list: &mut Vec<NodeId>, node: NodeId) {
    let place = list.partition_point(|other| *other < node);
    list.insert(place, node);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_node_learns_then_votes_then_is_gone_for_ever() {
        use MemberChange::{Add, Promote, Remove};
        let mut members = Members::first([3, 1, 2].map(node));
        for (change, want) in [
            (Promote(node(1)), Err(ChangeRefused::NoLearner(node(1)))),
            (Add(node(1)), Err(ChangeRefused::Member(node(1)))),
            (Remove(node(4)), Err(ChangeRefused::NoMember(node(4)))),
            (Add(node(4)), Ok((vec![1, 2, 3], vec![4]))),
            (Promote(node(4)), Ok((vec![1, 2, 3, 4], vec![]))),
            (Remove(node(2)), Ok((vec![1, 3, 4], vec![]))),
            (Add(node(2)), Err(ChangeRefused::Former(node(2)))),
            (Add(node(7)), Ok((vec![1, 3, 4], vec![7]))),
            (Add(node(6)), Err(ChangeRefused::Former(node(6)))),
            (Remove(node(7)), Ok((vec![1, 3, 4], vec![]))),
            (Remove(node(1)), Ok((vec![3, 4], vec![]))),
            (Remove(node(3)), Ok((vec![4], vec![]))),
            (Remove(node(4)), Err(ChangeRefused::Last(node(4)))),
        ] {
            let after = members.after(change);
            let numbers = |nodes: &[NodeId]| nodes.iter().map(|node| node.get()).collect::<Vec<_>>();
            let shown = after.as_ref().map(|it| (numbers(&it.voters), numbers(&it.learners)));
            assert_eq!(shown.map_err(|error| *error), want, "{change:?}");
            if let Ok(after) = after {
                assert_eq!(members.change_to(&after), Some(change));
                assert_eq!(
                    Members::decode(Index(7), &after.encode()),
                    Some(Members { since: Index(7), ..after.clone() })
                );
                members = after;
            }
        }
        let other = Members::first([1, 2, 3, 4, 5].map(node));
        assert_eq!(Members::first([1, 2].map(node)).change_to(&other), None, "two at once");
    }

    fn record(name: &str, replaces: u64) -> NodeRecord {
        let (name, address, identity) = (name.to_owned(), format!("{name}:7700"), format!("store of {name}"));
        NodeRecord { name, address, identity, replaces: NodeId::new(replaces), ..NodeRecord::default() }
    }

    #[test]
    fn a_mirror_never_votes_and_takes_the_place_of_all_others() {
        use MemberChange::{Add, Promote, Remove};
        let three = Members::first([1, 2, 3].map(node));
        let mut members = three.after(Add(node(4))).unwrap();
        let mirror = NodeRecord { mirrors: true, ..record("far", 0) };
        members.describe(&[(node(4), mirror.clone())].into());
        members.since = Index(9);
        assert_eq!(members.after(Promote(node(4))), Err(ChangeRefused::Mirror(node(4))));
        assert_eq!(Members::decode(Index(9), &members.encode()), Some(members.clone()));
        assert_eq!(members.taken_over(node(1), Index(7)), Err(ChangeRefused::NoLearner(node(1))));
        let plain = members.after(Remove(node(4))).and_then(|it| it.after(Add(node(5)))).unwrap();
        assert_eq!(plain.taken_over(node(5), Index(7)), Err(ChangeRefused::NoLearner(node(5))));
        let alone = members.taken_over(node(4), Index(7)).unwrap();
        assert_eq!((&alone.voters, &alone.learners, alone.next()), (&vec![node(4)], &vec![], NodeId::new(5)));
        assert_eq!(alone.record(node(4)), Some(&NodeRecord { mirrors: false, ..mirror }));
        assert!([1, 2, 3].map(node).into_iter().all(|other| alone.is_former(other)));
        assert_eq!(Members::decode(Index(7), &alone.encode()), Some(alone.clone()));
        // Lists of the former era do not count, whatever those nodes did after the mirror's last
        // entry.
        let others = Members { since: Index(99), ..members.after(Remove(node(3))).unwrap() };
        assert!(alone.is_later_than(&others) && !others.is_later_than(&alone));
        let next = Members { since: Index(8), ..alone.after(Add(node(5))).unwrap() };
        assert!(next.is_later_than(&alone) && !alone.is_later_than(&next) && !alone.is_later_than(&alone));
    }

    #[test]
    fn a_list_says_where_its_nodes_are_and_which_were_removed() {
        let mut members = Members::founders(["a:1", "b:1", "c:1"]);
        assert_eq!(members.record(node(2)).map(|record| &*record.address), Some("b:1"));
        assert_eq!((members.next(), members.majority()), (NodeId::new(4), 2));
        members = members.after(MemberChange::Add(node(4))).unwrap();
        members.describe(&[(node(4), record("n4", 1)), (node(9), record("n9", 0))].into());
        members = members.after(MemberChange::Remove(node(1))).unwrap();
        for node in [1, 2, 3, 4, 5].map(node) {
            assert_eq!(members.is_former(node), node.get() == 1, "{node:?}");
        }
        assert_eq!(members.records.keys().map(|node| node.get()).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(Members::decode(Index(0), &members.encode()), Some(members.clone()));
        assert_eq!(members.record(node(4)), Some(&record("n4", 1)));
        members = members.after(MemberChange::Retire(node(4))).unwrap();
        members.describe(&[(node(4), record("n4", 0))].into());
        assert_eq!(members.record(node(4)), Some(&NodeRecord { retires: true, ..record("n4", 0) }));
        assert_eq!(Members::decode(Index(0), &members.encode()), Some(members));
    }

    #[test]
    fn the_longest_list_has_a_bound_and_longer_texts_are_cut() {
        let mut members = Members::first((1..=MEMBERS_MAX as u64).map(node));
        let long = NodeRecord {
            name: "é".repeat(NODE_NAME_BYTES_MAX),
            address: "a".repeat(NODE_ADDRESS_BYTES_MAX + 1),
            identity: "i".repeat(300),
            zone: "z".repeat(300),
            ..NodeRecord::default()
        };
        members.level = Level::NEWEST;
        members.describe(&members.voters.clone().into_iter().map(|node| (node, long.clone())).collect());
        let bytes = members.encode();
        assert_eq!(bytes.len(), MEMBERS_BYTES_MAX);
        let found = Members::decode(Index(0), &bytes).unwrap();
        let record = found.record(node(16)).unwrap();
        assert_eq!((record.name.len(), record.address.len()), (NODE_NAME_BYTES_MAX, NODE_ADDRESS_BYTES_MAX));
        assert_eq!(record.zone.len(), NODE_ZONE_BYTES_MAX);
        assert_eq!(members.after(MemberChange::Add(node(17))), Err(ChangeRefused::Full));
    }

    #[test]
    fn levels_rise_by_one_and_zones_are_in_no_list_of_an_earlier_one() {
        let level = |number| Level::new(number).unwrap();
        let raise = |members: &Members, to| members.after(MemberChange::Raise(level(to)));
        let mut members = Members::founders(["a:1", "b:1"]);
        let zoned = NodeRecord { zone: "room 1".to_owned(), ..record("a", 0) };
        members.describe(&[(node(1), zoned.clone())].into());
        let read = |members: &Members| Members::decode(Index(0), &members.encode()).unwrap();
        assert_eq!(read(&members).record(node(1)), Some(&record("a", 0)));
        let raised = raise(&members, 2).unwrap();
        assert_eq!((raised.level, read(&raised).record(node(1))), (level(2), Some(&zoned)));
        assert_eq!(members.change_to(&raised), None, "nothing for the engine");
        for (members, to) in [(&members, 1), (&members, 3), (&raised, 1), (&raised, 2), (&raised, 4)] {
            assert_eq!(raise(members, to), Err(ChangeRefused::Level(level(to))), "{} to {to}", members.level);
        }
    }

    #[test]
    fn the_stores_of_a_node_are_in_no_list_of_an_earlier_level() {
        let mut members = Members::founders(["a:1", "b:1"]).after(MemberChange::Add(node(3))).unwrap();
        let stores = ChosenStores::of([2, 16]).unwrap();
        let far = NodeRecord { mirrors: true, stores, ..record("far", 0) };
        members.describe(&[(node(3), far.clone())].into());
        for (level, want) in [(1, ChosenStores::ALL), (2, ChosenStores::ALL), (3, stores)] {
            members.level = Level::new(level).unwrap();
            let read = Members::decode(Index(0), &members.encode()).unwrap();
            assert_eq!(read.record(node(3)).map(|record| record.stores), Some(want), "level {level}");
            assert_eq!(read.record(node(1)).map(|record| record.stores), Some(ChosenStores::ALL));
        }
        let alone = members.taken_over(node(3), Index(7)).unwrap();
        assert_eq!(alone.record(node(3)), Some(&NodeRecord { mirrors: false, ..far }), "it gets no others");
        let bytes = alone.encode();
        let without_the_first = [&bytes[..bytes.len() - 2], &[2, 0]].concat();
        assert_eq!(Members::decode(Index(0), &without_the_first), None);
    }

    #[test]
    fn what_is_not_a_list_of_members_is_refused() {
        let good = Members::first([1, 2].map(node)).encode();
        let (head, one) = (&good[..HEAD_BYTES - 1], &good[HEAD_BYTES..HEAD_BYTES + 20]);
        let flags = HEAD_BYTES + 8;
        let changed = |place: usize, byte: u8| [&good[..place], &[byte], &good[place + 1..]].concat();
        assert!(Members::decode(Index(1), &[head, &[1], one].concat()).is_some(), "as it is cut here");
        for (case, bytes) in [
            ("nothing", vec![]),
            ("another version", changed(0, 9)),
            ("no level", changed(1, 0)),
            ("a level that this program does not speak", changed(1, Level::NEWEST.next().get())),
            ("cut", good[..good.len() - 1].to_vec()),
            ("too long", [&good[..], &[0]].concat()),
            ("nobody", [head, &[0]].concat()),
            ("nobody votes", changed(flags, 0)[..HEAD_BYTES + 20].to_vec()),
            ("node 0", [head, &[1], &[0; 20]].concat()),
            ("a node above the highest", changed(6, 1)),
            ("a node twice", [head, &[2], one, one].concat()),
            ("an unknown flag", changed(flags, 8)),
            ("too many", [head, &[17]].concat()),
        ] {
            assert_eq!(Members::decode(Index(1), &bytes), None, "case: {case}");
        }
    }
}
