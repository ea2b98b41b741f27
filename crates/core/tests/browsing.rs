//! Browsers beside consumers: consumers come first, and browsing goes in bounded steps. See `bench`
//! for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

/// No memory for bodies, but for due ones.
fn pinched() -> Settings {
    Settings { resident_bytes_max: 0, page_entries: 64, ..settings(1) }
}

/// A queue of this many messages.
fn filled(queue: &str, count: usize) -> String {
    (0..count).map(|number| format!("send 1 {queue} {queue}{number}\n")).collect()
}

/// How many of the answers are deliveries to this consumer.
fn seen(said: &str, consumer: &str) -> usize {
    said.split_whitespace().filter(|word| word.starts_with(&format!("{consumer}<"))).count()
}

#[test]
fn an_event_serves_the_consumers_and_then_browsers_for_one_step() {
    let mut bench = Bench::new(settings(1));
    bench.run(&filled("a", 200));
    let said = bench.run("attach 2.1 a 500 browse");
    assert_eq!((seen(&said, "2.1"), said.contains("drained")), (64, false), "a step");
    // The rest is due with the next tick: whatever else happens meanwhile costs no browsing.
    assert_eq!(bench.run("attach 3.1 a 1"), "ok 3.1<a0");
    assert_eq!(bench.run("accept 3.1 a0\ncredit 3.1 1\nsend 1 a x"), "ok 3.1<a1 ok");
    assert_eq!(bench.partitions[0].next_due_ms(), Some(1));
    let said = bench.run("time 1");
    assert_eq!((seen(&said, "2.1"), said.ends_with("2.1 drained")), (136, true), "{said}");
    assert_eq!(bench.partitions[0].next_due_ms(), None);
}

#[test]
fn browsers_of_many_queues_share_the_bound_of_a_tick() {
    let mut bench = Bench::new(settings(1));
    for queue in 0..8 {
        bench.run(&filled(&format!("q{queue}"), 150));
        let [one, other] = [format!("2.{}", queue + 1), format!("3.{}", queue + 1)];
        let said =
            bench.run(&format!("attach {one} q{queue} 500 browse\nattach {other} q{queue} 500 browse"));
        assert_eq!((seen(&said, &one), seen(&said, &other)), (64, 0));
    }
    let (mut ticks, mut drained) = (0, 0);
    while drained < 16 {
        ticks += 1;
        let said = bench.run(&format!("time {ticks}"));
        let deliveries = said.split_whitespace().filter(|word| word.contains('<')).count();
        assert!((1..=256 + 64).contains(&deliveries), "{deliveries} in tick {ticks}");
        drained += said.matches("drained").count();
        assert!(ticks < 100, "{drained} have seen all");
    }
    assert!(4 <= ticks, "{ticks}");
}

#[test]
fn what_comes_with_a_higher_priority_does_not_end_a_browse() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a m\nsend 1 a n\nattach 2.1 a 1 browse\nsend 1 a high priority=9");
    assert_eq!(bench.run("credit 2.1 9"), "2.1<n 2.1 drained");
}

#[test]
fn browsers_of_one_queue_take_turns() {
    let mut bench = Bench::new(settings(1));
    bench.run(&filled("a", 300));
    bench.run("attach 2.1 a 1000 browse\nattach 2.2 a 1000 browse\nattach 2.3 a 1000 browse");
    let said = bench.run("time 1");
    let all = ["2.1", "2.2", "2.3"].map(|browser| seen(&said, browser));
    assert!(all.iter().all(|seen| (64..=112).contains(seen)), "{all:?}");
}

#[test]
fn a_browser_that_waits_for_the_disk_holds_up_nobody_else() {
    let mut bench = Bench::new(pinched());
    bench.run(&filled("a", 3));
    bench.disk_hangs();
    assert_eq!(bench.run("attach 2.1 a 9 browse"), "ok");
    assert_eq!(bench.run("send 1 a x priority=9 volatile\nattach 3.1 a 1"), "ok ok 3.1<x", "a consumer");
    assert_eq!(
        bench.run("send 1 a y priority=9 volatile\nattach 2.2 a 1 browse"),
        "ok ok 2.2<x",
        "a browser"
    );
    assert_eq!(bench.disk_answers(), "2.1<a0 2.1<a1 2.1<a2 2.1 drained");
}

#[test]
fn a_consumer_that_waits_for_the_disk_does_not_hold_up_browsers() {
    let mut bench = Bench::new(pinched());
    bench.run("send 1 a m");
    bench.disk_hangs();
    assert_eq!(bench.run("attach 3.1 a 1\nsend 1 a x priority=9 volatile"), "ok ok");
    assert_eq!(bench.run("attach 2.1 a 1 browse"), "ok 2.1<x");
    assert_eq!(bench.disk_answers(), "3.1<x");
}

#[test]
fn credit_of_a_browser_is_taken_back_once_it_was_used() {
    for (case, settings, hangs) in [("in steps", settings(1), false), ("from the disk", pinched(), true)] {
        let mut bench = Bench::new(settings);
        bench.run(&filled("a", 100));
        bench.run("attach 2.1 a 0 browse");
        if hangs {
            bench.disk_hangs();
        }
        let said = bench.run("credit 2.1 80\ndrain 2.1");
        assert!(!said.contains("drained"), "case: {case}: {said}");
        let rest = if hangs { bench.disk_answers() } else { String::new() };
        let rest = format!("{said} {rest} {}", bench.run("time 1\ntime 2"));
        assert_eq!((seen(&rest, "2.1"), rest.matches("drained").count()), (80, 1), "case: {case}: {rest}");
    }
}

#[test]
fn a_queue_that_ends_under_a_browser_is_passed_over() {
    let mut bench = Bench::new(settings(1));
    bench.run(&filled("a", 200));
    bench.run("attach 2.1 a 500 browse\nclose 2\nunmake 1 a");
    assert_eq!(bench.run("time 1"), "");
    assert_eq!(bench.held(), "");
}

#[test]
fn what_is_read_for_browsers_leaves_what_was_read_for_consumers() {
    let mut bench = Bench::new(Settings { page_entries: 64, resident_bytes_max: 40_000, ..settings(1) });
    bench.run(&filled("a", 2000));
    bench.run("attach 3.1 a 1");
    let reads = bench.fetched.len();
    bench.run("attach 2.1 a 5000 browse");
    for time in 1..100 {
        bench.run(&format!("time {time}"));
    }
    let browsed = bench.fetched.len();
    assert!(reads < browsed, "the browser reads");
    for number in 0..30 {
        let said = bench.run(&format!("accept 3.1 a{number}\ncredit 3.1 1"));
        assert_eq!(said, format!("ok 3.1<a{}", number + 1));
    }
    assert!(bench.fetched.len() - browsed <= 3, "{:?}", &bench.fetched[browsed..]);
}
