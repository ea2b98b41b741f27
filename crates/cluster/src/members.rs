//! The nodes of a group: which vote, and how that changes, one node at a time.
//!
//! ```text
//! payload of an entry: version u8 │ voters │ learners │ former, each: count u8, node u64
//! ```
//! Little endian. Each entry has the whole list, so the last one says everything.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::codec::NUMBER_MAX;
use crate::entry::{Index, NodeId};

const VERSION: u8 = 1;

/// Nodes of one list. A majority of more voters would be slow.
pub const MEMBERS_MAX: usize = 16;

/// A change of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It gets the log from now on, and has no vote.
    Add(NodeId),
    /// A learner gets a vote.
    Promote(NodeId),
    /// It gets nothing any more, and never comes back under this number.
    Remove(NodeId),
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
    /// The list is full.
    #[error("there are {MEMBERS_MAX} nodes already")]
    Full,
}

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The entry that says so; 0 for the members of a new group.
    pub since: Index,
    /// Those with a vote, in order.
    pub voters: Vec<NodeId>,
    /// Those that get the log alone, in order.
    pub learners: Vec<NodeId>,
    /// Those that were removed, in order.
    pub former: Vec<NodeId>,
}

impl Members {
    /// The members of a new group.
    pub fn first(voters: impl IntoIterator<Item = NodeId>) -> Members {
        let mut voters: Vec<NodeId> = voters.into_iter().collect();
        voters.sort_unstable();
        voters.dedup();
        Members { voters, ..Members::default() }
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
            MemberChange::Add(node) if self.former.contains(&node) => {
                return Err(ChangeRefused::Former(node));
            }
            MemberChange::Add(_) if MEMBERS_MAX <= self.all().len() => return Err(ChangeRefused::Full),
            MemberChange::Add(node) => insert(&mut after.learners, node),
            MemberChange::Promote(node) if !self.learners.contains(&node) => {
                return Err(ChangeRefused::NoLearner(node));
            }
            MemberChange::Promote(node) => {
                after.learners.retain(|other| *other != node);
                insert(&mut after.voters, node);
            }
            MemberChange::Remove(node) if !self.contains(node) => return Err(ChangeRefused::NoMember(node)),
            MemberChange::Remove(node) if self.voters == [node] => return Err(ChangeRefused::Last(node)),
            MemberChange::Remove(_) if MEMBERS_MAX <= self.former.len() => return Err(ChangeRefused::Full),
            MemberChange::Remove(node) => {
                after.voters.retain(|other| *other != node);
                after.learners.retain(|other| *other != node);
                insert(&mut after.former, node);
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
        for list in [&self.voters, &self.learners, &self.former] {
            out.put_u8(list.len() as u8);
            list.iter().for_each(|node| out.put_u64_le(node.get()));
        }
        out.freeze()
    }

    /// Reads the payload of an entry; `None` if it is not a list of members.
    pub fn decode(since: Index, mut bytes: &[u8]) -> Option<Members> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let mut list = || {
            let count =
                usize::from(bytes.try_get_u8().ok().filter(|count| usize::from(*count) <= MEMBERS_MAX)?);
            let mut nodes = Vec::with_capacity(count);
            for _ in 0..count {
                let number = bytes.try_get_u64_le().ok().filter(|number| *number <= NUMBER_MAX)?;
                nodes.push(NodeId::new(number)?);
            }
            nodes.is_sorted_by(|one, other| one < other).then_some(nodes)
        };
        let members = Members { since, voters: list()?, learners: list()?, former: list()? };
        let once = !members.voters.iter().any(|node| members.learners.contains(node));
        (bytes.is_empty() && once && !members.voters.is_empty()).then_some(members)
    }
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

    #[test]
    fn what_is_not_a_list_of_members_is_refused() {
        let good = Members::first([1, 2].map(node)).encode();
        for (case, bytes) in [
            ("nothing", vec![]),
            ("another version", [&[9], &good[1..]].concat()),
            ("cut", good[..good.len() - 1].to_vec()),
            ("too long", [&good[..], &[0]].concat()),
            ("nobody votes", vec![1, 0, 0, 0]),
            ("node 0", vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ("too many", vec![1, 17]),
        ] {
            assert_eq!(Members::decode(Index(1), &bytes), None, "case: {case}");
        }
        let (one, two) = (Members::first([node(1)]), Members::first([node(2)]));
        let twice = [&one.encode()[..10], &one.encode()[1..10], &two.encode()[1..10]].concat();
        assert_eq!(Members::decode(Index(1), &twice), None, "a voter and a learner");
    }
}
