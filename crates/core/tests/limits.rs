//! Limits of queues, and what others are told, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_routing::{AtLimit, DestinationPattern, Limit, Policies, Policy, Slow, WhenSlow};

fn limited(pattern: &str, limit: Limit) -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse(pattern).expect("a sound pattern"), policy);
    policies
}

fn messages(max: u64, action: AtLimit) -> Limit {
    Limit { messages_max: Some(max), action, ..Limit::default() }
}

/// Runs each case on one partition; compares what was said, what is held, now and after a restart, and how many were dropped.
fn check(policies: &Policies, cases: &[(&str, &str, &str, &str, u64)]) {
    for (name, script, want, held, dropped) in cases {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        assert_eq!(&bench.run(script), want, "case: {name}");
        assert_eq!(
            (bench.held().as_str(), bench.partitions[0].counters().overflowed),
            (*held, *dropped),
            "{name}"
        );
    }
}

#[test]
fn what_is_large_waits_for_room_as_well() {
    let limit = Limit { bytes_max: Some(100), action: AtLimit::Block, ..Limit::default() };
    let script = "send 1 a m\nsend 1 a n large=500\nattach 1.1 a 4\naccept 1.1 m";
    let cases = [("the first makes room", script, "ok ok 1.1<m 1.1<n ok ok", "a:1", 0)];
    check(&limited("queue://a", limit), &cases);
}

#[test]
fn at_a_limit_that_blocks_sends_wait_in_line_until_there_is_room() {
    check(
        &limited("queue://a", messages(2, AtLimit::Block)),
        &[
            (
                "room by consuming",
                "send 1 a m\nsend 1 a n\nsend 1 a o\nsend 2 a p\nattach 1.1 a 4\naccept 1.1 m\naccept 1.1 n",
                "ok ok ok 1.1<m 1.1<n 1.1<o ok ok 1.1<p ok ok",
                "a:2",
                0,
            ),
            (
                "in memory as on disk",
                "send 1 a m\nsend 1 a n volatile\nsend 1 a o volatile\nattach 1.1 a 4\naccept 1.1 m",
                "ok ok ok 1.1<m 1.1<n 1.1<o ok ok",
                "a:2",
                0,
            ),
            (
                "other queues go on",
                "send 1 a m\nsend 1 a n\nsend 1 a o\nsend 1 b m",
                "ok ok ok",
                "a:2 b:1",
                0,
            ),
            (
                "whoever leaves waits no more",
                "send 1 a m\nsend 1 a n\nsend 2 a o\nclose 2\nattach 1.1 a 4\naccept 1.1 m",
                "ok ok ok 1.1<m 1.1<n ok",
                "a:1",
                0,
            ),
            (
                "in a transaction nothing waits: it is refused, whole",
                "send 1 a m\nsend 1 a n\nsend 1 b o tx=1\nsend 1 a p tx=1\ncommit 1 1",
                "ok ok ok no: queue://a is at the limit that its policy sets, and takes no more messages until some are \
                 consumed no: queue://a is at the limit that its policy sets, and takes no more messages until some are \
                 consumed",
                "a:2",
                0,
            ),
            (
                "what is given back needs no room",
                "attach 1.1 a 9\nsend 1 a m\nsend 1 a n\nsend 1 a o\nclose 1\nattach 2.1 a 1",
                "ok 1.1<m ok 1.1<n ok ok 2.1<m!1",
                "a:2",
                0,
            ),
            (
                "deleted, it is as good as empty",
                "send 1 a m\nsend 1 a n\nsend 1 a o\nunmake 1 a",
                "ok ok ok ok",
                "a:1",
                0,
            ),
        ],
    );
}

#[test]
fn bytes_are_a_limit_too_and_one_message_is_never_too_large() {
    let limit = Limit { bytes_max: Some(5), ..Limit::default() };
    check(
        &limited("queue://>", limit),
        &[
            ("fits", "send 1 a mm\nsend 1 a nnn", "ok ok", "a:2", 0),
            ("does not fit", "send 1 a mmm\nsend 1 a nnn", "ok", "a:1", 0),
            ("alone", "send 1 a mmmmmmmmm\nsend 1 a n", "ok", "a:1", 0),
        ],
    );
}

#[test]
fn at_a_limit_that_fails_sends_are_refused_after_a_while() {
    let limit = Limit { wait_ms: 10, ..messages(1, AtLimit::Fail) };
    let no = "no: queue://a is at the limit that its policy sets, and takes no more messages until some are consumed";
    check(
        &limited("queue://a", limit),
        &[
            ("late", "time 5\nsend 1 a m\nsend 1 a n\ntime 14\ntime 15", &format!("ok {no}"), "a:1", 0),
            (
                "in time",
                "time 5\nsend 1 a m\nsend 1 a n\nattach 1.1 a 9\ntime 14\naccept 1.1 m\ntime 15",
                "ok ok 1.1<m 1.1<n ok ok",
                "a:1",
                0,
            ),
        ],
    );
    let mut bench = Bench::new(settings(1));
    bench.follow(limited("queue://a", messages(1, AtLimit::Fail)));
    assert_eq!(bench.run("send 1 a m\nsend 1 a n"), format!("ok {no}"), "at once");
}

#[test]
fn sends_on_their_way_to_the_log_count() {
    let mut bench = Bench::new(settings(1));
    bench.follow(limited("queue://a", messages(2, AtLimit::Block)));
    bench.run("send 1 a m");
    assert_eq!(bench.run_late("send 1 a n", "send 1 a o"), "ok");
    assert_eq!(
        (bench.held().as_str(), bench.run("attach 1.1 a 1\naccept 1.1 m").as_str()),
        ("a:2", "ok 1.1<m ok ok")
    );
}

#[test]
fn a_ring_keeps_the_newest_and_a_full_cup_the_oldest() {
    check(
        &limited("queue://a", messages(2, AtLimit::DropOldest)),
        &[
            (
                "ring",
                "send 1 a m\nsend 1 a n\nsend 1 a o\nattach 1.1 a 9",
                "ok ok ok ok 1.1<n 1.1<o",
                "a:2",
                1,
            ),
            (
                "what a consumer holds stays",
                "attach 1.1 a 2\nsend 1 a m\nsend 1 a n\nsend 1 a o\nsend 1 a p\ncredit 1.1 9",
                "ok 1.1<m ok 1.1<n ok ok ok 1.1<o 1.1<p",
                "a:4",
                0,
            ),
            (
                "of the lowest priority",
                "send 1 a m priority=9\nsend 1 a n priority=1\nsend 1 a o\nattach 1.1 a 9",
                "ok ok ok ok 1.1<m 1.1<o",
                "a:2",
                1,
            ),
            (
                "in memory",
                "send 1 a m volatile\nsend 1 a n volatile\nsend 1 a o volatile",
                "ok ok ok",
                "a:2",
                1,
            ),
            (
                "committed",
                "send 1 a m tx=1\nsend 1 a n tx=1\nsend 1 a o tx=1\ncommit 1 1\nattach 1.1 a 9",
                "ok ok ok ok ok 1.1<n 1.1<o",
                "a:2",
                1,
            ),
        ],
    );
    check(
        &limited("queue://a", messages(2, AtLimit::DropNewest)),
        &[
            (
                "cup",
                "send 1 a m\nsend 1 a n\nsend 1 a o\nattach 1.1 a 9",
                "ok ok ok ok 1.1<m 1.1<n",
                "a:2",
                1,
            ),
            ("others", "send 1 b m\nsend 1 b n\nsend 1 b o", "ok ok ok", "b:3", 0),
        ],
    );
}

#[test]
fn each_subscription_of_a_topic_has_the_limit() {
    check(
        &limited("topic://t", messages(1, AtLimit::DropOldest)),
        &[(
            "a slow one loses, the other does not",
            "attach 1.1 #t 0 sub=s\nattach 1.2 #t 0\nattach 1.3 #t 9\nsend 1 #t m\nsend 1 #t n\ncredit 1.1 9\ncredit 1.2 9",
            "ok ok ok 1.3<m ok 1.3<n ok 1.1<n 1.2<n",
            "t:1 t:1 t:2",
            2,
        )],
    );
}

#[test]
fn drops_are_in_the_log_and_new_limits_count_at_once() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m\nsend 1 a n\nsend 1 a o");
    bench.follow(limited("queue://a", messages(2, AtLimit::DropOldest)));
    assert_eq!(bench.held(), "a:2");
    bench.follow(Policies::default());
    bench.restart();
    assert_eq!((bench.held().as_str(), bench.run("attach 1.1 a 9").as_str()), ("a:2", "ok 1.1<n 1.1<o"));
    bench.run("close 1");
    bench.settings.policies = std::sync::Arc::new(limited("queue://a", messages(1, AtLimit::DropNewest)));
    bench.reload();
    assert_eq!((bench.held().as_str(), bench.partitions[0].counters().overflowed), ("a:1", 1));
}

#[test]
fn others_are_told_what_comes_and_goes() {
    for (case, script, want) in [
        ("client", "listen\nintroduce 1\nintroduce 1\nclose 1", "[1] [1 gone]"),
        ("queue", "listen\nsend 1 a m\nsend 1 a n\nunmake 1 a", "ok [queue://a] ok ok [queue://a gone]"),
        (
            "temporary",
            "listen\nmake 1 ~a\nmake 1 ~a\nclose 1",
            "ok [temp-queue://a] ok [temp-queue://a gone]",
        ),
        (
            "consumers of an ended connection",
            "listen\nattach 1.1 #t 1\nattach 1.2 #t 1\ndetach 1.2 all\nclose 1",
            "ok [1.1] [topic://t] ok [1.2] [1.2 gone] [1.1 gone]",
        ),
        (
            "producers",
            "listen\nproduce 1 #t\nproduce 1 a\nleave 1 #t\nleave 1 #t\nclose 1",
            "[1>#t] [topic://t] [1>a] [1>#t gone] [1>a gone]",
        ),
        (
            "dead letters",
            "send 1 a m\nattach 1.1 a 1\nlisten\nreject 1.1 m",
            "ok ok 1.1<m [DeadLettered m] ok [queue://dead]",
        ),
        ("expired", "send 1 a m until=5 volatile\nlisten\ntime 5", "ok [Expired m]"),
    ] {
        assert_eq!(Bench::new(settings(1)).run(script), want, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    bench.follow(limited("queue://a", messages(1, AtLimit::Block)));
    assert_eq!(bench.run("send 1 a m\nlisten\nsend 1 a n\nsend 1 a o"), "ok [queue://a full]");
    bench.follow(limited("queue://a", messages(1, AtLimit::DropOldest)));
    assert_eq!(bench.run("send 1 a p"), "[Discarded m] ok ok [Discarded n] [Discarded o] ok");
}

#[test]
fn a_last_value_queue_keeps_the_newest_of_each_value() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { last_value: Some("k".into()), ..policies.fallback().clone() };
    for pattern in ["queue://a", "topic://t"] {
        policies.set(&DestinationPattern::parse(pattern).unwrap(), policy.clone());
    }
    let held = "attach 1.1 a 1\nsend 1 a m?k=1\nsend 1 a n?k=1\n";
    for (case, script, want, left, replaced) in [
        (
            "superseded",
            "send 1 a m?k=1\nsend 1 a n?k=2\nsend 1 a o?k=1\nsend 1 a p\nattach 1.1 a 9".to_owned(),
            "ok ok ok ok ok 1.1<n?k=2 1.1<o?k=1 1.1<p",
            "a:3",
            1,
        ),
        (
            "in memory as on disk",
            "send 1 a m?k=1 volatile\nsend 1 a n?k=1\nsend 1 a o?k=1 volatile\nattach 1.1 a 9".to_owned(),
            "ok ok ok ok 1.1<o?k=1",
            "a:1",
            2,
        ),
        (
            "in one transaction",
            "send 1 a m?k=1 tx=1\nsend 1 a n?k=1 tx=1\ncommit 1 1\nattach 1.1 a 9".to_owned(),
            "ok ok ok ok 1.1<n?k=1",
            "a:1",
            1,
        ),
        (
            "what a consumer has it may keep",
            format!("{held}accept 1.1 m?k=1\ncredit 1.1 9"),
            "ok 1.1<m?k=1 ok ok ok 1.1<n?k=1",
            "a:1",
            0,
        ),
        (
            "given back it leaves",
            format!("{held}fail 1.1 m?k=1\ncredit 1.1 9"),
            "ok 1.1<m?k=1 ok ok ok 1.1<n?k=1",
            "a:1",
            1,
        ),
        (
            "by an ended connection too",
            format!("{held}close 1\nattach 2.1 a 9"),
            "ok 1.1<m?k=1 ok ok ok 2.1<n?k=1",
            "a:1",
            1,
        ),
        (
            "each subscription",
            "attach 1.1 #t 0 sub=s\nsend 1 #t m?k=1\nsend 1 #t n?k=1\ncredit 1.1 9".to_owned(),
            "ok ok ok 1.1<n?k=1",
            "t:1",
            1,
        ),
        ("other queues", "send 1 b m?k=1\nsend 1 b n?k=1".to_owned(), "ok ok", "b:2", 0),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        assert_eq!(bench.run(&script), want, "case: {case}");
        let counted = bench.partitions[0].counters().replaced;
        assert_eq!((bench.held().as_str(), counted), (left, replaced), "case: {case}");
    }
    for by_snapshot in [false, true] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        // Superseded in a consumer's hands when the broker stops; and over two lanes.
        bench.run(&format!("{held}send 1 a o?k=2 priority=9\nsend 1 a p?k=2 priority=1"));
        assert_eq!(bench.held(), "a:3");
        if by_snapshot {
            bench.reload()
        } else {
            bench.restart()
        }
        assert_eq!(
            (bench.held().as_str(), bench.run("attach 2.1 a 9").as_str()),
            ("a:2", "ok 2.1<n?k=1 2.1<p?k=2"),
            "by snapshot: {by_snapshot}"
        );
    }
}

#[test]
fn a_consumer_that_says_nothing_for_too_long_is_slow() {
    let policies = |then| {
        let mut policies = Policies::with_dead_letters_in("dead");
        let slow = Slow { after_ms: Some(1000), then };
        let policy = Policy { slow, ..policies.fallback().clone() };
        policies.set(&DestinationPattern::parse("queue://a").unwrap(), policy);
        policies
    };
    let begin = "time 10\nattach 1.1 a 2\nsend 2 a m\nsend 2 a n\nsend 2 a o\nattach 2.1 a 0\nlisten\n";
    let begun = "ok 1.1<m ok 1.1<n ok ok ok";
    for (case, then, script, want) in [
        ("not yet", WhenSlow::Detach, "time 999\ntime 1009", ""),
        ("told once", WhenSlow::Tell, "time 1010\ntime 1210\ntime 9000", " [1.1 slow]"),
        (
            "told again after it spoke",
            WhenSlow::Tell,
            "time 1010\naccept 1.1 m\ntime 2010",
            " [1.1 slow] ok [1.1 slow]",
        ),
        (
            "who speaks is not",
            WhenSlow::Detach,
            "time 900\naccept 1.1 m\ntime 1800\naccept 1.1 n\ntime 9000",
            " ok ok",
        ),
        (
            "detached",
            WhenSlow::Detach,
            "time 500\ncredit 2.1 9\ntime 1010",
            " 2.1<o [1.1 slow] 1.1 detached [1.1 gone] 2.1<m!1 2.1<n!1",
        ),
        (
            "taken back, in order, and given to others",
            WhenSlow::TakeBack,
            "time 1010\ncredit 2.1 9\naccept 2.1 m n o",
            " [1.1 slow] 2.1<m!1 2.1<n!1 2.1<o ok",
        ),
        ("not given to itself", WhenSlow::TakeBack, "credit 1.1 5\ntime 1010", " 1.1<o [1.1 slow]"),
        (
            "nobody else has had it: an acknowledgement counts, and there is credit again",
            WhenSlow::TakeBack,
            "credit 1.1 2\ntime 1010\naccept 1.1 m",
            " 1.1<o [1.1 slow] 1.1<n!1 ok",
        ),
        (
            "somebody else has it",
            WhenSlow::TakeBack,
            "time 1010\ncredit 2.1 1\naccept 1.1 m n",
            " [1.1 slow] 2.1<m!1 no: the message was taken back, for the consumer said nothing about it for too long, and was \
             delivered to another",
        ),
        (
            "in a transaction",
            WhenSlow::TakeBack,
            "time 1010\ncredit 2.1 1\naccept 1.1 m tx=1\ncommit 1 1",
            " [1.1 slow] 2.1<m!1 no: the message was taken back, for the consumer said nothing about it for too long, and was \
             delivered to another no: the message was taken back, for the consumer said nothing about it for too long, and \
             was delivered to another",
        ),
        (
            "what a transaction will settle stays",
            WhenSlow::TakeBack,
            "accept 1.1 m tx=1\ntime 1010\ncredit 2.1 9\ncommit 1 1",
            " ok [1.1 slow] 2.1<n!1 2.1<o ok",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies(then));
        assert_eq!(bench.run(&format!("{begin}{script}")), format!("{begun}{want}"), "case: {case}");
    }
}
