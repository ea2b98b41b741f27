//! Links that their clients come back to, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_model::PartitionId;
use postroad_routing::{AtLimit, DestinationPattern, Limit, Policies, Policy};

/// Runs each case on one partition; compares answers and contents.
fn check(policies: &Policies, cases: &[(&str, &str, &str, &str)]) {
    for (name, script, want, held) in cases {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        assert_eq!(&bench.run(script), want, "case: {name}");
        assert_eq!(&bench.held(), held, "case: {name}");
    }
}

#[test]
fn what_waited_behind_a_link_that_has_a_new_holder_goes_on() {
    let limit = Limit { bytes_max: Some(10), action: AtLimit::Block, ..Limit::default() };
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a sound pattern"), policy);
    let waits = "send 2 a m\nlink 1 l a none\nsend 1 a nnnnnnnnnnnn link=l\nsend 3 a o\n";
    check(
        &policies,
        &[
            ("behind it", waits, "ok known ok", "a:1"),
            ("without it", &format!("{waits}link 4 l a"), "ok known ok 1.0 detached known ok ok", "a:2"),
        ],
    );
}

#[test]
fn whoever_comes_back_is_told_what_was_taken_in() {
    let sent = "link 1 l a none\nsend 1 a m link=l\nsend 1 a n link=l\n";
    let script = |then: &str| format!("{sent}{then}");
    for (name, then, want, held) in [
        ("over another connection", "close 1\nlink 2 l a m n o", " known m n ok", "a:2"),
        ("all that is known, if all may be in doubt", "close 1\nlink 2 l a", " known m n ok", "a:2"),
        (
            "of what it is not in doubt about nothing",
            "close 1\nlink 2 l a n\nlink 2 l a",
            " known n ok known n ok",
            "a:2",
        ),
        ("of what it has settled nothing", "know 1 l a m\nclose 1\nlink 2 l a", " known n ok", "a:2"),
        ("what another settles stays", "know 2 l a m\nclose 1\nlink 2 l a", " known m n ok", "a:2"),
        ("over the same connection", "part 1 l a\nlink 1 l a m", " known m ok", "a:2"),
        ("of a link that was closed nothing", "part 1 l a closed\nlink 1 l a m", " known ok", "a:2"),
        ("of another link nothing", "close 1\nlink 2 k a m", " known ok", "a:2"),
        ("of another address nothing", "close 1\nlink 2 l b m", " known ok", "a:2"),
        ("while it is remembered", "close 1\ntime 999\nlink 2 l a m", " known m ok", "a:2"),
        ("and no longer", "close 1\ntime 1000\nlink 2 l a m", " known ok", "a:2"),
        (
            "its time begins when it is lost",
            "time 900\nclose 1\ntime 1899\nlink 2 l a m",
            " known m ok",
            "a:2",
        ),
        (
            "its time ends when it is there again",
            "close 1\ntime 999\nlink 2 l a m\ntime 5000\nclose 2\nlink 3 l a m",
            " known m ok known m ok",
            "a:2",
        ),
        (
            "a tag that is used again is another message",
            "send 1 a m link=l\nclose 1\nlink 2 l a",
            " ok known n m ok",
            "a:3",
        ),
    ] {
        check(
            &Policies::with_dead_letters_in("dead"),
            &[(name, &script(then), &format!("known ok ok ok{want}"), held)],
        );
    }
}

#[test]
fn a_link_has_one_holder() {
    check(
        &Policies::with_dead_letters_in("dead"),
        &[
            (
                "the new one takes it over, and what the old one sends is refused",
                "link 1 l a none\nsend 1 a m link=l\nlink 2 l a m n\nsend 1 a n link=l\nsend 2 a n link=l",
                "known ok ok 1.0 detached known m ok no: the link l was attached by another connection ok",
                "a:2",
            ),
            (
                "the end of the old one changes nothing",
                "link 1 l a none\nlink 2 l a none\npart 1 l a closed\nclose 1\nsend 2 a m link=l\nlink 2 l a",
                "known ok 1.0 detached known ok ok known m ok",
                "a:1",
            ),
        ],
    );
}

#[test]
fn what_is_on_its_way_is_waited_for() {
    let mut bench = Bench::new(settings(1));
    assert_eq!(bench.run("link 1 l a none"), "known ok");
    assert_eq!(
        bench.run_all_late("send 1 a m link=l\nclose 1\nlink 2 l a m\nsend 2 b n"),
        "ok known m ok ok"
    );
    assert_eq!(bench.held(), "a:1 b:1");

    let mut bench = Bench::new(settings(1));
    assert_eq!(bench.run("link 1 l a none"), "known ok");
    bench.broken = Some(PartitionId(0));
    assert_eq!(bench.run("send 1 a m link=l"), "no: the store could not write: broken");
    bench.broken = None;
    assert_eq!(bench.run("close 1\nlink 2 l a m"), "known m! ok", "it is certain that it is not there");
    assert_eq!(bench.held(), "");
}

#[test]
fn whoever_asked_and_lost_the_link_meanwhile_is_told() {
    let mut bench = Bench::new(settings(1));
    assert_eq!(bench.run("link 1 l a none"), "known ok");
    let no = "no: the link l was attached by another connection";
    let said = bench.run_all_late("send 1 a m link=l\nlink 2 l a m\nlink 3 l a m\npart 3 l a");
    assert_eq!(said, format!("1.0 detached {no} 2.0 detached {no} ok"));
    assert_eq!(bench.run("link 4 l a m"), "known m ok");
}

#[test]
fn what_waited_for_room_when_its_holder_went_never_came() {
    let limit = Limit { messages_max: Some(1), action: AtLimit::Block, ..Limit::default() };
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { limit, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://a").expect("a sound pattern"), policy);
    check(
        &policies,
        &[
            (
                "with its connection",
                "link 1 l a none\nsend 1 a m link=l\nsend 1 a n link=l\nclose 1\nlink 2 l a m n",
                "known ok ok known m ok",
                "a:1",
            ),
            (
                "with its link alone",
                "link 1 l a none\nsend 1 a m link=l\nsend 1 a n link=l\nlink 2 l a m n\nattach 2.1 a 3\naccept 2.1 m",
                "known ok ok 1.0 detached known m ok ok 2.1<m ok",
                "",
            ),
        ],
    );
}
