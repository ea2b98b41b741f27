//! The behaviour of a partition, case by case, through its two doors. See `bench` for the words.

mod bench;

use std::sync::Arc;

use bench::{Bench, QUESTIONS, settings};
use postroad_core::{Counters, Partition, Settings};
use postroad_model::{Command, Durability, Event, PartitionId};
use postroad_routing::{
    DeadLetterQueue, DeadLetters, DestinationPattern, Factor, Policies, Policy, Redelivery,
};

/// Runs each case in a new broker of one partition, and compares all that it said. To each consumer
/// it says the same without any memory to spare, only perhaps later.
fn check(cases: &[(&str, &str, &str)]) {
    check_with_memory(cases);
    for (name, script, want) in cases {
        let pinched = Settings { resident_bytes_max: 0, page_entries: 1, ..settings(1) };
        let said = Bench::new(pinched).run(script);
        assert_eq!(to_each(&said), to_each(want), "case: {name}, without memory");
    }
}

/// As `check`, with memory alone: an entry that has to be read first expires a second later.
fn check_with_memory(cases: &[(&str, &str, &str)]) {
    for (name, script, want) in cases {
        let said = Bench::new(settings(1)).run(script);
        assert_eq!(&said, want, "case: {name}");
    }
}

/// The output for each consumer, in order.
fn to_each(said: &str) -> Vec<&str> {
    let mut words: Vec<&str> = said.split(' ').collect();
    words.sort_by_key(|word| word.split(['<', ' ']).next().filter(|who| who.contains('.')));
    words
}

#[test]
fn consumers_compete_in_turns_and_within_their_credit() {
    check(&[
        (
            "each in its turn",
            "attach 1.1 a 9
             attach 1.2 a 9
             send 1 a m
             send 1 a n
             send 1 a o",
            "ok ok 1.1<m ok 1.2<n ok 1.1<o ok",
        ),
        (
            "a backlog is shared out",
            "send 1 a m
             send 1 a n
             attach 1.1 a 1
             attach 1.2 a 1",
            "ok ok ok 1.1<m ok 1.2<n",
        ),
        (
            "no credit, no message, until there is some",
            "attach 1.1 a 0
             send 1 a m
             send 1 a n
             credit 1.1 1",
            "ok ok ok 1.1<m",
        ),
        (
            "a drain ends the credit",
            "attach 1.1 a 5
             drain 1.1
             send 1 a m
             credit 1.1 1",
            "ok 1.1 drained ok 1.1<m",
        ),
        (
            "a drain sends what is there first",
            "send 1 a m
             attach 1.1 a 0
             credit 1.1 3
             drain 1.1
             send 1 a n",
            "ok ok 1.1<m 1.1 drained ok",
        ),
        ("a queue that nobody made is made", "attach 1.1 a 1\nsend 1 a m volatile", "ok 1.1<m ok"),
    ]);
}

#[test]
fn what_comes_back_keeps_its_place_and_its_count() {
    check(&[
        (
            "released ones come first, in their order",
            "send 1 a m
             send 1 a n
             send 1 a o
             attach 1.1 a 2
             release 1.1 n m
             attach 1.2 a 3",
            "ok ok ok ok 1.1<m 1.1<n ok ok 1.2<m 1.2<n 1.2<o",
        ),
        (
            "only failures count",
            "send 1 a m
             attach 1.1 a 1
             release 1.1 m
             credit 1.1 1
             fail 1.1 m
             credit 1.1 1
             fail 1.1 m
             credit 1.1 1",
            "ok ok 1.1<m ok 1.1<m ok 1.1<m!1 ok 1.1<m!2",
        ),
        (
            "a retry counts and stays",
            "send 1 a m
             attach 1.1 a 1
             retry 1.1 m
             accept 1.1 m",
            "ok ok 1.1<m ok ok",
        ),
        (
            "a consumer that leaves counts what it may have seen",
            "send 1 a m
             attach 1.1 a 1
             detach 1.1 all
             attach 1.2 a 1
             detach 1.2 none
             attach 1.3 a 1",
            "ok ok 1.1<m ok 1.2<m!1 ok 1.3<m!1",
        ),
        (
            "a connection that ends gives all back, once, and not to itself",
            "send 1 a m
             attach 1.1 a 1
             attach 1.2 a 1
             close 1
             attach 2.1 a 1",
            "ok ok 1.1<m ok ok 2.1<m!1",
        ),
        (
            "an accepted message is gone",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m
             close 1
             attach 2.1 a 9
             drain 2.1",
            "ok ok 1.1<m ok ok 2.1 drained",
        ),
        (
            "a rejected message is a dead letter",
            "send 1 a m
             attach 1.1 a 1
             reject 1.1 m
             attach 1.2 dead 1",
            "ok ok 1.1<m ok ok 1.2<m",
        ),
        (
            "a rejected message that was in memory only ends",
            "attach 1.1 a 1
             send 1 a m volatile
             reject 1.1 m
             attach 1.2 dead 1
             drain 1.2",
            "ok 1.1<m ok ok ok 1.2 drained",
        ),
    ]);
}

#[test]
fn higher_priorities_come_first() {
    check(&[
        (
            "of ten levels, in order within a level",
            "send 1 a low priority=0
             send 1 a m
             send 1 a high priority=9
             send 1 a n
             send 1 a higher priority=9
             send 1 a five priority=5 volatile
             send 1 a four volatile
             attach 1.1 a 9",
            "ok ok ok ok ok ok ok ok 1.1<high 1.1<higher 1.1<five 1.1<m 1.1<n 1.1<four 1.1<low",
        ),
        (
            "what comes back keeps its place in its level",
            "send 1 a m
             send 1 a high priority=7
             attach 1.1 a 1
             send 1 a higher priority=8
             release 1.1 high
             credit 1.1 9",
            "ok ok ok 1.1<high ok ok 1.1<higher 1.1<high 1.1<m",
        ),
        (
            "a browser sees the same order",
            "send 1 a m
             send 1 a high priority=7
             attach 1.1 a 9 browse",
            "ok ok ok 1.1<high 1.1<m 1.1 drained",
        ),
        (
            "a volatile subscription has the same order",
            "attach 1.1 #t 0
             send 2 #t m
             send 2 #t high priority=6
             credit 1.1 9",
            "ok ok ok 1.1<high 1.1<m",
        ),
    ]);
}

#[test]
fn consumers_of_higher_priority_are_served_first() {
    check(&[
        (
            "while they have credit, in turns among equals",
            "attach 1.1 a 9 priority=1
             attach 1.2 a 1 priority=3
             attach 1.3 a 2 priority=3
             send 2 a m
             send 2 a n
             send 2 a o
             send 2 a p
             credit 1.2 1
             send 2 a q",
            "ok ok ok 1.2<m ok 1.3<n ok 1.3<o ok 1.1<p ok 1.2<q ok",
        ),
        (
            "a backlog goes to them alone until they are full",
            "send 2 a m
             send 2 a n
             send 2 a o
             attach 1.1 a 0
             attach 1.2 a 0 priority=7
             credit 1.2 2
             credit 1.1 2",
            "ok ok ok ok ok 1.2<m 1.2<n 1.1<o",
        ),
    ]);
}

#[test]
fn a_message_group_has_one_consumer() {
    check(&[
        (
            "the one that was sent its first message",
            "attach 1.1 a 9
             attach 1.2 a 9
             send 2 a g1 group=g
             send 2 a h1 group=h
             send 2 a g2 group=g
             send 2 a h2 group=h
             send 2 a h3 group=h
             send 2 a m",
            "ok ok 1.1<g1* ok 1.2<h1* ok 1.1<g2 ok 1.2<h2 ok 1.2<h3 ok 1.1<m ok",
        ),
        (
            "its messages wait for it, others go past them",
            "attach 1.1 a 1
             attach 1.2 a 9
             send 2 a g1 group=g
             send 2 a g2 group=g volatile
             send 2 a m
             send 2 a g3 group=g priority=9
             accept 1.1 g1
             credit 1.1 2",
            "ok ok 1.1<g1* ok ok 1.2<m ok ok ok 1.1<g3 1.1<g2",
        ),
        (
            "until it leaves",
            "attach 1.1 a 1
             attach 1.2 a 9
             send 2 a g1 group=g
             send 2 a g2 group=g
             send 2 a m
             detach 1.1 none",
            "ok ok 1.1<g1* ok ok 1.2<m ok 1.2<g1* 1.2<g2",
        ),
        (
            "until a negative number ends it",
            "attach 1.1 a 9
             attach 1.2 a 1
             send 2 a g1 group=g/1
             send 2 a h1 group=h/1
             send 2 a g2 group=g/-1
             send 2 a g3 group=g/1
             accept 1.2 h1
             credit 1.2 5
             send 2 a g4 group=g/-1
             send 2 a g5 group=g/1",
            "ok ok 1.1<g1* ok 1.2<h1* ok 1.1<g2 ok 1.1<g3* ok ok 1.1<g4 ok 1.2<g5* ok",
        ),
        (
            "what was passed over while the owner was full is free once the group is over",
            "attach 1.1 a 1
             attach 1.2 a 9
             send 2 a g1 group=g
             send 2 a g2 group=g/-1
             send 2 a g3 group=g
             send 2 a m
             credit 1.1 1",
            "ok ok 1.1<g1* ok ok ok 1.2<m ok 1.1<g2 1.2<g3*",
        ),
        (
            "groups in a backlog, of a consumer that comes later",
            "send 2 a g1 group=g
             send 2 a h1 group=h
             send 2 a g2 group=g
             send 2 a h2 group=h
             attach 1.1 a 1
             attach 1.2 a 9
             credit 1.1 9",
            "ok ok ok ok ok 1.1<g1* ok 1.2<h1* 1.2<h2 1.1<g2",
        ),
        (
            "an exclusive consumer has all groups",
            "attach 1.1 a 9
             send 2 a g1 group=g
             attach 1.2 a 9 exclusive
             send 2 a g2 group=g
             detach 1.2 all
             send 2 a g3 group=g",
            "ok 1.1<g1* ok ok 1.2<g2 ok 1.1<g2!1 1.1<g3 ok",
        ),
        (
            "a browser sees them all",
            "send 2 a g1 group=g
             attach 1.1 a 1
             attach 1.2 a 9 browse",
            "ok ok 1.1<g1* ok 1.2<g1 1.2 drained",
        ),
    ]);
}

#[test]
fn a_consumer_that_joins_takes_over_idle_groups() {
    check(&[
        (
            "half of them for the second, with the first message marked",
            "attach 1.1 a 9
             send 2 a g1 group=g
             send 2 a h1 group=h
             accept 1.1 g1 h1
             attach 1.2 a 9
             send 2 a h2 group=h
             send 2 a g2 group=g",
            "ok 1.1<g1* ok 1.1<h1* ok ok ok 1.1<h2 ok 1.2<g2* ok",
        ),
        (
            "none that the first one has messages of",
            "attach 1.1 a 9
             send 2 a g1 group=g
             send 2 a h1 group=h
             attach 1.2 a 9
             send 2 a h2 group=h
             send 2 a g2 group=g",
            "ok 1.1<g1* ok 1.1<h1* ok ok 1.1<h2 ok 1.1<g2 ok",
        ),
        (
            "none whose messages it may get back from a prepared transaction",
            "attach 1.1 a 9
             send 2 a g1 group=g
             send 2 a h1 group=h
             accept 1.1 g1 h1 tx=1
             end 1 1 x
             prepare 1 x
             attach 1.2 a 9
             send 2 a h2 group=h
             send 2 a g2 group=g
             decide 1 x rollback",
            "ok 1.1<g1* ok 1.1<h1* ok ok ok ok ok 1.1<h2 ok 1.1<g2 ok 1/1 undone ok",
        ),
    ]);
}

#[test]
fn groups_are_found_again_after_a_restart() {
    let mut bench = Bench::new(settings(1));
    bench.run("send 1 a g1 group=g\nsend 1 a h1 group=h\nsend 1 a g2 group=g");
    let snapshot = bench.partitions[0].snapshot();
    bench.restart();
    let script = "attach 1.1 a 1\nattach 1.2 a 9\ncredit 1.1 1";
    let want = "ok 1.1<g1* ok 1.2<h1* 1.1<g2";
    assert_eq!(bench.run(script), want);
    bench.partitions[0] = Partition::restore(settings(1), &snapshot).expect("a snapshot");
    for (number, body) in ["g1", "h1", "g2"].into_iter().enumerate() {
        let position = postroad_model::Position::new(number as u64 + 1).expect("from 1");
        let record = &bench.log[0][number];
        let message = postroad_core::message_in_record(record, 0).expect("a record").expect("a message");
        assert_eq!(message.bytes, body);
        bench.partitions[0]
            .restore_body(postroad_model::MessageKey::Durable { position, ordinal: 0 }, message);
    }
    assert_eq!(bench.run(script), want, "from a snapshot");
}

#[test]
fn a_subscription_without_its_own_skips_what_its_client_sends() {
    let mut bench = Bench::new(settings(1));
    let attach = "attach 1.1 #t 9 nolocal sub=s";
    let said = bench.run(&format!(
        "{attach}
         send 1 #t own
         send 2 #t m
         send 1 #t own2 volatile
         send 1 #t own3 tx=1
         send 1 #t own4 tx=1
         commit 1 1
         close 1
         send 1 #t away
         send 2 #t n"
    ));
    assert_eq!(said, "ok ok 1.1<m ok ok ok ok ok ok ok");
    bench.restart();
    assert_eq!((bench.held(), bench.run(attach)), ("t:2".to_owned(), "ok 1.1<m!1 1.1<n".to_owned()));
    assert_eq!(bench.run("attach 3.1 #t 9 sub=other\nsend 1 #t own5"), "ok 3.1<own5 ok");
    let clients =
        bench.log[0].iter().filter_map(|record| postroad_core::message_in_record(record, 0).ok()?);
    let clients: Vec<bool> = clients.map(|message| message.client().is_some()).collect();
    assert_eq!(clients.len(), 6, "what goes to a topic with a subscription is in the log");
    assert!(clients.into_iter().any(|known| !known), "who sent it is kept only where it counts");
}

#[test]
fn a_reader_that_leaves_while_its_subscription_is_made_holds_nobody_up() {
    for (case, second) in
        [("it detaches", "detach 1.1 none"), ("its connection ends", "close 1"), ("it stays", "written 1 9")]
    {
        let mut bench = Bench::new(settings(1));
        let said = bench.run_late("attach 1.1 #t 9 sub=s", second);
        let stays = second == "written 1 9";
        assert_eq!(said, if second == "close 1" { "" } else { "ok" }, "case: {case}");
        let other = bench.run("attach 2.1 #t 9 sub=s\nsend 3 #t m");
        let taken = "no: the durable subscription s is in use 1.1<m ok";
        assert_eq!(other, if stays { taken } else { "ok 2.1<m ok" }, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    let said = bench.run_late("attach 1.1 #t 9 sub=s", "unsubscribe 2 s");
    assert_eq!(said, "ok no: the durable subscription s is in use", "its end was asked for behind it");
}

#[test]
fn a_reader_that_comes_while_its_subscription_ends_begins_another() {
    let kept = "attach 1.1 #t 0 sub=s\ndetach 1.1 none\nsend 1 #t before";
    let other = "no: the durable subscription s exists and is shared";
    for (case, attach, afterwards) in [
        ("of the same kind", "attach 3.1 #t 9 sub=s", "ok 4.1<m"),
        ("of another kind", "attach 3.1 #t 9 sub=s share=durable", other),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run(kept);
        assert_eq!(bench.run_late("unsubscribe 2 s", attach), "ok ok", "case: {case}");
        assert_eq!(bench.run("send 1 #t m"), "3.1<m ok", "case: {case}");
        bench.restart();
        assert_eq!(bench.run("attach 4.1 #t 9 sub=s"), afterwards, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    bench.run(kept);
    bench.broken = Some(PartitionId(0));
    assert_eq!(bench.run("unsubscribe 2 s"), "no: the store could not write: broken", "it does not end");
    assert_eq!(bench.run("attach 3.1 #t 9 sub=s"), "ok 3.1<before", "and nobody waits for that");
}

#[test]
fn a_message_for_a_queue_too_does_not_come_back_to_its_sender() {
    let send = "attach 1.1 #t 9 nolocal\nattach 2.1 #t 9";
    check(&[
        ("by itself", &format!("{send}\nsend 1 a,#t m"), "ok ok 2.1<m ok"),
        ("in a transaction", &format!("{send}\nsend 1 a,#t m tx=1\ncommit 1 1"), "ok ok ok 2.1<m ok"),
        (
            "in a branch that another decides",
            &format!("{send}\nsend 1 a,#t m tx=1\nend 1 1 x\nprepare 1 x\ndecide 2 x commit"),
            "ok ok ok ok ok 2.1<m 1/1 done ok",
        ),
    ]);
}

#[test]
fn expired_messages_are_dead_letters() {
    check_with_memory(&[
        (
            "those that a consumer would get, without an end of their own",
            "send 1 a m until=5
             send 1 a n until=5 volatile
             send 1 a o
             time 9
             attach 1.1 a 9
             attach 1.2 dead 9",
            "ok ok ok ok 1.1<o ok 1.2<m",
        ),
        (
            "those that nobody looks at",
            "attach 1.1 dead 9
             send 1 a m until=5
             send 1 b n until=3
             send 1 a o until=9
             time 4
             time 5",
            "ok ok ok ok 1.1<n 1.1<m",
        ),
        (
            "those that a consumer found expired, and those that it gives back",
            "attach 1.1 dead 9
             send 1 a m until=5
             send 1 a n until=5
             attach 1.2 a 9
             expire 1.2 m
             time 6
             detach 1.2 none
             time 2000",
            "ok ok ok ok 1.2<m 1.2<n 1.1<m ok 1.1<n",
        ),
        (
            "but not from the dead letters, nor from a subscription in memory",
            "attach 1.1 #t 0
             send 1 dead m until=5
             send 1 #t n until=5
             time 9
             attach 1.2 dead 9
             credit 1.1 9",
            "ok ok ok ok",
        ),
    ]);
}

/// Of three partitions one has `a`, and `dead` lies in another.
#[test]
fn what_a_consumer_found_expired_leaves_whole_or_not_at_all() {
    let mut bench = Bench::new(settings(3));
    let [here, elsewhere] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    assert_ne!(here, elsewhere, "they lie in different partitions");
    // One that is not persistent is in the log all the same if it was due later; it has no grave.
    let said = bench.run(
        "send 1 a m at=1 until=99 volatile
         time 1
         send 1 a n until=99
         attach 1.1 a 9",
    );
    assert_eq!(said, "ok ok ok 1.1<m 1.1<n");
    bench.broken = Some(elsewhere);
    assert_eq!(
        bench.run("expire 1.1 m n"),
        "1.1<m 1.1<n no: the store could not write: broken",
        "both are there again if one cannot move"
    );
    bench.restart();
    assert_eq!(bench.held(), "a:2", "and the log knows of no half");
    bench.broken = None;
    assert_eq!(bench.run("attach 1.1 a 9\nexpire 1.1 m n\nattach 1.2 dead 9"), "ok 1.1<m 1.1<n ok ok 1.2<n");
    bench.restart();
    assert_eq!(bench.held(), "dead:1");
}

#[test]
fn what_the_partition_of_the_dead_letters_refuses_is_tried_again_later() {
    let mut bench = Bench::new(settings(3));
    let [here, elsewhere] = ["a", "dead"].map(|name| bench.settings.placement.partition_of(name));
    assert_ne!(here, elsewhere, "they lie in different partitions");
    let no_room = Event::Space { ample: false };
    bench.partitions[usize::from(elsewhere.0)].soft(no_room, &mut Vec::new());
    // A consumer asks for more, and the next message is not held up by one that cannot leave.
    let said = bench.run("send 1 a m until=5\nsend 1 a n\ntime 5\nattach 1.1 a 9\nsend 1 a o");
    assert_eq!(said, "ok ok ok 1.1<n 1.1<o ok");
    assert_eq!(bench.run("time 500\naccept 1.1 n o"), "ok");
    assert_eq!(bench.held(), "a:1");
    assert_eq!(bench.run("space\nattach 1.2 dead 9\ntime 1004"), "ok");
    assert_eq!(bench.run("time 2010"), "1.2<m");
    assert_eq!(bench.held(), "dead:1");
}

#[test]
fn a_dead_letter_that_need_not_be_kept_lies_in_memory_in_another_partition() {
    let mut bench = Bench::new(settings(3));
    bench.run("send 1 dead o");
    let script = "send 1 a m at=1 volatile
        time 1
        attach 1.1 a 9
        reject 1.1 m
        attach 1.2 dead 9";
    assert_eq!(bench.run(script), "ok ok 1.1<m ok ok 1.2<o 1.2<m");
    bench.restart();
    assert_eq!(bench.held(), "dead:1", "it is neither there nor back in its queue");
}

/// A broker whose messages are given up when they fail after two failures, with rests of 10 and 20
/// ms.
fn redelivering() -> Bench {
    let fallback = Policies::with_dead_letters_in("dead").fallback().clone();
    let redelivery = Redelivery {
        count_max: 2,
        delay_ms: 10,
        multiplier: Factor::of(2.0).expect("a factor"),
        delay_ms_max: 1000,
        ..Redelivery::default()
    };
    let policies = Arc::new(Policies::new(Policy { redelivery, ..fallback }));
    Bench::new(postroad_core::Settings { policies, ..settings(1) })
}

#[test]
fn the_broker_delivers_again_what_was_given_up() {
    for (case, script, want) in [
        (
            "after rests that grow, then to the dead letters",
            "attach 1.1 a 9
             send 2 a m
             send 2 a n
             reject 1.1 m
             time 9
             time 10
             reject 1.1 m
             time 29
             time 30
             attach 1.2 dead 9
             reject 1.1 m",
            "ok 1.1<m ok 1.1<n ok ok 1.1<m!1 ok 1.1<m!2 ok 1.2<m ok",
        ),
        (
            "in its old place, and others go past it meanwhile",
            "send 2 a m
             send 2 a n volatile
             attach 1.1 a 1
             reject 1.1 m
             credit 1.1 1
             accept 1.1 n
             send 2 a o
             time 10
             credit 1.1 2",
            "ok ok ok 1.1<m ok 1.1<n ok ok 1.1<m!1 1.1<o",
        ),
        (
            "unless its time is over",
            "send 2 a m until=5
             attach 1.1 a 1
             reject 1.1 m
             time 5
             attach 1.2 dead 1
             time 10",
            "ok ok 1.1<m ok ok 1.2<m",
        ),
        (
            "a browser sees it rest",
            "send 2 a m
             attach 1.1 a 1
             reject 1.1 m
             attach 1.2 a 9 browse",
            "ok ok 1.1<m ok ok 1.2<m!1 1.2 drained",
        ),
    ] {
        assert_eq!(redelivering().run(script), want, "case: {case}");
    }
}

#[test]
fn what_rests_is_ready_after_a_restart_and_keeps_its_count() {
    let mut bench = redelivering();
    bench.run("send 2 a m\nattach 1.1 a 1\nreject 1.1 m");
    bench.restart();
    assert_eq!(bench.run("attach 1.2 a 1"), "ok 1.2<m!1");
}

#[test]
fn many_that_expire_at_once_hold_up_nobody_for_long() {
    let mut bench = Bench::new(settings(1));
    for number in 0..600 {
        bench.run(&format!("send 1 a m{number} until=5"));
    }
    bench.run("time 5");
    assert_eq!(bench.held(), "a:548 dead:52", "a bounded number in each tick");
    for time in 6..17 {
        bench.run(&format!("time {time}"));
    }
    assert_eq!(bench.held(), "dead:600");
}

#[test]
fn what_expires_with_its_body_on_the_disk_is_read_first() {
    let mut bench = Bench::new(postroad_core::Settings { resident_bytes_max: 0, ..settings(1) });
    bench.run("send 1 a m until=5");
    assert_eq!(bench.run("time 5\nattach 1.1 dead 9\ntime 1006"), "ok 1.1<m");
    assert_eq!(bench.partitions[0].counters().expired, 1);
}

#[test]
fn priorities_outlive_a_restart() {
    let mut bench = Bench::new(settings(1));
    bench.run(
        "send 1 a m
         send 1 a high priority=7
         send 1 a gone priority=7
         send 1 a low priority=1
         attach 1.1 a 2
         accept 1.1 high
         fail 1.1 gone",
    );
    bench.restart();
    let snapshot = bench.partitions[0].snapshot();
    let said = bench.run("attach 1.2 a 9");
    assert_eq!(said, "ok 1.2<gone!1 1.2<m 1.2<low");
    bench.partitions[0] = Partition::restore(settings(1), &snapshot).expect("a snapshot");
    assert_eq!((bench.held(), bench.partitions[0].snapshot()), ("a:3".to_owned(), snapshot));
}

#[test]
fn a_policy_makes_consumers_exclusive_that_do_not_ask_for_it() {
    for (exclusive, want) in [(true, "1.1<m 1.1<n ok 1.2<n"), (false, "1.1<m 1.2<n ok")] {
        let mut bench = Bench::new(settings(1));
        let policy = Policy { exclusive, ..Policy::default() };
        bench.follow(Policies::new(policy));
        let said = bench.run(
            "attach 1.1 a 9\nattach 1.2 a 9\nattach 1.3 #t 9\nattach 1.4 a 9 browse\nsend 1 a m\nsend 1 a n",
        );
        let said: Vec<&str> = said
            .split_whitespace()
            .filter(|word| word.starts_with("1.1<") || word.starts_with("1.2<"))
            .collect();
        let next = bench.run("accept 1.1 m\ndetach 1.1 none");
        let next: Vec<&str> = next.split_whitespace().filter(|word| word.starts_with("1.2<")).collect();
        assert_eq!(format!("{} ok {}", said.join(" "), next.join(" ")).trim(), want, "{exclusive}");
    }
}

#[test]
fn an_exclusive_consumer_has_the_queue_for_itself() {
    check(&[
        (
            "the first, then the next",
            "attach 1.1 a 9 exclusive
             attach 1.2 a 9 exclusive
             send 1 a m
             send 1 a n
             detach 1.1 none",
            "ok ok 1.1<m ok 1.1<n ok 1.2<m 1.2<n",
        ),
        (
            "a higher priority takes over",
            "attach 1.1 a 9 exclusive
             attach 1.2 a 9 exclusive priority=1
             send 1 a m",
            "ok ok 1.2<m ok",
        ),
        (
            "shared ones wait for its end",
            "attach 1.1 a 9
             attach 1.2 a 9 exclusive
             send 1 a m
             detach 1.2 none
             send 1 a n",
            "ok ok 1.2<m ok 1.1<m 1.1<n ok",
        ),
    ]);
}

#[test]
fn a_transaction_happens_all_at_once_or_not_at_all() {
    check(&[
        (
            "sends come with the commit",
            "attach 1.1 a 9
             send 2 a m tx=1
             send 2 a n tx=1
             commit 2 1",
            "ok ok ok 1.1<m 1.1<n ok",
        ),
        (
            "a rollback forgets the sends",
            "attach 1.1 a 9
             send 2 a m tx=1
             rollback 2 1
             send 2 a n",
            "ok ok ok 1.1<n ok",
        ),
        (
            "a rollback leaves the messages with their consumer",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             rollback 1 1
             accept 1.1 m
             close 1
             attach 2.1 a 1
             drain 2.1",
            "ok ok 1.1<m ok ok ok ok 2.1 drained",
        ),
        (
            "what a consumer settled before it left stays settled",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             detach 1.1 all
             commit 1 1
             attach 1.2 a 1
             drain 1.2",
            "ok ok 1.1<m ok ok ok 1.2 drained",
        ),
        (
            "what a transaction has nobody gives back, and after it ends without commit it is there again",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             release 1.1 m
             close 1
             attach 2.1 a 1",
            "ok ok 1.1<m ok ok ok 2.1<m!1",
        ),
        (
            "rolled back without its consumer it returns, and counts",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             detach 1.1 all
             attach 1.2 a 1
             rollback 1 1",
            "ok ok 1.1<m ok ok 1.2<m!1 ok",
        ),
        (
            "abandoned with the connection",
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             send 1 b n tx=1
             close 1
             attach 2.1 a 1
             attach 2.2 b 1
             drain 2.2",
            "ok ok 1.1<m ok ok ok 2.1<m!1 ok 2.2 drained",
        ),
    ]);
    let mut small = settings(1);
    small.transaction_bytes_max = 2;
    let said =
        Bench::new(small).run("send 1 a m tx=1\nsend 1 a no tx=1\ncommit 1 1\nattach 1.1 a 1\ndrain 1.1");
    let no = "no: the transaction is larger than 2 bytes";
    assert_eq!(said, format!("ok {no} {no} ok 1.1 drained"), "a transaction has a limit");
}

/// An error would leave activemq-client with acknowledgements that it never sends.
#[test]
fn a_transaction_without_work_can_be_rolled_back() {
    use postroad_model::{ConnectionId, Effect, Event, Ticket, TransactionKey};
    let mut bench = Bench::new(settings(1));
    let connection = ConnectionId::new(0, 1);
    let transaction = TransactionKey { connection, number: 1 };
    let (ticket, mut effects) = (Ticket(7), Vec::new());
    bench.partitions[0].soft(Event::Rollback { transaction, ticket: Some(ticket) }, &mut effects);
    assert_eq!(effects, [Effect::Reply { connection, ticket, result: Ok(()) }]);
}

#[test]
fn all_open_transactions_have_a_limit_together() {
    let limits = || Settings { open_bytes_max: 700, ..settings(1) };
    let no = "no: open transactions have the maximum of 700 bytes: commit or roll back one, or give the \
        broker more memory";
    for (case, words, want) in [
        ("one beyond it is refused, and its commit", "send 2 a no tx=2\ncommit 2 2", format!("{no} {no}")),
        (
            "what is committed is no longer open",
            "commit 1 1\nsend 2 a no tx=2\ncommit 2 2",
            "ok ok ok".to_owned(),
        ),
        ("nor what is rolled back", "rollback 1 1\nsend 2 a no tx=2\ncommit 2 2", "ok ok ok".to_owned()),
        (
            "nor what a connection had that is gone",
            "close 1\nsend 2 a no tx=2\ncommit 2 2",
            "ok ok".to_owned(),
        ),
        (
            "nor what was refused",
            "send 1 a no tx=1\nsend 2 a no tx=2\ncommit 2 2\ncommit 1 1",
            format!("{no} ok ok {no}"),
        ),
        ("what is sent without a transaction is not held up", "send 2 a no", "ok".to_owned()),
    ] {
        let mut bench = Bench::new(limits());
        bench.run("send 1 a m tx=1\nsend 1 a n tx=1");
        assert_eq!(bench.run(words), want, "case: {case}");
        assert_eq!(bench.partitions[0].miscounted(), None, "case: {case}");
    }
}

#[test]
fn a_transaction_over_two_partitions_is_one() {
    let placement = settings(2).placement;
    let home = placement.partition_of("a");
    let name = (0..).map(|number| format!("b{number}")).find(|name| placement.partition_of(name) != home);
    let name = name.expect("some name lies elsewhere");
    let script = &format!(
        "send 1 a m
         attach 1.1 a 9
         attach 1.2 {name} 9
         accept 1.1 m tx=1
         send 1 {name} n tx=1"
    );
    let elsewhere = placement.partition_of(&name);
    let there = format!("{name}:1");
    let mut bench = Bench::new(settings(2));
    assert_eq!(bench.run(script), "ok ok 1.1<m ok ok ok");
    assert_eq!(bench.run("commit 1 1"), "1.2<n ok");
    assert_eq!(bench.held(), there, "committed");
    bench.restart();
    assert_eq!(bench.held(), there, "after a restart");

    let mut bench = Bench::new(settings(2));
    bench.run(script);
    bench.broken = Some(elsewhere);
    let said = bench.run("commit 1 1");
    assert!(said.contains("no: the store could not write: broken"), "{said}");
    bench.broken = None;
    bench.restart();
    assert_eq!(bench.held(), "a:1", "aborted: nothing of it happened");

    let mut bench = Bench::new(settings(2));
    bench.run(script);
    // Its share of one partition goes with the connection before the coordinator's word comes
    // there.
    let connection = postroad_model::ConnectionId::new(0, 1);
    let closed = postroad_model::Event::Closed { connection };
    bench.partitions[usize::from(elsewhere.0)].soft(closed, &mut Vec::new());
    let said = bench.run("commit 1 1");
    assert_eq!(said, "no: no such transaction", "its consumer holds it again");
    assert_eq!(bench.run("release 1.1 m\nattach 2.1 a 1"), "ok 1.1<m ok", "and may give it back");
    bench.restart();
    assert_eq!(bench.held(), "a:1", "a share is gone: nothing of it happened");
}

#[test]
fn a_transaction_is_whole_whatever_each_journal_has_lost_that_nobody_waited_for() {
    let placement = settings(2).placement;
    let home = placement.partition_of("a");
    let name = (0..).map(|number| format!("b{number}")).find(|name| placement.partition_of(name) != home);
    let name = name.expect("some name lies elsewhere");
    let done = || {
        let mut bench = Bench::new(settings(2));
        bench.run(&format!(
            "send 1 a m
             attach 1.1 a 9
             accept 1.1 m tx=1
             send 1 {name} n tx=1
             commit 1 1"
        ));
        bench
    };
    let logs = done().log;
    let (mut undone, mut carried_out) = (0, 0);
    for first in 0..=logs[0].len() {
        for second in 0..=logs[1].len() {
            let kept = [&logs[0][..first], &logs[1][..second]];
            let commands = kept.map(|log| {
                let decoded =
                    log.iter().map(|record| postroad_core::decode_record(record).expect("a record"));
                decoded.collect::<Vec<Command>>()
            });
            let has = |is: fn(&Command) -> bool| commands.iter().filter(|log| log.iter().any(is)).count();
            let prepared = has(|command| matches!(command, Command::Prepare { .. }));
            let decided = has(|command| matches!(command, Command::Decide { .. }));
            let committed = has(|command| matches!(command, Command::Commit { .. }));
            let forgotten = has(|command| matches!(command, Command::Forget { .. }));
            let sent = has(|command| matches!(command, Command::Enqueue(_)));
            // The event of a record comes after its sync.
            let may_be = sent == 1
                && (decided == 0 || prepared == 2)
                && (committed == 0 || decided == 1)
                && (forgotten == 0 || committed == 2);
            if !may_be {
                continue;
            }
            let mut bench = done();
            bench.restart_with(&[first, second]);
            let want = if decided == 1 { format!("{name}:1") } else { "a:1".to_owned() };
            assert_eq!(bench.held(), want, "{commands:?}");
            bench.restart();
            assert_eq!(bench.held(), want, "once more, after {commands:?}");
            *(if decided == 1 { &mut carried_out } else { &mut undone }) += 1;
        }
    }
    assert!(undone >= 4 && carried_out >= 5, "{undone} {carried_out}: {logs:?}");
}

#[test]
fn whatever_one_partition_had_of_a_transaction_the_other_ends_it_once_that_begins_anew() {
    let placement = settings(2).placement;
    let home = placement.partition_of("a");
    let name = (0..).map(|number| format!("b{number}")).find(|name| placement.partition_of(name) != home);
    let name = name.expect("some name lies elsewhere");
    let script = format!(
        "send 1 a m
         attach 1.1 a 9
         accept 1.1 m tx=1
         send 1 {name} n tx=1
         commit 1 1"
    );
    let done = || {
        let mut bench = Bench::new(settings(2));
        bench.run(&script);
        bench
    };
    let lengths: Vec<usize> = done().log.iter().map(Vec::len).collect();
    for lost in 0..2 {
        for kept in 0..=lengths[1 - lost] {
            let mut bench = done();
            let mut records = [kept; 2];
            records[lost] = 0;
            bench.restart_with(&records);
            let prepared: u64 =
                bench.partitions.iter().map(postroad_core::Partition::prepared_messages).sum();
            assert_eq!(prepared, 0, "partition {lost} is new, of the other {kept} records are left");
            let left = bench.held();
            assert!(["", "a:1", &format!("{name}:1")].contains(&&*left), "{lost}, {kept}: {left}");
            // No consumer holds anything still, and both go on.
            assert_eq!(bench.run(&script).matches("no:").count(), 0, "{lost}, {kept}");
        }
    }
}

#[test]
fn temporary_destinations_end_with_their_connection() {
    check(&[
        (
            "others send, the owner consumes",
            "make 1 ~t
             attach 1.1 ~t 9
             send 2 ~t m",
            "ok ok 1.1<m ok",
        ),
        (
            "nobody else consumes",
            "make 1 ~t
             attach 2.1 ~t 9",
            "ok no: temp-queue://t belongs to another connection",
        ),
        (
            "gone with the connection",
            "make 1 ~t
             close 1
             send 2 ~t m",
            "ok no: the temporary destination temp-queue://t does not exist; its connection may have closed",
        ),
        (
            "not deleted under a consumer",
            "make 1 ~t
             attach 1.1 ~t 1
             unmake 1 ~t
             detach 1.1 all
             unmake 1 ~t",
            "ok ok no: cannot delete temp-queue://t: it has 1 consumers ok",
        ),
    ]);
}

#[test]
fn a_message_ends_at_its_time() {
    check(&[
        (
            "not delivered from then on",
            "time 10
             send 1 a m until=20
             send 1 a n
             time 20
             attach 1.1 a 9",
            "ok ok ok 1.1<n",
        ),
        (
            "delivered before",
            "time 10
             send 1 a m until=20
             time 19
             attach 1.1 a 9",
            "ok ok 1.1<m",
        ),
        (
            "its end on a topic stops no subscription",
            "time 10
             attach 1.1 #t 9
             attach 1.2 #t 9
             send 1 #t m until=10
             send 1 #t n",
            "ok ok ok 1.1<n 1.2<n ok",
        ),
    ]);
}

#[test]
fn a_browser_sees_all_and_takes_nothing() {
    check(&[
        (
            "what is ready and what others hold, then its end",
            "send 1 a m
             send 1 a n
             attach 1.1 a 1
             attach 1.2 a 9 browse
             credit 1.1 1",
            "ok ok ok 1.1<m ok 1.2<m 1.2<n 1.2 drained 1.1<n",
        ),
        (
            "an empty queue behind a waiting consumer",
            "attach 1.1 a 9
             attach 1.2 a 9 browse",
            "ok ok 1.2 drained",
        ),
        (
            "within its credit",
            "send 1 a m
             send 1 a n
             attach 1.1 a 1 browse
             credit 1.1 1
             credit 1.1 1",
            "ok ok ok 1.1<m 1.1<n 1.1 drained",
        ),
        (
            "nothing that came later",
            "send 1 a m
             attach 1.1 a 0 browse
             send 1 a n
             credit 1.1 9",
            "ok ok ok 1.1<m 1.1 drained",
        ),
    ]);
}

#[test]
fn a_topic_copies_to_every_subscription() {
    check(&[
        (
            "to all of the moment",
            "attach 1.1 #t 9
             send 1 #t m
             attach 1.2 #t 9
             send 1 #t n",
            "ok 1.1<m ok ok 1.1<n 1.2<n ok",
        ),
        (
            "not to the sender's own, if it says so",
            "attach 1.1 #t 9 shared nolocal
             attach 2.1 #t 9 shared nolocal
             send 1 #t m",
            "ok ok 2.1<m ok",
        ),
    ]);
}

#[test]
fn sends_to_memory_wait_for_room_in_order() {
    let mut small = settings(1);
    small.volatile_bytes_max = 2;
    let mut bench = Bench::new(small);
    let said = bench.run(
        "make 1 a
         send 1 a m volatile
         send 1 a no volatile
         send 2 a p volatile",
    );
    assert_eq!(said, "ok ok", "the first fits, the others wait");
    assert_eq!(bench.run("attach 3.1 a 1\naccept 3.1 m"), "ok 3.1<m ok ok", "one place, one more reply");
    assert_eq!(bench.run("close 2\ncredit 3.1 9\naccept 3.1 no\ndrain 3.1"), "3.1<no ok 3.1 drained");
    assert_eq!(bench.held(), "", "what a closed connection had waiting is gone");
    assert_eq!(bench.partitions[0].memory(), postroad_core::Memory::default());
}

#[test]
fn a_consumer_that_leaves_before_its_queue_is_there_leaves_nothing() {
    for (name, leave, want) in [("detached", "detach 1.1 all", "ok"), ("closed", "close 1", "")] {
        let mut bench = Bench::new(settings(1));
        // The declaration is on its way while the consumer leaves.
        let declared = bench.run_late("attach 1.1 a 9", leave);
        assert_eq!(declared, want, "case: {name}");
        assert_eq!(bench.run("send 2 a m\nattach 2.1 a 1"), "ok ok 2.1<m", "case: {name}");
    }
}

#[test]
fn a_snapshot_is_the_durable_state() {
    let mut bench = Bench::new(settings(1));
    bench.run(
        "make 1 a
         send 1 a m
         send 1 a n until=99
         send 1 b o
         send 1 b p volatile
         attach 1.1 a 1
         retry 1.1 m
         attach 1.2 b 1
         accept 1.2 o
         send 1 c q tx=1
         commit 1 1",
    );
    let snapshot = bench.partitions[0].snapshot();
    let restored = Partition::restore(settings(1), &snapshot).expect("a sound script");
    assert_eq!(restored.snapshot(), snapshot, "restored and taken again");
    assert_eq!(restored.applied(), bench.partitions[0].applied());
    bench.restart();
    assert_eq!(bench.partitions[0].snapshot(), snapshot, "replayed from the records");
    bench.partitions[0] = restored;
    assert_eq!(bench.held(), "a:2 c:1");
    assert!(Partition::restore(settings(1), &snapshot.slice(..snapshot.len() - 1)).is_err(), "cut short");
}

#[test]
fn every_entry_leaves_for_one_counted_cause() {
    let mut bench = Bench::new(settings(1));
    bench.run(
        "time 10
         send 1 a m
         send 1 a n
         send 1 a o until=11
         send 1 a p
         attach 1.1 a 2
         accept 1.1 m
         reject 1.1 n
         time 11
         credit 1.1 1
         make 1 ~t
         send 1 ~t q
         unmake 1 ~t",
    );
    let want = Counters {
        received: 5,
        enqueued: 7,
        delivered: 3,
        consumed: 1,
        expired: 1,
        dead_lettered: 1,
        discarded: 1,
        ..Counters::default()
    };
    assert_eq!(bench.partitions[0].counters(), want);
    assert_eq!(bench.held(), "a:1 dead:2");
}

#[test]
fn dead_letters_go_where_the_policy_says() {
    let script = "send 1 a m
         send 1 a n volatile
         attach 1.1 a 2
         reject 1.1 m
         reject 1.1 n";
    let dead_letters = |name: &str, non_persistent| {
        let queue = DeadLetterQueue::named(name);
        Policies::new(Policy {
            dead_letters: DeadLetters { queue, non_persistent, ..DeadLetters::default() },
            ..Policy::default()
        })
    };
    let counters = |dead_lettered, dropped| Counters { dead_lettered, dropped, ..Counters::default() };
    for (case, policies, held, want) in [
        ("the queue of all", dead_letters("dead", false), "dead:1", counters(2, 1)),
        ("a queue of its own", dead_letters("dead.*", false), "dead.a:1", counters(2, 1)),
        ("non-persistent ones too", dead_letters("dead", true), "dead:2", counters(2, 0)),
        ("nowhere", dead_letters("", true), "", counters(2, 2)),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies);
        assert_eq!(bench.run(script), "ok ok ok 1.1<m 1.1<n ok ok", "case: {case}");
        let Counters { dead_lettered, dropped, .. } = bench.partitions[0].counters();
        assert_eq!((bench.held().as_str(), counters(dead_lettered, dropped)), (held, want), "case: {case}");
        bench.restart();
        assert_eq!(bench.held(), held, "case: {case}, after a restart");
    }
}

#[test]
fn of_the_queues_that_a_command_touches_the_one_that_wants_most_decides() {
    let mut policies = Policies::with_dead_letters_in("dead");
    for (pattern, durability) in [
        ("queue://fast", Durability::Async),
        ("queue://lost", Durability::Memory),
        ("topic://news", Durability::Async),
    ] {
        let policy = Policy { durability, ..policies.fallback().clone() };
        policies.set(&DestinationPattern::parse(pattern).unwrap(), policy);
    }
    let (a, s) = (Durability::Async, Durability::Sync);
    for (case, script, want, held) in [
        ("the default", "send 1 a m", vec![s], "a:1"),
        ("async", "send 1 fast m", vec![a], "fast:1"),
        ("in memory, behind the queue's own record", "send 1 lost m", vec![s], "lost:1"),
        ("two, of which one is sync", "send 1 fast,a m", vec![s], "a:1 fast:1"),
        ("two, of which one is not journaled by itself", "send 1 fast,lost m", vec![a], "fast:1 lost:1"),
        ("acknowledged", "send 1 fast m\nattach 1.1 fast 9\naccept 1.1 m", vec![a, a], ""),
        ("failed once", "send 1 fast m\nattach 1.1 fast 9\nfail 1.1 m", vec![a, a], "fast:1"),
        ("moved to the dead letters", "send 1 fast m\nattach 1.1 fast 9\nreject 1.1 m", vec![a, s], "dead:1"),
        (
            "a transaction of async ones",
            "send 1 fast m tx=1\nsend 1 fast n tx=1\ncommit 1 1",
            vec![a],
            "fast:2",
        ),
        (
            "a transaction with one that is sync",
            "send 1 fast m tx=1\nsend 1 a n tx=1\ncommit 1 1",
            vec![s],
            "a:1 fast:1",
        ),
        ("a subscription", "attach 1.1 #news 9 sub=x\nsend 1 #news m", vec![s, a], "news:1"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.follow(policies.clone());
        bench.run(script);
        assert_eq!(
            (std::mem::take(&mut bench.durabilities), bench.held().as_str()),
            (want, held),
            "case: {case}"
        );
        bench.restart();
        let kept = if held.contains("lost") && case.starts_with("in memory") { "" } else { held };
        assert_eq!(bench.held(), kept, "case: {case}, after a restart");
    }
}

#[test]
fn a_topic_gives_each_subscriber_what_it_selects() {
    check(&[
        (
            "selectors and none, in one order",
            "attach 1.1 #t 9
             attach 1.2 #t 9 where=k=1
             attach 1.3 #t 9 where=k>0
             attach 1.4 #t 9 where=l=1
             send 2 #t m?k=1 volatile
             send 2 #t n?k=2&l=1 volatile
             send 2 #t o volatile",
            "ok ok ok ok 1.1<m?k=1 1.2<m?k=1 1.3<m?k=1 ok 1.1<n?k=2&l=1 1.3<n?k=2&l=1 1.4<n?k=2&l=1 ok 1.1<o ok",
        ),
        (
            "one that leaves takes nothing any more",
            "attach 1.1 #t 9 where=k=1
             attach 1.2 #t 9 where=k=1
             detach 1.1 none
             send 2 #t m?k=1 volatile",
            "ok ok 1.2<m?k=1 ok",
        ),
        (
            "a bad selector is refused",
            "attach 1.1 #t 9 where=k=",
            "no: invalid selector \"k=\": error at character 2: expected a property, a literal or `(`, found the end",
        ),
    ]);
}

#[test]
fn a_message_does_not_ask_the_selectors_that_it_cannot_match() {
    let mut bench = Bench::new(settings(1));
    for number in 0..1000 {
        bench.run(&format!("attach 1.{number} #t 9 where=k={number}"));
    }
    QUESTIONS.set(0);
    assert_eq!(bench.run("send 2 #t m?k=7 volatile"), "1.7<m?k=7 ok");
    assert!(QUESTIONS.get() < 5, "properties were asked for {} times", QUESTIONS.get());
}

#[test]
fn a_subscriber_that_is_full_holds_up_only_what_it_selects() {
    let mut bench = Bench::new(Settings { volatile_bytes_max: 24, ..settings(1) });
    let said = bench.run(
        "attach 1.1 #t 0 where=k=1
         attach 1.2 #t 9 where=k=2
         send 2 #t m?k=1 volatile
         send 2 #t n?k=2 volatile
         send 2 #t o?k=1 volatile
         credit 1.1 1
         accept 1.1 m?k=1",
    );
    assert_eq!(said, "ok ok ok 1.2<n?k=2 ok 1.1<m?k=1 ok ok");
}

#[test]
fn a_message_asks_no_consumers_of_its_queue_that_do_not_select_it() {
    let mut bench = Bench::new(settings(1));
    bench.run("make 9 a");
    for number in 0..1000 {
        bench.run(&format!("attach 1.{number} a 9 where=k={number}"));
    }
    for (line, want) in [
        ("send 2 a m?k=7", "1.7<m?k=7 ok"),
        ("send 2 a n?k=7 volatile", "1.7<n?k=7 ok"),
        ("send 2 a nobody?k=1000", "ok"),
        ("release 1.7 n?k=7", "ok 1.7<n?k=7"),
        ("send 2 a o?k=8 priority=9", "1.8<o?k=8 ok"),
    ] {
        QUESTIONS.set(0);
        assert_eq!(bench.run(line), want);
        assert!(QUESTIONS.get() < 10, "{line}: properties were asked for {} times", QUESTIONS.get());
    }
}

#[test]
fn the_end_of_a_consumer_is_answered_once_the_log_has_what_it_accepted() {
    for (case, accepts, before, after) in [
        ("without a response", "accept 1.1 m silently\n", "", "ok"),
        ("by another consumer of the connection", "accept 1.2 n silently\n", "", "ok"),
        ("by another connection", "accept 2.1 o silently\n", "ok", ""),
        ("nothing", "", "ok", ""),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run("attach 1.1 a 1\nattach 1.2 b 1\nattach 2.1 c 1\nsend 9 a m\nsend 9 b n\nsend 9 c o");
        bench.late_from_now_on();
        assert_eq!(bench.run(&format!("{accepts}detach 1.1 none asking")), before, "case: {case}");
        assert_eq!(bench.all_durable(), after, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 a 1\nsend 9 a m");
    bench.run("accept 1.1 m silently");
    bench.late_from_now_on();
    assert_eq!(bench.run("detach 1.1 none asking"), "ok", "the log has it already");
}
