//! Bodies on the disk: waiting consumers get them, and unreadable ones delay no other message. See
//! `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

/// No memory for bodies, but for due ones.
fn pinched() -> Settings {
    Settings { resident_bytes_max: 0, page_entries: 64, ..settings(1) }
}

#[test]
fn a_body_that_nobody_asked_for_is_asked_for_though_later_ones_are_on_their_way() {
    let mut bench = Bench::new(pinched());
    let alone: String = (0..30).map(|number| format!("send 1 b m{number}\n")).collect();
    let shared: String = (30..60).map(|number| format!("send 1 a,b m{number}\n")).collect();
    bench.run(&(alone + &shared));
    bench.disk_hangs();
    assert_eq!(bench.run("attach 1.1 a 1\nattach 1.2 b 1"), "ok ok");
    assert_eq!(bench.disk_answers(), "1.1<m30 1.2<m0");
}

#[test]
fn what_has_expired_and_cannot_be_read_is_read_once() {
    let mut bench = Bench::new(pinched());
    bench.run("send 1 a m until=50\nsend 1 a n until=50");
    bench.unread = "m";
    for time in 1..10 {
        bench.run(&format!("time {}", 1000 * time));
    }
    assert_eq!((bench.held().as_str(), bench.partitions[0].counters().unreadable), ("a:1 dead:1", 1));
    assert_eq!(bench.fetched, [2]);
}

#[test]
fn a_backlog_that_has_expired_is_buried_and_read_once() {
    let mut bench = Bench::new(Settings { page_entries: 8, ..pinched() });
    let fill: String = (0..800).map(|number| format!("send 1 a m{number} until=50\n")).collect();
    bench.run(&fill);
    // Two pages of eight in each tick: opening them is the cost.
    for time in 1..60 {
        bench.run(&format!("time {}", 500 * time));
    }
    assert_eq!(bench.held(), "dead:800");
    assert_eq!(bench.fetched.iter().sum::<usize>(), 800);
}

#[test]
fn what_a_transaction_over_two_partitions_has_sent_stays_on_the_disk_too() {
    let mut bench = Bench::new(Settings { resident_bytes_max: 0, ..settings(3) });
    let [one, other] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    assert_ne!(one, other);
    bench.run("send 1 a m tx=1\nsend 1 dead n tx=1\ncommit 1 1");
    assert_eq!(bench.held(), "a:1 dead:1");
    let resident =
        |bench: &Bench| bench.partitions.iter().map(|one| one.memory().resident_bytes).sum::<u64>();
    assert_eq!(resident(&bench), 0);
    assert_eq!(bench.run("attach 1.1 a 9\nattach 1.2 dead 9"), "ok 1.1<m ok 1.2<n");
}

#[test]
fn what_a_queue_has_twice_and_cannot_be_read_is_set_aside_twice() {
    let mut bench = Bench::new(pinched());
    let queue = "Consumer.A.VirtualTopic.x";
    bench.run(&format!("make 1 {queue}\nsend 1 {queue},#VirtualTopic.x m\nsend 1 {queue} n"));
    assert_eq!(bench.held(), format!("{queue}:3"));
    bench.unread = "m";
    assert_eq!(bench.run(&format!("attach 1.1 {queue} 9")), "ok 1.1<n");
    assert_eq!(bench.partitions[0].counters().unreadable, 2);
}
