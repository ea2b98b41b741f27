//! Consumers that wait for others before any of them is served, case by case. See `bench` for the
//! words.

mod bench;

use bench::{Bench, settings};
use postroad_routing::{DestinationPattern, Gathering, Policies, Policy};

fn gathering(consumers_min: u32, wait_ms_max: u64) -> Bench {
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy =
        Policy { gathering: Gathering { consumers_min, wait_ms_max }, ..policies.fallback().clone() };
    for pattern in ["queue://a", "queue://p.>", "topic://>"] {
        policies.set(&DestinationPattern::parse(pattern).expect("a pattern"), policy.clone());
    }
    let mut bench = Bench::new(settings(1));
    bench.follow(policies);
    bench
}

#[test]
fn the_first_consumers_of_a_queue_wait_for_others() {
    let filled = "time 10\nsend 9 a m\nsend 9 a n\nsend 9 a o\n";
    for (case, (consumers, wait_ms), script, want) in [
        ("enough come", (2, 50), "attach 1.1 a 9\nattach 2.1 a 9", "ok ok 1.1<m 2.1<n 1.1<o"),
        (
            "too few, for as long as they may wait",
            (3, 50),
            "attach 1.1 a 9\nattach 2.1 a 9\ntime 59",
            "ok ok",
        ),
        (
            "too few, and no longer",
            (3, 50),
            "attach 1.1 a 9\nattach 2.1 a 9\ntime 60",
            "ok ok 1.1<m 2.1<n 1.1<o",
        ),
        ("one is enough", (1, 50), "attach 1.1 a 9", "ok 1.1<m 1.1<n 1.1<o"),
        (
            "a second, if no time is said",
            (2, 0),
            "attach 1.1 a 9\ntime 1009\ntime 1010",
            "ok 1.1<m 1.1<n 1.1<o",
        ),
        (
            "any number, for a while",
            (0, 5),
            "attach 1.1 a 9\nattach 2.1 a 9\ntime 15",
            "ok ok 1.1<m 2.1<n 1.1<o",
        ),
        (
            "time counts from the first",
            (3, 50),
            "attach 1.1 a 1\ntime 40\nattach 2.1 a 9\ntime 60",
            "ok ok 1.1<m 2.1<n 2.1<o",
        ),
        ("nobody waits where nothing is said", (2, 50), "send 9 b x\nattach 1.1 b 9", "ok ok 1.1<x"),
        ("nor at a topic", (2, 50), "attach 1.1 #t 9\nsend 9 #t x", "ok 1.1<x ok"),
        ("a browser does not wait", (2, 50), "attach 1.1 a 9 browse", "ok 1.1<m 1.1<n 1.1<o 1.1 drained"),
        ("nor does it count", (2, 50), "attach 1.1 a 9\nattach 1.2 a 0 browse\ntime 20", "ok ok"),
        (
            "one that joins later is served at once",
            (2, 50),
            "attach 1.1 a 1\nattach 2.1 a 1\nattach 3.1 a 1",
            "ok ok 1.1<m 2.1<n ok 3.1<o",
        ),
        (
            "who leaves does not count",
            (2, 50),
            "attach 1.1 a 9\ndetach 1.1 none\nattach 2.1 a 9\ntime 59\ntime 60",
            "ok ok 2.1<m 2.1<n 2.1<o",
        ),
        (
            "when all have left it begins anew",
            (2, 50),
            "attach 1.1 a 1\nattach 2.1 a 1\nclose 1\nclose 2\nattach 3.1 a 9\nattach 4.1 a 9",
            "ok ok 1.1<m 2.1<n ok ok 3.1<m!1 4.1<n!1 3.1<o",
        ),
        (
            "readers of a pattern count where they read",
            (2, 50),
            "send 9 p.q x\nattach 1.1 p.> 9\nattach 2.1 p.q 9",
            "ok ok ok 1.1/1<x",
        ),
        ("who asks once finds nothing yet", (2, 50), "attach 1.1 a 1\ndrain 1.1", "ok 1.1 drained"),
        (
            "groups are spread over all",
            (2, 50),
            "attach 1.1 a 9\nsend 9 a x group=g\nsend 9 a y group=h\nattach 2.1 a 9",
            "ok ok ok ok 1.1<m 2.1<n 1.1<o 2.1<x* 1.1<y*",
        ),
    ] {
        let mut bench = gathering(consumers, wait_ms);
        assert_eq!(bench.run(filled), "ok ok ok", "case: {case}");
        assert_eq!(bench.run(script), want, "case: {case}");
    }
}

#[test]
fn the_clock_is_asked_for_no_later_than_they_may_wait() {
    let mut bench = gathering(2, 50);
    bench.run("make 9 a\ntime 10\nattach 1.1 a 9");
    assert_eq!(bench.partitions[0].next_due_ms(), Some(60));
    bench.run("attach 2.1 a 9");
    assert_eq!(bench.partitions[0].next_due_ms(), None);
    bench.run("close 1\nclose 2\nattach 3.1 a 9\nunmake 9 a\ntime 60");
    assert_eq!(bench.partitions[0].next_due_ms(), None);
}
