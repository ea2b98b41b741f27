//! The end and the begin of leadership: answers, and the remaining state. See `bench` for the
//! words.

mod bench;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_model::{ConnectionId, Destination, Event, LeaseEvent, PartitionId, Reserve, Take, Ticket};
use postroad_routing::{AtLimit, DestinationPattern, Limit, Policies, Policy};

const NOT_LEADER: &str = "no: this node is not the leader any more; nothing was done: connect again";
const UNKNOWN: &str =
    "no: the leader changed before the request was confirmed; it may or may not have been carried out";

fn limited() -> Settings {
    let limit = Limit { messages_max: Some(1), action: AtLimit::Block, ..Limit::default() };
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://l").expect("a sound pattern"), policy);
    Settings { policies: Arc::new(policies), ..settings(1) }
}

#[test]
fn each_request_that_waits_is_answered() {
    for (case, before, held_back, want) in [
        ("nothing waits", "send 1 a m", "", "1 evicted"),
        ("a send on its way to the log", "", "send 1 a m", &format!("{UNKNOWN} 1 evicted")),
        (
            "a settlement",
            "send 1 a m\nattach 2.1 a 1",
            "accept 2.1 m",
            &format!("{UNKNOWN} 1 evicted 2 evicted"),
        ),
        ("a send at a limit", "send 1 l m\nsend 1 l n", "", &format!("{NOT_LEADER} 1 evicted")),
        ("a reader whose queue is being made", "", "attach 1.1 a 1", NOT_LEADER),
        ("a claim", "claim 1 x h\nclaim 2 x h", "", &format!("{NOT_LEADER} 1 evicted 2 evicted")),
        ("a commit here", "send 1 a m tx=1", "commit 1 1", &format!("{UNKNOWN} 1 evicted")),
        ("an echo", "", "send 1 a m\necho 1", &format!("{UNKNOWN} {NOT_LEADER} 1 evicted")),
        ("the end of a queue", "send 1 a m", "unmake 1 a", &format!("{UNKNOWN} 1 evicted")),
        ("the end of jobs", "send 1 a m at=9", "cancel 1 m", &format!("{UNKNOWN} 1 evicted")),
    ] {
        let mut bench = Bench::new(limited());
        bench.run(before);
        bench.late_from_now_on();
        bench.run(held_back);
        let said = bench.stop();
        assert_eq!(said, want, "case: {case}");
    }
}

#[test]
fn a_reserve_that_waits_is_answered() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m");
    let wait = Reserve {
        connection: ConnectionId::new(0, 7),
        ticket: Ticket(3),
        queue: Destination::queue("a"),
        messages_max: 2,
        selector: "FALSE".into(),
        wait_ms: 1000,
        take: Take::Lease { lasts_ms: 1000 },
    };
    assert_eq!(bench.lease(LeaseEvent::Reserve(wait)), "");
    assert_eq!(bench.stop(), format!("{NOT_LEADER} 1 evicted 7 evicted"));
}

#[test]
fn a_replica_refuses_events_and_applies_records() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m");
    bench.late_from_now_on();
    bench.run("send 1 a n\nsend 1 a o");
    assert_eq!(bench.stop(), format!("{UNKNOWN} {UNKNOWN} 1 evicted"));
    assert_eq!(bench.run("send 2 a p\nattach 2.1 a 9"), format!("{NOT_LEADER} {NOT_LEADER}"));
    bench.keep_late(1);
    assert_eq!(bench.run(""), "", "no request waits for it here");
    assert_eq!(bench.lead(), "");
    assert_eq!(bench.run("attach 3.1 a 9"), "ok 3.1<m 3.1<n");
}

/// Two queues that live in different partitions.
fn far_queues(bench: &Bench) -> (String, String) {
    let home = |name: &String| bench.settings.placement.partition_of(name);
    let names = || (0..20).map(|number| format!("q{number}"));
    let first = names().find(|name| home(name) == PartitionId(0));
    let other = names().find(|name| home(name) == PartitionId(1));
    (first.expect("a name of each"), other.expect("a name of each"))
}

#[test]
fn an_undecided_transaction_is_undone_and_a_decided_one_is_carried_out() {
    // The record of the decision follows those of both shares.
    for (case, records, is_decided) in [
        ("nothing got into the log", 0_usize, false),
        ("one share is prepared", 1, false),
        ("both are prepared", 2, false),
        ("the decision got into the log", 3, true),
    ] {
        let mut bench = Bench::new(settings(2));
        let (a, b) = far_queues(&bench);
        bench.run(&format!("send 1 {a} m tx=1\nsend 1 {b} n tx=1"));
        bench.late_from_now_on();
        bench.run("commit 1 1");
        (0..records.min(2)).for_each(|_| bench.first_durable());
        assert_eq!(bench.stop(), format!("{UNKNOWN} 1 evicted 1 evicted"), "case: {case}");
        bench.keep_late(records.saturating_sub(2));
        bench.lead();
        let want = if is_decided { "ok 3.1<m ok 3.2<n" } else { "ok ok" };
        assert_eq!(bench.run(&format!("attach 3.1 {a} 9\nattach 3.2 {b} 9")), want, "case: {case}");
        assert_eq!(bench.run(&format!("send 4 {a} o\nsend 4 {b} p")), "3.1<o ok 3.2<p ok", "case: {case}");
    }
}

#[test]
fn a_subscription_that_skips_its_own_client_still_does() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 #t 9 sub=s nolocal\nclose 1");
    bench.stop();
    bench.lead();
    bench.run("send 1 #t own\nsend 2 #t other");
    assert_eq!(bench.run("attach 1.2 #t 9 sub=s nolocal"), "ok 1.2<other");
}

/// Chance from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The promises to clients, by message.
#[derive(Default)]
struct Oracle {
    /// The queue of each message that was sent.
    sent: BTreeMap<u64, &'static str>,
    /// Confirmed sends whose acknowledgement is not confirmed.
    owed: BTreeSet<u64>,
    /// Sends and acknowledgements whose outcome is unknown.
    unknown: BTreeSet<u64>,
    /// Acknowledgements that were confirmed.
    gone: BTreeSet<u64>,
    /// Messages in the hands of each consumer.
    held: BTreeMap<String, Vec<u64>>,
}

impl Oracle {
    fn hear(&mut self, said: &str, seed: u64) {
        for (consumer, body) in said.split(' ').filter_map(|word| word.split_once('<')) {
            let digits: String = body[1..].chars().take_while(char::is_ascii_digit).collect();
            let message = digits.parse().expect("a name of this test");
            assert!(!self.gone.contains(&message), "seed {seed}: {message} was acknowledged");
            self.held.entry(consumer.to_owned()).or_default().push(message);
        }
    }
}

const QUEUES: [&str; 3] = ["a", "b", "c"];

fn run_seed(seed: u64) {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut bench = Bench::new(settings(1 + (seed % 2) as u16));
    let (mut oracle, mut term, mut next) = (Oracle::default(), 1, 0);
    let mut held_back: Vec<(u64, bool)> = Vec::new();
    let mut is_late = false;
    for _ in 0..60 {
        match chance.below(12) {
            0..5 => {
                next += 1;
                let queue = QUEUES[chance.below(3) as usize];
                oracle.sent.insert(next, queue);
                let group = if next % 4 == 0 { " group=g" } else { "" };
                let said = bench.run(&format!("send {term} {queue} m{next}{group}"));
                match is_late {
                    true => held_back.push((next, true)),
                    false => drop(oracle.owed.insert(next)),
                }
                assert!(is_late != said.contains("ok"), "seed {seed}: {said}");
                oracle.hear(&said, seed);
            }
            5..7 if !is_late => {
                let place = chance.below(3) as usize;
                let consumer = format!("{term}.{}", place + 1);
                if !oracle.held.contains_key(&consumer) {
                    oracle.held.insert(consumer.clone(), Vec::new());
                    let said =
                        bench.run(&format!("attach {consumer} {} {}", QUEUES[place], 1 + chance.below(5)));
                    oracle.hear(&said, seed);
                }
            }
            7..10 => {
                let holders = oracle.held.iter_mut().filter(|(_, held)| !held.is_empty());
                let holders: Vec<_> = holders.collect();
                if holders.is_empty() {
                    continue;
                }
                let count = holders.len() as u64;
                let Some((consumer, held)) = holders.into_iter().nth(chance.below(count) as usize) else {
                    continue;
                };
                let message = held.remove(0);
                let line = format!("accept {consumer} m{message}\ncredit {consumer} 1");
                match is_late {
                    true => held_back.push((message, false)),
                    false => {
                        oracle.owed.remove(&message);
                        oracle.gone.insert(message);
                    }
                }
                let said = bench.run(&line);
                oracle.hear(&said, seed);
            }
            10 if !is_late => {
                bench.late_from_now_on();
                is_late = true;
            }
            11 => {
                let said = bench.stop();
                assert_eq!(said.matches(UNKNOWN).count(), held_back.len(), "seed {seed}: {said}");
                bench.keep_late(chance.below(held_back.len() as u64 + 1) as usize);
                for (message, _) in held_back.drain(..) {
                    oracle.owed.remove(&message);
                    oracle.unknown.insert(message);
                }
                for id in 0..bench.partitions.len() {
                    let replica = bench.replica(id as u16);
                    assert!(
                        replica.snapshot_pieces() == bench.partitions[id].snapshot_pieces(),
                        "seed {seed}: partition {id} differs from a replica"
                    );
                }
                bench.lead();
                oracle.held.clear();
                is_late = false;
                term += 1;
            }
            _ => {}
        }
    }
    if is_late {
        bench.all_durable();
        for (message, is_send) in held_back.drain(..) {
            match is_send {
                true => drop(oracle.owed.insert(message)),
                false => {
                    oracle.owed.remove(&message);
                    oracle.gone.insert(message);
                }
            }
        }
    }
    check_end(&mut bench, oracle, seed);
}

/// All that is owed is there, once and in order, and nothing else.
fn check_end(bench: &mut Bench, mut oracle: Oracle, seed: u64) {
    bench.stop();
    bench.lead();
    oracle.held.clear();
    for (place, queue) in QUEUES.iter().enumerate() {
        let consumer = format!("99.{}", place + 1);
        let said = bench.run(&format!("attach {consumer} {queue} 1000"));
        oracle.hear(&said, seed);
        let got = oracle.held.remove(&consumer).unwrap_or_default();
        assert!(got.is_sorted_by(|one, other| one < other), "seed {seed}: {got:?} of {queue}");
        for message in &got {
            assert_eq!(oracle.sent[message], *queue, "seed {seed}");
            let may = oracle.owed.remove(message) || oracle.unknown.contains(message);
            assert!(may, "seed {seed}: {message} came from nowhere");
        }
    }
    assert!(oracle.owed.is_empty(), "seed {seed}: lost {:?}", oracle.owed);
    for partition in &bench.partitions {
        assert_eq!(partition.miscounted(), None, "seed {seed}");
    }
}

#[test]
fn no_promise_is_broken_when_leadership_ends_and_begins_at_any_time() {
    (1..=400).for_each(run_seed);
}

#[test]
fn a_deposed_coordinator_sends_no_decision() {
    let mut bench = Bench::new(settings(2));
    let (a, b) = far_queues(&bench);
    bench.run(&format!("send 1 {a} m tx=1\nsend 1 {b} n tx=1"));
    bench.late_from_now_on();
    bench.run("commit 1 1");
    let mut effects = Vec::new();
    bench.first_durable();
    bench.first_durable();
    for partition in &mut bench.partitions {
        partition.stop(&mut effects).expect("nothing is spilled");
        let in_doubt = postroad_model::Peer::InDoubt {
            id: postroad_model::TransactionId { coordinator: PartitionId(0), incarnation: 1, number: 0 },
        };
        partition.soft(Event::Peer { from: PartitionId(1), peer: in_doubt }, &mut effects);
    }
    let decisions = effects.iter().filter(|effect| {
        matches!(effect, postroad_model::Effect::Tell { peer: postroad_model::Peer::Decided { .. }, .. })
    });
    assert_eq!(decisions.count(), 0);
}
