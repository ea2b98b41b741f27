//! Subscriptions that are set aside while they are read at another broker, case by case. See
//! `bench` for the words.

mod bench;

use bench::{Bench, settings};

/// The subscription `s` has `m` and `n`, and no reader.
const BEGUN: &str = "attach 1.1 #t 0 sub=s\nsend 9 #t m\nsend 9 #t n\ndetach 1.1 none";
const LINK: &str = "attach 2.1 #t 9 aside=s steals:east";
const OF_LINK: &str = "JMSActiveMQBrokerPath=1&JMSPostroadInTime=5";

fn begun() -> Bench {
    let mut bench = Bench::new(settings(1));
    bench.run("time 1 wall=1000");
    assert_eq!(bench.run(BEGUN), "ok ok ok");
    bench
}

#[test]
fn a_link_takes_what_waits_and_what_is_on_its_way() {
    let on_its_way = format!("{LINK}\nsend 9 #t o?{OF_LINK}");
    let late = format!("{LINK}\nsend 9 #t o?JMSActiveMQBrokerPath=1&JMSPostroadInTime=9001");
    let read_first = format!("attach 3.1 #t 9 sub=s\n{LINK}");
    for (case, then, want) in [
        ("what waits", LINK, "ok 2.1<m 2.1<n"),
        ("nothing that is sent here from then on", &format!("{LINK}\nsend 9 #t o"), "ok 2.1<m 2.1<n ok"),
        ("but messages of other brokers", &on_its_way, &format!("ok 2.1<m 2.1<n 2.1<o?{OF_LINK} ok")),
        ("unless they are younger", &late, "ok 2.1<m 2.1<n ok"),
        ("not while it is read here", &read_first, "ok 3.1<m 3.1<n no: the durable subscription"),
        ("none of that name", "attach 2.1 #t 9 aside=other", "no: there is no durable subscription"),
        ("another topic", "attach 2.1 #u 9 aside=s", "no: there is no durable subscription"),
        ("another selector", "attach 2.1 #t 9 aside=s where=k=5", "no: there is no durable subscription"),
        (
            "one link at a time",
            &format!("{LINK}\nattach 3.1 #t 9 aside=s"),
            "ok 2.1<m 2.1<n no: the durable subscription",
        ),
        (
            "the link's next connection takes it over",
            &format!("{LINK}\nattach 3.1 #t 9 aside=s steals:east"),
            "ok 2.1<m 2.1<n 2.1 detached ok 3.1<m!1 3.1<n!1",
        ),
    ] {
        let mut bench = begun();
        let said = bench.run(then);
        assert!(said.starts_with(want) && said.len() < want.len() + 60, "case: {case}: {said}");
    }
}

#[test]
fn a_reader_here_resumes_it() {
    for (way, how) in
        [("go on", (|_| ()) as fn(&mut Bench)), ("restart", Bench::restart), ("reload", Bench::reload)]
    {
        let mut bench = begun();
        bench.run(&format!("{LINK}\naccept 2.1 m\nsend 9 #t o\ndetach 2.1 none"));
        how(&mut bench);
        bench.run("time 2 wall=2000");
        assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "ok 3.1<n", "after: {way}");
        assert_eq!(bench.run("send 9 #t p"), "3.1<p ok", "after: {way}");
        assert_eq!(
            bench.run("accept 3.1 n p\nunsubscribe 3 aside:s"),
            "ok no: there is no durable subscription moving s",
            "after: {way}"
        );
    }
}

#[test]
fn what_the_link_has_stays_with_it_when_a_reader_comes() {
    let mut bench = begun();
    bench.run("attach 2.1 #t 1 aside=s steals:east");
    // The link is drained, and gets nothing more.
    assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "2.1 drained ok 3.1<n");
    assert_eq!(bench.run("send 9 #t o\naccept 2.1 m\ndetach 2.1 none"), "3.1<o ok ok");
    let mut bench = begun();
    bench.run("attach 2.1 #t 1 aside=s steals:east\ndetach 2.1 in-doubt");
    assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "ok 3.1<n", "the peer may have the other");
    let mut bench = begun();
    bench.run("attach 2.1 #t 1 aside=s steals:east");
    bench.restart();
    assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "ok 3.1<n", "after a crash, too");
}

#[test]
fn another_definition_ends_it() {
    let mut bench = begun();
    bench.run(&format!("{LINK}\ndetach 2.1 none"));
    assert_eq!(bench.run("attach 3.1 #t 9 sub=s where=k=5"), "ok");
    assert_eq!(bench.run(&format!("detach 3.1 none\n{LINK}")), "no: there is no durable subscription s");
}

#[test]
fn it_ends_when_it_has_nothing_more() {
    let mut bench = begun();
    bench.run(LINK);
    assert_eq!(
        bench.run("unsubscribe 2 aside:s"),
        "no: the durable subscription moving s is in use",
        "it has messages"
    );
    assert_eq!(bench.run("accept 2.1 m n\ndetach 2.1 none\nunsubscribe 2 aside:s"), "ok ok");
    assert_eq!(bench.run(LINK), "no: there is no durable subscription s");
    let mut bench = begun();
    bench.run(&format!("{LINK}\ndetach 2.1 none"));
    assert_eq!(bench.run("unsubscribe 1 s"), "ok", "its client has no need of it");
    assert_eq!(bench.run(LINK), "no: there is no durable subscription s");
}

#[test]
fn a_message_that_follows_reaches_one_subscription_ahead_of_what_came_by_the_topic() {
    let both = "attach 1.1 #t 0 sub=s\nattach 1.2 #t 0 sub=other\nsend 9 #t m\nsend 9 #t n only:s";
    for (way, how) in
        [("go on", (|_| ()) as fn(&mut Bench)), ("restart", Bench::restart), ("reload", Bench::reload)]
    {
        let mut bench = Bench::new(settings(1));
        assert_eq!(bench.run(both), "ok ok ok ok");
        bench.run("detach 1.1 none\ndetach 1.2 none");
        how(&mut bench);
        assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "ok 3.1<n 3.1<m", "after: {way}");
        assert_eq!(bench.run("attach 3.2 #t 9 sub=other"), "ok 3.2<m", "after: {way}");
        assert_eq!(
            bench.run("send 9 #t o only:none"),
            "no: there is no durable subscription none",
            "after: {way}"
        );
    }
}

#[test]
fn a_message_that_comes_both_ways_is_taken_in_once() {
    let mut bench = Bench::new(settings(1));
    bench.run("time 1\nattach 1.1 #t 9 sub=s\nattach 1.2 #t 9 sub=other");
    assert_eq!(bench.run("send 9 #t m\nsend 9 #t m only:s"), "1.1<m 1.2<m ok ok");
    assert_eq!(bench.run("send 9 #t n only:s\nsend 9 #t n"), "1.1<n ok 1.2<n ok");
    // The subscription is set aside meanwhile, and goes on.
    bench.run("detach 1.1 none\nattach 2.1 #t 0 aside=s");
    assert_eq!(bench.run("send 9 #t o only:s\ncredit 2.1 9"), "ok 2.1<n 2.1<o 2.1<m");
}

#[test]
fn what_the_peer_sent_here_and_has_itself_leaves_when_it_is_set_aside() {
    let of = |peer: &str, there_ms: u64, here_ms: u64| {
        format!(
            "o?JMSActiveMQBrokerPath=[{peer}]&JMSPostroadInTime={there_ms}&JMSActiveMQBrokerInTime={here_ms}"
        )
    };
    for (case, message, leaves) in [
        ("taken in after the subscription began there", of("ID:e", 9001, 90_000), true),
        ("in the same millisecond", of("ID:e", 9000, 90_000), false),
        ("before", of("ID:e", 5, 90_000), false),
        ("of another broker", of("ID:c", 9001, 90_000), false),
        ("it came long ago, by another clock there", of("ID:e", 9001, 80_000), false),
        ("without the times", "o?JMSActiveMQBrokerPath=[ID:e]".to_owned(), false),
    ] {
        let mut bench = begun();
        bench.run(&format!("time 2 wall=95000\nsend 9 #t {message}"));
        let rest = if leaves { String::new() } else { format!(" 2.1<{message}") };
        assert_eq!(bench.run("attach 2.1 #t 9 aside=s peer:ID:e"), format!("ok 2.1<m 2.1<n{rest}"), "{case}");
        let mut bench = begun();
        bench.run(&format!("time 2 wall=95000\nsend 9 #t {message} only:s"));
        let said = bench.run("attach 2.1 #t 9 aside=s peer:ID:e");
        assert_eq!(said, format!("ok 2.1<{message} 2.1<m 2.1<n"), "{case}, and it has followed");
    }
}

#[test]
fn a_copy_that_is_not_taken_in_again_does_not_count_as_taken() {
    let mut bench = Bench::new(settings(1));
    // It comes before the subscription begins, and by a second link after that.
    assert_eq!(
        bench.run("time 1\nsend 9 #t m by-link\nattach 1.1 #t 9 sub=s\nsend 8 #t m by-link"),
        "ok ok ok"
    );
    assert_eq!(bench.run("send 9 #t m only:s"), "1.1<m ok", "the former broker had taken it");
}
