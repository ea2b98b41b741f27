//! A queue moves from one partition to another while it is in use: nothing is lost, nothing comes
//! twice, order is kept, and each way of ending the process in between is one of these.

mod bench;

use std::collections::BTreeMap;
use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_model::{Command, Destination, PartitionId, TransactionId};
use postroad_routing::{AtLimit, DeadLetters, DestinationPattern, Limit, Policies, Policy, Redelivery};

/// A broker with a second store, whose partition nothing hashes to.
fn two_stores() -> Bench {
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    Bench::new(settings)
}

/// All that the queue holds, as a new consumer gets it.
fn read(bench: &mut Bench, queue: &str) -> String {
    bench.run(&format!("attach 9.9 {queue} 99"))
}

fn check(cases: &[(&str, &str, &str)]) {
    for (case, script, want) in cases {
        assert_eq!(two_stores().run(script), *want, "case: {case}");
    }
}

#[test]
fn a_queue_moves_with_all_that_it_holds() {
    check(&[
        (
            "in order",
            "send 1 a m
             send 1 a n
             move 1 a to=1
             time 20
             time 40
             moves 1
             send 1 a o
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok 1.1<m 1.1<n 1.1<o",
        ),
        (
            "an empty one",
            "make 1 a
             move 1 a to=1
             time 20
             time 40
             send 1 a m
             attach 1.1 a 9",
            "ok ok ok ok 1.1<m",
        ),
        (
            "priorities, and what is in memory alone",
            "send 1 a low priority=1
             send 1 a m volatile
             send 1 a n
             send 1 a o volatile
             send 1 a high priority=8
             move 1 a to=1
             time 20
             time 40
             time 60
             send 1 a p
             send 1 a higher priority=9
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok ok ok 1.1<higher 1.1<high 1.1<m 1.1<n 1.1<o 1.1<p 1.1<low",
        ),
        (
            "there and back",
            "send 1 a m
             move 1 a to=1
             time 20
             time 40
             send 1 a n
             move 1 a to=0
             time 60
             time 80
             moves 1
             send 1 a o
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok ok 1.1<m 1.1<n 1.1<o",
        ),
    ]);
}

#[test]
fn consumers_follow_with_their_credit_once_they_hold_nothing() {
    check(&[
        (
            "idle ones",
            "attach 1.1 a 2
             move 1 a to=1
             time 20
             time 40
             send 1 a m
             send 1 a n
             send 1 a o
             accept 1.1 m n
             credit 1.1 1",
            "ok ok 1.1<m ok 1.1<n ok ok ok 1.1<o",
        ),
        (
            "what they hold goes first, whoever gets it then",
            "attach 1.1 a 2
             send 1 a m
             send 1 a n
             send 1 a o
             move 1 a to=1
             time 20
             send 1 a p
             attach 2.1 a 9
             moves 1
             fail 1.1 n
             accept 1.1 m
             credit 1.1 9
             time 40
             time 60
             time 80",
            "ok 1.1<m ok 1.1<n ok ok ok ok ok a to 1: 0 moved, 3 left, 2 held ok ok ok ok 2.1<n!1 2.1<o 2.1<p",
        ),
        (
            "what a transaction has settled is settled by it",
            "send 1 a m
             send 1 a n
             attach 1.1 a 1
             accept 1.1 m tx=1
             move 1 a to=1
             time 20
             moves 1
             commit 1 1
             credit 1.1 9
             time 40
             time 60",
            "ok ok ok 1.1<m ok ok a to 1: 0 moved, 2 left, 1 held ok ok ok 1.1<n",
        ),
        (
            "or comes again",
            "send 1 a m
             send 1 a n
             attach 1.1 a 1
             accept 1.1 m tx=1
             move 1 a to=1
             time 20
             rollback 1 1
             close 1
             time 40
             time 60
             attach 2.1 a 9",
            "ok ok ok 1.1<m ok ok ok ok 2.1<m!1 2.1<n",
        ),
        (
            "a group has one consumer at a time",
            "attach 1.1 a 9
             attach 2.1 a 9
             send 3 a g1 group=g
             send 3 a h1 group=h
             move 3 a to=1
             time 20
             send 3 a g2 group=g
             send 3 a h2 group=h
             accept 1.1 g1
             time 40
             accept 2.1 h1
             time 60
             time 80",
            "ok ok 1.1<g1* ok 2.1<h1* ok ok ok ok ok ok 1.1<g2* 1.1<h2*",
        ),
        (
            "an exclusive one stays alone",
            "attach 1.1 a 9 exclusive
             attach 2.1 a 9 exclusive
             send 3 a m
             move 3 a to=1
             send 3 a n
             time 20
             accept 1.1 m
             time 40
             time 60
             send 3 a o",
            "ok ok 1.1<m ok ok ok ok 1.1<n 1.1<o ok",
        ),
    ]);
}

#[test]
fn what_is_open_when_it_moves_is_waited_for() {
    check(&[
        (
            "a transaction that has sent here",
            "send 1 a m tx=1
             make 1 a
             move 1 a to=1
             send 1 a n
             time 20
             moves 1
             attach 1.1 a 9
             commit 1 1
             time 40
             time 60",
            "ok ok ok ok a to 1: 0 moved, 0 left, 1 open ok ok ok ok 1.1<m 1.1<n",
        ),
        (
            "one that goes on sending where it lives now",
            "make 1 a
             send 1 a m tx=1
             move 1 a to=1
             send 1 a n tx=1
             send 1 a o
             commit 1 1
             time 20
             time 40
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok 1.1<m 1.1<o 1.1<n",
        ),
        (
            "a prepared branch",
            "make 1 a
             send 1 a m tx=1
             end 1 1 x
             prepare 1 x
             move 1 a to=1
             send 1 a n
             time 20
             moves 1
             decide 1 x commit
             time 40
             time 60
             attach 1.1 a 9",
            "ok ok ok ok ok ok a to 1: 0 moved, 0 left, 1 open ok ok 1/1 done ok ok 1.1<m 1.1<n",
        ),
    ]);
}

#[test]
fn large_messages_that_began_to_come_are_waited_for_and_go_along() {
    check(&[
        (
            "in their place",
            "make 1 a
             send 1 a m
             piece 1 7 a abc
             move 1 a to=1
             time 20
             moves 1
             piece 1 7 a def
             send 1 a n upload=7
             send 1 a o
             time 40
             time 60
             moves 1
             attach 1.1 a 9",
            "ok ok ok ok a to 1: 1 moved, 0 left, 1 coming ok ok ok ok ok ok ok ok 1.1<m 1.1<n+abcdef 1.1<o",
        ),
        (
            "in a transaction",
            "make 1 a
             piece 1 7 a abc
             move 1 a to=1
             send 1 a m
             send 1 a n upload=7 tx=1
             time 20
             commit 1 1
             time 40
             time 60
             moves 1
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok ok ok 1.1<n+abc 1.1<m",
        ),
        (
            "until it is clear that nothing comes",
            "make 1 a
             piece 1 7 a abc
             move 1 a to=1
             send 2 a m
             time 20
             moves 1
             close 1
             time 40
             time 60
             moves 2
             attach 2.1 a 9",
            "ok ok ok ok a to 1: 0 moved, 0 left, 1 coming ok ok ok ok ok 2.1<m",
        ),
    ]);
}

#[test]
fn scheduled_messages_go_after_their_queue() {
    check(&[(
        "when they are due",
        "make 1 a
         send 1 a due at=99
         move 1 a to=1
         time 20
         time 40
         moves 1
         send 1 a m
         attach 1.1 a 1
         time 99
         time 120
         time 140
         time 160
         moves 1
         credit 1.1 9",
        "ok ok ok ok ok ok ok 1.1<m ok ok 1.1<due",
    )]);
}

#[test]
fn what_a_job_sends_while_its_queue_ends_goes_after_it() {
    for (case, rounds) in [("while the log comes round", 1), ("behind the end", 2)] {
        let mut bench = two_stores();
        assert_eq!(bench.run("make 1 a\nsend 1 a due at=50\nmove 1 a to=1"), "ok ok ok", "case: {case}");
        bench.late_from_now_on();
        bench.run("time 20");
        (0..rounds).for_each(|_| bench.first_durable());
        bench.run("time 50");
        bench.first_durable();
        bench.all_durable();
        let times = (60..200).step_by(10).map(|time| format!("time {time}\n")).collect::<String>();
        assert_eq!(bench.run(&times), "", "case: {case}");
        assert_eq!(bench.run("moves 1\nattach 9.9 a 9"), "ok ok ok 9.9<due", "case: {case}");
        bench.restart();
        assert_eq!(read(&mut bench, "a"), "ok 9.9<due", "case: {case}");
    }
}

#[test]
fn what_a_job_sends_goes_after_a_queue_that_moves_on_meanwhile() {
    let mut bench = two_stores();
    let moved =
        bench.run("make 1 a\nsend 1 a due at=200\nmove 1 a to=1\ntime 20\ntime 40\nsend 1 a m\nmoves 1");
    assert_eq!(moved, "ok ok ok ok ok ok");
    bench.late_from_now_on();
    bench.run("time 200\nmove 1 a to=0");
    bench.all_durable();
    let times = (21..200).map(|time| format!("time {}\n", 10 * time)).collect::<String>();
    assert_eq!(bench.run(&times), "");
    assert_eq!(bench.run("moves 1\nattach 9.9 a 9"), "ok ok ok 9.9<due 9.9<m");
    bench.restart();
    assert_eq!(read(&mut bench, "a"), "ok 9.9<due 9.9<m");
}

#[test]
fn what_goes_stays_in_memory_until_it_has_gone() {
    let mut settings = Settings { resident_bytes_max: 0, page_entries: 1, ..settings(2) };
    settings.placement.hashed = 1;
    let mut bench = Bench::new(settings);
    for number in 0..9 {
        bench.run(&format!("send 1 a m{number} priority={number}"));
    }
    bench.run("move 1 a to=1");
    let times = (2..100).map(|time| format!("time {}\n", 10 * time)).collect::<String>();
    assert_eq!(bench.run(&times), "");
    assert_eq!(bench.run("moves 1"), "ok ok");
    let want: Vec<String> = (0..9).rev().map(|number| format!("9.9<m{number}")).collect();
    assert_eq!(read(&mut bench, "a"), format!("ok {}", want.join(" ")));
}

#[test]
fn what_waits_for_room_elsewhere_is_waited_for() {
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    let mut policies = Policies::with_dead_letters_in("dead");
    let limit = Limit { messages_max: Some(1), action: AtLimit::Block, wait_ms: 9000, ..Limit::default() };
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://full").expect("a pattern"), policy);
    settings.policies = Arc::new(policies);
    let mut bench = Bench::new(settings);
    let said = bench.run(
        "make 1 a
         send 1 full l
         send 1 full,a m
         move 1 a to=1
         time 20
         time 40
         time 60
         attach 2.1 full 1
         accept 2.1 l
         time 80
         time 100
         time 120
         moves 1",
    );
    assert_eq!(said, "ok ok ok ok 2.1<l ok ok ok ok");
    assert_eq!(read(&mut bench, "a"), "ok 9.9<m");
}

/// As `two_stores`; the queue `a` keeps last values, and rejected messages there rest for 500 ms.
fn with_last_values() -> Bench {
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    let mut policies = Policies::with_dead_letters_in("dead");
    let redelivery = Redelivery { count_max: 2, delay_ms: 500, ..Redelivery::default() };
    let policy = Policy { last_value: Some("k".into()), redelivery, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a pattern"), policy);
    settings.policies = Arc::new(policies);
    Bench::new(settings)
}

#[test]
fn the_last_value_is_the_last_that_was_sent() {
    for (case, script, want) in [
        (
            "where the queue is by now",
            "attach 1.1 a 1
             send 1 a held?k=0
             send 1 a m?k=1
             send 1 a n?k=2
             move 1 a to=1
             time 20
             send 1 a o?k=1
             accept 1.1 held?k=0
             time 40
             time 60
             credit 1.1 9",
            "ok 1.1<held?k=0 ok ok ok ok ok ok 1.1<n?k=2 1.1<o?k=1",
        ),
        (
            "whatever its priority, and though an older one rests",
            "attach 1.1 a 1
             send 1 a m?k=1
             send 1 a n?k=1 priority=9
             reject 1.1 m?k=1
             move 1 a to=1
             time 20
             time 40
             time 60
             credit 1.1 9",
            "ok 1.1<m?k=1 ok ok ok ok 1.1<n?k=1",
        ),
        (
            "though an older one rested when it came",
            "attach 1.1 a 1
             send 1 a m?k=1
             reject 1.1 m?k=1
             send 1 a n?k=1 priority=9
             move 1 a to=1
             time 20
             time 40
             time 60
             credit 1.1 9",
            "ok 1.1<m?k=1 ok ok ok ok 1.1<n?k=1",
        ),
    ] {
        assert_eq!(with_last_values().run(script), want, "case: {case}");
    }
}

#[test]
fn what_cannot_move_says_why() {
    let cannot = |queue: &str, why: &str| format!("no: queue://{queue} cannot be moved: {why}");
    let fed = "topic://VirtualTopic.x feeds it, and must be in the same store as its queues";
    for (case, script, want) in [
        ("none", "move 1 a to=1", cannot("a", "there is no such queue")),
        (
            "there already",
            "make 1 a
             move 1 a to=0",
            format!("ok {}", cannot("a", "it is already in that store")),
        ),
        (
            "on the move",
            "attach 1.1 a 1
             send 1 a m
             move 1 a to=1
             move 1 a to=0
             unmake 1 a",
            "ok 1.1<m ok ok no: queue://a is moving to another store; try again once it is there \
             no: queue://a is moving to another store; try again once it is there"
                .into(),
        ),
        (
            "fed by a topic",
            "attach 1.1 Consumer.A.VirtualTopic.x 9
             move 1 Consumer.A.VirtualTopic.x to=1",
            format!("ok {}", cannot("Consumer.A.VirtualTopic.x", fed)),
        ),
    ] {
        assert_eq!(two_stores().run(script), want, "case: {case}");
    }
}

const MESSAGES: usize = 300;

/// More than one step, with a transaction in between that is open when it begins, and sends that
/// come meanwhile.
fn moved() -> Bench {
    let mut bench = two_stores();
    for number in 0..MESSAGES {
        bench.run(&format!("send 1 a m{number}"));
    }
    bench.run(
        "send 2 a tx tx=1
         attach 1.1 a 1
         move 1 a to=1
         send 1 a late
         time 20
         fail 1.1 m0
         close 1
         commit 2 1
         time 40
         time 60",
    );
    bench
}

/// The contents of both logs, as far as they show the order of writing.
#[derive(Default)]
struct Written {
    declared: bool,
    sent_late: bool,
    rounds: usize,
    left: bool,
    /// Of each transaction: how often prepared, decided, committed and forgotten.
    steps: BTreeMap<TransactionId, [usize; 4]>,
}

fn written(logs: [&[bytes::Bytes]; 2]) -> Written {
    let mut written = Written::default();
    for (log, is_target) in logs.iter().zip([false, true]) {
        for record in *log {
            let mut note = |id, what: usize| written.steps.entry(id).or_default()[what] += 1;
            match postroad_core::decode_record(record).expect("a record") {
                Command::Prepare { id, .. } => note(id, 0),
                Command::Decide { id, .. } => note(id, 1),
                Command::Commit { id } => note(id, 2),
                Command::Forget { id } => note(id, 3),
                Command::Declare { .. } if is_target => written.declared = true,
                Command::Enqueue(_) if is_target => written.sent_late = true,
                Command::Leave { to: PartitionId(1), .. } => written.rounds += 1,
                Command::Delete { .. } => written.left = true,
                _ => {}
            }
        }
    }
    written
}

/// The event of a record comes behind its sync, and a step begins behind the one before it.
fn may_be(written: &Written, sent: usize) -> bool {
    let steps: Vec<_> = written.steps.values().collect();
    let is_done = |step: &[usize; 4]| step[2] == 2;
    sent == MESSAGES
        && (!written.declared || 0 < written.rounds)
        && (!written.sent_late || written.declared)
        && (steps.is_empty() || written.sent_late)
        && steps.iter().all(|[prepared, decided, committed, forgotten]| {
            (*decided == 0 || *prepared == 2)
                && (*committed == 0 || *decided == 1)
                && (*forgotten == 0 || *committed == 2)
        })
        && steps.iter().rev().skip(1).all(|step| is_done(step))
        && (written.rounds < 2 || steps.len() == 2 && steps.iter().all(|step| is_done(step)))
}

#[test]
fn a_move_goes_on_after_a_restart_at_any_moment() {
    let logs = moved().log;
    let mut tried = 0;
    for first in MESSAGES..=logs[0].len() {
        for second in 0..=logs[1].len() {
            let written = written([&logs[0][..first], &logs[1][..second]]);
            if written.rounds == 0 || !may_be(&written, MESSAGES) {
                continue;
            }
            tried += 1;
            let mut bench = moved();
            bench.restart_with(&[first, second]);
            if tried % 3 == 0 {
                bench.reload();
            }
            let mut times = 1..2000;
            while bench.run("moves 1") != "ok ok" {
                let time = times.next().expect("it ends");
                bench.run(&format!("time {}", 20 * time));
            }
            let transaction = written.rounds > 0 && logs[0][..first].len() > first_of_transaction(&logs[0]);
            let mut want: Vec<String> = (0..MESSAGES).map(|number| format!("9.9<m{number}")).collect();
            want.extend(transaction.then(|| "9.9<tx".to_owned()));
            want.extend(written.sent_late.then(|| "9.9<late".to_owned()));
            let got = bench.run("attach 9.9 a 9999").replace("m0!1", "m0");
            assert_eq!(got, format!("ok {}", want.join(" ")), "{first} and {second}");
            assert_eq!(bench.held(), format!("a:{}", want.len()), "{first} and {second}");
        }
    }
    assert!(12 <= tried, "{tried} of {} and {}", logs[0].len(), logs[1].len());
}

/// Where in the log the record of the client's own transaction is.
fn first_of_transaction(log: &[bytes::Bytes]) -> usize {
    let is = |record: &bytes::Bytes| matches!(postroad_core::decode_record(record), Ok(Command::Transact(changes)) if changes.sends.len() == 1);
    log.iter().position(is).expect("it was committed")
}

#[test]
fn a_store_that_refuses_is_tried_again() {
    let mut bench = two_stores();
    assert_eq!(bench.run("send 1 a m\nattach 1.1 a 1\nmove 1 a to=1\ntime 20"), "ok ok 1.1<m ok");
    bench.broken = Some(PartitionId(1));
    assert_eq!(bench.run("fail 1.1 m\nclose 1\ntime 40\nmoves 1"), "ok a to 1: 0 moved, 1 left ok ok");
    bench.broken = None;
    assert_eq!(bench.run("time 2000\ntime 2020\ntime 2040\nmoves 1"), "ok ok");
    assert_eq!(read(&mut bench, "a"), "ok 9.9<m!1");
}

/// It is unknown when a branch in doubt is decided: a move does not wait for its room.
#[test]
fn branches_in_doubt_stop_no_move() {
    // The branch holds its message, 320 bytes for it, and 512 of its own.
    let mut settings = Settings { open_bytes_max: 512 + 320 + 1, ..settings(2) };
    settings.placement.hashed = 1;
    let mut bench = Bench::new(settings);
    assert_eq!(bench.run("send 1 b x tx=1\nend 1 1 y\nprepare 1 y"), "ok ok ok");
    assert_eq!(bench.run("send 1 a m\nmove 1 a to=1\ntime 20\ntime 40\nmoves 1"), "ok ok ok ok");
    assert_eq!(read(&mut bench, "a"), "ok 9.9<m");
    assert_eq!(bench.run("decide 1 y commit"), "1/1 done ok");
}

/// The body that it waits for is of a message whose time is over by now.
#[test]
fn a_drain_is_answered_before_its_consumer_follows() {
    let dead_letters = DeadLetters { expired: false, ..DeadLetters::default() };
    let policies = Arc::new(Policies::new(Policy { dead_letters, ..Policy::default() }));
    let mut bench = Bench::new(Settings { resident_bytes_max: 0, policies, ..settings(2) });
    bench.run("make 1 a\nattach 2.1 a 0\nsend 1 a m until=50");
    bench.disk_hangs();
    assert_eq!(bench.run("credit 2.1 1\ndrain 2.1\ntime 60"), "");
    let there = 1 - bench.settings.placement.partition_of("a").0;
    assert_eq!(bench.run(&format!("move 9 a to={there}\ntime 70\ntime 80")), "ok 2.1 drained");
    assert_eq!(bench.disk_answers(), "");
    assert_eq!(bench.run("time 90\nsend 1 a n\ncredit 2.1 1"), "ok 2.1<n", "its credit has ended");
}

/// It was made where the queue lived first, and sends after it to where it lived then, just as it
/// goes on.
#[test]
fn what_a_job_sends_follows_a_queue_that_goes_on_at_that_moment() {
    let mut bench = Bench::new(settings(3));
    let first = bench.settings.placement.partition_of("a").0;
    let [second, third] = [1, 2].map(|further| (first + further) % 3);
    bench.run("make 1 a\nattach 9.9 a 9\nsend 1 a due at=1000");
    bench.run(&format!("move 1 a to={second}\ntime 10\ntime 20\ntime 30"));
    assert_eq!(bench.run("moves 1"), "ok ok ok", "it has moved");
    bench.late_from_now_on();
    bench.run(&format!("move 1 a to={third}"));
    bench.first_durable();
    bench.run("time 1000");
    bench.all_durable();
    let times = (101..300).map(|time| format!("time {}\n", 10 * time)).collect::<String>();
    assert_eq!(bench.run(&times), "9.9<due");
    assert_eq!(bench.run("moves 1\nsend 1 a m"), "ok ok ok 9.9<m ok");
    assert_eq!(
        bench.settings.addressing.partition_of(bench.settings.placement, &Destination::queue("a")).0,
        third
    );
}

/// It goes on while a job's message for it waits to be let in: the log says where it was then, and
/// nowhere where it is.
#[test]
fn a_queue_that_has_gone_on_is_found_where_it_is_after_a_restart_at_any_moment() {
    for steps in 0..40 {
        let mut bench = Bench::new(settings(3));
        let first = bench.settings.placement.partition_of("a").0;
        let [second, third] = [1, 2].map(|further| (first + further) % 3);
        bench
            .run(&format!("make 1 a\nsend 1 a due at=1000\nmove 1 a to={second}\ntime 10\ntime 20\ntime 30"));
        assert_eq!(bench.run("moves 1\nsend 1 a m"), "ok ok ok ok", "it has moved");
        bench.late_from_now_on();
        bench.run(&format!("move 1 a to={third}"));
        bench.first_durable();
        bench.run("time 1000");
        for step in 0..steps {
            bench.first_durable();
            bench.run(&format!("time {}", 1000 + 400 * step));
        }
        bench.restart();
        let times = (1..100).map(|time| format!("time {}\n", 20_000 + 100 * time)).collect::<String>();
        bench.run(&times);
        assert_eq!(bench.held(), "a:2", "after {steps} steps");
        let got = bench.run("moves 1\nattach 9.9 a 9");
        assert!(got.contains("9.9<m") && got.contains("9.9<due"), "after {steps} steps: {got}");
    }
}

#[test]
fn of_two_who_want_it_to_leave_at_once_one_is_told_that_it_does() {
    let mut bench = Bench::new(settings(3));
    let first = bench.settings.placement.partition_of("a").0;
    let [second, third] = [1, 2].map(|further| (first + further) % 3);
    bench.run("make 1 a");
    bench.late_from_now_on();
    let both = format!("move 1 a to={second}\nmove 2 a to={third}");
    assert_eq!(bench.run(&both), "no: queue://a is moving to another store; try again once it is there");
    assert_eq!(bench.all_durable(), "ok");
    assert_eq!(bench.run("time 10\ntime 20\ntime 30\nmoves 1"), "ok ok ok");
    assert_eq!(
        bench.settings.addressing.partition_of(bench.settings.placement, &Destination::queue("a")).0,
        second
    );
}

/// Duplicate detection goes along: also for messages that were consumed before, and of each user.
#[test]
fn a_message_sent_again_behind_a_move_is_taken_in_once() {
    let script = "send 1 a p7.1
        send 1 a p7.2 by:ann
        send 1 a p7.3
        attach 1.1 a 9
        accept 1.1 p7.1
        detach 1.1 none
        move 1 a to=1
        time 20
        time 40
        time 60";
    for restarts in [false, true] {
        let mut bench = two_stores();
        bench.run(script);
        if restarts {
            bench.restart();
        }
        assert_eq!(bench.held(), "a:2", "restarts: {restarts}");
        let again = "send 2 a p7.1 again
            send 2 a p7.2 by:ann again
            send 2 a p7.3 again";
        assert_eq!(bench.run(again), "ok ok ok", "restarts: {restarts}");
        assert_eq!(bench.held(), "a:2", "restarts: {restarts}");
        bench.run("send 2 a p7.4 again\nsend 2 a p7.1 by:bob again");
        assert_eq!(bench.held(), "a:4", "restarts: {restarts}");
    }
}

/// At each moment of the move: also between the new place and the record of the duplicate
/// detection.
#[test]
fn a_message_sent_again_while_its_queue_moves_is_taken_in_once() {
    for records in 0..24 {
        let mut bench = two_stores();
        bench.run("send 1 a p7.1\nattach 1.1 a 9\naccept 1.1 p7.1\ndetach 1.1 none");
        bench.late_from_now_on();
        bench.run("move 1 a to=1\ntime 20");
        for record in 0..records {
            bench.first_durable();
            bench.run(&format!("time {}", 21 + record));
        }
        bench.run("");
        let mut answers = bench.run("send 2 a p7.1 again\nsend 2 a p7.2");
        answers += &bench.all_durable();
        answers += &bench.run("time 2000\ntime 2020\ntime 2040\ntime 2060");
        // And that of the move, where it was late.
        assert!((2..=3).contains(&answers.matches("ok").count()), "{records} records: {answers}");
        assert_eq!(bench.held(), "a:1", "{records} records");
    }
}

/// So it is in a transaction, whose commit waits behind it.
#[test]
fn a_message_sent_again_in_a_transaction_while_its_queue_moves_is_taken_in_once() {
    let (mut waited, mut gave_up) = (0, 0);
    for (records, leaves) in (0..24).flat_map(|records| [(records, false), (records, true)]) {
        let mut bench = two_stores();
        bench.run("send 1 a p7.1\nattach 1.1 a 9\naccept 1.1 p7.1\ndetach 1.1 none");
        bench.late_from_now_on();
        bench.run("move 1 a to=1\ntime 20");
        for record in 0..records {
            bench.first_durable();
            bench.run(&format!("time {}", 21 + record));
        }
        bench.run("");
        let mut answers = bench.run("send 2 a p7.1 tx=1 again");
        let waits = answers.is_empty();
        answers += &bench.run("send 2 a p7.2 tx=1 again\ncommit 2 1");
        if leaves {
            bench.run("close 2");
        }
        answers += &bench.all_durable();
        answers += &bench.run("time 2000\ntime 2020\ntime 2040\ntime 2060");
        let held = bench.held();
        if waits && leaves {
            gave_up += 1;
            assert_eq!(held, "", "{records} records: all of it or nothing");
            continue;
        }
        waited += u32::from(waits);
        // A transaction ends with its connection, unless its commit is on its way.
        assert!(held == "a:1" || leaves && held.is_empty(), "{records} records, leaves: {leaves}: {held}");
        assert!(leaves || answers.matches("ok").count() >= 3, "{records} records: {answers}");
    }
    assert!(waited > 0 && gave_up > 0, "{waited} waited, {gave_up} gave up");
}

#[test]
fn as_many_messages_sent_again_wait_for_a_moving_queue_and_no_more() {
    const WAITING_MAX: usize = 4096;
    let mut bench = two_stores();
    bench.run("send 1 a p7.1\nattach 1.1 a 9\naccept 1.1 p7.1\ndetach 1.1 none");
    bench.late_from_now_on();
    bench.run("move 1 a to=1\ntime 20");
    let mut time = 20;
    while !bench.run("send 2 a p7.2 tx=1 again").is_empty() {
        time += 1;
        assert!(time < 60, "it never waits");
        bench.first_durable();
        bench.run(&format!("time {time}"));
    }
    for connection in 3..WAITING_MAX + 2 {
        let answer = bench.run(&format!("send {connection} a p8.{connection} tx=1 again"));
        assert_eq!(answer, "", "connection {connection}");
    }
    let beyond = WAITING_MAX + 2;
    let refused = "no: queue://a is moving to another store; try again once it is there";
    assert_eq!(bench.run(&format!("send {beyond} a p8.1 tx=1 again")), refused);
    let mut answers = bench.all_durable();
    answers += &bench.run("time 2000\ntime 2020\ntime 2040\ntime 2060");
    assert!(answers.matches("ok").count() >= WAITING_MAX, "{}", answers.len());
    assert_eq!(bench.run(&format!("commit {beyond} 1")), refused, "it can only be rolled back");
    assert_eq!(bench.run("commit 3 1"), "ok");
    assert_eq!(bench.held(), "a:1");
}
