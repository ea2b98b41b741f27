//! Advisories of ordinary messages by policy, case by case. See `bench` for the words.

mod bench;

use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_routing::{Advised, DestinationPattern, Limit, Policies, Policy};

fn policies() -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    let all = Advised { delivered: true, consumed: true, no_consumer: true, fast_producer: true };
    for (pattern, messages_max) in [("queue://a", None), ("topic://t", None), ("queue://full", Some(1))] {
        let pattern = DestinationPattern::parse(pattern).expect("a pattern");
        let limit = Limit { messages_max, ..Limit::default() };
        policies.set(&pattern, Policy { advisories: all, limit, ..Policy::default() });
    }
    policies
}

#[test]
fn messages_are_told_of_where_a_policy_asks_for_it() {
    for (name, script, want) in [
        ("nothing is told elsewhere", "send 1 b m volatile", "ok [queue://b]"),
        ("durable", "send 1 a m", "[Delivered m] ok [queue://a]"),
        (
            "volatile, and nobody reads",
            "make 1 a\nsend 1 a m volatile",
            "ok [queue://a] [Delivered m] [NoConsumer m] ok",
        ),
        (
            "somebody reads, and has it",
            "attach 1.1 a 9\nsend 1 a m volatile\naccept 1.1 m",
            "ok [1.1] [queue://a] [Delivered m] 1.1<m ok [Consumed m] ok",
        ),
        ("a topic that nobody reads", "send 1 #t m volatile", "[Delivered m] [NoConsumer m] ok"),
        (
            "a topic with a reader",
            "attach 1.1 #t 9\nsend 1 #t m volatile\naccept 1.1 m",
            "ok [1.1] [topic://t] [Delivered m] 1.1<m ok [Consumed m] ok",
        ),
        (
            "in a transaction at its commit",
            "attach 1.1 a 9\nsend 1 a m tx=1\ncommit 1 1\naccept 1.1 m tx=2\ncommit 1 2",
            "ok [1.1] [queue://a] ok [Delivered m] 1.1<m ok ok [Consumed m] ok",
        ),
        (
            "what expires is not consumed",
            "attach 1.1 a 9\nsend 1 a m\nexpire 1.1 m",
            "ok [1.1] [queue://a] [Delivered m] 1.1<m ok [Expired m] [DeadLettered m] ok [queue://ActiveMQ.DLQ]",
        ),
        (
            "a producer that has to wait",
            "produce 1 full\nsend 1 full m\nsend 1 full n",
            "[1>full] [Delivered m] ok [queue://full] [queue://full full] [1>full fast]",
        ),
    ] {
        let settings = Settings { policies: Arc::new(policies()), ..settings(1) };
        let mut bench = Bench::new(settings);
        bench.run("listen");
        assert_eq!(bench.run(script), want, "case: {name}");
    }
}

#[test]
fn a_restart_tells_of_no_message_again() {
    let mut bench = Bench::new(Settings { policies: Arc::new(policies()), ..settings(1) });
    bench.run("send 1 a m\nsend 1 a n\nattach 1.1 a 9\naccept 1.1 m\nlisten");
    bench.restart();
    assert_eq!(bench.run(""), "[queue://a]");
}
