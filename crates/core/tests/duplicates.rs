//! Messages that clients send again, case by case. See `bench` for the words: `p7.3` is the third
//! message of producer 7, `again` says that its client had lost a connection.

mod bench;

use bench::{Bench, settings};
use postroad_core::Partition;

/// Runs each case on one partition; compares answers and contents.
fn check(cases: &[(&str, &str, &str, &str)]) {
    for (name, script, want, held) in cases {
        let mut bench = Bench::new(settings(1));
        assert_eq!(&bench.run(script), want, "case: {name}");
        assert_eq!(&bench.held(), held, "case: {name}");
    }
}

#[test]
fn a_message_sent_again_is_confirmed_and_taken_in_once() {
    check(&[
        ("in the log", "send 1 a p7.1\nsend 2 a p7.1 again", "ok ok", "a:1"),
        ("an earlier one", "send 1 a p7.1\nsend 1 a p7.2\nsend 2 a p7.1 again", "ok ok ok", "a:2"),
        (
            "consumed long ago",
            "send 1 a p7.1\nattach 1.1 a 9\naccept 1.1 p7.1\nsend 2 a p7.1 again",
            "ok ok 1.1<p7.1 ok ok",
            "",
        ),
        ("not in the log", "send 1 a p7.1\nsend 2 a p7.2 again\nsend 2 a p7.3 again", "ok ok ok", "a:3"),
        ("of another producer", "send 1 a p7.1\nsend 2 a p8.1 again", "ok ok", "a:2"),
        ("not said to be sent again", "send 1 a p7.1\nsend 2 a p7.1", "ok ok", "a:2"),
        ("of another user", "send 1 a p7.1 by:ann\nsend 2 a p7.1 by:bob again", "ok ok", "a:2"),
        ("of the anonymous user", "send 1 a p7.1 by:ann\nsend 2 a p7.1 again", "ok ok", "a:2"),
        ("of the same user", "send 1 a p7.1 by:ann\nsend 2 a p7.1 by:ann again", "ok ok", "a:1"),
        (
            "another user's numbers do not push the window away",
            "send 1 a p7.1 by:ann\nsend 2 a p7.1099511627776 by:bob\nsend 3 a p7.1 by:ann again",
            "ok ok ok",
            "a:2",
        ),
        (
            "the same user's leap forgets nothing",
            "send 1 a p7.1\nsend 2 a p7.1099511627776\nsend 1 a p7.2\nsend 3 a p7.1 again\nsend 3 a p7.2 again",
            "ok ok ok ok ok",
            "a:3",
        ),
        ("without a producer", "send 1 a m\nsend 2 a m again", "ok ok", "a:2"),
        ("not persistent", "send 1 a p7.1 volatile\nsend 2 a p7.1 again volatile", "ok ok", "a:2"),
        (
            "in order",
            "send 1 a p7.1 again\nsend 1 a p7.2 again\nattach 2.1 a 9",
            "ok ok ok 2.1<p7.1 2.1<p7.2",
            "a:2",
        ),
    ]);
}

#[test]
fn transactions_take_a_message_in_once_too() {
    check(&[
        (
            "sent again in another transaction, after the commit",
            "send 1 a p7.1 tx=1\ncommit 1 1\nsend 2 a p7.1 tx=1 again\nsend 2 a p7.2 tx=1 again\ncommit 2 1",
            "ok ok ok ok ok",
            "a:2",
        ),
        (
            "in a transaction, of another user",
            "send 1 a p7.1 tx=1 by:ann\ncommit 1 1\nsend 2 a p7.1 tx=1 by:bob again\ncommit 2 1",
            "ok ok ok ok",
            "a:2",
        ),
        (
            "rolled back it never came",
            "send 1 a p7.1 tx=1\nrollback 1 1\nsend 2 a p7.1 tx=1 again\ncommit 2 1",
            "ok ok ok ok",
            "a:1",
        ),
        (
            "nothing but what came before",
            "send 1 a p7.1\nsend 2 a p7.1 tx=1 again\ncommit 2 1",
            "ok ok ok",
            "a:1",
        ),
        (
            "prepared is not decided",
            "send 1 a p7.1 tx=1\nend 1 1 x\nprepare 1 x\ndecide 1 x rollback\nsend 2 a p7.1 again",
            "ok ok ok 1/1 undone ok ok",
            "a:1",
        ),
        (
            "decided",
            "send 1 a p7.1 tx=1\nend 1 1 x\nprepare 1 x\ndecide 1 x commit\nsend 2 a p7.1 again",
            "ok ok ok 1/1 done ok ok",
            "a:1",
        ),
    ]);
}

#[test]
fn a_message_on_its_way_to_the_log_is_not_taken_in_again() {
    let mut bench = Bench::new(settings(1));
    assert_eq!(bench.run_late("send 1 a p7.1", "send 2 a p7.1 again"), "ok ok");
    assert_eq!(bench.held(), "a:1");
    assert_eq!(bench.run("send 2 a p7.2 again"), "ok", "nothing is on its way any more");
    assert_eq!(bench.held(), "a:2");

    let mut bench = Bench::new(settings(1));
    bench.broken = Some(postroad_model::PartitionId(0));
    let no = "no: the store could not write: broken";
    assert_eq!(bench.run("send 1 a p7.1"), no);
    assert_eq!(bench.run("send 2 a p7.1 again"), no);
    bench.broken = None;
    bench.run("send 1 a p7.2");
    assert_eq!(bench.run("send 2 a p7.1 again"), "ok", "it had not come, though a later one has");
    assert_eq!(bench.held(), "a:2");
}

#[test]
fn what_waits_as_its_connection_ends_is_sent_by_the_next_one_alone() {
    let mut bench = Bench::new(settings(1));
    // The first one waits for its queue, and comes though its connection has ended.
    let said = bench.run_all_late("send 1 b n volatile\nsend 1 a p7.1 again\nclose 1\nsend 2 a p7.1 again");
    assert_eq!(said, "ok ok", "to the volatile one and to the second connection");
    assert_eq!(bench.held(), "a:1 b:1");
}

#[test]
fn producers_are_known_after_a_restart() {
    let mut bench = Bench::new(settings(2));
    assert_eq!(bench.run("send 1 a p7.1\nsend 1 b p7.2"), "ok ok");
    bench.restart();
    assert_eq!(bench.run("send 2 a p7.1 again\nsend 2 b p7.2 again\nsend 2 a p7.3 again"), "ok ok ok");
    assert_eq!(bench.held(), "a:2 b:1");

    let mut bench = Bench::new(settings(2));
    bench.run("send 1 a p7.1 by:ann\nsend 1 a p7.2 tx=1 by:ann\nsend 1 b p7.2 tx=1 by:ann\ncommit 1 1");
    bench.restart();
    assert_eq!(
        bench.run("send 2 a p7.1 by:bob again\nsend 2 a p7.1 by:ann again\nsend 2 b p7.2 by:ann again"),
        "ok ok ok"
    );
    assert_eq!(bench.held(), "a:3 b:1", "and its user");

    let mut bench = Bench::new(settings(1));
    bench
        .run("send 1 a p7.1\nsend 1 a p7.5000 by:ann\nsend 1 a p7.1 by:ann\nsend 1 a p8.9000\nsend 1 a p8.1");
    let snapshot = bench.partitions[0].snapshot();
    let restored = Partition::restore(settings(1), &snapshot).expect("a sound snapshot");
    assert_eq!(restored.snapshot(), snapshot);
    bench.partitions[0] = bench::equipped(restored);
    assert_eq!(
        bench.run("send 2 a p7.1 again\nsend 2 a p7.5000 by:ann again\nsend 2 a p8.9000 again"),
        "ok ok ok"
    );
    assert_eq!(bench.held(), "a:5");
}

#[test]
fn producers_that_are_silent_for_long_are_forgotten() {
    let few = postroad_core::Settings { audited_producers_max: 4, ..settings(1) };
    let mut bench = Bench::new(few);
    bench.run("send 1 a p1.1\nsend 1 a p2.1\nsend 1 a p3.1\nsend 1 a p4.1\nsend 1 a p5.1");
    assert_eq!(bench.run("send 2 a p5.1 again\nsend 2 a p1.1 again"), "ok ok");
    assert_eq!(bench.held(), "a:6", "the first one is taken for new");
}
