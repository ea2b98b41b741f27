//! Turns in which nodes leave their damaged stores: never two of them at once, as the rest might be
//! no majority then.
//!
//! ```text
//!  node that found damage          leader
//!  asks, again and again ────────▶ others suffice without it, and without one that is filled?
//!            ◀──────────── granted
//!  leaves, and is filled ────────▶ it is whole again: the next one may leave
//! ```
//! notice, in a frame of its own: `0xf1 u8 │ 0: asks, 1: granted`. A node that says version 9 or a
//! later one in its hello takes it.
//!
//! Never here: clocks (times come in as numbers), who is connected, damage itself.

use crate::entry::NodeId;
use crate::members::Members;

/// First byte of a notice; messages begin with [`crate::FORMAT_VERSION`], which stays below.
const NOTICE: u8 = 0xf1;

/// What one node says to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveNotice {
    /// Its store is damaged: may it leave that?
    Asks,
    /// It may, at once.
    Granted,
}

impl LeaveNotice {
    /// The frame that says it.
    pub fn notice(self) -> [u8; 2] {
        [NOTICE, u8::from(self == LeaveNotice::Granted)]
    }

    /// The content of a frame; `None` if it is not such a notice.
    pub fn of_notice(frame: &[u8]) -> Option<LeaveNotice> {
        match frame {
            [NOTICE, 0] => Some(LeaveNotice::Asks),
            [NOTICE, 1] => Some(LeaveNotice::Granted),
            _ => None,
        }
    }
}

/// A leader grants nothing for this time: a node that the leader before let go has lost its
/// connection by then.
const SETTLES_MS: u64 = 3_000;

/// A node leaves within this time after the leader granted it, or asks again.
pub const GRANT_MS: u64 = 2_000;

/// The turns that one leader gives in its term.
#[derive(Debug)]
pub struct LeaveTurns {
    since_ms: u64,
    granted: Option<Granted>,
}

#[derive(Debug)]
struct Granted {
    node: NodeId,
    at_ms: u64,
    /// It was not whole, or not reached, since.
    has_left: bool,
}

impl LeaveTurns {
    /// Of a leader from now on.
    pub fn new(now_ms: u64) -> LeaveTurns {
        LeaveTurns { since_ms: now_ms, granted: None }
    }

    /// Whether a node may leave its store now. `whole`: the nodes that `own`, the leader, reaches
    /// and whose stores are whole.
    pub fn grant(
        &mut self,
        node: NodeId,
        (members, own): (&Members, NodeId),
        whole: &[NodeId],
        now_ms: u64,
    ) -> bool {
        self.look(whole, now_ms);
        let gone = self.granted.as_ref().map(|granted| granted.node).filter(|gone| *gone != node);
        let stays = |other: &&NodeId| {
            **other != node && Some(**other) != gone && (**other == own || whole.contains(other))
        };
        let is_settled = self.since_ms.saturating_add(SETTLES_MS) <= now_ms;
        let suffices = others_are_majority(members, node, members.voters.iter().filter(stays).count());
        let is_granted = is_settled && gone.is_none() && suffices;
        if is_granted {
            self.granted = Some(Granted { node, at_ms: now_ms, has_left: false });
        }
        is_granted
    }

    /// A turn ends once its node is whole again, or if it did not use it.
    pub fn look(&mut self, whole: &[NodeId], now_ms: u64) {
        let Some(granted) = &mut self.granted else { return };
        let is_whole = whole.contains(&granted.node);
        granted.has_left |= !is_whole;
        let unused = granted.at_ms.saturating_add(2 * GRANT_MS) <= now_ms;
        if is_whole && (granted.has_left || unused) {
            self.granted = None;
        }
    }
}

/// The voter to which the leader `own` hands over as its store is damaged, if there is one.
/// `whole`: the nodes that it reaches and that have a store. One of them that says of itself that
/// its store is damaged would not take over ([`crate::Group::abstain`]), and writes would wait for
/// nothing.
pub fn undamaged_heir(
    (members, own): (&Members, NodeId),
    whole: &[NodeId],
    says_damaged: &[NodeId],
    has_caught_up: impl Fn(NodeId) -> bool,
) -> Option<NodeId> {
    let is_fit = |node: &NodeId| whole.contains(node) && !says_damaged.contains(node);
    let mut heirs = members.voters.iter().copied().filter(|node| *node != own && is_fit(node));
    heirs.find(|node| has_caught_up(*node))
}

/// Whether this number of other voters goes on without the node.
pub fn others_are_majority(members: &Members, node: NodeId, others: usize) -> bool {
    !members.voters.contains(&node) || members.majority() <= others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn nodes(numbers: &[u64]) -> Vec<NodeId> {
        numbers.iter().map(|number| node(*number)).collect()
    }

    #[test]
    fn a_notice_is_no_message_and_no_other_notice() {
        for notice in [LeaveNotice::Asks, LeaveNotice::Granted] {
            let frame = notice.notice();
            assert_eq!(LeaveNotice::of_notice(&frame), Some(notice));
            assert!(crate::decode(frame.to_vec().into()).is_err());
            assert_eq!(crate::DiskSpace::of_notice(&frame), None);
        }
        for frame in [&[][..], &[NOTICE], &[NOTICE, 2], &[NOTICE, 0, 0], &[0xf0, 0]] {
            assert_eq!(LeaveNotice::of_notice(frame), None, "{frame:?}");
        }
    }

    #[test]
    fn two_nodes_that_ask_at_once_leave_one_after_the_other() {
        let three = Members::founders(["a:1", "b:1", "c:1"]);
        let mut turns = LeaveTurns::new(0);
        let mut asks =
            |who, whole: &[u64], now_ms| turns.grant(node(who), (&three, node(1)), &nodes(whole), now_ms);
        assert!(!asks(2, &[2, 3], SETTLES_MS - 1), "the leader is new");
        assert!(asks(2, &[2, 3], 5000));
        assert!(!asks(3, &[2, 3], 5000), "the first one is about to leave");
        assert!(asks(2, &[2, 3], 5500), "the answer was lost");
        assert!(!asks(3, &[3], 6000) && !asks(3, &[3], 600_000), "the first one is being filled");
        assert!(asks(3, &[2, 3], 600_001), "it is whole again");
        assert!(!asks(2, &[2], 600_002));
    }

    #[test]
    fn a_damaged_leader_hands_over_to_an_undamaged_voter_or_stays() {
        let three = Members::founders(["a:1", "b:1", "c:1"]);
        for (case, whole, damaged, lags, want) in [
            ("the others are whole", vec![2, 3], vec![], 0, Some(2)),
            ("the first one says that it is damaged", vec![2, 3], vec![2], 0, Some(3)),
            ("the second one does", vec![2, 3], vec![3], 0, Some(2)),
            ("both do", vec![2, 3], vec![2, 3], 0, None),
            ("one is being filled, the other is damaged", vec![2], vec![2], 0, None),
            ("one is being filled", vec![3], vec![], 0, Some(3)),
            ("the undamaged one lags", vec![2, 3], vec![2], 3, None),
            ("one without a vote", vec![9], vec![], 0, None),
            ("itself", vec![1], vec![], 0, None),
        ] {
            let (group, caught_up) = ((&three, node(1)), |node: NodeId| node.get() != lags);
            let heir = undamaged_heir(group, &nodes(&whole), &nodes(&damaged), caught_up);
            assert_eq!(heir, want.map(node), "case: {case}");
        }
    }

    #[test]
    fn a_turn_that_is_not_used_ends_and_no_minority_stays_behind() {
        let three = Members::founders(["a:1", "b:1", "c:1"]);
        let mut turns = LeaveTurns::new(0);
        let mut asks =
            |who, whole: &[u64], now_ms| turns.grant(node(who), (&three, node(1)), &nodes(whole), now_ms);
        assert!(!asks(2, &[2], 5000), "the third node is away");
        assert!(asks(2, &[2, 3], 6000));
        assert!(!asks(3, &[2, 3], 6000 + 2 * GRANT_MS - 1));
        assert!(asks(3, &[2, 3], 6000 + 2 * GRANT_MS));
        let five = Members::founders(["a:1", "b:1", "c:1", "d:1", "e:1"]);
        let mut turns = LeaveTurns::new(0);
        assert!(turns.grant(node(2), (&five, node(1)), &nodes(&[2, 3, 4]), 5000), "one may be away of five");
        assert!(!turns.grant(node(3), (&five, node(1)), &nodes(&[2, 3, 4, 5]), 5001), "one at a time");
        assert!(!LeaveTurns::new(0).grant(node(2), (&five, node(1)), &nodes(&[2, 3]), 5000));
        assert!(LeaveTurns::new(0).grant(node(9), (&five, node(1)), &[], 5000), "one without a vote");
    }
}
