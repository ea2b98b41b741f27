//! Bodies in records: compressed where a policy says so, plain for all readers.

mod bench;

use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_model::Compression;
use postroad_routing::{DestinationPattern, Policies, Policy};

fn policies(compression: Compression) -> Policies {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { compression, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://dense.>").expect("a pattern"), policy);
    policies
}

#[test]
fn a_policy_says_which_bodies_are_compressed_and_nobody_sees_it() {
    let long = "m".repeat(600);
    let cases = [
        ("a queue of the policy", "dense.a", "", long.as_str(), true),
        ("another queue", "plain", "", &long, false),
        ("one of several addresses", "plain,dense.a", "", &long, true),
        ("in a transaction", "dense.a", "tx=1", &long, true),
        ("a short one", "dense.a", "", "m", false),
    ];
    let methods = [Compression::Lz4, Compression::Zstd];
    for (compression, (case, to, tx, body, shorter)) in
        methods.into_iter().flat_map(|compression| cases.map(|case| (compression, case)))
    {
        let policies = Arc::new(policies(compression));
        let mut bench = Bench::new(Settings { policies, ..settings(1) });
        let sent = bench.run(&format!("send 1 {to} {body} {tx}"));
        assert_eq!(sent, "ok", "case: {case}");
        if !tx.is_empty() {
            assert_eq!(bench.run("commit 1 1"), "ok", "case: {case}");
        }
        let record = bench.log[0].last().expect("a record").len();
        assert_eq!(record < body.len(), shorter, "case: {case}: {record} bytes");
        bench.restart();
        let queue = to.rsplit(',').next().expect("an address");
        assert_eq!(bench.run(&format!("attach 2.1 {queue} 9")), format!("ok 2.1<{body}"), "case: {case}");
        let key = bench.partitions[0].durable_entries().next().expect("an entry").key;
        assert_eq!(bench.message(key).bytes, body, "case: {case}: as it is read back");
    }
}

#[test]
fn a_change_of_policy_takes_hold_for_new_messages() {
    let long = "m".repeat(600);
    let mut bench = Bench::new(Settings { policies: Arc::new(policies(Compression::None)), ..settings(1) });
    let mut lengths = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd, Compression::None] {
        bench.follow(policies(compression));
        bench.run(&format!("send 1 dense.a {long}"));
        lengths.push(bench.log[0].last().expect("a record").len() < long.len());
    }
    assert_eq!(lengths, [false, true, true, false]);
    bench.restart();
    let all = format!("ok 2.1<{long} 2.1<{long} 2.1<{long} 2.1<{long}");
    assert_eq!(bench.run("attach 2.1 dense.a 9"), all, "all of them are read");
}
