//! Leases: reservers beside consumers, operations on handles, and state that outlives a restart.

mod bench;

use std::collections::BTreeSet;
use std::sync::Arc;

use bench::{Bench, settings};
use bytes::Bytes;
use postroad_model::{
    ConnectionId, DEDUPLICATION_MS, Deduplication, Destination, Encoding, Group, Handle, HandleAction,
    HandleEntries, LeaseEvent, LeaseId, Message, NORMAL_PRIORITY, Post, Protocol, QueueOptions, RareHeaders,
    Reserve, Take, Ticket, Watch,
};
use postroad_routing::{DestinationPattern, LeaseLimit, Limit, Policies, Policy, Tenant};

const CLIENT: ConnectionId = ConnectionId::new(0, 90);
const LEASE: Take = Take::Lease { lasts_ms: 100 };
const DELETE: HandleAction = HandleAction::Delete { even_expired: false };

fn bench() -> Bench {
    let mut bench = Bench::new(settings(1));
    bench.run("time 1000");
    bench
}

fn message(body: &str, group: Option<&str>, visible_at_ms: u64) -> Message {
    let group = group.map(|id| Group { id: id.into(), sequence: 0 });
    let rare = RareHeaders { group, visible_at_ms, ..RareHeaders::default() };
    Message {
        encoding: Encoding { protocol: Protocol::OpenWire, version: 12 },
        persistent: true,
        priority: NORMAL_PRIORITY,
        expires_at_ms: 0,
        rare: (rare != RareHeaders::default()).then(|| Arc::new(rare)),
        bytes: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn post(bench: &mut Bench, bodies: &[&str]) -> String {
    post_all(bench, bodies.iter().map(|body| message(body, None, 0)).collect())
}

fn post_all(bench: &mut Bench, messages: Vec<Message>) -> String {
    let to = Destination::queue("a");
    bench.lease(LeaseEvent::Post(Post { connection: CLIENT, ticket: Ticket(1), to, messages }))
}

fn reserve(bench: &mut Bench, count: u32, wait_ms: u64, take: Take) -> String {
    select(bench, count, wait_ms, take, "")
}

fn select(bench: &mut Bench, messages_max: u32, wait_ms: u64, take: Take, selector: &str) -> String {
    let (connection, queue, selector) = (CLIENT, Destination::queue("a"), selector.into());
    bench.lease(LeaseEvent::Reserve(Reserve {
        connection,
        ticket: Ticket(2),
        queue,
        messages_max,
        selector,
        wait_ms,
        take,
    }))
}

fn handle(bench: &mut Bench, handles: &[Handle], action: HandleAction) -> String {
    let (connection, ticket, queue) = (CLIENT, Ticket(3), Destination::queue("a"));
    let (handles, all_or_none) = (handles.to_vec(), false);
    bench.lease(LeaseEvent::Handle(HandleEntries { queue, connection, ticket, handles, action, all_or_none }))
}

/// The handle of the `number`th time that this message was reserved.
fn of(bench: &Bench, body: &str, number: usize) -> Handle {
    bench.handles[body][number]
}

fn describe(bench: &mut Bench) -> String {
    let (queue, connection, ticket) = (Destination::queue("a"), CLIENT, Ticket(4));
    bench.lease(LeaseEvent::Describe { queue, connection, ticket })
}

#[test]
fn a_reserve_of_a_queue_that_does_not_exist_is_refused_and_a_post_makes_it() {
    let mut bench = bench();
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "no: queue://a does not exist");
    assert_eq!(post(&mut bench, &["m", "n"]), "posted 0 ok");
    assert_eq!(post(&mut bench, &["o"]), "posted 2 ok");
    assert_eq!(reserve(&mut bench, 2, 0, LEASE), "m#1 n#1 ok");
    assert_eq!(reserve(&mut bench, 2, 0, LEASE), "o#1 ok");
    assert_eq!(reserve(&mut bench, 2, 0, LEASE), "nothing ok");
    assert_eq!(describe(&mut bench), "3: 3 leased, 0 delayed, 0 held ok");
}

/// A message with this key, whose own id is 100 more.
fn once(now_ms: u64, body: &str, key: u128) -> Message {
    let until_ms = now_ms + DEDUPLICATION_MS;
    message(body, None, 0).with_deduplication(Some(Deduplication { key, id: key + 100, until_ms }))
}

#[test]
fn a_message_with_a_known_key_is_not_taken_in_again() {
    let mut bench = bench();
    let (m, n) = (once(1000, "m", 1), once(1000, "n", 2));
    assert_eq!(post_all(&mut bench, vec![m.clone()]), "posted 0 ok");
    assert_eq!(post_all(&mut bench, vec![m.clone()]), "posted 0 0=0:101 ok");
    let all = vec![n.clone(), m.clone(), message("o", None, 0), n.clone()];
    assert_eq!(post_all(&mut bench, all), "posted 1 1=0:101 3=1:102 ok");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m#1 n#1 o#1 ok");
    let handle_of_m = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[handle_of_m], DELETE), "done ok");
    assert_eq!(post_all(&mut bench, vec![m.clone()]), "posted 0 0=0:101 ok", "its message is gone");
    for restart in [Bench::restart as fn(&mut Bench), Bench::reload] {
        restart(&mut bench);
        bench.run("time 2000");
        assert_eq!(post_all(&mut bench, vec![n.clone()]), "posted 0 0=1:102 ok");
    }
    bench.run(&format!("time {}", 1000 + DEDUPLICATION_MS));
    let later = once(1000 + DEDUPLICATION_MS, "later", 1);
    assert_eq!(post_all(&mut bench, vec![later]), "posted 3 ok", "five minutes later it is another one");
}

#[test]
fn a_lease_ends_by_its_deadline_and_a_stale_handle_is_told_why() {
    let mut bench = bench();
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    assert_eq!(bench.run("time 1099"), "");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok", "it is not over yet");
    bench.run("time 1100");
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "Expired ok");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#2 ok");
    assert_eq!(handle(&mut bench, &[first], DELETE), "Taken ok");
    let unnamed = Handle { lease: None, ..first };
    assert_eq!(handle(&mut bench, &[unnamed], DELETE), "Held ok");
    let second = of(&bench, "m", 1);
    assert_eq!(handle(&mut bench, &[second], DELETE), "done ok");
    assert_eq!(handle(&mut bench, &[second], DELETE), "Gone ok");
    assert_eq!(describe(&mut bench), "0: 0 leased, 0 delayed, 0 held ok");
}

#[test]
fn extend_and_release_move_the_deadline() {
    let mut bench = bench();
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], HandleAction::Extend { lasts_ms: 500 }), "done ok");
    bench.run("time 1400");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok");
    assert_eq!(handle(&mut bench, &[first], HandleAction::Release { delay_ms: 50 }), "done ok");
    assert_eq!(describe(&mut bench), "1: 0 leased, 1 delayed, 0 held ok");
    assert_eq!(handle(&mut bench, &[first], DELETE), "Expired ok");
    bench.run("time 1450");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#2 ok");
    let second = of(&bench, "m", 1);
    assert_eq!(handle(&mut bench, &[second], HandleAction::Release { delay_ms: 0 }), "done ok");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#3 ok");
}

#[test]
fn a_renewed_lease_replaces_the_one_before_also_after_a_restart() {
    for (case, restart) in [("the log", Bench::restart as fn(&mut Bench)), ("a snapshot", Bench::reload)] {
        let mut bench = bench();
        post(&mut bench, &["m", "n"]);
        reserve(&mut bench, 2, 0, LEASE);
        let (m, n) = (of(&bench, "m", 0), of(&bench, "n", 0));
        let renew = HandleAction::Renew { lasts_ms: 500 };
        assert_eq!(handle(&mut bench, &[m, n], renew), "2 renewed done done ok", "{case}");
        let renewed = |bench: &Bench, of: Handle, index| Handle { lease: Some(bench.renewed[index]), ..of };
        assert_ne!(bench.renewed[0], bench.renewed[1]);
        assert_eq!(handle(&mut bench, &[m], renew), "Taken ok", "{case}: the old one is stale");
        assert_eq!(handle(&mut bench, &[m], DELETE), "Taken ok", "{case}");
        restart(&mut bench);
        bench.run("time 1400");
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok", "{case}: it lasts longer");
        assert_eq!(handle(&mut bench, &[m], DELETE), "Taken ok", "{case}");
        let (m, n) = (renewed(&bench, m, 0), renewed(&bench, n, 1));
        assert_eq!(handle(&mut bench, &[m], DELETE), "done ok", "{case}");
        bench.run("time 1500");
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), "n#2 ok", "{case}");
        assert_eq!(handle(&mut bench, &[n], renew), "Taken ok", "{case}");
    }
}

#[test]
fn leases_and_options_outlive_a_restart_with_and_without_a_snapshot() {
    for (case, restart) in [("the log", Bench::restart as fn(&mut Bench)), ("a snapshot", Bench::reload)] {
        let mut bench = bench();
        post(&mut bench, &["m", "n", "o"]);
        post_all(&mut bench, vec![message("later", None, 1300)]);
        reserve(&mut bench, 2, 0, LEASE);
        let (m, n) = (of(&bench, "m", 0), of(&bench, "n", 0));
        assert_eq!(handle(&mut bench, &[m], HandleAction::Extend { lasts_ms: 250 }), "done ok", "{case}");
        restart(&mut bench);
        bench.run("time 1050");
        assert_eq!(describe(&mut bench), "4: 2 leased, 1 delayed, 0 held ok", "{case}");
        assert_eq!(reserve(&mut bench, 9, 0, Take::Peek), "o#0 ok", "{case}");
        assert_eq!(handle(&mut bench, &[n], DELETE), "done ok", "{case}");
        bench.run("time 1249");
        assert_eq!(handle(&mut bench, &[m], HandleAction::Extend { lasts_ms: 10 }), "done ok", "{case}");
        bench.run("time 1300");
        assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m#2 o#1 later#1 ok", "{case}");
    }
}

#[test]
fn lease_ids_differ_from_run_to_run() {
    let mut bench = bench();
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    bench.restart();
    bench.run("time 5000");
    reserve(&mut bench, 1, 0, LEASE);
    assert_ne!(of(&bench, "m", 0).lease, of(&bench, "m", 1).lease);
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "Taken ok");
}

#[test]
fn a_reserve_that_finds_nothing_waits_for_a_message_or_its_deadline() {
    let mut bench = bench();
    bench.run("make 1 a");
    assert_eq!(reserve(&mut bench, 5, 200, LEASE), "");
    assert_eq!(post(&mut bench, &["m", "n"]), "m#1 n#1 ok posted 0 ok");
    assert_eq!(reserve(&mut bench, 5, 200, LEASE), "");
    assert_eq!(bench.run("time 1099"), "");
    assert_eq!(bench.run("time 1100"), "m#2 n#2 ok", "it gets what other leases let go");
    assert_eq!(reserve(&mut bench, 5, 50, LEASE), "");
    assert_eq!(bench.run("time 1149"), "");
    assert_eq!(bench.run("time 1150"), "nothing ok");
}

#[test]
fn consumers_and_reserves_compete_and_each_entry_has_one_holder() {
    let mut bench = bench();
    post(&mut bench, &["m", "n", "o"]);
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#1 ok");
    assert_eq!(bench.run("attach 1.2 a 1"), "ok 1.2<n");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "o#1 ok");
    assert_eq!(describe(&mut bench), "3: 2 leased, 0 delayed, 1 held ok");
    assert_eq!(bench.run("accept 1.2 n"), "ok");
    assert_eq!(bench.run("credit 1.2 5\ntime 1100"), "1.2<m!1 1.2<o!1");
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "Taken ok");
}

#[test]
fn a_selector_and_message_groups_bind_reserves() {
    let mut bench = bench();
    post(&mut bench, &["m?k=1", "n?k=2", "o?k=2"]);
    assert_eq!(select(&mut bench, 9, 0, LEASE, "k = 2"), "n?k=2#1 o?k=2#1 ok");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m?k=1#1 ok");
    let mut bench = self::bench();
    post_all(
        &mut bench,
        vec![message("g1", Some("g"), 0), message("g2", Some("g"), 0), message("h1", Some("h"), 0)],
    );
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "g1#1 ok");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "h1#1 ok", "the group waits for its lease");
    assert_eq!(bench.run("attach 1.2 a 5"), "ok", "for consumers as well");
    let first = of(&bench, "g1", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "done ok 1.2<g2*");
}

#[test]
fn a_deleted_message_is_gone_before_the_answer() {
    let mut bench = bench();
    post(&mut bench, &["m"]);
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#1 ok");
    bench.late_from_now_on();
    let leased = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[leased], DELETE), "");
    assert_eq!(bench.all_durable(), "done ok");
    bench.restart();
    bench.run("time 1001");
    assert_eq!(describe(&mut bench), "0: 0 leased, 0 delayed, 0 held ok");
}

#[test]
fn the_body_of_a_large_message_stays_while_its_reader_has_it() {
    let mut bench = bench();
    bench.run("piece 1 7 a abc\npiece 1 7 a def\nsend 1 a m upload=7");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#1 ok");
    let reserved = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[reserved], DELETE), "done ok");
    bench.run("time 5000");
    assert_eq!(
        (bench.pieces().as_str(), describe(&mut bench).as_str()),
        ("0: abc def", "0: 0 leased, 0 delayed, 0 held ok")
    );
    bench.read_in_pieces.clear();
    bench.run("time 10000");
    assert_eq!(bench.pieces(), "");
}

#[test]
fn what_the_log_refuses_has_not_happened() {
    let mut bench = bench();
    post(&mut bench, &["m", "n"]);
    bench.late_from_now_on();
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "");
    assert!(bench.all_fail().starts_with("no: "));
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#2 ok");
    let handle_of_m = of(&bench, "m", 0);
    bench.late_from_now_on();
    handle(&mut bench, &[handle_of_m], DELETE);
    assert!(bench.all_fail().starts_with("no: "));
    assert_eq!(describe(&mut bench), "2: 1 leased, 0 delayed, 0 held ok", "its holder has it still");
    assert_eq!(handle(&mut bench, &[handle_of_m], DELETE), "done ok");
}

/// The answer to an operation by this handle while the log is late: none.
fn ask_late(bench: &mut Bench, by: Handle, action: HandleAction) {
    bench.late_from_now_on();
    assert_eq!(handle(bench, &[by], action), "", "{action:?}");
}

#[test]
fn a_touch_or_release_that_the_log_refuses_has_changed_nothing() {
    for (action, at_deadline) in [
        (HandleAction::Extend { lasts_ms: 500 }, "m#2 ok"),
        (HandleAction::Renew { lasts_ms: 500 }, "m#2 ok"),
        (HandleAction::Release { delay_ms: 0 }, "m#2 ok"),
        (HandleAction::Release { delay_ms: 500 }, "m#2 ok"),
    ] {
        let mut bench = bench();
        post(&mut bench, &["m"]);
        reserve(&mut bench, 1, 0, LEASE);
        let by = of(&bench, "m", 0);
        ask_late(&mut bench, by, action);
        assert!(bench.all_fail().starts_with("no: "), "{action:?}");
        assert_eq!(describe(&mut bench), "1: 1 leased, 0 delayed, 0 held ok", "{action:?}");
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok", "{action:?}");
        assert_eq!(
            handle(&mut bench, &[by], HandleAction::Extend { lasts_ms: 100 }),
            "done ok",
            "{action:?}"
        );
        bench.run("time 1099");
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok", "{action:?}");
        bench.run("time 1100");
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), at_deadline, "{action:?}");
        assert_eq!(bench.partitions[0].miscounted(), None, "{action:?}");
    }
}

#[test]
fn a_deadline_waits_for_the_record_that_moves_it() {
    for (action, lasts, fails) in [
        (HandleAction::Extend { lasts_ms: 500 }, true, false),
        (HandleAction::Extend { lasts_ms: 500 }, false, true),
        (DELETE, false, true),
    ] {
        let mut bench = bench();
        post(&mut bench, &["m"]);
        reserve(&mut bench, 1, 0, LEASE);
        let by = of(&bench, "m", 0);
        ask_late(&mut bench, by, action);
        assert_eq!(bench.run("time 1200"), "");
        let answer = if fails { bench.all_fail() } else { bench.all_durable() };
        assert_eq!(answer.starts_with("no: "), fails, "{action:?}: {answer}");
        bench.run("time 1201");
        let want = if lasts { "nothing ok" } else { "m#2 ok" };
        assert_eq!(reserve(&mut bench, 1, 0, LEASE), want, "{action:?} {fails}");
        bench.run("time 2000");
        assert_eq!(describe(&mut bench), "1: 0 leased, 0 delayed, 0 held ok", "{action:?} {fails}");
        assert_eq!(bench.partitions[0].miscounted(), None);
    }
}

#[test]
fn a_request_behind_a_record_on_its_way_follows_from_it() {
    let release = HandleAction::Release { delay_ms: 0 };
    for (first, second, durable, refused) in [
        (DELETE, DELETE, "done ok Gone ok", "done ok"),
        (DELETE, HandleAction::Extend { lasts_ms: 9 }, "done ok Gone ok", "done ok"),
        (release, DELETE, "done ok Expired ok", "done ok"),
        (HandleAction::Extend { lasts_ms: 500 }, release, "done ok done ok", "done ok"),
        (HandleAction::Renew { lasts_ms: 500 }, DELETE, "1 renewed done ok Taken ok", "done ok"),
    ] {
        let case = format!("{first:?}, {second:?}");
        let begun = || {
            let mut bench = bench();
            post(&mut bench, &["m"]);
            reserve(&mut bench, 1, 0, LEASE);
            let by = of(&bench, "m", 0);
            ask_late(&mut bench, by, first);
            assert_eq!(handle(&mut bench, &[by], second), "", "{case}: not before it is known");
            (bench, by)
        };
        let (mut bench, _) = begun();
        assert_eq!(bench.all_durable(), durable, "{case}");
        let (mut bench, by) = begun();
        assert!(bench.all_fail().starts_with("no: "), "{case}");
        assert_eq!(handle(&mut bench, &[by], second), refused, "{case}: all is as before");
    }
}

#[test]
fn a_handle_of_a_message_that_has_left_or_comes_back_is_told_so() {
    // It expired.
    let mut bench = bench();
    post_all(&mut bench, vec![Message { expires_at_ms: 1050, ..message("m", None, 0) }]);
    reserve(&mut bench, 1, 0, LEASE);
    let by = of(&bench, "m", 0);
    bench.run("time 1100");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok");
    assert_eq!(handle(&mut bench, &[by], DELETE), "Gone ok", "expired");
    // Another lease had it, and has ended.
    let mut bench = self::bench();
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    bench.run("time 1100");
    reserve(&mut bench, 1, 0, LEASE);
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "Taken ok");
    bench.run("time 1200");
    assert_eq!(handle(&mut bench, &[first], DELETE), "Expired ok", "it is free again");
    // Its queue lives in another partition now, where another has it.
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    let mut bench = Bench::new(settings);
    bench.run("time 1000");
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    let first = of(&bench, "m", 0);
    bench.run("move 1 a to=1\ntime 1100\ntime 1120\ntime 1140\ntime 1160");
    assert_eq!(handle(&mut bench, &[first], DELETE), "Expired ok", "it has moved, and is free");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#2 ok");
    assert_ne!(first.lease, of(&bench, "m", 1).lease, "leases of two partitions differ");
    let even_expired = HandleAction::Delete { even_expired: true };
    assert_eq!(handle(&mut bench, &[first], even_expired), "Expired ok", "another has it");
    let second = of(&bench, "m", 1);
    assert_eq!(handle(&mut bench, &[second], DELETE), "done ok");
}

/// A broker with a second store, to which queues can move.
fn two_stores() -> Bench {
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    let mut bench = Bench::new(settings);
    bench.run("time 1000");
    bench
}

#[test]
fn leases_hold_while_their_queue_moves() {
    for restarts in [false, true] {
        let mut bench = two_stores();
        post(&mut bench, &["m", "n", "o", "p"]);
        assert_eq!(reserve(&mut bench, 3, 0, LEASE), "m#1 n#1 o#1 ok");
        let [m, n, o] = ["m", "n", "o"].map(|body| of(&bench, body, 0));
        assert_eq!(bench.run("move 1 a to=1\ntime 1020\ntime 1040"), "ok");
        if restarts {
            bench.restart();
            bench.run("time 1041");
        }
        assert_eq!(handle(&mut bench, &[m], DELETE), "done ok");
        assert_eq!(handle(&mut bench, &[n], HandleAction::Extend { lasts_ms: 500 }), "done ok");
        assert_eq!(handle(&mut bench, &[o], HandleAction::Release { delay_ms: 0 }), "done ok");
        bench.run("time 1400\ntime 1420");
        assert_eq!(
            reserve(&mut bench, 9, 0, LEASE),
            "no: queue://a is moving to another store; try again once it is there"
        );
        assert_eq!(handle(&mut bench, &[n], DELETE), "done ok", "its lease holds the queue back");
        bench.run("time 1440\ntime 1460\ntime 1480");
        assert_eq!(reserve(&mut bench, 9, 0, LEASE), "o#2 p#1 ok");
        assert_eq!(handle(&mut bench, &[o], DELETE), "Expired ok", "it has gone with its queue");
    }
}

#[test]
fn a_handle_of_the_former_place_of_a_queue_deletes_nothing_in_the_new_one() {
    let mut bench = two_stores();
    post(&mut bench, &["m"]);
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#1 ok");
    let m = of(&bench, "m", 0);
    assert_eq!(bench.run("move 1 a to=1\ntime 1020\ntime 1040"), "ok");
    post(&mut bench, &["n"]);
    bench.run("time 1200\ntime 1220\ntime 1240\ntime 1260");
    let even_expired = HandleAction::Delete { even_expired: true };
    assert_eq!(handle(&mut bench, &[m], even_expired), "Expired ok");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m#2 n#1 ok");
}

#[test]
fn a_reserve_that_waits_is_answered_when_its_queue_moves() {
    let mut bench = two_stores();
    assert_eq!(bench.run("make 1 a"), "ok");
    assert_eq!(reserve(&mut bench, 1, 30_000, LEASE), "");
    assert_eq!(bench.run("move 1 a to=1\ntime 1020\ntime 1040\ntime 1060"), "ok nothing ok");
    assert_eq!(reserve(&mut bench, 1, 30_000, LEASE), "", "it waits where the queue is now");
    assert_eq!(post(&mut bench, &["m"]), "m#1 ok posted 0 ok");
}

#[test]
fn at_the_bound_of_leases_a_reserve_is_refused() {
    let mut bench = bench();
    let policy = Policy { leases_max: LeaseLimit(2), ..Policy::default() };
    bench.follow(Policies::new(policy));
    post(&mut bench, &["m", "n", "o"]);
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m#1 n#1 ok");
    assert!(
        reserve(&mut bench, 1, 0, LEASE).starts_with("no: queue://a has the maximum of 2 messages in flight")
    );
    let first = of(&bench, "m", 0);
    assert_eq!(handle(&mut bench, &[first], DELETE), "done ok");
    assert_eq!(reserve(&mut bench, 9, 0, LEASE), "o#1 ok");
}

/// A tenant that owns all queues, with this many leases.
fn tenant(leases_max: u64) -> Policies {
    let mut policies = Policies::default();
    let tenant = Tenant { leases_max: Some(leases_max), ..Tenant::new("acme", Limit::default()) };
    let all = DestinationPattern::parse("queue://>").expect("a pattern");
    policies.tenants.add(tenant, &[all]).expect("one tenant");
    policies
}

fn reserve_of(bench: &mut Bench, queue: &str, wait_ms: u64, number: u64) -> String {
    let (connection, ticket, queue) = (CLIENT, Ticket(number), Destination::queue(queue));
    let (messages_max, selector, take) = (9, "".into(), LEASE);
    let reserve = Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take };
    bench.lease(LeaseEvent::Reserve(reserve))
}

#[test]
fn at_the_bound_of_a_tenant_reserves_of_all_its_queues_are_refused() {
    let full = "no: the tenant acme has the maximum of 3 messages in flight";
    for restart in [|_: &mut Bench| (), Bench::restart as fn(&mut Bench), Bench::reload] {
        let mut bench = bench();
        bench.follow(tenant(3));
        post(&mut bench, &["m", "n"]);
        bench.run("send 1 b x\nsend 1 b y\nmake 1 c");
        assert_eq!(reserve(&mut bench, 9, 0, LEASE), "m#1 n#1 ok");
        restart(&mut bench);
        bench.run("time 1001");
        assert_eq!(reserve_of(&mut bench, "b", 0, 2), "x#1 ok", "it gets as many as there may be");
        for queue in ["a", "b", "c"] {
            assert!(reserve_of(&mut bench, queue, 0, 2).starts_with(full), "{queue}");
        }
        assert_eq!(reserve(&mut bench, 9, 0, Take::Peek), "nothing ok", "looking is no lease");
        let m = of(&bench, "m", 0);
        assert_eq!(handle(&mut bench, &[m], HandleAction::Extend { lasts_ms: 99 }), "done ok");
        assert_eq!(handle(&mut bench, &[m], HandleAction::Release { delay_ms: 50 }), "done ok");
        assert_eq!(reserve_of(&mut bench, "b", 0, 2), "y#1 ok", "a delay is no lease");
        bench.run("time 1101");
        assert_eq!(bench.partitions[0].miscounted(), None);
        assert_eq!(reserve_of(&mut bench, "a", 0, 2), "m#2 n#2 ok", "leases have ended");
        assert_eq!(reserve_of(&mut bench, "b", 0, 2), "x#2 ok");
        bench.run("unmake 1 a");
        assert_eq!(reserve_of(&mut bench, "b", 0, 2), "y#2 ok", "a deleted queue has no leases");
        assert_eq!(bench.partitions[0].miscounted(), None);
    }
}

#[test]
fn waiting_reserves_do_not_pass_the_bound_together() {
    let mut bench = bench();
    bench.follow(tenant(2));
    bench.run("make 1 a");
    for number in [11, 12, 13] {
        assert_eq!(reserve_of(&mut bench, "a", 500, number), "");
    }
    let answers = post(&mut bench, &["m", "n", "o"]);
    let refused = "no: the tenant acme has the maximum of 2 messages in flight";
    assert_eq!(answers.matches("#1").count(), 2, "{answers}");
    assert_eq!(answers.matches(refused).count(), 1, "{answers}");
    assert_eq!(describe(&mut bench), "3: 2 leased, 0 delayed, 0 held ok");
    bench.run("time 1100");
    assert_eq!(reserve_of(&mut bench, "a", 0, 2), "m#2 n#2 ok");
}

#[test]
fn after_so_many_deliveries_a_message_is_dead() {
    let mut bench = bench();
    let options =
        QueueOptions { deliveries_max: 2, dead_letters: Some("grave".into()), ..QueueOptions::default() };
    let (queue, connection, ticket) = (Destination::queue("a"), CLIENT, Ticket(5));
    assert_eq!(bench.lease(LeaseEvent::Configure { queue, options, connection, ticket }), "ok");
    post(&mut bench, &["m"]);
    reserve(&mut bench, 1, 0, LEASE);
    bench.run("time 1100");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "m#2 ok");
    bench.run("time 1200");
    assert_eq!(reserve(&mut bench, 1, 0, LEASE), "nothing ok");
    let second = of(&bench, "m", 1);
    assert_eq!(handle(&mut bench, &[second], DELETE), "Gone ok", "among the dead letters");
    assert_eq!(bench.run("attach 1.2 grave 5"), "ok 1.2<m");
}

#[test]
fn a_reserve_whose_client_has_gone_takes_nothing() {
    let mut bench = bench();
    bench.run("make 1 a");
    let (queue, connection, ticket) = (Destination::queue("a"), CLIENT, Ticket(2));
    assert_eq!(reserve(&mut bench, 5, 200, LEASE), "");
    assert_eq!(bench.lease(LeaseEvent::Cancel { queue, connection, ticket }), "");
    assert_eq!(post(&mut bench, &["m"]), "posted 0 ok");
    assert_eq!(describe(&mut bench), "1: 0 leased, 0 delayed, 0 held ok");
    assert_eq!(bench.run("attach 1.2 a 5"), "ok 1.2<m");
    bench.run("accept 1.2 m");
    assert_eq!(reserve(&mut bench, 5, 200, LEASE), "");
    assert_eq!(bench.run("detach 1.2 none\nunmake 1 a"), "no: queue://a does not exist ok");
}

fn watch(bench: &mut Bench, number: u64, rises_to: Option<u64>, falls_to: Option<u64>) -> String {
    let (connection, queue, ticket) = (CLIENT, Destination::queue("a"), Ticket(number));
    bench.lease(LeaseEvent::Watch(Watch { connection, ticket, queue, rises_to, falls_to }))
}

#[test]
fn a_watch_is_answered_when_the_queue_has_reached_a_length() {
    let mut bench = bench();
    assert_eq!(watch(&mut bench, 9, Some(0), None), "no: queue://a does not exist");
    post(&mut bench, &["m"]);
    assert_eq!(watch(&mut bench, 9, Some(1), None), "1: 0 leased, 0 delayed, 0 held ok", "it has it");
    assert_eq!(watch(&mut bench, 9, Some(3), None), "");
    assert_eq!(post(&mut bench, &["n"]), "posted 1 ok");
    assert_eq!(post(&mut bench, &["o"]), "posted 2 ok 3: 0 leased, 0 delayed, 0 held ok");
    assert_eq!(watch(&mut bench, 8, Some(9), Some(1)), "");
    assert_eq!(watch(&mut bench, 9, None, Some(0)), "");
    assert_eq!(reserve(&mut bench, 2, 0, LEASE), "m#1 n#1 ok");
    let leased = [of(&bench, "m", 0), of(&bench, "n", 0)];
    assert_eq!(handle(&mut bench, &leased, DELETE), "done done ok 1: 0 leased, 0 delayed, 0 held ok");
    let queue = Destination::queue("a");
    bench.lease(LeaseEvent::Cancel { queue, connection: CLIENT, ticket: Ticket(9) });
    assert_eq!(bench.run("attach 1.1 a 5"), "ok 1.1<o");
    assert_eq!(bench.run("accept 1.1 o"), "ok", "it was cancelled");
    assert_eq!(watch(&mut bench, 9, Some(1), None), "");
    assert_eq!(bench.run("detach 1.1 none\nunmake 1 a"), "no: queue://a does not exist ok");
}

#[test]
fn at_the_bound_of_watches_a_further_one_is_refused() {
    let mut bench = bench();
    bench.run("make 1 a");
    for number in 0..4096 {
        assert_eq!(watch(&mut bench, number, Some(1), None), "");
    }
    let refused = watch(&mut bench, 4096, Some(1), None);
    assert!(
        refused.starts_with("no: the maximum of 4096 requests waits for messages of queue://a"),
        "{refused}"
    );
    let queue = Destination::queue("a");
    bench.lease(LeaseEvent::Cancel { queue, connection: CLIENT, ticket: Ticket(5) });
    assert_eq!(watch(&mut bench, 4096, Some(1), None), "");
}

#[test]
fn a_temporary_queue_has_no_requests_of_other_connections() {
    let mut bench = bench();
    bench.run("make 1 ~t\nsend 1 ~t m");
    let (connection, ticket) = (CLIENT, Ticket(7));
    for (name, want) in [
        ("t", "no: temp-queue://t belongs to another connection"),
        ("u", "no: the temporary destination temp-queue://u does not exist; its connection may have closed"),
    ] {
        let queue = Destination { temporary: true, ..Destination::queue(name) };
        let reserve = |take| {
            let (queue, messages_max, selector, wait_ms) = (queue.clone(), 9, "".into(), 0);
            Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take }
        };
        let (handles, action, all_or_none) = (Vec::new(), DELETE, false);
        let handle = HandleEntries { connection, ticket, queue: queue.clone(), handles, action, all_or_none };
        let watch = Watch { connection, ticket, queue: queue.clone(), rises_to: Some(1), falls_to: None };
        for event in [
            LeaseEvent::Reserve(reserve(LEASE)),
            LeaseEvent::Reserve(reserve(Take::Peek)),
            LeaseEvent::Handle(handle),
            LeaseEvent::Watch(watch),
            LeaseEvent::Configure {
                queue: queue.clone(),
                options: QueueOptions::default(),
                connection,
                ticket,
            },
            LeaseEvent::Describe { queue: queue.clone(), connection, ticket },
            LeaseEvent::Clear { queue: queue.clone(), connection, ticket },
        ] {
            assert_eq!(bench.lease(event.clone()), want, "{event:?}");
        }
    }
    assert_eq!(bench.run("attach 1.1 ~t 9"), "ok 1.1<m");
}

/// The model's state of a message.
#[derive(Clone, Copy, PartialEq)]
enum Truth {
    FreeFrom(u64),
    Leased { by: LeaseId, until_ms: u64 },
    Deleted,
}

/// A random run with an oracle: no message has two holders, none is lost, and deleted messages stay
/// deleted.
struct Run {
    bench: Bench,
    /// In the order of posting.
    truths: Vec<(String, Truth)>,
    now_ms: u64,
    state: u64,
}

impl Run {
    fn random(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn is_free(&self, truth: Truth) -> bool {
        match truth {
            Truth::FreeFrom(at_ms) | Truth::Leased { until_ms: at_ms, .. } => at_ms <= self.now_ms,
            Truth::Deleted => false,
        }
    }

    fn post(&mut self) {
        let delay_ms = self.random(4) * 40;
        let visible_at_ms = if delay_ms == 0 { 0 } else { self.now_ms + delay_ms };
        let body = format!("m{}", self.truths.len());
        post_all(&mut self.bench, vec![message(&body, None, visible_at_ms)]);
        self.truths.push((body, Truth::FreeFrom(visible_at_ms)));
    }

    fn reserve(&mut self) {
        let (count, lasts_ms) = (1 + self.random(4), 20 + self.random(200));
        let is_free = |(_, truth): &&(String, Truth)| self.is_free(*truth);
        let due = self.truths.iter().filter(is_free).take(count as usize);
        let due: Vec<String> = due.map(|(body, _)| body.clone()).collect();
        let said = reserve(&mut self.bench, count as u32, 0, Take::Lease { lasts_ms });
        let got = said.split(' ').filter_map(|word| Some(word.split_once('#')?.0.to_owned()));
        assert_eq!(got.collect::<Vec<_>>(), due, "at {}", self.now_ms);
        let until_ms = self.now_ms + lasts_ms;
        for body in due {
            let by = self.bench.handles[&body].last().and_then(|handle| handle.lease).expect("a lease");
            self.set(&body, Truth::Leased { by, until_ms });
        }
    }

    fn set(&mut self, body: &str, truth: Truth) {
        let place = self.truths.iter().position(|(known, _)| known == body).expect("a message");
        self.truths[place].1 = truth;
    }

    fn handle(&mut self) {
        let known: Vec<String> =
            self.bench.handles.keys().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        if known.is_empty() {
            return;
        }
        let body = known[self.random(known.len() as u64) as usize].clone();
        let numbers = self.bench.handles[&body].len() as u64;
        // Mostly the last one.
        let number = (numbers - 1).saturating_sub(self.random(4) / 3);
        let handle_of = self.bench.handles[&body][number as usize];
        let (_, truth) = self.truths.iter().find(|(known, _)| *known == body).cloned().expect("a message");
        let lease = handle_of.lease.expect("a lease");
        let (action, then) = match self.random(3) {
            0 => (DELETE, Truth::Deleted),
            1 => {
                let lasts_ms = 20 + self.random(200);
                let until_ms = self.now_ms + lasts_ms;
                (HandleAction::Extend { lasts_ms }, Truth::Leased { by: lease, until_ms })
            }
            _ => {
                let delay_ms = self.random(3) * 50;
                (HandleAction::Release { delay_ms }, Truth::FreeFrom(self.now_ms + delay_ms))
            }
        };
        let want = match truth {
            Truth::Deleted => "Gone ok",
            Truth::Leased { by, until_ms } if self.now_ms < until_ms && by == lease => "done ok",
            Truth::Leased { until_ms, .. } if self.now_ms < until_ms => "Taken ok",
            _ => "Expired ok",
        };
        assert_eq!(handle(&mut self.bench, &[handle_of], action), want, "{body} at {}", self.now_ms);
        if want == "done ok" {
            self.set(&body, then);
        }
    }

    /// A consumer takes one message, and gives it back or not.
    fn consume(&mut self) {
        let due = self.truths.iter().find(|(_, truth)| self.is_free(*truth)).map(|(body, _)| body.clone());
        let said = self.bench.run("attach 1.2 a 1");
        let got = said.split_once('<').map(|(_, body)| body.split('!').next().unwrap_or(body).to_owned());
        assert_eq!(got, due, "at {}", self.now_ms);
        let Some(body) = got else { return drop(self.bench.run("detach 1.2 none")) };
        if self.random(2) == 0 {
            self.bench.run(&format!("accept 1.2 {body}\ndetach 1.2 none"));
            self.set(&body, Truth::Deleted);
        } else {
            self.bench.run("detach 1.2 all");
            self.set(&body, Truth::FreeFrom(0));
        }
    }

    fn step(&mut self) {
        match self.random(12) {
            0 | 1 => self.post(),
            2..=4 => self.reserve(),
            5..=7 => self.handle(),
            8 => self.consume(),
            9 | 10 => {
                self.now_ms += self.random(80);
                self.bench.run(&format!("time {}", self.now_ms));
            }
            _ => {
                match self.random(2) {
                    0 => self.bench.restart(),
                    _ => self.bench.reload(),
                }
                self.bench.run(&format!("time {}", self.now_ms));
            }
        }
        assert_eq!(self.bench.partitions[0].miscounted(), None, "at {}", self.now_ms);
    }
}

#[test]
fn whatever_happens_an_entry_has_one_holder_and_what_was_deleted_is_gone() {
    for seed in 0..40 {
        let mut bench = bench();
        bench.run("make 1 a");
        let mut run = Run { bench, truths: Vec::new(), now_ms: 1000, state: seed };
        (0..300).for_each(|_| run.step());
    }
}
