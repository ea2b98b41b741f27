//! Messages retained by topics for later subscribers. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_core::Settings;

fn notices(count: usize) -> String {
    (0..count).map(|number| format!("send 1 #adv m{number:04} volatile keep=k{number:04}\n")).collect()
}

#[test]
fn a_subscription_costs_the_same_however_much_is_retained() {
    let mut bench = Bench::new(settings(1));
    bench.run(&notices(500));
    let before = bench.partitions[0].memory();
    let attach = |number: usize| format!("attach {number}.1 #adv 0\nattach {number}.2 #> 0\n");
    bench.run(&(2..52).map(attach).collect::<String>());
    assert_eq!(bench.partitions[0].memory(), before, "no message is copied ahead of credit");
    let entries: u64 = bench.partitions[0].queues().map(|(_, entries)| entries).sum();
    assert_eq!(entries, 0, "and no queue has any");
    // Those who read share each message.
    let said = bench.run(&(2..52).map(|number| format!("credit {number}.1 400\n")).collect::<String>());
    assert_eq!(said.split(' ').count(), 50 * 400);
    assert_eq!(bench.partitions[0].memory(), before, "deliveries share the messages");
}

#[test]
fn a_subscription_reads_on_as_it_has_credit_and_ahead_of_what_comes_since() {
    for (case, script, want) in [
        ("one by one", "attach 2.1 #adv 1\n credit 2.1 2", "ok 2.1<m0000 2.1<m0001 2.1<m0002"),
        ("by a pattern", "attach 2.1 #a.* 1\n attach 2.2 #> 2", "ok ok 2.2<m0000 2.2<m0001"),
        (
            "what comes since is behind",
            "attach 2.1 #adv 0\n send 1 #adv n volatile keep=l\n credit 2.1 9",
            "ok ok 2.1<m0000 2.1<m0001 2.1<m0002 2.1<n",
        ),
        (
            "what is retained anew comes once, as it is now",
            "attach 2.1 #adv 0\n send 1 #adv n volatile keep=k0001\n credit 2.1 9",
            "ok ok 2.1<m0000 2.1<m0002 2.1<n",
        ),
        (
            "what is retained no more comes as its end alone",
            "attach 2.1 #adv 1\n send 1 #adv gone volatile drop=k0001\n credit 2.1 9",
            "ok 2.1<m0000 ok 2.1<m0002 2.1<gone",
        ),
        (
            "all of a topic may end meanwhile",
            "attach 2.1 #adv 1\n send 1 #adv x volatile drop=k0000\n send 1 #adv y volatile drop=k0001\n \
             send 1 #adv z volatile drop=k0002\n credit 2.1 9",
            "ok 2.1<m0000 ok ok ok 2.1<x 2.1<y 2.1<z",
        ),
        (
            "selectors hold",
            "send 1 #adv o?k=2 volatile keep=o\n attach 2.1 #adv 9 where=k=2",
            "ok ok 2.1<o?k=2",
        ),
        (
            "a drain ends it",
            "attach 2.1 #adv 0\n credit 2.1 5\n drain 2.1",
            "ok 2.1<m0000 2.1<m0001 2.1<m0002 2.1 drained",
        ),
        (
            "a consumer that leaves takes its place along",
            "attach 2.1 #adv 1\n close 2\n attach 3.1 #adv 1",
            "ok 2.1<m0000 ok 3.1<m0000",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(&notices(3));
        assert_eq!(bench.run(script), want, "case: {case}");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

#[test]
fn what_there_is_no_room_for_is_told_and_not_retained() {
    // A topic has half of it: two messages of five bytes with their overhead, and not three.
    let bound = Settings { retained_bytes_max: 2 * 2 * (256 + 5) + 10, ..settings(1) };
    let mut bench = Bench::new(bound);
    bench.run("attach 2.1 #adv 9");
    let heard = bench.run(&notices(4));
    assert_eq!(heard, "2.1<m0000 ok 2.1<m0001 ok 2.1<m0002 ok 2.1<m0003 ok");
    assert_eq!(bench.partitions[0].counters().unretained, 2);
    assert_eq!(bench.run("attach 3.1 #adv 9"), "ok 3.1<m0000 3.1<m0001");
    // Retained messages go on, and ended ones make room.
    bench.run("send 1 #adv mmmmm volatile keep=k0001\n send 1 #adv x volatile drop=k0000\n send 1 #adv nnnnn volatile keep=k0009");
    assert_eq!(bench.run("attach 4.1 #adv 9"), "ok 4.1<mmmmm 4.1<nnnnn");
    // Other topics have the rest.
    bench.run(
        "send 1 #b bbbbb volatile keep=1\n send 1 #b bbbbb volatile keep=2\n send 1 #c ccccc volatile keep=3",
    );
    assert_eq!(bench.run("attach 5.1 #b 9\n attach 5.2 #c 9"), "ok 5.1<bbbbb 5.1<bbbbb ok");
}
