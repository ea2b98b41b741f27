//! Messages kept by topics for retroactive consumers, and the consumers that get them.

mod bench;

use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_routing::{DestinationPattern, Policies, Policy, Recovery};

fn bench(policies: &[(&str, Recovery)], recent_bytes_max: u64) -> Bench {
    let mut all = Policies::with_dead_letters_in("dead");
    for (pattern, recovery) in policies {
        let policy = Policy { recovery: *recovery, ..all.fallback().clone() };
        all.set(&DestinationPattern::parse(pattern).expect("a pattern"), policy);
    }
    Bench::new(Settings { policies: Arc::new(all), recent_bytes_max, ..settings(1) })
}

fn check(recovery: Recovery, cases: &[(&str, &str, &str)]) {
    for (case, script, said) in cases {
        let mut bench = bench(&[("topic://t.>", recovery)], 1 << 20);
        assert_eq!(bench.run(script), *said, "case: {case}");
    }
}

#[test]
fn a_topic_keeps_what_its_policy_says() {
    let three = "time 10\n send 1 #t.a m\n time 20\n send 1 #t.a nn volatile\n time 30\n send 1 #t.a o\n";
    for (case, recovery, want) in [
        ("nothing", Recovery::default(), "ok"),
        ("the last image", Recovery { messages_max: 1, ..Recovery::default() }, "ok 2.1<o"),
        ("a count", Recovery { messages_max: 2, ..Recovery::default() }, "ok 2.1<nn 2.1<o"),
        ("bytes", Recovery { bytes_max: 3, ..Recovery::default() }, "ok 2.1<nn 2.1<o"),
        (
            "more bytes than one message has",
            Recovery { bytes_max: 9, ..Recovery::default() },
            "ok 2.1<m 2.1<nn 2.1<o",
        ),
        ("time", Recovery { age_ms_max: 15, ..Recovery::default() }, "ok 2.1<o"),
        (
            "whichever is narrowest",
            Recovery { messages_max: 2, bytes_max: 2, age_ms_max: 99, always: false },
            "ok 2.1<o",
        ),
    ] {
        let mut bench = bench(&[("topic://t.*", recovery)], 1 << 20);
        bench.run(three);
        assert_eq!(bench.run("time 40\n attach 2.1 #t.a 9 retroactive"), want, "case: {case}");
    }
}

#[test]
fn those_who_ask_are_shown_what_they_want_of_it() {
    let ten = Recovery { messages_max: 10, ..Recovery::default() };
    check(
        ten,
        &[
            ("nobody else", "send 1 #t.a m\n attach 2.1 #t.a 9", "ok ok"),
            (
                "each for itself",
                "send 1 #t.a m\n attach 2.1 #t.a 9 retroactive\n attach 2.2 #t.a 9 retroactive",
                "ok ok 2.1<m ok 2.2<m",
            ),
            (
                "ahead of what is sent then",
                "send 1 #t.a m\n attach 2.1 #t.a 1 retroactive\n send 1 #t.a n\n credit 2.1 1",
                "ok ok 2.1<m ok 2.1<n",
            ),
            (
                "what matches",
                "send 1 #t.a m?k=1\n send 1 #t.a n?k=2\n attach 2.1 #t.a 9 retroactive where=k=2",
                "ok ok ok 2.1<n?k=2",
            ),
            (
                "of every topic of a pattern, as it was sent",
                "send 1 #t.b m\n send 1 #t.a n\n send 1 #t.b o\n attach 2.1 #t.* 9 retroactive",
                "ok ok ok ok 2.1<m 2.1<n 2.1<o",
            ),
            (
                "not what the policy does not keep",
                "send 1 #u m\n send 1 #t.a n\n attach 2.1 #> 9 retroactive",
                "ok ok ok 2.1<n",
            ),
            (
                "not its own",
                "send 2 #t.a m volatile\n send 1 #t.a n volatile\n attach 2.1 #t.a 9 nolocal retroactive",
                "ok ok ok 2.1<n",
            ),
            ("not what is over", "send 1 #t.a m until=5\n time 9\n attach 2.1 #t.a 9 retroactive", "ok ok"),
            (
                "what was committed",
                "send 1 #t.a m tx=1\n send 1 #t.a n tx=2\n rollback 1 1\n commit 1 2\n attach 2.1 #t.a 9 retroactive",
                "ok ok ok ok ok 2.1<n",
            ),
            (
                "a queue has nothing to show",
                "send 1 t.a m\n attach 2.1 t.a 9 retroactive\n attach 2.2 t.a 9 retroactive",
                "ok ok 2.1<m ok",
            ),
            (
                "a durable subscription once, when it is made",
                "send 1 #t.a m\n attach 2.1 #t.a 9 retroactive sub=s\n accept 2.1 m\n detach 2.1 all\n attach 2.1 #t.a 9 retroactive sub=s",
                "ok ok 2.1<m ok ok",
            ),
            (
                "persistent messages that a durable subscription has, too",
                "attach 2.1 #t.a 0 sub=s\n send 1 #t.a m\n attach 3.1 #t.a 9 retroactive",
                "ok ok ok 3.1<m",
            ),
        ],
    );
    check(
        Recovery { always: true, ..ten },
        &[("everybody, by policy", "send 1 #t.a m\n attach 2.1 #t.a 9", "ok ok 2.1<m")],
    );
}

#[test]
fn all_topics_together_keep_what_fits_the_partitions_bound() {
    let ten = Recovery { messages_max: 10, ..Recovery::default() };
    // Two messages of two bytes with their overhead, and not three.
    let mut bench = bench(&[("topic://>", ten)], 600);
    bench.run("send 1 #a mm\n send 1 #b nn\n send 1 #a oo");
    assert_eq!(bench.run("attach 2.1 #> 9 retroactive"), "ok 2.1<nn 2.1<oo");
}

#[test]
fn a_subscriber_is_shown_no_more_than_one_queue_may_hold() {
    let ten = Recovery { messages_max: 10, ..Recovery::default() };
    let mut bench = bench(&[("topic://>", ten)], 1 << 20);
    bench.settings.volatile_bytes_max = 16;
    let mut bench = Bench::new(bench.settings.clone());
    bench.run("send 1 #a mm volatile\n send 1 #a nn volatile\n send 1 #a oo volatile");
    assert_eq!(bench.run("attach 2.1 #a 9 retroactive"), "ok 2.1<mm 2.1<nn", "a quarter");
    assert_eq!(bench.run("accept 2.1 mm"), "ok 2.1<oo", "the rest as there is room");
}

#[test]
fn what_was_kept_ends_with_the_run() {
    let ten = Recovery { messages_max: 10, ..Recovery::default() };
    let mut bench = bench(&[("topic://>", ten)], 1 << 20);
    bench.run("attach 2.1 #a 0 sub=s\n send 1 #a m");
    bench.restart();
    assert_eq!(bench.run("attach 3.1 #a 9 retroactive"), "ok");
}
