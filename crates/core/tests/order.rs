//! The order of one producer's sends to one address, while their way changes: with a durable queue
//! bound to a topic its messages go through the log, without anything past it. See `bench` for the
//! words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_model::Durability;
use postroad_routing::{AtLimit, DestinationPattern, Limit, Policies, Policy};

/// A broker with memory for four bytes.
fn narrow() -> Bench {
    Bench::new(Settings { volatile_bytes_max: 4, ..settings(1) })
}

#[test]
fn what_waits_for_memory_is_not_overtaken_through_the_log() {
    let full = "attach 2.1 #t 9\nsend 1 #t mmmm\n";
    for (case, script, want) in [
        (
            "it goes through the log itself once something durable is bound",
            "send 1 #t n\nattach 3.1 #t 9 sub=s\nsend 1 #t o",
            "ok 3.1<n 2.1<n ok 3.1<o 2.1<o ok",
        ),
        (
            "behind what is not persistent it waits, and what follows behind it",
            "send 4 #t n volatile\nsend 1 #t o\nattach 3.1 #t 9 sub=s\nsend 1 #t p\naccept 2.1 mmmm",
            "ok 3.1<n 2.1<n ok 3.1<o 2.1<o ok 3.1<p 2.1<p ok ok",
        ),
        (
            "another producer need not wait for it",
            "send 4 #t n volatile\nsend 1 #t o\nattach 3.1 #t 9 sub=s\nsend 5 #t p",
            "ok 3.1<p 2.1<p ok",
        ),
        (
            "a queue that the topic feeds is durable too",
            "send 1 #VirtualTopic.v n\nattach 3.1 Consumer.c.VirtualTopic.v 9\nsend 1 #VirtualTopic.v o",
            "2.2<n ok 3.1<n ok 3.1<o 2.2<o ok",
        ),
        (
            "whoever leaves is in nobody's way",
            "send 4 #t n volatile\nsend 1 #t o\nattach 3.1 #t 9 sub=s\nclose 1\nsend 5 #t p\nclose 4",
            "ok 3.1<p 2.1<p ok",
        ),
    ] {
        let mut bench = narrow();
        assert_eq!(bench.run(full), "ok 2.1<mmmm ok", "case: {case}");
        if script.contains("Virtual") {
            assert_eq!(bench.run("attach 2.2 #VirtualTopic.v 9"), "ok", "case: {case}");
        }
        assert_eq!(bench.run(script), want, "case: {case}");
    }
}

#[test]
fn what_is_on_its_way_to_the_log_is_not_overtaken_past_it() {
    let begun = "attach 2.1 #t 9\nattach 3.1 #t 9 sub=s\ndetach 3.1 all";
    for (case, first, then, want) in [
        (
            "once nothing durable is bound any more",
            "unsubscribe 3 s\nsend 1 #t m",
            "send 1 #t n",
            "ok 2.1<m ok 2.1<n ok",
        ),
        (
            "what is not persistent goes another way in any case",
            "unsubscribe 3 s\nsend 1 #t m",
            "send 1 #t n volatile",
            "ok 2.1<n ok 2.1<m ok",
        ),
        (
            "what is sent then is not waited for",
            "unsubscribe 3 s\nsend 1 #t m",
            "send 1 a n\nsend 1 #t o\nsend 1 a p",
            "ok 2.1<m ok 2.1<o ok ok ok",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(begun);
        bench.late_from_now_on();
        let mut said = bench.run(first);
        bench.first_durable();
        said += &bench.run(then);
        said += " ";
        said += &bench.all_durable();
        assert_eq!(said, want, "case: {case}");
        assert_eq!(bench.run("send 1 #t z"), "2.1<z ok", "case: {case}: nothing is ahead any more");
    }
}

#[test]
fn what_is_sent_to_several_addresses_is_overtaken_at_none() {
    let full = "send 2 a z\nattach 2.2 a 9\nattach 2.4 b 9";
    let mut policies = Policies::with_dead_letters_in("dead");
    let limit = Limit { messages_max: Some(1), action: AtLimit::Block, ..Limit::default() };
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a sound pattern"), policy);
    for (case, script, want) in [
        (
            "what waits at one of them",
            "send 1 a,b n\nsend 1 b o\nsend 5 b p\naccept 2.2 z",
            "2.4<p ok 2.2<n 2.4<n ok 2.4<o ok ok",
        ),
        (
            "what waits behind that at another",
            "send 1 a,b n\nsend 1 b,c o\nsend 1 c p\naccept 2.2 z",
            "2.2<n 2.4<n ok 2.4<o ok ok ok",
        ),
        (
            "persistent or not, each for itself",
            "send 1 a,b n\nsend 1 b o volatile\naccept 2.2 z",
            "2.4<o ok 2.2<n 2.4<n ok ok",
        ),
        ("if its producer leaves, nothing", "send 1 a,b n\nsend 1 b o\nclose 1\nsend 5 b p", "2.4<p ok"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        assert_eq!(bench.run(full), "ok ok 2.2<z ok", "case: {case}");
        assert_eq!(bench.run(script), want, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    bench.run("attach 2.1 #t 9\nattach 2.2 a 9");
    bench.late_from_now_on();
    assert_eq!(bench.run("send 1 #t,a m\nsend 5 #t o\nsend 1 #t n"), "2.1<o ok", "another's may go past it");
    assert_eq!(bench.all_durable(), "2.2<m 2.1<m ok 2.1<n ok", "through the log for the sake of one");
}

#[test]
fn what_is_kept_at_one_of_its_addresses_waits_for_no_queue_that_it_makes_at_another() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { durability: Durability::Memory, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://memory").expect("a sound pattern"), policy);
    for script in ["send 1 a,memory m\nsend 1 a n", "send 1 memory,a m\nsend 1 a n"] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        bench.run("attach 2.1 a 9");
        bench.late_from_now_on();
        assert_eq!(bench.run(script), "", "{script}");
        assert_eq!(bench.all_durable(), "2.1<m ok 2.1<n ok", "{script}");
    }
}

#[test]
fn a_transaction_keeps_the_order_of_what_goes_through_the_log_and_past_it() {
    let mut bench = Bench::new(settings(1));
    assert_eq!(
        bench.run("attach 2.1 #t 9\nsend 1 #t m tx=1\nsend 1 #t,a n tx=1\nsend 1 #t o tx=1\ncommit 1 1"),
        "ok ok ok ok 2.1<m 2.1<n 2.1<o ok"
    );
    for how in ["", " volatile"] {
        let mut bench = forgetful();
        let send = |word: &str| format!("send 1 {word} tx=1{how}\n");
        let script = [send("#t m"), send("#t,m n"), send("#t o")].concat();
        assert_eq!(
            bench.run(&format!("attach 2.1 #t 9\n{script}commit 1 1")),
            "ok ok ok ok 2.1<m 2.1<n 2.1<o ok",
            "a queue is new{how}"
        );
    }
}

#[test]
fn a_queue_that_is_in_memory_from_now_on_waits_for_what_is_on_its_way_to_the_log() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 2.1 a 9");
    let mut policies = Policies::with_dead_letters_in("dead");
    let mut policy = policies.fallback().clone();
    policy.durability = postroad_model::Durability::Memory;
    policies.set(&DestinationPattern::parse("queue://a").expect("a sound pattern"), policy);
    bench.late_from_now_on();
    bench.run("send 1 a m");
    bench.follow(policies);
    bench.run("send 1 a n");
    assert_eq!(bench.all_durable(), "2.1<m ok 2.1<n ok");
}

#[test]
fn a_log_that_fails_lets_go_on_what_waited_for_it() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 2.1 #t 9\nattach 3.1 #t 9 sub=s\ndetach 3.1 all");
    bench.late_from_now_on();
    bench.run("unsubscribe 3 s\nsend 1 #t m");
    bench.first_durable();
    assert_eq!(bench.run("send 1 #t n"), "ok");
    assert_eq!(bench.all_fail(), "no: the store could not write: broken 2.1<n ok");
}

#[test]
fn what_is_sent_once_more_is_not_overtaken_by_what_is_new() {
    for (case, script, want) in [
        (
            "behind one that may have come before",
            "send 1 a p7.1 again\nsend 1 a n",
            "ok ok ok 2.1<p7.1 2.1<n",
        ),
        (
            "behind several",
            "send 1 a p7.1 again\nsend 1 a p7.2 again\nsend 1 a o",
            "ok ok ok ok 2.1<p7.1 2.1<p7.2 2.1<o",
        ),
        ("another producer need not wait", "send 1 a p7.1 again\nsend 3 a n", "ok ok ok 2.1<n 2.1<p7.1"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.late_from_now_on();
        assert_eq!(bench.run(script), "", "case: {case}");
        let said = bench.all_durable();
        assert_eq!(format!("{said} {}", bench.run("attach 2.1 a 9")), want, "case: {case}");
    }
}

#[test]
fn what_waits_behind_a_send_that_waits_for_memory_need_not_wait_for_memory_itself() {
    let mut bench = narrow();
    bench.run("attach 2.1 #t 9\nsend 1 #t mmmm\nattach 2.2 #u 9\nattach 2.3 #w 9\nmake 9 a");
    assert_eq!(bench.run("send 1 #u x\nsend 4 a n volatile\nsend 5 #w zzzz\nsend 1 a,#u p"), "");
    assert_eq!(bench.run("accept 2.1 mmmm"), "2.2<x ok ok 2.2<p ok ok", "zzzz alone has no room yet");
}

/// A broker that keeps messages to the queues `m` and `n` in memory alone.
fn forgetful() -> Bench {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { durability: Durability::Memory, ..policies.fallback().clone() };
    for queue in ["queue://m", "queue://n"] {
        policies.set(&DestinationPattern::parse(queue).expect("a sound pattern"), policy.clone());
    }
    let mut bench = Bench::new(settings(1));
    bench.follow(policies);
    bench
}

#[test]
fn what_needs_a_queue_is_overtaken_at_none_of_its_addresses() {
    for (case, script, want) in [
        ("at a topic", "send 1 #t,m x\nsend 1 #t y", "2.1<x ok 2.1<y ok"),
        ("several queues", "send 1 #t,m,n x\nsend 1 #t y\nsend 1 n z", "2.1<x ok ok 2.1<y ok"),
        ("not persistent", "send 1 #t,o x volatile\nsend 1 #t y volatile", "2.1<x ok 2.1<y ok"),
        ("by what needs it too", "send 1 m w\nsend 1 #t,m x\nsend 1 #t y", "ok 2.1<x ok 2.1<y ok"),
        ("another's waits at its first address alone", "send 1 m,#t x\nsend 3 #t y", "2.1<y ok 2.1<x ok"),
        (
            "though its producer leaves, and what is behind it",
            "send 1 #t,o x volatile\nsend 1 #t y volatile\nclose 1\nsend 3 #t z",
            "2.1<x ok 2.1<y ok 2.1<z ok",
        ),
        (
            "behind a reader that has it made",
            "attach 2.2 m 9\nsend 1 #t,m x\nsend 1 m y",
            "ok 2.1<x 2.2<x ok 2.2<y ok",
        ),
    ] {
        let mut bench = forgetful();
        bench.run("attach 2.1 #t 9");
        bench.late_from_now_on();
        let said = bench.run(script);
        let said = format!("{said} {}", bench.all_durable());
        assert_eq!(said.trim(), want, "case: {case}");
        assert_eq!(bench.run("send 1 #t last"), "2.1<last ok", "case: {case}: nothing is ahead");
    }
}

#[test]
fn what_needs_a_queue_that_the_log_does_not_make_is_refused_once() {
    let mut bench = forgetful();
    bench.run("attach 2.1 #t 9");
    bench.late_from_now_on();
    assert_eq!(bench.run("send 1 #t,m x\nsend 1 m y\nsend 1 #t z"), "");
    let no = "no: the store could not write: broken";
    assert_eq!(bench.all_fail(), format!("{no} {no} 2.1<z ok"));
    assert_eq!(bench.run("send 1 #t,m x"), "2.1<x ok");
}

#[test]
fn what_needed_a_queue_waits_no_longer_for_room_there_than_its_policy_says() {
    let mut policies = Policies::with_dead_letters_in("dead");
    let limit = Limit { messages_max: Some(1), action: AtLimit::Fail, wait_ms: 5, ..Limit::default() };
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a sound pattern"), policy);
    let mut bench = Bench::new(settings(1));
    bench.follow(policies);
    bench.late_from_now_on();
    assert_eq!(bench.run("time 10\nsend 1 a x volatile\nsend 1 a y volatile\ntime 20"), "");
    assert_eq!(bench.all_durable(), "ok");
    assert_eq!(bench.run("time 24"), "");
    assert!(bench.run("time 25").starts_with("no: "), "y has waited for room since 20");
}

#[test]
fn what_the_log_gives_back_is_served_in_its_order() {
    let no = "no: the store could not write: broken";
    for (case, script) in [
        ("settled in another order", "accept 1.1 n\naccept 1.1 m"),
        ("one can never be processed", "reject 1.1 n\naccept 1.1 m"),
        ("both cannot", "reject 1.1 n\nreject 1.1 m"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run("send 1 a m\nsend 1 a n\nattach 1.1 a 9");
        bench.late_from_now_on();
        assert_eq!(bench.run(script), "", "case: {case}");
        assert_eq!(bench.all_fail(), format!("1.1<m 1.1<n {no} {no}"), "case: {case}");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

#[test]
fn a_consumer_that_grants_credit_anew_keeps_its_turn() {
    // Each message is sent once the one before was accepted; one consumer takes its credit back
    // after each empty look.
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 a 9\nattach 2.1 a 9");
    let mut got = Vec::new();
    for number in 0..10 {
        bench.run("drain 2.1\ncredit 2.1 1");
        let said = bench.run(&format!("send 3 a m{number}"));
        let to = if said.contains("1.1<") { "1.1" } else { "2.1" };
        got.push(to);
        bench.run(&format!("accept {to} m{number}\ncredit 1.1 1"));
    }
    assert_eq!(got, ["1.1", "2.1"].repeat(5));
}

#[test]
fn who_comes_to_the_line_waits_for_those_that_were_served_longer_ago() {
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 a 1\nattach 1.2 a 1\nattach 1.3 a 1 priority=5\nattach 1.4 a 1");
    assert_eq!(
        bench.run("send 2 a m\nsend 2 a n\nsend 2 a o\nsend 2 a p"),
        "1.3<m ok 1.1<n ok 1.2<o ok 1.4<p ok"
    );
    // A newcomer comes after those that were served longer ago, whatever the order in which they
    // come back.
    bench.run("attach 1.5 a 1\ncredit 1.4 1\ncredit 1.2 1\ncredit 1.1 1");
    let said = bench.run("send 2 a q\nsend 2 a r\nsend 2 a s\nsend 2 a t");
    assert_eq!(said, "1.1<q ok 1.2<r ok 1.5<s ok 1.4<t ok");
}
