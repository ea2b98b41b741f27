//! What a leader does by itself about the members: a learner that has caught up gets its vote, and
//! the node that it replaces is removed first; one that led when it was to leave is removed; the
//! level rises once all nodes speak the next. With several stores the first one keeps a node until
//! the others have removed it.
//!
//! Everything follows from the list of members, so that the next leader goes on where this one
//! ended. Never here: sockets, the order in which changes become durable (crates/cluster).

use postroad_cluster::{Index, Level, MemberChange, Members, NodeId};

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
    /// Members of other stores: those leave there first.
    pub elsewhere: &'a [NodeId],
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

impl Group<'_> {
    /// The next step, if there is anything to do.
    pub fn next_step(&self) -> Option<Step> {
        self.removes_a_retired().or_else(|| self.sees_to_a_learner()).or_else(|| self.raises_the_level())
    }

    fn raises_the_level(&self) -> Option<Step> {
        let next = self.members.level.next();
        let common = self.common_level.filter(|common| next <= *common && next.is_known());
        common.map(|_| Step::Change(MemberChange::Raise(next)))
    }

    fn removes_a_retired(&self) -> Option<Step> {
        let retires = |node: &NodeId| self.members.record(*node).is_some_and(|record| record.retires);
        let retired = self.members.all().into_iter().filter(retires);
        retired.filter_map(|node| self.goes(node)).next()
    }

    /// A node is to go.
    fn goes(&self, node: NodeId) -> Option<Step> {
        if node == self.own {
            return (!self.heirs().is_empty()).then_some(Step::HandOver);
        }
        let may_go = !self.elsewhere.contains(&node) && self.goes_on_without(node);
        may_go.then_some(Step::Change(MemberChange::Remove(node)))
    }

    /// The nodes that may lead in place of this one, those with most of the log first.
    pub fn heirs(&self) -> Vec<NodeId> {
        let stays = |node: &NodeId| self.members.record(*node).is_none_or(|record| !record.retires);
        let others = self.members.voters.iter().copied().filter(|voter| *voter != self.own);
        let mut heirs: Vec<NodeId> =
            others.filter(|voter| stays(voter) && self.has_caught_up(*voter)).collect();
        let stored = |node: &NodeId| self.stored.iter().find(|(of, _)| of == node).map(|(_, index)| *index);
        heirs.sort_by_key(|node| std::cmp::Reverse(stored(node)));
        heirs
    }

    fn sees_to_a_learner(&self) -> Option<Step> {
        let learners = self.members.learners.iter().filter(|learner| !self.members.is_mirror(**learner));
        learners.filter(|learner| self.has_caught_up(**learner)).find_map(|learner| {
            let replaces = self.members.record(*learner).and_then(|record| record.replaces);
            match replaces.filter(|old| self.members.contains(*old)) {
                // With the new node's vote first, both would be needed if the new one fails, too.
                Some(old) => self.goes(old),
                None => Some(Step::Change(MemberChange::Promote(*learner))),
            }
        })
    }

    fn has_caught_up(&self, node: NodeId) -> bool {
        // A node that has stored nothing waits for a copy, however short the log is.
        let stored = self.stored.iter().find(|(of, index)| *of == node && Index::default() < *index);
        let lag = stored.map(|(_, index)| self.last.0.saturating_sub(index.0));
        self.reached.contains(&node) && lag.is_some_and(|lag| lag <= CAUGHT_UP)
    }

    /// Whether the others are a majority of themselves once a node is removed.
    fn goes_on_without(&self, node: NodeId) -> bool {
        let (reached, needed) = self.votes_without(node);
        needed <= reached
    }

    /// Votes that are reached once a node is removed, and those without which nothing is committed.
    pub fn votes_without(&self, node: NodeId) -> (usize, usize) {
        let voters = self.members.voters.iter().filter(|voter| **voter != node);
        let is_reached = |voter: &NodeId| *voter == self.own || self.reached.contains(voter);
        let (all, reached) =
            voters.fold((0, 0), |(all, reached), voter| (all + 1, reached + usize::from(is_reached(voter))));
        (reached, all / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use postroad_cluster::NodeRecord;

    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
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
            let reached: Vec<NodeId> = reached.into_iter().map(node).collect();
            let group = Group {
                own: node(1),
                members: &members,
                last: Index(500),
                stored: &stored,
                reached: &reached,
                elsewhere: &[],
                common_level: None,
            };
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn a_learner_of_a_short_log_gets_its_vote_once_it_has_stored_something() {
        let members = with_learner(0);
        let promoted = Some(Step::Change(MemberChange::Promote(node(4))));
        for (stored, want) in [(0, None), (1, promoted), (50, promoted)] {
            let group = Group {
                own: node(1),
                members: &members,
                last: Index(50),
                stored: &[(node(4), Index(stored))],
                reached: &[node(4)],
                elsewhere: &[],
                common_level: None,
            };
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
            let elsewhere: Vec<NodeId> = elsewhere.into_iter().map(node).collect();
            let reached = [2, 3, 4].map(node);
            let group = Group {
                own: node(1),
                members: &members,
                last: Index(500),
                stored: &reached.map(|node| (node, Index(500))),
                reached: &reached,
                elsewhere: &elsewhere,
                common_level: None,
            };
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn an_heir_has_a_vote_stays_and_has_most_of_the_log() {
        let members = Members::first([1, 2, 3, 4, 5].map(node)).after(MemberChange::Retire(node(2))).unwrap();
        let stored = [2, 3, 4, 5].map(|number| (node(number), Index(490 + number)));
        for (case, reached, want) in [
            ("all but the retired", vec![2, 3, 4, 5], vec![5, 4, 3]),
            ("one is away", vec![2, 3, 4], vec![4, 3]),
        ] {
            let reached: Vec<NodeId> = reached.into_iter().map(node).collect();
            let group = Group {
                own: node(1),
                members: &members,
                last: Index(500),
                stored: &stored,
                reached: &reached,
                elsewhere: &[],
                common_level: None,
            };
            assert_eq!(group.heirs(), want.into_iter().map(node).collect::<Vec<_>>(), "case: {case}");
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
            let (own, last) = (node(1), Index(500));
            let elsewhere = &[];
            let group = Group {
                own,
                members: &members,
                last,
                stored: &stored,
                reached: &reached,
                elsewhere,
                common_level,
            };
            assert_eq!(group.next_step(), want, "case: {case}");
        }
    }

    #[test]
    fn the_votes_that_are_left_are_counted_without_the_one_that_goes() {
        let members = Members::first([1, 2, 3].map(node));
        for (reached, leaves, want) in
            [(vec![2, 3], 3, (2, 2)), (vec![2], 3, (2, 2)), (vec![2], 2, (1, 2)), (vec![], 2, (1, 2))]
        {
            let reached: Vec<NodeId> = reached.into_iter().map(node).collect();
            let group = Group {
                own: node(1),
                members: &members,
                last: Index(0),
                stored: &[],
                reached: &reached,
                elsewhere: &[],
                common_level: None,
            };
            assert_eq!(group.votes_without(node(leaves)), want, "{reached:?} without {leaves}");
        }
    }
}
