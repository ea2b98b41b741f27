//! Where a message goes, case by case: virtual topics and messages for several addresses. See
//! `bench` for the words.

mod bench;

use std::sync::Arc;

use bench::{Bench, settings};
use postroad_core::Settings;
use postroad_model::{Destination, PartitionId};
use postroad_routing::{Addressing, Pattern, VirtualTopic};

fn check(cases: &[(&str, &str, &str)]) {
    for (name, script, want) in cases {
        let said = Bench::new(settings(1)).run(script);
        assert_eq!(&said, want, "case: {name}");
    }
}

/// Queues `S.NAME.TOPIC` are fed the selection of their consumers.
fn selector_aware(partitions: u16) -> Settings {
    let rule = VirtualTopic {
        topics: Pattern::parse("v.>").expect("a pattern"),
        prefix: "S.*.".into(),
        postfix: "".into(),
        selector_aware: true,
    };
    let addressing = Addressing { virtual_topics: vec![rule], ..Addressing::default() };
    Settings { addressing: Arc::new(addressing), ..settings(partitions) }
}

#[test]
fn a_virtual_topic_feeds_every_queue_of_its_name() {
    check(&[
        (
            "each queue once, whoever reads it, and each plain subscriber",
            "attach 1.1 Consumer.A.VirtualTopic.x 9
             attach 1.2 Consumer.A.VirtualTopic.x 9
             attach 1.3 Consumer.B.VirtualTopic.x 9
             attach 1.4 #VirtualTopic.x 9
             send 2 #VirtualTopic.x m
             send 2 #VirtualTopic.x n",
            "ok ok ok ok 1.1<m 1.3<m 1.4<m ok 1.2<n 1.3<n 1.4<n ok",
        ),
        (
            "not before it exists, from then on without a reader",
            "send 2 #VirtualTopic.x l
             make 1 Consumer.A.VirtualTopic.x
             send 2 #VirtualTopic.x m
             attach 1.1 Consumer.A.VirtualTopic.x 9",
            "ok ok ok ok 1.1<m",
        ),
        (
            "what is sent to the queue itself makes it, and goes nowhere else",
            "send 2 Consumer.A.VirtualTopic.x l
             send 2 #VirtualTopic.x m
             attach 1.2 #VirtualTopic.x 9
             attach 1.1 Consumer.A.VirtualTopic.x 9",
            "ok ok ok ok 1.1<l 1.1<m",
        ),
        (
            "non-persistent messages too",
            "send 2 Consumer.A.VirtualTopic.x l volatile
             send 2 #VirtualTopic.x m volatile
             attach 1.1 Consumer.A.VirtualTopic.x 9",
            "ok ok ok 1.1<l 1.1<m",
        ),
        (
            "in a transaction",
            "send 2 Consumer.A.VirtualTopic.x l tx=7
             send 2 #VirtualTopic.x m tx=7
             commit 2 7
             attach 1.1 Consumer.A.VirtualTopic.x 9",
            "ok ok ok ok 1.1<l 1.1<m",
        ),
        (
            "one queue for all topics of a pattern",
            "attach 1.1 Consumer.A.VirtualTopic.> 9
             send 2 #VirtualTopic.x m
             send 2 #VirtualTopic.y.z n
             send 2 #VirtualTopic o
             send 2 #Other.x p",
            "ok 1.1/1<m ok 1.1/1<n ok 1.1/1<o ok ok",
        ),
        (
            "a queue that is gone is fed no more",
            "make 1 Consumer.A.VirtualTopic.x
             unmake 1 Consumer.A.VirtualTopic.x
             send 2 #VirtualTopic.x m
             attach 1.1 Consumer.A.VirtualTopic.x 9
             send 2 #VirtualTopic.x n",
            "ok ok ok ok 1.1<n ok",
        ),
        (
            "a topic that was deleted feeds its queues again",
            "attach 1.1 Consumer.A.VirtualTopic.x 9
             send 2 #VirtualTopic.x m
             unmake 1 #VirtualTopic.x
             send 2 #VirtualTopic.x n",
            "ok 1.1<m ok ok 1.1<n ok",
        ),
    ]);
}

#[test]
fn a_virtual_topic_is_one_record_however_many_queues_it_feeds() {
    for partitions in [1, 3] {
        let mut bench = Bench::new(settings(partitions));
        for queue in 0..100 {
            assert_eq!(bench.run(&format!("make 1 Consumer.{queue}.VirtualTopic.x")), "ok");
        }
        let records = |bench: &Bench| bench.log.iter().map(Vec::len).sum::<usize>();
        let before = records(&bench);
        assert_eq!(bench.run("send 2 #VirtualTopic.x m"), "ok");
        assert_eq!(records(&bench), before + 1, "{partitions} partitions");
        assert_eq!(bench.held().split(' ').count(), 100);
        let messages: u64 = bench.partitions.iter().map(|partition| partition.memory().messages).sum();
        assert_eq!(messages, 1, "one body");
    }
}

#[test]
fn what_feeds_a_queue_is_in_the_log_and_follows_the_rules_of_the_next_start() {
    let make = "make 1 Consumer.A.VirtualTopic.x
         make 1 Consumer.B.VirtualTopic.>
         send 2 #VirtualTopic.x m";
    let held = |number| format!("Consumer.A.VirtualTopic.x:{number} Consumer.B.VirtualTopic.>:{number}");
    for (case, again) in
        [("from its records", Bench::restart as fn(&mut Bench)), ("from a snapshot", Bench::reload)]
    {
        let mut bench = Bench::new(settings(1));
        bench.run(make);
        let records = bench.log[0].len();
        again(&mut bench);
        assert_eq!(bench.log[0].len(), records, "nothing new to say, {case}");
        bench.run("send 2 #VirtualTopic.x n");
        assert_eq!(bench.held(), held(2), "{case}");

        let without = Addressing { virtual_topics: Vec::new(), ..Addressing::default() };
        bench.settings.addressing = Arc::new(without);
        again(&mut bench);
        bench.run("send 2 #VirtualTopic.x o");
        assert_eq!(bench.held(), held(2), "without rules, {case}");

        bench.settings.addressing = Arc::default();
        again(&mut bench);
        bench.run("send 2 #VirtualTopic.x p");
        assert_eq!(bench.held(), held(3), "with rules again, {case}");
    }
}

#[test]
fn a_selector_aware_queue_is_fed_what_its_readers_select() {
    for (case, script, want) in [
        (
            "one of several selectors",
            "attach 1.1 S.A.v.x 9 where=k=1
             attach 1.2 S.A.v.x 9 where=k=2
             send 2 #v.x m?k=1
             send 2 #v.x n?k=2
             send 2 #v.x o?k=3",
            "ok ok 1.1<m?k=1 ok 1.2<n?k=2 ok ok / S.A.v.x:2",
        ),
        (
            "what its last readers selected, while nobody reads",
            "attach 1.1 S.A.v.x 0 where=k=1
             detach 1.1 none
             send 2 #v.x m?k=1
             send 2 #v.x n?k=2",
            "ok ok ok / S.A.v.x:1",
        ),
        (
            "what its first reader after them selects",
            "attach 1.1 S.A.v.x 0 where=k=1
             detach 1.1 none
             attach 1.2 S.A.v.x 0 where=k=2
             send 2 #v.x m?k=1
             send 2 #v.x n?k=2",
            "ok ok ok ok / S.A.v.x:1",
        ),
        (
            "everything, if one of them does not choose",
            "attach 1.1 S.A.v.x 0 where=k=1
             attach 1.2 S.A.v.x 0
             send 2 #v.x m?k=1
             send 2 #v.x n?k=2",
            "ok ok ok ok / S.A.v.x:2",
        ),
        (
            "nothing, before anybody reads",
            "make 1 S.A.v.x
             send 2 #v.x m?k=1",
            "ok ok / ",
        ),
        (
            "a browser selects nothing for others",
            "attach 1.1 S.A.v.x 0 where=k=1
             attach 1.2 S.A.v.x 9 browse
             send 2 #v.x n?k=2",
            "ok ok 1.2 drained ok / ",
        ),
    ] {
        for partitions in [1, 3] {
            let mut bench = Bench::new(selector_aware(partitions));
            let said = bench.run(script);
            assert_eq!(format!("{said} / {}", bench.held()), want, "case: {case}");
            let held = bench.held();
            bench.restart();
            assert_eq!(bench.held(), held, "after a restart, case: {case}");
        }
    }
}

#[test]
fn a_selector_aware_queue_is_fed_though_its_first_reader_left_while_it_was_made() {
    for partitions in [1, 3] {
        let mut bench = Bench::new(selector_aware(partitions));
        bench.late_from_now_on();
        bench.run("attach 1.1 S.A.v.x 0 where=k=1\nclose 1\nsend 2 S.A.v.x l volatile");
        // The bindings of the queue, and the queue.
        bench.first_durable();
        bench.first_durable();
        bench.run("attach 3.1 S.A.v.x 9 where=k=1");
        bench.all_durable();
        assert_eq!(bench.run("send 2 #v.x m?k=1"), "3.1<m?k=1 ok");
        assert_eq!(bench.run("detach 3.1 none\nsend 2 #v.x n?k=1"), "ok");
        assert_eq!(bench.held(), "S.A.v.x:3", "what the last reader selected");
    }
}

#[test]
fn whoever_declares_a_selector_aware_queue_takes_nothing_from_its_reader() {
    let mut bench = Bench::new(selector_aware(1));
    bench.late_from_now_on();
    bench.run("attach 1.1 S.A.v.x 9 where=k=1\nmake 2 S.A.v.x");
    assert_eq!(bench.all_durable(), "ok ok");
    assert_eq!(bench.run("send 2 #v.x m?k=1"), "1.1<m?k=1 ok");
}

#[test]
fn a_message_for_several_addresses_is_one_record() {
    for (case, script, want) in [
        (
            "queues, one of them new, and a topic",
            "attach 1.1 a 9
             attach 1.2 #t 9
             send 2 a,b,#t m",
            "ok ok 1.1<m 1.2<m ok / a:1 b:1 t:1",
        ),
        (
            "non-persistent",
            "attach 1.1 a 9
             attach 1.2 #t 9
             send 2 a,b,#t m volatile",
            "ok ok 1.1<m 1.2<m ok / a:1 b:1 t:1",
        ),
        (
            "in a transaction",
            "send 2 a,b m tx=1
             commit 2 1",
            "ok ok / a:1 b:1",
        ),
        (
            "rolled back",
            "send 2 a,b m tx=1
             rollback 2 1",
            "ok ok / ",
        ),
        (
            "refused as a whole",
            "send 2 a,~b m",
            "no: the temporary destination temp-queue://b does not exist; its connection may have closed / ",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        let said = bench.run(script);
        assert_eq!(format!("{said} / {}", bench.held()), want, "case: {case}");
    }
    let mut bench = Bench::new(settings(1));
    bench.run("send 2 a,b,c m");
    assert_eq!((bench.log[0].len(), bench.partitions[0].memory().messages), (1, 1));
    bench.reload();
    assert_eq!(bench.run("attach 1.1 a 9\naccept 1.1 m\nattach 1.2 c 9"), "ok 1.1<m ok ok 1.2<m");
    assert_eq!(bench.held(), "b:1 c:1");
}

#[test]
fn a_topic_consumer_may_read_every_topic_of_a_pattern() {
    check(&[
        (
            "topics that exist and topics that do not yet",
            "send 2 #a.b l
             attach 1.1 #a.* 9
             attach 1.2 #a.> 9
             send 2 #a.b m
             send 2 #a.b.c n volatile
             send 2 #b o",
            "ok ok ok 1.1<m 1.2<m ok 1.2<n ok ok",
        ),
        (
            "once, though the topic has other subscribers, and by selector",
            "attach 1.1 #a.> 9 where=k=1
             attach 1.2 #a.b 9
             send 2 #a.b m?k=1
             send 2 #a.b n?k=2",
            "ok ok 1.1<m?k=1 1.2<m?k=1 ok 1.2<n?k=2 ok",
        ),
        (
            "a durable subscription",
            "attach 1.1 #a.> 9 sub=s
             detach 1.1 none
             send 2 #a.b m
             send 2 #c n
             attach 1.2 #a.> 9 sub=s
             accept 1.2 m
             detach 1.2 none
             unsubscribe 1 s
             send 2 #a.b o
             attach 1.3 #a.> 9 sub=s",
            "ok ok ok ok 1.2<m ok ok ok ok",
        ),
        (
            "gone with its consumer",
            "attach 1.1 #a.> 9
             detach 1.1 none
             send 2 #a.b m",
            "ok ok",
        ),
    ]);
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 #a.> 0 sub=s\nsend 2 #a.b m");
    bench.restart();
    bench.run("send 2 #a.c n");
    bench.reload();
    assert_eq!(bench.run("attach 1.1 #a.> 9 sub=s"), "ok 1.1<m 1.1<n");
}

#[test]
fn readers_share_a_subscription() {
    check(&[
        (
            "durable: they compete, and it stays",
            "attach 1.1 #t 9 sub=s share=durable
             attach 2.1 #t 9 sub=s share=durable
             send 3 #t m
             send 3 #t n
             close 1
             close 2
             send 3 #t o
             attach 1.2 #t 9 sub=s share=durable",
            "ok ok 1.1<m ok 2.1<n ok 2.1<m!1 ok ok 1.2<m!2 1.2<n!1 1.2<o",
        ),
        (
            "volatile: they compete, and it ends with the last",
            "attach 1.1 #t 9 sub=s share=volatile
             attach 2.1 #t 9 sub=s share=volatile
             send 3 #t m
             send 3 #t n volatile
             close 1
             close 2
             send 3 #t o
             attach 1.2 #t 9 sub=s share=volatile
             send 3 #t p",
            "ok ok 1.1<m ok 2.1<n ok 2.1<m!1 ok ok 1.2<p ok",
        ),
        (
            "another selector or topic while it is read is refused",
            "attach 1.1 #t 9 sub=s share=durable
             attach 2.1 #t 9 sub=s share=durable where=k=1
             attach 1.2 #t 9 sub=v share=volatile
             attach 2.2 #u 9 sub=v share=volatile",
            "ok no: the durable subscription s is in use ok no: the durable subscription v is in use",
        ),
        (
            "another selector afterwards makes it anew",
            "attach 1.1 #t 0 sub=s share=durable
             send 3 #t m?k=1
             detach 1.1 none
             attach 2.1 #t 9 sub=s share=durable where=k=1
             send 3 #t n?k=1",
            "ok ok ok 2.1<n?k=1 ok",
        ),
        (
            "shared and unshared ones do not mix",
            "attach 1.1 #t 0 sub=s share=durable
             detach 1.1 none
             attach 1.2 #t 0 sub=s
             attach 1.3 #t 0 sub=u
             detach 1.3 none
             attach 1.4 #t 0 sub=u share=durable",
            "ok no: the durable subscription s exists and is shared ok \
             no: the durable subscription u exists and is not shared",
        ),
        (
            "what is read is not unsubscribed",
            "attach 1.1 #t 0 sub=s share=durable
             attach 2.1 #t 0 sub=s share=durable
             detach 1.1 none
             unsubscribe 1 s
             detach 2.1 none
             unsubscribe 1 s",
            "ok ok no: the durable subscription s is in use ok",
        ),
    ]);
    check(&[
        (
            "a client that comes anew takes its subscription from its own reader, which may have seen what it had",
            "attach 1.1 #t 1 sub=s steals
             send 3 #t m
             send 3 #t n
             attach 2.1 #t 9 sub=s steals
             accept 2.1 m n
             credit 1.1 9
             send 3 #t o",
            "ok 1.1<m ok ok 1.1 detached ok 2.1<m!1 2.1<n ok 2.1<o ok",
        ),
        (
            "with another selector it is made anew",
            "attach 1.1 #t 9 sub=s steals:ann
             attach 2.1 #t 9 sub=s steals:ann where=k=1
             send 3 #t m?k=2
             send 3 #t n?k=1",
            "ok 1.1 detached ok ok 2.1<n?k=1 ok",
        ),
        (
            "what another user reads is the other's, and so is what somebody reads who would take nothing",
            "attach 1.1 #t 9 sub=s steals:ann
             attach 2.1 #t 9 sub=s steals:bob
             attach 2.2 #t 9 sub=s steals
             send 3 #t m
             attach 3.1 #t 9 sub=r
             attach 3.2 #t 9 sub=r steals",
            "ok no: the durable subscription s is in use no: the durable subscription s is in use 1.1<m ok \
             ok no: the durable subscription r is in use",
        ),
        (
            "nobody in the way, it is whose name is known",
            "attach 1.1 #t 9 sub=s steals:ann
             detach 1.1 none
             attach 2.1 #t 9 sub=s steals:bob
             send 3 #t m",
            "ok ok 2.1<m ok",
        ),
        (
            "what another reader of its own connection has was not left behind",
            "attach 1.1 #t 9 sub=s steals
             attach 1.2 #t 9 sub=s steals
             send 3 #t m",
            "ok no: the durable subscription s is in use 1.1<m ok",
        ),
        (
            "what is shared is taken from nobody",
            "attach 1.1 #t 9 sub=s share=durable steals
             attach 2.1 #t 9 sub=s share=durable where=k=1 steals",
            "ok no: the durable subscription s is in use",
        ),
    ]);
    let mut bench = Bench::new(settings(1));
    bench.run("attach 1.1 #t 0 sub=s share=durable\nsend 2 #t m");
    bench.reload();
    let said =
        bench.run("attach 1.1 #t 1 sub=s share=durable\nattach 2.1 #t 9 sub=s share=durable\nsend 2 #t n");
    assert_eq!(said, "ok 1.1<m ok 2.1<n ok", "it is still shared");
}

#[test]
fn a_subscription_that_takes_a_topic_of_another_partition_is_over_where_it_was() {
    let bench = || Bench::new(settings(2));
    let home = |bench: &Bench, name: &str| {
        let Settings { addressing, placement, .. } = &bench.settings;
        addressing.partition_of(*placement, &Destination::topic(name))
    };
    let (old, new) = ("old", (0..).map(|number| format!("new{number}")));
    let new = new.into_iter().find(|name| home(&bench(), name) != home(&bench(), old)).expect("one of them");
    let begun = "attach 1.1 #old 9 sub=s\nsend 2 #old m\ndetach 1.1 none\n";
    for (case, script, want, held) in [
        ("it ends with what it held", "attach 1.2 #NEW 9 sub=s", "ok 1.1<m ok ok", ""),
        ("and takes nothing any more", "attach 1.2 #NEW 9 sub=s\nsend 2 #old n", "ok 1.1<m ok ok ok", ""),
        (
            "the new one is there",
            "attach 1.2 #NEW 9 sub=s\nsend 2 #NEW n",
            "ok 1.1<m ok ok 1.2<n ok",
            "NEW:1",
        ),
        (
            "the way back too",
            "attach 1.2 #NEW 9 sub=s\ndetach 1.2 none\nattach 1.3 #old 9 sub=s\nsend 2 #NEW n\nsend 2 #old o",
            "ok 1.1<m ok ok ok ok 1.3<o ok",
            "old:1",
        ),
        (
            "another kind is another subscription",
            "attach 1.2 #NEW 9 sub=s share=durable",
            "ok 1.1<m ok ok",
            "old:1",
        ),
        ("another name is another subscription", "attach 1.2 #NEW 9 sub=t", "ok 1.1<m ok ok", "old:1"),
        (
            "as it is where somebody reads it",
            "attach 1.3 #old 9 sub=s\nattach 1.2 #NEW 9 sub=s",
            "ok 1.1<m ok ok 1.3<m ok",
            "old:1",
        ),
        ("a pattern is read in all partitions", "attach 1.2 #NEW.> 9 sub=s", "ok 1.1<m ok ok", ""),
    ] {
        let mut bench = bench();
        let said = bench.run(&format!("{begun}{}", script.replace("NEW", &new)));
        assert_eq!((said.as_str(), bench.held()), (want, held.replace("NEW", &new)), "case: {case}");
        bench.restart();
        assert_eq!(bench.held(), held.replace("NEW", &new), "case: {case}: after a restart");
    }
}

#[test]
fn a_queue_is_bound_ahead_of_what_makes_it_whatever_the_log_has_refused_before() {
    let queue = "Consumer.A.VirtualTopic.x";
    for (case, begin, go_on, want) in [
        ("a transaction", "send 1 QUEUE m tx=1", "commit 1 1\n", "ok ok ok ok 2.1<m 2.1<n"),
        (
            "a queue of that",
            "send 1 QUEUE l",
            "send 1 QUEUE m\n",
            "no: the store could not write: broken ok ok ok 2.1<m 2.1<n",
        ),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.late_from_now_on();
        let mut said = vec![bench.run(&begin.replace("QUEUE", queue))];
        said.push(bench.all_fail());
        let go_on = format!("{go_on}send 1 #VirtualTopic.x n\nattach 2.1 {queue} 9").replace("QUEUE", queue);
        said.push(bench.run(&go_on));
        said.retain(|said| !said.is_empty());
        assert_eq!(said.join(" "), want, "case: {case}");
    }
}

#[test]
fn a_queue_that_rules_want_bound_is_bound_once_the_log_is_well() {
    let mut bench = Bench::new(settings(1));
    assert_eq!(bench.run("send 1 Consumer.A.v.x l"), "ok");
    let rule = VirtualTopic {
        topics: Pattern::parse("v.>").expect("a pattern"),
        prefix: "Consumer.*.".into(),
        postfix: "".into(),
        selector_aware: false,
    };
    bench.settings.addressing = Arc::new(Addressing { virtual_topics: vec![rule], ..Addressing::default() });
    bench.broken = Some(PartitionId(0));
    bench.restart();
    bench.broken = None;
    assert_eq!(bench.run("space\nsend 1 #v.x m\nattach 2.1 Consumer.A.v.x 9"), "ok ok 2.1<l 2.1<m");
}

/// Queues are known in the log by their numbers, which follow from the log alone.
#[test]
fn what_was_sent_to_a_temporary_queue_too_leaves_no_queue_behind() {
    for (case, sends) in [
        ("a message", "send 1 ~t,a m"),
        ("a transaction", "send 1 ~t,a m tx=1\ncommit 1 1"),
        ("and its connection has ended meanwhile", "send 2 ~t,a m\nclose 1"),
    ] {
        let mut bench = Bench::new(settings(1));
        bench.run("make 1 ~t");
        bench.run_all_late(sends);
        bench.run(
            "send 3 a n\nsend 3 b o\nsend 3 b p\nattach 3.1 a 9\nattach 3.2 b 9\naccept 3.1 m\naccept 3.2 o",
        );
        bench.restart();
        assert_eq!(bench.held(), "a:1 b:1", "case: {case}");
        assert_eq!(bench.run("attach 4.1 a 9\nattach 4.2 b 9"), "ok 4.1<n ok 4.2<p", "case: {case}");
    }
}

/// A client that comes back sends its unsettled deliveries at once; the end of its last connection
/// may be heard of later.
#[test]
fn a_temporary_queue_is_taken_from_what_its_client_has_left_behind() {
    for (case, script, want) in [
        (
            "with what is in it",
            "make 1 ~t steals:c
             attach 1.1 ~t 1
             send 9 ~t m
             send 9 ~t n
             make 2 ~t steals:c
             close 1
             attach 2.1 ~t 9
             send 9 ~t o",
            "ok ok 1.1<m ok ok ok ok 2.1<m!1 2.1<n 2.1<o ok",
        ),
        (
            "not by another client",
            "make 1 ~t steals:c
             make 2 ~t steals:d
             make 3 ~t",
            "ok no: temp-queue://t belongs to another connection no: temp-queue://t belongs to another connection",
        ),
        (
            "not from one that leaves nothing",
            "make 1 ~t
             make 2 ~t steals:c",
            "ok no: temp-queue://t belongs to another connection",
        ),
        (
            "it ends with its new connection",
            "make 1 ~t steals:c
             make 2 ~t steals:c
             close 1
             close 2
             attach 3.1 ~t 9",
            "ok ok no: the temporary destination temp-queue://t does not exist; its connection may have closed",
        ),
    ] {
        assert_eq!(Bench::new(settings(1)).run(script), want, "case: {case}");
    }
}

#[test]
fn who_comes_while_an_address_is_being_deleted_has_what_is_made_behind_that() {
    for (case, before, script, now, durable, failed) in [
        (
            "a consumer of a queue",
            "make 1 a",
            "unmake 1 a\nattach 2.1 a 9\nsend 2 a m",
            "",
            "ok ok ok 2.1<m",
            "NO ok NO",
        ),
        (
            "a pull",
            "make 1 a",
            "unmake 1 a\nattach 2.1 a 0\ncredit 2.1 1\ndrain 2.1\nsend 2 a m",
            "",
            "ok ok ok 2.1<m 2.1 drained",
            "NO ok 2.1 drained NO",
        ),
        ("who makes it anew", "make 1 a", "unmake 1 a\nmake 2 a\nattach 2.1 a 9", "", "ok ok ok", "NO ok NO"),
        ("who deletes it too", "make 1 a", "unmake 1 a\nunmake 2 a", "", "ok ok", "NO ok"),
        (
            "who leaves again",
            "make 1 a",
            "unmake 1 a\nattach 2.1 a 9\ndetach 2.1 all\nunmake 2 a",
            "",
            "ok ok ok",
            "NO ok ok",
        ),
        (
            "a consumer of a topic",
            "attach 1.1 #t 9 sub=s\ndetach 1.1 all",
            "unmake 1 #t\nattach 2.1 #t 9",
            "",
            "ok ok",
            "NO ok",
        ),
    ] {
        for fails in [false, true] {
            let mut bench = Bench::new(settings(1));
            bench.run(before);
            bench.late_from_now_on();
            assert_eq!(bench.run(script), now, "case: {case}");
            let said = if fails { bench.all_fail() } else { bench.all_durable() };
            let want = failed.replace("NO", "no: the store could not write: broken");
            assert_eq!(said, if fails { &want } else { durable }, "case: {case}, fails: {fails}");
        }
    }
}
