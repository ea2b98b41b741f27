//! Branches of distributed transactions, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Partition;
use postroad_model::{ConnectionId, Effect, Event, PartitionId, Peer, TransactionId, TransactionKey};

/// Names of queues in different partitions of two.
fn apart() -> (String, String) {
    let placement = settings(2).placement;
    let named = |start: &str, home: u16| {
        let lies = |name: &String| placement.partition_of(name) == PartitionId(home);
        (0..).map(|number| format!("{start}{number}")).find(lies).expect("some name lies there")
    };
    (named("a", 0), named("b", 1))
}

/// Runs each case on one partition and on two, where `a` and `b` lie apart; then compares answers
/// and contents.
fn check(cases: &[(&str, &str, &str, &str)]) {
    for (name, script, want, held) in cases {
        for partitions in [1, 2] {
            let mut bench = Bench::new(settings(partitions));
            let (a, b) = apart();
            let local = |text: &str| text.replace("$a", &a).replace("$b", &b);
            let said = bench.run(&local(script));
            assert_eq!(said, *want, "case: {name}, {partitions} partitions");
            assert_eq!(bench.held(), local(held), "case: {name}, {partitions} partitions");
        }
    }
}

#[test]
fn a_branch_is_decided_once_and_by_anybody() {
    check(&[
        (
            "prepared work is seen by nobody, and carried out at the commit of another connection",
            "attach 1.1 $b 9
             send 1 $a m
             attach 1.2 $a 9
             accept 1.2 m tx=1
             send 1 $b n tx=1
             end 1 1 x
             prepare 1 x
             decide 2 x commit",
            "ok ok ok 1.2<m ok ok ok ok 1.1<n 1/1 done ok",
            "$b:1",
        ),
        (
            "what was prepared outlives its connection",
            "send 1 $a m tx=1
             end 1 1 x
             prepare 1 x
             close 1
             decide 2 x commit",
            "ok ok ok 1/1 done ok",
            "$a:1",
        ),
        (
            "what was not prepared ends with its connection",
            "send 1 $a m tx=1
             end 1 1 x
             close 1
             prepare 2 x",
            "ok ok 1/1 undone no: no such branch: it was not begun, or has ended",
            "",
        ),
        (
            "a decision needs a branch, and two phases need the first",
            "decide 1 x commit
             send 1 $a m tx=1
             end 1 1 x
             decide 1 x commit
             decide 1 x rollback
             decide 1 x rollback",
            "no: no such branch: it was not begun, or has ended ok ok no: the branch is not prepared \
             1/1 undone ok no: no such branch: it was not begun, or has ended",
            "",
        ),
        (
            "one phase is enough for one resource",
            "send 1 $a m tx=1
             send 1 $b n tx=1
             end 1 1 x
             decide 1 x once",
            "ok ok ok 1/1 done ok",
            "$a:1 $b:1",
        ),
        (
            "a branch in which nothing was done ends at the first phase",
            "end 1 1 x
             prepare 1 x
             decide 1 x commit",
            "ok 1/1 done no: nothing was done in the branch no: no such branch: it was not begun, or has ended",
            "",
        ),
        (
            "a branch that is prepared takes nothing more, and may be prepared again",
            "send 1 $a m tx=1
             end 1 1 x
             prepare 1 x
             send 1 $a n tx=2
             end 1 2 x
             prepare 1 x
             decide 1 x commit",
            "ok ok ok ok no: the branch accepts no more work: it is prepared, or about to be 1/2 undone ok \
             1/1 done ok",
            "$a:1",
        ),
    ]);
}

#[test]
fn a_branch_may_be_done_in_parts_and_by_several_sessions() {
    check(&[
        (
            "suspended and resumed",
            "send 1 $a m tx=1
             end 1 1 x
             send 1 $b other tx=2
             end 1 2 y
             send 1 $a n tx=3
             end 1 3 x
             prepare 1 x
             decide 1 x commit
             decide 1 y rollback",
            "ok ok ok ok ok ok ok 1/1 done 1/3 done ok 1/2 undone ok",
            "$a:2",
        ),
        (
            "joined by another session",
            "send 1 $a m tx=1
             send 2 $b n tx=1
             end 1 1 x
             end 2 1 x
             decide 2 x once",
            "ok ok ok ok 1/1 done 2/1 done ok",
            "$a:1 $b:1",
        ),
        (
            "prepared by another session before the first has ended its part",
            "send 1 $a m tx=1
             send 2 $b n tx=1
             end 2 1 x
             prepare 2 x
             end 1 1 x
             decide 2 x commit",
            "ok ok ok ok no: the branch accepts no more work: it is prepared, or about to be 1/1 undone \
             2/1 done ok",
            "$b:1",
        ),
        (
            "prepared by another session when no part has ended",
            "send 1 $a m tx=1
             prepare 2 x
             close 1",
            "ok no: no such branch: it was not begun, or has ended",
            "",
        ),
        (
            "and ends for all when one of them is gone",
            "send 1 $a m tx=1
             send 2 $b n tx=1
             end 1 1 x
             end 2 1 x
             close 2
             decide 1 x once",
            "ok ok ok ok 1/1 undone 2/1 undone no: no such branch: it was not begun, or has ended",
            "",
        ),
    ]);
}

#[test]
fn consumers_hold_again_what_a_branch_did_not_end() {
    let script = |how: &str, after: &str| {
        format!(
            "send 1 $a m\nattach 1.1 $a 9\naccept 1.1 m tx=1\nend 1 1 x\n{how}\ndecide 1 x rollback\n{after}"
        )
    };
    for (name, script, want, held) in [
        (
            "rolled back when prepared",
            script("prepare 1 x", "attach 1.2 $a 9\naccept 1.1 m"),
            "ok ok 1.1<m ok ok ok 1/1 undone ok ok ok",
            "",
        ),
        (
            "rolled back when open",
            script("", "attach 1.2 $a 9\naccept 1.1 m"),
            "ok ok 1.1<m ok ok 1/1 undone ok ok ok",
            "",
        ),
        (
            "without their consumer they go to others",
            script("prepare 1 x\ndetach 1.1 all", "attach 1.2 $a 9"),
            "ok ok 1.1<m ok ok ok 1/1 undone ok ok 1.2<m",
            "$a:1",
        ),
    ] {
        check(&[(name, &script, want, held)]);
    }
}

const PREPARED: &str = "send 1 $a old
     attach 1.1 $a 9
     accept 1.1 old tx=1
     send 1 $a m tx=1
     send 1 $b n tx=1
     end 1 1 x
     prepare 1 x";

#[test]
fn what_is_in_doubt_survives() {
    let (a, b) = apart();
    let local = |text: &str| text.replace("$a", &a).replace("$b", &b);
    for partitions in [1_u16, 2] {
        for (decision, left) in [("commit", "$a:1 $b:1"), ("rollback", "$a:1")] {
            let case = format!("{decision}, {partitions} partitions");
            let mut bench = Bench::new(settings(partitions));
            bench.run(&local(PREPARED));
            for _ in 0..2 {
                bench.restart();
                let said = bench.run(&local("attach 3.1 $a 9\ndetach 3.1 none\nbranches 2"));
                assert!(said.starts_with("ok in doubt: ") && said.contains('x'), "{case}: {said}");
            }
            assert_eq!(bench.run(&format!("decide 2 x {decision}")), "ok", "{case}");
            for after in ["at once", "after a restart"] {
                assert_eq!(bench.held(), local(left), "{case}, {after}");
                let said = bench.run("branches 2");
                assert!(!said.contains('x'), "{case}, {after}: {said}");
                bench.restart();
            }
        }
    }
}

#[test]
fn a_snapshot_keeps_what_is_in_doubt() {
    let (a, b) = apart();
    let mut bench = Bench::new(settings(1));
    bench.run(&PREPARED.replace("$a", &a).replace("$b", &b));
    let snapshot = bench.partitions[0].snapshot();
    let mut restored = Partition::restore(settings(1), &snapshot).expect("a sound snapshot");
    assert_eq!(restored.snapshot(), snapshot);
    for key in restored.absent_prepared() {
        let message = bench.message(key);
        restored.restore_body(key, message);
    }
    bench.partitions[0] = restored;
    assert_eq!(bench.run("branches 1\ndecide 1 x commit"), "in doubt: x ok ok");
    assert_eq!(bench.held(), format!("{a}:1 {b}:1"));
}

#[test]
fn a_prepared_message_that_cannot_be_read_is_in_its_queue_once_its_branch_commits() {
    let (a, b) = apart();
    let mut bench = Bench::new(settings(1));
    bench.run(&PREPARED.replace("$a", &a).replace("$b", &b));
    let restored =
        Partition::restore(settings(1), &bench.partitions[0].snapshot()).expect("a sound snapshot");
    let absent = restored.absent_prepared();
    assert!(absent.len() == 2 && absent.iter().all(|key| restored.is_prepared_for_queues(*key)));
    bench.partitions[0] = restored;
    assert_eq!(bench.run("decide 1 x commit"), "ok");
    assert_eq!(bench.held(), format!("{a}:1 {b}:1"));
}

#[test]
fn what_the_log_refuses_is_rolled_back_or_stays_in_doubt() {
    for partitions in [1, 2] {
        let (a, b) = apart();
        let mut bench = Bench::new(settings(partitions));
        let script = PREPARED.replace("$a", &a).replace("$b", &b);
        let (before, prepare) = script.rsplit_once('\n').expect("several lines");
        bench.run(before);
        for id in 0..partitions {
            bench.broken = Some(PartitionId(id));
            if id == 0 {
                let said = bench.run(prepare);
                assert!(said.contains("no: the store could not write"), "{said}");
                bench.run("send 1 z m");
            }
            let said = bench.run("decide 1 x commit");
            assert!(said.ends_with("no: no such branch: it was not begun, or has ended"), "{said}");
        }
        bench.broken = None;
        assert_eq!(bench.held(), format!("{a}:1"), "{partitions} partitions: nothing of it happened");

        let mut bench = Bench::new(settings(partitions));
        bench.run(&script);
        let coordinator = bench.coordinator("x");
        bench.broken = Some(coordinator);
        for decision in ["commit", "rollback"] {
            let said = bench.run(&format!("decide 1 x {decision}"));
            assert_eq!(said, "no: the store could not write: broken", "{decision}");
        }
        bench.broken = None;
        let said = bench.run("decide 1 x commit");
        assert!(said.ends_with("1/1 done ok"), "{said}");
        assert_eq!(bench.held(), format!("{a}:1 {b}:1"), "{partitions} partitions");
    }
}

#[test]
fn an_operator_ends_what_is_in_doubt_and_its_manager_is_told_until_somebody_says_to_forget() {
    let committed = "no: an operator has already committed the branch; call forget to remove this record";
    let rolled_back = "no: an operator has already rolled back the branch; call forget to remove this record";
    let unknown = "no: no such branch: it was not begun, or has ended";
    for partitions in [1_u16, 2] {
        for (how, sign, told, left) in [
            ("overrule-commit", "+", committed, "$a:1 $b:1"),
            ("overrule-rollback", "-", rolled_back, "$a:1"),
        ] {
            let case = format!("{how}, {partitions} partitions");
            let (a, b) = apart();
            let mut bench = Bench::new(settings(partitions));
            bench.run(&PREPARED.replace("$a", &a).replace("$b", &b));
            let said = bench.run(&format!("decide 2 x {how}"));
            assert!(said.ends_with(" ok") && said.contains("1/1 "), "{case}: {said}");
            for after in ["at once", "after a restart", "from a snapshot"] {
                assert_eq!(
                    bench.held(),
                    left.replace("$a", &a).replace("$b", &b),
                    "{case}, {after}: as the operator said"
                );
                let said = bench.run("branches 2");
                assert!(said.contains(&format!("x{sign}")), "{case}, {after}: {said}");
                for step in ["prepare 2 x", "decide 2 x commit", "decide 2 x rollback", "decide 2 x once"] {
                    assert_eq!(bench.run(step), told, "{case}, {after}: {step}");
                }
                match after {
                    "at once" => bench.restart(),
                    _ => bench.reload(),
                }
            }
            assert_eq!(bench.run("forget 2 x"), "ok", "{case}");
            for after in ["at once", "after a restart"] {
                assert_eq!(bench.run("decide 2 x commit"), unknown, "{case}, {after}");
                assert_eq!(bench.run("forget 2 x"), unknown, "{case}, {after}");
                bench.restart();
            }
        }
    }
}

#[test]
fn an_operator_decides_about_nothing_but_what_is_in_doubt() {
    check(&[
        (
            "what is open, or unknown",
            "send 1 $a m tx=1
             end 1 1 x
             decide 2 x overrule-commit
             decide 2 y overrule-rollback
             decide 1 x once",
            "ok ok no: the branch is not prepared no: no such branch: it was not begun, or has ended 1/1 done ok",
            "$a:1",
        ),
        (
            "a branch that was ended so takes nothing more",
            "send 1 $a m tx=1
             end 1 1 x
             prepare 1 x
             decide 2 x overrule-rollback
             send 1 $a n tx=2
             end 1 2 x",
            "ok ok ok 1/1 undone ok ok no: the branch accepts no more work: it is prepared, or about to be 1/2 undone",
            "",
        ),
    ]);
}

#[test]
fn the_log_may_refuse_what_an_operator_says() {
    for partitions in [1, 2] {
        let (a, b) = apart();
        let mut bench = Bench::new(settings(partitions));
        bench.run(&PREPARED.replace("$a", &a).replace("$b", &b));
        bench.broken = Some(bench.coordinator("x"));
        assert_eq!(bench.run("decide 1 x overrule-rollback"), "no: the store could not write: broken");
        bench.broken = None;
        let said = bench.run("branches 1");
        assert!(said.contains("x") && !said.contains("x-"), "{said}");
        let said = bench.run("decide 1 x overrule-commit");
        assert!(said.ends_with("1/1 done ok"), "{said}");
        assert_eq!(bench.held(), format!("{a}:1 {b}:1"), "{partitions} partitions");
    }
}

#[test]
fn a_branch_outlives_what_it_has_read_from() {
    for (case, words) in [("a subscription", "#t 9 sub=s|unsubscribe 2 s"), ("a queue", "a 9|unmake 2 a")] {
        let (source, end) = words.split_once('|').expect("two parts");
        let to = source.split(' ').next().unwrap_or_default();
        let mut bench = Bench::new(settings(1));
        bench.run(&format!("attach 1.1 {source}\nsend 2 {to} m\naccept 1.1 m tx=1\nsend 1 b n tx=1\nend 1 1 x\nprepare 1 x\nclose 1\n{end}"));
        bench.reload();
        assert_eq!(bench.run("branches 2\ndecide 2 x commit"), "in doubt: x ok ok", "case: {case}");
        assert_eq!(bench.held(), "b:1", "case: {case}");
    }
}

#[test]
fn branches_of_a_connection_end_in_the_order_of_their_ids() {
    let mut bench = Bench::new(settings(1));
    for number in 10..30 {
        bench.run(&format!("send 1 a m tx={number}\nend 1 {number} x{number}"));
    }
    let undone: Vec<String> = (10..30).map(|number| format!("1/{number} undone")).collect();
    assert_eq!(bench.run("close 1"), undone.join(" "));
}

#[test]
fn what_a_branch_gives_back_as_one_of_its_connections_ends_comes_back_in_order() {
    let mut bench = Bench::new(settings(1));
    let script =
        "attach 1.1 a 1\nattach 2.1 a 1\nsend 9 a m\nsend 9 a n\naccept 1.1 m tx=1\naccept 2.1 n tx=1";
    bench.run(script);
    bench.run("detach 2.1 all\nattach 3.1 a 9");
    let key = |connection| TransactionKey { connection: ConnectionId::new(0, connection), number: 1 };
    let id = TransactionId { coordinator: PartitionId(1), incarnation: 1, number: 1 };
    let prepare = Peer::Prepare { transactions: vec![key(1), key(2)], id };
    let mut effects = Vec::new();
    bench.partitions[0].soft(Event::Seal { transaction: key(2) }, &mut effects);
    // The coordinator is faster than the first connection, which then ends.
    bench.partitions[0].soft(Event::Peer { from: PartitionId(1), peer: prepare }, &mut effects);
    assert_eq!(effects.len(), 0, "it waits for the first connection");
    bench.partitions[0].soft(Event::Closed { connection: ConnectionId::new(0, 1) }, &mut effects);
    let delivered = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(delivery) => Some(&delivery.message.bytes[..]),
        _ => None,
    });
    assert_eq!(delivered.collect::<Vec<_>>(), [b"m", b"n"]);
}

#[test]
fn prepared_branches_hold_what_all_of_them_may() {
    // Each holds its message, some 320 bytes for it, and 512 of its own.
    let bound = postroad_core::Settings { open_bytes_max: 4 * (512 + 320 + 1), ..settings(1) };
    let mut bench = Bench::new(bound);
    let prepare =
        |number: usize| format!("send 1 a m tx={number}\nend 1 {number} x{number}\nprepare 1 x{number}\n");
    assert_eq!(bench.run(&(0..4).map(prepare).collect::<String>()), ["ok"; 12].join(" "));
    let full = "ok ok 1/4 undone no: prepared transactions have the maximum of 3332 bytes: complete one, or give the broker more memory";
    assert_eq!(bench.run(&prepare(4)), full);
    // It is the same after a start, and a decision makes room.
    bench.restart();
    assert_eq!(bench.run(&prepare(4)), full);
    assert_eq!(bench.run("decide 1 x0 commit\ndecide 1 x1 rollback"), "ok ok");
    assert_eq!(bench.run(&(5..7).map(prepare).collect::<String>()), ["ok"; 6].join(" "));
    assert_eq!(bench.run(&prepare(4)), full);
    assert_eq!(bench.held(), "a:1");
}

#[test]
fn what_is_in_doubt_holds_up_no_dead_letters() {
    let mut bench = Bench::new(postroad_core::Settings { open_bytes_max: 512 + 320 + 1, ..settings(3) });
    let [here, elsewhere] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    assert_ne!(here, elsewhere, "they lie in different partitions");
    assert_eq!(bench.run("send 1 dead x tx=1\nend 1 1 x\nprepare 1 x"), "ok ok ok");
    let full = bench.run("send 1 dead y tx=2\nend 1 2 y\nprepare 1 y");
    assert!(full.contains("prepared transactions have the maximum of 833 bytes"), "{full}");
    assert_eq!(bench.run("send 1 a m until=5\ntime 5\nattach 1.1 a 9\nattach 1.2 dead 9"), "ok ok ok 1.2<m");
    assert_eq!(bench.run("decide 1 x commit"), "1.2<x 1/1 done ok");
}

#[test]
fn open_branches_have_a_bound() {
    let mut bench = Bench::new(settings(1));
    for number in 0..16_384 {
        assert_eq!(bench.run(&format!("end 1 {number} x{number}")), "ok");
    }
    let full = "1/99999 undone no: the maximum of 16384 branch parts is open: prepare or roll back some";
    assert_eq!(bench.run("end 1 99999 y"), full);
    assert_eq!(bench.run("decide 2 x7 rollback\nend 1 99999 y"), "1/7 undone ok ok");
    assert_eq!(bench.run("end 1 88888 z"), full.replace("99999", "88888"));
}

#[test]
fn a_settlement_without_room_in_its_transaction_is_refused_and_its_consumer_keeps_the_message() {
    let bound = postroad_core::Settings { open_bytes_max: 2 * 96, ..settings(1) };
    let mut bench = Bench::new(bound);
    bench.run("attach 2.1 a 99\nsend 1 a m\nsend 1 a n\nsend 1 a o");
    let full = "no: open transactions have the maximum of 192 bytes: commit or roll back one, or give the \
                broker more memory";
    assert_eq!(bench.run("accept 2.1 m n tx=1"), "ok");
    assert_eq!(bench.run("accept 2.1 o tx=1"), full);
    // It is not in the transaction: it goes back when its consumer leaves.
    assert_eq!(bench.run("attach 3.1 a 9\ndetach 2.1 all"), "ok 3.1<o!1");
    assert_eq!(bench.run("commit 2 1"), format!("3.1<m!1 3.1<n!1 {full}"));
    assert_eq!(bench.partitions[0].miscounted(), None);
}

#[test]
fn settlements_of_open_transactions_count() {
    let bound = postroad_core::Settings { open_bytes_max: 10 * 96, ..settings(1) };
    let mut bench = Bench::new(bound);
    bench.run("attach 2.1 a 99");
    for number in 0..12 {
        bench.run(&format!("send 1 a m{number}\naccept 2.1 m{number} tx=1"));
    }
    let full = "no: open transactions have the maximum of 960 bytes: commit or roll back one, or give the \
                broker more memory";
    assert_eq!(bench.run("commit 2 1"), full);
    assert_eq!(bench.partitions[0].miscounted(), None);
    // Its consumer holds all of them again, and there is room for others.
    let accept = |number: usize| format!("accept 2.1 m{number} tx=2\n");
    bench.run(&(0..10).map(accept).collect::<String>());
    assert_eq!(bench.run("commit 2 2"), "ok");
    assert_eq!((bench.held(), bench.partitions[0].miscounted()), ("a:2".to_owned(), None));
}
