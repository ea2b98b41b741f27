//! A connection right after its own sends: it finds them, confirmed or not. See `bench` for the
//! words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

#[test]
fn who_looks_at_a_queue_finds_what_its_connection_has_sent_there() {
    for (case, before, script, want) in [
        (
            "a browser of a new queue",
            "",
            "send 1 m x volatile\nsend 1 m y volatile\nattach 1.1 m 9 browse",
            "ok ok ok 1.1<x 1.1<y 1.1 drained",
        ),
        (
            "a browser, of what is on its way to the log",
            "make 9 m",
            "send 1 m x\nattach 1.1 m 9 browse",
            "ok ok 1.1<x 1.1 drained",
        ),
        (
            "a browser of both",
            "",
            "send 1 m x volatile\nsend 1 m y\nattach 1.1 m 9 browse",
            "ok ok ok 1.1<x 1.1<y 1.1 drained",
        ),
        (
            "a browser with a selector",
            "",
            "send 1 m x?k=5 volatile\nsend 1 m y?k=6 volatile\nattach 1.1 m 9 browse where=k=6",
            "ok ok ok 1.1<y?k=6 1.1 drained",
        ),
        (
            "a browser of a pattern",
            "make 9 a.b",
            "send 1 a.b x\nattach 1.1 a.> 9 browse",
            "ok ok 1.1/1<x 1.1 drained",
        ),
        (
            "a reader that asks once, of a new queue",
            "",
            "send 1 m x volatile\nattach 1.1 m 1\ndrain 1.1",
            "ok ok 1.1<x 1.1 drained",
        ),
        (
            "a reader that asks once and is there",
            "attach 1.1 m 0",
            "send 1 m x\ncredit 1.1 1\ndrain 1.1\ncredit 1.1 1\ndrain 1.1",
            "1.1<x ok 1.1 drained 1.1 drained",
        ),
        (
            "a reader that selects and asks once",
            "attach 1.1 m 0 where=k=5",
            "send 1 m x?k=5\ncredit 1.1 1\ndrain 1.1",
            "1.1<x?k=5 ok 1.1 drained",
        ),
        (
            "a reader of several queues that asks once",
            "make 9 a.b\nattach 1.1 a.> 0",
            "send 1 a.b x\ncredit 1.1 1\ndrain 1.1",
            "1.1/1<x ok 1.1 drained",
        ),
        (
            "a reader that comes, asks and goes",
            "make 9 m",
            "send 1 m x\nattach 1.1 m 1\ndrain 1.1\ndetach 1.1 none\nattach 1.1 m 9 browse",
            "ok ok 1.1<x 1.1 drained ok 1.1<x 1.1 drained",
        ),
        (
            "a subscriber gets nothing that was sent before it came",
            "attach 3.1 #t 9 sub=s",
            "send 1 #t x\nattach 1.1 #t 9\nsend 1 #t y",
            "3.1<x ok ok 3.1<y 1.1<y ok",
        ),
        ("whoever ends a queue ends what was sent there", "", "send 1 m x volatile\nunmake 1 m", "ok ok"),
        (
            "another's browser waits for nothing",
            "make 9 m",
            "send 1 m x\nattach 2.1 m 9 browse",
            "ok 2.1 drained ok",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(before);
        bench.late_from_now_on();
        let said = bench.run(script);
        let said = format!("{said} {}", bench.all_durable());
        assert_eq!(said.trim(), want, "case: {case}");
    }
}

#[test]
fn jobs_that_were_sent_before_are_found_and_ended() {
    for (case, script, want) in
        [("found", "send 1 m x at=9\njobs 1 r", "ok ok"), ("ended", "send 1 m x at=9\ncancel 1 x", "ok ok")]
    {
        let mut bench = Bench::new(settings(1));
        bench.run("make 9 r");
        bench.late_from_now_on();
        let said = bench.run(script);
        let said = format!("{said} {}", bench.all_durable());
        assert_eq!(said.trim(), want, "case: {case}");
        let want = if case == "found" { "ok 2.1<x ok 2.2<x" } else { "ok ok" };
        assert_eq!(bench.run("attach 2.1 r 9\nattach 2.2 m 9\ntime 9"), want, "case: {case}");
    }
}

#[test]
fn what_waits_for_sends_that_the_log_does_not_take_goes_on() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 m 0");
    bench.late_from_now_on();
    assert_eq!(bench.run("send 1 m x\ndrain 1.1\nsend 1 n y volatile\nattach 1.2 n 9 browse"), "");
    let no = "no: the store could not write: broken";
    assert_eq!(bench.all_fail(), format!("{no} {no} 1.1 drained ok 1.2 drained"));
}

#[test]
fn who_leaves_looks_no_more() {
    let mut bench = Bench::new(settings(1));
    bench.late_from_now_on();
    assert_eq!(bench.run("send 1 m x volatile\nattach 1.1 m 9\nclose 1"), "");
    assert_eq!(bench.all_durable(), "ok");
    assert_eq!(bench.run("attach 2.1 m 9"), "ok 2.1<x");
}

#[test]
fn who_looks_waits_for_the_log_alone() {
    let mut bench = Bench::new(Settings { volatile_bytes_max: 4, ..settings(1) });
    assert_eq!(bench.run("attach 2.1 #t 9\nsend 1 #t mmmm\nmake 9 m"), "ok 2.1<mmmm ok ok");
    assert_eq!(
        bench.run("send 1 m x volatile\nattach 1.1 m 9 browse"),
        "ok 1.1 drained",
        "memory is not waited for"
    );
    assert_eq!(bench.run("accept 2.1 mmmm"), "ok ok");
}

#[test]
fn an_echo_comes_once_what_came_before_is_done_with() {
    for (case, script, now, durable, failed) in [
        ("nothing is on its way", "echo 1", "ok", "", ""),
        ("memory alone", "attach 1.1 #t 9\nsend 1 #t x\necho 1", "ok 1.1<x ok ok", "", ""),
        ("a send", "send 1 a x\necho 1", "", "ok ok", "NO ok"),
        ("another's send", "send 2 a x\necho 1", "", "ok ok", "NO ok"),
        ("a queue that credit waits for", "attach 1.1 a 0\ncredit 1.1 1\necho 1", "", "ok ok", "NO ok"),
        ("two", "echo 1\nsend 1 a x\necho 1\necho 2", "ok", "ok ok ok", "NO ok ok"),
        ("who has gone", "send 1 a x\nclose 1\necho 1", "", "ok ok", "NO ok"),
    ] {
        for fails in [false, true] {
            let mut bench = Bench::new(settings(1));
            bench.late_from_now_on();
            assert_eq!(bench.run(script), now, "case: {case}");
            let said = if fails { bench.all_fail() } else { bench.all_durable() };
            let want = failed.replace("NO", "no: the store could not write: broken");
            assert_eq!(said, if fails { &want } else { durable }, "case: {case}");
        }
    }
}

#[test]
fn so_many_wait_at_the_most() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 m 0");
    bench.late_from_now_on();
    bench.run("send 1 m x");
    assert_eq!(bench.run(&"drain 1.1\n".repeat(1024)), "");
    assert_eq!(bench.run("drain 1.1"), "1.1 drained", "who comes then does not wait");
    assert_eq!(bench.all_durable().matches("drained").count(), 1024);
}

#[test]
fn what_is_said_once_more_is_not_confirmed_before_what_was_said_first() {
    let no = "no: the store could not write: broken";
    for (case, script, durable, failed) in [
        ("alone", "accept 1.1 m\naccept 1.1 m", "ok ok", format!("{no} {no}")),
        ("with another", "accept 1.1 m\naccept 1.1 m n", "ok ok", format!("{no} {no}")),
        ("otherwise", "accept 1.1 m\nreject 1.1 m", "ok ok", format!("{no} {no}")),
        ("as expired", "accept 1.1 m\nexpire 1.1 m", "ok ok", format!("{no} {no}")),
        ("three times", "accept 1.1 m\naccept 1.1 m\naccept 1.1 m", "ok ok ok", format!("{no} {no} {no}")),
    ] {
        for fails in [false, true] {
            let mut bench = Bench::new(settings(1));
            bench.run("attach 1.1 a 2\nsend 2 a m\nsend 2 a n");
            bench.late_from_now_on();
            assert_eq!(bench.run(script), "", "case: {case}");
            let said = if fails { bench.all_fail() } else { bench.all_durable() };
            let held = bench.held();
            assert_eq!(said, if fails { &failed } else { durable }, "case: {case}");
            let left = if case == "with another" { "" } else { "a:1" };
            assert_eq!(held, if fails { "a:2" } else { left }, "case: {case}");
            assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
            bench.restart();
            assert_eq!(bench.held(), held, "case: {case}");
        }
    }
}

#[test]
fn a_transaction_settles_nothing_that_comes_back_from_a_verdict_before_it() {
    let no = "no: the store could not write: broken";
    let taken = "no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer";
    for (case, said_in_it, durable, failed) in [
        ("alone", "", "ok ok", "a:2"),
        ("with another", "accept 1.1 n tx=1\n", "ok ok", "a:2"),
        ("with a send", "send 1 a o tx=1\n", "ok ok", "a:2"),
    ] {
        let begin = |bench: &mut Bench| {
            bench.run("attach 1.1 a 2\nsend 2 a m\nsend 2 a n");
            bench.late_from_now_on();
            assert_eq!(bench.run("accept 1.1 m\naccept 1.1 m tx=1"), "ok", "case: {case}");
            bench.run(said_in_it);
        };
        let mut bench = Bench::new(settings(1));
        begin(&mut bench);
        assert_eq!(bench.run("commit 1 1"), "", "case: {case}");
        assert_eq!(bench.all_durable(), durable, "case: {case}");
        let mut bench = Bench::new(settings(1));
        begin(&mut bench);
        assert_eq!(bench.run("commit 1 1"), "", "case: {case}");
        assert_eq!(bench.all_fail(), format!("{no} {no}"), "case: {case}");
        assert_eq!(bench.held(), failed, "case: {case}");
        let mut bench = Bench::new(settings(1));
        begin(&mut bench);
        assert_eq!(bench.all_fail(), no, "case: {case}");
        assert_eq!(bench.run("commit 1 1"), taken, "case: {case}");
        assert_eq!(
            (bench.held(), bench.partitions[0].miscounted()),
            (failed.to_owned(), None),
            "case: {case}"
        );
        bench.restart();
        assert_eq!(bench.held(), failed, "case: {case}");
    }
}
