//! Prefetch by policy, case by case. See `bench` for the words.

mod bench;

use std::num::NonZeroU32;

use bench::{Bench, settings};
use postroad_routing::{DestinationPattern, Policies, Policy, Prefetch};

fn decided(prefetch: Prefetch) -> Policies {
    let mut policies = Policies::default();
    for pattern in ["queue://a", "queue://p.>", "topic://a"] {
        let pattern = DestinationPattern::parse(pattern).expect("a pattern");
        policies.set(&pattern, Policy { prefetch, ..Policy::default() });
    }
    policies
}

#[test]
fn a_policy_decides_the_credit_that_a_client_leaves_open() {
    let filled = "send 2 a m\nsend 2 a n\n";
    for (case, script, want) in [
        ("left open", "attach 1.1 a 9 by-default", "ok ok 1.1 is sent 1 ahead ok 1.1<m"),
        ("said", "attach 1.1 a 9", "ok ok ok 1.1<m 1.1<n"),
        ("no policy", "send 2 b m\nattach 1.1 b 9 by-default", "ok ok ok ok 1.1<m"),
        ("the same as ever", "attach 1.1 a 1 by-default", "ok ok ok 1.1<m"),
        (
            "an acknowledgement makes room",
            "attach 1.1 a 9 by-default\naccept 1.1 m\ncredit 1.1 1",
            "ok ok 1.1 is sent 1 ahead ok 1.1<m ok 1.1<n",
        ),
        ("browsers", "attach 1.1 a 9 browse by-default", "ok ok 1.1 is sent 2 ahead ok 1.1<m 1.1<n"),
        (
            "a queue that is made for its consumer",
            "attach 1.1 p.new 9 by-default\nsend 1 p.new x\nsend 1 p.new y",
            "ok ok 1.1 is sent 1 ahead ok 1.1<x ok ok",
        ),
        (
            "a pattern of queues",
            "send 2 p.a x\nsend 2 p.b y\nattach 1.1 p.> 9 by-default",
            "ok ok ok ok 1.1 is sent 1 ahead ok 1.1/1<x",
        ),
        (
            "a volatile subscription",
            "attach 1.1 #a 9 by-default\nsend 2 #a x\nsend 2 #a y",
            "ok ok 1.1 is sent 1 ahead ok 1.1<x ok ok",
        ),
        ("a durable one", "attach 1.1 #a 9 sub=s by-default\nsend 2 #a x", "ok ok 1.1 is sent 0 ahead ok ok"),
    ] {
        let prefetch = Prefetch { consumers: Some(1), durable: Some(0), browsers: NonZeroU32::new(2) };
        let mut bench = Bench::new(settings(1));
        bench.follow(decided(prefetch));
        assert_eq!(bench.run(&format!("{filled}{script}")), want, "case: {case}");
    }
}
