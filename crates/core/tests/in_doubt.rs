//! Deliveries in doubt, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};

#[test]
fn deliveries_in_doubt_go_to_the_next_consumer_of_the_name_alone() {
    let taken = "send 9 a m\nsend 9 a n\nattach 1.1 a 2 steals:east\nattach 2.1 a 9\ndetach 1.1 in-doubt\n";
    for (case, then, want) in [
        ("others wait", "", ""),
        ("the heir needs no credit", "attach 3.1 a 0 steals:east", " ok 3.1<m 3.1<n"),
        ("and is what they are settled by", "attach 3.1 a 0 steals:east\naccept 3.1 m", " ok 3.1<m 3.1<n ok"),
        (
            "given back, anyone gets them",
            "attach 3.1 a 0 steals:east\ndetach 3.1 none",
            " ok 3.1<m 3.1<n 2.1<m 2.1<n",
        ),
        (
            "cut again",
            "attach 3.1 a 0 steals:east\ndetach 3.1 in-doubt\nattach 4.1 a 0 steals:east",
            " ok 3.1<m 3.1<n ok 4.1<m 4.1<n",
        ),
        ("another name", "attach 3.1 a 0 steals:west", " ok"),
        ("another queue", "attach 3.1 b 0 steals:east", " ok"),
        ("no name", "attach 3.1 a 9", " ok"),
        ("nearly too late", "time 999\nattach 3.1 a 0 steals:east", " ok 3.1<m 3.1<n"),
        ("too late", "time 1000\nattach 3.1 a 0 steals:east", " 2.1<m 2.1<n ok"),
        ("the queue goes on", "send 9 a o", " 2.1<o ok"),
    ] {
        let mut bench = Bench::new(settings(1));
        let begun = bench.run(taken);
        assert_eq!(begun, "ok ok ok 1.1<m 1.1<n ok", "case: {case}");
        assert_eq!(bench.run(then), want.trim_start(), "case: {case}");
    }
}

#[test]
fn a_restart_ends_the_doubt() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 9 a m\nattach 1.1 a 2 steals:east\ndetach 1.1 in-doubt");
    bench.restart();
    assert_eq!(bench.run("attach 2.1 a 9"), "ok 2.1<m");
}
