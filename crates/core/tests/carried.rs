//! Large messages that move to another partition, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, mark_dead, settings};

/// Of three partitions one has `a`, and `dead` lies in another: by what `pieces` says, they are 1 and 0.
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
fn several_move_in_their_order() {
    let mut bench = bench();
    bench.run(SENT);
    bench.run("piece 1 8 a hij\nsend 1 a n upload=8\nsend 1 a o");
    assert_eq!(bench.run("reject 1.1 m n o"), "ok");
    let all = "ok 2.1<m@queue://a+abcdefg 2.1<n@queue://a+hij 2.1<o@queue://a";
    assert_eq!(bench.run("attach 2.1 dead 9"), all);
}
