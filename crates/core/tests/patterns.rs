//! Consumers of a pattern of queues: one credit, and in each queue a member that settles.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

fn check(cases: &[(&str, &str, &str, &str)]) {
    for (case, script, said, held) in cases {
        let mut bench = Bench::new(settings(1));
        assert_eq!(bench.run(script), *said, "case: {case}");
        assert_eq!(bench.held(), *held, "what is left, case: {case}");
    }
}

#[test]
fn a_pattern_is_every_queue_that_matches_now_or_later() {
    check(&[
        (
            "queues that are there, by name",
            "send 1 a.y m\n send 1 a.x n\n send 1 b o\n attach 2.1 a.* 5",
            "ok ok ok ok 2.1/1<n 2.1/2<m",
            "a.x:1 a.y:1 b:1",
        ),
        (
            "queues that come later, each in its order",
            "attach 2.1 a.> 5\n send 1 a.x m\n send 1 a.y n volatile\n send 1 a.x o\n send 1 b p",
            "ok 2.1/1<m ok 2.1/2<n ok 2.1/1<o ok ok",
            "a.x:2 a.y:1 b:1",
        ),
        ("no temporary queue", "attach 2.1 > 5\n make 1 ~a.t\n send 1 ~a.t m", "ok ok ok", "a.t:1"),
        (
            "a selector is each member's",
            "send 1 a.x m?k=1\n attach 2.1 a.> 5 where=k=2\n send 1 a.x n?k=2\n send 1 a.y o?k=2",
            "ok ok 2.1/1<n?k=2 ok 2.1/2<o?k=2 ok",
            "a.x:2 a.y:1",
        ),
        (
            "in competition with a reader of one queue",
            "make 1 a.x\n attach 2.1 a.x 5\n attach 3.1 a.> 5\n send 1 a.x m\n send 1 a.x n",
            "ok ok ok 2.1<m ok 3.1/1<n ok",
            "a.x:2",
        ),
        (
            "nobody may delete a queue that it reads",
            "make 1 a.x\n attach 2.1 a.> 5\n unmake 1 a.x\n detach 2.1 all\n unmake 1 a.x",
            "ok ok no: cannot delete queue://a.x: it has 1 consumers ok",
            "",
        ),
        (
            "an exclusive one has every queue to itself",
            "make 1 a.x\n attach 2.1 a.x 5\n attach 3.1 a.> 1 exclusive\n send 1 a.x m\n send 1 a.x n",
            "ok ok ok 3.1/1<m ok ok",
            "a.x:2",
        ),
        (
            "a group of one queue says nothing about another",
            "attach 2.1 a.> 9\n send 1 a.x m group=g\n send 1 a.y n group=g\n send 1 a.x o group=g",
            "ok 2.1/1<m* ok 2.1/2<n* ok 2.1/1<o ok",
            "a.x:2 a.y:1",
        ),
    ]);
}

#[test]
fn credit_is_the_wholes() {
    check(&[
        (
            "it is spent over all queues",
            "attach 2.1 a.> 2\n send 1 a.x m\n send 1 a.y n\n send 1 a.z o\n credit 2.1 1",
            "ok 2.1/1<m ok 2.1/2<n ok ok 2.1/3<o",
            "a.x:1 a.y:1 a.z:1",
        ),
        (
            "queues that ran out of it take turns",
            "send 1 a.x m\n send 1 a.x n\n send 1 a.x o\n send 1 a.y p\n attach 2.1 a.> 1\n credit 2.1 1
             credit 2.1 1\n credit 2.1 9",
            "ok ok ok ok ok 2.1/1<m 2.1/1<n 2.1/2<p 2.1/1<o",
            "a.x:3 a.y:1",
        ),
        (
            "a drain takes all of it",
            "send 1 a.x m\n attach 2.1 a.> 0\n credit 2.1 3\n drain 2.1\n send 1 a.x n\n send 1 a.y o\n credit 2.1 1",
            "ok ok 2.1/1<m 2.1 drained ok ok 2.1/1<n",
            "a.x:2 a.y:1",
        ),
        ("a drain of no queue", "attach 2.1 a.> 3\n drain 2.1\n send 1 a.x m", "ok 2.1 drained ok", "a.x:1"),
        (
            "others of a queue get what it has no credit for",
            "make 1 a.x\n attach 2.1 a.> 1\n attach 3.1 a.x 9\n send 1 a.x m\n send 1 a.x n\n send 1 a.x o",
            "ok ok ok 2.1/1<m ok 3.1<n ok 3.1<o ok",
            "a.x:3",
        ),
    ]);
}

#[test]
fn members_settle_and_the_whole_leaves() {
    let two = "attach 2.1 a.> 9\n send 1 a.x m\n send 1 a.y n\n";
    for (case, script, said, held) in [
        ("accepted", "accept 2.1/1 m\n accept 2.1/2 n", "ok ok", ""),
        ("rejected", "reject 2.1/2 n", "ok", "a.x:1 dead:1"),
        ("released", "release 2.1/1 m\n credit 2.1 1", "ok 2.1/1<m", "a.x:1 a.y:1"),
        ("committed", "accept 2.1/1 m tx=7\n accept 2.1/2 n tx=7\n commit 2 7", "ok ok ok", ""),
        (
            "rolled back, it holds both again",
            "accept 2.1/1 m tx=7\n accept 2.1/2 n tx=7\n rollback 2 7\n accept 2.1/1 m\n accept 2.1/2 n",
            "ok ok ok ok ok",
            "",
        ),
        (
            "what it saw comes again to the next, counted",
            "detach 2.1 all\n attach 3.1 a.> 9",
            "ok 3.1/1<m!1 3.1/2<n!1",
            "a.x:1 a.y:1",
        ),
        ("a connection ends", "close 2\n attach 3.1 a.y 9", "ok 3.1<n!1", "a.x:1 a.y:1"),
        ("it has left queues to come, too", "detach 2.1 none\n send 1 a.z o", "ok", "a.x:1 a.y:1 a.z:1"),
        ("its number is taken", "attach 2.1 a.> 9", "no: the consumer is attached already", "a.x:1 a.y:1"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(two);
        assert_eq!(bench.run(script), said, "case: {case}");
        assert_eq!(bench.held(), held, "what is left, case: {case}");
    }
}

#[test]
fn a_browser_of_a_pattern_sees_what_is_there_and_is_told_once() {
    check(&[
        (
            "two queues",
            "send 1 a.x m\n send 1 a.y n\n attach 2.1 a.> 9 browse\n send 1 a.z o",
            "ok ok ok 2.1/1<m 2.1/2<n 2.1 drained ok",
            "a.x:1 a.y:1 a.z:1",
        ),
        ("none", "attach 2.1 a.> 9 browse", "ok 2.1 drained", ""),
        (
            "in steps of its credit",
            "send 1 a.x m\n send 1 a.y n\n attach 2.1 a.> 1 browse\n credit 2.1 1\n credit 2.1 1",
            "ok ok ok 2.1/1<m 2.1/2<n 2.1 drained",
            "a.x:1 a.y:1",
        ),
    ]);
}

#[test]
fn a_full_outbox_holds_every_member_up() {
    let mut bench = Bench::new(postroad_core::Settings { outbox_bytes_max: 1, ..settings(1) });
    assert_eq!(bench.run("attach 2.1 a.> 9\n send 1 a.x m\n send 1 a.y n"), "ok 2.1/1<m ok ok");
    assert_eq!(bench.run("written 2 1"), "2.1/2<n");
}

#[test]
fn a_name_with_stars_is_one_queue_where_nobody_spreads() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a.x m\n send 1 a.* n");
    assert_eq!(bench.run("attach 2.1 a.* 9"), "ok 2.1/1<n 2.1/2<m", "its own queue matches, too");
}

/// It waits for a body of one of them, to which that queue's end comes first.
#[test]
fn a_drain_is_answered_though_a_queue_ends_under_it() {
    for (case, attach) in [("of several", "make 1 a.y\nattach 2.1 a.> 0"), ("of one", "attach 2.1 a.> 0")] {
        let mut bench = Bench::new(Settings { resident_bytes_max: 0, ..settings(1) });
        bench.run("make 1 a.x\nsend 1 a.x m");
        bench.late_from_now_on();
        bench.run("unmake 1 a.x");
        bench.disk_hangs();
        bench.run(attach);
        assert_eq!(bench.run("credit 2.1 1\ndrain 2.1"), "", "case: {case}: it may come yet");
        let said = bench.all_durable();
        assert!(said.contains("2.1 drained"), "case: {case}: {said}");
        assert!(!bench.disk_answers().contains("drained"), "case: {case}");
    }
}

/// Each queue that a pattern's consumer reads costs memory: 1,024 together with as little as this.
#[test]
fn consumers_of_patterns_read_a_bounded_number_of_queues() {
    let mut bench = Bench::new(Settings { messages_bytes_max: 1 << 20, ..settings(1) });
    let make =
        |queues: std::ops::Range<u32>| queues.map(|queue| format!("make 1 a.{queue}\n")).collect::<String>();
    bench.run(&make(0..512));
    assert_eq!(bench.run("attach 2.1 a.* 5\nattach 3.1 a.* 5"), "ok ok", "as many as may be");
    let no = "no: a consumer of queue://a.> would read 512 queues, but consumers of patterns read 1024 already, and at \
        most 1024 together: narrow the pattern, close others, or raise limits.memory_bytes";
    assert_eq!(bench.run("attach 4.1 a.> 5"), no);
    assert_eq!(bench.run("attach 4.1 b.> 5\nattach 5.1 a.1 5"), "ok ok", "others are");
    // One more queue: consumers that cannot read it end, and make room for others.
    let said = bench.run("make 1 a.512");
    assert!(said.contains("2.1 detached") && said.contains("3.1 detached"), "{said}");
    assert_eq!(bench.run("attach 2.1 a.* 5"), "ok");
    bench.run("detach 5.1 all");
    let said = bench.run("send 1 a.512 m");
    assert!(said.starts_with("2.1/") && said.ends_with("<m ok"), "{said}");
}
