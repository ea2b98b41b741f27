//! Durable subscriptions that have had no reader for too long, case by case. See `bench` for the
//! words.

mod bench;

use bench::{Bench, settings};
use postroad_routing::Policies;

/// Subscriptions end after this time.
const LIMIT_MS: u64 = 1000;

/// `s` has two messages, and no reader since 100.
const BEGUN: &str = "time 100\nattach 1.1 #t 0 sub=s\nsend 9 #t m\nsend 9 #t n\ndetach 1.1 none";

fn policies(limit_ms: Option<u64>) -> Policies {
    let mut policies = Policies::default();
    policies.offline_subscription_ms = limit_ms;
    policies
}

fn begun() -> Bench {
    let mut bench = Bench::new(settings(1));
    bench.follow(policies(Some(LIMIT_MS)));
    assert_eq!(bench.run(BEGUN), "ok ok ok");
    bench
}

/// Whether a new reader of `s` finds its messages.
fn is_there(bench: &mut Bench) -> bool {
    bench.run("attach 8.1 #t 9 sub=s").contains("8.1<m")
}

#[test]
fn a_subscription_without_a_reader_ends_after_the_limit() {
    for (case, then, want) in [
        ("just before", "time 1099", ""),
        ("then", "time 1100", "s ended: 2 after 1000"),
        ("late", "time 5000", "s ended: 2 after 4900"),
        ("with a reader", "attach 2.1 #t 0 sub=s\ntime 9000", "ok"),
        ("since the last reader", "time 900\nattach 2.1 #t 0 sub=s\ndetach 2.1 none\ntime 1899", "ok"),
        (
            "after that",
            "time 900\nattach 2.1 #t 0 sub=s\ndetach 2.1 none\ntime 1900",
            "ok s ended: 2 after 1000",
        ),
        ("a lost connection", "attach 2.1 #t 0 sub=s\nclose 2\ntime 1100", "ok s ended: 2 after 1000"),
        ("one that its client has ended", "unsubscribe 9 s\ntime 9000", "ok"),
        ("set aside, with a link", "attach 2.1 #t 0 aside=s steals:east\ntime 9000", "ok"),
        ("a shared one", "attach 2.1 #t 0 sub=u share=durable\ntime 9000", "ok s ended: 2 after 8900"),
    ] {
        assert_eq!(begun().run(then), want, "case: {case}");
    }
    let mut bench = begun();
    bench.run("time 1100");
    assert!(!is_there(&mut bench), "its messages are gone, and a reader begins another one");
}

#[test]
fn a_volatile_subscription_is_none_of_these() {
    let mut bench = Bench::new(settings(1));
    bench.follow(policies(Some(LIMIT_MS)));
    assert_eq!(bench.run("attach 1.1 #t 0 sub=v share=volatile\ndetach 1.1 none\ntime 9000"), "ok");
}

#[test]
fn the_time_begins_with_the_limit_and_with_each_start() {
    let mut bench = Bench::new(settings(1));
    bench.run(BEGUN);
    assert_eq!(bench.run("time 9000"), "", "no limit");
    bench.follow(policies(Some(LIMIT_MS)));
    assert_eq!(bench.run("time 9000\ntime 9999"), "");
    bench.follow(policies(Some(2 * LIMIT_MS)));
    assert_eq!(bench.run("time 10999"), "", "a longer one goes on from there");
    assert_eq!(bench.run("time 11000"), "s ended: 2 after 2000");

    for (way, how) in [("restart", Bench::restart as fn(&mut Bench)), ("reload", Bench::reload)] {
        let mut bench = begun();
        bench.run("time 900");
        how(&mut bench);
        bench.run("time 900");
        assert_eq!(bench.run("time 1899"), "", "after: {way}");
        assert_eq!(bench.run("time 3000").split(" after").next(), Some("s ended: 2"), "after: {way}");
    }
    let mut bench = begun();
    bench.follow(policies(None));
    assert_eq!(bench.run("time 9000"), "", "no limit any more");
    assert!(is_there(&mut bench));
}

#[test]
fn many_end_in_steps() {
    let mut bench = Bench::new(settings(1));
    bench.follow(policies(Some(LIMIT_MS)));
    bench.run("time 1");
    for number in 0..100 {
        bench.run(&format!("attach 1.1 #t 0 sub=s{number}\ndetach 1.1 none"));
    }
    let mut steps = Vec::new();
    for now in 2000.. {
        let ended = bench.run(&format!("time {now}")).matches("ended").count();
        if ended == 0 {
            break;
        }
        steps.push(ended);
    }
    assert_eq!(steps, [16, 16, 16, 16, 16, 16, 4]);
}

#[test]
fn a_record_that_fails_ends_nothing() {
    let mut bench = begun();
    bench.late_from_now_on();
    assert_eq!(bench.run("time 1100"), "");
    assert_eq!(bench.run("attach 2.1 #t 9 sub=s"), "", "a reader waits for the verdict");
    assert_eq!(bench.all_fail(), "ok 2.1<m 2.1<n");
}
