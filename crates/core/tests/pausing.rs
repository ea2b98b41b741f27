//! Paused queues, case by case. See `bench` for the words.

mod bench;

use bench::{Bench, settings};
use postroad_model::{ConnectionId, Destination, LeaseEvent, Reserve, Take, Ticket};

fn two_stores() -> Bench {
    let mut settings = settings(2);
    settings.placement.hashed = 1;
    Bench::new(settings)
}

#[test]
fn a_paused_queue_delivers_nothing_and_all_else_goes_on() {
    for (case, script, want) in [
        ("consumers get nothing", "make 1 a\npause 1 a\nattach 1.1 a 9\nsend 2 a m", "ok ok ok ok"),
        (
            "they were there before, and get all once it is resumed",
            "make 1 a\nattach 1.1 a 9\npause 1 a\nsend 2 a m\nsend 2 a n\nresume 1 a",
            "ok ok ok ok ok 1.1<m 1.1<n ok",
        ),
        (
            "in the order of their turns",
            "make 1 a\nattach 1.1 a 9\nattach 2.1 a 9\npause 1 a\nsend 3 a m\nsend 3 a n\nresume 1 a",
            "ok ok ok ok ok ok 1.1<m 2.1<n ok",
        ),
        (
            "a message in hand stays there, and one that is released waits",
            "send 1 a m\nattach 1.1 a 9\npause 1 a\nrelease 1.1 m\nresume 1 a",
            "ok ok 1.1<m ok ok 1.1<m ok",
        ),
        ("a browser sees it", "send 1 a m\npause 1 a\nattach 1.1 a 9 browse", "ok ok ok 1.1<m 1.1 drained"),
        (
            "an operator takes messages past those that wait",
            "send 1 a m\npause 1 a\nattach 1.1 a 9\nattach 2.1 a 9 operator\naccept 2.1 m\nresume 1 a",
            "ok ok ok ok 2.1<m ok ok",
        ),
        (
            "an operator leaves others where they were",
            "make 1 a\npause 1 a\nattach 1.1 a 9\nattach 2.1 a 1 operator\ndetach 2.1 all\nsend 1 a m\nresume 1 a",
            "ok ok ok ok ok 1.1<m ok",
        ),
        ("twice is once", "make 1 a\npause 1 a\npause 1 a\nresume 1 a\nresume 1 a", "ok ok ok ok ok"),
        ("a queue that is not there", "pause 1 a", "no: queue://a does not exist"),
        (
            "a temporary one",
            "make 1 ~a\npause 1 ~a",
            "ok no: temp-queue://a is temporary; only lasting queues can be paused",
        ),
        (
            "it does not move",
            "make 1 a\npause 1 a\nmove 1 a to=1",
            "ok ok no: queue://a cannot be moved: it is paused: resume it first",
        ),
        (
            "deleted and made again, it is another one",
            "make 1 a\npause 1 a\nunmake 1 a\nsend 1 a m\nattach 1.1 a 9",
            "ok ok ok ok ok 1.1<m",
        ),
    ] {
        assert_eq!(two_stores().run(script), want, "case: {case}");
    }
}

#[test]
fn a_pause_survives_a_restart_and_a_snapshot() {
    for begins_again in [Bench::restart, Bench::reload] {
        let mut bench = two_stores();
        bench.run("send 1 a m\nsend 1 b n\npause 1 a");
        begins_again(&mut bench);
        assert_eq!(bench.run("attach 1.1 a 9\nattach 1.2 b 9"), "ok ok 1.2<n");
        // The body may have to be read first.
        let said = bench.run("resume 1 a");
        assert!(["ok 1.1<m", "1.1<m ok"].contains(&said.as_str()), "{said}");
        begins_again(&mut bench);
        assert_eq!(bench.run("attach 1.1 a 9"), "ok 1.1<m");
    }
}

#[test]
fn http_clients_reserve_nothing_of_a_paused_queue() {
    let mut bench = two_stores();
    bench.run("send 1 a m\npause 1 a");
    let reserve = |bench: &mut Bench| {
        let (queue, connection, ticket) = (Destination::queue("a"), ConnectionId::new(0, 9), Ticket(1));
        let take = Take::Lease { lasts_ms: 1000 };
        let (messages_max, selector, wait_ms) = (1, "".into(), 0);
        bench.lease(LeaseEvent::Reserve(Reserve {
            connection,
            ticket,
            queue,
            messages_max,
            selector,
            wait_ms,
            take,
        }))
    };
    assert_eq!(reserve(&mut bench), "nothing ok");
    bench.run("resume 1 a");
    assert_eq!(reserve(&mut bench), "m#1 ok");
}
