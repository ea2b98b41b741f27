//! Limits of queues, and their advisories, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_routing::{
    AtLimit, DestinationPattern, Evicted, Limit, Pending, Policies, Policy, Quota, Slow, SlowAction, Tenant,
};

fn limited(pattern: &str, limit: Limit) -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse(pattern).expect("a sound pattern"), policy);
    policies
}

fn messages(max: u64, action: AtLimit) -> Limit {
    Limit { messages_max: Some(max), action, ..Limit::default() }
}

/// Runs each case on one partition; compares answers, contents, now and after a restart, and the
/// number of drops.
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
    let limit = Limit { bytes_max: Some(5), action: AtLimit::Block, ..Limit::default() };
    let script = "send 1 a m\npiece 1 7 a abcdef\nsend 1 a n upload=7\nattach 1.1 a 4\naccept 1.1 m";
    let cases = [("the first makes room", script, "ok ok ok 1.1<m 1.1<n+abcdef ok ok", "a:1", 0)];
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
                "ok ok ok no: queue://a is at the limit of its policy (messages_max = 2), and refuses messages until some are consumed no: queue://a is at the limit of its policy (messages_max = 2), and refuses messages until some are consumed",
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
    let no = "no: queue://a is at the limit of its policy (messages_max = 1), and refuses messages until some are consumed";
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

/// The pending limits of volatile subscribers of `#t`, which would otherwise hold one message.
fn pending(pending: Pending) -> Policies {
    let mut policies = Policies::default();
    let policy = Policy { pending, limit: messages(1, AtLimit::Block), ..Policy::default() };
    policies.set(&DestinationPattern::parse("topic://t").expect("a sound pattern"), policy);
    policies
}

#[test]
fn volatile_subscribers_lose_what_is_too_much_for_them() {
    let two = Pending { messages_max: Some(2), ..Pending::default() };
    let percent = |percent| Pending { prefetch_percent_max: Some(percent), ..two };
    for (case, decided, prefetch, came, dropped) in [
        ("the oldest", two, 0, "1.1<o 1.1<p", 2),
        ("beyond what it was sent", two, 1, "1.1<m 1.1<o 1.1<p", 1),
        ("of the lowest priority", Pending { evicted: Evicted::LowestPriority, ..two }, 0, "1.1<m 1.1<p", 2),
        (
            "by prefetch, rounded down",
            Pending { messages_max: None, ..percent(250) },
            1,
            "1.1<m 1.1<o 1.1<p",
            1,
        ),
        ("the smaller", percent(100), 1, "1.1<m 1.1<p", 2),
        ("who asks for each message has no prefetch", percent(100), 0, "1.1<o 1.1<p", 2),
        ("one at least may wait", Pending { messages_max: Some(0), ..two }, 0, "1.1<p", 3),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(pending(decided));
        let script = "send 1 #t m volatile priority=9\nsend 1 #t n volatile\nsend 1 #t o volatile\nsend 1 #t p volatile";
        let said = bench.run(&format!("attach 1.1 #t {prefetch}\n{script}\ncredit 1.1 9"));
        let said: Vec<&str> = said.split_whitespace().filter(|word| *word != "ok").collect();
        let lost = bench.partitions[0].counters().overflowed;
        assert_eq!((said.join(" ").as_str(), lost), (came, dropped), "case: {case}");
    }
}

#[test]
fn durable_subscriptions_keep_what_volatile_ones_lose() {
    let mut bench = Bench::new(settings(1));
    bench.follow(pending(Pending { messages_max: Some(1), ..Pending::default() }));
    let said = bench
        .run("attach 1.1 #t 0 sub=s\nattach 1.2 #t 0\nsend 1 #t m\nsend 1 #t n\ncredit 1.2 9\ncredit 1.1 9");
    assert_eq!(
        said, "ok ok ok 1.2<m 1.1<m",
        "the limit of the topic is that of its durable subscriptions, and blocks"
    );
    assert_eq!(bench.run("accept 1.1 m"), "1.1<n 1.2<n ok ok");
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
            "a durable subscription that ends",
            "attach 1.1 #t 1 sub=1:c:s\ndetach 1.1 all\nlisten\nunsubscribe 2 1:c:s",
            "ok [c:s ended] ok",
        ),
        (
            "a durable subscription that reads another topic",
            "attach 1.1 #t 1 sub=1:c:s\ndetach 1.1 all\nlisten\nattach 1.2 #u 1 sub=1:c:s",
            "ok [c:s ended] ok [1.2] [topic://u]",
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
fn what_was_superseded_is_not_delivered_as_a_send_is_let_in_where_another_leaves() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { last_value: Some("k".into()), ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").unwrap(), policy);
    let mut bench = Bench::new(postroad_core::Settings { volatile_bytes_max: 20, ..settings(1) });
    bench.follow(policies);
    bench.run("attach 1.1 a 9\nsend 1 a m?k=1 volatile\nsend 1 a n?k=1\nsend 1 a o?k=1");
    assert_eq!(bench.run("send 2 a p volatile"), "", "it waits for the memory that m takes");
    assert_eq!(bench.run("fail 1.1 m?k=1 n?k=1"), "ok 1.1<p ok");
    assert_eq!((bench.held().as_str(), bench.partitions[0].counters().replaced), ("a:2", 2));
}

#[test]
fn what_was_superseded_in_a_prepared_branch_leaves_when_that_is_rolled_back() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { last_value: Some("k".into()), ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").unwrap(), policy);
    for restarts in [false, true] {
        let mut bench = Bench::new(settings(1));
        bench.settings.policies = std::sync::Arc::new(policies.clone());
        bench.follow(policies.clone());
        bench.run("attach 1.1 a 9\nsend 1 a m?k=1\nsend 1 a n?k=1\naccept 1.1 n?k=1");
        bench.run("accept 1.1 m?k=1 tx=1\nend 1 1 x\nprepare 1 x\ndetach 1.1 none");
        if restarts {
            bench.restart();
        }
        bench.run("decide 2 x rollback");
        assert_eq!(bench.run("attach 2.1 a 9"), "ok", "restarts: {restarts}");
        assert_eq!(bench.held(), "", "restarts: {restarts}");
    }
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
    let lost = "no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer";
    for (case, then, script, want) in [
        ("not yet", SlowAction::Detach, "time 999\ntime 1009", ""),
        ("told once", SlowAction::Advise, "time 1010\ntime 1210\ntime 9000", " [1.1 slow]"),
        (
            "told again after it spoke",
            SlowAction::Advise,
            "time 1010\naccept 1.1 m\ntime 2010",
            " [1.1 slow] ok [1.1 slow]",
        ),
        (
            "who speaks is not",
            SlowAction::Detach,
            "time 900\naccept 1.1 m\ntime 1800\naccept 1.1 n\ntime 9000",
            " ok ok",
        ),
        (
            "detached",
            SlowAction::Detach,
            "time 500\ncredit 2.1 9\ntime 1010",
            " 2.1<o [1.1 slow] 1.1 detached [1.1 gone] 2.1<m!1 2.1<n!1",
        ),
        (
            "what it says once it is detached comes too late",
            SlowAction::Detach,
            "time 1010\naccept 1.1 m\nreject 1.1 m\nrelease 1.1 n\naccept 1.1 n tx=1\ncommit 1 1\ncredit 2.1 9",
            &format!(
                " [1.1 slow] 1.1 detached [1.1 gone] {lost} {lost} ok {lost} {lost} 2.1<m!1 2.1<n!1 2.1<o"
            ),
        ),
        (
            "taken back, in order, and given to others",
            SlowAction::Requeue,
            "time 1010\ncredit 2.1 9\naccept 2.1 m n o",
            " [1.1 slow] 2.1<m!1 2.1<n!1 2.1<o ok",
        ),
        ("not given to itself", SlowAction::Requeue, "credit 1.1 5\ntime 1010", " 1.1<o [1.1 slow]"),
        (
            "nobody else has had it: an acknowledgement counts, and there is credit again",
            SlowAction::Requeue,
            "credit 1.1 2\ntime 1010\naccept 1.1 m",
            " 1.1<o [1.1 slow] ok 1.1<n!1",
        ),
        (
            "what it gives back is ahead of the rest",
            SlowAction::Requeue,
            "credit 1.1 2\ntime 1010\nrelease 1.1 m",
            " 1.1<o [1.1 slow] ok 1.1<m!1",
        ),
        (
            "somebody else has it",
            SlowAction::Requeue,
            "time 1010\ncredit 2.1 1\naccept 1.1 m n",
            " [1.1 slow] 2.1<m!1 no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer",
        ),
        (
            "what it gives back it need not have any more",
            SlowAction::Requeue,
            "time 1010\ncredit 2.1 1\nrelease 1.1 m n\ncredit 2.1 9",
            " [1.1 slow] 2.1<m!1 ok 2.1<n!1 2.1<o",
        ),
        (
            "credit that it has drained does not come back when it speaks",
            SlowAction::Requeue,
            "credit 1.1 2\ntime 1010\ndrain 1.1\naccept 1.1 m\ncredit 1.1 1",
            " 1.1<o [1.1 slow] 1.1 drained ok 1.1<n!1",
        ),
        (
            "however often it says so",
            SlowAction::Requeue,
            "time 1010\ncredit 2.1 1\naccept 1.1 m n\naccept 1.1 m\naccept 1.1 n\ncredit 2.1 9",
            &format!(" [1.1 slow] 2.1<m!1 {lost} {lost} ok 2.1<o"),
        ),
        (
            "what came to it twice it may give back once, for the first time, and then accept: another has it by then",
            SlowAction::Requeue,
            "time 1010\naccept 1.1 n\ncredit 1.1 1\nfail 1.1 m\ncredit 2.1 1\naccept 1.1 m\naccept 2.1 m",
            &format!(" [1.1 slow] ok 1.1<m!1 ok 2.1<m!2 {lost} ok"),
        ),
        (
            "or nobody has",
            SlowAction::Requeue,
            "time 1010\naccept 1.1 n\ncredit 1.1 1\nfail 1.1 m\naccept 1.1 m\ncredit 2.1 9",
            " [1.1 slow] ok 1.1<m!1 ok ok 2.1<o",
        ),
        (
            "or it accepts twice",
            SlowAction::Requeue,
            "time 1010\naccept 1.1 n\ncredit 1.1 1\naccept 1.1 m\naccept 1.1 m\ncredit 2.1 9",
            " [1.1 slow] ok 1.1<m!1 ok ok 2.1<o",
        ),
        (
            "in a transaction",
            SlowAction::Requeue,
            "time 1010\ncredit 2.1 1\naccept 1.1 m tx=1\ncommit 1 1",
            " [1.1 slow] 2.1<m!1 no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer no: the message was requeued, because the consumer did not settle it in time, and delivered to another consumer",
        ),
        (
            "what a transaction will settle stays",
            SlowAction::Requeue,
            "accept 1.1 m tx=1\ntime 1010\ncredit 2.1 9\ncommit 1 1",
            " ok [1.1 slow] 2.1<n!1 2.1<o ok",
        ),
        (
            "who has spoken about everything in a transaction is not slow, and goes on",
            SlowAction::Requeue,
            "accept 1.1 m n tx=1\ntime 1010\ntime 2500\ncommit 1 1\ncredit 1.1 1",
            " ok ok 1.1<o",
        ),
        (
            "it need not ask for more",
            SlowAction::Requeue,
            "credit 1.1 3\naccept 1.1 m n o tx=1\ntime 1010\ncommit 1 1\nsend 2 a p\ntime 3000\ntime 4100",
            " 1.1<o ok ok 1.1<p ok [1.1 slow]",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies(then));
        assert_eq!(bench.run(&format!("{begin}{script}")), format!("{begun}{want}"), "case: {case}");
    }
}

#[test]
fn what_a_verdict_names_twice_is_judged_once() {
    for (word, want, held) in [
        ("accept", "ok", ""),
        ("reject", "ok", "dead:1"),
        ("release", "ok 1.1<m", "a:1"),
        ("fail", "ok 1.1<m!1", "a:1"),
        ("retry", "ok", "a:1"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run("send 2 a m\nattach 1.1 a 9");
        assert_eq!(bench.run(&format!("{word} 1.1 m m")), want, "{word}");
        assert_eq!(bench.held(), held, "{word}");
        assert_eq!(bench.partitions[0].miscounted(), None, "{word}");
    }
}

/// Two tenants, each with this limit for all that it owns, and one for the broker.
fn shared(tenant: Limit, broker: Limit) -> Policies {
    let mut policies = tenants(tenant, Quota::default());
    policies.limit = broker;
    policies
}

/// Two tenants, each with this limit and quota.
fn tenants(limit: Limit, quota: Quota) -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    for name in ["acme", "lab"] {
        let owns = [format!("queue://{name}.>"), format!("topic://{name}.>")];
        let owns = owns.map(|text| DestinationPattern::parse(&text).expect("a sound pattern"));
        let tenant = Tenant { quota, ..Tenant::new(name, limit) };
        policies.tenants.add(tenant, &owns).expect("sound tenants");
    }
    policies
}

#[test]
fn all_that_a_tenant_owns_has_one_limit_together() {
    let tenant = |limit| shared(limit, Limit::default());
    let bytes = |max| Limit { bytes_max: Some(max), ..Limit::default() };
    let disk = |max| Limit { disk_bytes_max: Some(max), ..Limit::default() };
    let fail = Limit { wait_ms: 50, ..messages(2, AtLimit::Fail) };
    let two = messages(2, AtLimit::Block);
    for (name, policies, script, want, held) in [
        (
            "whatever the queue, the new one too; others go on",
            tenant(two),
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.c o\nsend 2 acme.a p\nsend 3 lab.a q\nsend 3 b r",
            "ok ok ok ok",
            "acme.a:1 acme.b:1 b:1 lab.a:1",
        ),
        (
            "room in one lets others in, the longest waiting first",
            tenant(two),
            "send 1 acme.a m\nsend 1 acme.a n\nsend 1 acme.c o\nsend 2 acme.b p\nattach 3.1 acme.a 9\naccept 3.1 m",
            "ok ok ok 3.1<m 3.1<n ok ok",
            "acme.a:1 acme.c:1",
        ),
        (
            "by bytes",
            tenant(bytes(5)),
            "send 1 acme.a mmm\nsend 1 acme.b nnn\nsend 1 acme.a oo",
            "ok ok",
            "acme.a:2",
        ),
        (
            "one message is never too large",
            tenant(bytes(2)),
            "send 1 acme.a mmm\nsend 1 acme.b n",
            "ok",
            "acme.a:1",
        ),
        (
            "by bytes on the disk: what is in memory alone is not held up, nor counted",
            tenant(disk(3)),
            "send 1 acme.a mm\nsend 1 acme.a nn volatile\nsend 1 acme.b o\nsend 1 acme.b p\nsend 1 acme.b q volatile",
            "ok ok ok",
            "acme.a:2 acme.b:1",
        ),
        (
            "each subscription of a topic counts",
            tenant(two),
            "attach 1.1 #acme.t 0 sub=s\nattach 1.2 #acme.t 0 sub=u\nsend 2 #acme.t m\nsend 2 acme.a n",
            "ok ok ok",
            "acme.t:1 acme.t:1",
        ),
        (
            "refused in time",
            tenant(fail),
            "time 100\nsend 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.c o\ntime 149\ntime 150",
            "ok ok no: queue://acme.c refuses messages until some are consumed: the tenant acme is at the limit (messages_max = 2)",
            "acme.a:1 acme.b:1",
        ),
        (
            "refused at once in a transaction",
            tenant(two),
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.c o tx=1\nrollback 1 1",
            "ok ok no: queue://acme.c refuses messages until some are consumed: the tenant acme is at the limit (messages_max = 2) ok",
            "acme.a:1 acme.b:1",
        ),
        (
            "the broker's counts for all",
            shared(two, messages(3, AtLimit::Fail)),
            "send 1 acme.a m\nsend 1 b n\nsend 1 lab.a o\nsend 1 c p",
            "ok ok ok no: queue://c refuses messages until some are consumed: the broker is at the limit (messages_max = 3)",
            "acme.a:1 b:1 lab.a:1",
        ),
        (
            "what is due later counts when it is due",
            tenant(messages(1, AtLimit::Block)),
            "send 1 acme.a m\nsend 1 acme.b n at=9\nsend 1 acme.a o at=9\ntime 9",
            "ok ok ok",
            "acme.a:2 acme.b:1",
        ),
        (
            "a queue that goes makes room",
            tenant(two),
            "send 1 acme.a m\nsend 1 acme.a n\nsend 1 acme.b o\nunmake 2 acme.a",
            "ok ok ok ok",
            "acme.b:1",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies);
        assert_eq!((bench.run(script).as_str(), bench.held().as_str()), (want, held), "case: {name}");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {name}");
        bench.reload();
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {name}, after a start");
    }
}

#[test]
fn a_tenant_has_so_many_queues_and_no_more() {
    let two = || tenants(Limit::default(), Quota { queues_max: Some(2), ..Quota::default() });
    let full = "no: the tenant acme has its maximum of 2 queues: delete some, or have its queues_max raised";
    for (name, script, want, held) in [
        (
            "made by sends",
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.c o\nsend 1 acme.b p\nsend 1 lab.a q\nsend 1 c r",
            format!("ok ok {full} ok ok ok"),
            "acme.a:1 acme.b:2 c:1 lab.a:1",
        ),
        (
            "close together, before the log has any of them",
            "LATE send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.b o\nsend 1 acme.c p",
            format!("{full} ok ok ok"),
            "acme.a:1 acme.b:2",
        ),
        (
            "by readers and subscriptions",
            "attach 1.1 acme.a 1\nattach 1.2 #acme.t 0 sub=s\nattach 1.3 #acme.t 0 sub=u\nattach 1.4 acme.b 1\nattach 1.5 acme.a 1",
            format!("ok ok {full} {full} ok"),
            "",
        ),
        (
            "by messages in memory",
            "send 1 acme.a m volatile\nsend 1 acme.b n volatile\nsend 1 acme.c o volatile",
            format!("ok ok {full}"),
            "acme.a:1 acme.b:1",
        ),
        (
            "volatile subscriptions do not count",
            "attach 1.1 #acme.t 1\nattach 1.2 #acme.t 1\nattach 1.3 #acme.t 1\nsend 1 acme.a m",
            "ok ok ok ok".to_owned(),
            "acme.a:1",
        ),
        (
            "in a transaction: it is refused, whole",
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.a o tx=1\nsend 1 acme.c p tx=1\ncommit 1 1",
            format!("ok ok ok {full} {full}"),
            "acme.a:1 acme.b:1",
        ),
        (
            "first in a transaction, which takes nothing more",
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.c o tx=1\nsend 1 acme.a p tx=1\ncommit 1 1\n\
             send 1 acme.a q tx=2\ncommit 1 2",
            format!("ok ok {full} {full} {full} ok ok"),
            "acme.a:2 acme.b:1",
        ),
        (
            "in a transaction that is rolled back",
            "send 1 acme.a m\nsend 1 acme.b n\nsend 1 acme.a o tx=1\nsend 1 acme.c p tx=1\nrollback 1 1",
            format!("ok ok ok {full} ok"),
            "acme.a:1 acme.b:1",
        ),
        (
            "a queue that goes makes room",
            "send 1 acme.a m\nsend 1 acme.b n\nunmake 2 acme.a\nsend 1 acme.c o\nsend 1 acme.d p",
            format!("ok ok ok ok {full}"),
            "acme.b:1 acme.c:1",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(two());
        let answers = match script.strip_prefix("LATE ") {
            Some(script) => bench.run_all_late(script),
            None => bench.run(script),
        };
        assert_eq!((answers, bench.held().as_str()), (want, held), "case: {name}");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {name}");
        bench.reload();
        bench.follow(two());
        let more = bench.run("send 7 acme.x m\nsend 7 acme.y m\nsend 7 acme.z m");
        assert!(more.ends_with(full), "case: {name}, after a start: {more}");
    }
}

#[test]
fn partitions_share_a_limit_in_equal_parts() {
    let mut bench = Bench::new(settings(3));
    bench.follow(shared(messages(7, AtLimit::Block), Limit::default()));
    let parts = bench.partitions.iter().flat_map(|partition| partition.accounts());
    assert_eq!(parts.map(|(account, _)| account.limit.messages_max).collect::<Vec<_>>(), [Some(3); 6]);
}

#[test]
fn who_waits_for_a_tenant_is_asked_in_turns_and_only_as_room_is_made() {
    let mut bench = Bench::new(settings(1));
    bench.follow(shared(messages(3, AtLimit::Block), Limit::default()));
    let mut script = "send 1 acme.a m1\nsend 1 acme.a m2\nsend 1 acme.a m3\nattach 1.1 acme.a 9\n".to_owned();
    for topic in 0..100 {
        script += &format!("attach 2.{topic} #acme.t{topic} 0 sub=s{topic} where=k=1\n");
    }
    for number in 0..2 {
        (0..100).for_each(|topic| script += &format!("send 3 #acme.t{topic} x{number}?k=1\n"));
    }
    bench.run(&script);
    let before = bench::QUESTIONS.get();
    assert_eq!(bench.run("accept 1.1 m1\naccept 1.1 m2"), "ok ok ok ok");
    let asked = bench::QUESTIONS.get() - before;
    assert!(asked < 20, "{asked} looks at properties, where 200 sends wait");
    assert_eq!(bench.held(), "acme.a:1 acme.t0:1 acme.t1:1", "one of each, and not two of the first");
}

#[test]
fn sums_are_those_of_the_queues_whatever_happens() {
    for seed in 0..60_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut bench = Bench::new(settings(1));
        let policies = |random: &mut dyn FnMut(u64) -> u64| {
            let mut limit = || Limit {
                messages_max: Some(1 + random(5)),
                bytes_max: Some(1 + random(20)).filter(|max| *max > 8),
                disk_bytes_max: Some(1 + random(20)).filter(|max| *max > 8),
                ..Limit::default()
            };
            shared(limit(), limit())
        };
        bench.follow(policies(&mut random));
        let places = ["acme.a", "acme.b", "lab.a", "#acme.t", "free"];
        bench.run("attach 8.1 #acme.t 3 sub=s\nattach 8.2 #acme.t 3 where=k=1");
        places.iter().take(3).enumerate().for_each(|(number, place)| {
            bench.run(&format!("attach 9.{number} {place} 3"));
        });
        let mut sent = Vec::new();
        for step in 0..60 {
            let place = places[random(5) as usize];
            let said = match random(12) {
                0..=5 => {
                    let body = format!("m{step}{}", if random(3) == 0 { "?k=1" } else { "" });
                    let volatile = if random(3) == 0 { "volatile" } else { "" };
                    sent.push(body.clone());
                    bench.run(&format!("send {} {place} {body} {volatile}", random(3)))
                }
                6 => bench.run(&format!("time {step}")),
                7 => bench.run(&format!("close {}", random(3))),
                8 => bench.run("unmake 7 free"),
                9 if random(3) == 0 => {
                    bench.reload();
                    bench.run("attach 8.1 #acme.t 3 sub=s\nattach 9.0 acme.a 3\nattach 9.1 acme.b 3")
                }
                _ => {
                    bench.follow(policies(&mut random));
                    bench.run("")
                }
            };
            for word in said.split(' ').filter_map(|word| word.split_once('<')) {
                let verdict = ["accept", "reject", "release"][random(3) as usize];
                let body = word.1.split(['!', '*']).next().unwrap_or_default();
                bench.run(&format!("{verdict} {} {body}", word.0));
            }
            assert_eq!(bench.partitions[0].miscounted(), None, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn who_waited_for_a_tenant_and_is_gone_waits_no_more() {
    let mut bench = Bench::new(settings(1));
    bench.follow(shared(messages(1, AtLimit::Block), Limit::default()));
    let waiting = |bench: &Bench| bench.partitions[0].accounts().map(|(_, waiting)| waiting).sum::<u64>();
    bench.run("send 1 acme.a m\nsend 1 acme.a n\nsend 2 acme.b o");
    assert_eq!(waiting(&bench), 2, "addresses");
    bench.run("close 2");
    assert_eq!(waiting(&bench), 1);
    bench.run("close 1");
    assert_eq!(waiting(&bench), 0);
}

/// Its body has left memory since: there is nothing to bury.
#[test]
fn what_was_taken_back_and_is_on_the_disk_is_not_lost_by_a_verdict() {
    for (words, want, held) in [
        ("reject 1.1 m?k=4", "no", "a:1"),
        ("expire 1.1 m?k=4", "no", "a:1"),
        ("retry 1.1 m?k=4\nreject 1.1 m?k=4", "ok no", "a:1"),
        ("release 1.1 m?k=4", "ok", "a:1"),
        ("accept 1.1 m?k=4", "ok", ""),
    ] {
        let mut bench = Bench::new(Settings { resident_bytes_max: 0, ..settings(1) });
        let slow = Slow { after_ms: Some(1000), then: SlowAction::Requeue };
        bench.follow(Policies::new(Policy {
            slow,
            ..Policies::with_dead_letters_in("dead").fallback().clone()
        }));
        bench.run("attach 1.1 a 1\nsend 2 a m?k=4 until=9000\ntime 1010");
        assert_eq!(bench.run("attach 2.1 a 9 where=k=5"), "ok", "{words}: it wants nothing of what is there");
        assert!(bench.run(words).starts_with(want), "{words}");
        assert_eq!(bench.held(), held, "{words}");
        let again = bench.run("close 1\nclose 2\nattach 3.1 a 9");
        assert_eq!(again.contains("3.1<m?k=4"), !held.is_empty(), "{words}: {again}");
    }
}

#[test]
fn messages_on_their_way_to_a_queue_that_they_make_count_at_its_limit() {
    let sends = "send 1 a m\nsend 2 a n\nsend 3 a o\nsend 3 a p";
    let full = "no: queue://a is at the limit of its policy (messages_max = 2), and refuses messages until some are consumed";
    for (name, limit, script, want, held) in [
        ("they wait", messages(2, AtLimit::Block), sends, "ok ok", "a:2"),
        (
            "until there is room",
            messages(2, AtLimit::Block),
            &format!("{sends}\nattach 4.1 a 9\naccept 4.1 m"),
            "ok ok ok 4.1<m 4.1<n 4.1<o ok ok",
            "a:2",
        ),
        ("they are refused", messages(2, AtLimit::Fail), sends, &format!("{full} {full} ok ok"), "a:2"),
        ("the newest go", messages(2, AtLimit::DropNewest), sends, "ok ok ok ok", "a:2"),
        (
            "bytes count too",
            Limit { bytes_max: Some(5), action: AtLimit::Block, ..Limit::default() },
            "send 1 a mmm\nsend 2 a nnn",
            "ok",
            "a:1",
        ),
        (
            "others are not held up",
            messages(1, AtLimit::Block),
            "send 1 a m\nsend 2 a n\nsend 3 b o",
            "ok ok",
            "a:1 b:1",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(limited("queue://>", limit));
        let (late, rest) =
            script.split_once("\nattach").map_or((script, None), |(late, rest)| (late, Some(rest)));
        let mut said = bench.run_all_late(late);
        if let Some(rest) = rest {
            said = format!("{said} {}", bench.run(&format!("attach{rest}")));
        }
        assert_eq!((said.as_str(), bench.held().as_str()), (want, held), "case: {name}");
    }
    // The log refuses the earlier ones: the queue has room.
    let mut bench = Bench::new(settings(1));
    bench.follow(limited("queue://>", messages(1, AtLimit::Block)));
    bench.late_from_now_on();
    bench.run("send 1 a m\nsend 2 a n");
    let said = bench.all_fail();
    assert!(said.starts_with("no: ") && said.ends_with(" ok"), "{said}");
    assert_eq!(bench.held(), "a:1");
}
