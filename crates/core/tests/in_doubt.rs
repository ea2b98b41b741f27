//! Deliveries in doubt, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};

#[test]
fn deliveries_in_doubt_go_to_the_next_consumer_of_the_name_alone() {
    let taken = "send 9 a m\nsend 9 a n\nattach 1.1 a 2 steals:east\nattach 2.1 a 9\ndetach 1.1 in-doubt\n";
    for (case, then, want) in [
        ("others wait", "", ""),
        ("the heir needs no credit", "attach 3.1 a 0 steals:east", " ok 3.1<m 3.1<n"),
        ("and is what they are settled by", "attach 3.1 a 0 steals:east\naccept 3.1 m", " ok 3.1<m 3.1<n ok"),
        (
            "given back, anyone gets them",
            "attach 3.1 a 0 steals:east\ndetach 3.1 none",
            " ok 3.1<m 3.1<n 2.1<m 2.1<n",
        ),
        (
            "cut again",
            "attach 3.1 a 0 steals:east\ndetach 3.1 in-doubt\nattach 4.1 a 0 steals:east",
            " ok 3.1<m 3.1<n ok 4.1<m 4.1<n",
        ),
        ("another name", "attach 3.1 a 0 steals:west", " ok"),
        ("another queue", "attach 3.1 b 0 steals:east", " ok"),
        ("no name", "attach 3.1 a 9", " ok"),
        ("nearly too late", "time 999\nattach 3.1 a 0 steals:east", " ok 3.1<m 3.1<n"),
        ("too late", "time 1000\nattach 3.1 a 0 steals:east", " 2.1<m 2.1<n ok"),
        ("the queue goes on", "send 9 a o", " 2.1<o ok"),
    ] {
        let mut bench = Bench::new(settings(1));
        let begun = bench.run(taken);
        assert_eq!(begun, "ok ok ok 1.1<m 1.1<n ok", "case: {case}");
        assert_eq!(bench.run(then), want.trim_start(), "case: {case}");
    }
}

/// A bench whose link `east` has `m` and `n` of the queue `a`, and whose process ends.
fn crashed(after: &str, how: fn(&mut Bench)) -> Bench {
    let mut bench = Bench::new(settings(1));
    bench.run("send 9 a m\nsend 9 a n\nattach 1.1 a 2 steals:east");
    bench.run(after);
    how(&mut bench);
    bench
}

#[test]
fn after_a_restart_the_link_has_what_it_may_have_sent() {
    for (case, after, then, want) in [
        ("others wait", "", "attach 2.1 a 9", "ok"),
        ("the link does not", "", "attach 2.1 a 9\nattach 3.1 a 0 steals:east", "ok ok 3.1<m 3.1<n"),
        ("another link waits too", "", "attach 3.1 a 9 steals:west", "ok"),
        ("one heir for all queues", "", "attach 3.1 > 0 steals:east", "ok 3.1/1<m 3.1/1<n"),
        ("which gets nothing else", "send 9 b o", "attach 3.1 > 0 steals:east", "ok 3.1/1<m 3.1/1<n"),
        (
            "it drains when it has all",
            "",
            "attach 3.1 > 0 steals:east\ndrain 3.1\naccept 3.1/1 m n\ndetach 3.1 none\nattach 2.1 a 9",
            "ok 3.1/1<m 3.1/1<n 3.1 drained ok ok",
        ),
        ("in doubt before", "detach 1.1 in-doubt", "attach 2.1 a 9", "ok"),
        ("confirmed", "accept 1.1 m", "attach 3.1 a 0 steals:east", "ok 3.1<n"),
        ("given back", "detach 1.1 none\ntime 9", "attach 2.1 a 9", "ok 2.1<m 2.1<n"),
        (
            "no longer in doubt",
            "detach 1.1 in-doubt\ntime 1000\ntime 1001",
            "attach 2.1 a 9",
            "ok 2.1<m 2.1<n",
        ),
        ("not a queue of the link", "send 9 b o", "attach 2.1 b 9", "ok 2.1<o"),
        ("nearly until its time is over", "", "time 500000\nattach 2.1 a 9\ntime 559999", "ok"),
        ("until its time is over", "", "time 500000\nattach 2.1 a 9\ntime 560000", "ok 2.1<m 2.1<n"),
    ] {
        for (way, how) in [("restart", Bench::restart as fn(&mut Bench)), ("reload", Bench::reload)] {
            let mut bench = crashed(after, how);
            assert_eq!(bench.run(then), want, "case: {case}, after a {way}");
        }
    }
}

#[test]
fn another_leader_keeps_the_doubt() {
    let mut bench = crashed("", |bench| drop(bench.stop()));
    bench.lead();
    assert_eq!(bench.run("attach 2.1 a 9\nattach 3.1 a 0 steals:east"), "ok ok 3.1<m 3.1<n");
}

#[test]
fn deliveries_to_a_link_leave_when_they_are_recorded() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 9 a m\nsend 9 a n\nsend 9 a o volatile\nattach 2.1 b 9");
    bench.late_from_now_on();
    assert_eq!(bench.run("attach 1.1 a 3 steals:east\nsend 9 b p volatile"), "ok 1.1<o 2.1<p ok");
    bench.first_durable();
    assert_eq!(bench.run(""), "1.1<m 1.1<n", "in one record");
    // Its consumer has gone before the record was there.
    bench.all_durable();
    bench.run("detach 1.1 none");
    bench.late_from_now_on();
    bench.run("attach 1.2 a 3 steals:east\ndetach 1.2 none");
    assert_eq!(bench.all_durable(), "", "nothing leaves");
    bench.run("time 9");
    bench.restart();
    assert_eq!(bench.run("attach 2.1 a 9"), "ok 2.1<m 2.1<n", "nothing is in doubt");
}

#[test]
fn a_log_that_refuses_the_record_does_not_stop_the_link() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 9 a m");
    bench.late_from_now_on();
    bench.run("attach 1.1 a 3 steals:east");
    assert_eq!(bench.all_fail(), "1.1<m");
}
