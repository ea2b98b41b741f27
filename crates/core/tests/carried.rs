//! Large messages that move to another partition, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, mark_dead, settings};
use postroad_routing::{DeadLetters, Policies};

/// Of three partitions one has `a`, and `dead` lies in another: by `pieces`, they are 1 and 0.
fn bench() -> Bench {
    let mut bench = Bench::new(settings(3));
    mark(&mut bench);
    bench
}

fn mark(bench: &mut Bench) {
    bench.partitions.iter_mut().for_each(|partition| partition.mark_dead_letters_by(mark_dead));
}

const SENT: &str = "piece 1 7 a abc\npiece 1 7 a def\npiece 1 7 a g\nsend 1 a m upload=7\nattach 1.1 a 9";
const THERE: &str = "ok ok ok ok ok 1.1<m+abcdefg";
/// Time passes: who has a delivery in hand is looked after once a second.
const LATER: &str = "time 2000\ntime 4000";

#[test]
fn a_dead_letter_takes_its_body_along() {
    let mut bench = bench();
    let [here, there] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name).0);
    assert_ne!(here, there, "they lie in different partitions");
    assert_eq!((bench.run(SENT).as_str(), bench.pieces()), (THERE, format!("{here}: abc def g")));
    assert_eq!(bench.run("reject 1.1 m"), "ok");
    bench.run(LATER);
    assert_eq!((bench.held(), bench.pieces()), ("dead:1".to_owned(), format!("{there}: abc def g")));
    bench.restart();
    mark(&mut bench);
    assert_eq!(bench.pieces(), format!("{there}: abc def g"), "after a restart");
    assert_eq!(bench.run("attach 2.1 dead 9"), "ok 2.1<m@queue://a+abcdefg");
    assert_eq!(bench.run("accept 2.1 m@queue://a"), "ok");
    bench.run(LATER);
    assert_eq!((bench.held(), bench.pieces()), (String::new(), String::new()));
}

#[test]
fn pieces_that_are_read_in_another_order_keep_their_places() {
    let mut bench = bench();
    bench.last_read_first = true;
    bench.run(SENT);
    bench.run("reject 1.1 m");
    bench.run(LATER);
    let there = bench.settings.placement.partition_of("dead").0;
    assert_eq!(bench.pieces(), format!("{there}: def abc g"), "the second came first");
    assert_eq!(bench.run("attach 2.1 dead 9"), "ok 2.1<m@queue://a+abcdefg");
}

#[test]
fn it_goes_back_with_its_body() {
    let mut bench = bench();
    bench.run(SENT);
    bench.run("reject 1.1 m\nclose 1");
    assert_eq!(
        bench.run("redrive 2 dead\ntime 2000\ntime 4000\nattach 3.1 a 9"),
        "1 back, 0 left ok ok 3.1<m+abcdefg"
    );
    let here = bench.settings.placement.partition_of("a").0;
    assert_eq!(bench.pieces(), format!("{here}: abc def g"));
}

#[test]
fn a_body_that_cannot_be_written_there_leaves_everything_here() {
    let mut bench = bench();
    bench.run(SENT);
    let [here, there] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    bench.broken = Some(there);
    assert_eq!(bench.run("reject 1.1 m"), "1.1<m+abcdefg no: the store could not write: broken");
    bench.broken = None;
    bench.run(LATER);
    assert_eq!((bench.held(), bench.pieces()), ("a:1".to_owned(), format!("{}: abc def g", here.0)));
    assert_eq!(bench.run("reject 1.1 m"), "ok");
    assert_eq!(bench.held(), "dead:1");
}

#[test]
fn what_nobody_waits_for_is_tried_again() {
    let mut bench = bench();
    let there = bench.settings.placement.partition_of("dead");
    bench.run("piece 1 7 a abc\nsend 1 a m upload=7 until=50");
    bench.broken = Some(there);
    bench.run("time 60\ntime 5000");
    assert_eq!(bench.held(), "a:1");
    bench.broken = None;
    bench.run("time 9000");
    assert_eq!(bench.held(), "a:1", "not at once");
    bench.run("time 20000\ntime 22000\ntime 24000");
    assert_eq!((bench.held(), bench.pieces()), ("dead:1".to_owned(), format!("{}: abc", there.0)));
}

#[test]
fn a_body_that_cannot_be_read_stays_and_is_counted_once() {
    let mut bench = bench();
    let here = bench.settings.placement.partition_of("a").0;
    bench.unread = "def";
    bench.run(SENT);
    bench.run("piece 1 8 a hij\nsend 1 a n upload=8");
    let no = "no: unreadable messages stay where they are: a message, damaged";
    assert_eq!(bench.run("reject 1.1 m n"), format!("1.1<n+hij {no}"), "whoever waits is told");
    let unreadable = |bench: &Bench| bench.partitions[usize::from(here)].counters().unreadable;
    assert_eq!((bench.held(), unreadable(&bench)), ("a:2".to_owned(), 1));
    assert_eq!(bench.run("reject 1.1 n"), "ok");
    assert_eq!((bench.held(), bench.carried), ("a:1 dead:1".to_owned(), 3));
    bench.run("close 1\ntime 20000\ntime 40000");
    assert_eq!(bench.run("attach 2.1 a 9"), "ok", "nobody gets it");
    bench.run(LATER);
    assert_eq!((bench.held(), unreadable(&bench), bench.carried), ("a:1 dead:1".to_owned(), 1, 3));
    assert!(bench.pieces().contains(&format!("{here}: abc def g")), "{}", bench.pieces());
}

#[test]
fn what_moves_beside_it_goes_on_if_nobody_waits() {
    let mut bench = bench();
    bench.unread = "def";
    bench.run("piece 1 7 a abc\npiece 1 7 a def\nsend 1 a m upload=7 until=50");
    bench.run("piece 1 8 a hij\nsend 1 a n upload=8 until=50");
    bench.run("time 60\ntime 2000\ntime 15000\ntime 30000");
    assert_eq!((bench.held(), bench.carried), ("a:1 dead:1".to_owned(), 3), "it is tried once");
    bench.restart();
    mark(&mut bench);
    bench.run("time 31000\ntime 32000");
    assert_eq!(bench.carried, 5, "and once more by the next process");
}

#[test]
fn the_queue_that_it_goes_to_may_move_meanwhile() {
    let mut settings = settings(4);
    settings.placement.hashed = 3;
    let mut bench = Bench::new(settings);
    mark(&mut bench);
    bench.run("make 9 dead\nattach 1.1 a 9");
    let pieces: Vec<String> = (10..30).map(|number| format!("{number}")).collect();
    pieces.iter().for_each(|piece| drop(bench.run(&format!("piece 1 7 a {piece}"))));
    bench.run("send 1 a m upload=7");
    bench.late_from_now_on();
    bench.run("reject 1.1 m\nmove 9 dead to=3");
    (0..8).for_each(|_| bench.first_durable());
    assert_eq!(bench.run("time 20"), "ok", "it is leaving");
    (0..8).for_each(|_| bench.first_durable());
    assert_eq!(bench.run("send 2 dead n\nmoves 9"), "ok dead to 3: 0 moved, 0 left, 1 coming ok ok ok");
    assert_eq!(bench.all_durable(), "ok ok");
    bench.run("time 40\ntime 60\ntime 80");
    let body = pieces.concat();
    assert_eq!(bench.run("moves 9"), "ok ok ok ok");
    assert_eq!(bench.run("attach 2.1 dead 9"), format!("ok 2.1<m@queue://a+{body} 2.1<n"));
    bench.run(LATER);
    assert_eq!(bench.pieces(), format!("3: {}", pieces.join(" ")));
}

/// The other partition cannot write, and when it is tried again the queue is elsewhere.
#[test]
fn the_queue_that_it_goes_to_may_have_moved_before() {
    for to in [0, 3] {
        let mut settings = settings(4);
        settings.placement.hashed = 3;
        let mut bench = Bench::new(settings);
        mark(&mut bench);
        let [here, there] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
        assert_eq!((here.0, there.0), (0, 1));
        bench.run("make 9 dead\npiece 1 7 a abc\nsend 1 a m upload=7 until=50");
        bench.broken = Some(there);
        bench.run("time 60");
        bench.broken = None;
        bench.run(&format!("move 9 dead to={to}\ntime 1100\ntime 1200\ntime 1300"));
        assert_eq!(bench.run("moves 9"), "ok ok ok ok", "it has moved");
        bench.run("time 12000\ntime 13000\ntime 24000\ntime 26000");
        assert_eq!(bench.held(), "dead:1");
        assert_eq!(bench.run("attach 2.1 dead 9"), "ok 2.1<m@queue://a+abc", "moved to {to}");
        bench.run(LATER);
        assert_eq!(bench.pieces(), format!("{to}: abc"));
    }
}

#[test]
fn a_partition_that_hangs_holds_up_only_what_goes_there() {
    let mut bench = bench();
    let [here, there] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    let third = |name: &&str| ![here, there].contains(&bench.settings.placement.partition_of(name));
    let third = *["b", "c", "d", "e", "f", "g", "h"].iter().find(|name| third(name)).expect("one of them");
    bench.run("piece 1 7 a abc\npiece 1 7 a def\npiece 1 7 a g\nsend 1 a m upload=7\nattach 1.1 a 1");
    bench.run("piece 1 8 a hij\nsend 1 a n upload=8");
    bench.late_from_now_on();
    bench.run(&format!("reject 1.1 m\nredrive 2 a to={third}\ntime 10\ntime 20"));
    assert_eq!(bench.carried, 3, "two pieces of the first message, and all of the second");
    bench.all_durable();
    bench.run(LATER);
    assert_eq!(bench.held(), format!("{third}:1 dead:1"));
}

#[test]
fn several_move_in_their_order() {
    let mut bench = bench();
    bench.run(SENT);
    bench.run("piece 1 8 a hij\nsend 1 a n upload=8\nsend 1 a o");
    assert_eq!(bench.run("reject 1.1 m n o"), "ok");
    let all = "ok 2.1<m@queue://a+abcdefg 2.1<n@queue://a+hij 2.1<o@queue://a";
    assert_eq!(bench.run("attach 2.1 dead 9"), all);
}

/// Its pieces are in the log though the message is not, and count without a pause until they belong
/// to the dead letter.
#[test]
fn a_message_that_is_in_memory_alone_takes_its_body_along() {
    let (sent, taken) = ("piece 1 7 a abc\nsend 1 a m upload=7 volatile until=50", "ok ok");
    for (case, script, want) in [
        ("it was rejected", "attach 1.1 a 9\nreject 1.1 m", " ok 1.1<m+abc ok"),
        ("its time was over", "time 60", ""),
    ] {
        let mut bench = Bench::new(settings(1));
        mark(&mut bench);
        let mut policy = Policies::with_dead_letters_in("dead").fallback().clone();
        policy.dead_letters = DeadLetters { non_persistent: true, ..policy.dead_letters };
        bench.follow(Policies::new(policy));
        assert_eq!(bench.run(&format!("{sent}\n{script}")), format!("{taken}{want}"), "case: {case}");
        bench.run(LATER);
        assert_eq!((bench.held().as_str(), bench.pieces().as_str()), ("dead:1", "0: abc"), "case: {case}");
        assert_eq!(bench.run("attach 2.1 dead 9"), "ok 2.1<m@queue://a+abc", "case: {case}");
    }
}

/// A message in memory alone stays as long as the log has not its dead letter.
#[test]
fn a_message_that_is_in_memory_alone_stays_if_the_log_cannot_take_it() {
    let no = "no: the store could not write: broken";
    for partitions in [1, 3] {
        for (case, begin, script, want) in [
            ("it was rejected", "send 1 a m volatile\nattach 1.1 a 9", "reject 1.1 m", format!("1.1<m {no}")),
            (
                "a large one",
                "piece 1 7 a abc\nsend 1 a m upload=7 volatile\nattach 1.1 a 9",
                "reject 1.1 m",
                format!("1.1<m+abc {no}"),
            ),
            (
                "a subscription's",
                "attach 1.1 #a 9\nsend 1 #a m volatile",
                "reject 1.1 m",
                format!("1.1<m {no}"),
            ),
            ("its time was over", "send 1 a m volatile until=50", "time 60", String::new()),
        ] {
            let case = format!("{case}, of {partitions} partitions");
            let mut bench = Bench::new(settings(partitions));
            mark(&mut bench);
            let mut policy = Policies::with_dead_letters_in("dead").fallback().clone();
            policy.dead_letters = DeadLetters { non_persistent: true, ..policy.dead_letters };
            bench.follow(Policies::new(policy));
            bench.run(begin);
            bench.late_from_now_on();
            bench.run(script);
            assert_eq!(bench.all_fail(), want, "case: {case}");
            assert_eq!(bench.held(), "a:1", "case: {case}");
            bench.run(&format!("{script}\n{LATER}"));
            assert_eq!(bench.held(), "dead:1", "case: {case}");
            let miscounted = |partition: &postroad_core::Partition| partition.miscounted().is_some();
            assert!(!bench.partitions.iter().any(miscounted), "case: {case}");
            let body = if case.starts_with("a large") { "+abc" } else { "" };
            let from = if case.starts_with("a sub") { "topic" } else { "queue" };
            assert_eq!(bench.run("attach 2.1 dead 9"), format!("ok 2.1<m@{from}://a{body}"), "case: {case}");
        }
    }
}

#[test]
fn a_piece_that_waits_for_others_is_answered_though_its_message_is_given_up() {
    let mut bench = Bench::new(settings(1));
    bench.late_from_now_on();
    // As much as may be on its way at a time.
    let large = "x".repeat(2 << 20);
    assert_eq!(bench.run(&format!("piece 1 7 a {large}\npiece 2 8 a y\npiece 2 8 a z")), "");
    assert_eq!(bench.run("abandon 2 8"), "ok ok");
    assert_eq!(bench.run("abandon 1 7"), "", "it is on its way");
    assert_eq!(bench.all_durable(), "ok");
}

#[test]
fn a_transaction_whose_large_message_has_no_body_is_refused_whole() {
    let mut bench = Bench::new(settings(1));
    let said =
        bench.run("send 1 a m tx=1\nsend 1 a n upload=7 tx=1\ncommit 1 1\nsend 1 a o tx=2\ncommit 1 2");
    let refused = "no: the store could not write: its body has not come";
    assert_eq!(said, format!("ok {refused} {refused} ok ok"));
    assert_eq!(bench.held(), "a:1");
}
