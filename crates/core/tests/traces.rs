//! The steps of traced messages that a partition reports, and their bounds. See `bench` for the
//! words.

mod bench;

use bench::{Bench, settings};
use postroad_core::{FOLLOWED_MAX, QUEUES_MAX};

#[test]
fn each_step_of_a_traced_message_is_reported() {
    let all = "7:ready a 0/0, 7:delivered 1.1, 7:settled Accepted, 7:ended Consumed, 7:Gone";
    for (name, script, want) in [
        ("untraced", "send 2 a m\nattach 1.1 a 1\naccept 1.1 m", ""),
        ("durable", "send 2 a m trace=7\nattach 1.1 a 1\naccept 1.1 m", all),
        ("in memory alone", "send 2 a m volatile trace=7\nattach 1.1 a 1\naccept 1.1 m", all),
        (
            "behind another, for a consumer without credit",
            "attach 1.1 a 1\nsend 2 a l\nsend 2 a m trace=7\naccept 1.1 l\ncredit 1.1 1",
            "7:ready a 1/1, 7:delivered 1.1",
        ),
        (
            "delivered again",
            "attach 1.1 a 1\nsend 2 a m trace=7\nfail 1.1 m\ncredit 1.1 1\naccept 1.1 m",
            "7:ready a 0/1, 7:delivered 1.1, 7:settled Released { failed: true }, 7:delivered 1.1, \
             7:settled Accepted, 7:ended Consumed, 7:Gone",
        ),
        (
            "a connection ends, another one gets it",
            "attach 1.1 a 1\nsend 2 a m trace=7\nclose 1\nattach 3.1 a 1",
            "7:ready a 0/1, 7:delivered 1.1, 7:delivered 3.1",
        ),
        ("browsers do not count", "attach 1.1 a 1 browse\nsend 2 a m trace=7", "7:ready a 0/1"),
        ("two queues", "send 2 a,b m trace=7", "7:ready a 0/0, 7:ready b 0/0"),
        ("two messages", "send 2 a m trace=7\nsend 2 a n trace=8", "7:ready a 0/0, 8:ready a 1/0"),
        ("a topic without subscriptions", "send 2 #t m trace=7", "7:Gone"),
        ("scheduled", "send 2 a m at=9 trace=7\ntime 9\nattach 1.1 a 1", "7:Scheduled"),
        ("not committed", "send 2 a m tx=1 trace=7", ""),
        ("committed", "send 2 a m tx=1 trace=7\ncommit 2 1", "7:ready a 0/0"),
        (
            "settled in a transaction",
            "attach 1.1 a 1\nsend 2 a m trace=7\naccept 1.1 m tx=1\ncommit 1 1",
            "7:ready a 0/1, 7:delivered 1.1, 7:settled Accepted, 7:ended Consumed, 7:Gone",
        ),
        ("expired", "send 2 a m until=5 trace=7\ntime 9", "7:ready a 0/0, 7:ended Expired, 7:Gone"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(script);
        assert_eq!(bench.traced.join(", "), want, "case: {name}");
    }
}

#[test]
fn records_and_snapshots_know_nothing_of_traces() {
    let script = |trace: &str| {
        format!("send 2 a m {trace}\nsend 2 a,b n {trace}\nsend 2 a o tx=1 {trace}\ncommit 2 1")
    };
    let (mut with, mut without) = (Bench::new(settings(1)), Bench::new(settings(1)));
    with.run(&script("trace=7"));
    without.run(&script(""));
    assert_eq!(with.log, without.log);
    let written = |bench: &Bench| bench.partitions[0].snapshot_pieces().byte_length();
    assert_eq!(written(&with), written(&without));
    with.traced.clear();
    with.restart();
    with.run("attach 1.1 a 9");
    assert_eq!(with.traced, Vec::<String>::new(), "the next leader follows none of them");
}

#[test]
fn a_leader_that_stops_follows_no_message_any_more() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 2 a m trace=7");
    bench.stop();
    bench.lead();
    bench.run("attach 1.1 a 9");
    assert_eq!(bench.traced.join(", "), "7:ready a 0/0");
}

#[test]
fn at_the_bound_further_messages_are_not_followed_until_one_has_gone() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 a 1");
    for number in 1..=FOLLOWED_MAX + 1 {
        bench.run(&format!("send 2 a m{number} trace={number}"));
    }
    let last = FOLLOWED_MAX + 1;
    assert_eq!(bench.traced.last(), Some(&format!("{last}:NotFollowed")));
    bench.traced.clear();
    bench.run("accept 1.1 m1\nsend 2 a next trace=9999");
    assert_eq!(bench.traced.last(), Some(&format!("9999:ready a {FOLLOWED_MAX}/1")));
}

#[test]
fn of_a_message_in_many_queues_some_are_reported() {
    let mut bench = Bench::new(settings(1));
    for number in 1..=QUEUES_MAX + 2 {
        bench.run(&format!("attach 1.{number} #t 0"));
    }
    bench.run("send 2 #t m trace=7");
    assert_eq!(bench.traced.len(), QUEUES_MAX as usize);
}
