//! Why a member that is to go is still there, or a learner has no vote yet, in words for operators.
//!
//! Never here: which of them it is (`steward`).

use postroad_cluster::NodeId;

/// Why the leader does not take the next step about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It leads, and another node that could lead takes over once clients have finished.
    HandsOver,
    /// It leads, and no other node could: the one that is closest to it, if there is any.
    NoHeir(Option<(NodeId, Lack)>),
    /// The other stores of which it is a member still.
    Elsewhere(Vec<u16>),
    /// The others would be no majority.
    NoMajority(Votes),
    /// It is replaced by this node, which is not ready.
    Replaced(NodeId, Lack),
    /// It learns.
    Learns(Lack),
}

/// Why a node cannot lead or vote, the smallest lack first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Entries of the log: how many, and with how many it would be ready.
    Entries(u64, u64),
    /// All of the log.
    Copy,
    /// A whole store.
    WholeStore,
    /// A connection.
    Connection,
}

/// The votes of a group once a node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Votes {
    /// Those of the leader and of the nodes that it reaches.
    pub reached: usize,
    /// All of them.
    pub all: usize,
    /// Those without which nothing is committed.
    pub needed: usize,
}

impl Votes {
    /// Whether writes are committed.
    pub fn suffice(&self) -> bool {
        self.needed <= self.reached
    }
}

impl Wait {
    /// In words about the member, which is called "it".
    pub fn text(&self, name: impl Fn(NodeId) -> String) -> String {
        match self {
            Wait::HandsOver => "it leads, and hands over once clients have finished".to_owned(),
            Wait::NoHeir(None) => "it leads, and no other node with a vote stays".to_owned(),
            Wait::NoHeir(Some((_, Lack::Connection))) => {
                "it leads, and no node is reached that could lead in its place".to_owned()
            }
            Wait::NoHeir(Some((node, lack))) => {
                format!("it leads, and no other node can lead yet: {} {}", name(*node), lack.text())
            }
            Wait::Elsewhere(stores) => {
                let numbers: Vec<String> = stores.iter().map(u16::to_string).collect();
                let stores = if numbers.len() == 1 { "store" } else { "stores" };
                format!("it is still a member of {stores} {}", numbers.join(", "))
            }
            Wait::NoMajority(Votes { reached, all, needed }) => {
                format!("without it {reached} of {all} votes reached, {needed} needed")
            }
            Wait::Replaced(node, lack) => format!("{}, which replaces it, {}", name(*node), lack.text()),
            Wait::Learns(lack) => format!("it {}, and has no vote until then", lack.text()),
        }
    }
}

impl Lack {
    fn text(self) -> String {
        match self {
            Lack::Entries(lag, at_most) => format!("lags by {lag} entries, and is ready at {at_most}"),
            Lack::Copy => "needs a copy of the store".to_owned(),
            Lack::WholeStore => "has a damaged store".to_owned(),
            Lack::Connection => "is not reached".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_said_with_names_and_figures() {
        let node = |number| NodeId::new(number).unwrap();
        for (wait, want) in [
            (Wait::HandsOver, "it leads, and hands over once clients have finished"),
            (Wait::NoHeir(None), "it leads, and no other node with a vote stays"),
            (
                Wait::NoHeir(Some((node(2), Lack::Connection))),
                "it leads, and no node is reached that could lead in its place",
            ),
            (
                Wait::NoHeir(Some((node(2), Lack::Entries(512, 100)))),
                "it leads, and no other node can lead yet: n2 lags by 512 entries, and is ready at 100",
            ),
            (
                Wait::NoHeir(Some((node(3), Lack::WholeStore))),
                "it leads, and no other node can lead yet: n3 has a damaged store",
            ),
            (Wait::Elsewhere(vec![2]), "it is still a member of store 2"),
            (Wait::Elsewhere(vec![2, 3]), "it is still a member of stores 2, 3"),
            (
                Wait::NoMajority(Votes { reached: 1, all: 2, needed: 2 }),
                "without it 1 of 2 votes reached, 2 needed",
            ),
            (Wait::Replaced(node(4), Lack::Connection), "n4, which replaces it, is not reached"),
            (Wait::Learns(Lack::Copy), "it needs a copy of the store, and has no vote until then"),
        ] {
            assert_eq!(wait.text(|node| format!("n{}", node.get())), want);
        }
    }
}
