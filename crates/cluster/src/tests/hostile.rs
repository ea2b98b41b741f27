//! A peer that sends anything a message can say: the replica refuses or takes it, and never panics.

use bytes::Bytes;

use super::codec::{bodies, id, message};
use super::random::Random;
use super::replica::StoredLog;
use crate::{
    Body, Config, Entry, EntryKind, Group, GroupError, Index, Members, Message, NodeId, ProposeError,
    Refused, Role, Term, Vote,
};

fn node(number: u64) -> NodeId {
    NodeId::new(number).unwrap()
}

fn config() -> Config {
    Config {
        node: node(2),
        members: Members { highest: 9, ..Members::first([1, 2, 3].map(node)) },
        seed: 1,
        uncommitted_bytes_max: 1 << 20,
        cache_bytes_max: 0,
    }
}

fn batch(index: u64, term: u64) -> Entry {
    Entry { id: id(index, term), kind: EntryKind::Batch, payload: Bytes::from_static(b"batch") }
}

fn follower() -> Group<StoredLog> {
    let log =
        StoredLog { floor: id(2, 1), entries: vec![batch(3, 1), batch(4, 2), batch(5, 4)], rotten: None };
    Group::open(&config(), log, Vote { term: Term(4), voted_for: None }, Index(3)).unwrap()
}

/// Carries everything out at once.
fn settle(group: &mut Group<StoredLog>) -> Vec<Message> {
    let mut sent = Vec::new();
    while let Some(mut actions) = group.actions().unwrap() {
        if let Some(last) = actions.restarted {
            *group.log_mut() = StoredLog { floor: last, ..StoredLog::default() };
        }
        group.log_mut().write(&actions.append);
        sent.append(&mut actions.messages);
        group.persisted(actions.turn);
    }
    sent
}

fn leader() -> Group<StoredLog> {
    let mut group = follower();
    while group.status().role != Role::Leader {
        group.tick();
        for Message { from, to, term, body } in settle(&mut group) {
            if let Body::VoteRequest { pre, .. } = body {
                let reply = Body::VoteReply { pre, granted: true, commit: id(0, 0) };
                group.receive(Message { from: to, to: from, term, body: reply }).unwrap();
            }
        }
    }
    settle(&mut group);
    group
}

fn any_number(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => (1 << 62) - random.below(3),
        1 => random.below(1 << 40),
        _ => random.below(12),
    }
}

fn any_body(random: &mut Random, term: u64) -> Body {
    let any_id = |random: &mut Random| id(any_number(random), any_number(random).min(term));
    let (first, second) = (any_id(random), any_id(random));
    let (index, commit) = (Index(any_number(random)), Index(any_number(random)));
    match random.below(9) {
        0 => Body::VoteRequest {
            pre: random.one_in(2),
            transfer: random.one_in(2),
            last: first,
            commit: second,
        },
        1 => Body::VoteReply { pre: random.one_in(2), granted: random.one_in(2), commit: first },
        2 | 3 => {
            let count = random.below(4);
            let entry = |place: u64| batch(first.index.0 + 1 + place, first.term.0.max(term.min(place + 3)));
            Body::Append { previous: first, commit, entries: (0..count).map(entry).collect() }
        }
        4 => Body::Accepted { index, commit },
        5 => Body::Rejected { index, hint: first, commit },
        6 => Body::Heartbeat { commit },
        7 => Body::HeartbeatReply { commit },
        _ => Body::SnapshotOffer { last: first },
    }
}

#[test]
fn whatever_a_peer_says_the_replica_goes_on() {
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let mut group = if random.one_in(2) { leader() } else { follower() };
        for _ in 0..20 {
            let term = if random.one_in(3) { any_number(&mut random) } else { group.status().term.0 };
            let body = if random.one_in(20) { Body::TimeoutNow } else { any_body(&mut random, term) };
            let from = node(1 + random.below(4));
            let _ = group.receive(Message { from, to: node(2), term: Term(term), body });
            if let Some(offer) = group.snapshot_offer() {
                group.install_snapshot(offer, config().members);
            }
            (0..random.below(30)).for_each(|_| group.tick());
            let _ = group.propose(Bytes::from_static(b"more"));
            settle(&mut group);
        }
    }
}

#[test]
fn a_message_that_no_correct_peer_sends_is_refused() {
    let sent = |from, to, term, body| Message { from: node(from), to: node(to), term: Term(term), body };
    let heartbeat = |commit| Body::Heartbeat { commit: Index(commit) };
    let cases = [
        ("for another node", false, sent(1, 3, 5, Body::TimeoutNow), Refused::Stranger { from: node(1) }),
        (
            "from one that was removed",
            false,
            sent(9, 2, 5, Body::TimeoutNow),
            Refused::Stranger { from: node(9) },
        ),
        ("from itself", false, sent(2, 2, 5, Body::TimeoutNow), Refused::Stranger { from: node(2) }),
        ("without a term", false, sent(1, 2, 0, Body::TimeoutNow), Refused::NoTerm),
        (
            "an entry without a term",
            false,
            sent(1, 2, 5, Body::Append { previous: id(9, 0), commit: Index(0), entries: Vec::new() }),
            Refused::NoEntry(id(9, 0)),
        ),
        (
            "stored here and missing",
            false,
            sent(1, 2, 5, heartbeat(6)),
            Refused::LostEntries { stored: Index(6), last: Index(5) },
        ),
        (
            "never sent",
            true,
            sent(1, 2, 5, Body::Accepted { index: Index(7), commit: Index(0) }),
            Refused::NeverSent { claimed: Index(7), last: Index(6) },
        ),
        (
            "a second leader",
            true,
            sent(3, 2, 5, heartbeat(0)),
            Refused::SecondLeader { from: node(3), term: Term(5) },
        ),
    ];
    for (name, leads, message, refused) in cases {
        let mut group = if leads { leader() } else { follower() };
        let before = group.status();
        assert_eq!(group.receive(message), Err(refused), "case: {name}");
        assert_eq!(group.status(), before, "case: {name}");
    }
}

#[test]
fn every_kind_of_message_is_taken() {
    for body in bodies() {
        let mut group = follower();
        let _ = group.receive(message(body));
        settle(&mut group);
    }
}

#[test]
fn a_store_that_does_not_fit_together_does_not_start() {
    let log = || StoredLog { floor: id(2, 1), entries: vec![batch(3, 1), batch(4, 2)], rotten: None };
    let vote = |term| Vote { term: Term(term), voted_for: None };
    let open =
        |config: &Config, term, applied| Group::open(config, log(), vote(term), Index(applied)).map(|_| ());
    let wrong = |term, applied| {
        let (floor, last) = (Index(2), Index(4));
        Err(GroupError::Inconsistent { floor, last, applied: Index(applied), term: Term(term) })
    };
    let outside = Config { members: Members::first([node(1)]), ..config() };
    let nobody = Config { members: Members::default(), ..config() };
    for (name, found, want) in [
        ("as it should be", open(&config(), 2, 3), Ok(())),
        ("the state is behind the log", open(&config(), 2, 1), wrong(2, 1)),
        ("the state is ahead of the log", open(&config(), 2, 5), wrong(2, 5)),
        ("the vote is older than the log", open(&config(), 1, 3), wrong(1, 3)),
        ("not a member, or not yet", open(&outside, 2, 3), Ok(())),
        ("nobody votes", open(&nobody, 2, 3), Err(GroupError::Members)),
    ] {
        assert_eq!(found, want, "case: {name}");
    }
}

#[test]
fn proposals_have_bounds() {
    let batch = |bytes: usize| Bytes::from(vec![1; bytes]);
    let mut group = follower();
    assert_eq!(group.propose(batch(1)), Err(ProposeError::NotLeader { leader: None }));
    let mut group = leader();
    assert_eq!(group.propose(batch(0)), Err(ProposeError::Size(0)));
    assert_eq!(group.propose(batch((32 << 20) + 1)), Err(ProposeError::Size((32 << 20) + 1)));
    let taken = (0..100).take_while(|_| group.propose(batch(100 << 10)).is_ok()).count();
    assert_eq!((taken, group.propose(batch(100 << 10))), (10, Err(ProposeError::Full)));
    group.transfer_leadership(node(3));
    assert_eq!(group.propose(batch(1)), Err(ProposeError::Transferring));
}
