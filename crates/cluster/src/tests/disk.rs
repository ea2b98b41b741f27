//! A disk that hangs: its replica gives up leadership, and keeps to its bounds.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::codec::{id, message};
use super::replica::StoredLog;
use crate::{Body, Config, Group, Index, Members, Message, NodeId, Role, Turn, Vote};

fn group(number: u64) -> Group<StoredLog> {
    let members = Members::first((1..=3).filter_map(NodeId::new));
    let node = NodeId::new(number).unwrap();
    let config =
        Config { node, members, seed: number, uncommitted_bytes_max: 1 << 20, cache_bytes_max: 1 << 10 };
    Group::open(&config, StoredLog::default(), Vote::default(), Index(0)).unwrap()
}

/// Three replicas on a perfect network; writes of `hung` never finish.
struct Three {
    groups: BTreeMap<u64, Group<StoredLog>>,
    hung: Option<u64>,
    committed: BTreeMap<u64, usize>,
}

impl Three {
    fn new() -> Three {
        let groups = (1..=3).map(|number| (number, group(number))).collect();
        Three { groups, hung: None, committed: BTreeMap::new() }
    }

    fn leader(&self) -> Option<u64> {
        let mut leaders = self.groups.iter().filter(|(_, group)| group.status().role == Role::Leader);
        leaders.next().map(|(number, _)| *number)
    }

    fn tick(&mut self) {
        self.groups.values_mut().for_each(Group::tick);
        loop {
            let mut sent: Vec<Message> = Vec::new();
            for (number, group) in &mut self.groups {
                while let Some(mut actions) = group.actions().unwrap() {
                    sent.append(&mut actions.messages);
                    *self.committed.entry(*number).or_default() += actions.committed.len();
                    if self.hung != Some(*number) && actions.turn != Turn(0) {
                        group.log_mut().write(&actions.append);
                        group.persisted(actions.turn);
                    }
                }
            }
            if sent.is_empty() {
                return;
            }
            for message in sent {
                self.groups.get_mut(&message.to.get()).unwrap().receive(message).unwrap();
            }
        }
    }
}

#[test]
fn a_leader_whose_disk_hangs_hands_over() {
    let mut three = Three::new();
    (0..60).for_each(|_| three.tick());
    let first = three.leader().unwrap();
    three.hung = Some(first);
    let proposed = three.groups.get_mut(&first).unwrap().propose(Bytes::from_static(b"batch")).unwrap();
    let ticks = (1..60).find(|_| {
        three.tick();
        three.leader().is_some_and(|leader| leader != first)
    });
    assert!(ticks.is_some_and(|ticks| (20..30).contains(&ticks)), "after {ticks:?} ticks");
    let second = three.leader().unwrap();
    (0..3).for_each(|_| three.tick());
    let status = three.groups[&second].status();
    assert!(status.committed > proposed.index, "the batch and the opening of the new leader: {status:?}");
    assert_eq!(three.committed[&second] as u64, status.committed.0);
}

#[test]
fn a_disk_that_never_finishes_has_a_bounded_queue() {
    let mut follower = group(2);
    let mut turns = 0;
    for number in 1..5000 {
        let body = Body::Append { previous: id(0, 0), commit: Index(0), entries: Vec::new() };
        follower.receive(Message { body, ..message(Body::TimeoutNow) }).unwrap();
        while let Some(actions) = follower.actions().unwrap() {
            turns += u64::from(actions.turn != Turn(0));
            assert!(actions.messages.is_empty(), "message {number}: nothing is promised");
        }
    }
    assert_eq!(turns, 1024);
}
