//! Exclusive names and leftovers of a connection, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_model::PartitionId;

#[test]
fn a_name_is_granted_once_the_broker_has_finished_with_its_former_connection() {
    let taken = "no: the client id x is in use by another connection, h";
    for (case, script, want) in [
        ("free", "claim 1 x h", "ok"),
        ("twice by the same connection", "claim 1 x h\nclaim 1 x h", "ok ok"),
        ("by another holder", "claim 1 x h\nclaim 2 x i", &format!("ok {taken}")),
        ("given up", "claim 1 x h\ndisclaim 1 x\nclaim 2 x i", "ok ok ok"),
        ("its holder connects anew", "claim 1 x h\nclaim 2 x h", "ok 1 evicted"),
        ("closed is not enough", "claim 1 x h\nclaim 2 x h\nclose 1", "ok 1 evicted"),
        ("concluded", "claim 1 x h\nclaim 2 x h\nclose 1\nconclude 1 x", "ok 1 evicted ok"),
        ("it ended before", "claim 1 x h\nclose 1\nclaim 2 x h\nconclude 1 x", "ok ok"),
        ("it ended, and another holder comes", "claim 1 x h\nclose 1\nclaim 2 x i\nconclude 1 x", "ok ok"),
        ("concluded before", "claim 1 x h\nclose 1\nconclude 1 x\nclaim 2 x i", "ok ok"),
        (
            "given up by who is evicted: it has sent more",
            "claim 1 x h\nclaim 2 x h\ndisclaim 1 x\nclose 1\nconclude 1 x",
            "ok 1 evicted ok ok",
        ),
        (
            "connects anew before it is granted",
            "claim 1 x h\nclaim 2 x h\nclaim 3 x h\nclose 2\nconclude 2 x\nclose 1\nconclude 1 x",
            "ok 1 evicted 2 evicted ok",
        ),
        (
            "who waits goes away",
            "claim 1 x h\nclaim 2 x h\nclose 2\nclose 1\nconclude 1 x\nclaim 3 x i",
            "ok 1 evicted ok",
        ),
        (
            "who waits gives up",
            "claim 1 x h\nclaim 2 x h\ndisclaim 2 x\nclose 1\nconclude 1 x\nclaim 3 x i",
            "ok 1 evicted ok ok",
        ),
        (
            "another holder behind who waits",
            "claim 1 x h\nclaim 2 x h\nclaim 3 x i",
            &format!("ok 1 evicted {taken}"),
        ),
        ("of another connection", "claim 1 x h\nclaim 2 x h\nconclude 3 x\nconclude 2 x", "ok 1 evicted"),
        ("its holder's name, but another user", "claim 1 x h ann\nclaim 2 x h bob", &format!("ok {taken}")),
        ("the same user", "claim 1 x h ann\nclaim 2 x h ann", "ok 1 evicted"),
        ("the anonymous user", "claim 1 x h ann\nclaim 2 x h", &format!("ok {taken}")),
        ("another name", "claim 1 x h\nclaim 2 y h", "ok ok"),
    ] {
        assert_eq!(Bench::new(settings(1)).run(script), want, "case: {case}");
    }
}

#[test]
fn a_name_is_free_after_a_bounded_time() {
    for (case, script) in [
        ("evicted, and it never closes", "time 1\nclaim 1 x h\nclaim 2 x h\ntime 15000"),
        ("closed, and never concluded", "time 1\nclaim 1 x h\nclose 1\nclaim 2 x i\ntime 15000"),
    ] {
        let mut bench = Bench::new(settings(1));
        let before = bench.run(script);
        assert!(!before.ends_with("ok ok"), "case: {case}: {before}");
        assert_eq!(bench.partitions[0].next_due_ms(), Some(15_001), "case: {case}");
        assert_eq!(bench.run("time 15001"), "ok", "case: {case}");
        let said = bench.run("conclude 1 x\nclaim 3 x j");
        assert!(
            said.starts_with("no: the client id x is in use by another connection, "),
            "case: {case}: {said}"
        );
    }
}

#[test]
fn a_closed_connection_is_done_with_when_its_transactions_over_partitions_have_ended() {
    let placement = settings(2).placement;
    let named = |home: u16| {
        let lies = |name: &String| placement.partition_of(name) == PartitionId(home);
        (0..).map(|number| format!("q{number}")).find(lies).expect("some name lies there")
    };
    let (a, b) = (named(0), named(1));
    let script = format!("send 1 {a} p7.1 tx=1\nsend 1 {b} p7.1 tx=1\ncommit 1 1");
    for fails in [false, true] {
        let mut bench = Bench::new(settings(2));
        bench.late_from_now_on();
        assert_eq!(bench.run(&script), "ok ok");
        assert_eq!(bench.run("close 1\necho 1"), "", "neither partition is done");
        let mut said = String::new();
        while !said.contains("ok ok") {
            match fails {
                true => said += &bench.all_fail(),
                false => bench.first_durable(),
            }
            said += &bench.run("");
            assert!(said.len() < 200, "{said}");
        }
        // The echo of the coordinator is the last: the message is known in both partitions.
        bench.all_durable();
        let again = format!("send 2 {a} p7.1 tx=1 again\nsend 2 {b} p7.1 tx=1 again\ncommit 2 1");
        assert_eq!(bench.run(&again), "ok ok ok");
        let held = bench.held();
        let mut want = [format!("{a}:1"), format!("{b}:1")];
        want.sort();
        assert_eq!(held, want.join(" "), "fails: {fails}");
    }
}
