//! Transactions that are open for too long, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

const LATE: &str = "no: rolled back: the transaction was open for longer than 1000 ms";
const UNKNOWN: &str = "no: no such branch: it was not begun, or has ended";

/// Runs each case on one partition and on two with a limit of a second; the clock stands at 1 ms
/// first.
fn check(cases: &[(&str, &str, &str, &str)]) {
    for (name, script, want, held) in cases {
        for partitions in [1, 2] {
            let settings = Settings { transaction_ms_max: Some(1000), ..settings(partitions) };
            let mut bench = Bench::new(settings);
            bench.run("time 1");
            let said = bench.run(script);
            let want = want.replace("LATE", LATE).replace("UNKNOWN", UNKNOWN);
            assert_eq!(said, want, "case: {name}, {partitions} partitions");
            assert_eq!(bench.held(), *held, "case: {name}, {partitions} partitions");
        }
    }
}

#[test]
fn a_transaction_of_a_session_ends_by_itself() {
    check(&[
        (
            "in time it is like any other",
            "send 1 a m tx=1
             time 1000
             commit 1 1",
            "ok ok",
            "a:1",
        ),
        (
            "what follows is refused, its commit too; the next one is as any",
            "send 1 a m tx=1
             time 1001
             send 1 a n tx=1
             commit 1 1
             send 1 a o tx=2
             commit 1 2",
            "ok LATE LATE ok ok",
            "a:1",
        ),
        (
            "it may be rolled back",
            "send 1 a m tx=1
             time 1001
             rollback 1 1",
            "ok ok",
            "",
        ),
        (
            "what was settled in it goes to others, and its consumer speaks of it no more",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             attach 2.1 a 9
             time 1001
             rollback 1 1
             accept 1.1 m
             accept 2.1 m",
            "ok ok 1.1<m ok ok 2.1<m!1 ok \
             no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer ok",
            "",
        ),
        (
            "what nobody else has had is its own again, and more comes then",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             send 1 a n
             time 1001
             commit 1 1
             send 1 a o
             accept 1.1 m tx=2
             commit 1 2",
            "ok ok 1.1<m ok 1.1<n ok LATE ok ok 1.1<o ok",
            "a:2",
        ),
        (
            "without its consumer it goes back to its place",
            "send 1 a m
             attach 1.1 a 2
             accept 1.1 m tx=1
             detach 1.1 all
             time 1001
             attach 2.1 a 1",
            "ok ok 1.1<m ok ok 2.1<m!1",
            "a:1",
        ),
        (
            "each has its own time",
            "send 1 a m tx=1
             time 600
             send 1 a n tx=2
             time 1100
             commit 1 2
             commit 1 1",
            "ok ok ok LATE",
            "a:1",
        ),
    ]);
}

#[test]
fn a_branch_that_nobody_ends_or_prepares_ends_by_itself() {
    let late_prepare = |step: &str| format!("send 1 a m tx=1\nend 1 1 x\ntime 1001\n{step}");
    for (name, step, want) in [
        ("prepare", "prepare 1 x\nprepare 1 x", "ok ok 1/1 undone LATE UNKNOWN"),
        ("commit", "decide 1 x once\nprepare 1 x", "ok ok 1/1 undone LATE UNKNOWN"),
        ("rollback", "decide 1 x rollback\ndecide 1 x rollback", "ok ok 1/1 undone ok UNKNOWN"),
        ("the end of its connection", "close 1\nprepare 2 x", "ok ok 1/1 undone UNKNOWN"),
    ] {
        check(&[(name, &late_prepare(step), want, "")]);
    }
    check(&[
        (
            "what is resumed too late is no part of anything",
            "send 1 a m tx=1
             end 1 1 x
             time 1001
             send 1 a n tx=2
             end 1 2 x
             prepare 1 x",
            "ok ok 1/1 undone ok LATE 1/2 undone LATE",
            "",
        ),
        (
            "a share that goes on for too long spoils its branch",
            "send 1 a m tx=1
             time 1001
             end 1 1 x
             prepare 1 x",
            "ok ok 1/1 undone LATE",
            "",
        ),
        (
            "what was settled in it goes to others",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             end 1 1 x
             attach 2.1 a 9
             time 1001",
            "ok ok 1.1<m ok ok ok 2.1<m!1 1/1 undone",
            "a:1",
        ),
        (
            "what is prepared has all the time in the world",
            "send 1 a m tx=1
             end 1 1 x
             prepare 1 x
             time 100000
             decide 1 x commit",
            "ok ok ok 1/1 done ok",
            "a:1",
        ),
    ]);
}
