//! What a leader does by itself about the members: a learner that has caught up gets its vote, and
//! the node that it replaces is removed first; one that led when it was to leave is removed; the
//! level rises once all nodes speak the next. With several stores the first one keeps a node until
//! the others have removed it. Why a step has to wait follows from the same conditions.
//!
//! Everything follows from the list of members, so that the next leader goes on where this one
//! ended. Never here: sockets, the order in which changes become durable (crates/cluster).

use postroad_cluster::{Index, Level, MemberChange, Members, NodeId};

use crate::runtime::cluster::waits::{Lack, Votes, Wait};

/// A learner that lags by more entries does not get its vote yet: commits would wait for it.
pub const CAUGHT_UP: u64 = 100;

/// The group as its leader sees it.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The leader.
    pub own: NodeId,
    /// The members in force.
    pub members: &'a Members,
    /// The end of the leader's log.
    pub last: Index,
    /// The last entry that each other node has stored.
    pub stored: &'a [(NodeId, Index)],
    /// The other nodes with a connection.
    pub reached: &'a [NodeId],
    /// The other nodes that say that their stores are damaged: none of them is to lead.
    pub damaged: &'a [NodeId],
    /// Members of other stores, with these: they leave there first.
    pub elsewhere: &'a [(u16, NodeId)],
    /// The highest level that all members speak; `None` while that is not known of one.
    pub common_level: Option<Level>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A change of members.
    Change(MemberChange),
    /// This node is to be removed: another one has to lead first.
    HandOver,
}

/// The next step about a member, or why it has to wait.
type Task = (NodeId, Result<Step, Wait>);

impl Group<'_> {
    /// The next step, if there is anything to do.
    pub fn next_step(&self) -> Option<Step> {
        self.tasks().find_map(|(_, step)| step.ok()).or_else(|| self.raises_the_level())
    }

    /// The members that are still there, or do not vote yet, and why.
    pub fn waits(&self) -> Vec<(NodeId, Wait)> {
        let wait = |(node, step)| match step {
            Err(wait) => Some((node, wait)),
            Ok(Step::HandOver) => Some((node, Wait::HandsOver)),
            Ok(Step::Change(_)) => None,
        };
        self.tasks().filter_map(wait).collect()
    }

    /// The steps about members, in their order.
    fn tasks(&self) -> impl Iterator<Item = Task> {
        let retires = |node: &NodeId| self.members.record(*node).is_some_and(|record| record.retires);
        let retired = self.members.all().into_iter().filter(retires).map(|node| (node, self.goes(node)));
        let learners = self.members.learners.iter().filter(|learner| !self.members.is_mirror(**learner));
        retired.chain(learners.map(|learner| self.learns(*learner)))
    }

    fn raises_the_level(&self) -> Option<Step> {
        let next = self.members.level.next();
        let common = self.common_level.filter(|common| next <= *common && next.is_known());
        common.map(|_| Step::Change(MemberChange::Raise(next)))
    }

    /// A node is to go.
    fn goes(&self, node: NodeId) -> Result<Step, Wait> {
        if node == self.own {
            let closest =
                || self.candidates().filter_map(|node| Some((self.lacks_to_lead(node)?, node))).min();
            return match self.heirs().is_empty() {
                true => Err(Wait::NoHeir(closest().map(|(lack, node)| (node, lack)))),
                false => Ok(Step::HandOver),
            };
        }
        let elsewhere = self.elsewhere.iter().filter(|(_, member)| *member == node);
        let stores: Vec<u16> = elsewhere.map(|(store, _)| *store).collect();
        if !stores.is_empty() {
            return Err(Wait::Elsewhere(stores));
        }
        let votes = self.votes_without(node);
        match votes.suffice() {
            true => Ok(Step::Change(MemberChange::Remove(node))),
            false => Err(Wait::NoMajority(votes)),
        }
    }

    /// The nodes that may lead in place of this one, those with most of the log first.
    pub fn heirs(&self) -> Vec<NodeId> {
        let mut heirs: Vec<NodeId> =
            self.candidates().filter(|node| self.lacks_to_lead(*node).is_none()).collect();
        let stored = |node: &NodeId| self.stored.iter().find(|(of, _)| of == node).map(|(_, index)| *index);
        heirs.sort_by_key(|node| std::cmp::Reverse(stored(node)));
        heirs
    }

    /// The other nodes with a vote that stay.
    fn candidates(&self) -> impl Iterator<Item = NodeId> {
        let stays = |node: &NodeId| self.members.record(*node).is_none_or(|record| !record.retires);
        self.members.voters.iter().copied().filter(|voter| *voter != self.own).filter(stays)
    }

    /// Why a node cannot lead in place of this one, if so.
    fn lacks_to_lead(&self, node: NodeId) -> Option<Lack> {
        let is_whole = !self.reached.contains(&node) || !self.damaged.contains(&node);
        if is_whole { self.lacks(node) } else { Some(Lack::WholeStore) }
    }

    /// A node gets its vote, or the one that it replaces goes first.
    fn learns(&self, learner: NodeId) -> Task {
        let replaces = self.members.record(learner).and_then(|record| record.replaces);
        match (replaces.filter(|old| self.members.contains(*old)), self.lacks(learner)) {
            (Some(old), Some(lack)) => (old, Err(Wait::Replaced(learner, lack))),
            // With the new node's vote first, both would be needed if the new one fails, too.
            (Some(old), None) => (old, self.goes(old)),
            (None, Some(lack)) => (learner, Err(Wait::Learns(lack))),
            (None, None) => (learner, Ok(Step::Change(MemberChange::Promote(learner)))),
        }
    }

    /// Why a node has not caught up, if so.
    fn lacks(&self, node: NodeId) -> Option<Lack> {
        if !self.reached.contains(&node) {
            return Some(Lack::Connection);
        }
        // A node that has stored nothing waits for a copy, however short the log is.
        let stored = self.stored.iter().find(|(of, index)| *of == node && Index::default() < *index);
        let Some((_, stored)) = stored else { return Some(Lack::Copy) };
        let lag = self.last.0.saturating_sub(stored.0);
        (CAUGHT_UP < lag).then_some(Lack::Entries(lag, CAUGHT_UP))
    }

    /// The votes of the others once a node is removed.
    pub fn votes_without(&self, node: NodeId) -> Votes {
        let voters = self.members.voters.iter().filter(|voter| **voter != node);
        let is_reached = |voter: &NodeId| *voter == self.own || self.reached.contains(voter);
        let (all, reached) =
            voters.fold((0, 0), |(all, reached), voter| (all + 1, reached + usize::from(is_reached(voter))));
        Votes { reached, all, needed: all / 2 + 1 }
    }
}

#[cfg(test)]
mod tests {
    use postroad_cluster::NodeRecord;

    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn nodes(numbers: &[u64]) -> Vec<NodeId> {
        numbers.iter().copied().map(node).collect()
    }

    /// A leader with 500 entries, at which nothing is damaged.
    fn group<'a>(members: &'a Members, stored: &'a [(NodeId, Index)], reached: &'a [NodeId]) -> Group<'a> {
        Group {
            own: node(1),
            members,
            last: Index(500),
            stored,
            reached,
            damaged: &[],
            elsewhere: &[],
            common_level: None,
        }
    }

    fn with_learner(replaces: u64) -> Members {
        let mut members = Members::first([1, 2, 3].map(node)).after(MemberChange::Add(node(4))).unwrap();
        let record = NodeRecord { replaces: NodeId::new(replaces), ..NodeRecord::default() };
        members.describe(&[(node(4), record)].into());
        members
    }

    fn with_mirror() -> Members {
        let mut members = with_learner(0);
        let record = NodeRecord { mirrors: true, ..NodeRecord::default() };
        members.describe(&[(node(4), record)].into());
        members
    }

    #[test]
    fn a_learner_votes_once_it_has_caught_up_and_the_replaced_node_goes_first() {
        use MemberChange::{Promote, Remove};
        let retired =
            |gone: u64| Members::first([1, 2, 3].map(node)).after(MemberChange::Retire(node(gone))).unwrap();
        let without = |gone: u64, members: Members| members.after(Remove(node(gone))).unwrap();
        for (case, members, lag, reached, want) in [
            ("nobody learns", Members::first([1, 2, 3].map(node)), 0, vec![2, 3], None),
            ("at the bound", with_learner(0), CAUGHT_UP, vec![4], Some(Step::Change(Promote(node(4))))),
            ("beyond it", with_learner(0), CAUGHT_UP + 1, vec![4], None),
            ("a mirror", with_mirror(), CAUGHT_UP, vec![2, 3, 4], None),
            ("not reached", with_learner(0), 0, vec![2, 3], None),
            ("replaces", with_learner(3), 0, vec![2, 4], Some(Step::Change(Remove(node(3))))),
            ("its majority would be gone", with_learner(3), 0, vec![4], None),
            ("has replaced", without(3, with_learner(3)), 0, vec![4], Some(Step::Change(Promote(node(4))))),
            ("replaces the leader", with_learner(1), 0, vec![2, 3, 4], Some(Step::HandOver)),
            ("and nobody can lead", with_learner(1), 0, vec![3, 4], None),
            ("a retired one", retired(3), 0, vec![2, 3], Some(Step::Change(Remove(node(3))))),
            ("needed", retired(3), 0, vec![3], None),
            ("leads", retired(1), 0, vec![2, 3], Some(Step::HandOver)),
        ] {
            let stored = [(node(2), Index(500)), (node(3), Index(300)), (node(4), Index(500 - lag))];
            let reached = nodes(&reached);
            let group = group(&members, &stored, &reached);
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn a_learner_of_a_short_log_gets_its_vote_once_it_has_stored_something() {
        let members = with_learner(0);
        let promoted = Some(Step::Change(MemberChange::Promote(node(4))));
        for (stored, want) in [(0, None), (1, promoted), (50, promoted)] {
            let (reached, of) = ([node(4)], [(node(4), Index(stored))]);
            let group = Group { last: Index(50), ..group(&members, &of, &reached) };
            assert_eq!(group.next_step(), want, "{stored} of 50");
        }
    }

    #[test]
    fn the_first_store_keeps_a_node_until_the_others_have_removed_it() {
        use MemberChange::{Remove, Retire};
        let retired = |gone| Members::first([1, 2, 3].map(node)).after(Retire(node(gone))).unwrap();
        for (case, members, elsewhere, want) in [
            ("a retired one", retired(3), vec![3], None),
            ("others are elsewhere", retired(3), vec![1, 2], Some(Step::Change(Remove(node(3))))),
            ("a replaced one", with_learner(3), vec![3], None),
            ("the leader", retired(1), vec![1], Some(Step::HandOver)),
        ] {
            let elsewhere: Vec<(u16, NodeId)> =
                elsewhere.into_iter().map(|number| (2, node(number))).collect();
            let reached = [2, 3, 4].map(node);
            let stored = reached.map(|node| (node, Index(500)));
            let group = Group { elsewhere: &elsewhere, ..group(&members, &stored, &reached) };
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn a_step_that_has_to_wait_says_why() {
        use Lack::{Connection, Copy, Entries, WholeStore};
        let three = || Members::first([1, 2, 3].map(node));
        let retired = |gone: &[u64]| {
            gone.iter()
                .fold(three(), |members, gone| members.after(MemberChange::Retire(node(*gone))).unwrap())
        };
        let no_majority = |reached, all, needed| Wait::NoMajority(Votes { reached, all, needed });
        for (case, members, stored, reached, damaged, elsewhere, want) in [
            ("nothing is to do", three(), [500, 500, 0], &[2, 3][..], &[][..], &[][..], vec![]),
            ("a vote that is to come", with_learner(0), [500, 500, 500], &[4], &[], &[], vec![]),
            ("it goes now", retired(&[3]), [500, 500, 0], &[2, 3], &[], &[], vec![]),
            ("too few", retired(&[3]), [500, 500, 0], &[3], &[], &[], vec![(3, no_majority(1, 2, 2))]),
            (
                "elsewhere",
                retired(&[3]),
                [500, 500, 0],
                &[2, 3],
                &[],
                &[(2, 3), (3, 1), (4, 3)],
                vec![(3, Wait::Elsewhere(vec![2, 4]))],
            ),
            ("an heir", retired(&[1]), [500, 399, 0], &[2, 3], &[], &[], vec![(1, Wait::HandsOver)]),
            (
                "heirs that lag",
                retired(&[1]),
                [300, 399, 0],
                &[2, 3],
                &[],
                &[],
                vec![(1, Wait::NoHeir(Some((node(3), Entries(101, 100)))))],
            ),
            (
                "one lags, one is away",
                retired(&[1]),
                [300, 500, 0],
                &[2],
                &[],
                &[],
                vec![(1, Wait::NoHeir(Some((node(2), Entries(200, 100)))))],
            ),
            (
                "all are away, damaged or not",
                retired(&[1]),
                [500, 500, 0],
                &[],
                &[2],
                &[],
                vec![(1, Wait::NoHeir(Some((node(2), Connection))))],
            ),
            (
                "one is damaged, one is away",
                retired(&[1]),
                [500, 500, 0],
                &[3],
                &[3],
                &[],
                vec![(1, Wait::NoHeir(Some((node(3), WholeStore))))],
            ),
            (
                "one of two is damaged",
                retired(&[1]),
                [500; 3],
                &[2, 3],
                &[3],
                &[],
                vec![(1, Wait::HandsOver)],
            ),
            (
                "all others go, too",
                retired(&[1, 2, 3]),
                [500, 500, 0],
                &[],
                &[],
                &[],
                vec![(1, Wait::NoHeir(None)), (2, no_majority(1, 2, 2)), (3, no_majority(1, 2, 2))],
            ),
            (
                "learns",
                with_learner(0),
                [500, 500, 399],
                &[4],
                &[],
                &[],
                vec![(4, Wait::Learns(Entries(101, 100)))],
            ),
            ("a mirror", with_mirror(), [500, 500, 0], &[], &[], &[], vec![]),
            (
                "a copy",
                with_learner(3),
                [500, 500, 0],
                &[4],
                &[],
                &[],
                vec![(3, Wait::Replaced(node(4), Copy))],
            ),
            (
                "away",
                with_learner(3),
                [500; 3],
                &[2],
                &[],
                &[],
                vec![(3, Wait::Replaced(node(4), Connection))],
            ),
            (
                "replaced, and needed",
                with_learner(3),
                [500; 3],
                &[4],
                &[],
                &[],
                vec![(3, no_majority(1, 2, 2))],
            ),
        ] {
            let (reached, damaged) = (nodes(reached), nodes(damaged));
            let elsewhere: Vec<(u16, NodeId)> =
                elsewhere.iter().map(|(store, it)| (*store, node(*it))).collect();
            let stored: Vec<_> = (2..).map(node).zip(stored.map(Index)).collect();
            let group =
                Group { damaged: &damaged, elsewhere: &elsewhere, ..group(&members, &stored, &reached) };
            let want: Vec<(NodeId, Wait)> =
                want.into_iter().map(|(number, wait)| (node(number), wait)).collect();
            assert_eq!(group.waits(), want, "case: {case}");
            let waits_alone = !want.is_empty() && want.iter().all(|(_, wait)| *wait != Wait::HandsOver);
            assert!(!waits_alone || group.next_step().is_none(), "case: {case}: no step");
        }
    }

    #[test]
    fn an_heir_has_a_vote_stays_and_has_most_of_the_log() {
        let members = Members::first([1, 2, 3, 4, 5].map(node)).after(MemberChange::Retire(node(2))).unwrap();
        let stored = [2, 3, 4, 5].map(|number| (node(number), Index(490 + number)));
        for (case, reached, damaged, want) in [
            ("all but the retired", vec![2, 3, 4, 5], vec![], vec![5, 4, 3]),
            ("one is away", vec![2, 3, 4], vec![], vec![4, 3]),
            ("one is damaged", vec![2, 3, 4, 5], vec![4], vec![5, 3]),
        ] {
            let (reached, damaged) = (nodes(&reached), nodes(&damaged));
            let group = Group { damaged: &damaged, ..group(&members, &stored, &reached) };
            assert_eq!(group.heirs(), nodes(&want), "case: {case}");
        }
    }

    #[test]
    fn the_level_rises_by_one_once_all_nodes_speak_the_next_and_nothing_else_is_to_do() {
        let level = |number| Level::new(number);
        let at = |number: u8| Members {
            level: Level::new(number).unwrap(),
            ..Members::first([1, 2, 3].map(node))
        };
        let raised = |to| Some(Step::Change(MemberChange::Raise(Level::new(to).unwrap())));
        for (case, members, common_level, want) in [
            ("all speak the next", at(1), level(2), raised(2)),
            ("all speak more", at(1), level(9), raised(2)),
            ("the last one", at(2), level(3), raised(3)),
            ("one does not", at(1), level(1), None),
            ("one is away", at(1), None, None),
            ("it is in force", at(2), level(2), None),
            ("beyond this program", at(3), level(4), None),
            ("a node learns", with_learner(0), level(2), Some(Step::Change(MemberChange::Promote(node(4))))),
        ] {
            let stored = [(node(4), Index(500))];
            let reached = [2, 3, 4].map(node);
            let group = Group { common_level, ..group(&members, &stored, &reached) };
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn the_votes_that_are_left_are_counted_without_the_one_that_goes() {
        let members = Members::first([1, 2, 3].map(node));
        for (reached, leaves, want) in [
            (vec![2, 3], 3, (2, 2, 2)),
            (vec![2], 3, (2, 2, 2)),
            (vec![2], 2, (1, 2, 2)),
            (vec![], 2, (1, 2, 2)),
        ] {
            let reached = nodes(&reached);
            let group = Group { last: Index(0), ..group(&members, &[], &reached) };
            let Votes { reached: votes, all, needed } = group.votes_without(node(leaves));
            assert_eq!((votes, all, needed), want, "{reached:?} without {leaves}");
        }
    }
}
