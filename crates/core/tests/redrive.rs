//! Dead letters that go back, case by case. See `bench` for the words.

mod bench;

use std::sync::Arc;

use bench::{Bench, mark_dead, settings};
use postroad_core::Settings;
use postroad_model::Action;
use postroad_routing::{
    DestinationPattern, Grantee, Limit, Permission, Permissions, Policies, Policy, Returning, Tenant,
};

/// A bench whose dead letters say where they were.
fn bench(settings: Settings) -> Bench {
    let mut bench = Bench::new(settings);
    mark(&mut bench);
    bench
}

fn mark(bench: &mut Bench) {
    bench.partitions.iter_mut().for_each(|partition| partition.mark_dead_letters_by(mark_dead));
}

/// Sends these to queue `a`, and has a consumer reject all of them.
fn bury(bench: &mut Bench, connection: u64, bodies: &[String]) {
    let mut script = format!("attach {connection}.1 a 9999\n");
    for body in bodies {
        script += &format!("send {connection} a {body}\nreject {connection}.1 {body}\n");
    }
    bench.run(&script);
    bench.run(&format!("close {connection}"));
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("m{number}?k={}", number % 2)).collect()
}

const DEAD: &str =
    "send 1 a m?k=5\nsend 1 b n?k=6\nsend 1 b o?k=5\nattach 1.1 a 9\nattach 1.2 b 9\nattach 1.3 #t 9 sub=s
    send 1 #t p?k=5\nreject 1.1 m?k=5\nreject 1.2 n?k=6\nreject 1.2 o?k=5\nreject 1.3 p?k=5\nclose 1";

#[test]
fn dead_letters_go_back_to_where_each_was() {
    for (case, words, want, held) in [
        ("all, but what was in a subscription", "redrive 2 dead", "3 back, 1 left ok", "a:1 b:2 dead:1"),
        ("to another queue", "redrive 2 dead to=c", "4 back, 0 left ok", "c:4"),
        ("those of one queue", "redrive 2 dead origin=b", "2 back, 2 left ok", "b:2 dead:2"),
        ("selected ones", "redrive 2 dead where=k=5", "2 back, 2 left ok", "a:1 b:1 dead:2"),
        ("not all", "redrive 2 dead max=2", "2 back, 0 left ok", "a:1 b:1 dead:2"),
        ("to themselves", "redrive 2 dead to=dead", "0 back, 4 left ok", "dead:4"),
        ("a queue that does not exist", "redrive 2 none", "0 back, 0 left ok", "dead:4"),
        (
            "a bad selector",
            "redrive 2 dead where=k=",
            "no: invalid selector \"k=\": error at character 2: expected a property, a literal or `(`, found the end",
            "dead:4",
        ),
    ] {
        for partitions in [1, 3] {
            let mut bench = bench(settings(partitions));
            bench.run(DEAD);
            let said = bench.run(&format!("{words}\ntime 1\ntime 2\ntime 3"));
            assert_eq!((said.as_str(), bench.held().as_str()), (want, held), "case: {case}, {partitions}");
            bench.restart();
            assert_eq!(bench.held(), held, "case: {case}, {partitions}, after a restart");
            bench.reload();
            assert_eq!(bench.held(), held, "case: {case}, {partitions}, after another");
        }
    }
}

#[test]
fn what_comes_back_is_as_it_was_sent_and_new() {
    let mut bench = bench(settings(1));
    let said = bench.run(
        "send 1 a m
         attach 1.1 a 9
         fail 1.1 m
         reject 1.1 m
         attach 1.2 dead 9
         close 1
         redrive 2 dead
         time 1
         attach 2.1 a 9",
    );
    assert_eq!(said, "ok ok 1.1<m ok 1.1<m!1 ok ok 1.2<m@queue://a 1 back, 0 left ok ok 2.1<m");
}

#[test]
fn what_another_holds_or_comes_later_stays() {
    let mut bench = bench(settings(1));
    bury(&mut bench, 1, &numbered(3));
    let said =
        bench.run("attach 2.1 dead 1\nattach 3.1 a 9\nredrive 3 dead\nreject 3.1 m1?k=1\ntime 1\ntime 2");
    assert_eq!(
        said,
        "ok 2.1<m0?k=0@queue://a ok 3.1<m1?k=1* 3.1<m2?k=0 ok 2 back, 0 left ok".replace('*', "")
    );
    assert_eq!(bench.held(), "a:1 dead:2", "one is held, and one has died again");
}

#[test]
fn a_step_is_short_whatever_there_is() {
    for (case, resident_bytes_max) in [("in memory", 1 << 20), ("on the disk, in packed pages", 20_000)] {
        let mut bench = bench(Settings { resident_bytes_max, ..settings(1) });
        bury(&mut bench, 1, &numbered(300));
        bench.run("redrive 2 dead where=k=1");
        let moved = bench.partitions[0].counters().redriven;
        assert!(moved <= 64, "case: {case}: {moved}");
        let script: String = (1..400).map(|now| format!("time {now}\n")).collect();
        assert_eq!(bench.run(&script), "150 back, 150 left ok", "case: {case}");
        assert_eq!(bench.held(), "a:150 dead:150", "case: {case}");
        let said = bench.run("attach 3.1 a 9999");
        let want: Vec<String> = (0..150).map(|number| format!("3.1<m{}?k=1", 2 * number + 1)).collect();
        assert_eq!(said, format!("ok {}", want.join(" ")), "case: {case}: in their order");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

#[test]
fn nothing_is_lost_where_the_log_fails() {
    for partitions in [1, 3] {
        let mut bench = bench(settings(partitions));
        bury(&mut bench, 1, &numbered(3));
        for id in 0..partitions {
            bench.broken = Some(postroad_model::PartitionId(id));
            let said = bench.run("redrive 2 dead\ntime 1\ntime 2");
            bench.broken = None;
            match bench.held().as_str() {
                "dead:3" => assert!(said.starts_with("0 back, 0 left no: "), "{partitions}, {id}: {said}"),
                "a:3" => assert_eq!(said, "3 back, 0 left ok", "{partitions}, {id}"),
                other => panic!("{partitions}, {id}: {other}"),
            }
            bench.restart();
            mark(&mut bench);
        }
        bench.run("redrive 2 dead\ntime 1\ntime 2");
        assert_eq!(bench.held(), "a:3", "{partitions}");
    }
}

#[test]
fn whoever_leaves_ends_it() {
    let mut bench = bench(settings(1));
    bury(&mut bench, 1, &numbered(200));
    let said = bench.run("redrive 2 dead\nclose 2\ntime 1\ntime 2\ntime 3\ntime 4");
    assert_eq!((said.as_str(), bench.held().as_str()), ("", "a:64 dead:136"));
}

#[test]
fn by_policy_they_go_back_by_themselves_and_not_for_ever() {
    let returning = Returning { after_ms: Some(10_000), rounds_max: 2 };
    let mut policies = Policies::with_dead_letters_in("dead");
    let policy = Policy { returning, ..policies.fallback().clone() };
    policies.set(&DestinationPattern::parse("queue://dead").expect("a sound pattern"), policy);
    for partitions in [1, 3] {
        let mut bench = bench(settings(partitions));
        bench.follow(policies.clone());
        bench.run("time 1000\nsend 1 a m\nattach 1.1 a 9\nreject 1.1 m");
        // Looked at once in a second; the first look that finds it is at 2000.
        let script = |from: u64, to: u64| -> String {
            (from..to).map(|second| format!("time {}000\ntime {}001\n", second, second)).collect()
        };
        assert_eq!(bench.run(&script(2, 12)), "", "{partitions}");
        assert_eq!(bench.run(&script(12, 13)), "1.1<m", "{partitions}");
        bench.run("reject 1.1 m");
        // A restart begins the wait again, and knows how often it has gone back.
        bench.restart();
        mark(&mut bench);
        bench.run("time 14000\nattach 2.1 a 9");
        assert_eq!(bench.run(&script(15, 24)), "", "{partitions}");
        assert_eq!(bench.run(&script(24, 26)), "2.1<m", "{partitions}");
        bench.run("reject 2.1 m");
        assert_eq!(bench.run(&script(26, 90)), "", "{partitions}");
        assert_eq!(bench.held(), "dead:1", "{partitions}");
        // An operator may redrive it, and then all begins again.
        assert_eq!(bench.run("redrive 3 dead\ntime 90500"), "2.1<m 1 back, 0 left ok", "{partitions}");
        bench.run("reject 2.1 m");
        assert_eq!(bench.run(&script(91, 104)), "2.1<m", "{partitions}");
    }
}

fn pattern(text: &str) -> DestinationPattern {
    DestinationPattern::parse(text).expect("a sound pattern")
}

#[test]
fn dead_letters_go_back_only_to_queues_that_the_requester_may_write_to() {
    let mut permissions = Permissions::default();
    for (queue, actions) in [("queue://a", &[Action::Write][..]), ("queue://b", &[Action::Read])] {
        permissions.add(Permission {
            grantees: vec![Grantee::User("ann".into())],
            destinations: vec![pattern(queue)],
            actions: actions.iter().copied().collect(),
        });
    }
    let mut policies = Policies::with_dead_letters_in("dead");
    policies.permissions = Arc::new(permissions);
    for (case, words, want, held) in [
        ("to one of two queues", "redrive 2 dead by=ann", "1 back, 3 left ok", "a:1 dead:3"),
        ("from the other one", "redrive 2 dead origin=b by=ann", "0 back, 4 left ok", "dead:4"),
        ("with a number", "redrive 2 dead id=7 by=ann", "1 back, 3 left, to a:1 ok", "a:1 dead:3"),
        ("the gate has checked a target", "redrive 2 dead to=c by=ann", "4 back, 0 left ok", "c:4"),
        ("no permission", "redrive 2 dead by=bob", "0 back, 4 left ok", "dead:4"),
        ("the broker itself", "redrive 2 dead", "3 back, 1 left ok", "a:1 b:2 dead:1"),
    ] {
        for partitions in [1, 3] {
            let policies = Arc::new(policies.clone());
            let mut bench = bench(Settings { policies, ..settings(partitions) });
            bench.run(DEAD);
            let said = bench.run(&format!("{words}\ntime 1\ntime 2\ntime 3"));
            assert_eq!((said.as_str(), bench.held().as_str()), (want, held), "case: {case}, {partitions}");
        }
    }
}

#[test]
fn by_policy_dead_letters_of_a_tenant_go_back_to_its_own_queues_alone() {
    for (dead, held) in [("acme.dead", "acme.a:1 acme.dead:2"), ("dead", "acme.a:1 b:1 lab.a:1")] {
        let mut policies = Policies::with_dead_letters_in(dead);
        let returning = Returning { after_ms: Some(10_000), rounds_max: 2 };
        let policy = Policy { returning, ..policies.fallback().clone() };
        policies.set(&pattern(&format!("queue://{dead}")), policy);
        for name in ["acme", "lab"] {
            let owns = [pattern(&format!("queue://{name}.>"))];
            policies.tenants.add(Tenant::new(name, Limit::default()), &owns).expect("sound tenants");
        }
        for partitions in [1, 3] {
            let policies = Arc::new(policies.clone());
            let mut bench = bench(Settings { policies, ..settings(partitions) });
            bench.run("time 1000");
            for queue in ["acme.a", "lab.a", "b"] {
                bench.run(&format!("send 1 {queue} m\nattach 1.1 {queue} 9\nreject 1.1 m\ndetach 1.1 all"));
            }
            assert_eq!(bench.held(), format!("{dead}:3"), "{partitions}");
            let script = (2..30).map(|second| format!("time {second}000\ntime {second}001\n"));
            bench.run(&script.collect::<String>());
            assert_eq!(bench.held(), held, "{dead}, {partitions}");
        }
    }
}

#[test]
fn a_temporary_queue_of_another_connection_is_not_redriven() {
    let refused = "no: temp-queue://t belongs to another connection";
    for (words, want, held) in [
        ("redrive 2 ~t to=a", refused, "t:1"),
        ("redrive 2 ~t", refused, "t:1"),
        ("redrive 2 ~t undo=7", refused, "t:1"),
        ("redrive 2 ~t count=7", refused, "t:1"),
        ("redrive 1 ~t to=a", "1 back, 0 left ok", "a:1"),
        ("redrive 2 ~other to=a", "0 back, 0 left ok", "t:1"),
    ] {
        for partitions in [1, 3] {
            let mut bench = bench(settings(partitions));
            bench.run("make 1 ~t\nsend 1 ~t m");
            let said = bench.run(&format!("{words}\ntime 1\ntime 2"));
            assert_eq!((said.as_str(), bench.held().as_str()), (want, held), "{words}, {partitions}");
        }
    }
}

/// It has nowhere else to go, and would come to the same consumer at once.
#[test]
fn a_dead_letter_that_is_given_up_on_stays_in_its_place_and_rests() {
    let mut bench = bench(settings(1));
    let said = bench.run("send 1 a m\nsend 1 a n\nattach 1.1 a 2\nreject 1.1 m n\nattach 2.1 dead 1");
    assert!(said.ends_with("2.1<m@queue://a"), "{said}");
    let said = bench.run("reject 2.1 m@queue://a\ncredit 2.1 1");
    assert!(said.contains("2.1<n@queue://a"), "{said}");
    assert_eq!(bench.run("accept 2.1 n@queue://a\ncredit 2.1 1\ntime 9999"), "ok");
    assert_eq!(bench.held(), "dead:1");
    assert!(bench.run("time 10000").contains("2.1<m@queue://a"));
    bench.run("reject 2.1 m@queue://a");
    bench.reload();
    assert_eq!(bench.held(), "dead:1", "nothing ends");
    let said = bench.run("attach 3.1 dead 1\nreject 3.1 m@queue://a\nredrive 4 dead\ntime 10001");
    assert!(said.contains("1 back, 0 left"), "what rests goes back, too: {said}");
    assert_eq!(bench.held(), "a:1");
}

/// It was woken for that, and nothing else is due that would bring it to those who wait.
#[test]
fn a_dead_letter_that_rested_and_stays_is_delivered_again() {
    let mut bench = bench(settings(1));
    bench.run("send 1 a m?k=1\nattach 1.1 a 1\nreject 1.1 m?k=1\nattach 2.1 dead 1");
    bench.run("reject 2.1 m?k=1@queue://a\ncredit 2.1 1");
    let said = bench.run("redrive 4 dead where=k=2\ntime 1\ntime 20000");
    assert!(said.contains("0 back, 1 left") && said.contains("2.1<m?k=1@queue://a"), "{said}");
}

/// Dead letters of queues `a` and `b`, sent back by the redrive 7.
fn redriven(partitions: u16) -> Bench {
    let mut bench = bench(settings(partitions));
    bench.run(DEAD);
    let said = bench.run("redrive 2 dead id=7\ntime 1\ntime 2\ntime 3");
    assert_eq!(said, "3 back, 1 left, to a:1 b:2 ok", "{partitions}");
    bench
}

#[test]
fn a_redrive_is_undone_where_its_messages_still_wait() {
    for partitions in [1, 3] {
        for (case, words, want, held) in [
            ("all wait", "", "2 back, 0 left ok", "a:1 dead:3"),
            ("others have come since", "send 3 b new", "2 back, 1 left ok", "a:1 b:1 dead:3"),
            ("a consumer has one", "attach 3.1 b 1", "1 back, 0 left, 1 held ok", "a:1 b:1 dead:2"),
            (
                "one was consumed",
                "attach 3.1 b 1\naccept 3.1 n?k=6\nclose 3",
                "1 back, 0 left ok",
                "a:1 dead:2",
            ),
            (
                "one was given back",
                "attach 3.1 b 1\nfail 3.1 n?k=6\nclose 3",
                "2 back, 0 left ok",
                "a:1 dead:3",
            ),
        ] {
            let mut bench = redriven(partitions);
            bench.run(words);
            let counted = bench.run("redrive 4 b count=7\ntime 4\ntime 5\ntime 6");
            let said = bench.run("redrive 4 b undo=7\ntime 7\ntime 8\ntime 9");
            assert_eq!((said.as_str(), bench.held().as_str()), (want, held), "case: {case}, {partitions}");
            assert_eq!(counted, want, "case: {case}, {partitions}: it is as counted");
        }
    }
}

#[test]
fn an_undo_works_after_a_restart_and_knows_its_own_redrive_alone() {
    for partitions in [1, 3] {
        let mut bench = redriven(partitions);
        bench.restart();
        mark(&mut bench);
        bench.reload();
        mark(&mut bench);
        let said = bench.run("redrive 4 b undo=8\ntime 10\ntime 11\ntime 12");
        assert_eq!((said.as_str(), bench.held().as_str()), ("0 back, 2 left ok", "a:1 b:2 dead:1"));
        bench.run("redrive 4 b undo=7\ntime 13\ntime 14\ntime 15");
        bench.run("redrive 4 a undo=7\ntime 16\ntime 17\ntime 18");
        assert_eq!(bench.held(), "dead:4", "{partitions}");
        // They say where they were, as before, and an undo ends the mark.
        let said = bench.run("redrive 4 dead count=7\ntime 19\ntime 20");
        assert_eq!(said, "0 back, 4 left ok", "{partitions}");
        let said = bench.run("redrive 5 dead\ntime 21\ntime 22\ntime 23");
        assert_eq!((said.as_str(), bench.held().as_str()), ("3 back, 1 left ok", "a:1 b:2 dead:1"));
    }
}

#[test]
fn messages_that_died_again_are_counted_where_they_are() {
    let mut bench = redriven(1);
    bench.run("attach 3.1 b 9\nreject 3.1 n?k=6\nclose 3");
    assert_eq!(bench.run("redrive 4 dead count=7\ntime 4\ntime 5"), "1 back, 1 left ok");
    assert_eq!(bench.run("redrive 4 b undo=7\ntime 6\ntime 7"), "1 back, 0 left ok");
}

#[test]
fn a_redrive_with_a_number_goes_to_a_bounded_number_of_queues() {
    let mut bench = bench(settings(1));
    let queues = postroad_model::REDRIVE_TARGETS_MAX + 3;
    let script =
        |number: usize| format!("send 1 q{number} m\nattach 1.{number} q{number} 1\nreject 1.{number} m\n");
    bench.run(&(0..queues).map(script).collect::<String>());
    bench.run("close 1");
    let script: String = (1..40).map(|now| format!("time {now}\n")).collect();
    let said = bench.run(&format!("redrive 2 dead id=7\n{script}"));
    assert!(said.starts_with("256 back, 3 left, to q0:1 "), "{said}");
    let said = bench.run(&format!("redrive 2 dead id=8\n{}", script.replace("time ", "time 1")));
    assert!(said.starts_with("3 back, 0 left, to q256:1 "), "{said}");
}
